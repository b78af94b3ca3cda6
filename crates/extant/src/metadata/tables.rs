//! Zeroing the inode tables that mkfs left to be initialised lazily, in the background or at once.
//!
//! The thread zeroes the never written part of the table of each group without `INODE_ZEROED`, and then sets that flag in
//! its descriptor. Until then a commit zeroes the table blocks that it brings into use (`commit.rs`). The two never write
//! the same block: a piece is zeroed with `TABLES` held, from behind what commits have brought into use; a commit that
//! brings more into use notes it first, and then takes and releases `TABLES` before it writes, so that no zeroes come after
//! its inodes.
//!
//! After each group the thread pauses for ten times as long as the group took (kernel `init_itable`). It ends with
//! unmounting and at the first error; the next mount does the groups that are left. A group whose inode bitmap contradicts
//! its descriptor is left alone.
//!
//! Locks: `TABLES`: key 0 over the zeroing of a piece, the others for moments.
//!
//! Source: kernel `ext4_init_inode_table`, `ext4_lazyinit_thread`. Tests: `tests/tables.rs`, `../tests/lazy_tables.rs`.

use std::ops::Range;
use std::time::Duration;

use extant_ondisk::{FsBlock, GroupNumber, Structure};
use extant_rt::{Arc, AtomicU32, LockClass, Monotonic, Mutex, Ordering, Weak, is_interrupted};

use crate::error::{Error, Location, Result};
use crate::metadata::SbInfo;
use crate::metadata::update::{Credits, MetadataUpdate};
use crate::metadata::worker::{Signal, Watch, Worker};

/// Before the first group, so that short mounts do without (the kernel's at most).
pub(crate) const START_DELAY: Duration = Duration::from_secs(5);
/// The rest after a group, in times of what it took (kernel `EXT4_DEF_LI_WAIT_MULT`).
const REST_FACTOR: u32 = 10;
/// Table blocks that are zeroed in one hold of the lock.
const PIECE_BLOCKS: u32 = 64;

/// How far the inode tables are zeroed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableInitialisation {
    /// Groups that were looked at since mounting, of all.
    pub seen: u32,
    /// Groups seen whose tables were zeroed.
    pub zeroed: u32,
    /// Groups seen that were left alone because of a contradiction.
    pub skipped: u32,
}

/// The thread that zeroes tables, and what it and commits share.
#[derive(Debug)]
pub(crate) struct Tables {
    zeroing: Mutex<()>,
    worker: Worker,
    seen: AtomicU32,
    zeroed: AtomicU32,
    skipped: AtomicU32,
}

impl Tables {
    pub(crate) fn new() -> Self {
        Self {
            zeroing: Mutex::new(LockClass::TABLES, ()),
            worker: Worker::new(LockClass::TABLES),
            seen: AtomicU32::new(0),
            zeroed: AtomicU32::new(0),
            skipped: AtomicU32::new(0),
        }
    }

    /// Waits until no piece is being zeroed that was not in use when it was chosen.
    pub(crate) fn pass(&self) {
        drop(self.zeroing.lock());
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.worker.stop();
    }
}

impl SbInfo {
    /// How far the inode tables are zeroed.
    pub(crate) fn table_initialisation(&self) -> TableInitialisation {
        let read = |number: &AtomicU32| number.load(Ordering::Relaxed);
        let Tables { seen, zeroed, skipped, .. } = &self.tables;
        TableInitialisation { seen: read(seen), zeroed: read(zeroed), skipped: read(skipped) }
    }

    /// Zeroes the part of a group's table that was never written, and says so in its descriptor; returns whether there was
    /// anything to do.
    ///
    /// # Errors
    /// `Io`; `Corrupt`; the journal's. The descriptor then says what it said.
    pub(crate) fn zero_table(&self, group: GroupNumber) -> Result<bool> {
        if self.allocator.is_table_zeroed(group)? {
            return Ok(false);
        }
        self.zero_unused_table(group)?;
        // Before the descriptor says so, even without a log.
        self.writable()?.flush()?;
        self.note_table_zeroed(group)?;
        Ok(true)
    }

    /// Does at once what the thread has left: how many bytes it zeroed. A group whose inode bitmap contradicts its descriptor is left alone.
    ///
    /// # Errors
    /// `ReadOnly`; `Io`; `Interrupted`; the journal's. Tables zeroed before the error stay zeroed.
    pub(crate) fn zero_unused_tables(&self) -> Result<u64> {
        let journal = self.writable()?;
        let (mut blocks, mut fresh) = (0, Vec::new());
        let has_unused = self.checksums.has_group_checksums();
        for group in (0..self.geometry.group_count).filter(|_| has_unused).map(GroupNumber) {
            if is_interrupted() {
                return Err(Error::Interrupted);
            }
            if self.allocator.is_table_zeroed(group)? {
                continue;
            }
            match self.zero_unused_table(group) {
                Err(Error::Corrupt { .. }) if self.writable().is_ok() => continue,
                zeroed => blocks += u64::from(zeroed?),
            }
            fresh.push(group);
        }
        // Before the descriptors say so, even without a log.
        journal.flush()?;
        fresh.into_iter().try_for_each(|group| self.note_table_zeroed(group))?;
        Ok(blocks * u64::from(self.geometry.block_size))
    }

    fn note_table_zeroed(&self, group: GroupNumber) -> Result<()> {
        let mut update = self.begin(Credits::new(1, 0))?;
        update.mark_table_zeroed(group)?;
        update.finish();
        Ok(())
    }

    /// Zeroes the unused part of a group's table: how many blocks.
    fn zero_unused_table(&self, group: GroupNumber) -> Result<u32> {
        self.allocator.check_unused_inodes(group)?;
        let (table, mut at, mut blocks) = (self.allocator.inode_table(group)?, 0, 0);
        while let Some(piece) = self.zero_piece(group, table, at)? {
            at = piece.end;
            blocks += piece.end - piece.start;
        }
        Ok(blocks)
    }

    /// Zeroes the next blocks of the table from the block `at` on that are not in use: which, counted from the table's first.
    fn zero_piece(&self, group: GroupNumber, table: FsBlock, at: u32) -> Result<Option<Range<u32>>> {
        let per_block = self.geometry.block_size / u32::from(self.geometry.inode_size);
        let blocks = self.geometry.inode_table_blocks_per_group;
        let _zeroing = self.tables.zeroing.lock();
        let at = at.max(self.allocator.inodes_written(group)?.div_ceil(per_block));
        if at >= blocks {
            return Ok(None);
        }
        let len = (blocks - at).min(PIECE_BLOCKS);
        let size = u64::from(self.geometry.block_size);
        let start = (table.0 + u64::from(at)) * size;
        self.device
            .write_zeroes(start, u64::from(len) * size)
            .map_err(|error| self.table_place(group).io(error))?;
        Ok(Some(at..at + len))
    }

    fn table_place(&self, group: GroupNumber) -> Location {
        Location::of(Structure::Inode).group(group)
    }
}

impl MetadataUpdate<'_> {
    /// Says in a group's descriptor that its inode table was written as a whole. Takes one credit.
    fn mark_table_zeroed(&mut self, group: GroupNumber) -> Result<()> {
        self.begin_change();
        let changed = self.sbi.allocator.mark_table_zeroed(self.tid(), group)?;
        self.charge(changed);
        Ok(())
    }
}

/// Starts the thread, if descriptors have flags at all. It zeroes the first table after `delay`.
///
/// # Errors
/// `Io` if the host gives no thread.
pub(crate) fn start<V: AsRef<SbInfo> + Send + Sync + 'static>(
    volume: &Arc<V>,
    delay: Duration,
) -> Result<()> {
    let sbi = (**volume).as_ref();
    if !sbi.checksums.has_group_checksums() {
        return Ok(());
    }
    let volume = Arc::downgrade(volume);
    let started = sbi.tables.worker.start("extant-tables", move |signal| {
        let watch = Watch::new(volume.clone(), "the thread that zeroes inode tables panicked");
        zero_tables(&volume, signal, delay);
        watch.end();
    });
    started.map_err(|error| Location::of(Structure::Inode).io(error))
}

/// The thread's loop.
fn zero_tables<V: AsRef<SbInfo>>(volume: &Weak<V>, signal: &Signal, delay: Duration) {
    let mut is_on = signal.rest(delay);
    for group in (0..).map(GroupNumber) {
        let Some(volume) = volume.upgrade().filter(|_| is_on) else { return };
        let sbi = (*volume).as_ref();
        if group.0 >= sbi.geometry.group_count {
            return;
        }
        let start = Monotonic::now();
        let counted = match sbi.zero_table(group) {
            Ok(false) => None,
            Ok(true) => Some(&sbi.tables.zeroed),
            Err(Error::Corrupt { .. }) if sbi.writable().is_ok() => Some(&sbi.tables.skipped),
            // The next operation reports the error.
            Err(_) => return,
        };
        sbi.tables.seen.fetch_add(1, Ordering::Relaxed);
        if let Some(counted) = counted {
            counted.fetch_add(1, Ordering::Relaxed);
            let took = start.elapsed();
            drop(volume);
            is_on = signal.rest(took.saturating_mul(REST_FACTOR));
        }
    }
}
