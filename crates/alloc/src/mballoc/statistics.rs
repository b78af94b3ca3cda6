//! What searches did, counted on lines of the thread's own.

use extant_rt::{AtomicU64, Ordering, Padded, SHARDS, thread_slot};

use super::{CRITERIA, Criterion};

/// Numbers of [`Counts`].
const NUMBERS: usize = 9 + 2 * CRITERIA;

/// What one search did.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub blocks: u32,
    pub failed: u32,
    pub at_goal: u32,
    pub locks: u32,
    pub skipped: u32,
    pub waited: u32,
    pub lost: u32,
    pub bitmaps_read: u32,
    pub runs_scanned: u32,
    considered: [u32; CRITERIA],
    hits: [u32; CRITERIA],
}

impl Counts {
    pub fn considered(&mut self, criterion: Criterion) {
        self.considered[criterion as usize] += 1;
    }

    pub fn hit(&mut self, criterion: Criterion) {
        self.hits[criterion as usize] += 1;
    }
}

/// What searches did since mounting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MballocStatistics {
    /// Searches.
    pub requests: u64,
    /// Blocks found.
    pub blocks: u64,
    /// Searches that found nothing.
    pub failed: u64,
    /// Searches that ended at their goal.
    pub at_goal: u64,
    /// Groups whose lock was taken by searches.
    pub locks: u64,
    /// Times a group's lock was taken by whatever else changes or asks for its bitmaps.
    pub other_locks: u64,
    /// Groups left out because another held their lock.
    pub skipped: u64,
    /// Groups whose lock had to be waited for.
    pub waited: u64,
    /// Groups that no longer suited under their lock.
    pub lost: u64,
    /// Block bitmaps read from the store.
    pub bitmaps_read: u64,
    /// Runs of free blocks compared.
    pub runs_scanned: u64,
    /// Groups considered, by criterion in the kernel's order.
    pub considered: [u64; CRITERIA],
    /// Searches that ended there, by criterion.
    pub hits: [u64; CRITERIA],
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Statistics {
    shards: Box<[Padded<[AtomicU64; NUMBERS + 1]>]>,
}

impl Statistics {
    pub fn new() -> Self {
        let shard = |_| Padded(std::array::from_fn(|_| AtomicU64::new(0)));
        Self { shards: (0..SHARDS).map(shard).collect() }
    }

    pub fn add(&self, counts: &Counts) {
        let Counts {
            blocks, failed, at_goal, locks, skipped, waited, lost, bitmaps_read, runs_scanned, ..
        } = *counts;
        let single = [1, blocks, failed, at_goal, locks, skipped, waited, lost, bitmaps_read, runs_scanned];
        let all = single.into_iter().chain(counts.considered).chain(counts.hits);
        for (number, count) in self.shards[thread_slot() % SHARDS].iter().zip(all) {
            if count > 0 {
                number.fetch_add(u64::from(count), Ordering::Relaxed);
            }
        }
    }

    /// All counts, with `other_locks` of groups that no search took.
    pub fn read(&self, other_locks: u64) -> MballocStatistics {
        let sum = |number: usize| self.shards.iter().map(|shard| shard[number].load(Ordering::Relaxed)).sum();
        let [requests, blocks, failed, at_goal, locks, skipped, waited, lost, bitmaps_read, runs_scanned] =
            std::array::from_fn(sum);
        MballocStatistics {
            requests,
            blocks,
            failed,
            at_goal,
            locks,
            other_locks,
            skipped,
            waited,
            lost,
            bitmaps_read,
            runs_scanned,
            considered: std::array::from_fn(|criterion| sum(10 + criterion)),
            hits: std::array::from_fn(|criterion| sum(10 + CRITERIA + criterion)),
        }
    }
}
