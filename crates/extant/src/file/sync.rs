//! Making changes durable: all, or those of one file.
//!
//! Source: `ext4_sync_file`, `ext4_sync_fs`.

use extant_ondisk::InodeFlags;
use extant_rt::{Arc, is_interrupted};

use crate::error::{Error, Result};
use crate::file::Files;
use crate::incore::inode::Inode;

impl Files {
    /// Makes everything done so far durable.
    ///
    /// # Errors
    /// The journal's and the device's; `Io` once if data of any file was lost before; `Corrupt` once if damage kept
    /// something from being deleted.
    pub(crate) fn sync(&self) -> Result<()> {
        self.evict_all_unlinked();
        let Some(journal) = &self.journal else { return Ok(()) };
        let flushed = self.flush_all();
        let written = journal.flush_epoch();
        journal.commit_running()?;
        journal.flush_since(written)?;
        let lost = self.check_writeback_error();
        flushed.and(lost).and(self.check_undeleted())
    }

    /// Makes an inode durable that was changed, if it is marked as synchronous (`chattr +S`).
    ///
    /// # Errors
    /// As [`Files::sync_inode`].
    pub(crate) fn sync_if_marked(&self, inode: &Arc<Inode>) -> Result<()> {
        if inode.flags().contains(InodeFlags::SYNC) { self.sync_inode(inode, true) } else { Ok(()) }
    }

    /// Makes one inode durable: its data, and its fields if `attributes`, or what is needed to read the data back.
    ///
    /// # Errors
    /// The journal's and the device's; `Interrupted`, with nothing promised.
    pub(crate) fn sync_inode(&self, inode: &Arc<Inode>, attributes: bool) -> Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        self.flush_with(inode, attributes)?;
        if is_interrupted() {
            return Err(Error::Interrupted);
        }
        let written = journal.flush_epoch();
        let state = inode.state();
        let tid = if attributes { state.sync_tid } else { state.datasync_tid };
        drop(state);
        match tid {
            Some(tid) if !journal.is_durable(tid) => journal.fast_commit(tid)?,
            _ => {}
        }
        // No commit may have been needed, or it may have flushed before this file's last overwrite in place.
        Ok(journal.flush_since(written)?)
    }
}
