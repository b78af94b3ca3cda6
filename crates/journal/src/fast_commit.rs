//! The fast-commit area behind the log: reading it, and making the blocks of a fast commit.
//!
//! Records in it count if the area begins with a HEAD of the transaction that comes after the last one in the log, up to the last TAIL of
//! that transaction whose checksum is right. What follows is of a fast commit that did not reach the disk, or of an older use of the area.
//!
//! A fast commit that begins the area and is longer than a sector comes behind an empty one of a sector. Linux and e2fsck do not mount an
//! area whose first fast commit is torn; of a later one they ignore what does not count.
//!
//! Leaves out: what the records mean; writing the blocks (`commit/fast.rs`).
//!
//! Source: `fc_do_one_pass` (`fs/jbd2/recovery.c`), `ext4_fc_replay_scan` (`fs/ext4/fast_commit.c`). Checked by `tests/fast_commit.rs`.

use extant_block::BlockDevice;
use extant_ondisk::fast_commit::{Record, TAG_BYTES, Tag, put_checksum, put_head, put_pad, put_tail};
use extant_ondisk::jbd2::Superblock;
use extant_ondisk::{TransactionId, crc32c};

use crate::log::{self, Ring};
use crate::{Error, LogMap, Result};

/// What the disk writes as a whole.
const SECTOR_BYTES: usize = 512;
/// Bytes of a HEAD, and of a TAIL without what fills its block.
const PAIR_RECORD_BYTES: usize = TAG_BYTES + 8;

/// A record of a fast commit that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FastCommitRecord {
    /// Its type.
    pub tag: Tag,
    /// Its value.
    pub value: Box<[u8]>,
}

/// The log blocks of the area, from `first` up to `end`; empty without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    pub first: u32,
    pub end: u32,
}

impl Area {
    /// Behind the ring: the kernel leaves one block unused in between.
    pub fn of(ring: Ring, sb: &Superblock) -> Self {
        let first = ring.end.saturating_add(1).min(sb.s_maxlen);
        Self { first, end: sb.s_maxlen }
    }

    /// Blocks that fast commits may fill. The last one ends a recovery: Linux and e2fsck look for it behind the log if the area is full, and
    /// give up.
    pub fn room(self) -> u32 {
        (self.end - self.first).saturating_sub(1)
    }

    /// Whether it begins with a HEAD, of whatever transaction.
    pub fn has_head(self, device: &dyn BlockDevice, map: &LogMap, block_size: u32) -> Result<bool> {
        if self.first >= self.end {
            return Ok(false);
        }
        let mut block = vec![0; block_size as usize];
        log::read_block(device, map, self.first, &mut block)?;
        Ok(Record::at(&block, 0).is_some_and(|record| record.tag == Tag::Head))
    }
}

/// What is in an area.
#[derive(Debug, Default)]
pub struct Found {
    /// The fast commits that count and are not empty.
    pub commits: u32,
    /// Their records.
    pub records: Vec<FastCommitRecord>,
}

/// Reads the fast commits that follow the transactions before `tid`. Visits each block once, and holds at most the area in memory.
///
/// # Errors
/// I/O; [`Error::FastCommitFeatures`] if the area is of `tid` and of a later version.
pub fn scan(
    device: &dyn BlockDevice,
    map: &LogMap,
    area: Area,
    block_size: u32,
    tid: TransactionId,
) -> Result<Found> {
    let mut block = vec![0; block_size as usize];
    let mut scan = Scan { tid, checksum: 0, pending: Vec::new(), found: Found::default() };
    for at in area.first..area.end {
        log::read_block(device, map, at, &mut block)?;
        let is_first = at == area.first;
        if is_first && Record::at(&block, 0).is_none_or(|record| record.tag != Tag::Head) {
            break;
        }
        if !scan.block(&block)? {
            break;
        }
    }
    Ok(scan.found)
}

/// The blocks of a fast commit of `tid`; `None` if a record does not fit a block. One that begins the area has a HEAD.
pub fn blocks(
    tid: TransactionId,
    begins_area: bool,
    records: &[Vec<u8>],
    block_bytes: usize,
) -> Option<Vec<Vec<u8>>> {
    let mut out = Writer { blocks: Vec::new(), block: Vec::new(), checksum: 0, block_bytes };
    if begins_area {
        put_head(tid, &mut out.block);
        let bytes: usize = records.iter().map(Vec::len).sum();
        if bytes + 2 * PAIR_RECORD_BYTES > SECTOR_BYTES {
            out.end(tid)?;
        }
    }
    for record in records {
        out.make_room(record.len())?;
        out.block.extend_from_slice(record);
    }
    out.end(tid)?;
    Some(out.blocks)
}

struct Writer {
    blocks: Vec<Vec<u8>>,
    block: Vec<u8>,
    /// Of the blocks of this fast commit before the last.
    checksum: u32,
    block_bytes: usize,
}

impl Writer {
    /// Has room for a record in the last block, and behind it for what fills the block.
    fn make_room(&mut self, bytes: usize) -> Option<()> {
        let usable = self.block_bytes - TAG_BYTES;
        if bytes > usable {
            return None;
        }
        if self.block.len() + bytes > usable {
            put_pad(self.block_bytes, &mut self.block);
            self.checksum = crc32c(self.checksum, &self.block);
            self.blocks.push(std::mem::take(&mut self.block));
        }
        Some(())
    }

    fn end(&mut self, tid: TransactionId) -> Option<()> {
        self.make_room(PAIR_RECORD_BYTES)?;
        put_tail(tid, self.block_bytes, &mut self.block);
        put_checksum(crc32c(self.checksum, &self.block), self.block_bytes, &mut self.block);
        self.checksum = 0;
        self.blocks.push(std::mem::take(&mut self.block));
        Some(())
    }
}

struct Scan {
    tid: TransactionId,
    /// Of the records since the last TAIL.
    checksum: u32,
    pending: Vec<FastCommitRecord>,
    found: Found,
}

impl Scan {
    /// Takes the records of a block; `false` at the end of what counts.
    fn block(&mut self, block: &[u8]) -> Result<bool> {
        let mut at = 0;
        while at + TAG_BYTES <= block.len() {
            let Some(record) = Record::at(block, at) else { return Ok(false) };
            at += record.bytes.len();
            match record.tag {
                Tag::Head => {
                    let (features, tid) = record.pair();
                    if tid != self.tid.0 {
                        return Ok(false);
                    }
                    if features != 0 {
                        return Err(Error::FastCommitFeatures(features));
                    }
                    self.checksum = crc32c(self.checksum, record.bytes);
                }
                Tag::Tail => {
                    let (tid, checksum) = record.pair();
                    if tid != self.tid.0 || checksum != crc32c(self.checksum, record.summed_tail()) {
                        return Ok(false);
                    }
                    self.checksum = 0;
                    // One may be empty, to begin the area.
                    self.found.commits += u32::from(!self.pending.is_empty());
                    self.found.records.append(&mut self.pending);
                }
                Tag::Pad => self.checksum = crc32c(self.checksum, record.bytes),
                tag => {
                    self.checksum = crc32c(self.checksum, record.bytes);
                    self.pending.push(FastCommitRecord { tag, value: record.value.into() });
                }
            }
        }
        Ok(true)
    }
}
