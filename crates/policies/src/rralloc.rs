//! Round robin as posted for ext4 (`rralloc`, version 2): each CPU has a cursor, which begins in a part of the disk of its own and is at
//! the group where the CPU found blocks last. A new file begins at the cursor, and a file with blocks at its last group; from there the
//! first free extent is taken, however short it is, in whatever group is next.
//!
//! Leaves out: a file's cursor of its own, as the goal of a file that has blocks is its last group; the wait for a group whose lock is
//! taken, which the engine skips; the cursor's step to blocks that were free at the goal itself; and blocks of directories and trees,
//! which stay near their goal.
//!
//! Source: Mario Lohajner, "ext4: rralloc", linux-ext4, 25 February 2026.

use extant::GroupNumber;
use extant::policy::{FreeExtent, FreeExtents, Groups, ORDERS, Policy, Purpose, Wanted};
use extant_rt::{AtomicU32, Ordering, Padded, SHARDS, thread_slot};

/// A CPU that found nothing yet.
const UNSET: u32 = u32::MAX;

/// See the module.
#[derive(Debug)]
pub struct RrAlloc {
    cursors: Box<[Padded<AtomicU32>]>,
}

impl Default for RrAlloc {
    fn default() -> Self {
        Self { cursors: (0..SHARDS).map(|_| Padded(AtomicU32::new(UNSET))).collect() }
    }
}

impl Policy for RrAlloc {
    fn name(&self) -> &'static str {
        "rralloc"
    }

    fn next_group(
        &self,
        groups: &Groups<'_>,
        wanted: &Wanted,
        last: Option<GroupNumber>,
    ) -> Option<GroupNumber> {
        let (cpu, count) = (thread_slot() % self.cursors.len(), groups.count());
        let cursor = &self.cursors[cpu].0;
        let from = match (last, wanted.purpose) {
            (Some(last), _) => last.0 + 1,
            (None, Purpose::Stream(_) | Purpose::Metadata) => wanted.goal.0,
            // Pairs with nothing, as each store below: a cursor guards no other memory.
            (None, Purpose::Data | Purpose::NewStream(_)) => match cursor.load(Ordering::Relaxed) {
                UNSET => (u64::from(count) * cpu as u64 / self.cursors.len() as u64) as u32,
                group => group,
            },
        } % count;
        let next = groups.first(0..ORDERS, from..count).or_else(|| groups.first(0..ORDERS, 0..from))?;
        if wanted.purpose != Purpose::Metadata {
            cursor.store(next.0, Ordering::Relaxed);
        }
        Some(next)
    }

    fn extent(&self, _: &Wanted, mut extents: FreeExtents<'_>) -> Option<FreeExtent> {
        extents.next()
    }
}
