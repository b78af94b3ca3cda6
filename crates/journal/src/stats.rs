//! Counters of what the journal did.

use std::time::Duration;

use extant_rt::{AtomicU64, Ordering};

/// Counts of the journal since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Transactions made durable.
    pub commits: u64,
    /// Fast commits.
    pub fast_commits: u64,
    /// Blocks of the fast-commit area that they wrote.
    pub fast_commit_blocks: u64,
    /// Copies of blocks written to the log, or to their final locations where there is no log.
    pub copies: u64,
    /// Revoke records written.
    pub revokes: u64,
    /// Log blocks written: copies, descriptors, revoke and commit blocks.
    pub log_blocks: u64,
    /// Checkpoints done.
    pub checkpoints: u64,
    /// Blocks written to their final locations by checkpoints.
    pub checkpoint_blocks: u64,
    /// Handles that did not open at the first attempt.
    pub start_waits: u64,
    /// Nanoseconds in which no handle could open, because a commit waited for the open ones or froze what they changed.
    pub locked_ns: u64,
    /// Nanoseconds from when the thread that made a commit, of either kind, asked for it to its start: it waited for the commit before it
    /// and for threads that join it.
    pub request_delay_ns: u64,
    /// Nanoseconds in which the client made the final bytes of what had changed, with their checksums.
    pub materialise_ns: u64,
    /// Nanoseconds in which the log was written, but for commit blocks, and waited for room in it.
    pub logging_ns: u64,
    /// Nanoseconds of flushes before commit blocks and of writing these durably.
    pub flushing_ns: u64,
}

/// The counters behind [`Stats`]. Relaxed throughout: nothing is decided by them.
#[derive(Debug, Default)]
pub struct Counters {
    commits: AtomicU64,
    fast_commits: AtomicU64,
    fast_commit_blocks: AtomicU64,
    copies: AtomicU64,
    revokes: AtomicU64,
    log_blocks: AtomicU64,
    checkpoints: AtomicU64,
    checkpoint_blocks: AtomicU64,
    start_waits: AtomicU64,
    locked_ns: AtomicU64,
    request_delay_ns: AtomicU64,
    materialise_ns: AtomicU64,
    logging_ns: AtomicU64,
    flushing_ns: AtomicU64,
}

/// A part of a commit whose time is counted.
#[derive(Clone, Copy, Debug)]
pub enum Phase {
    RequestDelay,
    Locked,
    Materialise,
    Logging,
    Flushing,
}

impl Counters {
    pub fn committed(&self, copies: usize, revokes: usize, log_blocks: u32) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.copies.fetch_add(copies as u64, Ordering::Relaxed);
        self.revokes.fetch_add(revokes as u64, Ordering::Relaxed);
        self.log_blocks.fetch_add(u64::from(log_blocks), Ordering::Relaxed);
    }

    pub fn fast_committed(&self, blocks: u32) {
        self.fast_commits.fetch_add(1, Ordering::Relaxed);
        self.fast_commit_blocks.fetch_add(u64::from(blocks), Ordering::Relaxed);
    }

    pub fn checkpointed(&self, blocks: u64) {
        self.checkpoints.fetch_add(1, Ordering::Relaxed);
        self.checkpoint_blocks.fetch_add(blocks, Ordering::Relaxed);
    }

    pub fn start_waited(&self) {
        self.start_waits.fetch_add(1, Ordering::Relaxed);
    }

    pub fn took(&self, phase: Phase, time: Duration) {
        let counter = match phase {
            Phase::RequestDelay => &self.request_delay_ns,
            Phase::Locked => &self.locked_ns,
            Phase::Materialise => &self.materialise_ns,
            Phase::Logging => &self.logging_ns,
            Phase::Flushing => &self.flushing_ns,
        };
        counter.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub fn read(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            commits: get(&self.commits),
            fast_commits: get(&self.fast_commits),
            fast_commit_blocks: get(&self.fast_commit_blocks),
            copies: get(&self.copies),
            revokes: get(&self.revokes),
            log_blocks: get(&self.log_blocks),
            checkpoints: get(&self.checkpoints),
            checkpoint_blocks: get(&self.checkpoint_blocks),
            start_waits: get(&self.start_waits),
            locked_ns: get(&self.locked_ns),
            request_delay_ns: get(&self.request_delay_ns),
            materialise_ns: get(&self.materialise_ns),
            logging_ns: get(&self.logging_ns),
            flushing_ns: get(&self.flushing_ns),
        }
    }
}
