//! What is left on the disk of an error: the superblock's error fields, written past the journal.
//!
//! Source: `save_error_info` and `ext4_handle_error` of `fs/ext4/super.c`.

use extant_ondisk::{FsBlock, InodeNumber, State, Structure, Superblock};
use extant_rt::Ordering;

use crate::error::{Error, Place, Result};
use crate::update::Need;
use crate::volume::Volume;

/// `s_errors`: go on.
const ERRORS_CONTINUE: u16 = 1;

impl Volume {
    /// Notes damage that an operation met, and stops writing if the superblock asks for it.
    pub(crate) fn note_damage(&self, error: &Error) {
        let Error::Corrupt { place, .. } = error else { return };
        if self.journal.is_none() {
            return;
        }
        self.record(&error.to_string(), Some(place));
        if self.superblock.lock().s_errors() != ERRORS_CONTINUE {
            self.failed.store(true, Ordering::Release);
        }
    }

    /// Notes that the journal gave up.
    pub(crate) fn record_error(&self, words: &str) {
        self.record(words, None);
    }

    fn record(&self, words: &str, place: Option<&Place>) {
        let seconds = self.now().seconds;
        let inode = place.and_then(|place| place.inode).unwrap_or(InodeNumber(0));
        let block = place.and_then(|place| place.block).unwrap_or(FsBlock(0));
        let note = |superblock: &mut Superblock| {
            superblock.set_state(superblock.state() | State::ERROR);
            note_error(superblock, seconds, words.as_bytes(), inode, block);
        };
        // For the commits that may still come.
        note(&mut self.superblock.lock());
        // What the running transaction changed must not get past the journal, such as the head of the list of orphans.
        let Ok(mut committed) = self.committed_superblock() else { return };
        note(&mut committed);
        // If even this cannot be written there is nowhere left to say so; the caller has its error.
        let _ = self.write_superblock(committed);
    }

    fn committed_superblock(&self) -> Result<Superblock> {
        let (block, offset) = self.superblock_place();
        let place = Place::of(Structure::Superblock);
        let bytes = self.read_block(block, place)?;
        let superblock = bytes.get(offset..offset + 1024).unwrap_or_default();
        Superblock::parse(superblock).map_err(|e| place.format(e))
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
        let mut update = self.begin(Need::new(0, 0))?;
        update.modify_superblock(|superblock| superblock.set_s_volume_name(bytes));
        update.finish();
        // Who looks at the device sees it at once, as with the kernel's.
        let mut committed = self.committed_superblock()?;
        committed.set_s_volume_name(bytes);
        self.write_superblock(committed).map_err(|e| Place::of(Structure::Superblock).io(e))
    }

    /// Stops all writing for good, with what is committed by then; the next mount recovers as after a crash.
    ///
    /// Source: `ext4_force_shutdown` of `fs/ext4/ioctl.c`.
    ///
    /// # Errors
    /// The commit's, if `commit`; writing is stopped all the same.
    pub(crate) fn shut_down(&self, commit: bool) -> Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let synced = if commit { self.sync() } else { Ok(()) };
        self.failed.store(true, Ordering::Release);
        self.unmounted.store(true, Ordering::Release);
        journal.abort(extant_journal::Error::ShutDown);
        // What is left in memory is lost.
        let _ = self.finish_flushing();
        synced.and(self.release_protection())
    }

    /// Writes the superblock home, past the journal, with the free counts as they are on the disk.
    pub(crate) fn write_superblock(&self, mut superblock: Superblock) -> std::io::Result<()> {
        superblock.update_checksum();
        self.device.write_at(1024, superblock.as_bytes())?;
        self.device.flush()
    }
}

/// Notes that unmounting could not write all data of files. The state stays: the file system itself is sound, and those who mount it
/// next are told by the count of errors alone, as they are by the kernel.
pub(crate) fn note_loss(superblock: &mut Superblock, seconds: i64, error: &Error) {
    let inode = match error {
        Error::Io { place, .. } => place.inode,
        _ => None,
    };
    note_error(superblock, seconds, b"data lost at unmounting", inode.unwrap_or(InodeNumber(0)), FsBlock(0));
}

/// Fills the error fields: the first error stays, the last one and the count change.
fn note_error(superblock: &mut Superblock, seconds: i64, words: &[u8], inode: InodeNumber, block: FsBlock) {
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
