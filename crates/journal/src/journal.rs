//! The journal itself: opening, closing, aborting, and its queries.
//!
//! Leaves out: handles (`handle.rs`), commit, checkpoint, recovery.

use extant_block::{BlockDevice, DurableRequests, FlushEpoch};
use extant_ondisk::jbd2::{CRC32C_TYPE, Compat, DEFAULT_FAST_COMMIT_BLOCKS, Incompat, Superblock};
use extant_ondisk::{FsBlock, TransactionId};
use extant_rt::{
    Arc, AtomicU32, AtomicU64, Condvar, LockClass, Mutex, MutexGuard, OnceLock, Ordering, WallClock, Weak,
};

use crate::background::Background;
use crate::committed_blocks::CommittedBlocks;
use crate::fast_commit::Area;
use crate::gate::Gate;
use crate::log::{self, Log, LogMap, Ring};
use crate::revoke::Revoked;
use crate::stats::Counters;
use crate::transaction::State;
use crate::{Client, Error, Result, Stats};

/// `JBD2_MIN_JOURNAL_BLOCKS`.
const MIN_JOURNAL_BLOCKS: u32 = 1024;
/// `-EIO`, what the superblock says of an aborted journal.
const ABORTED_ERRNO: i32 = -5;
/// Credits of a transaction where no log bounds them: at 4 KiB, 256 MiB of copies.
const CREDITS_WITHOUT_LOG: u32 = 1 << 16;

/// How a journal is opened.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Checksum the log (CSUM_V3): the file system has `metadata_csum`.
    pub checksums: bool,
    /// 64-bit block numbers in the log: the file system has `64bit`, or might as well.
    pub block_numbers_64bit: bool,
    /// Write fast commits: the file system has the feature. A log that is too short for an area has none.
    pub fast_commits: bool,
    /// The log has a start but holds no transaction: recovery left it so for the fast commits that are to be replayed.
    pub replays_fast_commits: bool,
    /// Forget the error number that the superblock holds, because the file system's own superblock has it now.
    pub clear_errno: bool,
    /// Where the time in commit blocks comes from.
    pub clock: WallClock,
    /// Bytes of the log that are in use at most, because a block in it is in memory until its checkpoint; 1,024 blocks are always used.
    pub used_bytes_max: u64,
}

/// As much of a log may be in use: the length of the shortest (`JBD2_MIN_JOURNAL_BLOCKS`).
const USED_BLOCKS_MIN: u64 = 1024;

impl Default for Options {
    fn default() -> Self {
        Self {
            checksums: true,
            block_numbers_64bit: true,
            fast_commits: false,
            replays_fast_commits: false,
            clear_errno: false,
            clock: WallClock::System,
            used_bytes_max: u64::MAX,
        }
    }
}

/// The part of a journal that exists only with a log.
pub(crate) struct OpenLog {
    pub log: Log,
    /// Blocks of it that may be in use.
    pub used_max: u32,
    /// The data of writers go to another device than the log: a commit flushes that first.
    pub is_external: bool,
    /// Behind the log.
    pub fast_commits: Area,
    /// Whether fast commits are written there.
    pub writes_fast_commits: bool,
    pub superblock: Mutex<SuperblockBlock>,
}

/// The superblock as it shall be next on the disk.
pub(crate) struct SuperblockBlock {
    pub sb: Superblock,
    /// The bytes of its block.
    pub block: Box<[u8]>,
    /// Whether the disk has it.
    pub is_written: bool,
    /// The fast-commit area begins with a HEAD.
    pub has_fast_commit_head: bool,
}

/// A journal, with a log or without.
pub struct Journal {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) block_size: u32,
    pub(crate) clock: WallClock,
    pub(crate) log: Option<OpenLog>,
    pub(crate) gate: Gate,
    /// The transaction behind the gate. Changes only while the gate is locked and drained.
    pub(crate) running: AtomicU32,
    /// The newest durable transaction.
    pub(crate) durable: AtomicU32,
    pub(crate) state: Mutex<State>,
    /// Notified when a commit ends or the journal is aborted, for threads that want a commit.
    pub(crate) commit_ended: Condvar,
    /// Notified whenever something else changes that a thread may wait for.
    pub(crate) changed: Condvar,
    pub(crate) revoked: Revoked,
    pub(crate) committed_blocks: CommittedBlocks,
    /// The block that checkpoints write last; above all numbers if none.
    pub(crate) placed_last: AtomicU64,
    client: OnceLock<Weak<dyn Client>>,
    pub(crate) stats: Counters,
    pub(crate) background: Background,
    /// Flushes and durable writes of both devices, except those that record an abort.
    pub(crate) durable_requests: DurableRequests,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("running", &self.running_tid())
            .field("has_log", &self.log.is_some())
            .finish_non_exhaustive()
    }
}

/// Blocks of a log that a transaction may take, and how they are shared out.
struct Budget {
    credits: u32,
    revokes: usize,
}

impl Budget {
    /// A third of the `len` blocks that may be in use, so that a commit and a checkpoint can go on while the next transaction fills.
    fn of(len: u32, tags: usize, records: usize) -> Option<Self> {
        let third = len / 3;
        let revoke_blocks = (third / 16).max(1);
        let room = third.checked_sub(1 + revoke_blocks)?;
        let descriptors = room.div_ceil(u32::try_from(tags).ok()?.checked_add(1)?);
        let credits = room.checked_sub(descriptors).filter(|credits| *credits > 0)?;
        Some(Self { credits, revokes: revoke_blocks as usize * records })
    }
}

impl Journal {
    /// Opens a journal whose log is empty: recovered. With fast commits to be replayed, the first transaction is the one that they are
    /// part of, and makes them obsolete. Nothing is written before the first commit, which also
    /// sets the features: REVOKE, and by `options` 64BIT and CSUM_V3. `device` holds the file system; `log_device` is the
    /// same `Arc`, or an external journal's.
    ///
    /// # Errors
    /// [`Error::NeedsRecovery`] if the log holds transactions; [`Error::TooShort`]; what is wrong with the map
    /// or the superblock; I/O.
    pub fn open(
        device: Arc<dyn BlockDevice>,
        log_device: Arc<dyn BlockDevice>,
        block_size: u32,
        map: LogMap,
        options: Options,
    ) -> Result<Arc<Self>> {
        let (mut sb, block) = log::read_superblock(&*log_device, &map, block_size)?;
        if options.fast_commits && !options.replays_fast_commits {
            reserve_fast_commits(&mut sb);
        }
        let ring = Ring::new(&sb, &map, block_size)?;
        if (sb.s_start != 0) != options.replays_fast_commits {
            return Err(Error::NeedsRecovery);
        }
        let head = if sb.s_start == 0 { ring.first } else { sb.s_start };
        set_features(&mut sb, options);
        let format = sb.format();
        let used_max = (options.used_bytes_max / u64::from(block_size)).max(USED_BLOCKS_MIN);
        let used_max = u32::try_from(used_max).unwrap_or(u32::MAX).min(ring.len());
        let budget = Budget::of(used_max, format.tags_per_descriptor(), format.records_per_revoke())
            .ok_or(Error::TooShort(sb.s_maxlen))?;
        let next = sb.s_sequence;
        // Compared by address alone: two views of one object are one device.
        let is_external = !std::ptr::addr_eq(Arc::as_ptr(&device), Arc::as_ptr(&log_device));
        let fast_commits = Area::of(ring, &sb);
        let has_fast_commit_head = fast_commits.has_head(&*log_device, &map, block_size)?;
        let superblock = SuperblockBlock { sb, block, is_written: false, has_fast_commit_head };
        let log = OpenLog {
            log: Log { device: log_device, map, format, ring },
            used_max,
            is_external,
            fast_commits,
            writes_fast_commits: options.fast_commits && !is_external,
            superblock: Mutex::with_key(LockClass::JOURNAL, 0, superblock),
        };
        Ok(Self::build(device, block_size, options, Some(log), budget, State::new(next, head)))
    }

    /// A journal without a log: a commit writes the blocks to their final locations and flushes.
    #[must_use]
    pub fn without_log(device: Arc<dyn BlockDevice>, block_size: u32, options: Options) -> Arc<Self> {
        let budget = Budget { credits: CREDITS_WITHOUT_LOG, revokes: 0 };
        Self::build(device, block_size, options, None, budget, State::new(TransactionId(1), 0))
    }

    fn build(
        device: Arc<dyn BlockDevice>,
        block_size: u32,
        options: Options,
        log: Option<OpenLog>,
        budget: Budget,
        state: State,
    ) -> Arc<Self> {
        let next = state.next;
        Arc::new(Self {
            device,
            block_size,
            clock: options.clock,
            log,
            gate: Gate::new(budget.credits),
            running: AtomicU32::new(next.0),
            durable: AtomicU32::new(next.0.wrapping_sub(1)),
            placed_last: AtomicU64::new(u64::MAX),
            state: Mutex::with_key(LockClass::JOURNAL, 1, state),
            commit_ended: Condvar::new(),
            changed: Condvar::new(),
            revoked: Revoked::new(budget.revokes),
            committed_blocks: CommittedBlocks::new(),
            client: OnceLock::new(),
            stats: Counters::default(),
            background: Background::new(),
            durable_requests: DurableRequests::new(),
        })
    }

    /// Names the client, before the first handle opens. Later calls change nothing.
    pub fn set_client(&self, client: Weak<dyn Client>) {
        let _ = self.client.set(client);
    }

    pub(crate) fn client(&self) -> Option<Arc<dyn Client>> {
        self.client.get().and_then(Weak::upgrade)
    }

    /// The transaction that the next handle joins, unless it is closed meanwhile.
    #[must_use]
    pub fn running_tid(&self) -> TransactionId {
        // Acquire: pairs with the Release in `commit`; a handle also has the gate's ordering.
        TransactionId(self.running.load(Ordering::Acquire))
    }

    /// Whether `tid` is durable.
    #[must_use]
    pub fn is_durable(&self, tid: TransactionId) -> bool {
        // Acquire: pairs with the Release in `commit`, after `Client::committed`.
        !tid.is_after(TransactionId(self.durable.load(Ordering::Acquire)))
    }

    /// The newest committed bytes of a block that are not at its final location yet.
    #[must_use]
    pub fn committed_block(&self, block: FsBlock) -> Option<Arc<[u8]>> {
        self.committed_blocks.get(block)
    }

    /// The most credits that a transaction, and so a handle, may have.
    #[must_use]
    pub fn max_credits(&self) -> u32 {
        self.gate.credits_max()
    }

    /// Counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats.read()
    }

    /// The epoch of the writes to the file system's device that have returned, for [`Journal::flush_since`].
    #[must_use]
    pub fn flush_epoch(&self) -> FlushEpoch {
        self.durable_requests.epoch()
    }

    /// Makes every write durable that had returned when `epoch` was taken. A commit's flush that began later does it too. Code that
    /// writes to the device past the log flushes it here and nowhere else, because a device reports lost writes once. Waits for flushes
    /// and durable writes of other threads that overlap the flush: they may get the report in its place.
    ///
    /// # Errors
    /// [`Error::Aborted`]. A device that fails here may have dropped what it held back, whichever thread wrote it: this aborts too,
    /// or a later flush would seem to cover it.
    pub fn flush_since(&self, epoch: FlushEpoch) -> Result<()> {
        Self::check_aborted(&self.state.lock())?;
        let flushed = self.durable_requests.flush_since(epoch, || self.device.flush());
        flushed.map_err(|error: std::io::Error| self.fail(error.into()))
    }

    /// Makes every write durable that has returned.
    ///
    /// # Errors
    /// As [`Journal::flush_since`].
    pub fn flush(&self) -> Result<()> {
        self.flush_since(self.flush_epoch())
    }

    /// Flushes the file system's device.
    pub(crate) fn flush_device(&self) -> std::io::Result<()> {
        self.durable_requests.flush_since(self.flush_epoch(), || self.device.flush())
    }

    /// Stops all writing; the superblock says so, but of [`Error::ShutDown`], which is no damage. The first error stays the cause.
    pub fn abort(&self, error: Error) {
        self.fail(error);
    }

    /// Aborts for `error`, unless the journal is aborted already; returns what callers get.
    pub(crate) fn fail(&self, error: Error) -> Error {
        let cause = {
            let mut state = self.state.lock();
            if let Some(cause) = &state.aborted {
                return Error::Aborted(Arc::clone(cause));
            }
            let cause = Arc::new(error);
            state.aborted = Some(Arc::clone(&cause));
            self.gate.stop();
            cause
        };
        self.changed.notify_all();
        self.commit_ended.notify_all();
        if let Some(open) = self.log.as_ref().filter(|_| !matches!(*cause, Error::ShutDown)) {
            let mut superblock = open.superblock.lock();
            superblock.sb.s_errno = ABORTED_ERRNO;
            // The device that failed may be this one; the caller learns of the abort anyway.
            let _ = superblock.write_fua(&open.log);
        }
        if let Some(client) = self.client() {
            client.aborted(&cause);
        }
        // For what the client may have written of it. Nothing is promised any more that this could break.
        let _ = self.device.flush();
        Error::Aborted(cause)
    }

    /// Whether the journal was aborted.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.state.lock().aborted.is_some()
    }

    pub(crate) fn check_aborted(state: &State) -> Result<()> {
        state.aborted.as_ref().map_or(Ok(()), |cause| Err(Error::Aborted(Arc::clone(cause))))
    }

    /// Why no handle opens any more.
    pub(crate) fn stopped(&self) -> Error {
        Self::check_aborted(&self.state.lock()).err().unwrap_or(Error::Closed)
    }

    /// Wakes the threads that wait for the state or the gate. Takes the lock, so that no thread misses it between looking and
    /// waiting.
    pub(crate) fn wake(&self) {
        drop(self.state.lock());
        self.changed.notify_all();
    }

    pub(crate) fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state)
    }

    /// Has the background thread commit now, if there is one. Does not wait.
    pub fn ask_for_commit(&self) {
        self.background.ask_for_commit();
    }

    /// Commits, checkpoints, marks the log empty and stops the background threads. No handle opens afterwards.
    /// Closing again changes nothing.
    ///
    /// # Errors
    /// [`Error::Aborted`]; the log then keeps what is not checkpointed.
    ///
    /// # Locks
    /// As [`Journal::commit`]; no handle may be open anywhere.
    pub fn close(&self) -> Result<()> {
        self.background.stop_and_join();
        self.commit_running()?;
        self.gate.stop();
        // A handle may have opened since that commit; nothing opens now.
        self.commit_running()?;
        self.checkpoint()?;
        let Some(open) = &self.log else { return self.flush() };
        let mut superblock = open.superblock.lock();
        let next = {
            let state = self.state.lock();
            Self::check_aborted(&state)?;
            state.next
        };
        // A journal that was opened and not used stays as it was, byte for byte.
        if superblock.is_written && superblock.sb.s_start != 0 {
            superblock.sb.s_start = 0;
            superblock.sb.s_sequence = next;
            self.durable_requests.run(|| superblock.write_fua(&open.log))?;
        }
        Ok(())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.background.stop();
    }
}

impl OpenLog {
    /// Whether the log's end is kept for fast commits, be they written or not.
    pub fn has_fast_commit_area(&self) -> bool {
        self.fast_commits.first < self.fast_commits.end
    }

    /// Clears the area, durably, when its fast commits are obsolete: in an empty log, or with a transaction of their number durable. Linux
    /// ignores them then, but e2fsck (1.47.0) gives a recovery up at a HEAD of another transaction than it expects.
    pub fn clear_fast_commits(&self, superblock: &mut SuperblockBlock) -> Result<()> {
        self.log.write_fua(self.fast_commits.first, &vec![0; self.log.format.block_bytes()])?;
        superblock.has_fast_commit_head = false;
        Ok(())
    }
}

impl SuperblockBlock {
    /// Writes it: durable with the next flush of the log's device.
    pub fn write(&mut self, log: &Log) -> Result<()> {
        let offset = log::encode_superblock(&log.map, &self.sb, &mut self.block)?;
        log.device.write_at(offset, &self.block)?;
        self.is_written = true;
        Ok(())
    }

    /// Writes it durably.
    pub fn write_fua(&mut self, log: &Log) -> Result<()> {
        let offset = log::encode_superblock(&log.map, &self.sb, &mut self.block)?;
        log.device.write_fua(offset, &self.block)?;
        self.is_written = true;
        Ok(())
    }
}

/// Makes the end of a log a fast-commit area, if it has none and what is left is as long as the shortest log (`JBD2_MIN_JOURNAL_BLOCKS`).
///
/// Source: `jbd2_journal_initialize_fast_commit`.
fn reserve_fast_commits(sb: &mut Superblock) {
    let blocks = if sb.s_num_fc_blks == 0 { DEFAULT_FAST_COMMIT_BLOCKS } else { sb.s_num_fc_blks };
    if sb.s_maxlen.checked_sub(blocks).is_some_and(|left| left >= MIN_JOURNAL_BLOCKS) {
        sb.s_feature_incompat |= Incompat::FAST_COMMIT;
    }
}

/// The features of the logs that we write. The log is empty, so no block of it changes its meaning.
fn set_features(sb: &mut Superblock, options: Options) {
    let kept = sb.s_feature_incompat & Incompat::FAST_COMMIT;
    sb.s_feature_incompat = kept | Incompat::REVOKE;
    sb.s_feature_incompat.set(Incompat::BIT64, options.block_numbers_64bit);
    sb.s_feature_incompat.set(Incompat::CSUM_V3, options.checksums);
    sb.s_feature_compat.remove(Compat::CHECKSUM);
    // A version 1 superblock counts none.
    sb.s_nr_users = sb.s_nr_users.max(1);
    sb.s_checksum_type = if options.checksums { CRC32C_TYPE } else { 0 };
    if options.clear_errno {
        sb.s_errno = 0;
    }
}
