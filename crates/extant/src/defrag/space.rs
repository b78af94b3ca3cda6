//! The free blocks of the file system, by place and by length, with those that moves of this run free or take.
//!
//! Blocks that a move freed are in it at once, for they count when free runs are compared; taking some of them waits for the commit
//! after which they are free on the disk. Where other threads allocate meanwhile, blocks may be gone when they are to be taken: then the
//! bitmaps are read again, and the caller plans anew.
//!
//! Locks: those of the allocator, briefly; a commit takes the journal's.

use std::collections::{BTreeMap, BTreeSet};

use extant_alloc::{Error as AllocError, MayUse};
use extant_ondisk::{FsBlock, GroupNumber, Run};

use crate::error::{Error, Result};
use crate::mapping::MapKind;
use crate::mount::Volume;

/// Free blocks that are looked at for one that needs no commit.
const LOOKS_MAX: usize = 64;

/// The free runs of a file system.
pub(super) struct Space<'v> {
    volume: &'v Volume,
    /// Nothing is taken on the disk.
    is_dry_run: bool,
    /// The length of each free run by its first block.
    by_start: BTreeMap<u64, u64>,
    /// Free runs by length and first block.
    by_len: BTreeSet<(u64, u64)>,
    /// How many blocks they have.
    blocks: u64,
    /// Of the free blocks those that become free by the commit of the running transaction.
    uncommitted: BTreeMap<u64, u64>,
    /// Blocks taken that no transaction has marked, each run in one group.
    taken: Vec<Run>,
}

impl<'v> Space<'v> {
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(super) fn new(volume: &'v Volume, is_dry_run: bool) -> Result<Self> {
        let mut space = Self {
            volume,
            is_dry_run,
            by_start: BTreeMap::new(),
            by_len: BTreeSet::new(),
            blocks: 0,
            uncommitted: BTreeMap::new(),
            taken: Vec::new(),
        };
        space.load()?;
        Ok(space)
    }

    /// Reads what is free.
    fn load(&mut self) -> Result<()> {
        self.by_start.clear();
        self.by_len.clear();
        self.blocks = 0;
        for group in (0..self.volume.geometry.group_count).map(GroupNumber) {
            for run in self.volume.free_runs(group)? {
                self.put(run.start.0, run.len.into());
            }
        }
        Ok(())
    }

    /// Adds a free run, joined with those beside it.
    fn put(&mut self, start: u64, len: u64) {
        self.blocks += len;
        let (mut from, mut end) = (start, start + len);
        if let Some((before, len)) = self.before(start) {
            self.by_len.remove(&(len, before));
            from = before;
        }
        if let Some(len) = self.by_start.remove(&end) {
            self.by_len.remove(&(len, end));
            end += len;
        }
        self.by_start.insert(from, end - from);
        self.by_len.insert((end - from, from));
    }

    /// Takes blocks out of the free run that has them; false if none has all of them.
    fn cut(&mut self, start: u64, len: u64) -> bool {
        let Some((from, whole)) = self.by_start.range(..=start).next_back().map(|(s, l)| (*s, *l)) else {
            return false;
        };
        let (end, whole_end) = (start + len, from + whole);
        if end > whole_end {
            return false;
        }
        self.blocks -= len;
        self.by_start.remove(&from);
        self.by_len.remove(&(whole, from));
        for (from, end) in [(from, start), (end, whole_end)] {
            if from < end {
                self.by_start.insert(from, end - from);
                self.by_len.insert((end - from, from));
            }
        }
        true
    }

    /// The free run that ends where `start` begins.
    pub(super) fn before(&self, start: u64) -> Option<(u64, u64)> {
        let (from, len) = self.by_start.range(..start).next_back()?;
        (from + len == start).then_some((*from, *len))
    }

    /// The length of the free run that begins at `start`, if one does.
    pub(super) fn len_at(&self, start: u64) -> u64 {
        self.by_start.get(&start).copied().unwrap_or(0)
    }

    /// The shortest free runs of at least `len` blocks: their lengths and first blocks.
    pub(super) fn fitting(&self, len: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.by_len.range((len, 0)..).copied()
    }

    /// How many blocks are free.
    pub(super) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The length of the longest free run.
    pub(super) fn longest(&self) -> u64 {
        self.by_len.last().map_or(0, |(len, _)| *len)
    }

    /// The length of the free run that a free block lies in, on average over the free blocks: what compaction increases.
    pub(super) fn average_around_block(&self) -> u64 {
        let (blocks, squares) = self.by_len.iter().fold((0_u128, 0_u128), |(blocks, squares), (len, _)| {
            (blocks + u128::from(*len), squares + u128::from(*len).pow(2))
        });
        squares.checked_div(blocks).unwrap_or(0) as u64
    }

    /// Takes these blocks, which a transaction is to mark; false if they are not free any more.
    ///
    /// # Errors
    /// `NoSpace`; `Io`; `Corrupt`; the journal's.
    pub(super) fn take(&mut self, start: u64, len: u32) -> Result<bool> {
        let is_taken = self.is_dry_run || self.allocate(start, len)?;
        Ok(is_taken && (self.cut(start, len.into()) || !self.is_dry_run))
    }

    /// One block for a node of a map.
    ///
    /// It does not move for free space. A map of block numbers has many: they go into the first free blocks of the disk, side by side, where
    /// they part no free run. A tree of extents has few, which fill the shortest free runs.
    ///
    /// # Errors
    /// `NoSpace`; `Io`; `Corrupt`; the journal's.
    pub(super) fn take_one(&mut self, kind: MapKind) -> Result<u64> {
        // A block that another thread takes is gone from the list then.
        for _ in 0..LOOKS_MAX {
            let found = match kind {
                MapKind::Indirect => self.first_committed(self.by_start.keys().copied()),
                MapKind::Extents | MapKind::None => {
                    self.first_committed(self.fitting(1).map(|(_, start)| start))
                }
            };
            let start = found.ok_or(Error::NoSpace)?;
            if self.take(start, 1)? {
                return Ok(start);
            }
        }
        Err(Error::NoSpace)
    }

    /// The first of these blocks that needs no commit; the first of all if none is found soon.
    fn first_committed(&self, starts: impl Iterator<Item = u64>) -> Option<u64> {
        let mut starts = starts.take(LOOKS_MAX).peekable();
        let first = starts.peek().copied();
        starts.find(|start| !self.is_uncommitted(*start, 1)).or(first)
    }

    fn is_uncommitted(&self, start: u64, len: u64) -> bool {
        self.uncommitted.range(..start + len).next_back().is_some_and(|(from, len)| from + len > start)
    }

    /// Has the allocator give these blocks; false if it cannot.
    fn allocate(&mut self, start: u64, len: u32) -> Result<bool> {
        if self.is_uncommitted(start, len.into()) {
            self.commit()?;
        }
        let volume = self.volume;
        let mut reservation = volume.reserve(len, len, MayUse::Reserved)?;
        let before = self.taken.len();
        let per_group = u64::from(volume.geometry.blocks_per_group);
        let (mut at, end) = (start, start + u64::from(len));
        while at < end {
            let (_, bit) = volume.geometry.group_of(FsBlock(at)).ok_or(Error::NoSpace)?;
            let len = (end - at).min(per_group - u64::from(bit));
            let run = Run { start: FsBlock(at), len: len as u32 };
            match volume.allocator.allocate_exactly(&mut reservation, volume.to_clusters(run)) {
                Ok(()) => self.taken.push(run),
                Err(AllocError::Corrupt { .. }) => {
                    drop(reservation);
                    let taken = self.taken.drain(before..);
                    taken.for_each(|run| volume.allocator.free_unmarked(volume.to_clusters(run)));
                    self.reload()?;
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
            at += len;
        }
        Ok(true)
    }

    /// Makes durable what was done, after which all free blocks can be taken.
    ///
    /// # Errors
    /// The journal's.
    pub(super) fn commit(&mut self) -> Result<()> {
        self.uncommitted.clear();
        Ok(self.volume.writable()?.commit_running()?)
    }

    /// Reads again what is free.
    fn reload(&mut self) -> Result<()> {
        self.commit()?;
        self.load()
    }

    /// The runs taken since the last call; a transaction is to mark them.
    pub(super) fn taken(&self) -> &[Run] {
        &self.taken
    }

    /// A transaction has marked what was taken.
    pub(super) fn marked(&mut self) {
        self.taken.clear();
    }

    /// Gives back what no transaction marked.
    pub(super) fn give_back(&mut self) {
        for run in std::mem::take(&mut self.taken) {
            self.volume.allocator.free_unmarked(self.volume.to_clusters(run));
            self.put(run.start.0, run.len.into());
        }
    }

    /// The running transaction frees these blocks.
    pub(super) fn free(&mut self, start: u64, len: u64) {
        self.put(start, len);
        if !self.is_dry_run {
            self.uncommitted.insert(start, len);
        }
    }
}
