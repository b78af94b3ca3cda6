//! Statistics and state of contexts, in the terms of the kernel's `/sys/kernel/debug/bdi/*/wb_stats`.

use std::time::Duration;

use extant_rt::{AtomicU64, Ordering};

use crate::Reason;

/// The statistics of one context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextStatistics {
    /// Inodes being written: the kernel's b_io.
    pub in_flight: usize,
    /// Inodes with dirty bytes that wait for their turn: b_dirty.
    pub dirty: usize,
    /// Inodes that were busy and are set aside: b_more_io.
    pub requeued: usize,
    /// Inodes with nothing dirty but times: b_dirty_time.
    pub only_times: usize,
    /// Dirty bytes, as [`crate::Writeback::dirty_bytes`]: WbReclaimable and WbWriteback.
    pub dirty_bytes: u64,
    /// Dirty bytes above which its writers are stopped: WbDirtyThresh.
    pub dirty_bytes_max: u64,
    /// Bytes that became dirty: WbDirtied.
    pub dirtied_bytes: u64,
    /// Bytes that its threads wrote: WbWritten.
    pub written_bytes: u64,
    /// Bytes that its threads write in a second of work: WbWriteBandwidth.
    pub bandwidth: u64,
    /// How often an inode was written because a caller waited for it.
    pub for_sync: u64,
    /// Because memory was wanted.
    pub for_pressure: u64,
    /// Because it was dirty for long.
    pub for_age: u64,
    /// Because much was dirty.
    pub for_background: u64,
    /// How often an inode was busy when its turn came.
    pub busy: u64,
    /// How often writing failed.
    pub failed: u64,
    /// How often a writer was stopped.
    pub throttled: u64,
    /// For how long, all together.
    pub throttled_for: Duration,
}

/// The statistics of all contexts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Dirty bytes above which contexts write without being asked.
    pub background_bytes: u64,
    /// Dirty bytes above which writers are stopped.
    pub dirty_bytes_max: u64,
    /// Each context that is in use, or has something listed still.
    pub contexts: Vec<ContextStatistics>,
}

/// A context's counts, each independent of the others: all accesses are relaxed.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub dirtied: AtomicU64,
    pub written: AtomicU64,
    reasons: [AtomicU64; 4],
    pub busy: AtomicU64,
    pub failed: AtomicU64,
    pub throttled: AtomicU64,
    pub throttled_ns: AtomicU64,
}

impl Counts {
    pub fn count(&self, reason: Reason) {
        self.reasons[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The counts; the rest is zero.
    pub fn read(&self) -> ContextStatistics {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let reason = |reason: Reason| read(&self.reasons[reason as usize]);
        ContextStatistics {
            dirtied_bytes: read(&self.dirtied),
            written_bytes: read(&self.written),
            for_sync: reason(Reason::Sync),
            for_pressure: reason(Reason::Pressure),
            for_age: reason(Reason::Periodic),
            for_background: reason(Reason::Background),
            busy: read(&self.busy),
            failed: read(&self.failed),
            throttled: read(&self.throttled),
            throttled_for: Duration::from_nanos(read(&self.throttled_ns)),
            ..ContextStatistics::default()
        }
    }
}
