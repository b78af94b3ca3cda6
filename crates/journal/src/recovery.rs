//! Recovery: reads the log of a disk that was not closed into memory, then writes its blocks to their final locations.
//!
//! Three passes over the same blocks, as the kernel does them: *scan* finds where the log ends, *revoke* collects the
//! records, *replay* collects the copies that no record voids. The log ends at the first block that is not of the transaction
//! expected; a transaction without a valid commit block is not replayed.
//!
//! Leaves out: what fast-commit records mean. [`replay`] collects those that follow the last transaction, and the client applies them as
//! the next transaction. Until it is durable the log on the disk says that they are to be replayed.
//!
//! Invariants: a pass visits no more blocks than the log has; nothing is written by [`replay`].
//!
//! Source: `jbd2_journal_recover`, `do_one_pass` (`fs/jbd2/recovery.c`). Checked by `tests/interop.rs`,
//! `tests/crash.rs`, `tests/fuzz.rs`.

mod blocks;

use std::collections::{BTreeMap, HashMap};

use extant_block::BlockDevice;
use extant_ondisk::jbd2::{self, BlockType, Compat, Format, Header, Incompat, Superblock, Tag, TagFlags};
use extant_ondisk::{FsBlock, TransactionId};
use extant_rt::Arc;

pub use crate::fast_commit::FastCommitRecord;
use crate::fast_commit::{self, Area};
use crate::log::{self, Ring, write_sorted};
use crate::{Corrupt, LogMap, Result};
use blocks::LogBlocks;

/// Why the scan of the log ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// The superblock says that the log is empty.
    Empty,
    /// A block without the journal's magic number.
    NoMagic,
    /// A block of another transaction than the one expected.
    OtherSequence,
    /// A block of an unknown type.
    UnknownType,
    /// A commit block, or what it sums, has a wrong checksum: the transaction did not reach the disk whole.
    BadCommit,
    /// A descriptor or revoke block has a wrong checksum and belongs to an older use of the log.
    Stale,
    /// The scan came round to where it began.
    WholeLog,
}

/// The findings in a log.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// Complete transactions.
    pub transactions: u32,
    /// Revoke records in them.
    pub revokes: u64,
    /// Copies in them that a revoke record voided.
    pub revoked_copies: u64,
    /// Where the scan ended.
    pub end_block: u32,
    /// Why it ended.
    pub stop: Stop,
    /// Complete fast commits with records that follow the last transaction.
    pub fast_commits: u32,
}

/// A log replayed in memory.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Replay {
    /// The newest content of every block in the log.
    pub blocks: BTreeMap<FsBlock, Arc<[u8]>>,
    /// The number that the next transaction shall have.
    pub next_sequence: TransactionId,
    /// The records of the fast commits that follow the last transaction, in order: to be applied as one transaction of that number.
    pub fast_commit_records: Vec<FastCommitRecord>,
    /// The superblock as it was found. `s_errno` is not 0 if the journal was aborted.
    pub superblock: Superblock,
    /// The findings.
    pub report: Report,
    superblock_block: Box<[u8]>,
}

/// Replays the log into memory; writes nothing. Takes memory for the blocks of the log, at most.
///
/// # Errors
/// I/O; a broken map; a damaged superblock or unknown features, also of fast commits; a damaged block in a transaction whose commit
/// block is sound; a block number from `fs_blocks_count` on.
pub fn replay(
    log_device: &dyn BlockDevice,
    map: &LogMap,
    block_size: u32,
    fs_blocks_count: u64,
) -> Result<Replay> {
    let (reader, mut recovered) = begin(log_device, map, block_size, fs_blocks_count)?;
    let Some(end) = reader.scan_into(&mut recovered)? else { return Ok(recovered) };
    let records = reader.revokes(end, &mut recovered.report)?;
    recovered.blocks = reader.copies(end, &records, &mut recovered.report)?;
    let area = Area::of(reader.ring, &recovered.superblock);
    let found = fast_commit::scan(log_device, map, area, block_size, end)?;
    if found.commits > 0 {
        recovered.next_sequence = end;
    }
    (recovered.report.fast_commits, recovered.fast_commit_records) = (found.commits, found.records);
    Ok(recovered)
}

/// Scans the log of a file system that was unmounted, so that none of it is to be replayed: the result has no blocks, and
/// [`Replay::checkpoint`] only marks the log empty. The report counts the transactions; the blocks in them are not looked at.
///
/// # Errors
/// I/O; a broken map; a damaged superblock or unknown features.
///
/// Source: `jbd2_journal_wipe`, `jbd2_journal_skip_recovery`.
pub fn skip(
    log_device: &dyn BlockDevice,
    map: &LogMap,
    block_size: u32,
    fs_blocks_count: u64,
) -> Result<Replay> {
    let (reader, mut skipped) = begin(log_device, map, block_size, fs_blocks_count)?;
    reader.scan_into(&mut skipped)?;
    Ok(skipped)
}

/// The log's reader, and the result before anything was found.
fn begin<'a>(
    device: &'a dyn BlockDevice,
    map: &'a LogMap,
    block_size: u32,
    fs_blocks_count: u64,
) -> Result<(Reader<'a>, Replay)> {
    let (superblock, superblock_block) = log::read_superblock(device, map, block_size)?;
    let ring = Ring::new(&superblock, map, block_size)?;
    let reader = Reader {
        blocks: LogBlocks::new(device, map, ring, block_size as usize),
        ring,
        format: superblock.format(),
        start: superblock.s_start,
        sequence: superblock.s_sequence,
        fs_blocks_count,
    };
    let recovered = Replay {
        blocks: BTreeMap::new(),
        next_sequence: superblock.s_sequence,
        report: Report {
            transactions: 0,
            revokes: 0,
            revoked_copies: 0,
            end_block: superblock.s_start,
            stop: Stop::Empty,
            fast_commits: 0,
        },
        fast_commit_records: Vec::new(),
        superblock,
        superblock_block,
    };
    Ok((reader, recovered))
}

impl Replay {
    /// Whether the log was empty, so that there is nothing to checkpoint and nothing to mark.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.superblock.s_start == 0
    }

    /// Has some of the blocks durable at their final locations before [`Self::checkpoint`] writes the others. Does nothing if there are none.
    ///
    /// # Errors
    /// I/O; then the log is as it was, and recovery may be repeated.
    pub fn write_first(&self, device: &dyn BlockDevice, is_wanted: impl Fn(FsBlock) -> bool) -> Result<()> {
        let blocks: Vec<_> = self
            .blocks
            .iter()
            .filter(|(block, _)| is_wanted(**block))
            .map(|(block, bytes)| (*block, Arc::clone(bytes)))
            .collect();
        if blocks.is_empty() {
            return Ok(());
        }
        write_sorted(device, &blocks)?;
        Ok(device.flush()?)
    }

    /// Writes the blocks to their final locations, flushes, and only then marks the log empty. Does nothing if it is.
    ///
    /// With fast commits to be replayed, the log gets a start instead, at which it holds no transaction: whoever recovers it finds the
    /// fast commits again, until a transaction of the number that they follow is durable.
    ///
    /// # Errors
    /// I/O; then the log is as it was, and recovery may be repeated.
    pub fn checkpoint(
        &self,
        device: &dyn BlockDevice,
        log_device: &dyn BlockDevice,
        map: &LogMap,
    ) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let blocks: Vec<_> = self.blocks.iter().map(|(block, bytes)| (*block, Arc::clone(bytes))).collect();
        write_sorted(device, &blocks)?;
        let mut superblock = self.superblock.clone();
        superblock.s_sequence = self.next_sequence;
        superblock.s_start = 0;
        if self.has_fast_commits() {
            superblock.s_start = self.report.end_block;
            self.clear_commit_blocks(log_device, map)?;
            log_device.flush()?;
        }
        device.flush()?;
        let mut block = self.superblock_block.clone();
        let offset = log::encode_superblock(map, &superblock, &mut block)?;
        Ok(log_device.write_fua(offset, &block)?)
    }

    /// Whether fast commits are to be replayed.
    #[must_use]
    pub fn has_fast_commits(&self) -> bool {
        self.report.fast_commits > 0
    }

    /// Overwrites the commit blocks of the transaction that did not finish: one of the same number will be written, and must not end with
    /// one of them.
    fn clear_commit_blocks(&self, log_device: &dyn BlockDevice, map: &LogMap) -> Result<()> {
        let ring = Ring::new(&self.superblock, map, self.superblock.s_blocksize)?;
        let mut block = vec![0; self.superblock_block.len()];
        for at in ring.first..ring.end {
            log::read_block(log_device, map, at, &mut block)?;
            let is_unfinished = Header::parse(&block).is_some_and(|header| {
                header.sequence == self.next_sequence && header.block_type == Some(BlockType::Commit)
            });
            if is_unfinished {
                block.fill(0);
                log::write_block(log_device, map, at, &block)?;
            }
        }
        Ok(())
    }
}

struct Reader<'a> {
    blocks: LogBlocks<'a>,
    ring: Ring,
    format: Format,
    start: u32,
    sequence: TransactionId,
    fs_blocks_count: u64,
}

/// How the scan ended.
struct Scan {
    /// The first transaction that is not complete.
    end: TransactionId,
    end_block: u32,
    stop: Stop,
}

/// A place in the log during a pass. It stops when it has been all around.
struct Cursor {
    at: u32,
    left: u32,
}

impl Cursor {
    /// Steps over `count` blocks; `false` if the log has no more.
    fn skip(&mut self, ring: Ring, count: u32) -> bool {
        if count > self.left {
            return false;
        }
        self.left -= count;
        self.at = ring.advance(self.at, count);
        true
    }
}

impl Reader<'_> {
    fn cursor(&self) -> Cursor {
        Cursor { at: self.start, left: self.ring.len() }
    }

    /// Scans a log that is not empty and reports where it ends; the first transaction that is not complete.
    fn scan_into(&self, recovered: &mut Replay) -> Result<Option<TransactionId>> {
        if recovered.is_empty() {
            return Ok(None);
        }
        let scan = self.scan(&recovered.superblock)?;
        recovered.report.transactions = scan.end.0.wrapping_sub(self.sequence.0);
        recovered.report.end_block = scan.end_block;
        recovered.report.stop = scan.stop;
        // One number is left out, so that a commit block of the transaction that did not finish is never taken for
        // that of a new one.
        recovered.next_sequence = scan.end.next();
        Ok(Some(scan.end))
    }

    fn scan(&self, sb: &Superblock) -> Result<Scan> {
        let mut cursor = self.cursor();
        let mut end = self.sequence;
        let mut end_block = self.start;
        let mut check = CommitCheck::new(sb);
        let stop = loop {
            let at = cursor.at;
            if !cursor.skip(self.ring, 1) {
                break Stop::WholeLog;
            }
            let block = self.blocks.get(at)?;
            let Some(header) = Header::parse(&block) else { break Stop::NoMagic };
            if header.sequence != end {
                break Stop::OtherSequence;
            }
            match header.block_type {
                Some(BlockType::Descriptor) => {
                    check.tail(&self.format, &block, at);
                    let count = self.format.tags(&block).count() as u32;
                    let copies = cursor.at;
                    if !cursor.skip(self.ring, count) {
                        break Stop::WholeLog;
                    }
                    self.sum_v1(&mut check, &block, copies, count)?;
                }
                Some(BlockType::Revoke) => check.tail(&self.format, &block, at),
                Some(BlockType::Commit) => match check.commit(&self.format, &block)? {
                    Some(stop) => break stop,
                    None => {
                        end = end.next();
                        end_block = cursor.at;
                    }
                },
                _ => break Stop::UnknownType,
            }
        };
        Ok(Scan { end, end_block, stop })
    }

    /// Adds a descriptor and its copies to the version 1 checksum.
    fn sum_v1(&self, check: &mut CommitCheck, descriptor: &[u8], first: u32, count: u32) -> Result<()> {
        if let Some(sum) = &mut check.crc32 {
            *sum = jbd2::crc32_be(*sum, descriptor);
            for index in 0..count {
                *sum = jbd2::crc32_be(*sum, &self.blocks.get(self.ring.advance(first, index))?);
            }
        }
        Ok(())
    }

    /// Visits the descriptor and revoke blocks of the complete transactions. The scan has been through them.
    fn visit(
        &self,
        end: TransactionId,
        mut each: impl FnMut(TransactionId, BlockType, u32, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let mut cursor = self.cursor();
        let mut sequence = self.sequence;
        while sequence != end {
            let at = cursor.at;
            if !cursor.skip(self.ring, 1) {
                break;
            }
            let block = self.blocks.get(at)?;
            match Header::parse(&block).and_then(|header| header.block_type) {
                Some(BlockType::Commit) => sequence = sequence.next(),
                Some(kind @ (BlockType::Descriptor | BlockType::Revoke)) => {
                    if !self.format.tail_matches(&block) {
                        return Err(Corrupt::Checksum(at).into());
                    }
                    each(sequence, kind, at, &block)?;
                    let copies =
                        if kind == BlockType::Descriptor { self.format.tags(&block).count() } else { 0 };
                    if !cursor.skip(self.ring, copies as u32) {
                        break;
                    }
                }
                _ => break,
            }
        }
        Ok(())
    }

    /// The last transaction that revoked each block.
    fn revokes(&self, end: TransactionId, report: &mut Report) -> Result<HashMap<FsBlock, TransactionId>> {
        let mut last = HashMap::new();
        self.visit(end, |sequence, kind, at, block| {
            if kind == BlockType::Revoke {
                for freed in self.format.revokes(block).ok_or(Corrupt::RevokeLength(at))? {
                    if freed.0 >= self.fs_blocks_count {
                        return Err(Corrupt::OutOfRange(at).into());
                    }
                    last.insert(freed, sequence);
                    report.revokes += 1;
                }
            }
            Ok(())
        })?;
        Ok(last)
    }

    fn copies(
        &self,
        end: TransactionId,
        revoked: &HashMap<FsBlock, TransactionId>,
        report: &mut Report,
    ) -> Result<BTreeMap<FsBlock, Arc<[u8]>>> {
        let mut newest = BTreeMap::new();
        self.visit(end, |sequence, kind, at, block| {
            if kind != BlockType::Descriptor {
                return Ok(());
            }
            for (index, tag) in self.format.tags(block).enumerate() {
                if tag.block.0 >= self.fs_blocks_count {
                    return Err(Corrupt::OutOfRange(at).into());
                }
                if revoked.get(&tag.block).is_some_and(|record| !sequence.is_after(*record)) {
                    report.revoked_copies += 1;
                    continue;
                }
                let from = self.ring.advance(at, 1 + index as u32);
                newest.insert(tag.block, self.copy(sequence, from, &tag)?);
            }
            Ok(())
        })?;
        Ok(newest)
    }

    fn copy(&self, sequence: TransactionId, from: u32, tag: &Tag) -> Result<Arc<[u8]>> {
        let copy = self.blocks.get(from)?;
        if !self.format.copy_matches(sequence, &copy, tag) {
            return Err(Corrupt::CopyChecksum(from).into());
        }
        if tag.flags.contains(TagFlags::ESCAPE) {
            let mut copy = copy.to_vec();
            jbd2::unescape(&mut copy);
            return Ok(copy.into());
        }
        Ok(copy)
    }
}

/// The state of the scan that judges the next commit block.
struct CommitCheck {
    /// The version 1 checksum so far, if the log has them.
    crc32: Option<u32>,
    /// Where a tail was wrong: it lies in a damaged transaction, or in one of an older use of the log.
    bad_tail: Option<u32>,
    last_seconds: u64,
}

impl CommitCheck {
    fn new(sb: &Superblock) -> Self {
        let v1 = sb.s_feature_compat.contains(Compat::CHECKSUM)
            && !sb.s_feature_incompat.intersects(Incompat::CSUM_V2 | Incompat::CSUM_V3);
        Self { crc32: v1.then_some(!0), bad_tail: None, last_seconds: 0 }
    }

    fn tail(&mut self, format: &Format, block: &[u8], at: u32) {
        if !format.tail_matches(block) {
            self.bad_tail = self.bad_tail.or(Some(at));
        }
    }

    /// `None` if the transaction counts, else why the log ends before it.
    fn commit(&mut self, format: &Format, block: &[u8]) -> Result<Option<Stop>> {
        let Some(commit) = format.parse_commit(block) else { return Ok(Some(Stop::UnknownType)) };
        if let Some(at) = self.bad_tail {
            // Times that go on: a transaction of this log that was complete. Times that go back: left over.
            if commit.seconds >= self.last_seconds {
                return Err(Corrupt::Checksum(at).into());
            }
            return Ok(Some(Stop::Stale));
        }
        let v1 = match self.crc32.replace(!0) {
            Some(sum) => commit.crc32.is_none_or(|found| found == sum) && commit.crc32_fields_valid,
            None => {
                self.crc32 = None;
                true
            }
        };
        if !v1 || !format.commit_matches(block) {
            return Ok(Some(Stop::BadCommit));
        }
        self.last_seconds = commit.seconds;
        Ok(None)
    }
}
