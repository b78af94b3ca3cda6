//! Making a file system smaller that is not mounted.
//!
//! Blocks move out of the groups that go, and out of the end of the last one that stays; inodes of groups that go get other numbers
//! ([`relocate`]). Each inode moves in one update, so at every point the file system is whole and as large as before. The last
//! transaction makes it smaller ([`cut`]). Nothing on the disk says that it is under way: called again after a crash, it plans anew what
//! is left to move.
//!
//! Leaves out: other numbers of the inodes that the superblock names, the block of the multiple-mount protection, disks with clusters
//! (refused).
//!
//! Invariant: what is written outside of transactions goes into blocks that are free, except for the exchange of the journal's blocks
//! ([`log`]) and the copies of the superblock and the descriptors.
//!
//! Source: `resize_fs` of e2fsprogs' `resize2fs`, which is not safe against crashes. Tests: `tests/resize`.

mod cut;
mod log;
pub(crate) mod map;
mod names;
mod relocate;
mod size;
mod space;
mod tables;
mod usage;
mod work;

use extant_block::BlockDevice;
use extant_rt::Arc;

use self::log::Exchange;
use self::relocate::Mover;
use self::usage::Usage;
use self::work::{Work, check_movable};
use crate::error::{Error, Result};
use crate::mount::{Mounted, Options, Volume};

/// How small a file system is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShrinkTo {
    /// So many bytes at most.
    Bytes(u64),
    /// As small as what is on it allows.
    Minimum,
}

/// How a file system became smaller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shrunk {
    /// Bytes of the file system before.
    pub from_bytes: u64,
    /// Bytes of the file system: whole blocks, and no last group that is too short for its own metadata.
    pub to_bytes: u64,
    /// Block groups.
    pub groups: u32,
    /// Inodes.
    pub inodes: u32,
    /// Bytes that were moved.
    pub moved_bytes: u64,
    /// Inodes that got another number.
    pub moved_inodes: u32,
    /// The findings of mounting.
    pub mounted: Mounted,
}

/// What making a file system smaller would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShrinkPlan {
    /// Bytes of the file system.
    pub from_bytes: u64,
    /// Bytes that it would have.
    pub to_bytes: u64,
    /// The fewest bytes that it can have.
    pub min_bytes: u64,
    /// Bytes that would move.
    pub moved_bytes: u64,
    /// Inodes that would get another number.
    pub moved_inodes: u32,
}

/// How far making a file system smaller is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShrinkProgress {
    /// Bytes that were moved.
    pub moved_bytes: u64,
    /// Bytes to be moved, as far as is known.
    pub total_bytes: u64,
}

/// Counts what was moved, and asks whether to go on.
struct Progress<'r> {
    block_size: u64,
    progress: ShrinkProgress,
    report: &'r mut dyn FnMut(ShrinkProgress) -> bool,
}

impl Progress<'_> {
    /// # Errors
    /// `Interrupted` if the caller says so.
    fn add(&mut self, blocks: u64) -> Result<()> {
        self.progress.moved_bytes += blocks * self.block_size;
        self.progress.total_bytes = self.progress.total_bytes.max(self.progress.moved_bytes);
        if (self.report)(self.progress) { Ok(()) } else { Err(Error::Interrupted) }
    }
}

/// Makes the file system on `device` smaller. `report` says after each move whether to go on.
///
/// # Errors
/// Those of mounting for writing; `OutOfRange` for a size that is above the file system's or below what it needs; `NoSpace`; `Unsupported` for
/// what cannot be moved; `Interrupted` if `report` says so. The file system is whole then, and as large as the last step made it.
pub(crate) fn shrink(
    device: &Arc<dyn BlockDevice>,
    options: &Options,
    to: ShrinkTo,
    report: &mut dyn FnMut(ShrinkProgress) -> bool,
) -> Result<Shrunk> {
    let options = Options { background: false, page_cache_bytes: Some(0), ..options.clone() };
    let mut progress = Progress { block_size: 0, progress: ShrinkProgress::default(), report };
    let mut shrunk = Shrunk::default();
    // A size that is refused leaves no trace on the disk.
    let mut wanted = {
        let (volume, _) = Volume::mount(device.clone(), &Options { read_only: true, ..options.clone() })?;
        let wanted = wanted_blocks(&volume, &Usage::read(&volume)?, to)?.0;
        check_movable(&volume, wanted)?;
        wanted
    };
    // No step goes farther than what was found to be possible.
    let (mut attempts, mut least) = (0, 0);
    loop {
        let (volume, mounted) = Volume::mount(device.clone(), &options)?;
        let geometry = &volume.geometry;
        let block_size = u64::from(geometry.block_size);
        progress.block_size = block_size;
        shrunk.to_bytes = geometry.blocks_count * block_size;
        (shrunk.groups, shrunk.inodes) = (geometry.group_count, geometry.inodes_count);
        if shrunk.from_bytes == 0 {
            (shrunk.from_bytes, shrunk.mounted) = (shrunk.to_bytes, mounted);
        }
        let taken = take_step(&volume, wanted.max(least), &mut progress, &mut shrunk);
        let unmounted = volume.unmount();
        match taken {
            Ok(Step::None) => {
                unmounted?;
                shrunk.moved_bytes = progress.progress.moved_bytes;
                return Ok(shrunk);
            }
            Ok(Step::Moved) => unmounted?,
            Ok(Step::Cut) => {
                unmounted?;
                least = 0;
            }
            Ok(Step::To(end)) => {
                unmounted?;
                least = end;
            }
            Ok(Step::Log(exchange)) => {
                unmounted?;
                exchange.perform(&**device)?;
            }
            // How free space is broken up cannot be told before: the smallest size may be a little larger, or as much as an inode table needs
            // that no free run has room for.
            Err(Error::NoSpace) if to == ShrinkTo::Minimum && wanted < volume.geometry.blocks_count => {
                unmounted?;
                wanted += size::slack(wanted) << attempts;
                attempts = (attempts + 1).min(8);
            }
            Err(error) => return Err(error),
        }
    }
}

/// What a step did.
enum Step {
    /// There is nothing left to do.
    None,
    /// The file system is to be made so large first, because tables cannot move before more blocks are free.
    To(u64),
    /// Bitmaps and inode tables lie elsewhere, or nodes of the journal's map.
    Moved,
    /// The file system is smaller.
    Cut,
    /// The journal has new blocks, and is to use them.
    Log(Exchange),
}

/// Moves what lies behind the end of the next step, and cuts; or moves tables, or prepares the journal to move.
fn take_step(volume: &Volume, wanted: u64, progress: &mut Progress<'_>, shrunk: &mut Shrunk) -> Result<Step> {
    let old = &volume.geometry;
    let superblock = volume.superblock.lock().clone();
    let blocks = size::rounded(old, wanted);
    if blocks >= old.blocks_count {
        return Ok(Step::None);
    }
    match log::cut_off(volume, blocks) {
        Err(Error::NoSpace) => log::cut_off(volume, old.blocks_count)?,
        cut => cut?,
    }
    let usage = Usage::read(volume)?;
    let end = size::next_end(old, &usage, blocks)?;
    let (next, geometry) = size::layout(&superblock, old, end)?;
    let work = Work::find(volume, &usage, &geometry)?;
    let tables: u64 = usage.tables_behind(end).map(|table| table.len).sum();
    progress.progress.total_bytes =
        progress.progress.moved_bytes + (work.blocks + tables) * progress.block_size;
    match tables::relocate(volume, &usage, &geometry, progress) {
        Ok(false) => {}
        Ok(true) => return Ok(Step::Moved),
        Err(Error::NoSpace) => {
            let farther = tables::group_end(volume, &usage, end);
            return if farther < old.blocks_count { Ok(Step::To(farther)) } else { Err(Error::NoSpace) };
        }
        Err(error) => return Err(error),
    }
    if work.moves_journal {
        let Some(exchange) = log::append(volume, end)? else {
            log::cut_off(volume, end)?;
            return Ok(Step::Moved);
        };
        progress.add(exchange.moved_blocks())?;
        return Ok(Step::Log(exchange));
    }
    let references = work.references(volume)?;
    let mut mover = Mover::new(volume, &geometry, progress)?;
    for number in &work.inodes {
        mover.relocate(*number, references.get(number).map_or(&[], Vec::as_slice))?;
    }
    shrunk.moved_inodes += mover.renumbered.len() as u32;
    cut::cut(volume, &usage, &next, &geometry)?;
    Ok(Step::Cut)
}

/// The blocks that the file system is to have, and the fewest that it can have.
fn wanted_blocks(volume: &Volume, usage: &Usage<'_>, to: ShrinkTo) -> Result<(u64, u64)> {
    super::check_clusters(volume)?;
    let geometry = &volume.geometry;
    let superblock = volume.superblock.lock().clone();
    let minimum = size::minimum(&superblock, geometry, usage, log::blocks_behind(volume)?)?;
    let block_size = u64::from(geometry.block_size);
    let blocks = match to {
        ShrinkTo::Minimum => minimum,
        ShrinkTo::Bytes(bytes) => size::rounded(geometry, bytes / block_size),
    };
    if !(minimum..=geometry.blocks_count).contains(&blocks) {
        return Err(Error::OutOfRange {
            what: "size in bytes",
            min: minimum * block_size,
            max: geometry.blocks_count * block_size,
        });
    }
    Ok((blocks, minimum))
}

/// What [`shrink`] would do. Writes nothing.
///
/// # Errors
/// Those of mounting for reading; as [`shrink`].
pub(crate) fn plan(device: &Arc<dyn BlockDevice>, options: &Options, to: ShrinkTo) -> Result<ShrinkPlan> {
    let options =
        Options { read_only: true, background: false, page_cache_bytes: Some(0), ..options.clone() };
    let (volume, _) = Volume::mount(device.clone(), &options)?;
    let geometry = &volume.geometry;
    let usage = Usage::read(&volume)?;
    let superblock = volume.superblock.lock().clone();
    let (blocks, minimum) = wanted_blocks(&volume, &usage, to)?;
    let (_, smaller) = size::layout(&superblock, geometry, blocks)?;
    let work = Work::find(&volume, &usage, &smaller)?;
    let bytes = |blocks: u64| blocks * u64::from(geometry.block_size);
    Ok(ShrinkPlan {
        from_bytes: bytes(geometry.blocks_count),
        to_bytes: bytes(blocks),
        min_bytes: bytes(minimum),
        moved_bytes: bytes(work.blocks + usage.tables_behind(blocks).map(|table| table.len).sum::<u64>()),
        moved_inodes: work.renumbered.len() as u32,
    })
}
