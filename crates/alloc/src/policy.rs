//! An allocation policy of one's own: which group a search looks into next, and which of its free extents it takes.
//!
//! The search tries the goal itself first, as with every [`Scan`](crate::Scan). It looks at each group that the policy names again under
//! the group's lock, skips it if another holds that lock, and takes only what is free. So a policy decides where blocks lie and cannot
//! lose or share any. When it names no group, or has named as many as there are, the nearest group with free blocks is taken.
//!
//! Locks: a policy is asked for groups without one, and for extents with the group's (`GROUP`): it takes no lock of its own then.

use std::fmt;
use std::ops::Range;
use std::panic::RefUnwindSafe;

use extant_ondisk::GroupNumber;

pub use crate::bitmap64::FreeExtent;
pub use crate::group::buddy::FreeExtents;
use crate::group::buddy::ORDERS_MAX;
use crate::group::summary::{Key, OrderMask};
use crate::group_table::order_index::OrderIndex;
pub use crate::request::Purpose;

/// See the module. State is in the policy, which all threads share: atomics of `extant_rt`, which the lab counts.
pub trait Policy: fmt::Debug + RefUnwindSafe + Sync {
    /// Its name on command lines and in tables: two policies of one name are the same.
    fn name(&self) -> &'static str;

    /// The group to look into next, none if there is no sense in another. `last` is the one named before, none at first.
    fn next_group(
        &self,
        groups: &Groups<'_>,
        wanted: &Wanted,
        last: Option<GroupNumber>,
    ) -> Option<GroupNumber>;

    /// What to take of a group's free extents, which come in order; none to leave it. At most the length wanted is taken, from the
    /// start of what is returned. By default the first extent that is long enough.
    fn extent(&self, wanted: &Wanted, mut extents: FreeExtents<'_>) -> Option<FreeExtent> {
        extents.find(|extent| extent.len >= wanted.len)
    }
}

impl PartialEq for dyn Policy {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Policy {}

/// What a search wants.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Wanted {
    /// The group where it would be best: of the goal, or where the last large file of its kind ended.
    pub goal: GroupNumber,
    /// Clusters in one run.
    pub len: u32,
    /// What for.
    pub purpose: Purpose,
}

/// What is known of groups without their locks. It may be stale.
#[derive(Debug)]
pub struct Groups<'a> {
    index: &'a OrderIndex,
}

/// Orders of chunks are below it.
pub const ORDERS: u8 = ORDERS_MAX as u8;

impl<'a> Groups<'a> {
    pub(crate) fn new(index: &'a OrderIndex) -> Self {
        Self { index }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.index.groups()
    }

    /// The free clusters of a group.
    #[must_use]
    pub fn free(&self, group: GroupNumber) -> u32 {
        self.index.get(group).free
    }

    /// Its free extents; 0 if its bitmap was never read.
    #[must_use]
    pub fn free_extents(&self, group: GroupNumber) -> u32 {
        self.index.get(group).fragments
    }

    /// The order of its largest free chunk, 2 to the power of it clusters; an upper bound if its bitmap was never read.
    #[must_use]
    pub fn largest_order(&self, group: GroupNumber) -> Option<u8> {
        self.index.get(group).largest
    }

    /// The first group of a range whose largest free chunk is of one of these orders. Logarithmic in the number of groups.
    #[must_use]
    pub fn first(&self, orders: Range<u8>, groups: Range<u32>) -> Option<GroupNumber> {
        self.index.first(OrderMask::of_orders(Key::Largest, orders), groups)
    }
}
