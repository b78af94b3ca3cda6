//! A budget of bytes, counted by many threads at once.

use extant_rt::{AtomicU64, Ordering, Padded, SHARDS, thread_slot};

/// The bytes left of a budget: most in a pool, some held ready by shards of threads. Taking always succeeds; the thread
/// that takes looks afterwards whether too much was taken, and gives back.
///
/// All operations are relaxed: no other memory is published through the numbers.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Two's complement: negative while more is taken than there is.
    pool: Padded<AtomicU64>,
    shards: Box<[Padded<AtomicU64>]>,
    portion: u64,
    limit: u64,
}

/// A shard holds at most two portions, and all shards together an eighth of the limit.
const PORTIONS_MIN: u64 = 16;

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            pool: Padded(AtomicU64::new(limit)),
            shards: (0..SHARDS).map(|_| Padded::default()).collect(),
            portion: limit / (PORTIONS_MIN * SHARDS as u64),
            limit,
        }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    fn shard(&self) -> &AtomicU64 {
        &self.shards[thread_slot() % SHARDS]
    }

    pub(crate) fn take(&self, bytes: u64) {
        let shard = self.shard();
        let left = shard.fetch_sub(bytes, Ordering::Relaxed).wrapping_sub(bytes).cast_signed();
        if left < 0 {
            let more = left.unsigned_abs() + self.portion;
            self.pool.fetch_sub(more, Ordering::Relaxed);
            shard.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        let shard = self.shard();
        let left = shard.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes).cast_signed();
        if let Some(more) = left.checked_sub_unsigned(2 * self.portion).filter(|more| *more > 0) {
            shard.fetch_sub(more.unsigned_abs(), Ordering::Relaxed);
            self.pool.fetch_add(more.unsigned_abs(), Ordering::Relaxed);
        }
    }

    /// Whether more may be taken than there is, because the pool is empty.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.left() < 0
    }

    fn left(&self) -> i64 {
        self.pool.load(Ordering::Relaxed).cast_signed()
    }

    /// The bytes taken; exact while no thread changes it.
    pub(crate) fn used(&self) -> u64 {
        let left = self.shards.iter().fold(self.pool.load(Ordering::Relaxed), |sum, shard| {
            sum.wrapping_add(shard.load(Ordering::Relaxed))
        });
        u64::try_from(self.limit.wrapping_sub(left).cast_signed()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_no_more_than_there_is_before_it_shows() {
        const LIMIT: u64 = 64 << 20;
        let budget = Budget::new(LIMIT);
        extant_rt::parallel(4, |thread| {
            let mut taken = 0;
            for round in 0..20_000_u64 {
                let bytes = 4096 * (1 + (round * 7 + thread as u64) % 64);
                if budget.is_exhausted() {
                    budget.give_back(taken);
                    taken = 0;
                } else {
                    budget.take(bytes);
                    taken += bytes;
                }
                assert!(budget.used() <= LIMIT + 4 * (64 * 4096));
            }
            budget.give_back(taken);
        });
        assert_eq!(budget.used(), 0);
        budget.take(LIMIT + 1);
        assert!(budget.is_exhausted());
        budget.give_back(LIMIT / 2);
        assert!(!budget.is_exhausted());
    }
}
