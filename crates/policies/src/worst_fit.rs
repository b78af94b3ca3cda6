//! Worst fit: the groups with the largest free chunks come first, and of a group its longest free extent, so that no search breaks up a
//! small one.

use extant::GroupNumber;
use extant::policy::{FreeExtent, FreeExtents, Groups, ORDERS, Policy, Wanted};

/// See the module.
#[derive(Debug)]
pub struct WorstFit;

impl Policy for WorstFit {
    fn name(&self) -> &'static str {
        "worst-fit"
    }

    fn next_group(
        &self,
        groups: &Groups<'_>,
        wanted: &Wanted,
        last: Option<GroupNumber>,
    ) -> Option<GroupNumber> {
        let (goal, end) = (wanted.goal.0, groups.count());
        // Of an order, the next group on the way from the goal to the end and from 0 to the goal.
        let next = |order: u8, from: u32| {
            let parts = if from > goal { [from..end, 0..goal] } else { [from..goal, 0..0] };
            let parts = if from == goal { [goal..end, 0..goal] } else { parts };
            parts.into_iter().find_map(|part| groups.first(order..order + 1, part))
        };
        let order = last.and_then(|last| groups.largest_order(last));
        let same = last.zip(order).and_then(|(last, order)| next(order, last.0 + 1));
        let lower = wanted.len.ilog2() as u8..order.unwrap_or(ORDERS);
        same.or_else(|| lower.rev().find_map(|order| next(order, goal)))
    }

    fn extent(&self, _: &Wanted, extents: FreeExtents<'_>) -> Option<FreeExtent> {
        extents.max_by_key(|extent| extent.len)
    }
}
