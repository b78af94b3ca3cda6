//! What the running transaction freed in a group.
//!
//! Invariant: a run is joined with those of its group and transaction that it touches before it waits for the commit, so that
//! the end of a commit puts back few runs.
//!
//! Locks: the group's. Source: kernel `ext4_mb_free_metadata`.

use std::collections::BTreeMap;

use crate::bitmap64::FreeExtent;

/// Runs of one group, by their start.
#[derive(Debug, Default)]
pub(crate) struct FreedRuns(BTreeMap<u32, u32>);

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
