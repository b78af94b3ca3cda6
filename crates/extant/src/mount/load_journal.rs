//! Finding, replaying and opening the journal.
//!
//! Source: `ext4_load_journal`, `ext4_load_and_init_journal` of `fs/ext4/super.c`.

use std::collections::BTreeMap;

use extant_block::BlockDevice;
use extant_journal::recovery::{FastCommitRecord, Replay};
use extant_journal::{Corrupt, Error as LogError, Journal, LogMap, recovery};
use extant_ondisk::{
    CompatFeatures, FsBlock, Geometry, IncompatFeatures, InodeNumber, Structure, Superblock,
};
use extant_rt::Arc;

use super::{Mounted, staged_log};
use crate::error::{Error, Location, Result};
use crate::mapping::BlockMap;
use crate::metadata::SbInfo;
use crate::metadata::commit::superblock_location;

/// Where the log's blocks are, if the file system has a journal.
pub(crate) fn find_log(map: &BlockMap) -> Result<Option<LogMap>> {
    let location = Location::of(Structure::Journal);
    let superblock = map.superblock.lock().clone();
    if !superblock.compat().contains(CompatFeatures::HAS_JOURNAL) {
        return Ok(None);
    }
    if staged_log::is_named(&superblock) {
        return staged_log::find(map, &superblock).map(Some);
    }
    let number = InodeNumber(superblock.s_journal_inum());
    if number.0 == 0 {
        return Err(Error::Unsupported("a journal on another device"));
    }
    let raw = map.read_inode(number)?;
    let mut runs = Vec::new();
    for extent in map.all_extents(number, &raw)? {
        runs.push((extent.logical.0, extent.start, u32::from(extent.len)));
    }
    let map = LogMap::new(runs).map_err(|_| location.inode(number).corrupt("its blocks leave gaps"))?;
    Ok(Some(map))
}

/// What replaying the log gave.
#[derive(Default)]
pub(super) struct Recovered {
    /// The blocks, if they were not written to their final locations.
    pub(super) blocks: BTreeMap<FsBlock, Arc<[u8]>>,
    /// The records of fast commits, which are to become the first transaction.
    pub(super) fast_commits: Vec<FastCommitRecord>,
}

/// Replays the log: to the final locations, or when reading into the blocks that are returned. The log of a file system that was unmounted is
/// not replayed, for its transactions are older than what was written since, and it is emptied before there are new ones.
///
/// Source: `ext4_load_journal`. Linux empties that log for a read-only mount too; here reading writes nothing.
pub(super) fn recover(
    sbi: &SbInfo,
    log: &LogMap,
    read_only: bool,
    mounted: &mut Mounted,
) -> Result<Recovered> {
    let needs_recovery = sbi.superblock.lock().incompat().contains(IncompatFeatures::RECOVER);
    let read = if needs_recovery { replay } else { recovery::skip };
    let mut found = read(&*sbi.device, log, sbi.geometry.block_size, sbi.geometry.blocks_count)
        .map_err(|source| unusable_log(log_place(sbi, log), source))?;
    mounted.replayed_blocks = found.blocks.len();
    mounted.replayed_fast_commits = found.report.fast_commits;
    mounted.skipped_transactions = if needs_recovery { 0 } else { found.report.transactions };
    mounted.journal_errno = found.superblock.s_errno;
    sbi.keep_newer_errors(&mut found.blocks);
    let fast_commits = std::mem::take(&mut found.fast_commit_records);
    if read_only {
        return Ok(Recovered { blocks: found.blocks, fast_commits });
    }
    if staged_log::is_named(&sbi.superblock.lock()) {
        // It names the log until everything else is in place.
        let (superblock, _) = superblock_location(sbi.geometry.block_size);
        found.write_first(&*sbi.device, |block| block != superblock)?;
    }
    let replayed = replayed_geometry(sbi.geometry.block_size, &found.blocks);
    if let Some(grown) = replayed.filter(|replayed| replayed.group_count != sbi.geometry.group_count) {
        // A mount reads descriptors before the log: no superblock counts groups without theirs.
        found.write_first(&*sbi.device, |block| is_descriptor_block(&grown, block))?;
    }
    found.checkpoint(&*sbi.device, &*sbi.device, log)?;
    Ok(Recovered { blocks: BTreeMap::new(), fast_commits })
}

/// As [`recovery::replay`]. The log may name blocks behind the end of a file system that it makes larger itself.
fn replay(device: &dyn BlockDevice, log: &LogMap, block_size: u32, blocks: u64) -> Result<Replay, LogError> {
    let found = recovery::replay(device, log, block_size, blocks);
    if !matches!(found, Err(LogError::Corrupt(Corrupt::OutOfRange(_)))) {
        return found;
    }
    let device_blocks = device.size() / u64::from(block_size);
    let all = recovery::replay(device, log, block_size, device_blocks)?;
    let grown = replayed_geometry(block_size, &all.blocks).map_or(blocks, |geometry| geometry.blocks_count);
    recovery::replay(device, log, block_size, grown.min(device_blocks))
}

/// The layout that a replayed superblock describes.
fn replayed_geometry(block_size: u32, blocks: &BTreeMap<FsBlock, Arc<[u8]>>) -> Option<Geometry> {
    let (block, offset) = superblock_location(block_size);
    let superblock = Superblock::parse(blocks.get(&block)?.get(offset..)?).ok()?;
    Geometry::new(&superblock).ok()
}

/// Whether a block is one of the table of descriptors.
fn is_descriptor_block(geometry: &Geometry, block: FsBlock) -> bool {
    let behind = block.0.checked_sub(geometry.descriptor_block(0).0);
    let behind = behind.and_then(|index| u32::try_from(index).ok());
    let spread = geometry.group_of(block).map(|(group, _)| geometry.descriptor_index(group).0);
    let mut indices = behind.into_iter().chain(spread);
    indices
        .any(|index| index < geometry.descriptor_block_count() && geometry.descriptor_block(index) == block)
}

fn log_place(sbi: &SbInfo, log: &LogMap) -> Location {
    let number = InodeNumber(sbi.superblock.lock().s_journal_inum());
    let location = Location::of(Structure::Journal).inode(number);
    log.get(0).map_or(location, |block| location.block(block))
}

/// Opens the journal for writing, perhaps with fast commits to be replayed; a disk without a log gets one that writes each block in
/// place. Half of the cache's bytes may be of blocks in the log.
///
/// # Errors
/// `Log`, `Journal`.
pub(super) fn open_journal(
    sbi: &mut SbInfo,
    log: Option<LogMap>,
    cache_bytes: u64,
    replays_fast_commits: bool,
) -> Result<()> {
    let block_size = sbi.geometry.block_size;
    let options = extant_journal::Options {
        checksums: sbi.checksums.has_metadata_checksums(),
        block_numbers_64bit: sbi.superblock.get_mut().incompat().contains(IncompatFeatures::BIT64),
        fast_commits: sbi.fast_commits.is_on(),
        replays_fast_commits,
        clear_errno: true,
        clock: sbi.clock,
        // One transaction has all fast commits.
        used_bytes_max: if replays_fast_commits { u64::MAX } else { cache_bytes / 2 },
    };
    sbi.journal = Some(match log {
        Some(map) => {
            let location = log_place(sbi, &map);
            Journal::open(sbi.device.clone(), sbi.device.clone(), block_size, map, options)
                .map_err(|source| unusable_log(location, source))?
        }
        None => Journal::without_log(sbi.device.clone(), block_size, options),
    });
    sbi.journal.iter().for_each(|journal| drop(sbi.committed.set(journal.clone())));
    Ok(())
}

/// The error of a log at `location`; of one that cannot be read it is not known which block that was.
fn unusable_log(location: Location, source: extant_journal::Error) -> Error {
    match source {
        extant_journal::Error::Io(_) => Error::Journal(source),
        _ => Error::Log { location, source },
    }
}
