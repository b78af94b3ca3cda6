//! Free space into longer runs.
//!
//! The measure is the sum of the squares of the lengths of the free runs: by the number of free blocks it is the length of the free run
//! that a free block lies in, on average. A run of a file of `k` blocks, between free runs of `a` and `b` blocks, moves if that raises the
//! measure:
//!
//! - into the shortest free run elsewhere of `h ≥ k` blocks, which changes it by 2·(a·b + k·(a + b + k − h));
//! - or to the start of the free run before it, if `k ≤ a`, which changes it by 2·a·b.
//!
//! A pass goes over all runs in the order of their places. `k ≤ a + b`, so a move copies no more blocks than the free blocks that it
//! joins, and a pass copies no block twice.
//!
//! Invariant: each move raises the measure, and another pass follows only one that raised it by a 32nd: so this ends.

use extant_ondisk::InodeNumber;

use super::Defrag;
use super::layout::BlockRun;
use crate::error::{Error, Result};

/// Passes at most.
const PASSES_MAX: u32 = 8;
/// Another pass follows one that raised the average by one part of so many.
const GAIN_PART_MIN: u64 = 32;

/// A run of a file that may move.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnedRun {
    pub(super) run: BlockRun,
    pub(super) inode: InodeNumber,
}

impl Defrag<'_, '_> {
    /// Joins free runs by moving runs of files.
    ///
    /// # Errors
    /// `Interrupted`; `Io`; `Corrupt`; the journal's. The moves before stay done.
    pub(super) fn join_free_runs(&mut self) -> Result<()> {
        let mut owned = std::mem::take(&mut self.owned);
        let joined = self.join_passes(&mut owned);
        self.owned = owned;
        joined
    }

    fn join_passes(&mut self, owned: &mut [OwnedRun]) -> Result<()> {
        for _ in 0..PASSES_MAX {
            owned.sort_by_key(|owned| owned.run.start);
            let before = self.space.average_around_block();
            for own in &mut *owned {
                if let Some(to) = self.better_place(own.run)
                    && let Some(place) = self.move_owned(*own, to)?
                {
                    own.run.start = place;
                }
            }
            let after = self.space.average_around_block();
            if after <= before + before / GAIN_PART_MIN {
                break;
            }
        }
        Ok(())
    }

    /// Where a run raises the measure.
    fn better_place(&self, run: BlockRun) -> Option<u64> {
        let before = self.space.before(run.start);
        let (a, b, k) = (before.map_or(0, |(_, len)| len), self.space.len_at(run.start + run.len), run.len);
        if k > a + b || k > u64::from(u32::MAX) {
            return None;
        }
        let [wide_a, wide_b, wide_k] = [a, b, k].map(i128::from);
        let is_beside = |start: u64| before.is_some_and(|(from, _)| from == start) || start == run.start + k;
        let elsewhere =
            self.space.fitting(k).find(|(_, start)| !is_beside(*start)).map(|(h, start)| {
                (wide_a * wide_b + wide_k * (wide_a + wide_b + wide_k - i128::from(h)), start)
            });
        let slide = before.filter(|(_, len)| *len >= k).map(|(from, _)| (wide_a * wide_b, from));
        let best = elsewhere.into_iter().chain(slide).max_by_key(|(gain, _)| *gain);
        best.filter(|(gain, _)| *gain > 0).map(|(_, to)| to)
    }

    /// Moves a run to `to`, where it then is; None if it stays.
    fn move_owned(&mut self, own: OwnedRun, to: u64) -> Result<Option<u64>> {
        let OwnedRun { run, inode } = own;
        let inode = match self.volume.inode(inode) {
            Ok(inode) => inode,
            // It was removed meanwhile.
            Err(Error::Stale) => return Ok(None),
            Err(error) => return Err(error),
        };
        if self.fixed_reason(&inode)?.is_some() || !self.file_runs(&inode)?.contains(&run) {
            return Ok(None);
        }
        if self.is_dry_run {
            self.space.take(to, run.len as u32)?;
            self.space.free(run.start, run.len);
            let mut runs = self.file_runs(&inode)?;
            runs.iter_mut().filter(|own| **own == run).for_each(|own| own.start = to);
            self.planned.insert(inode.number, runs);
        }
        let is_moved = match self.move_run(&inode, run.logical, run.len, to) {
            Err(Error::NoSpace | Error::Unsupported(_)) => false,
            moved => moved?,
        };
        self.done.joined_runs += u64::from(is_moved);
        Ok(is_moved.then_some(to))
    }
}
