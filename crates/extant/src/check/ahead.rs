//! Blocks that the passes read before they need them, many requests at once, where the device takes time.
//!
//! Each pass names the blocks that it comes to next, and reads them one by one from here. What is not here it reads itself, so that nothing
//! that is found depends on this. Without latency nothing is read ahead.
//!
//! Invariants: never more than [`AHEAD_BYTES`] are here; a pass drops what it does not need when it reads ahead again.

use std::cell::RefCell;
use std::collections::BTreeMap;

use extant_ondisk::{
    Entries, ExtentNode, FileType, FsBlock, GroupNumber, InodeFlags, RawInode, Run, indirect,
};
use extant_rt::{Arc, share_work};

use super::Checker;
use super::maps::has_map;
use crate::error::{Location, Result};

/// Memory for blocks that were read ahead.
const AHEAD_BYTES: usize = 8 << 20;
/// Bytes of blocks beside each other that are read at once.
const REQUEST_BYTES: u32 = 128 << 10;
/// The slots of a map by block numbers that name tables.
const TABLE_SLOTS: [u32; 3] = [indirect::SINGLE, indirect::DOUBLE, indirect::TRIPLE];

/// The blocks that are in memory.
#[derive(Debug, Default)]
pub(super) struct Ahead(RefCell<BTreeMap<FsBlock, Arc<[u8]>>>);

impl Checker<'_> {
    /// The content of a block.
    pub(super) fn read(&self, block: FsBlock, location: Location) -> Result<Arc<[u8]>> {
        let ahead = self.ahead.0.borrow().get(&block).cloned();
        ahead.map_or_else(|| self.volume.read_block(block, location), Ok)
    }

    /// As [`Checker::read`], of a block that is not needed again.
    pub(super) fn read_last(&self, block: FsBlock, location: Location) -> Result<Arc<[u8]>> {
        let ahead = self.ahead.0.borrow_mut().remove(&block);
        ahead.map_or_else(|| self.volume.read_block(block, location), Ok)
    }

    /// How many blocks a pass reads ahead by itself. What it finds in them has as much room again.
    pub(super) fn window(&self) -> usize {
        (AHEAD_BYTES / 2 / self.geometry.block_size as usize).max(1)
    }

    /// Drops what was read ahead and reads the first of `blocks` ahead, unless `next`, to which a pass comes now, is here. Whether it
    /// did.
    pub(super) fn read_window(&self, next: FsBlock, blocks: impl Iterator<Item = FsBlock>) -> bool {
        if self.volume.requests_in_flight() == 1 || self.ahead.0.borrow().contains_key(&next) {
            return false;
        }
        self.ahead.0.borrow_mut().clear();
        self.read_ahead(blocks.take(self.window()));
        true
    }

    /// Reads blocks ahead as far as there is room.
    pub(super) fn read_ahead(&self, blocks: impl Iterator<Item = FsBlock>) {
        let requests = self.volume.requests_in_flight();
        if requests == 1 {
            return;
        }
        let absent = {
            let ahead = self.ahead.0.borrow();
            let room = (2 * self.window()).saturating_sub(ahead.len());
            let mut absent: Vec<_> = blocks.take(room).filter(|block| !ahead.contains_key(block)).collect();
            absent.sort_unstable();
            absent.dedup();
            absent
        };
        let blocks_max = (REQUEST_BYTES / self.geometry.block_size).max(1);
        let mut runs: Vec<Run> = Vec::new();
        for block in absent {
            match runs.last_mut() {
                Some(run) if run.len < blocks_max && run.start.0 + u64::from(run.len) == block.0 => {
                    run.len += 1
                }
                _ => runs.push(Run { start: block, len: 1 }),
            }
        }
        let read = share_work(requests, runs.into_iter(), |run| self.volume.read_run(run));
        self.ahead.0.borrow_mut().extend(read.into_iter().flatten());
    }

    /// The blocks of inode tables with inodes that may be in use, from one of a group on.
    pub(super) fn table_blocks_from(&self, group: GroupNumber, index: u32) -> impl Iterator<Item = FsBlock> {
        let blocks_of = move |at: GroupNumber| {
            let table = self.checked_table(at);
            let per_block = self.geometry.inodes_per_block();
            let first = if at == group { index / per_block } else { 0 };
            let end = table.map_or(0, |_| self.initialised_inodes(at).div_ceil(per_block));
            (first..end).filter_map(move |block| Some(FsBlock(table?.0 + u64::from(block))))
        };
        self.groups().skip(group.0 as usize).flat_map(blocks_of)
    }

    /// The blocks that the inodes in blocks of tables, which were read ahead, name themselves.
    pub(super) fn blocks_of_inodes(&self, table_blocks: impl Iterator<Item = FsBlock>) -> Vec<FsBlock> {
        let mut named = Vec::new();
        let ahead = self.ahead.0.borrow();
        for bytes in table_blocks.map_while(|block| ahead.get(&block)) {
            for raw in bytes.chunks_exact(usize::from(self.geometry.inode_size)) {
                let inode = RawInode::parse(raw).ok();
                if let Some(inode) = inode.filter(|inode| inode.links_count() > 0) {
                    named.extend(self.blocks_of_inode(&inode));
                }
            }
        }
        named
    }

    /// The blocks that an inode names itself: of attributes, of its map, of a symbolic link's target.
    fn blocks_of_inode(&self, inode: &RawInode) -> Vec<FsBlock> {
        let mut named = vec![inode.file_acl()];
        let is_link = inode.file_type() == FileType::Symlink;
        if has_map(inode) && !self.is_inline(inode) {
            if inode.flags().contains(InodeFlags::EXTENTS) {
                match ExtentNode::parse(inode.i_block(), None).map(|node| node.entries) {
                    Ok(Entries::Index(indexes)) => named.extend(indexes.iter().map(|index| index.child)),
                    Ok(Entries::Leaf(extents)) if is_link => {
                        named.extend(extents.first().map(|first| first.start))
                    }
                    _ => {}
                }
            } else {
                let slots = TABLE_SLOTS.into_iter().chain(is_link.then_some(0));
                let pointers = slots.filter_map(|slot| indirect::pointer(inode.i_block(), slot));
                named.extend(pointers.map(|pointer| FsBlock(u64::from(pointer))));
            }
        }
        // The first block has the superblock, and is none of a file.
        named.retain(|block| block.0 != 0);
        named
    }
}
