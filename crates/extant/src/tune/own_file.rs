//! Files of the file system itself, such as its journal: made, longer, shorter, deleted.
//!
//! Leaves out: content, what the superblock says of them, and disks of clusters.

use extant_alloc::{InodeKind, MayUse, Parent};
use extant_ondisk::extent::{ExtentNode, MAX_LEN, ROOT_CAPACITY};
use extant_ondisk::{
    FileType, FsBlock, GroupNumber, InodeFlags, InodeNumber, LogicalBlock, RawInode, Run, Structure,
};
use extant_rt::Arc;

use super::free_space::FreeSpace;
use crate::error::{Location, Result};
use crate::incore::inode::Inode;
use crate::incore::inode_cache::InodeRef;
use crate::mapping::LOGICAL_END;
use crate::mapping::cluster::NewBlocks;
use crate::metadata::update::{Credits, InodeDirty, MetadataUpdate, RUN_CREDITS};
use crate::mount::Volume;

/// Allocates an inode for a file of the file system itself.
///
/// # Errors
/// `NoInodes`; `Corrupt`.
pub(super) fn allocate(update: &mut MetadataUpdate<'_>, volume: &Volume) -> Result<InodeRef> {
    let parent = Parent { number: InodeNumber::ROOT, group: GroupNumber(0), last: None, is_shared: false };
    let number = update.allocate_inode(parent, InodeKind::Other)?.number;
    let home = volume.inode_table_location(number)?;
    let raw = RawInode::new(volume.features.inode_size, volume.features.extra_isize);
    let raw = raw.map_err(|e| Location::of(Structure::Inode).inode(number).format(e))?;
    Ok(volume.inodes.replace(Inode::new(number, home, raw)))
}

/// Makes an inode a regular file without blocks that only root may read.
pub(super) fn initialise(
    update: &mut MetadataUpdate<'_>,
    volume: &Volume,
    inode: &Arc<Inode>,
    mut flags: InodeFlags,
) {
    let (now, has_extents) = (update.now(), volume.features.has_extents);
    flags.set(InodeFlags::EXTENTS, has_extents);
    update.modify_inode(inode, InodeDirty::Mapping, |raw| {
        raw.set_mode(FileType::Regular.mode_bits() | 0o600);
        raw.set_links_count(1);
        raw.set_size(0);
        raw.set_flags(flags);
        raw.i_block_mut().fill(0);
        [RawInode::set_atime, RawInode::set_mtime, RawInode::set_ctime, RawInode::set_crtime]
            .iter()
            .for_each(|set| set(raw, now));
        if has_extents {
            // The root of a tree fits.
            let _ = ExtentNode::empty_leaf(ROOT_CAPACITY).write(raw.i_block_mut());
        }
    });
}

/// Frees the number of a file without blocks; a reserved inode becomes as mke2fs leaves one that has no use.
///
/// # Errors
/// `Io`; `Corrupt`.
pub(super) fn delete(update: &mut MetadataUpdate<'_>, volume: &Volume, inode: &InodeRef) -> Result<()> {
    if inode.number.0 >= volume.geometry.first_ino {
        update.modify_inode(inode, InodeDirty::Attributes, |raw| raw.set_links_count(0));
        return update.free_node(volume, inode);
    }
    update.delete_inode(inode, |raw| {
        raw.set_mode(0);
        raw.set_links_count(0);
        raw.set_size(0);
        raw.set_flags(InodeFlags::empty());
        raw.i_block_mut().fill(0);
    });
    Ok(())
}

/// Makes a file `blocks` blocks longer, in as few runs as there are: which ones, as first block and length.
///
/// # Errors
/// `NoSpace`; `Io`; `Corrupt`. Then a part of them belongs to it.
pub(super) fn append(volume: &Volume, inode: &Arc<Inode>, blocks: u64) -> Result<Vec<(u64, u64)>> {
    let end = if volume.features.has_extents { u64::MAX } else { u64::from(u32::MAX) };
    let free = FreeSpace::of(volume)?;
    let chosen = free.common(&free, end).choose(blocks)?;
    let block_size = u64::from(volume.geometry.block_size);
    // All of them before a table of a block map takes one.
    for (start, len) in &chosen {
        let run = Run { start: FsBlock(*start), len: *len as u32 };
        let mut own = volume.allocator.reserve(*len, MayUse::RootBlocks)?;
        volume.allocator.allocate_exactly(&mut own, volume.to_clusters(run))?;
    }
    for (start, len) in &chosen {
        let mut done = 0;
        while done < *len {
            let raw = inode.raw();
            let logical = LogicalBlock((raw.size() / block_size) as u32);
            let hole = volume.hole(inode, &raw, logical)?;
            drop(raw);
            let most = u64::from(hole.len_max().min(MAX_LEN.into()));
            let run = Run { start: FsBlock(start + done), len: most.min(len - done) as u32 };
            let groups = run.len / volume.geometry.blocks_per_group + 2;
            let credits = hole.credits() + (groups + hole.growth()) * RUN_CREDITS + 1;
            let mut update = volume.begin(Credits::new(credits, hole.growth()))?;
            let blocks = NewBlocks { run, taken: Some(volume.to_clusters(run)) };
            let change = update.map_run(inode, hole, logical, blocks, false)?;
            let size = (u64::from(logical.0) + u64::from(run.len)) * block_size;
            update.change_content(inode, change, |raw| raw.set_size(size))?;
            update.finish();
            done += u64::from(run.len);
        }
    }
    Ok(chosen)
}

/// Frees the blocks of a file from one on.
///
/// # Errors
/// `Io`; `Corrupt`; the journal's.
pub(super) fn truncate(volume: &Volume, inode: &Arc<Inode>, from: u64) -> Result<()> {
    while let Some(step) = volume.removal(inode, from, LOGICAL_END)? {
        let is_last = step.end() <= from;
        let mut update = volume.begin(step.need())?;
        update.remove(inode, step)?;
        update.finish();
        if is_last {
            break;
        }
    }
    let mut update = volume.begin(Credits::new(1, 0))?;
    let size = from * u64::from(volume.geometry.block_size);
    update.modify_inode(inode, InodeDirty::Mapping, |raw| raw.set_size(size));
    update.finish();
    Ok(volume.writable()?.commit_running()?)
}
