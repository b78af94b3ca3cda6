//! Inline content (`inline_data`): small files, directories and symbolic links of disks that Linux or `mke2fs` wrote.
//!
//! It is read in place. No inline content is created, and content that changes moves to a block first, in an update of its own: a crash
//! shows the same content in the one place or the other. So an inode whose content is in blocks stays so.
//!
//! Leaves out: the bytes ([`extant_ondisk::inline_data`]).
//!
//! Invariants: a file is written, truncated, extended or allocated only after [`BlockMap::move_to_blocks`]; an entry of a directory is
//! changed only where [`Directories::changeable_entry`](crate::directory::Directories::changeable_entry) found it, and added where [`Directories::plan_insert`](crate::directory::Directories::plan_insert) says.
//!
//! Locks: `INODE`, to move it exclusively; then `XATTR`, for a part of the content is among the attributes.
//!
//! Source: `fs/ext4/inline.c`. Tests: `tests/inline.rs`, `../tests/exchange`, `../tests/crash`.

use extant_alloc::{MayUse, Purpose, Request};
use extant_ondisk::{
    FileType, IncompatFeatures, InodeNumber, LogicalBlock, RawInode, Run, Structure, inline_data,
};
use extant_rt::Arc;

use crate::error::{Error, Location, Result};
use crate::incore::buffer::BufferKind;
use crate::incore::inode::Inode;
use crate::mapping::BlockMap;
use crate::metadata::quota::ids_of;
use crate::metadata::update::{Credits, InodeDirty, MetadataUpdate, RUN_CREDITS};

/// Credits for moving content: the inode, the block, and its bitmap and descriptor.
const MOVE_CREDITS: u32 = 2 + RUN_CREDITS;

impl BlockMap {
    /// The content in an inode, 60 bytes and more; None if its content is elsewhere.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn inline_content(&self, number: InodeNumber, raw: &RawInode) -> Result<Option<Vec<u8>>> {
        if !raw.has_inline_data() {
            return Ok(None);
        }
        let location = Location::of(Structure::Inode).inode(number);
        if !self.superblock.lock().incompat().contains(IncompatFeatures::INLINE_DATA) {
            return Err(location.corrupt("content in the inode, which the disk has not"));
        }
        inline_data::content(raw).map(Some).map_err(|e| location.format(e))
    }

    /// Reads from `offset` on what a file has in its inode: how many bytes; None if its content is elsewhere.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn read_inline(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Result<Option<usize>> {
        let Some(content) = self.inline_up_to_size(inode)? else { return Ok(None) };
        let rest = content.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        let bytes = rest.len().min(buf.len());
        buf[..bytes].copy_from_slice(&rest[..bytes]);
        Ok(Some(bytes))
    }

    /// The first block that a directory with inline entries will get; None if the entries are not inline.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn inline_directory(&self, dir: &Inode) -> Result<Option<Vec<u8>>> {
        let Some(content) = self.inline_content(dir.number, &dir.raw())? else { return Ok(None) };
        let format = &self.dir_format;
        let mut block = vec![0; format.block_bytes];
        let byte = format.file_type_byte(FileType::Directory);
        inline_data::fill_directory_block(&mut block, format.usable, &content, dir.number, byte)
            .map_err(|e| Location::of(Structure::InlineDirectory).inode(dir.number).format(e))?;
        Ok(Some(block))
    }

    /// Moves the content of a file, directory or symbolic link from its inode to a block. Does nothing if it is not there. The block may be
    /// one of those kept for root.
    ///
    /// # Errors
    /// `NoSpace`; `QuotaExceeded`; `ReadOnly`; `Io`; `Corrupt`. Nothing is changed then, unless the bitmaps are damaged.
    ///
    /// # Locks
    /// `INODE` is held exclusively. Takes `XATTR`.
    pub(crate) fn move_to_blocks(&self, inode: &Arc<Inode>) -> Result<()> {
        if !inode.state().raw.has_inline_data() {
            return Ok(());
        }
        let _xattrs = inode.xattrs.write();
        let kind = match inode.file_type() {
            FileType::Directory => Some(BufferKind::Directory(inode.owner())),
            FileType::Symlink => Some(BufferKind::Symlink),
            _ => None,
        };
        let content = match kind {
            Some(BufferKind::Directory(_)) => self.inline_directory(inode)?,
            _ => self.inline_up_to_size(inode)?,
        };
        let Some(content) = content.filter(|content| !content.is_empty()) else {
            let mut update = self.begin(Credits::new(1, 0))?;
            update.take_content_out(inode)?;
            update.finish();
            return Ok(());
        };
        self.check_countable(&inode.raw(), 1)?;
        let (_, quota) = self.reserve_quota_clusters(ids_of(&inode.raw()), 1)?;
        let mut reservation = self.reserve(1, 1, MayUse::RootBlocks)?;
        let goal = self.geometry.cluster_of(self.goal_of_inode(inode.number));
        let request = Request { goal, len: 1, least: 1, ahead: 0, purpose: Purpose::Data };
        let taken = self.allocator.allocate(&mut reservation, &request)?;
        let run = Run { start: self.geometry.first_block(taken.start), len: 1 };
        let written = match kind {
            _ if !self.features.has_extents && run.start.0 >> 32 != 0 => Err(Error::NoSpace),
            // In the journal, with what names it.
            Some(_) => Ok(()),
            // Before that, as all content of files.
            None => self.write_padded(inode, (run.start, 0), &content, (true, true)),
        };
        let mut update = match written.and_then(|()| self.begin_reserved(MOVE_CREDITS, reservation)) {
            Ok(update) => update,
            Err(error) => {
                self.allocator.free_unmarked(taken);
                return Err(error);
            }
        };
        update.hold_quota(quota);
        update.mark_used(taken)?;
        update.take_content_out(inode)?;
        if let Some(kind) = kind {
            let buffer = update.new_buffer(run.start, kind);
            update.modify_buffer(&buffer, |bytes| bytes[..content.len()].copy_from_slice(&content));
            update.modify_inode(inode, InodeDirty::Mapping, |raw| {
                // A directory's size is that of its block, of anything else it stays.
                raw.set_size(raw.size().max(content.len() as u64));
            });
        }
        // The hole of an empty map, which needs no reading.
        let hole = self.hole(inode, &inode.raw(), LogicalBlock(0))?;
        let change = update.map_marked(inode, hole, LogicalBlock(0), run, false)?;
        update.change_content(inode, change.with_clusters(1), |_| ())?;
        update.finish();
        Ok(())
    }

    /// Truncates a file with inline content to zero bytes.
    ///
    /// # Errors
    /// `ReadOnly`; `Corrupt`.
    ///
    /// # Locks
    /// `INODE` is held exclusively. Takes `XATTR`.
    pub(crate) fn empty_inline(&self, inode: &Arc<Inode>) -> Result<()> {
        let _xattrs = inode.xattrs.write();
        let mut update = self.begin(Credits::new(1, 0))?;
        update.take_content_out(inode)?;
        update.resized(inode, 0);
        update.finish();
        Ok(())
    }

    /// The inline content of a file or a symbolic link, up to its size.
    fn inline_up_to_size(&self, inode: &Inode) -> Result<Option<Vec<u8>>> {
        // Size and content are of one moment.
        let raw = inode.raw();
        let content = self.inline_content(inode.number, &raw)?;
        Ok(content.map(|mut content| {
            content.truncate(raw.size() as usize);
            content
        }))
    }
}

impl MetadataUpdate<'_> {
    /// Takes the content out of an inode, whose `XATTR` is held, and leaves an empty map. Takes one credit.
    fn take_content_out(&mut self, inode: &Arc<Inode>) -> Result<()> {
        let location = Location::of(Structure::Inode).inode(inode.number);
        let has_extents = self.sbi.features.has_extents;
        self.modify_inode(inode, InodeDirty::Mapping, |raw| inline_data::take_out(raw, has_extents))
            .map_err(|e| location.format(e))
    }
}
