//! The record of errors on the disk: the superblock's error fields, written past the journal.
//!
//! Each error counts in the superblock in memory, which commits and unmounting write. Past the journal the superblock is written for
//! the first error since mounting, the second, the fourth and so on, so that a damaged block that is read again and again costs few
//! writes; and when the journal is aborted.
//!
//! Invariants: what is written past the journal is the newest committed superblock with other error fields and label, never what
//! the running transaction changed, such as the head of the list of orphans; no checkpoint and no other such write comes between
//! its reading and its writing.
//!
//! Locks: `CHECKPOINT` over reading and writing the superblock's block; `SUPERBLOCK` for moments.
//!
//! Source: `save_error_info`, `update_super_work`, `ext4_handle_error` and `ext4_load_journal` of `fs/ext4/super.c`.
//! Tests: `tests/errors.rs`.

use std::collections::BTreeMap;

use extant_ondisk::superblock::ERRORS_CONTINUE;
use extant_ondisk::{FsBlock, InodeNumber, State, Structure, Superblock};
use extant_rt::{Arc, Ordering};

use crate::error::{Error, Location, Result};
use crate::metadata::SbInfo;
use crate::metadata::update::Credits;

impl SbInfo {
    /// Notes damage that an operation met, and stops writing if the superblock or the mount options ask for it.
    pub(crate) fn handle_error(&self, error: &Error) {
        let Error::Corrupt { location, .. } = error else { return };
        if self.journal.is_none() {
            return;
        }
        let count = self.save_error_info(&error.to_string(), Some(location));
        if self.stop_on_damage || self.superblock.lock().s_errors() != ERRORS_CONTINUE {
            self.failed.store(true, Ordering::Release);
        }
        // Once it is being unmounted, another host may soon use the disk.
        if count.is_power_of_two() && !self.unmounted.load(Ordering::Acquire) {
            self.report_errors();
        }
    }

    /// Notes that the journal was aborted.
    pub(crate) fn handle_journal_abort(&self, words: &str) {
        self.save_error_info(words, None);
        self.report_errors();
    }

    /// Notes an error in memory; how many there were since mounting.
    fn save_error_info(&self, words: &str, location: Option<&Location>) -> u32 {
        let seconds = self.now().seconds;
        let inode = location.and_then(|location| location.inode).unwrap_or(InodeNumber(0));
        let block = location.and_then(|location| location.block).unwrap_or(FsBlock(0));
        let superblock = &mut *self.superblock.lock();
        superblock.set_state(superblock.state() | State::ERROR);
        write_error_info(superblock, seconds, words.as_bytes(), inode, block);
        self.error_count.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    /// Has the disk say of errors what memory says.
    pub(crate) fn report_errors(&self) {
        // A write that failed has ended all writing; the operation that met the error noted here returns it in any case.
        let _ = self.write_superblock(|| {
            let mut committed = self.committed_superblock()?;
            copy_errors(&self.superblock.lock(), &mut committed);
            Ok(committed)
        });
    }

    /// Has the superblock among replayed blocks keep the errors that were written past the journal after it was committed. Of two
    /// counts of errors the larger is the newer. A superblock that cannot be read is not changed, and mounting fails.
    pub(crate) fn keep_newer_errors(&self, replayed: &mut BTreeMap<FsBlock, Arc<[u8]>>) {
        let (block, offset) = self.superblock_location();
        let Some(bytes) = replayed.get_mut(&block) else { return };
        let Some(location) = Arc::make_mut(bytes).get_mut(offset..offset + 1024) else { return };
        let Ok(mut superblock) = Superblock::parse(location) else { return };
        let found = self.superblock.lock();
        if found.s_error_count() > superblock.s_error_count() {
            copy_errors(&found, &mut superblock);
        }
        superblock.set_state(superblock.state() | found.state() & State::ERROR);
        superblock.update_checksum();
        location.copy_from_slice(superblock.as_bytes());
    }

    /// The superblock as committed; as on the disk while what it describes is to be there first.
    fn committed_superblock(&self) -> Result<Superblock> {
        let (block, offset) = self.superblock_location();
        let location = Location::of(Structure::Superblock);
        if self.journal.as_ref().is_some_and(|journal| journal.placed_last() == Some(block)) {
            let mut bytes = [0; 1024];
            self.device.read_at(1024, &mut bytes).map_err(|e| location.io(e))?;
            return Superblock::parse(&bytes).map_err(|e| location.format(e));
        }
        let bytes = self.read_block(block, location)?;
        let superblock = bytes.get(offset..offset + 1024).unwrap_or_default();
        Superblock::parse(superblock).map_err(|e| location.format(e))
    }

    /// Sets the volume's label: up to 16 bytes.
    ///
    /// # Errors
    /// `InvalidArgument` if it is longer; `ReadOnly`; `Io`.
    pub(crate) fn set_label(&self, label: &[u8]) -> Result<()> {
        let mut bytes = [0; 16];
        bytes
            .get_mut(..label.len())
            .ok_or(Error::InvalidArgument("a label has 16 bytes"))?
            .copy_from_slice(label);
        let mut update = self.begin(Credits::new(0, 0))?;
        update.modify_superblock(|superblock| superblock.set_s_volume_name(bytes));
        update.finish();
        // A reader of the device sees it at once, as with the kernel's ext4.
        self.write_superblock(|| {
            let mut committed = self.committed_superblock()?;
            // Another may have set a further one meanwhile.
            committed.set_s_volume_name(self.superblock.lock().s_volume_name());
            Ok(committed)
        })
    }

    /// Stops all writing because a thread panicked on whose work others depend.
    pub(crate) fn abort_after_panic(&self, what: &'static str) {
        if let Some(journal) = &self.journal {
            journal.abort(extant_journal::Error::Panicked(what));
        }
    }

    /// Writes the superblock to its final location, past the journal, durably unless the journal was aborted. No checkpoint writes
    /// while `make` makes it. A write that fails aborts the journal, as all of metadata do.
    ///
    /// # Errors
    /// `Io`; the journal's; those of `make`.
    pub(crate) fn write_superblock(&self, make: impl FnOnce() -> Result<Superblock>) -> Result<()> {
        let Some(journal) = &self.journal else { return Err(Error::ReadOnly) };
        let checkpoint = journal.lock_checkpoint();
        let mut superblock = make()?;
        superblock.update_checksum();
        let written = self.device.write_at(1024, superblock.as_bytes());
        drop(checkpoint);
        if let Err(error) = written {
            journal.abort(std::io::Error::new(error.kind(), error.to_string()).into());
            return Err(Location::of(Structure::Superblock).io(error));
        }
        Ok(journal.flush()?)
    }
}

/// Notes that unmounting could not write all data of files. The state stays: the file system itself is sound, and the next mount
/// learns of the loss by the count of errors alone, as with the kernel.
pub(crate) fn note_loss(superblock: &mut Superblock, seconds: i64, error: &Error) {
    let inode = match error {
        Error::Io { location, .. } => location.inode,
        _ => None,
    };
    write_error_info(
        superblock,
        seconds,
        b"data lost at unmounting",
        inode.unwrap_or(InodeNumber(0)),
        FsBlock(0),
    );
}

/// Takes the error fields of one superblock over into another.
fn copy_errors(from: &Superblock, to: &mut Superblock) {
    to.set_state(to.state() | from.state() & State::ERROR);
    to.set_s_error_count(from.s_error_count());
    to.set_first_error_time(from.first_error_time());
    to.set_s_first_error_ino(from.s_first_error_ino());
    to.set_s_first_error_block(from.s_first_error_block());
    to.set_s_first_error_func(from.s_first_error_func());
    to.set_last_error_time(from.last_error_time());
    to.set_s_last_error_ino(from.s_last_error_ino());
    to.set_s_last_error_block(from.s_last_error_block());
    to.set_s_last_error_func(from.s_last_error_func());
}

/// Fills the error fields: the first error stays, the last one and the count change.
fn write_error_info(
    superblock: &mut Superblock,
    seconds: i64,
    words: &[u8],
    inode: InodeNumber,
    block: FsBlock,
) {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    let mut function = [0; 32];
    let len = words.len().min(function.len());
    function[..len].copy_from_slice(&words[..len]);
    if superblock.s_error_count() == 0 {
        superblock.set_first_error_time(seconds);
        superblock.set_s_first_error_ino(inode.0);
        superblock.set_s_first_error_block(block.0);
        superblock.set_s_first_error_func(function);
    }
    superblock.set_last_error_time(seconds);
    superblock.set_s_last_error_ino(inode.0);
    superblock.set_s_last_error_block(block.0);
    superblock.set_s_last_error_func(function);
    superblock.set_s_error_count(superblock.s_error_count().saturating_add(1));
}
