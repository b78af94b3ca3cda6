//! The free blocks of a whole file system as runs, of which some are taken: one run where there is one, else the longest ones.

use extant_ondisk::GroupNumber;

use crate::error::{Error, Result};
use crate::mount::Volume;

/// Runs of free blocks, in order, none next to another.
#[derive(Clone, Debug, Default)]
pub(super) struct FreeSpace(Vec<(u64, u64)>);

impl FreeSpace {
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(super) fn of(volume: &Volume) -> Result<Self> {
        let mut free = Self::default();
        for group in (0..volume.geometry.group_count).map(GroupNumber) {
            for run in volume.free_runs(group)? {
                free.push(run.start.0, run.start.0 + u64::from(run.len));
            }
        }
        Ok(free)
    }

    fn push(&mut self, start: u64, end: u64) {
        match self.0.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ if start < end => self.0.push((start, end)),
            _ => {}
        }
    }

    /// Whether a block is free.
    pub(super) fn contains(&self, block: u64) -> bool {
        let next = self.0.partition_point(|(start, _)| *start <= block);
        next.checked_sub(1).and_then(|at| self.0.get(at)).is_some_and(|(_, end)| block < *end)
    }

    /// What is free in both, before the block `end`.
    pub(super) fn common(&self, other: &Self, end: u64) -> Self {
        let mut common = Self::default();
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            common.push(a.0.max(b.0), a.1.min(b.1).min(end));
            let first = if a.1 < b.1 { &mut left } else { &mut right };
            first.next();
        }
        common
    }

    /// Chooses `len` blocks as runs of first block and length: one if there is a run so long, of these the shortest; else the longest
    /// ones.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn choose(&self, len: u64) -> Result<Vec<(u64, u64)>> {
        let mut by_len: Vec<(u64, u64)> = self.0.iter().map(|(start, end)| (end - start, *start)).collect();
        by_len.sort_unstable();
        let (mut chosen, mut left) = (Vec::new(), len);
        while left > 0 {
            let fitting = by_len.partition_point(|(free, _)| *free < left);
            let at = if fitting < by_len.len() { fitting } else { by_len.len().wrapping_sub(1) };
            if at >= by_len.len() {
                return Err(Error::NoSpace);
            }
            let (free, start) = by_len.remove(at);
            chosen.push((start, free.min(left)));
            left -= free.min(left);
        }
        Ok(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortest_run_that_suffices_is_chosen_else_the_longest() {
        let free = FreeSpace(vec![(10, 20), (30, 35), (50, 80)]);
        assert_eq!(free.choose(5).expect("room"), [(30, 5)]);
        assert_eq!(free.choose(6).expect("room"), [(10, 6)]);
        assert_eq!(free.choose(42).expect("room"), [(50, 30), (10, 10), (30, 2)]);
        assert!(matches!(free.choose(46), Err(Error::NoSpace)));
        assert!(free.contains(10) && free.contains(79) && !free.contains(80) && !free.contains(9));
    }

    #[test]
    fn common_space_is_free_in_both() {
        let (one, other) =
            (FreeSpace(vec![(10, 20), (30, 60)]), FreeSpace(vec![(0, 15), (18, 40), (50, 90)]));
        assert_eq!(one.common(&other, 55).0, [(10, 15), (18, 20), (30, 40), (50, 55)]);
    }
}
