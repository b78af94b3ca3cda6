//! The thread that commits at intervals and checkpoints when the log is half full.
//!
//! It holds the journal only while it works, so a journal that is dropped ends it. Nothing depends on it: a
//! thread that needs room in the log or a commit does the work.
//!
//! Locks: `JOURNAL` keys 3 and 4, alone.

mod thread;

use std::time::Duration;

use extant_rt::{Arc, Condvar, JoinHandle, LockClass, Mutex};

/// The thread and its requests.
#[derive(Debug)]
pub struct Background {
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Signal {
    requests: Mutex<Requests>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Requests {
    stop: bool,
    commit: bool,
    checkpoint: bool,
}

impl Background {
    pub fn new() -> Self {
        let requests = Mutex::with_key(LockClass::JOURNAL, 4, Requests::default());
        Self {
            signal: Arc::new(Signal { requests, changed: Condvar::new() }),
            thread: Mutex::with_key(LockClass::JOURNAL, 3, None),
        }
    }

    pub fn stop(&self) {
        self.signal.requests.lock().stop = true;
        self.signal.changed.notify_all();
    }

    pub fn stop_and_join(&self) {
        self.stop();
        let thread = self.thread.lock().take();
        // The thread itself comes here if it lets go of the client last.
        if let Some(thread) = thread.filter(|thread| !extant_rt::is_current(thread)) {
            // A panic of the thread has been reported where it happened, and its guards aborted the journal.
            let _ = thread.join();
        }
    }

    /// Earlier than at the end of the interval.
    pub fn ask_for_commit(&self) {
        self.signal.requests.lock().commit = true;
        self.signal.changed.notify_all();
    }

    /// The log is half full.
    pub fn ask_for_checkpoint(&self) {
        self.signal.requests.lock().checkpoint = true;
        self.signal.changed.notify_all();
    }
}

/// The thread's next task.
enum Task {
    Commit,
    Checkpoint,
    Stop,
}

impl Signal {
    fn wait(&self, interval: Duration) -> Task {
        let mut requests = self.requests.lock();
        if !requests.stop && !requests.commit && !requests.checkpoint {
            requests = self.changed.wait_timeout(requests, interval);
        }
        // Either a commit was requested, or the interval has ended.
        if !requests.checkpoint {
            requests.commit = false;
        }
        match (requests.stop, std::mem::take(&mut requests.checkpoint)) {
            (true, _) => Task::Stop,
            (false, true) => Task::Checkpoint,
            (false, false) => Task::Commit,
        }
    }
}
