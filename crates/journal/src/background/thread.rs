//! The loop of the background thread.

use std::time::Duration;

use extant_rt::Arc;

use super::Task;
use crate::abort_on_panic::AbortOnPanic;
use crate::{Error, Journal, Result};

impl Journal {
    /// Starts the thread that commits every `interval` (the kernel's is 5 s) and checkpoints when the log is
    /// half full. It stops on [`Journal::close`], on an abort and when the journal is dropped. A second call
    /// changes nothing.
    ///
    /// # Errors
    /// If the host gives no thread.
    pub fn spawn_background(self: &Arc<Self>, interval: Duration) -> Result<()> {
        let mut thread = self.background.thread.lock();
        if thread.is_some() {
            return Ok(());
        }
        let (journal, signal) = (Arc::downgrade(self), Arc::clone(&self.background.signal));
        *thread = Some(extant_rt::spawn("extant-journal", move || {
            loop {
                let task = signal.wait(interval);
                let Some(journal) = journal.upgrade() else { return };
                let abort_on_panic = AbortOnPanic::new(&journal, "the thread that commits panicked");
                let done = match task {
                    Task::Stop => Err(Error::Closed),
                    Task::Commit => journal.commit_running(),
                    Task::Checkpoint => journal.checkpoint(),
                };
                abort_on_panic.end();
                // An error has aborted the journal, and the next operation reports it.
                if done.is_err() {
                    return;
                }
            }
        })?);
        Ok(())
    }
}
