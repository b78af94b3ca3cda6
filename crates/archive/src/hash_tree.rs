//! Trees of digests, as dm-verity and fs-verity have them: a block holds the digests of 128 blocks of the level below, or
//! of the data. SHA-256, blocks of 4 KiB, the salt before the bytes, the level of the root first.

use sha2::{Digest as _, Sha256};

/// Bytes of a block, of the data and of the tree.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// Bytes of a digest.
pub(crate) const DIGEST_BYTES: usize = 32;
/// Digests in a block of the tree.
const FANOUT: u64 = (BLOCK_BYTES / DIGEST_BYTES) as u64;

pub(crate) type Hash = [u8; DIGEST_BYTES];

/// How many blocks each level has, from the one above the data to the root's.
pub(crate) fn level_blocks(data_blocks: u64) -> Vec<u64> {
    let next = |blocks: &u64| (*blocks > 1).then(|| blocks.div_ceil(FANOUT));
    std::iter::successors(Some(data_blocks), next).skip(1).collect()
}

/// A block of a level that is not full yet.
struct Level {
    /// Where it goes.
    at: u64,
    block: Vec<u8>,
}

/// A tree while the data is read.
pub(crate) struct TreeWriter<W> {
    write: W,
    salted: Sha256,
    /// From the one above the data.
    levels: Vec<Level>,
    root: Hash,
}

impl<E, W: FnMut(u64, &[u8]) -> Result<(), E>> TreeWriter<W> {
    /// A tree of so many blocks of data, which `write` writes from `at` on.
    pub fn new(salt: &[u8], mut at: u64, data_blocks: u64, write: W) -> Self {
        let mut levels: Vec<Level> = Vec::new();
        for blocks in level_blocks(data_blocks).into_iter().rev() {
            levels.push(Level { at, block: Vec::with_capacity(BLOCK_BYTES) });
            at += blocks * BLOCK_BYTES as u64;
        }
        levels.reverse();
        Self { write, salted: Sha256::new_with_prefix(salt), levels, root: [0; DIGEST_BYTES] }
    }

    /// The digest of a block.
    pub fn hash(&self, block: &[u8]) -> Hash {
        self.salted.clone().chain_update(block).finalize().into()
    }

    /// Takes the digest of the next block of data.
    pub fn push(&mut self, digest: Hash) -> Result<(), E> {
        self.push_to(0, digest)
    }

    /// Takes the next digest of a level, and those of the levels above that follow from it.
    fn push_to(&mut self, mut level: usize, mut digest: Hash) -> Result<(), E> {
        loop {
            let Some(above) = self.levels.get_mut(level) else {
                self.root = digest;
                return Ok(());
            };
            above.block.extend(digest);
            if above.block.len() < BLOCK_BYTES {
                return Ok(());
            }
            digest = self.complete(level)?;
            level += 1;
        }
    }

    /// Writes a block of a level: its digest.
    fn complete(&mut self, level: usize) -> Result<Hash, E> {
        let Level { at, block } = &mut self.levels[level];
        block.resize(BLOCK_BYTES, 0);
        (self.write)(*at, block)?;
        *at += BLOCK_BYTES as u64;
        let block = std::mem::take(block);
        Ok(self.hash(&block))
    }

    /// Completes all levels: the root hash; zeros if there was no data.
    pub fn finish(mut self) -> Result<Hash, E> {
        for level in 0..self.levels.len() {
            if !self.levels[level].block.is_empty() {
                let digest = self.complete(level)?;
                self.push_to(level + 1, digest)?;
            }
        }
        Ok(self.root)
    }
}
