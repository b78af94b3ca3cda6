//! Commit: makes the running transaction durable.
//!
//! The thread that wants a commit runs it. One thread commits at a time; others wait for it and find their transaction
//! durable, or do the next one, which by then holds the changes of all that waited (group commit).
//!
//! Order (`docs/design/journal.md`, J1 to J11): lock and drain the gate; freeze; open the next transaction;
//! materialise; make room in the log; revoke blocks, descriptors, copies; flush; commit block, durable; committed
//! blocks; wait for checkpoint writes of revoked blocks; `committed`.
//!
//! Locks: holds rank `HANDLE` throughout, as no handle of the thread may be open; takes `JOURNAL` for moments.
//!
//! Source: `jbd2_journal_commit_transaction` (`fs/jbd2/commit.c`). Checked by `tests/crash.rs`,
//! `tests/interop.rs`, `tests/threads.rs`.

use std::collections::BTreeSet;

use extant_ondisk::jbd2::{self, Tag, TagFlags};
use extant_ondisk::{FsBlock, TransactionId};
use extant_rt::{Arc, HAS_TIMEOUTS, LockClass, Monotonic, Ordering, Rank, yield_now};

use crate::committed_blocks::CommittedBlock;
use crate::group::{SHORT, WAIT_MAX};
use crate::journal::OpenLog;
use crate::log::{Log, write_sorted};
use crate::stats::Phase;
use crate::{BoxError, Client, Error, FinalBlock, Journal, Result};

mod fast;

/// How a commit is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Of the transaction, waiting for other threads that are about to ask for one.
    Grouped,
    /// Of the transaction, at once.
    AtOnce,
    /// Likewise, but it needs not be durable: handles are to open on the next one.
    Full,
    /// By records if they can say what changed, waiting likewise.
    Fast,
}

type Materialise<'a> = Box<dyn FnOnce() -> Result<Vec<FinalBlock>, BoxError> + Send + 'a>;

/// A transaction as it goes to the disk.
struct CommittingTransaction {
    tid: TransactionId,
    /// Ascending, each block once.
    blocks: Vec<(FsBlock, Arc<[u8]>)>,
    revoked: BTreeSet<FsBlock>,
}

/// The right to commit, which a drop releases. A drop while the client panics aborts the journal.
struct CommitGuard<'a> {
    journal: &'a Journal,
    finished: bool,
}

impl Drop for CommitGuard<'_> {
    fn drop(&mut self) {
        if !self.finished {
            self.journal.fail(Error::Client("it panicked in a commit".into()));
            self.journal.gate.unlock();
            self.journal.wake();
        }
        self.journal.state.lock().committing = false;
        self.journal.commit_ended.notify_all();
        self.journal.changed.notify_all();
    }
}

impl Journal {
    /// Makes `tid` durable and returns when it is, after [`Client::committed`]. Where several threads sync again and again, it waits for
    /// them first: at most for the average time of a commit, and for 15 ms.
    ///
    /// # Errors
    /// [`Error::Aborted`]: the journal is aborted, perhaps by this very commit. [`Error::NoSuchTransaction`].
    ///
    /// # Locks
    /// Enters and leaves [`LockClass::HANDLE`]. Waits for open handles, another commit and the device.
    ///
    /// # Panics
    /// In debug builds, if the thread has a handle open.
    pub fn commit(&self, tid: TransactionId) -> Result<()> {
        self.commit_in_group(tid, Kind::Grouped)
    }

    /// Makes everything durable that handles changed which have closed, of `tid` or before: by a fast commit if records can say it, else
    /// as [`Journal::commit`]. After a fast commit `tid` goes on.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub fn fast_commit(&self, tid: TransactionId) -> Result<()> {
        self.commit_in_group(tid, Kind::Fast)
    }

    /// Makes everything durable that handles changed which have closed, at once. Nothing to do if none did.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub fn commit_running(&self) -> Result<()> {
        self.commit_in_group(self.running_tid(), Kind::AtOnce)
    }

    /// Has the transaction `tid`, which is full, committed: by the background thread, if there is one. Returns when handles may open again.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub(crate) fn commit_full(&self, tid: TransactionId) -> Result<()> {
        if !self.background.ask_for_full(tid) {
            return self.commit_full_here(tid);
        }
        let _rank = Rank::enter(LockClass::HANDLE, 0);
        let mut state = self.state.lock();
        while self.running_tid() == tid && self.background.has_full() && state.aborted.is_none() {
            state = self.wait(state);
        }
        Self::check_aborted(&state)
    }

    /// Commits the transaction `tid`, which is full, unless another thread does: returns when handles may open on the next one.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub(crate) fn commit_full_here(&self, tid: TransactionId) -> Result<()> {
        self.commit_in_group(tid, Kind::Full)
    }

    fn commit_in_group(&self, tid: TransactionId, kind: Kind) -> Result<()> {
        if self.is_durable(tid) {
            return Ok(());
        }
        // Dropped last: should that drop the client, it may close the journal.
        let client = self.client();
        let _rank = Rank::enter(LockClass::HANDLE, 0);
        let mut state = self.state.lock();
        let is_grouped = matches!(kind, Kind::Grouped | Kind::Fast) && HAS_TIMEOUTS;
        // Since when it waits, and whether it was the first of its group.
        let mut joined: Option<(Monotonic, bool)> = None;
        // The first fast commit that has what the caller changed.
        let wanted = state.fast_commits_begun + 1;
        loop {
            if self.is_durable(tid) || kind == Kind::Fast && state.fast_commits_done >= wanted {
                return Ok(());
            }
            Self::check_aborted(&state)?;
            let running = self.running_tid();
            if tid.is_after(running) {
                return Err(Error::NoSuchTransaction(tid));
            }
            if kind == Kind::Full && tid != running {
                return Ok(());
            }
            let (since, is_first) = *joined.get_or_insert_with(|| {
                let in_commit = state.committing && tid == state.next && !state.has_records;
                (Monotonic::now(), is_grouped && state.group.join(in_commit))
            });
            let left = state.group.wait(state.group.waited(since)).filter(|_| is_grouped);
            // Of threads that do not sleep the first one commits: its CPU's cache has most of what a commit changes.
            let waits = state.committing || left.is_some() || is_grouped && !is_first;
            let looks_again = HAS_TIMEOUTS && state.group.is_short() && since.elapsed() < SHORT;
            state = match left {
                _ if waits && looks_again => {
                    drop(state);
                    yield_now();
                    self.state.lock()
                }
                _ if state.committing && kind == Kind::Full => self.wait(state),
                _ if state.committing => self.commit_ended.wait(state),
                // The first one commits; should it leave without, the others do not wait for ever.
                Some(left) => self.commit_ended.wait_timeout(state, if is_first { left } else { WAIT_MAX }),
                // With no commit under way everything before the running transaction is durable.
                None if tid == running && self.gate.is_untouched() => return Ok(()),
                None => break,
            };
        }
        state.committing = true;
        state.group.started();
        drop(state);
        let started = Monotonic::now();
        if let Some((since, _)) = joined {
            self.stats.took(Phase::RequestDelay, since.elapsed());
        }
        let mut guard = CommitGuard { journal: self, finished: false };
        let done = client.as_deref().ok_or(Error::ClientGone).and_then(|client| {
            match kind == Kind::Fast && self.try_fast_commit(client)? {
                true => Ok(()),
                false => self.commit_running_transaction(client),
            }
        });
        let done = done.map_err(|error| self.fail(error));
        self.state.lock().group.ended(started.elapsed());
        guard.finished = true;
        done
    }

    fn commit_running_transaction(&self, client: &dyn Client) -> Result<()> {
        let transaction = self.freeze(client)?;
        Self::check_aborted(&self.state.lock())?;
        match &self.log {
            None => {
                let checkpoint = self.lock_checkpoint();
                let (others, last) = self.split_off_last(&transaction.blocks, |(block, _)| *block);
                write_sorted(&*self.device, others)?;
                if !last.is_empty() {
                    self.flush_device()?;
                    write_sorted(&*self.device, last)?;
                }
                drop(checkpoint);
                self.flush_device()?;
                self.state.lock().next = transaction.tid.next();
                self.stats.committed(transaction.blocks.len(), 0, 0);
            }
            Some(open) => {
                let needed = self.write_transaction(open, &transaction)?;
                self.stats.committed(transaction.blocks.len(), transaction.revoked.len(), needed);
                self.publish(open, &transaction, needed);
                let mut superblock = open.superblock.lock();
                if superblock.has_fast_commit_head {
                    self.durable_requests.run(|| open.clear_fast_commits(&mut superblock))?;
                }
            }
        }
        client.committed(transaction.tid);
        // Release: pairs with the Acquire in `is_durable`. After `committed`, so that a thread that waits for freed
        // blocks finds them.
        self.durable.store(transaction.tid.0, Ordering::Release);
        Ok(())
    }

    /// Closes the running transaction, opens the next one and asks the client for the blocks.
    fn freeze(&self, client: &dyn Client) -> Result<CommittingTransaction> {
        let (tid, materialise, revoked) = self.close_running(client);
        let began = Monotonic::now();
        let mut blocks = Vec::new();
        for FinalBlock { block, bytes } in materialise().map_err(Error::Client)? {
            if bytes.len() != self.block_size as usize {
                return Err(Error::WrongLength(block));
            }
            blocks.push((block, bytes));
        }
        // Stable: of two copies of one block the later counts.
        blocks.sort_by_key(|(block, _)| *block);
        blocks.reverse();
        blocks.dedup_by_key(|(block, _)| *block);
        blocks.reverse();
        let mut revoked: BTreeSet<FsBlock> = revoked;
        for (block, _) in &blocks {
            // A record would void the copy that this very transaction writes.
            revoked.remove(block);
        }
        self.stats.took(Phase::Materialise, began.elapsed());
        Ok(CommittingTransaction { tid, blocks, revoked })
    }

    fn close_running<'c>(
        &self,
        client: &'c dyn Client,
    ) -> (TransactionId, Materialise<'c>, BTreeSet<FsBlock>) {
        let locked = Monotonic::now();
        self.lock_updates();
        let tid = self.running_tid();
        let materialise = client.freeze(tid);
        let revoked = self.revoked.take();
        // Release: pairs with the Acquire in `running_tid`.
        self.running.store(tid.next().0, Ordering::Release);
        self.gate.open_next();
        self.wake();
        self.stats.took(Phase::Locked, locked.elapsed());
        (tid, materialise, revoked)
    }

    /// Has no handle open on the running transaction, and none open until the gate does (jbd2's `jbd2_journal_lock_updates`).
    fn lock_updates(&self) {
        self.gate.lock();
        let mut state = self.state.lock();
        while !self.gate.is_drained() {
            state = self.wait(state);
        }
    }

    /// Writes a transaction to the log, durably; returns how many log blocks it took.
    fn write_transaction(&self, open: &OpenLog, transaction: &CommittingTransaction) -> Result<u32> {
        let log = &open.log;
        let began = Monotonic::now();
        let needed = self.make_room(open, transaction)?;
        let start = self.state.lock().head;
        self.mark_in_use(open, start, transaction.tid)?;
        let mut at = start;
        let revoked: Vec<FsBlock> = transaction.revoked.iter().copied().collect();
        for records in revoked.chunks(log.format.records_per_revoke()) {
            log.write(at, &[log.format.revoke(transaction.tid, records).into()])?;
            at = log.ring.advance(at, 1);
        }
        for part in transaction.blocks.chunks(log.format.tags_per_descriptor()) {
            let blocks = described(log, transaction.tid, part);
            log.write(at, &blocks)?;
            at = log.ring.advance(at, blocks.len() as u32);
        }
        self.stats.took(Phase::Logging, began.elapsed());
        let began = Monotonic::now();
        self.flush_device()?;
        if open.is_external {
            self.durable_requests.run(|| log.device.flush())?;
        }
        Self::check_aborted(&self.state.lock())?;
        let (seconds, nanoseconds) = self.clock.now();
        self.durable_requests
            .run(|| log.write_fua(at, &log.format.commit(transaction.tid, seconds, nanoseconds)))?;
        self.stats.took(Phase::Flushing, began.elapsed());
        Ok(needed)
    }

    /// Waits, or checkpoints, until the log has room for the transaction; returns how many blocks that is.
    fn make_room(&self, open: &OpenLog, transaction: &CommittingTransaction) -> Result<u32> {
        let log = &open.log;
        let descriptors = transaction.blocks.len().div_ceil(log.format.tags_per_descriptor());
        let revokes = transaction.revoked.len().div_ceil(log.format.records_per_revoke());
        let needed = (transaction.blocks.len() + descriptors + revokes) as u64 + 1;
        // A block always stays free, so that the head never meets the tail.
        let capacity = open.used_max - 1;
        let fits = u32::try_from(needed).ok().filter(|needed| *needed <= capacity);
        let Some(needed) = fits else {
            return Err(Error::TransactionTooLarge { blocks: needed, len: open.used_max });
        };
        let has_room = || self.state.lock().used() + needed <= capacity;
        // e2fsck (1.47.0) takes the end of a fast-commit area for that of the log and loses what follows around it.
        let goes_around = || open.has_fast_commit_area() && self.state.lock().head + needed >= log.ring.end;
        // A checkpoint empties the log: everything in it is committed, and only this thread commits.
        if !has_room() || goes_around() {
            self.checkpoint_committed()?;
            if !has_room() {
                return Err(Error::TransactionTooLarge { blocks: needed.into(), len: open.used_max });
            }
        }
        if goes_around() {
            self.begin_at_front(open, transaction.tid)?;
        }
        Ok(needed)
    }

    /// Lets the next transaction begin at the front of the log, which is empty. What the superblock says of that becomes durable with
    /// the flush before the commit block; until then the log is as empty at its front as where it ended.
    fn begin_at_front(&self, open: &OpenLog, tid: TransactionId) -> Result<()> {
        let mut superblock = open.superblock.lock();
        {
            let mut state = self.state.lock();
            if state.used() > 0 {
                return Ok(());
            }
            state.head = open.log.ring.first;
        }
        // Else it is written when the log is marked as in use.
        if superblock.sb.s_start != 0 {
            superblock.sb.s_start = open.log.ring.first;
            superblock.sb.s_sequence = tid;
            superblock.write(&open.log)?;
        }
        Ok(())
    }

    /// The superblock on the disk must say that the log has a start before a transaction in it counts: what it says becomes durable with
    /// the flush before the commit block.
    fn mark_in_use(&self, open: &OpenLog, start: u32, tid: TransactionId) -> Result<()> {
        let mut superblock = open.superblock.lock();
        // With fast commits to be replayed it says so before, but not the log's features.
        if superblock.sb.s_start == 0 && superblock.has_fast_commit_head {
            self.durable_requests.run(|| open.clear_fast_commits(&mut superblock))?;
        }
        if superblock.sb.s_start == 0 || !superblock.is_written {
            superblock.sb.s_start = start;
            superblock.sb.s_sequence = tid;
            superblock.write(&open.log)?;
        }
        Ok(())
    }

    /// Enters a durable transaction into the committed blocks and waits until nothing writes its revoked blocks any more.
    fn publish(&self, open: &OpenLog, transaction: &CommittingTransaction, needed: u32) {
        let ring = open.log.ring;
        let mut state = self.state.lock();
        state.push(ring, needed, transaction.blocks.len() as u32);
        for (block, bytes) in &transaction.blocks {
            let copy = CommittedBlock { block: *block, tid: transaction.tid, bytes: Arc::clone(bytes) };
            if let Some(superseded) = self.committed_blocks.insert(copy) {
                state.drop_checkpoint_ref(superseded);
            }
        }
        for block in &transaction.revoked {
            if let Some(void) = self.committed_blocks.remove(*block) {
                state.drop_checkpoint_ref(void);
            }
        }
        let half_full = state.used() > open.used_max / 2;
        while transaction.revoked.iter().any(|block| state.in_flight.contains(block)) {
            state = self.wait(state);
        }
        drop(state);
        if half_full {
            self.background.ask_for_checkpoint();
        }
    }
}

/// A descriptor and its copies.
fn described(log: &Log, tid: TransactionId, part: &[(FsBlock, Arc<[u8]>)]) -> Vec<Arc<[u8]>> {
    let mut tags = Vec::with_capacity(part.len());
    let mut blocks = vec![Arc::from([])];
    for (block, bytes) in part {
        let mut flags = TagFlags::empty();
        let mut copy = Arc::clone(bytes);
        if jbd2::needs_escape(&copy) {
            let mut escaped = copy.to_vec();
            jbd2::escape(&mut escaped);
            copy = escaped.into();
            flags |= TagFlags::ESCAPE;
        }
        let checksum = if log.format.has_checksums() { log.format.copy_checksum(tid, &copy) } else { 0 };
        tags.push(Tag { block: *block, flags, checksum });
        blocks.push(copy);
    }
    blocks[0] = log.format.descriptor(tid, &tags).into();
    blocks
}
