//! Limits and periods.

use std::time::Duration;

/// Limits and periods; the defaults are the kernel's, of a limit that its owner knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Writers wait while more bytes are dirty.
    pub dirty_bytes_max: u64,
    /// With more dirty bytes contexts write without being asked.
    pub background_bytes: u64,
    /// How often a context looks for what is dirty for long, and writes times.
    pub period: Duration,
    /// How long is long.
    pub expire: Duration,
    /// Threads of each context. With none only callers that ask for [`crate::Writeback::listed`] write, and no writer is
    /// slowed.
    pub dispatch_threads: usize,
}

impl Tuning {
    /// For a limit of dirty bytes: in the background from half of it on (the kernel's 10 % and 20 % of memory), every 5 s
    /// what is dirty for 30 s, one thread.
    #[must_use]
    pub fn new(dirty_bytes_max: u64) -> Self {
        Self {
            dirty_bytes_max,
            background_bytes: dirty_bytes_max / 2,
            period: Duration::from_secs(5),
            expire: Duration::from_secs(30),
            dispatch_threads: 1,
        }
    }
}
