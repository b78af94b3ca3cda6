//! The findings of a check, bounded in number.

use std::fmt;

use crate::error::{Error, Location};

/// The most findings that are listed; a disk with more is beyond being described one by one.
pub const FINDINGS_MAX: usize = 4096;

/// One disagreement with the rest of the disk or with the format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where.
    pub location: Location,
    /// What is wrong, as a clause.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.what)
    }
}

/// The findings so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    list: Vec<Finding>,
}

impl Findings {
    /// Adds one, unless there are too many.
    pub(super) fn add(&mut self, location: Location, what: impl Into<String>) {
        if self.list.len() < FINDINGS_MAX {
            self.list.push(Finding { location, what: what.into() });
        }
    }

    /// Adds what `ondisk` says of bytes that it refused.
    pub(super) fn add_format(&mut self, location: Location, error: extant_ondisk::Error) {
        match location.format(error) {
            Error::Corrupt { location, reason } => self.add(location, reason),
            other => self.add(location, other.to_string()),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.list.len()
    }

    /// Whether no more are listed, so that looking on is in vain.
    pub(super) fn is_full(&self) -> bool {
        self.list.len() >= FINDINGS_MAX
    }

    pub(super) fn into_list(self) -> Vec<Finding> {
        self.list
    }
}
