//! Discarding free blocks (kernel `ext4_trim_all_free`).
//!
//! A run is out of its group, as if somebody had it, until its discard ended: nobody is given a block that the device is
//! about to forget. Its tokens are claimed, so that reservations stay kept; whoever is refused a block meanwhile waits for
//! the one run that is out.
//!
//! Leaves out: the device; blocks that were freed and wait for their commit, which are in no buddy.
//!
//! Locks: `DISCARDING` across a discard; a group's (`GROUP`) before and after it. Tests: `tests/alloc/trim.rs`.

use std::ops::Range;

use extant_ondisk::{Cluster, GroupNumber};

use super::GroupChanges;
use crate::bitmap64::FreeExtent;
use crate::group::{BlockBits, ClusterRun};
use crate::{Error, MayUse, Result};

impl GroupChanges {
    /// Has `discard` discard each run of at least `least` free blocks of a group, cut to the bits `range`. Nothing to do if
    /// that was done and no block came back to the group since. Gives how many blocks were discarded.
    ///
    /// Runs that other threads have reserved to the last block stay as they are.
    ///
    /// # Errors
    /// `Store` and `Corrupt` if the bitmap cannot be had; what `discard` gives, which ends it.
    ///
    /// # Locks
    /// Takes `DISCARDING` and calls `discard` with it held.
    pub fn trim<E: From<Error>>(
        &self,
        group: GroupNumber,
        range: Range<u32>,
        least: u32,
        mut discard: impl FnMut(ClusterRun) -> Result<(), E>,
    ) -> Result<u64, E> {
        let least = least.max(1);
        let range = range.start..range.end.min(self.geometry.clusters_in_group(group));
        let is_whole = range == (0..self.geometry.clusters_in_group(group));
        if !self.begin_trim(group, is_whole.then_some(least), least)? {
            return Ok(0);
        }
        let (mut at, mut blocks) = (range.start, 0);
        let done = loop {
            let _discarding = self.discarding.lock();
            let gap = match self.take_out(group, at..range.end, least) {
                Ok(Some(gap)) => gap,
                Ok(None) => break Ok(blocks),
                Err(error) => break Err(error.into()),
            };
            let start = Cluster(self.geometry.group_first_cluster(group).0 + u64::from(gap.start));
            let discarded = discard(ClusterRun { start, len: gap.len });
            self.put_back(group, gap)?;
            if let Err(error) = discarded {
                break Err(error);
            }
            at = gap.start + gap.len;
            blocks += u64::from(gap.len);
        };
        if done.is_err() {
            self.with_block_bits(group, |_, bits| {
                bits.discarded = u32::MAX;
                Ok(())
            })?;
        }
        done
    }

    /// Whether there is anything to do; if so and the whole group is done, notes it. At the beginning, so that blocks that
    /// come back meanwhile undo it.
    fn begin_trim(&self, group: GroupNumber, whole: Option<u32>, least: u32) -> Result<bool> {
        self.with_block_bits(group, |_, bits| {
            let is_needed = least < bits.discarded;
            bits.discarded = bits.discarded.min(whole.unwrap_or(u32::MAX));
            Ok(is_needed)
        })
    }

    /// Takes a run out of the group and its tokens out of the available ones.
    fn take_out(&self, number: GroupNumber, range: Range<u32>, least: u32) -> Result<Option<FreeExtent>> {
        self.with_block_bits(number, |_, bits| {
            let mut at = range.start;
            while let Some(mut gap) = bits.buddy.run_in(at..range.end, least) {
                at = gap.start + gap.len;
                while gap.len >= least {
                    if self.counters.claim(u64::from(gap.len), MayUse::Reserved).is_ok() {
                        self.change_free(number, bits, |buddy| buddy.mark_used(gap));
                        return Ok(Some(gap));
                    }
                    // The rest is promised to others.
                    bits.discarded = u32::MAX;
                    gap.len /= 2;
                }
            }
            Ok(None)
        })
    }

    fn put_back(&self, number: GroupNumber, gap: FreeExtent) -> Result<()> {
        self.with_block_bits(number, |_, bits: &mut BlockBits| {
            self.change_free(number, bits, |buddy| buddy.mark_free(gap));
            self.counters.release(u64::from(gap.len));
            Ok(())
        })
    }
}
