//! The cut of the groups into writeback ranges, and which context an inode belongs to.
//!
//! The allocator keeps streams apart by bands of 64 groups or more, so a disk of 8 GiB has one. Contexts contend for less: for
//! the groups that their inodes lie in and for those beside them. So a band is cut evenly into **writeback ranges**, as many as leave
//! [`GROUPS_MIN`] groups to each and [`RANGES_MAX`] ranges to the disk; on a disk of more than 32 bands a range is a band.
//!
//! Invariants: a group is in one range, a range in one band, and at any count of contexts a range belongs to one of them. Contexts that
//! are no more than the bands have whole bands, so that they share no stream's goal. Each context has a range.

use extant_alloc::Bands;
use extant_ondisk::{Geometry, GroupNumber};
use extant_rt::available_parallelism;
use extant_writeback::ContextMap;

/// Groups of a range at least: as many as the allocator has for each stream's goal. Streams that go on in fewer would meet, whichever
/// threads write them.
const GROUPS_MIN: u32 = 4;
/// Ranges at most: as there is a context for each at most, a sync looks at no more.
const RANGES_MAX: u32 = 64;
/// Threads that writeback wants at least, of all contexts, on a device with latency: each waits for the requests of one inode, so that most
/// of them wait. Elsewhere they compute beside those who write, and have half of the CPUs. Where there are so many ranges each thread has a
/// context of its own.
const THREADS_WANTED_MIN_LATENCY: usize = 16;
/// Threads of a context at most.
const THREADS_PER_CONTEXT_MAX: usize = 4;

/// The writeback ranges of a disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WritebackRanges {
    bands: Bands,
    group_count: u32,
    groups_per_range: u32,
    inodes_per_group: u32,
    threads_wanted: usize,
}

impl WritebackRanges {
    /// Those of a disk, on a device with latency or not.
    pub(crate) fn new(geometry: &Geometry, has_latency: bool) -> Self {
        let cpus = available_parallelism();
        let threads_wanted =
            if has_latency { cpus.max(THREADS_WANTED_MIN_LATENCY) } else { cpus.div_ceil(2) };
        Self { threads_wanted, ..Self::of_groups(geometry.group_count, geometry.inodes_per_group) }
    }

    /// Threads of each context.
    pub(super) fn threads_per_context(&self) -> usize {
        self.threads_wanted.div_ceil(self.contexts_max()).min(THREADS_PER_CONTEXT_MAX)
    }

    fn of_groups(group_count: u32, inodes_per_group: u32) -> Self {
        let bands = Bands::new(group_count);
        let groups_per_band = bands.groups_per_band();
        // Bands are of multiples of 64 groups: halves have as many each.
        let mut ranges_per_band = 1;
        while groups_per_band / (2 * ranges_per_band) >= GROUPS_MIN
            && bands.count() * 2 * ranges_per_band <= RANGES_MAX
        {
            ranges_per_band *= 2;
        }
        let groups_per_range = groups_per_band / ranges_per_band;
        Self { bands, group_count, groups_per_range, inodes_per_group, threads_wanted: 1 }
    }

    fn group_of(&self, inode: u64) -> GroupNumber {
        let group = inode.saturating_sub(1) / u64::from(self.inodes_per_group);
        let last = self.group_count.saturating_sub(1);
        GroupNumber(u32::try_from(group).unwrap_or(last).min(last))
    }
}

impl ContextMap for WritebackRanges {
    fn contexts_max(&self) -> usize {
        self.group_count.div_ceil(self.groups_per_range).max(1) as usize
    }

    fn contexts_wanted(&self) -> usize {
        self.contexts_max().min(self.threads_wanted)
    }

    fn context_of(&self, inode: u64, contexts: usize) -> usize {
        let (group, bands) = (self.group_of(inode), self.bands.count() as usize);
        if contexts <= bands {
            self.bands.of(group) as usize * contexts / bands
        } else {
            (group.0 / self.groups_per_range) as usize * contexts / self.contexts_max()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INODES: u32 = 128;

    /// The context of the first inode of a group, which is that of its last one.
    fn context_of(ranges: &WritebackRanges, group: u32, contexts: usize) -> usize {
        let [first, last] = [u64::from(group) * 128 + 1, (u64::from(group) + 1) * 128];
        let context = ranges.context_of(first, contexts);
        assert_eq!(ranges.context_of(last, contexts), context, "group {group} is of one context");
        context
    }

    #[test]
    fn groups_are_dealt_out_in_order_and_every_context_has_some() {
        for groups in [1, 4, 5, 32, 64, 65, 100, 400, 700, 1300, 4096] {
            let ranges = WritebackRanges::of_groups(groups, INODES);
            let max = ranges.contexts_max();
            assert!((1..=RANGES_MAX as usize).contains(&max));
            for contexts in 1..=max {
                let mut dealt: Vec<_> =
                    (0..groups).map(|group| context_of(&ranges, group, contexts)).collect();
                assert!(dealt.is_sorted());
                dealt.dedup();
                assert_eq!(dealt, (0..contexts).collect::<Vec<_>>(), "{groups} groups");
            }
        }
    }

    #[test]
    fn contexts_have_whole_bands_where_there_are_enough() {
        for groups in [65, 400, 1300, 4096, 4_900_000] {
            let ranges = WritebackRanges::of_groups(groups, INODES);
            let bands = Bands::new(groups);
            for contexts in 1..=bands.count() as usize {
                for band in 0..bands.count() {
                    let (first, len) = bands.groups(band);
                    let context = context_of(&ranges, first.0, contexts);
                    assert_eq!(context_of(&ranges, first.0 + len - 1, contexts), context, "band {band}");
                }
            }
        }
    }

    #[test]
    fn small_disks_have_ranges_of_four_groups_and_large_ones_of_a_band() {
        let cut = |groups| {
            let ranges = WritebackRanges::of_groups(groups, INODES);
            (ranges.contexts_max(), ranges.groups_per_range)
        };
        // 512 MiB, 1 GiB, 4 GiB, 8 GiB, 32 GiB, 96 GiB, 264 GiB, 8 TiB with blocks of 4 KiB.
        assert_eq!([4, 8, 32, 64].map(cut), [(1, 4), (2, 4), (8, 4), (16, 4)]);
        assert_eq!([256, 768, 2112, 65536].map(cut), [(64, 4), (48, 16), (33, 64), (64, 1024)]);
    }
}
