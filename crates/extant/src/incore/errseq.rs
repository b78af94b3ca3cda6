//! Writeback errors, reported once to each open file.
//!
//! An error is recorded before the blocks that it concerns stop being dirty: a thread that finds nothing dirty finds the error.
//!
//! Source: `lib/errseq.c`, `file_check_and_advance_wb_err`. Tests: `tests/writeback_errors.rs`.

use extant_rt::{AtomicU32, Ordering};

/// The writeback errors of an inode, or of all inodes together.
///
/// A counter in steps of two; the lowest bit says that some cursor has seen the last error.
#[derive(Debug, Default)]
pub(crate) struct WritebackError(AtomicU32);

/// The last writeback error that an open file has reported.
#[derive(Debug)]
pub(crate) struct ErrorCursor(AtomicU32);

const SEEN: u32 = 1;

impl WritebackError {
    /// Notes that data was lost (`errseq_set`).
    pub(crate) fn record(&self) {
        // Release: pairs with the load in `news_to`, besides the lock of the thread that finds the inode clean.
        let _ = self.0.fetch_update(Ordering::Release, Ordering::Relaxed, |errors| {
            Some((errors & !SEEN).wrapping_add(2))
        });
    }

    /// The cursor of a file that is opened now (`errseq_sample`). An error that no cursor has seen is reported by this one too.
    pub(crate) fn sample(&self) -> ErrorCursor {
        // Acquire: pairs with `record`.
        let errors = self.0.load(Ordering::Acquire);
        ErrorCursor(AtomicU32::new(if errors & SEEN != 0 { errors } else { 0 }))
    }

    /// Whether some cursor has reported the last error.
    pub(crate) fn is_seen(&self) -> bool {
        self.0.load(Ordering::Acquire) & SEEN != 0
    }

    /// Whether an error was recorded that this cursor has not reported.
    pub(crate) fn is_news_to(&self, cursor: &ErrorCursor) -> bool {
        self.news_to(cursor).is_some()
    }

    /// The errors, if the cursor has not reported the last one.
    fn news_to(&self, cursor: &ErrorCursor) -> Option<u32> {
        // Acquire: pairs with `record`.
        let errors = self.0.load(Ordering::Acquire);
        // Relaxed: the cursor's number means nothing to others.
        (errors != 0 && errors | SEEN != cursor.0.load(Ordering::Relaxed)).then_some(errors)
    }

    /// Whether an error was recorded that this cursor has not reported. It has afterwards.
    pub(crate) fn check_and_advance(&self, cursor: &ErrorCursor) -> bool {
        let Some(errors) = self.news_to(cursor) else { return false };
        // One that is recorded meanwhile stays unseen.
        let _ = self.0.compare_exchange(errors, errors | SEEN, Ordering::Relaxed, Ordering::Relaxed);
        cursor.0.swap(errors | SEEN, Ordering::Relaxed) != errors | SEEN
    }
}

impl Clone for ErrorCursor {
    fn clone(&self) -> Self {
        Self(AtomicU32::new(self.0.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_open_file_reports_an_error_once_and_an_unseen_one_is_reported_by_the_next() {
        let errors = WritebackError::default();
        let (one, other) = (errors.sample(), errors.sample());
        assert!(!errors.check_and_advance(&one) && !errors.is_news_to(&one));
        errors.record();
        assert!(errors.is_news_to(&one) && errors.is_news_to(&one));
        let late = errors.sample();
        assert!(errors.check_and_advance(&one) && !errors.check_and_advance(&one));
        assert!(errors.check_and_advance(&other) && errors.check_and_advance(&late));
        assert!(!errors.check_and_advance(&errors.sample()), "all have seen it");
        errors.record();
        assert!(errors.check_and_advance(&one) && !errors.check_and_advance(&one));
        assert!(errors.check_and_advance(&other));
    }
}
