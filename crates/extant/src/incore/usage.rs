//! What users, groups and projects use.

use extant_ondisk::QuotaType;

/// A user, group or project.
pub(crate) type Dquot = (QuotaType, u32);

/// Space in bytes and inodes, more or less than before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) space: i64,
    pub(crate) inodes: i64,
}

impl Usage {
    pub(crate) fn add(&mut self, other: Self) {
        self.space = self.space.saturating_add(other.space);
        self.inodes = self.inodes.saturating_add(other.inodes);
    }

    pub(crate) fn negated(self) -> Self {
        Self { space: self.space.saturating_neg(), inodes: self.inodes.saturating_neg() }
    }

    /// Whether neither is more than the other's.
    pub(crate) fn is_within(self, other: Self) -> bool {
        self.space <= other.space && self.inodes <= other.inodes
    }
}

/// What is taken of limits, by id, until it is charged or given back.
pub(crate) type Taken = Vec<(Dquot, Usage)>;

/// Adds what is taken elsewhere.
pub(crate) fn merge(taken: &mut Taken, more: Taken) {
    for (dquot, usage) in more {
        match taken.iter_mut().find(|(own, _)| *own == dquot) {
            Some((_, own)) => own.add(usage),
            None => taken.push((dquot, usage)),
        }
    }
}
