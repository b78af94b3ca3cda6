//! Free blocks before the new end, chosen by best fit: a run that is moved stays whole where a free run is long enough, and long free
//! runs remain for long ones.

use std::collections::BTreeSet;
use std::ops::Range;

use extant_alloc::MayUse;
use extant_ondisk::{FsBlock, GroupNumber, Run};

use crate::error::{Error, Result};
use crate::mount::Volume;

/// The free blocks before an end.
pub(super) struct Space<'v> {
    volume: &'v Volume,
    end: u64,
    /// Free runs by length and first block.
    free: BTreeSet<(u64, u64)>,
    /// Blocks taken that no transaction has marked.
    taken: Vec<Run>,
}

impl<'v> Space<'v> {
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(super) fn new(volume: &'v Volume, end: u64) -> Result<Self> {
        let mut space = Self { volume, end, free: BTreeSet::new(), taken: Vec::new() };
        space.load()?;
        Ok(space)
    }

    /// Looks again at what is free.
    fn load(&mut self) -> Result<()> {
        self.free.clear();
        let geometry = &self.volume.geometry;
        let mut last = (0, 0);
        for group in (0..geometry.group_count).map(GroupNumber) {
            if geometry.group_first_block(group).0 >= self.end {
                break;
            }
            for run in self.volume.free_runs(group)? {
                let (start, end) = (run.start.0, self.end.min(run.start.0 + u64::from(run.len)));
                if last.1 == start {
                    last.1 = end;
                } else {
                    self.put(last);
                    last = (start, end);
                }
            }
        }
        self.put(last);
        Ok(())
    }

    fn put(&mut self, (start, end): (u64, u64)) {
        if end > start {
            self.free.insert((end - start, start));
        }
    }

    /// Takes so many blocks: one run if there is one of that length, else the longest ones.
    ///
    /// # Errors
    /// `NoSpace`; `Io`; `Corrupt`.
    pub(super) fn take(&mut self, len: u32) -> Result<Vec<Run>> {
        let mut runs = Vec::new();
        let mut left = u64::from(len);
        while left > 0 {
            let fitting = self.free.range((left, 0)..).next().or_else(|| self.free.last()).copied();
            let (free, start) = fitting.ok_or(Error::NoSpace)?;
            let taken = free.min(left);
            runs.push(self.take_of((free, start), Run { start: FsBlock(start), len: taken as u32 })?);
            left -= taken;
        }
        Ok(runs)
    }

    /// Takes so many blocks in one run of some blocks; gives the first.
    ///
    /// # Errors
    /// `NoSpace` if there is no such run; `Io`; `Corrupt`.
    pub(super) fn take_run(&mut self, len: u64, within: &Range<u64>) -> Result<u64> {
        let fitting = self.free.range((len, 0)..).find_map(|(free, start)| {
            let from = within.start.max(*start);
            (from + len <= within.end.min(start + free)).then_some(((*free, *start), from))
        });
        let (free, from) = fitting.ok_or(Error::NoSpace)?;
        self.take_of(free, Run { start: FsBlock(from), len: len as u32 })?;
        Ok(from)
    }

    /// Takes a part of a free run.
    fn take_of(&mut self, (free, start): (u64, u64), run: Run) -> Result<Run> {
        self.free.remove(&(free, start));
        self.put((start, run.start.0));
        self.put((run.start.0 + u64::from(run.len), start + free));
        let allocator = &self.volume.allocator;
        let mut reservation = allocator.reserve(run.len.into(), MayUse::Reserved)?;
        allocator.allocate_exactly(&mut reservation, self.volume.to_clusters(run))?;
        self.taken.push(run);
        Ok(run)
    }

    /// One block.
    ///
    /// # Errors
    /// As [`Space::take`].
    pub(super) fn take_one(&mut self) -> Result<u64> {
        Ok(self.take(1)?.first().map_or(0, |run| run.start.0))
    }

    /// The runs taken since the last call; a transaction is to mark them.
    pub(super) fn taken(&mut self) -> Vec<Run> {
        std::mem::take(&mut self.taken)
    }

    /// Gives back what no transaction marked, and has what transactions freed come back.
    ///
    /// # Errors
    /// The journal's; `Io`; `Corrupt`.
    pub(super) fn reload(&mut self) -> Result<()> {
        for run in self.taken() {
            self.volume.allocator.free_unmarked(self.volume.to_clusters(run));
        }
        self.volume.writable()?.commit_running()?;
        self.load()
    }
}
