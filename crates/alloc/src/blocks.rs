//! Allocating, marking and freeing blocks.
//!
//! Leaves out: where to allocate them ([`crate::mballoc`]).

use extant_ondisk::{FsBlock, GroupNumber, TransactionId, bitmap};
use extant_rt::yield_now;

use crate::group::Run;
use crate::mballoc::Request;
use crate::{Allocator, Error, Reservation, Result};

impl Allocator {
    /// Takes a run of at least one and up to as many blocks as requested out of the reservation.
    ///
    /// The blocks are nobody else's from now on, but free on the disk until [`Allocator::mark_used`]. What a single
    /// thread gets depends only on what it did before.
    ///
    /// # Errors
    /// `NoSpace` if the reservation is used up, or if all that is left lies in groups with bad bitmaps. Such
    /// groups are skipped.
    pub fn allocate(&self, reservation: &mut Reservation<'_>, request: &Request) -> Result<Run> {
        self.allocate_with_hint(reservation, request, None)
    }

    /// [`Allocator::allocate`], a chunk if it is for the locality group of a group.
    pub(crate) fn allocate_with_hint(
        &self,
        reservation: &mut Reservation<'_>,
        request: &Request,
        locality: Option<GroupNumber>,
    ) -> Result<Run> {
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

    /// Undoes a [`Allocator::allocate`], or a part of one, of blocks that were not marked.
    ///
    /// # Panics
    /// In debug builds, if a block was not taken or is marked.
    pub fn free_unmarked(&self, run: Run) {
        for (number, gap) in self.pieces(run).into_iter().flatten() {
            let given = self.with_block_bits(number, |_, bits| {
                let taken = bits.is_free(gap) && bits.buddy.busy().is_set(gap.start, gap.len);
                if taken {
                    bits.discarded = u32::MAX;
                    self.change_free(number, bits, |buddy| buddy.mark_free(gap));
                    self.counters.release(u64::from(gap.len));
                }
                Ok(taken)
            });
            debug_assert!(matches!(given, Ok(true)), "{run:?} freed that was not allocated");
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
            self.older.touch_group_lookup();
            written += self.with_block_bits(number, |record, bits| {
                if !bits.is_free(gap) {
                    return Err(Error::Corrupt { group: number, what: "block allocated twice" });
                }
                if !bits.buddy.busy().is_set(gap.start, gap.len) {
                    return Err(Error::Corrupt { group: number, what: "block allocated that was not taken" });
                }
                bitmap::set_range(bits.disk_mut(), gap.range());
                let free = record.descriptor.free_blocks_count();
                record.descriptor.set_free_blocks_count(free.saturating_sub(gap.len));
                let written = record.change_blocks(tid);
                self.changed.insert(number);
                self.counters.disk_free.subtract(u64::from(gap.len));
                Ok(written)
            })?;
        }
        Ok(written)
    }

    /// Has in memory what [`Allocator::mark_free`] needs to know of the groups of a run, which in the midst of an update could
    /// not be read without leaving it half done. It stays for as long as what was just used.
    ///
    /// # Errors
    /// `Store` and `Corrupt` if bitmaps or descriptors cannot be had.
    pub fn prepare_free(&self, run: Run) -> Result<()> {
        for (number, _) in self.pieces(run).ok_or_else(outside)? {
            self.older.touch_group_lookup();
            self.with_block_bits(number, |_, _| Ok(()))?;
        }
        Ok(())
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
            if self.has_system_block(number, gap)? {
                return Err(Error::Corrupt { group: number, what: "file system metadata freed" });
            }
            self.older.touch_group_lookup();
            written += self.with_block_bits(number, |record, bits| {
                if !bits.is_used(gap) {
                    return Err(Error::Corrupt { group: number, what: "free block freed" });
                }
                bitmap::clear_range(bits.disk_mut(), gap.range());
                record.descriptor.set_free_blocks_count(record.descriptor.free_blocks_count() + gap.len);
                let joined = record.freed.add(gap);
                self.older.blocks_freed(gap.len, joined);
                let written = record.change_blocks(tid);
                self.changed.insert(number);
                self.counters.disk_free.add(u64::from(gap.len));
                self.counters.pending.add(u64::from(gap.len));
                self.older.change_group_info(number);
                Ok(written)
            })?;
        }
        Ok(written)
    }

    /// The group of a goal and its bit there; the start of the disk if it lies outside.
    pub(crate) fn group_of_goal(&self, goal: FsBlock) -> (GroupNumber, u32) {
        self.geometry.group_of(goal).unwrap_or((GroupNumber(0), 0))
    }
}

fn outside() -> Error {
    Error::Corrupt { group: GroupNumber(0), what: "blocks outside the disk" }
}
