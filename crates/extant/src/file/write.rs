//! Writing files: into the page cache, or into their blocks at once.
//!
//! Locks: `INODE` of the file, as the two ways say.
//!
//! Tests: `tests/files.rs` (a model), `tests/shared_files.rs` (the kernel, threads), `tests/limits.rs`.

use extant_block::Segment;
use extant_ondisk::{InodeFlags, RawInode};
use extant_rt::Arc;

use crate::error::{Error, Result};
use crate::file::Files;
use crate::incore::inode::Inode;

impl Files {
    /// Writes at `offset`, or at the end of the file if there is none: how many bytes, at least one unless `buf` is
    /// empty. A `privileged` writer may use the blocks kept for root, and does not take away the file's set-user-id
    /// and set-group-id.
    ///
    /// # Errors
    /// `NoSpace` and `FileTooLarge` if nothing could be written; `NotPermitted` for an immutable or verity file;
    /// `IsADirectory`; `ReadOnly`; `Io`; `Corrupt`. With `Io` and `Corrupt`, a part may be written.
    pub(crate) fn write_at(
        &self,
        inode: &Arc<Inode>,
        offset: Option<u64>,
        buf: &[u8],
        privileged: bool,
    ) -> Result<usize> {
        if offset.is_some_and(|offset| self.write_hit(inode, offset, buf, privileged)) {
            return Ok(buf.len());
        }
        let raw = inode.raw();
        self.check_write(&raw)?;
        if buf.is_empty() {
            return Ok(0);
        }
        let is_inline = raw.has_inline_data();
        drop(raw);
        if is_inline {
            let _content = inode.content.write();
            self.move_to_blocks(inode)?;
        }
        if let Some(pages) = self.pages_of(&inode.raw()) {
            return self.write_cached(pages, inode, offset, buf, privileged);
        }
        if let Some(offset) = offset
            && self.overwrite(inode, offset, buf, privileged)?
        {
            return Ok(buf.len());
        }
        let _content = inode.content.write();
        let (size, size_max) = {
            let raw = inode.raw();
            (raw.size(), self.size_max(&raw))
        };
        let offset = offset.unwrap_or(size);
        let room =
            Some(size_max.saturating_sub(offset)).filter(|room| *room > 0).ok_or(Error::FileTooLarge)?;
        let buf = &buf[..room.min(buf.len() as u64) as usize];
        if offset > size {
            self.zero_tail(inode, size)?;
        }
        self.write_through(inode, offset, buf, privileged)
    }

    /// Gives a file blocks for `bytes` bytes from `offset` on, or for the first of them, as a write does, and leaves writing them to the
    /// caller: where they lie on the device, as whole blocks. The file has the bytes from now on.
    ///
    /// # Errors
    /// As [`Files::write_at`]; `InvalidArgument` for a start or an end in the middle of a block, but for the end of the file.
    pub(crate) fn place_at(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        bytes: usize,
        privileged: bool,
    ) -> Result<Vec<Segment>> {
        let raw = inode.raw();
        self.check_write(&raw)?;
        let size_max = self.size_max(&raw);
        drop(raw);
        let block_size = u64::from(self.geometry.block_size);
        if !offset.is_multiple_of(block_size) {
            return Err(Error::InvalidArgument("the start is in the middle of a block"));
        }
        let end = offset.checked_add(bytes as u64).filter(|end| *end <= size_max);
        let end = end.ok_or(Error::FileTooLarge)?;
        let _content = inode.content.write();
        self.flush_range_out(inode, offset..end)?;
        self.move_to_blocks(inode)?;
        let size = inode.size();
        if end < size && !end.is_multiple_of(block_size) {
            return Err(Error::InvalidArgument("the end is in the middle of a block"));
        }
        if offset > size {
            self.zero_tail(inode, size)?;
        }
        self.place_through(inode, offset, bytes, privileged)
    }

    /// Refuses a write to what is no regular file, or keeps its content.
    fn check_write(&self, raw: &RawInode) -> Result<()> {
        self.check_regular(raw)?;
        self.writable()?;
        if raw.flags().intersects(InodeFlags::FIXED_CONTENT) { Err(Error::NotPermitted) } else { Ok(()) }
    }
}
