//! Faults of the way to the disk, which the explorer must bring to light: a test that finds nothing with one of
//! them proves nothing without.

use std::io::{self, IoSlice};

use extant_block::{BlockDevice, MemoryDevice, Mutation, Recorder};
use extant_ondisk::fast_commit::{Record, TAG_BYTES, Tag};
use extant_ondisk::jbd2::MAGIC;
use extant_ondisk::{Superblock, crc32c};
use extant_rt::{Arc, AtomicBool, LockClass, Mutex, Ordering};

/// jbd2's number of a block of revoke records, and the bytes of its header.
const REVOKE_BLOCK: u32 = 5;
const REVOKE_HEADER_BYTES: u32 = 16;

const SUPERBLOCK_BYTES: usize = 1024;

/// What is wrong with the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    Recording(Mutation),
    /// Blocks of revoke records name no block.
    NoRevokes,
    /// The superblock names no orphan: as if inodes left the list while they have no links.
    NoOrphans,
    /// Fast commits have no records of this type: as if what they say were not tracked.
    NoRecords(Tag),
    /// Fast commits are of the transaction after theirs: as if they counted when they are obsolete.
    LaterFastCommits,
    /// A write outside the journal reaches the disk after the next flush only.
    LateWrites,
}

/// A device before the recorder. It is faithful until it is armed.
pub struct FaultyDevice {
    pub recorder: Recorder<MemoryDevice>,
    fault: Fault,
    is_armed: AtomicBool,
    block_size: u64,
    journal: Vec<u64>,
    /// Writes that were answered and not done.
    late: Mutex<Vec<Late>>,
}

struct Late {
    offset: u64,
    bytes: Vec<u8>,
    has_seen_flush: bool,
}

impl FaultyDevice {
    /// `journal` names the blocks of the journal.
    pub fn new(
        recorder: Recorder<MemoryDevice>,
        fault: Fault,
        block_size: u64,
        journal: Vec<u64>,
    ) -> Arc<Self> {
        let late = Mutex::new(LockClass::DEVICE_LAYER, Vec::new());
        Arc::new(Self { recorder, fault, is_armed: AtomicBool::new(false), block_size, journal, late })
    }

    /// From now on the fault is there.
    pub fn arm(&self) {
        if let Fault::Recording(mutation) = self.fault {
            self.recorder.set_mutation(mutation);
        }
        self.is_armed.store(true, Ordering::Relaxed);
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == fault && self.is_armed.load(Ordering::Relaxed)
    }

    fn write_late(&self) -> io::Result<()> {
        let due: Vec<Late> = {
            let mut late = self.late.lock();
            let (due, rest) = late.drain(..).partition(|write: &Late| write.has_seen_flush);
            *late = rest;
            late.iter_mut().for_each(|write| write.has_seen_flush = true);
            due
        };
        due.iter().try_for_each(|write| self.recorder.write_at(write.offset, &write.bytes))
    }
}

/// The block without its revoke records, if it has such.
fn without_revokes(bytes: &[u8]) -> Option<Vec<u8>> {
    let word =
        |at: usize| bytes.get(at..at + 4).map(|word| u32::from_be_bytes(word.try_into().unwrap_or_default()));
    if word(0) != Some(MAGIC) || word(4) != Some(REVOKE_BLOCK) {
        return None;
    }
    let mut bytes = bytes.to_vec();
    bytes[12..16].copy_from_slice(&REVOKE_HEADER_BYTES.to_be_bytes());
    Some(bytes)
}

/// The bytes written to the log or to a final location, with the orphan lists of superblocks emptied; none if no
/// superblock in them names an orphan.
fn without_orphans(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut changed = None;
    for (index, chunk) in bytes.chunks_exact(SUPERBLOCK_BYTES).enumerate() {
        let Ok(mut superblock) = Superblock::parse(chunk) else { continue };
        if superblock.s_last_orphan() != 0 {
            superblock.set_s_last_orphan(0);
            superblock.update_checksum();
            let at = index * SUPERBLOCK_BYTES;
            changed.get_or_insert_with(|| bytes.to_vec())[at..at + SUPERBLOCK_BYTES]
                .copy_from_slice(superblock.as_bytes());
        }
    }
    changed
}

/// A fast commit of one block that is otherwise: `change` is given the type of each record, and its bytes.
fn changed_fast_commit(bytes: &[u8], change: impl Fn(Tag, &mut [u8])) -> Option<Vec<u8>> {
    let (mut changed, mut at) = (bytes.to_vec(), 0);
    while let Some(record) = Record::at(bytes, at) {
        change(record.tag, &mut changed[at..at + record.bytes.len()]);
        let checksum_at = at + TAG_BYTES + 4;
        at += record.bytes.len();
        if record.tag == Tag::Tail {
            let is_whole = record.pair().1 == crc32c(0, &bytes[..checksum_at]);
            let checksum = crc32c(0, &changed[..checksum_at]).to_le_bytes();
            changed[checksum_at..checksum_at + 4].copy_from_slice(&checksum);
            return is_whole.then_some(changed);
        }
    }
    None
}

impl BlockDevice for FaultyDevice {
    fn size(&self) -> u64 {
        self.recorder.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.recorder.read_at(offset, buf)?;
        for write in self.late.lock().iter() {
            let (from, to) = (
                write.offset.max(offset),
                (write.offset + write.bytes.len() as u64).min(offset + buf.len() as u64),
            );
            if from < to {
                buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(
                    &write.bytes[(from - write.offset) as usize..(to - write.offset) as usize],
                );
            }
        }
        Ok(())
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes = bufs.iter().map(|buf| &**buf).collect::<Vec<_>>().concat();
        if self.has(Fault::NoRevokes)
            && let Some(bytes) = without_revokes(&bytes)
        {
            return self.recorder.write_at(offset, &bytes);
        }
        if self.has(Fault::NoOrphans)
            && let Some(bytes) = without_orphans(&bytes)
        {
            return self.recorder.write_at(offset, &bytes);
        }
        if self.has(Fault::LateWrites) && !self.journal.contains(&(offset / self.block_size)) {
            self.late.lock().push(Late { offset, bytes, has_seen_flush: false });
            return Ok(());
        }
        self.recorder.write_at(offset, &bytes)
    }

    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let changed = match self.fault {
            Fault::NoRecords(tag) if self.is_armed.load(Ordering::Relaxed) => {
                changed_fast_commit(buf, |found, record| {
                    if found == tag {
                        record[..2].copy_from_slice(&(Tag::Pad as u16).to_le_bytes());
                    }
                })
            }
            Fault::LaterFastCommits if self.is_armed.load(Ordering::Relaxed) => {
                changed_fast_commit(buf, |found, record| match found {
                    Tag::Head => record[TAG_BYTES + 4] += 1,
                    Tag::Tail => record[TAG_BYTES] += 1,
                    _ => {}
                })
            }
            _ => None,
        };
        self.recorder.write_fua(offset, changed.as_deref().unwrap_or(buf))
    }

    fn flush(&self) -> io::Result<()> {
        self.recorder.flush()?;
        self.write_late()
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.recorder.discard(offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.recorder.write_zeroes(offset, bytes)
    }
}
