//! Where the empty server keeps the content of files: in memory, or in an image file.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

const BLOCK_BYTES: u64 = 4096;

/// The content of a file: one or the other, as the store is.
#[derive(Default)]
pub struct Content {
    /// All of it.
    bytes: Vec<u8>,
    /// The blocks of the image that hold it, enough for its size.
    blocks: Vec<u64>,
}

/// The place. Blocks of the image are given out once and never again.
pub struct Store {
    image: Option<File>,
    next_block: AtomicU64,
}

impl Store {
    /// In memory, or in a new file.
    pub fn new(image: Option<&Path>) -> io::Result<Self> {
        let image = match image {
            Some(path) => Some(File::options().read(true).write(true).create_new(true).open(path)?),
            None => None,
        };
        Ok(Self { image, next_block: AtomicU64::new(0) })
    }

    /// Reads what lies within the size.
    pub fn read(&self, content: &Content, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let Some(image) = &self.image else {
            buf.copy_from_slice(&content.bytes[offset as usize..][..buf.len()]);
            return Ok(());
        };
        each_run(&content.blocks, offset, buf.len(), |at, part| image.read_exact_at(&mut buf[part], at))
    }

    /// Writes, the content growing as far as that.
    pub fn write(&self, content: &mut Content, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let Some(image) = &self.image else {
            let (held, offset) = (&mut content.bytes, offset as usize);
            if held.len() < offset {
                held.resize(offset, 0);
            }
            let (over, behind) = bytes.split_at(bytes.len().min(held.len() - offset));
            held[offset..offset + over.len()].copy_from_slice(over);
            held.extend_from_slice(behind);
            return Ok(());
        };
        self.cover(&mut content.blocks, offset + bytes.len() as u64);
        each_run(&content.blocks, offset, bytes.len(), |at, part| image.write_all_at(&bytes[part], at))
    }

    /// Cuts or extends by zeros.
    pub fn set_len(&self, content: &mut Content, size: u64) -> io::Result<()> {
        let Some(image) = &self.image else {
            content.bytes.resize(size as usize, 0);
            return Ok(());
        };
        let blocks = &mut content.blocks;
        blocks.truncate(size.div_ceil(BLOCK_BYTES) as usize);
        let within = size % BLOCK_BYTES;
        if let Some(last) = blocks.last()
            && size < blocks.len() as u64 * BLOCK_BYTES
        {
            let zeros = [0; BLOCK_BYTES as usize];
            image.write_all_at(&zeros[within as usize..], last * BLOCK_BYTES + within)?;
        }
        self.cover(blocks, size);
        Ok(())
    }

    /// Takes one run of blocks for what is missing.
    fn cover(&self, blocks: &mut Vec<u64>, size: u64) {
        let missing = size.div_ceil(BLOCK_BYTES).saturating_sub(blocks.len() as u64);
        if missing > 0 {
            // Alone a source of numbers.
            let first = self.next_block.fetch_add(missing, Ordering::Relaxed);
            blocks.extend(first..first + missing);
        }
    }
}

/// Calls `access` for each piece that is contiguous in the image, with its place there and in the request.
fn each_run(
    blocks: &[u64],
    offset: u64,
    len: usize,
    mut access: impl FnMut(u64, Range<usize>) -> io::Result<()>,
) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        let position = offset + done as u64;
        let (index, within) = ((position / BLOCK_BYTES) as usize, position % BLOCK_BYTES);
        let follows = |run: &u64| blocks.get(index + *run as usize) == Some(&(blocks[index] + run));
        let wanted = (within + (len - done) as u64).div_ceil(BLOCK_BYTES);
        let run = (1..wanted).find(|run| !follows(run)).unwrap_or(wanted);
        let bytes = ((run * BLOCK_BYTES - within) as usize).min(len - done);
        access(blocks[index] * BLOCK_BYTES + within, done..done + bytes)?;
        done += bytes;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Content, Store};

    #[test]
    fn image_holds_what_memory_holds() {
        let path = std::env::temp_dir().join(format!("extant-bench-store-{}", std::process::id()));
        let (memory, image) = (Store::new(None).expect("memory"), Store::new(Some(&path)).expect("image"));
        std::fs::remove_file(&path).expect("unlink");
        let (mut held, mut other) = ([Content::default(), Content::default()], Content::default());
        let (mut size, mut random) = (0, 1_u64);
        for step in 0..500_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (offset, len) = ((random >> 40) % 40_000, (random >> 20) % 12_000);
            let is_cut = step % 5 == 4;
            for (store, content) in [&memory, &image].into_iter().zip(&mut held) {
                if is_cut {
                    store.set_len(content, offset).expect("cut");
                } else {
                    store.write(content, offset, &vec![step as u8; len as usize]).expect("write");
                }
            }
            // Another file's blocks lie between.
            image.write(&mut other, step * 4096, &[7; 100]).expect("write");
            size = if is_cut { offset } else { size.max(offset + len) };
            let mut read = [vec![0; size as usize], vec![1; size as usize]];
            memory.read(&held[0], 0, &mut read[0]).expect("read");
            image.read(&held[1], 0, &mut read[1]).expect("read");
            assert!(read[0] == read[1], "step {step}");
        }
        assert!(held[1].blocks.windows(2).any(|two| two[0] + 1 != two[1]), "one run throughout");
    }
}
