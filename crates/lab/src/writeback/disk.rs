//! Disks for simulated writeback: contents that take little memory, and the work of who writes.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use extant_block::{BlockDevice, ModelledDevice};
use extant_rt::{LockClass, Mutex, work};

/// Bytes that are kept together.
const BLOCK_BYTES: usize = 4096;

/// A block's content.
#[derive(Clone, Debug)]
enum Content {
    /// All bytes are this one.
    Filled(u8),
    Mixed(Box<[u8]>),
}

/// A device in memory that keeps a block of equal bytes as one: it forgets nothing, and what loads write takes no room.
#[derive(Debug)]
pub struct FoldedDevice {
    bytes: u64,
    /// Blocks that are not zeroes.
    blocks: Mutex<HashMap<u64, Content>>,
}

impl FoldedDevice {
    /// A device of so many bytes, a multiple of 4096, all zero.
    pub fn new(bytes: u64) -> Self {
        Self { bytes, blocks: Mutex::new(LockClass::DEVICE, HashMap::new()) }
    }

    fn check(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let is_inside = offset.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        if is_inside { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }
}

/// Blocks from `offset` on: number, the first byte within, and how many.
fn blocks(offset: u64, bytes: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let (mut at, mut left) = (offset, bytes);
    std::iter::from_fn(move || {
        let within = (at % BLOCK_BYTES as u64) as usize;
        let len = left.min(BLOCK_BYTES - within);
        let block = (at / BLOCK_BYTES as u64, within, len);
        at += len as u64;
        left -= len;
        (len > 0).then_some(block)
    })
}

/// The byte that all of them are.
fn only(bytes: &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    // Each is as the one before it.
    (rest == &bytes[..rest.len()]).then_some(*first)
}

fn put(blocks: &mut HashMap<u64, Content>, number: u64, bytes: &[u8]) {
    match only(bytes) {
        Some(0) => drop(blocks.remove(&number)),
        Some(byte) => drop(blocks.insert(number, Content::Filled(byte))),
        None => drop(blocks.insert(number, Content::Mixed(bytes.into()))),
    }
}

fn get(blocks: &HashMap<u64, Content>, number: u64, within: usize, into: &mut [u8]) {
    match blocks.get(&number) {
        None => into.fill(0),
        Some(Content::Filled(byte)) => into.fill(*byte),
        Some(Content::Mixed(bytes)) => into.copy_from_slice(&bytes[within..within + into.len()]),
    }
}

impl BlockDevice for FoldedDevice {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64)?;
        let held = self.blocks.lock();
        let mut rest = buf;
        for (number, within, len) in blocks(offset, rest.len()) {
            let (own, behind) = rest.split_at_mut(len);
            get(&held, number, within, own);
            rest = behind;
        }
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        self.check(offset, bufs.iter().map(|buf| buf.len() as u64).sum())?;
        let mut held = self.blocks.lock();
        let mut at = offset;
        for buf in bufs {
            let mut rest: &[u8] = buf;
            for (number, within, len) in blocks(at, buf.len()) {
                let (own, behind) = rest.split_at(len);
                if len == BLOCK_BYTES {
                    put(&mut held, number, own);
                } else {
                    let mut whole = [0; BLOCK_BYTES];
                    get(&held, number, 0, &mut whole);
                    whole[within..within + len].copy_from_slice(own);
                    put(&mut held, number, &whole);
                }
                rest = behind;
            }
            at += buf.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.write_zeroes(offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.check(offset, bytes)?;
        let mut held = self.blocks.lock();
        for (number, within, len) in blocks(offset, usize::try_from(bytes).unwrap_or(usize::MAX)) {
            if len == BLOCK_BYTES {
                held.remove(&number);
            } else if held.contains_key(&number) {
                let mut whole = [0; BLOCK_BYTES];
                get(&held, number, 0, &mut whole);
                whole[within..within + len].fill(0);
                put(&mut held, number, &whole);
            }
        }
        Ok(())
    }
}

/// A device whose writers work for each block that they write, before the device does.
#[derive(Debug)]
pub struct WorkedDevice<D> {
    pub inner: ModelledDevice<D>,
    pub work_ns_per_block: u64,
}

impl<D> WorkedDevice<D> {
    fn work(&self, bytes: u64) {
        work(Duration::from_nanos(self.work_ns_per_block * bytes / BLOCK_BYTES as u64));
    }
}

impl<D: BlockDevice> BlockDevice for WorkedDevice<D> {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        self.work(bufs.iter().map(|buf| buf.len() as u64).sum());
        self.inner.write_vectored_at(offset, bufs)
    }

    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.work(buf.len() as u64);
        self.inner.write_fua(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.discard(offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.write_zeroes(offset, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folded_device_holds_what_an_array_would() {
        const BYTES: u64 = 16 * BLOCK_BYTES as u64;
        let (device, mut array) = (FoldedDevice::new(BYTES), vec![0; BYTES as usize]);
        let mut random = extant_loads::Random::new(1);
        for step in 0..2000_u64 {
            let at = random.below(BYTES);
            let bytes = 1 + random.below((BYTES - at).min(3 * BLOCK_BYTES as u64)) as usize;
            let (at, own) = (at as usize, at as usize..at as usize + bytes);
            match random.below(4) {
                0 => {
                    device.write_zeroes(at as u64, bytes as u64).expect("inside");
                    array[own].fill(0);
                }
                kind => {
                    let byte = |index: usize| {
                        if kind == 1 { step as u8 } else { ((index as u64 * step) >> 3) as u8 }
                    };
                    let content: Vec<u8> = (0..bytes).map(byte).collect();
                    device.write_at(at as u64, &content).expect("inside");
                    array[own].copy_from_slice(&content);
                }
            }
            let mut read = vec![1; BYTES as usize];
            device.read_at(0, &mut read).expect("all of it");
            assert!(read == array, "step {step}");
        }
        assert!(device.read_at(BYTES, &mut [0]).is_err());
    }
}
