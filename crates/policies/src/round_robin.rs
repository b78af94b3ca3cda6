//! Round robin by search: each search begins at the group behind the one where the last search of any file began, so that all groups are
//! used alike. `rralloc` is the round robin that was posted for ext4, whose cursors stay in a group until it is full.

use extant::GroupNumber;
use extant::policy::{Groups, ORDERS, Policy, Wanted};
use extant_rt::{AtomicU32, Ordering};

/// See the module.
#[derive(Debug)]
pub struct RoundRobin {
    cursor: AtomicU32,
}

impl Default for RoundRobin {
    fn default() -> Self {
        Self { cursor: AtomicU32::new(0) }
    }
}

impl Policy for RoundRobin {
    fn name(&self) -> &'static str {
        "round-robin"
    }

    fn next_group(
        &self,
        groups: &Groups<'_>,
        wanted: &Wanted,
        last: Option<GroupNumber>,
    ) -> Option<GroupNumber> {
        let end = groups.count();
        let from = match last {
            Some(last) => last.0 + 1,
            // Pairs with nothing: the cursor guards no other memory.
            None => self.cursor.fetch_add(1, Ordering::Relaxed),
        } % end;
        let orders = wanted.len.ilog2() as u8..ORDERS;
        groups.first(orders.clone(), from..end).or_else(|| groups.first(orders, 0..from))
    }
}
