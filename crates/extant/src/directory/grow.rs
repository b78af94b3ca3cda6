//! A further block of a directory, or the one block of a long symbolic link.

use extant_ondisk::extent::ROOT_CAPACITY;
use extant_ondisk::indirect::DIRECT;
use extant_ondisk::{InodeFlags, LogicalBlock, RawInode, extent};
use extant_rt::Arc;

use crate::directory::Directories;
use crate::error::{Error, Result};
use crate::incore::buffer::{Buffer, BufferKind};
use crate::incore::inode::Inode;
use crate::metadata::update::{Credits, MetadataUpdate};

impl Directories {
    /// The credits for adding `blocks` blocks to a directory or a new inode.
    pub(crate) fn grow_need(&self, raw: &RawInode, blocks: u32) -> Credits {
        if blocks == 0 {
            return Credits::new(0, 0);
        }
        let is_in_inode = if raw.flags().contains(InodeFlags::EXTENTS) {
            let i_block = raw.i_block();
            extent::depth(i_block) == Some(0)
                && extent::entry_count(i_block) + blocks as usize <= usize::from(ROOT_CAPACITY)
        } else {
            raw.size().div_ceil(self.dir_format.block_bytes as u64) + u64::from(blocks) <= u64::from(DIRECT)
        };
        if is_in_inode {
            // The inode maps them itself; on a disk as small as its content there may be no block more.
            return Credits::new(1 + 3 * blocks, blocks);
        }
        if !raw.flags().contains(InodeFlags::EXTENTS) {
            // So few blocks cross the end of at most one table: the inode, the tables on both sides of it, of which the
            // second ones may be new.
            return Credits::new(1 + 3 + 3 * (blocks + 3), blocks + 3);
        }
        let depth = u32::from(extent::depth(raw.i_block()).unwrap_or(0).min(extent::MAX_DEPTH));
        // Once a full path was split, or the tree became deeper, it has room for more blocks than are requested here.
        let nodes = depth + 2;
        // The inode, the path with what may be freed of it; each new block with its bitmap and its descriptor.
        Credits::new(1 + 5 * depth + 3 * (blocks + nodes), blocks + nodes)
    }

    /// The block behind the last one of a directory.
    pub(super) fn directory_end(&self, inode: &Inode) -> Result<LogicalBlock> {
        let (logical, within) = self.block_at(inode.state().raw.size())?;
        if within == 0 {
            Ok(logical)
        } else {
            Err(Error::InvalidArgument("directory size is not whole blocks"))
        }
    }
}

impl MetadataUpdate<'_> {
    /// Adds a block of zeroes to the end of a directory, the one `taken` if there is such: its place and its buffer. Takes what
    /// [`Directories::grow_need`] states.
    ///
    /// # Errors
    /// `NoSpace` if the update did not reserve it; `Io`; `Corrupt`.
    ///
    /// # Locks
    /// `INODE` is held exclusively, or `INDEX`.
    pub(crate) fn grow_directory(
        &mut self,
        dirs: &Directories,
        inode: &Arc<Inode>,
        kind: BufferKind,
        taken: &mut Option<Arc<Buffer>>,
    ) -> Result<(LogicalBlock, Arc<Buffer>)> {
        let logical = dirs.directory_end(inode)?;
        let (buffer, change) = self.add_block(dirs, inode, logical, kind, taken)?;
        let size = (u64::from(logical.0) + 1) * u64::from(dirs.geometry.block_size);
        self.change_content(inode, change, |raw| raw.set_size(size))?;
        self.note_size(size);
        Ok((logical, buffer))
    }
}
