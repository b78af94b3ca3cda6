//! Adding a journal, taking it away, and giving it another length.
//!
//! Each is a change of a [`Staged`] disk. A journal that becomes longer or shorter keeps the blocks it has, as far as they go; its log is
//! empty then, for the disk was unmounted.
//!
//! Source: `ext2fs_add_journal_inode3`, `remove_journal_inode` of e2fsprogs. Tests: `tests/tune`.

use extant_ondisk::{CompatFeatures, FsBlock, InodeFlags, InodeNumber, Structure, Superblock, jbd2};
use extant_rt::Arc;

use super::own_file;
use super::staged::{LOG_BLOCKS_MIN, Staged, add_overhead, empty_log, journal_copy};
use crate::error::{Error, Location, Result};
use crate::incore::inode::Inode;
use crate::metadata::update::{Credits, MetadataUpdate};
use crate::mkfs;
use crate::mount::Volume;
use crate::mount::staged_log::BACKUP_BLOCKS;

/// As mke2fs.
const LOG_BLOCKS_MAX: u64 = 10_240_000;

/// How long a journal is to be, in bytes; `None` where nothing says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) log_bytes: Option<u64>,
    pub(super) fast_commit_bytes: Option<u64>,
}

impl Wanted {
    /// Reads `size=MEGABYTES` and `fast_commit_size=KILOBYTES`.
    ///
    /// # Errors
    /// `InvalidArgument` for another word; `Unsupported` for what only an external journal or a place has.
    pub(super) fn edit(&mut self, word: &str) -> Result<()> {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let number = || {
            let number = value.parse::<u32>().map(u64::from);
            number.map_err(|_| Error::InvalidArgument("a journal's size is a whole number of megabytes"))
        };
        match name {
            "size" => self.log_bytes = Some(number()? << 20),
            "fast_commit_size" => self.fast_commit_bytes = Some(number()? << 10),
            "device" => {
                return Err(Error::Unsupported(
                    "a journal on another device; `tune2fs -J device=` makes one",
                ));
            }
            "location" => {
                return Err(Error::Unsupported(
                    "a place for the journal; it goes where free space is least broken up",
                ));
            }
            _ => {
                return Err(Error::InvalidArgument(
                    "unknown journal option; there are size=MEGABYTES and fast_commit_size=KILOBYTES",
                ));
            }
        }
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Blocks of the log and of the fast-commit area behind it, of a disk whose journal has `now` of both, or none.
    ///
    /// # Errors
    /// `OutOfRange`.
    fn blocks(&self, superblock: &Superblock, now: Option<(u64, u64)>) -> Result<(u64, u64)> {
        let block_size = u64::from(superblock.block_size());
        let all = superblock.blocks_count();
        let default = u64::from(mkfs::default_journal_blocks(all)).max(LOG_BLOCKS_MIN);
        let log = self.log_bytes.map_or(now.map_or(default, |now| now.0), |bytes| bytes / block_size);
        let area = match superblock.compat().contains(CompatFeatures::FAST_COMMIT) {
            false => 0,
            true => match (self.fast_commit_bytes, now) {
                (Some(bytes), _) => bytes / block_size,
                (None, Some(now)) if now.1 > 0 => now.1,
                (None, _) => u64::from(mkfs::default_fast_commit_blocks(all)),
            },
        };
        if !(LOG_BLOCKS_MIN..=LOG_BLOCKS_MAX).contains(&log) || log.saturating_add(area) > LOG_BLOCKS_MAX {
            let (min, max) = (LOG_BLOCKS_MIN * block_size, LOG_BLOCKS_MAX * block_size);
            return Err(Error::OutOfRange { what: "the size of the journal in bytes", min, max });
        }
        Ok((log, area))
    }
}

/// The journal's inode, which has to be the reserved one.
fn inode_of(superblock: &Superblock) -> Result<InodeNumber> {
    match InodeNumber(superblock.s_journal_inum()) {
        number @ InodeNumber::JOURNAL => Ok(number),
        _ => Err(Error::Unsupported(
            "changing a journal that is a file with a name or on another device; `e2fsck -f` moves the former",
        )),
    }
}

/// Has the superblock's copy of the inode say what the inode says.
fn copy_inode(update: &mut MetadataUpdate<'_>, inode: &Inode) {
    let raw = inode.raw();
    let copy = journal_copy(raw.i_block(), raw.size());
    update.modify_superblock(|superblock| {
        superblock.set_s_journal_inum(inode.number.0);
        superblock.set_s_jnl_backup_type(BACKUP_BLOCKS);
        superblock.set_s_jnl_blocks(copy);
    });
}

/// Makes the journal's inode so many blocks long; which ones it gets, and its first block.
fn set_len(volume: &Volume, inode: &Arc<Inode>, blocks: u64) -> Result<(Vec<(u64, u64)>, FsBlock)> {
    let now = inode.raw().size() / u64::from(volume.geometry.block_size);
    let mut added = Vec::new();
    if blocks < now {
        own_file::truncate(volume, inode, blocks)?;
    } else if blocks > now {
        added = own_file::append(volume, inode, blocks - now)?;
    }
    let mut update = volume.begin(Credits::new(0, 0))?;
    copy_inode(&mut update, inode);
    update.finish();
    let extents = volume.all_extents(inode.number, &inode.raw())?;
    let location = Location::of(Structure::Journal).inode(inode.number);
    Ok((added, extents.first().ok_or(location.corrupt("has no first block"))?.start))
}

/// Adds a journal.
///
/// # Errors
/// `NoSpace`; `OutOfRange` for a length that none has; `Corrupt`; `Io`.
pub(super) fn add(staged: &mut Staged, wanted: Wanted) -> Result<()> {
    let superblock = staged.superblock()?;
    let (log, area) = wanted.blocks(&superblock, None)?;
    if log + area > superblock.free_blocks_count() / 2 {
        return Err(Error::NoSpace);
    }
    let (added, head) = staged.mounted(|volume| {
        let inode = volume.special_inode(InodeNumber::JOURNAL)?;
        if inode.raw().links_count() != 0 {
            let location = Location::of(Structure::Inode).inode(InodeNumber::JOURNAL);
            return Err(location.corrupt("in use on a disk without a journal; e2fsck -f repairs it"));
        }
        let mut update = volume.begin(Credits::new(1, 0))?;
        own_file::initialise(&mut update, volume, &inode, InodeFlags::empty());
        update.finish();
        set_len(volume, &inode, log + area)
    })?;
    added.into_iter().for_each(|(start, len)| staged.zero(start, len));
    let len = (log + area) as u32;
    staged.write_block(head, &empty_log(superblock.block_size(), len, superblock.s_uuid(), area as u32))?;
    staged.edit_superblock(|superblock| {
        superblock.set_compat(superblock.compat() | CompatFeatures::HAS_JOURNAL);
        add_overhead(superblock, log + area, 0);
    })
}

/// Takes the journal away, and fast commits with it.
///
/// # Errors
/// `Unsupported` for a journal that is not the disk's own; `Corrupt`; `Io`.
pub(super) fn remove(staged: &Staged) -> Result<()> {
    inode_of(&staged.superblock()?)?;
    let blocks = staged.mounted(|volume| {
        let inode = volume.special_inode(InodeNumber::JOURNAL)?;
        let blocks = inode.raw().size() / u64::from(volume.geometry.block_size);
        own_file::truncate(volume, &inode, 0)?;
        let mut update = volume.begin(Credits::new(1, 0))?;
        own_file::delete(&mut update, volume, &inode)?;
        update.finish();
        Ok(blocks)
    })?;
    staged.edit_superblock(|superblock| {
        add_overhead(superblock, 0, blocks);
        let gone = CompatFeatures::HAS_JOURNAL | CompatFeatures::FAST_COMMIT;
        superblock.set_compat(superblock.compat() - gone);
        superblock.set_s_journal_inum(0);
        superblock.set_s_jnl_backup_type(0);
        superblock.set_s_jnl_blocks([0; 17]);
    })
}

/// Gives the journal another length, if it has not got it.
///
/// # Errors
/// `NoSpace`; `OutOfRange`; `Unsupported`; `Corrupt`; `Io`.
pub(super) fn resize(staged: &mut Staged, wanted: Wanted) -> Result<()> {
    let superblock = staged.superblock()?;
    let number = inode_of(&superblock)?;
    let location = Location::of(Structure::Journal).inode(number);
    let (mut bytes, head) = {
        let volume = staged.reading()?;
        let extents = volume.all_extents(number, &volume.read_inode(number)?)?;
        let head = extents.first().ok_or(location.corrupt("has no first block"))?.start;
        (volume.read_block(head, location)?.to_vec(), head)
    };
    let no_log = |_| location.block(head).corrupt("no superblock of a log");
    let mut log = jbd2::Superblock::parse(&bytes).map_err(no_log)?;
    let area_now = match (superblock.compat().contains(CompatFeatures::FAST_COMMIT), log.s_num_fc_blks) {
        (false, _) => 0,
        (true, 0) => u64::from(jbd2::DEFAULT_FAST_COMMIT_BLOCKS),
        (true, blocks) => u64::from(blocks),
    };
    let now = (u64::from(log.s_maxlen).saturating_sub(area_now), area_now);
    let wanted = wanted.blocks(&superblock, Some(now))?;
    if wanted == now {
        return Ok(());
    }
    let len = wanted.0 + wanted.1;
    let (added, _) = staged.mounted(|volume| {
        let inode = volume.special_inode(number)?;
        set_len(volume, &inode, len)
    })?;
    added.into_iter().for_each(|(start, len)| staged.zero(start, len));
    if wanted.1 > 0 {
        clear_area(staged, number, wanted.0)?;
    }
    log.s_maxlen = len as u32;
    log.s_num_fc_blks = wanted.1 as u32;
    if wanted.1 == 0 {
        log.s_feature_incompat.remove(jbd2::Incompat::FAST_COMMIT);
    }
    // An empty log begins anew.
    log.s_head = 0;
    staged.edit_superblock(|superblock| add_overhead(superblock, len, now.0 + now.1))?;
    log.write(&mut bytes);
    staged.write_block(head, &bytes)
}

/// Zeroes the first blocks of the fast-commit area behind a log: what the log had there may look like fast commits.
fn clear_area(staged: &Staged, number: InodeNumber, log_blocks: u64) -> Result<()> {
    let volume = staged.reading()?;
    let zeroes = vec![0; volume.geometry.block_size as usize];
    for extent in volume.all_extents(number, &volume.read_inode(number)?)? {
        let first = u64::from(extent.logical.0);
        // One block is between the log and the area.
        for logical in
            (log_blocks..log_blocks + 2).filter(|at| (first..first + u64::from(extent.len)).contains(at))
        {
            staged.write_block(FsBlock(extent.start.0 + logical - first), &zeroes)?;
        }
    }
    Ok(())
}
