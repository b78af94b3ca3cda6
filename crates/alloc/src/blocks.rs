//! Taking, marking and freeing blocks.
//!
//! Leaves out: preallocation, orders, stream goals; the search is contiguous first from the goal.

use extant_ondisk::{FsBlock, GroupNumber, TransactionId, bitmap};
use extant_rt::yield_now;

use crate::group::Run;
use crate::words::Gap;
use crate::{Allocator, Error, Reservation, Result};

/// A run of this many blocks is long enough for whoever asks for more (kernel: the largest normalised request,
/// 8 MiB of 4 KiB blocks).
const LONG_RUN: u32 = 2048;
/// Groups whose bitmaps are searched in vain for a long enough run before the longest known one is taken.
const SEARCHED_MAX: u32 = 32;

impl Allocator {
    /// Takes a run of up to `len` blocks out of the reservation: the first long enough one in the goal's group at
    /// or right of the goal, else elsewhere in this group, else in the groups to the right and then from 0; if no
    /// run is long enough, the longest known.
    ///
    /// The blocks are nobody else's from now on, but free on the disk until [`Allocator::mark_used`]. What a single
    /// thread gets depends only on what it did before.
    ///
    /// # Errors
    /// `NoSpace` if the reservation is used up, or if all that is left lies in groups with bad bitmaps. Such
    /// groups are skipped.
    pub fn take(&self, reservation: &mut Reservation<'_>, goal: FsBlock, len: u32) -> Result<Run> {
        let len = u64::from(len).min(reservation.blocks()) as u32;
        if len == 0 {
            return Err(Error::NoSpace);
        }
        let goal = self.place(goal);
        let taken = loop {
            if let Some(run) = self.take_long(goal, len).or_else(|| self.take_any(goal, len)) {
                break run;
            }
            // The reservation promises free blocks, so another thread moved them behind this walk.
            if self.with_blocks.next(GroupNumber(0)).is_none() {
                return Err(Error::NoSpace);
            }
            yield_now();
        };
        reservation.consume(u64::from(taken.len));
        Ok(taken)
    }

    /// Undoes a [`Allocator::take`], or a part of one, of blocks that were not marked.
    ///
    /// # Panics
    /// In debug builds, if a block was not taken or is marked.
    pub fn give_back(&self, run: Run) {
        for (number, gap) in self.pieces(run).into_iter().flatten() {
            let given = self.with_block_bits(number, |group, _, bits| {
                let taken = bits.is_free(gap) && bits.busy.is_set(gap.start, gap.len);
                if taken {
                    group.vacate(bits, gap);
                    self.with_blocks.insert(number);
                    self.counters.release(u64::from(gap.len));
                }
                Ok(taken)
            });
            debug_assert!(matches!(given, Ok(true)), "{run:?} given back that was not taken");
        }
    }

    /// Marks taken blocks as used on the disk, in the running transaction `tid`. Gives how many blocks the
    /// transaction did not have to write before.
    ///
    /// # Errors
    /// `Corrupt` if a block is in use already or was not taken; the groups before it are marked.
    pub fn mark_used(&self, tid: TransactionId, run: Run) -> Result<u32> {
        let mut written = 0;
        for (number, gap) in self.pieces(run).ok_or_else(outside)? {
            written += self.with_block_bits(number, |_, summary, bits| {
                if !bits.is_free(gap) {
                    return Err(Error::Corrupt { group: number, what: "block allocated twice" });
                }
                if !bits.busy.is_set(gap.start, gap.len) {
                    return Err(Error::Corrupt { group: number, what: "block allocated that was not taken" });
                }
                bitmap::set_range(bits.disk_mut(), gap.range());
                let free = summary.descriptor.free_blocks_count();
                summary.descriptor.set_free_blocks_count(free.saturating_sub(gap.len));
                let written = summary.change_blocks(tid);
                self.changed.insert(number);
                self.counters.disk_free.subtract(number, u64::from(gap.len));
                Ok(written)
            })?;
        }
        Ok(written)
    }

    /// Marks used blocks as free on the disk, in the running transaction `tid`. They are given out again only
    /// after [`Allocator::committed`]. Gives how many blocks the transaction did not have to write before.
    ///
    /// # Errors
    /// `Corrupt` if a block is free already or holds a superblock, descriptor, bitmap or inode table; the groups
    /// before it are freed.
    pub fn mark_free(&self, tid: TransactionId, run: Run) -> Result<u32> {
        let mut written = 0;
        for (number, gap) in self.pieces(run).ok_or_else(outside)? {
            let start = FsBlock(self.geometry.group_first_block(number).0 + u64::from(gap.start));
            if self.zones.overlap(start, gap.len) {
                return Err(Error::Corrupt { group: number, what: "file system metadata freed" });
            }
            written += self.with_block_bits(number, |_, summary, bits| {
                if !bits.is_used(gap) {
                    return Err(Error::Corrupt { group: number, what: "free block freed" });
                }
                bitmap::clear_range(bits.disk_mut(), gap.range());
                summary.descriptor.set_free_blocks_count(summary.descriptor.free_blocks_count() + gap.len);
                summary.freed.push(gap);
                let written = summary.change_blocks(tid);
                self.changed.insert(number);
                self.counters.disk_free.add(number, u64::from(gap.len));
                self.counters.pending.add(number, u64::from(gap.len));
                Ok(written)
            })?;
        }
        Ok(written)
    }

    /// The group of a goal and its bit there; the start of the disk if it lies outside.
    fn place(&self, goal: FsBlock) -> (GroupNumber, u32) {
        self.geometry.group_of(goal).unwrap_or((GroupNumber(0), 0))
    }

    /// A run that is long enough, if one is found in reasonable time.
    fn take_long(&self, goal: (GroupNumber, u32), len: u32) -> Option<Run> {
        let want = len.min(LONG_RUN);
        let mut searched = 0;
        for number in self.with_blocks.walk(goal.0) {
            if self.groups.get(number.0 as usize)?.hint().longest < want {
                continue;
            }
            if let Some(run) = self.take_in(number, goal, want, len, true) {
                return Some(run);
            }
            searched += 1;
            if searched == SEARCHED_MAX {
                break;
            }
        }
        None
    }

    /// The longest run of the group that seems to have the longest; of any group, if that is gone.
    fn take_any(&self, goal: (GroupNumber, u32), len: u32) -> Option<Run> {
        let want = len.min(LONG_RUN);
        let mut best = (0, None);
        for number in self.with_blocks.walk(goal.0) {
            let longest = self.groups.get(number.0 as usize)?.hint().longest;
            if longest > best.0 {
                best = (longest, Some(number));
            }
        }
        best.1.and_then(|number| self.take_in(number, goal, want, len, false)).or_else(|| {
            self.with_blocks.walk(goal.0).find_map(|number| self.take_in(number, goal, want, len, false))
        })
    }

    /// Takes a gap of `want` to `len` bits in a group, or its longest unless `only_long`.
    fn take_in(
        &self,
        number: GroupNumber,
        goal: (GroupNumber, u32),
        want: u32,
        len: u32,
        only_long: bool,
    ) -> Option<Run> {
        let from = if number == goal.0 { goal.1 } else { 0 };
        // A group whose bitmap is bad is marked so and skipped from now on.
        self.with_block_bits(number, |group, _, bits| {
            let gap = group.find(bits, from, want);
            if gap.len == 0 || (only_long && gap.len < want) {
                return Ok(None);
            }
            let gap = Gap { len: gap.len.min(len), ..gap };
            group.occupy(bits, gap);
            if group.hint().free == 0 {
                self.with_blocks.remove(number);
            }
            let start = FsBlock(self.geometry.group_first_block(number).0 + u64::from(gap.start));
            Ok(Some(Run { start, len: gap.len }))
        })
        .ok()
        .flatten()
    }
}

fn outside() -> Error {
    Error::Corrupt { group: GroupNumber(0), what: "blocks outside the disk" }
}
