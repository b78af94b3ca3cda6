//! Which blocks: the search from a goal on (kernel `ext4_mb_regular_allocator`).
//!
//! First the goal itself, then, from the group of the goal or of the stream, a search by the largest chunks of groups
//! ([`nearest_fit`]) or, with another [`Scan`], by one [`Criterion`] after the other ([`criteria`]) or by a policy of the
//! caller's ([`by_policy`]). A group
//! is chosen by its summary and looked at again under its lock. A group whose lock is taken is skipped; only the last
//! criterion waits, so that free blocks are never missed (posts A and B).
//!
//! Leaves out: counts and reservations ([`crate::counters`]), what transactions change ([`crate::group_changes`]), and which
//! blocks to preallocate ([`crate::prealloc`]).
//!
//! Locks: a group's (`GROUP`), one at a time; tried, but for the last criterion.

mod by_policy;
mod criteria;
mod goals;
mod nearest_fit;
pub(crate) mod scan;
mod statistics;

use std::ops::Deref;

use extant_ondisk::{Cluster, GroupFlags, GroupNumber, InodeNumber};
use extant_rt::yield_now;

use self::goals::Goals;
pub use self::statistics::MballocStatistics;
use self::statistics::{Counts, Statistics};
use crate::bitmap64::FreeExtent;
use crate::group::buddy::Buddy;
use crate::group::{Bitmap, ClusterRun};
use crate::group_changes::GroupChanges;
use crate::linux_model::GroupGuard;
use crate::locality::ChunkOwner;
use crate::request::{Purpose, Request};
use crate::tuning::{Scan, Tuning};
use crate::{Error, Reservation, Result};

/// What a group must have, the kernel's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Criterion {
    /// A chunk of the length's order, which is a power of two.
    Power2Aligned,
    /// Runs of the length on average.
    GoalLenFast,
    /// Runs of a trimmed length on average.
    BestAvailLen,
    /// As many blocks as the length.
    GoalLenSlow,
    /// Any block.
    AnyFree,
}

pub(crate) const CRITERIA: usize = 5;

/// From this many groups of a flex group on, its first one is left to directories and other metadata
/// (kernel `EXT4_FLEX_SIZE_DIR_ALLOC_SCHEME`).
const FLEX_SIZE_FOR_DATA: u32 = 4;

/// The groups with the goals of streams and the searches for blocks. See the module.
pub struct Mballoc {
    pub(crate) changes: GroupChanges,
    pub(crate) goals: Goals,
    statistics: Statistics,
}

impl Deref for Mballoc {
    type Target = GroupChanges;

    #[inline]
    fn deref(&self) -> &GroupChanges {
        &self.changes
    }
}

impl Mballoc {
    /// No search was made yet.
    pub(crate) fn new(changes: GroupChanges) -> Self {
        Self {
            goals: Goals::new(changes.geometry.group_count, changes.tuning.stream_goals),
            statistics: Statistics::new(),
            changes,
        }
    }

    /// Takes a run of at least one and up to as many blocks as requested out of the reservation.
    ///
    /// The blocks are nobody else's from now on, but free on the disk until [`GroupChanges::mark_used`]. What a single
    /// thread gets depends only on what it did before.
    ///
    /// # Errors
    /// `NoSpace` if the reservation is used up, or if all that is left lies in groups with bad bitmaps. Such
    /// groups are skipped.
    pub fn allocate(&self, reservation: &mut Reservation<'_>, request: &Request) -> Result<ClusterRun> {
        self.allocate_with_hint(reservation, request, None)
    }

    /// [`Mballoc::allocate`], a chunk if it is for a locality group.
    pub(crate) fn allocate_with_hint(
        &self,
        reservation: &mut Reservation<'_>,
        request: &Request,
        locality: Option<ChunkOwner<'_>>,
    ) -> Result<ClusterRun> {
        let len = u64::from(request.len).min(reservation.blocks()) as u32;
        if len == 0 {
            return Err(Error::NoSpace);
        }
        let taken = loop {
            if let Some(run) = self.search(request, len, locality) {
                break run;
            }
            // The reservation promises free blocks, so another thread moved them behind this walk.
            if self.index.is_empty() {
                return Err(Error::NoSpace);
            }
            yield_now();
        };
        reservation.consume(u64::from(taken.len));
        Ok(taken)
    }

    /// Takes a run of up to `len` blocks out of the free ones; a chunk if it is for a locality group.
    /// `None` if others were quicker everywhere.
    fn search(&self, request: &Request, len: u32, locality: Option<ChunkOwner<'_>>) -> Option<ClusterRun> {
        let mut search =
            Search { alloc: self, request, len, locality, counts: Counts::default(), longest: None };
        let found = search.run();
        if let (Some(locality), Some(run)) = (locality, found) {
            let (number, _) = self.group_of_goal(run.start);
            if let Some(group) = self.touched(number) {
                locality.set_found(number, group);
            }
        }
        match found {
            Some(run) => search.counts.blocks = run.len,
            None => search.counts.failed = 1,
        }
        self.statistics.add(&search.counts);
        found
    }

    /// The group where streams go on.
    fn stream_goal(&self, goal_group: GroupNumber, inode: InodeNumber) -> Option<GroupNumber> {
        self.older.stream_goal(inode).unwrap_or_else(|| self.goals.stream(goal_group, inode))
    }

    fn set_stream_goal(&self, goal_group: GroupNumber, inode: InodeNumber, group: GroupNumber) {
        if !self.older.set_stream_goal(inode, group) {
            self.goals.set_stream(goal_group, inode, group);
        }
    }

    /// What searches did since mounting.
    #[must_use]
    pub fn statistics(&self) -> MballocStatistics {
        self.statistics.read(self.other_locks.sum())
    }
}

/// One search, with what it has seen (kernel `struct ext4_allocation_context`).
pub(crate) struct Search<'a> {
    pub alloc: &'a Mballoc,
    request: &'a Request,
    len: u32,
    /// The locality group that searches for a chunk.
    locality: Option<ChunkOwner<'a>>,
    pub counts: Counts,
    /// The longest run that was too short, and its group.
    longest: Option<(GroupNumber, u32)>,
}

impl<'a> Search<'a> {
    fn run(&mut self) -> Option<ClusterRun> {
        let alloc = self.alloc;
        let (goal_group, bit) = alloc.group_of_goal(self.request.goal);
        if alloc.older.tries_goal(self.request)
            && let Some(run) = self.at_goal(goal_group, bit)
        {
            return Some(run);
        }
        let goal = self.start(goal_group);
        alloc.older.search_begins(goal, &alloc.geometry);
        let scan = alloc.tuning.scan;
        let found = match scan {
            Scan::NearestFit if self.fills_fragmented(goal_group) => {
                self.most_fragmented(goal).or_else(|| self.nearest_fit(goal))
            }
            Scan::NearestFit => self.nearest_fit(goal),
            Scan::Own(policy) => self.by_policy(policy, goal),
            Scan::Linear | Scan::Ordered | Scan::Nearest => self.scan_by_criteria(goal),
        };
        alloc.older.search_ends(goal, &alloc.geometry);
        let (run, group) = found?;
        if self.request.purpose.stream().is_some() && self.counts.skipped + self.counts.waited > 0 {
            alloc.goals.split_streams(goal_group);
        }
        // The kernel's criteria set it with the group's lock held.
        if matches!(scan, Scan::NearestFit | Scan::Own(_)) {
            self.set_stream_goal(group);
        }
        Some(run)
    }

    /// Later searches of the stream begin in a group. The kernel's forms say so with the group's lock held
    /// (kernel `ext4_mb_use_best_found`).
    fn set_stream_goal(&self, group: GroupNumber) {
        if let Some(inode) = self.request.purpose.stream() {
            let (goal_group, _) = self.alloc.group_of_goal(self.request.goal);
            self.alloc.set_stream_goal(goal_group, inode, group);
        }
    }

    /// Where the search begins if there is nothing at the goal itself: of a large file near its last block, or where those of
    /// its slot went on last if it has none.
    fn start(&self, goal_group: GroupNumber) -> GroupNumber {
        let known = match self.request.purpose {
            Purpose::NewStream(inode) => self.alloc.stream_goal(goal_group, inode),
            Purpose::Stream(inode) => self.alloc.older.stream_goal(inode).flatten(),
            Purpose::Metadata | Purpose::Data => None,
        };
        known.unwrap_or(goal_group)
    }

    /// What there is at the goal itself, if it is the whole length or enough for a large file to go on in one piece; else the
    /// whole length in its group, where the search would begin there.
    fn at_goal(&mut self, number: GroupNumber, bit: u32) -> Option<ClusterRun> {
        let Tuning { scan, stream_req, .. } = self.alloc.tuning;
        self.alloc.load_descriptor(number);
        let summary = self.alloc.index.get(number);
        let nearest_fit = scan == Scan::NearestFit;
        let goes_on = nearest_fit && matches!(self.request.purpose, Purpose::Stream(_));
        let enough = if goes_on { self.len.min(stream_req) } else { self.len };
        if summary.free < enough || nearest_fit && summary.is_unread() && self.is_for_metadata(number) {
            return None;
        }
        let locked = self.lock(number, false)?;
        let gap = locked.buddy()?.run_at(bit, self.len);
        if gap.len >= enough {
            self.counts.at_goal = 1;
            return locked.use_found(gap);
        }
        let is_whole = nearest_fit
            && self.start(number) == number
            && !self.fills_fragmented(number)
            && !self.belongs_to_other_locality(number);
        if is_whole { self.best_chunk(locked) } else { None }
    }

    /// Whether this is a small extension of a large file whose next block, in `goal_group`, is taken: it is placed where free
    /// space is fragmented most, so that long free runs remain for large requests. Once streams of the band have met each
    /// stays in its own group: they would meet again in the most fragmented one.
    fn fills_fragmented(&self, goal_group: GroupNumber) -> bool {
        let Tuning { scan, stream_req, .. } = self.alloc.tuning;
        matches!(self.request.purpose, Purpose::Stream(_))
            && scan == Scan::NearestFit
            && self.len < stream_req
            && self.alloc.index.get(goal_group).free > 0
            && self.alloc.goals.have_not_met(goal_group)
    }

    /// Whether a group is reserved for directories and other metadata, as long as others have what is asked for.
    fn is_for_metadata(&self, number: GroupNumber) -> bool {
        let flex = self.alloc.geometry.groups_per_flex;
        self.request.purpose != Purpose::Metadata
            && flex >= FLEX_SIZE_FOR_DATA
            && number.0.is_multiple_of(flex)
    }

    /// Whether a chunk is searched for, and the last one of another locality group lies in this group, which is not its own:
    /// filling both would take the group's lock for each block.
    fn belongs_to_other_locality(&self, number: GroupNumber) -> bool {
        self.locality.is_some_and(|locality| {
            locality.inode_group() != number
                && self
                    .alloc
                    .touched(number)
                    .is_some_and(|group| locality.is_chunk_of_other_in(number, group))
        })
    }

    /// Takes a group's lock and has its bitmaps in memory. `None` if they are bad, or if another holds the lock and this
    /// search does not wait.
    fn lock(&mut self, number: GroupNumber, waits: bool) -> Option<LockedGroup<'a>> {
        let alloc = self.alloc;
        let Ok(group) = alloc.group(number) else {
            alloc.mark_unusable(number);
            return None;
        };
        let mut state = match alloc.locks.try_lock(number, group) {
            Some(state) => state,
            None if waits || alloc.older.waits_for_busy() => {
                self.counts.waited += 1;
                alloc.locks.lock(number, group)
            }
            None => {
                self.counts.skipped += 1;
                return None;
            }
        };
        self.counts.locks += 1;
        while matches!(state.blocks, Bitmap::Unread) {
            let is_unused = state.record.descriptor.flags().contains(GroupFlags::BLOCK_UNINIT);
            self.counts.bitmaps_read += u32::from(!is_unused);
            state = alloc.read_blocks(number, group, state).ok()?;
        }
        state.is_referenced = true;
        matches!(state.blocks, Bitmap::Loaded(_)).then_some(LockedGroup { alloc, number, state })
    }
}

/// A group with its lock held and its block bitmaps in memory.
pub(crate) struct LockedGroup<'a> {
    alloc: &'a Mballoc,
    number: GroupNumber,
    state: GroupGuard<'a>,
}

impl LockedGroup<'_> {
    /// What may be given out.
    pub fn buddy(&self) -> Option<&Buddy> {
        match &self.state.blocks {
            Bitmap::Loaded(bits) => Some(&bits.buddy),
            _ => None,
        }
    }

    /// Takes free blocks out and lets the lock go.
    pub fn use_found(mut self, gap: FreeExtent) -> Option<ClusterRun> {
        let Bitmap::Loaded(bits) = &mut self.state.blocks else { return None };
        self.alloc.change_free(self.number, bits, |buddy| buddy.mark_used(gap));
        let start = self.alloc.geometry.group_first_cluster(self.number).0 + u64::from(gap.start);
        Some(ClusterRun { start: Cluster(start), len: gap.len })
    }
}
