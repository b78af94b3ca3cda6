//! Which blocks: the search by criteria, from a goal on (kernel `ext4_mb_regular_allocator`).
//!
//! First the goal itself, then, from the group of the goal or of the stream, one [`Criterion`] after the other. A group
//! is chosen by its summary and looked at again under its lock. A group whose lock is taken is skipped; only the last
//! criterion waits, so that free blocks are never missed (posts A and B).
//!
//! Leaves out: reservations and counts ([`crate::counters`]), what the disk knows ([`crate::blocks`]).

pub(crate) mod buddy;
mod expectation;
mod goals;
mod index;
mod scan;
mod statistics;
mod summary;

pub(crate) use expectation::Expectation;
pub(crate) use goals::Goals;
pub(crate) use index::OrderIndex;
pub use statistics::MballocStatistics;
pub(crate) use statistics::Statistics;
pub(crate) use summary::Summary;

use extant_ondisk::{FsBlock, GroupFlags, GroupNumber, InodeNumber};
use extant_rt::MutexGuard;

use self::buddy::Buddy;
use self::index::Key;
use self::scan::{Walk, Wanted};
use self::statistics::Counts;
use crate::group::{Bitmap, BlockBits, Group, Run, State};
use crate::tuning::{Scan, Tuning};
use crate::words::Gap;
use crate::{Allocator, Result};

/// What is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where it would be best; the start of the disk if it lies outside.
    pub goal: FsBlock,
    /// Blocks wanted in one run.
    pub len: u32,
    /// Blocks that are enough, when longer runs would have to be searched for.
    pub least: u32,
    /// What for.
    pub purpose: Purpose,
}

/// What blocks are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The file system's own: directories, trees, attributes.
    Metadata,
    /// The content of a small file.
    Data,
    /// The content of a large file: it goes on where streams of its band and number went on last.
    Stream(InodeNumber),
}

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

/// One search, with what it has seen.
struct Search<'a> {
    alloc: &'a Allocator,
    request: &'a Request,
    len: u32,
    counts: Counts,
    /// The longest run that was too short, and its group.
    longest: Option<(GroupNumber, u32)>,
}

impl Allocator {
    /// Takes a run of up to `len` blocks out of the free ones. `None` if others were quicker everywhere.
    pub(crate) fn search(&self, request: &Request, len: u32) -> Option<Run> {
        let mut search = Search { alloc: self, request, len, counts: Counts::default(), longest: None };
        let found = search.run();
        match found {
            Some(run) => search.counts.blocks = run.len,
            None => search.counts.failed = 1,
        }
        self.statistics.add(&search.counts);
        found
    }

    /// What searches did since mounting.
    #[must_use]
    pub fn statistics(&self) -> MballocStatistics {
        self.statistics.read()
    }

    /// The runs of blocks of a group that can be given out, in order.
    ///
    /// # Errors
    /// `Store` and `Corrupt` if its bitmap cannot be had.
    pub fn free_runs(&self, group: GroupNumber) -> Result<Vec<Run>> {
        let first = self.geometry.group_first_block(group).0;
        let run = |gap: Gap| Run { start: FsBlock(first + u64::from(gap.start)), len: gap.len };
        self.with_block_bits(group, |_, _, bits| Ok(bits.buddy.runs().map(run).collect()))
    }

    /// Changes what may be given out of a group, with its lock held.
    pub(crate) fn change_free(
        &self,
        number: GroupNumber,
        group: &Group,
        bits: &mut BlockBits,
        change: impl FnOnce(&mut buddy::Buddy),
    ) {
        let before = group.summary();
        change(&mut bits.buddy);
        self.set_summary(number, group, before, Summary::of(&bits.buddy));
    }

    /// Changes a group's summary and where it is listed, with its lock held.
    pub(crate) fn set_summary(&self, number: GroupNumber, group: &Group, before: Summary, now: Summary) {
        group.set_summary(now);
        self.index.change(number, before, now);
        match (before.free > 0, now.free > 0) {
            (false, true) => self.with_blocks.insert(number),
            (true, false) => self.with_blocks.remove(number),
            _ => {}
        }
    }
}

impl<'a> Search<'a> {
    fn run(&mut self) -> Option<Run> {
        let alloc = self.alloc;
        let (home, bit) = alloc.place(self.request.goal);
        if let Some(run) = self.at_goal(home, bit) {
            self.counts.at_goal = 1;
            return Some(run);
        }
        let stream = match self.request.purpose {
            Purpose::Stream(inode) => Some(inode),
            _ => None,
        };
        let goal = stream.and_then(|inode| alloc.goals.get(home, inode)).unwrap_or(home);
        let (run, group) = self.by_criteria(goal)?;
        if let Some(inode) = stream {
            alloc.goals.set(home, inode, group);
        }
        Some(run)
    }

    /// The whole length at the goal itself.
    fn at_goal(&mut self, number: GroupNumber, bit: u32) -> Option<Run> {
        let group = self.alloc.groups.get(number.0 as usize)?;
        if group.summary().free < self.len {
            return None;
        }
        let locked = self.lock(number, false)?;
        let gap = locked.buddy()?.run_at(bit, self.len);
        if gap.len == self.len { locked.take(gap) } else { None }
    }

    fn by_criteria(&mut self, goal: GroupNumber) -> Option<(Run, GroupNumber)> {
        let tuning = self.alloc.tuning;
        let order = self.len.ilog2() as u8;
        if self.len.is_power_of_two() && order >= tuning.order2_req {
            let found = self.walk(Criterion::Power2Aligned, Some((Key::Largest, order)), goal, self.len);
            if found.is_some() {
                return found;
            }
        }
        let average = |len| Some((Key::Average, Summary::average_order(len)));
        let found = self.walk(Criterion::GoalLenFast, average(self.len), goal, self.len);
        if found.is_some() {
            return found;
        }
        if self.request.purpose != Purpose::Metadata {
            let (len, least) = (self.len, self.request.least);
            let trimmed = (0..=tuning.best_avail_max_trim_order.min(order)).map(|trim| 1 << (order - trim));
            for want in trimmed.filter(|want| (least..len).contains(want)) {
                let found = self.walk(Criterion::BestAvailLen, average(want), goal, want);
                if found.is_some() {
                    return found;
                }
            }
        }
        self.walk(Criterion::GoalLenSlow, None, goal, self.len)
            .or_else(|| self.longest_seen())
            .or_else(|| self.walk(Criterion::AnyFree, None, goal, 1))
    }

    /// The longest run that was too short, if it is still there.
    fn longest_seen(&mut self) -> Option<(Run, GroupNumber)> {
        let (group, len) = self.longest.take().filter(|(_, len)| *len >= self.request.least)?;
        Some((self.visit(Criterion::GoalLenSlow, group, len)?, group))
    }

    /// Visits groups until one gives a run: those listed under a key from an order on, or all that have blocks.
    fn walk(
        &mut self,
        criterion: Criterion,
        listed: Option<(Key, u8)>,
        goal: GroupNumber,
        want: u32,
    ) -> Option<(Run, GroupNumber)> {
        let alloc = self.alloc;
        let (groups, Tuning { scan, max_linear_groups, .. }) = (alloc.geometry.group_count, alloc.tuning);
        let mut listed = listed.map(|(key, order)| {
            let wanted = Wanted { key, order, len: want };
            // The goal's summary is at hand, and often enough: the index need not be asked.
            let is_near = scan == Scan::Auto && self.is_good_at(criterion, goal, want);
            let linear = max_linear_groups.max(u32::from(is_near));
            Walk::new(&alloc.index, &alloc.expectation, (scan, linear), wanted, goal, groups)
        });
        // Nothing longer is expected of groups not read than the first that is looked into has.
        let is_hopeless = scan == Scan::Auto && !alloc.expectation.meets(Key::Average, want);
        let mut all = alloc.with_blocks.walk(goal);
        loop {
            let group = match &mut listed {
                Some(listed) => listed.next()?,
                None => all.next()?,
            };
            self.counts.considered(criterion);
            if let Some(run) = self.visit(criterion, group, want) {
                self.counts.hit(criterion);
                return Some((run, group));
            }
            let is_long = self.counts.runs_scanned > alloc.tuning.max_to_scan;
            if criterion == Criterion::GoalLenSlow && (is_long || is_hopeless) && self.longest.is_some() {
                return None;
            }
        }
    }

    fn visit(&mut self, criterion: Criterion, number: GroupNumber, want: u32) -> Option<Run> {
        let group = self.alloc.groups.get(number.0 as usize)?;
        if !self.is_good(criterion, number, group.summary(), want) {
            return None;
        }
        let locked = self.lock(number, criterion == Criterion::AnyFree)?;
        if !self.is_good(criterion, number, group.summary(), want) {
            self.counts.lost += 1;
            return None;
        }
        let buddy = locked.buddy()?;
        let gap = match criterion {
            Criterion::Power2Aligned => {
                buddy.find_chunk(want.ilog2() as u8).map(|start| Gap { start, len: want })?
            }
            Criterion::AnyFree => self.best_fit(buddy, self.len)?,
            _ => self.best_fit(buddy, want)?,
        };
        if gap.len >= want {
            return locked.take(gap);
        }
        if self.longest.is_none_or(|(_, len)| gap.len > len) {
            self.longest = Some((number, gap.len));
        }
        None
    }

    fn is_good_at(&self, criterion: Criterion, number: GroupNumber, want: u32) -> bool {
        let group = self.alloc.groups.get(number.0 as usize);
        group.is_some_and(|group| self.is_good(criterion, number, group.summary(), want))
    }

    /// Whether a group may be looked into for `want` blocks (kernel `ext4_mb_good_group`).
    fn is_good(&self, criterion: Criterion, number: GroupNumber, summary: Summary, want: u32) -> bool {
        if summary.free == 0 {
            return false;
        }
        let key = match criterion {
            Criterion::Power2Aligned => Some(Key::Largest),
            Criterion::GoalLenFast | Criterion::BestAvailLen => Some(Key::Average),
            Criterion::GoalLenSlow | Criterion::AnyFree => None,
        };
        let is_doubted = self.alloc.tuning.scan == Scan::Auto && summary.is_unread();
        if is_doubted && key.is_some_and(|key| !self.alloc.expectation.meets(key, want)) {
            return false;
        }
        match criterion {
            Criterion::Power2Aligned => {
                let flex = self.alloc.geometry.groups_per_flex;
                let is_kept = self.request.purpose != Purpose::Metadata
                    && flex >= FLEX_SIZE_FOR_DATA
                    && number.0.is_multiple_of(flex);
                !is_kept && summary.largest.is_some_and(|largest| u32::from(largest) >= want.ilog2())
            }
            Criterion::GoalLenFast | Criterion::BestAvailLen => {
                summary.free / summary.fragments.max(1) >= want
            }
            Criterion::GoalLenSlow => summary.free >= want,
            Criterion::AnyFree => true,
        }
    }

    /// The run that fits `want` most closely, cut to it, of those that a search of reasonable length sees; else the
    /// longest (kernel `ext4_mb_complex_scan_group`, `ext4_mb_measure_extent`).
    fn best_fit(&mut self, buddy: &Buddy, want: u32) -> Option<Gap> {
        let (mut best, mut sufficient) = (None::<Gap>, 0);
        for run in buddy.runs() {
            self.counts.runs_scanned += 1;
            let is_better = |best: Gap| match (run.len >= want, best.len >= want) {
                (true, true) => run.len < best.len,
                (false, false) => run.len > best.len,
                (is_sufficient, _) => is_sufficient,
            };
            if best.is_none_or(is_better) {
                best = Some(run);
            }
            sufficient += u32::from(run.len >= want);
            let enough = run.len == want || sufficient > self.alloc.tuning.min_to_scan;
            if enough || self.counts.runs_scanned > self.alloc.tuning.max_to_scan {
                break;
            }
        }
        best.map(|best| Gap { len: best.len.min(want), ..best })
    }

    /// Takes a group's lock and has its bitmaps in memory. `None` if they are bad, or if another holds the lock and this
    /// search does not wait.
    fn lock(&mut self, number: GroupNumber, waits: bool) -> Option<LockedGroup<'a>> {
        let alloc = self.alloc;
        let group = alloc.groups.get(number.0 as usize)?;
        let mut state = match group.state.try_lock() {
            Some(state) => state,
            None if waits || !alloc.tuning.skip_busy => {
                self.counts.waited += 1;
                group.state.lock()
            }
            None => {
                self.counts.skipped += 1;
                return None;
            }
        };
        self.counts.locks += 1;
        if matches!(state.blocks, Bitmap::Unread) {
            let descriptor = state.record.descriptor.clone();
            drop(state);
            self.counts.bitmaps_read += u32::from(!descriptor.flags().contains(GroupFlags::BLOCK_UNINIT));
            let loaded = alloc.load_block_bits(number, &descriptor);
            state = group.state.lock();
            alloc.install_block_bits(number, group, &mut state, loaded).ok()?;
        }
        matches!(state.blocks, Bitmap::Loaded(_)).then_some(LockedGroup { alloc, number, group, state })
    }
}

/// A group with its lock held and its block bitmaps in memory.
pub(crate) struct LockedGroup<'a> {
    alloc: &'a Allocator,
    number: GroupNumber,
    group: &'a Group,
    state: MutexGuard<'a, State>,
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
    pub fn take(mut self, gap: Gap) -> Option<Run> {
        let Bitmap::Loaded(bits) = &mut self.state.blocks else { return None };
        self.alloc.change_free(self.number, self.group, bits, |buddy| buddy.take(gap));
        let start = self.alloc.geometry.group_first_block(self.number).0 + u64::from(gap.start);
        Some(Run { start: FsBlock(start), len: gap.len })
    }
}
