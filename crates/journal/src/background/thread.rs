//! The loops of the background threads.

use std::time::Duration;

use extant_rt::{Arc, Weak};

use super::Task;
use crate::abort_on_panic::AbortOnPanic;
use crate::{Journal, Result};

impl Journal {
    /// Starts the threads: one commits every `interval` (the kernel's is 5 s) and when a transaction is full, the other checkpoints when
    /// the log is half full. They stop on [`Journal::close`], on an abort and when the journal is dropped. A second call changes nothing.
    ///
    /// # Errors
    /// If the host gives no thread.
    pub fn spawn_background(self: &Arc<Self>, interval: Duration) -> Result<()> {
        let mut threads = self.background.threads.lock();
        if !threads.is_empty() {
            return Ok(());
        }
        let (journal, signal) = (Arc::downgrade(self), Arc::clone(&self.background.signal));
        threads.push(extant_rt::spawn("extant-checkpoint", move || {
            let checkpoint = || work(&journal, "the thread that checkpoints panicked", Self::checkpoint);
            while signal.wait_for_checkpoint() && checkpoint() {}
        })?);
        let (journal, signal) = (Arc::downgrade(self), Arc::clone(&self.background.signal));
        let commit = move |task| {
            work(&journal, "the thread that commits panicked", |journal| match task {
                Task::Commit => journal.commit_running(),
                Task::CommitFull(tid) => {
                    let done = journal.commit_full_here(tid);
                    signal.committed_full(tid);
                    journal.wake();
                    done
                }
            })
        };
        let (signal, own) = (Arc::clone(&self.background.signal), &self.background.signal);
        // Before it begins, for it may end at once.
        own.set_has_committer(true);
        let thread = extant_rt::spawn("extant-journal", move || {
            while signal.wait_for_commit(interval).is_some_and(&commit) {}
        });
        threads.push(thread.inspect_err(|_| own.set_has_committer(false))?);
        Ok(())
    }
}

/// Does that to the journal, if it is still there; whether to go on.
fn work(journal: &Weak<Journal>, panicked: &'static str, work: impl FnOnce(&Journal) -> Result<()>) -> bool {
    let Some(journal) = journal.upgrade() else { return false };
    let abort_on_panic = AbortOnPanic::new(&journal, panicked);
    let done = work(&journal);
    abort_on_panic.end();
    // An error has aborted the journal, and the next operation reports it.
    done.is_ok()
}
