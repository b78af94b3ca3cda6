//! What transactions freed, until it may be given out again: in the group while the transaction runs, then in a queue.
//!
//! Invariant: a run is joined with those of its group and transaction that it touches before it waits, so that the end of
//! a commit puts back few runs. Nothing of the disk as a whole is locked or written on the way.
//!
//! Locks: the group's in the group; the queue's (`FREED`) for who commits. Source: kernel `ext4_mb_free_metadata`,
//! `ext4_process_freed_data`. Tests: `tests/alloc/model.rs`, `tests/alloc/groups.rs`.

use std::collections::BTreeMap;

use extant_ondisk::{FsBlock, GroupNumber, TransactionId};

use crate::Allocator;
use crate::bitmap64::FreeExtent;
use crate::group::Run;

/// Runs of one group, by their start.
#[derive(Debug, Default)]
pub(crate) struct FreedRuns(BTreeMap<u32, u32>);

/// What a frozen transaction freed.
#[derive(Debug)]
pub(crate) struct Freed {
    pub tid: TransactionId,
    pub groups: Vec<(GroupNumber, FreedRuns)>,
}

impl FreedRuns {
    /// Adds a run that overlaps none, joined with those it touches: how many these are.
    pub fn add(&mut self, mut gap: FreeExtent) -> u64 {
        let before = self.0.range(..gap.start).next_back();
        let before = before.filter(|(start, len)| *start + *len == gap.start);
        let after = self.0.get(&(gap.start + gap.len)).copied();
        let joined = u64::from(before.is_some()) + u64::from(after.is_some());
        if let Some((start, len)) = before {
            gap = FreeExtent { start: *start, len: len + gap.len };
        }
        if let Some(len) = after {
            self.0.remove(&(gap.start + gap.len));
            gap.len += len;
        }
        self.0.insert(gap.start, gap.len);
        joined
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The runs in order.
    pub fn iter(&self) -> impl Iterator<Item = FreeExtent> {
        self.0.iter().map(|(start, len)| FreeExtent { start: *start, len: *len })
    }
}

impl Allocator {
    /// The runs that `tid` and the transactions before it freed and that [`Allocator::committed`] will let be given out. Once
    /// `tid` is durable they are nobody's.
    ///
    /// # Locks
    /// Takes the queue's.
    #[must_use]
    pub fn freed(&self, tid: TransactionId) -> Vec<Run> {
        let queue = self.freed.lock();
        let groups = queue.iter().filter(|freed| !freed.tid.is_after(tid)).flat_map(|freed| &freed.groups);
        let run = |(number, runs): &(GroupNumber, FreedRuns)| {
            let first = self.geometry.group_first_block(*number).0;
            let run =
                move |gap: FreeExtent| Run { start: FsBlock(first + u64::from(gap.start)), len: gap.len };
            runs.iter().map(run).collect::<Vec<_>>()
        };
        groups.flat_map(run).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_touch_are_one_whatever_their_order() {
        let mut runs = FreedRuns::default();
        let added = [(10, 5), (20, 5), (0, 10), (40, 1), (15, 5), (26, 14)];
        assert_eq!(added.map(|(start, len)| runs.add(FreeExtent { start, len })), [0, 0, 1, 0, 2, 1]);
        let runs: Vec<_> = runs.iter().map(|gap| (gap.start, gap.len)).collect();
        assert_eq!(runs, [(0, 25), (26, 15)]);
    }
}
