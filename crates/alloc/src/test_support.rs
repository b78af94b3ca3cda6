//! Groups made believe to be in a state, for measurements on disks whose bitmaps no memory holds.

use extant_ondisk::{Geometry, GroupNumber, bitmap};

use crate::Result;
use crate::allocator::Allocator;
use crate::bitmap_cache::BitmapCache;
use crate::bitmap_cache::expectation::Expectation;
use crate::bitmap64::Bitmap64;
use crate::group::buddy::{Buddy, order_max};
use crate::group::summary::Summary;
use crate::tuning::Tuning;

/// What can be known of a block bitmap that many groups share.
#[derive(Clone, Copy, Debug)]
pub struct BitmapSummary {
    summary: Summary,
    order_max: u8,
}

impl BitmapSummary {
    /// Of a whole group's block bitmap.
    #[must_use]
    pub fn new(geometry: &Geometry, bits: &[u8]) -> Self {
        let order_max = order_max(geometry);
        let summary =
            Summary::of(&Buddy::new(Bitmap64::from_bytes(bits, geometry.clusters_per_group), order_max));
        debug_assert_eq!(summary.free, bitmap::count_zeros(bits, 0..geometry.clusters_per_group));
        Self { summary, order_max }
    }
}

impl Allocator {
    /// Changes the order in which groups are visited and what searches look at, and forgets what reading taught of unread
    /// groups. What the allocator was made with stays: goals, locks and lists.
    pub fn set_tuning(&mut self, tuning: Tuning) {
        let cache = self.cache_mut();
        cache.table.tuning = tuning;
        cache.expectation = Expectation::new();
    }

    /// Puts a group back to one that was never touched, whose block bitmap is the sample's; its free space is known as if it
    /// had been read, or by its descriptor only. Counts of the whole disk stay as they are.
    ///
    /// # Errors
    /// `Corrupt` if there is no such group.
    pub fn assume(&mut self, number: GroupNumber, sample: &BitmapSummary, is_known: bool) -> Result<()> {
        self.inode_table(number)?;
        self.cache_mut().table.forget(number);
        let unread = Summary::unread(sample.summary.free, sample.order_max);
        self.set_summary(number, if is_known { sample.summary } else { unread });
        Ok(())
    }

    fn cache_mut(&mut self) -> &mut BitmapCache {
        &mut self.inodes.preallocator.mballoc.changes.cache
    }
}
