//! What look-ups in preallocations did, counted on lines of the thread's own.

use extant_rt::{AtomicU64, Ordering, Padded, SHARDS, thread_slot};

use super::Preallocator;

/// What look-ups in preallocations did since mounting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PreallocStatistics {
    /// Look-ups in inodes that have preallocations.
    pub lookups: u64,
    /// Ranges that they looked at.
    pub visits: u64,
    /// Look-ups that gave blocks.
    pub hits: u64,
    /// Blocks in live ranges of inodes now.
    pub blocks: u64,
    /// Requests of small files that a chunk of their locality group served.
    pub local_hits: u64,
    /// Chunks that were searched for.
    pub local_chunks: u64,
    /// Blocks in chunks now.
    pub local_blocks: u64,
    /// Inodes whose ranges were given back.
    pub discards: u64,
    /// Blocks of inodes and chunks that were given back.
    pub discarded_blocks: u64,
    /// Times that ranges and chunks were given back because blocks were lacking.
    pub shortages: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    Lookups,
    Visits,
    Hits,
    LocalHits,
    LocalChunks,
    Discards,
    DiscardedBlocks,
    Shortages,
}

const COUNTS: usize = Count::Shortages as usize + 1;

/// Counts on lines of the thread's own.
#[derive(Debug)]
pub(super) struct Lookups {
    shards: Box<[Padded<[AtomicU64; COUNTS]>]>,
}

impl Lookups {
    pub fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Padded::default()).collect() }
    }

    pub fn add(&self, count: Count, added: u64) {
        if added > 0 {
            self.shards[thread_slot() % SHARDS][count as usize].fetch_add(added, Ordering::Relaxed);
        }
    }

    pub fn sum(&self, count: Count) -> u64 {
        self.shards.iter().map(|shard| shard[count as usize].load(Ordering::Relaxed)).sum()
    }
}

impl Preallocator {
    /// What look-ups in preallocations did since mounting.
    #[must_use]
    pub fn prealloc_statistics(&self) -> PreallocStatistics {
        let sum = |count| self.lookups.sum(count);
        PreallocStatistics {
            lookups: sum(Count::Lookups),
            visits: sum(Count::Visits),
            hits: sum(Count::Hits),
            blocks: self.counters.preallocated.sum(),
            local_hits: sum(Count::LocalHits),
            local_chunks: sum(Count::LocalChunks),
            local_blocks: self.counters.local.sum(),
            discards: sum(Count::Discards),
            discarded_blocks: sum(Count::DiscardedBlocks),
            shortages: sum(Count::Shortages),
        }
    }
}
