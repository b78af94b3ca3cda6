//! How far a change is that takes long.

use extant_rt::is_interrupted;

use crate::error::{Error, Result};

/// How far rewriting checksums is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TuneProgress {
    /// Block groups whose inodes were verified, and then those that were rewritten.
    pub done_groups: u64,
    /// The sum of both.
    pub total_groups: u64,
}

/// Counts groups, and asks whether to go on.
pub(super) struct Progress<'r> {
    pub(super) progress: TuneProgress,
    pub(super) report: &'r mut dyn FnMut(TuneProgress) -> bool,
}

impl Progress<'_> {
    /// # Errors
    /// `Interrupted` if the caller says so.
    pub(super) fn add(&mut self, groups: usize) -> Result<()> {
        let goes_on = (self.report)(self.progress) && !is_interrupted();
        self.progress.done_groups += groups as u64;
        if goes_on { Ok(()) } else { Err(Error::Interrupted) }
    }
}
