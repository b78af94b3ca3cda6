//! Walks over the hash index of a directory.
//!
//! Source: `dx_probe`, `ext4_htree_next_block` of `fs/ext4/namei.c`.

use extant_ondisk::dir_hash::DirHasher;
use extant_ondisk::htree::{DxKind, DxNode, RootInfo};
use extant_ondisk::{LogicalBlock, Structure};
use extant_rt::Arc;

use crate::directory::Directories;
use crate::error::{Location, Result};
use crate::incore::buffer::{Buffer, BufferKind};
use crate::incore::inode::Inode;

/// The root of an index.
pub(super) struct Root {
    buffer: Arc<Buffer>,
    pub(super) info: RootInfo,
    pub(super) hasher: DirHasher,
}

/// A block of the index and the entry that the walk took.
pub(super) struct Level {
    pub(super) buffer: Arc<Buffer>,
    pub(super) kind: DxKind,
    pub(super) index: usize,
}

/// The blocks from the root to the one above the leaves.
pub(super) struct IndexPath {
    pub(super) levels: Vec<Level>,
    pub(super) leaf: LogicalBlock,
    /// Where the hashes of the first leaf end, unless it is the last one. Bit 0 is set if the leaf behind holds names of that hash, too.
    pub(super) end: Option<u32>,
    /// Leaves that may still be visited: an index that names more than the directory has blocks is damaged.
    steps_left: u32,
}

/// The result of [`IndexPath::next`].
pub(super) enum Next {
    /// The leaf of the names from this hash on. Bit 0 is set if the leaf before holds names of that hash, too.
    Leaf(u32),
    /// There is no other leaf.
    End,
}

impl Directories {
    pub(super) fn index_root(&self, dir: &Arc<Inode>) -> Result<Root> {
        let format = &self.dir_format;
        let buffer = self.directory_buffer(dir, LogicalBlock(0), BufferKind::HtreeNode(dir.owner()))?;
        let info = buffer
            .read(|bytes| RootInfo::parse(bytes, format.has_large_dir))
            .map_err(|e| index_place(dir, &buffer).format(e))?;
        let hasher = DirHasher::new(info.hash_version(format.unsigned_hash), format.hash_seed);
        Ok(Root { buffer, info, hasher })
    }

    /// The way to the first leaf that may hold names of `hash`.
    pub(super) fn index_path(&self, dir: &Arc<Inode>, root: &Root, hash: u32) -> Result<IndexPath> {
        let steps_left = self.directory_len(dir)?;
        let mut path = IndexPath { levels: Vec::new(), leaf: LogicalBlock(0), end: None, steps_left };
        self.descend_index(dir, &mut path, root.buffer.clone(), root.info.indirect_levels, Some(hash))?;
        Ok(path)
    }

    /// Adds `buffer` and the `below` levels under it to the path; without a hash, along the first entries.
    fn descend_index(
        &self,
        dir: &Arc<Inode>,
        path: &mut IndexPath,
        buffer: Arc<Buffer>,
        below: u8,
        hash: Option<u32>,
    ) -> Result<()> {
        let mut buffer = buffer;
        for below in (0..=below).rev() {
            let kind = if path.levels.is_empty() { DxKind::Root } else { DxKind::Node };
            let (index, child, end) = self.read_index(dir, &buffer, kind, |node| {
                let index = hash.map_or(0, |hash| node.search(hash));
                (index, node.child(index), node.child(index + 1).map(|_| node.hash(index + 1)))
            })?;
            path.end = end.or(path.end);
            let child = child.ok_or(index_place(dir, &buffer).corrupt("entry is missing"))?;
            path.levels.push(Level { buffer, kind, index });
            path.leaf = child;
            if below == 0 {
                break;
            }
            buffer = self.directory_buffer(dir, child, BufferKind::HtreeNode(dir.owner()))?;
        }
        Ok(())
    }

    pub(super) fn read_index<R>(
        &self,
        dir: &Inode,
        buffer: &Buffer,
        kind: DxKind,
        read: impl FnOnce(&DxNode<'_>) -> R,
    ) -> Result<R> {
        let has_csum = self.dir_format.has_csum;
        buffer
            .read(|bytes| DxNode::view(bytes, kind, has_csum).map(|node| read(&node)))
            .map_err(|e| index_place(dir, buffer).format(e))
    }
}

impl IndexPath {
    /// The leaf at the end of the path.
    pub(super) fn leaf(&self, volume: &Directories, dir: &Arc<Inode>) -> Result<Arc<Buffer>> {
        volume.directory_buffer(dir, self.leaf, BufferKind::Directory(dir.owner()))
    }

    /// The leaves under the last node of the path.
    pub(super) fn leaves(&self, volume: &Directories, dir: &Inode) -> Result<Vec<LogicalBlock>> {
        let Some(level) = self.levels.last() else { return Ok(Vec::new()) };
        volume.read_index(dir, &level.buffer, level.kind, |node| {
            (0..).map_while(|index| node.child(index)).collect()
        })
    }

    /// Whether names of `hash` may be in the leaf to the right, too, which then says so in bit 0.
    pub(super) fn goes_on(&self, volume: &Directories, dir: &Arc<Inode>, hash: u32) -> Result<bool> {
        for level in self.levels.iter().rev() {
            let index = level.index + 1;
            let next = volume.read_index(dir, &level.buffer, level.kind, |node| {
                node.child(index).map(|_| node.hash(index))
            })?;
            if let Some(next) = next {
                return Ok(next & !1 == hash);
            }
        }
        Ok(false)
    }

    /// Goes on to the leaf to the right.
    pub(super) fn next(&mut self, volume: &Directories, dir: &Arc<Inode>) -> Result<Next> {
        let depth = self.levels.len();
        while let Some(level) = self.levels.last_mut() {
            let index = level.index + 1;
            let entry = volume.read_index(dir, &level.buffer, level.kind, |node| {
                node.child(index).map(|child| (node.hash(index), child))
            })?;
            let Some((hash, child)) = entry else {
                self.levels.pop();
                continue;
            };
            level.index = index;
            self.steps_left = self
                .steps_left
                .checked_sub(1)
                .ok_or(index_place(dir, &level.buffer).corrupt("index names more leaves than there are"))?;
            self.leaf = child;
            // The depth is at most that of the root, which fits.
            if let Some(below) = (depth - self.levels.len()).checked_sub(1) {
                let buffer = volume.directory_buffer(dir, child, BufferKind::HtreeNode(dir.owner()))?;
                volume.descend_index(dir, self, buffer, below as u8, None)?;
            }
            return Ok(Next::Leaf(hash));
        }
        Ok(Next::End)
    }
}

pub(super) fn index_place(dir: &Inode, buffer: &Buffer) -> Location {
    Location::of(Structure::HtreeNode).inode(dir.number).block(buffer.block)
}
