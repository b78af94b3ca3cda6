//! Aborts for panics: what a panic cut short may be half done in memory, so nothing of it may become durable.

use crate::{Error, Journal};

/// Aborts the journal if a panic ends what it watches.
pub struct AbortOnPanic<'a> {
    journal: &'a Journal,
    what: &'static str,
    ended: bool,
}

impl<'a> AbortOnPanic<'a> {
    pub fn new(journal: &'a Journal, what: &'static str) -> Self {
        Self { journal, what, ended: false }
    }

    /// It ended well, or by an error.
    pub fn end(mut self) {
        self.ended = true;
    }
}

impl Drop for AbortOnPanic<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.journal.fail(Error::Panicked(self.what));
        }
    }
}
