//! The hash tree of dm-verity behind a finished file system: the kernel then checks every block that it reads against one root hash.
//!
//! Behind the data comes a superblock in a block of its own, then the levels of the tree, the one below the root first. A block of a
//! level has the digests of 128 blocks of the level below, or of the data. SHA-256, blocks of 4 KiB, the salt before the bytes: what
//! `veritysetup format` makes by default.
//!
//! Source: cryptsetup, "DMVerity" in its wiki; Linux, `Documentation/admin-guide/device-mapper/verity.rst`. Test: `tests/verity.rs`,
//! against `veritysetup`.

use std::io;

use extant_block::BlockDevice;
use sha2::{Digest as _, Sha256};

use crate::hash_tree::{BLOCK_BYTES, DIGEST_BYTES, TreeWriter, level_blocks};

/// Bytes of data that are read at once.
const PIECE_BYTES: usize = 1 << 20;
/// The superblock as far as it says anything.
const SUPERBLOCK_BYTES: usize = 512;

/// A hash tree, before it is written.
#[derive(Clone, Debug)]
pub struct Verity {
    salt: Vec<u8>,
    uuid: [u8; 16],
}

/// A hash tree that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashTree {
    /// The digest that vouches for all data.
    pub root_hash: [u8; DIGEST_BYTES],
    /// Where the superblock is, in bytes from the start of the data.
    pub hash_offset: u64,
}

impl Verity {
    /// The most bytes of a salt that the superblock holds.
    pub const SALT_BYTES_MAX: usize = 256;
    /// Data comes in whole blocks of this many bytes.
    pub const BLOCK_BYTES: u64 = BLOCK_BYTES as u64;

    /// A tree whose superblock has this UUID, with a salt that follows from it, so that the same disk gives the same root hash.
    #[must_use]
    pub fn new(uuid: [u8; 16]) -> Self {
        Self { salt: Sha256::digest(uuid).to_vec(), uuid }
    }

    /// The same with another salt. None if it is longer than [`Verity::SALT_BYTES_MAX`].
    #[must_use]
    pub fn salted(self, salt: &[u8]) -> Option<Self> {
        (salt.len() <= Self::SALT_BYTES_MAX).then(|| Self { salt: salt.to_vec(), ..self })
    }

    /// Its salt.
    #[must_use]
    pub fn salt(&self) -> &[u8] {
        &self.salt
    }

    /// Bytes behind `data_bytes` of data that the superblock and the tree take.
    #[must_use]
    pub fn bytes_for(data_bytes: u64) -> u64 {
        let levels: u64 = level_blocks(data_bytes / Self::BLOCK_BYTES).iter().sum();
        (1 + levels) * Self::BLOCK_BYTES
    }

    /// Hashes the first `data_bytes` bytes of a device, and writes superblock and tree behind them.
    ///
    /// # Errors
    /// `InvalidInput` for no data or data that is not in whole blocks; the device's.
    pub fn write(&self, device: &dyn BlockDevice, data_bytes: u64) -> io::Result<HashTree> {
        if data_bytes == 0 || !data_bytes.is_multiple_of(Self::BLOCK_BYTES) {
            let message = "dm-verity takes data in whole blocks of 4096 bytes";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let data_blocks = data_bytes / Self::BLOCK_BYTES;
        let write = |at, block: &[u8]| device.write_at(at, block);
        let mut tree = TreeWriter::new(&self.salt, data_bytes + Self::BLOCK_BYTES, data_blocks, write);
        let zeroes = vec![0; BLOCK_BYTES];
        let of_zeroes = tree.hash(&zeroes);
        let mut piece = vec![0; PIECE_BYTES];
        let mut at = 0;
        while at < data_bytes {
            let bytes = (data_bytes - at).min(PIECE_BYTES as u64) as usize;
            device.read_at(at, &mut piece[..bytes])?;
            for block in piece[..bytes].chunks_exact(BLOCK_BYTES) {
                // Most of a disk is free.
                let digest = if block == zeroes { of_zeroes } else { tree.hash(block) };
                tree.push(digest)?;
            }
            at += bytes as u64;
        }
        let root_hash = tree.finish()?;
        device.write_at(data_bytes, &self.superblock(data_blocks))?;
        Ok(HashTree { root_hash, hash_offset: data_bytes })
    }

    /// The block that describes the tree.
    fn superblock(&self, data_blocks: u64) -> Vec<u8> {
        let mut block = Vec::with_capacity(BLOCK_BYTES);
        block.extend(b"verity\0\0");
        // The version of the superblock, and of the hashing: the salt comes first.
        block.extend([1_u32, 1].map(u32::to_le_bytes).concat());
        block.extend(self.uuid);
        block.extend(b"sha256");
        block.resize(64, 0);
        block.extend([BLOCK_BYTES as u32; 2].map(u32::to_le_bytes).concat());
        block.extend(data_blocks.to_le_bytes());
        block.extend((self.salt.len() as u16).to_le_bytes());
        block.resize(88, 0);
        block.extend(&self.salt);
        debug_assert!(block.len() <= SUPERBLOCK_BYTES);
        block.resize(BLOCK_BYTES, 0);
        block
    }
}
