//! Which transaction lists a change.
//!
//! A freeze closes the lists of a transaction and looks at nothing in them, so that it takes no longer where much has changed. What they list
//! is copied afterwards, while the next transaction runs; what that one changes first leaves a copy of what it was.
//!
//! Source: kernel `jh->b_frozen_data` (`fs/jbd2/transaction.c`).

use extant_ondisk::TransactionId;

/// The transaction whose list something is in: the running one, or the one before it, whose commit has not copied it yet. As there are no
/// more than these two, it need only say whether the number is odd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DirtyIn {
    /// In the list of neither.
    #[default]
    None,
    Even,
    Odd,
}

/// Where something was listed before a transaction changed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    /// In no list.
    Clean,
    /// In this transaction's.
    Listed,
    /// In that of the transaction before, whose commit needs a copy of it as it is now.
    Committing,
}

impl DirtyIn {
    fn of(tid: TransactionId) -> Self {
        if tid.0.is_multiple_of(2) { Self::Even } else { Self::Odd }
    }

    /// The running transaction `tid` changes it.
    pub(crate) fn enter(&mut self, tid: TransactionId) -> Before {
        let now = Self::of(tid);
        match std::mem::replace(self, now) {
            Self::None => Before::Clean,
            before if before == now => Before::Listed,
            _ => Before::Committing,
        }
    }

    /// The commit of `tid`, which lists it, has come to it: whether it is as that transaction left it. If not, there is a copy.
    pub(crate) fn leave(&mut self, tid: TransactionId) -> bool {
        let is_unchanged = *self == Self::of(tid);
        if is_unchanged {
            *self = Self::None;
        }
        is_unchanged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_listed_once_by_each_transaction_and_copied_once() {
        for first in [7, u32::MAX].map(TransactionId) {
            let (second, third) = (first.next(), first.next().next());
            let mut dirty_in = DirtyIn::None;
            assert_eq!([dirty_in.enter(first), dirty_in.enter(first)], [Before::Clean, Before::Listed]);
            assert_eq!(
                [dirty_in.enter(second), dirty_in.enter(second)],
                [Before::Committing, Before::Listed]
            );
            assert!(!dirty_in.leave(first), "changed since");
            assert!(dirty_in.leave(second));
            assert_eq!([dirty_in.enter(third), dirty_in.enter(third)], [Before::Clean, Before::Listed]);
        }
    }
}
