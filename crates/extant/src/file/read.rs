//! Reading files.
//!
//! Locks: `INODE` of the file, shared, over the I/O: no range is freed or moved while it is read.

use extant_rt::Arc;

use crate::error::Result;
use crate::file::Files;
use crate::incore::inode::Inode;

impl Files {
    /// Reads from `offset` until `buf` is full or the file ends: how many bytes. Holes read as zeroes.
    ///
    /// # Errors
    /// `IsADirectory`; `Io`; `Corrupt`.
    pub(crate) fn read_at(&self, inode: &Arc<Inode>, offset: u64, buf: &mut [u8]) -> Result<usize> {
        if let Some(bytes) = self.read_hit(inode, offset, buf) {
            return Ok(bytes);
        }
        let raw = inode.raw();
        self.check_regular(&raw)?;
        if raw.has_inline_data()
            && let Some(bytes) = self.read_inline(inode, offset, buf)?
        {
            return Ok(bytes);
        }
        let pages = self.pages_of(&raw);
        drop(raw);
        let Some(pages) = pages else {
            let _content = inode.content.read();
            return self.read_content(inode, offset, buf);
        };
        self.read_ahead(pages, inode, offset, buf.len());
        let _content = inode.lock_for_reading();
        let size = inode.state().size();
        let bytes = size.saturating_sub(offset).min(buf.len() as u64) as usize;
        if bytes > 0 {
            self.read_pages(pages, inode, offset, &mut buf[..bytes], size)?;
        }
        Ok(bytes)
    }
}
