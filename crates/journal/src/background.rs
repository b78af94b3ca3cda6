//! The thread that commits, at intervals and where a transaction is full, and the one that checkpoints when the log is half full.
//!
//! A handle finds a transaction full under the locks of an operation, so it has that thread commit: other threads that want these
//! locks wait no longer than for the freeze.
//!
//! They hold the journal only while they work, so a journal that is dropped ends them. Without them a thread that needs a commit or room in
//! the log does the work.
//!
//! Locks: `JOURNAL` keys 3, alone, and 4, last.
//!
//! Source: `kjournald2` (`fs/jbd2/journal.c`), which leaves checkpoints to the threads that need room.

mod thread;

use std::time::Duration;

use extant_ondisk::TransactionId;
use extant_rt::{Arc, Condvar, JoinHandle, LockClass, Mutex};

/// The threads and their requests.
#[derive(Debug)]
pub struct Background {
    signal: Arc<Signal>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Signal {
    requests: Mutex<Requests>,
    /// Notified for the thread that commits.
    commit: Condvar,
    /// Notified for the thread that checkpoints.
    checkpoint: Condvar,
}

#[derive(Debug, Default)]
struct Requests {
    stop: bool,
    /// A thread commits at intervals and when it is asked.
    has_committer: bool,
    commit: bool,
    /// The transaction that is full; until the commit has ended.
    full: Option<TransactionId>,
    checkpoint: bool,
}

impl Background {
    pub fn new() -> Self {
        let requests = Mutex::with_key(LockClass::JOURNAL, 4, Requests::default());
        Self {
            signal: Arc::new(Signal { requests, commit: Condvar::new(), checkpoint: Condvar::new() }),
            threads: Mutex::with_key(LockClass::JOURNAL, 3, Vec::new()),
        }
    }

    pub fn stop(&self) {
        self.signal.requests.lock().stop = true;
        self.signal.commit.notify_all();
        self.signal.checkpoint.notify_all();
    }

    pub fn stop_and_join(&self) {
        self.stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        // A thread itself comes here if it lets go of the client last.
        for thread in threads.into_iter().filter(|thread| !extant_rt::is_current(thread)) {
            // A panic of the thread has been reported where it happened, and its guards aborted the journal.
            let _ = thread.join();
        }
    }

    /// Earlier than at the end of the interval.
    pub fn ask_for_commit(&self) {
        self.signal.requests.lock().commit = true;
        self.signal.commit.notify_all();
    }

    /// Has the thread commit a transaction that is full; false if there is no thread.
    pub fn ask_for_full(&self, tid: TransactionId) -> bool {
        let mut requests = self.signal.requests.lock();
        if !requests.has_committer {
            return false;
        }
        requests.full = Some(tid);
        drop(requests);
        self.signal.commit.notify_all();
        true
    }

    /// Whether a full transaction is still to be committed, or is being.
    pub fn has_full(&self) -> bool {
        self.signal.requests.lock().full.is_some()
    }

    /// The log is half full.
    pub fn ask_for_checkpoint(&self) {
        self.signal.requests.lock().checkpoint = true;
        self.signal.checkpoint.notify_all();
    }
}

/// What the thread that commits does next.
#[derive(Clone, Copy)]
enum Task {
    Commit,
    CommitFull(TransactionId),
}

impl Signal {
    /// None when it is to stop.
    fn wait_for_commit(&self, interval: Duration) -> Option<Task> {
        let mut requests = self.requests.lock();
        if !requests.stop && !requests.commit && requests.full.is_none() {
            requests = self.commit.wait_timeout(requests, interval);
        }
        if requests.stop {
            requests.has_committer = false;
            requests.full = None;
            return None;
        }
        // Where nothing was asked for, the interval has ended.
        let full = requests.full;
        requests.commit &= full.is_some();
        Some(full.map_or(Task::Commit, Task::CommitFull))
    }

    /// That transaction is full no more.
    fn committed_full(&self, tid: TransactionId) {
        let mut requests = self.requests.lock();
        requests.full = requests.full.filter(|full| *full != tid);
    }

    fn set_has_committer(&self, has_committer: bool) {
        self.requests.lock().has_committer = has_committer;
    }

    /// False when it is to stop.
    fn wait_for_checkpoint(&self) -> bool {
        let mut requests = self.requests.lock();
        while !requests.stop && !requests.checkpoint {
            requests = self.checkpoint.wait(requests);
        }
        requests.checkpoint = false;
        !requests.stop
    }
}
