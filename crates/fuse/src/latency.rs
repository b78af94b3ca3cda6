//! Whether recent operations of a kind were slow.
//!
//! Locks: none.

use std::time::Duration;

use extant_rt::{AtomicU64, Ordering};

/// The longest time of a quick operation, besides copying.
const QUICK: Duration = Duration::from_micros(60);
/// Copying at 2 GB/s.
const BYTES_PER_NANOSECOND: u64 = 2;
/// The average is kept in parts of this many per limit.
const UNIT: u64 = 1 << 10;
/// A delay counts as this many limits at most, so that it takes three to make a kind slow: one may be the host's
/// scheduler.
const LIMITS_MAX: u64 = 4;

/// Whether recent operations of a kind waited for the disk: a moving average of the time they took, in limits.
#[derive(Debug, Default)]
pub(crate) struct LatencyEwma {
    average: AtomicU64,
}

impl LatencyEwma {
    /// The average of a kind of request that counts as slow until it is seen to be quick.
    pub(crate) const fn slow() -> Self {
        Self { average: AtomicU64::new(2 * UNIT) }
    }

    /// Whether the next one is to be expected to wait.
    pub(crate) fn is_slow(&self) -> bool {
        self.average.load(Ordering::Relaxed) > UNIT
    }

    /// Notes what an operation on that many bytes took.
    pub(crate) fn note(&self, took: Duration, bytes: usize) {
        let limit = QUICK.as_nanos() as u64 + bytes as u64 / BYTES_PER_NANOSECOND;
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let sample = (took.saturating_mul(UNIT) / limit).min(LIMITS_MAX * UNIT);
        let average = self.average.load(Ordering::Relaxed);
        // A lost update is a lost sample: nothing depends on one.
        self.average.store((average * 7 + sample) / 8, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::LatencyEwma;

    #[test]
    fn latency_follows_what_requests_take() {
        let latency = LatencyEwma::default();
        assert!(!latency.is_slow());
        // One delay is no trend, nor is one now and then.
        for _ in 0..10 {
            latency.note(Duration::from_secs(1), 0);
            assert!(!latency.is_slow());
            for _ in 0..8 {
                latency.note(Duration::from_micros(3), 4096);
            }
        }
        for _ in 0..20 {
            latency.note(Duration::from_millis(5), 4096);
        }
        assert!(latency.is_slow());
        // Copying much is not waiting.
        for _ in 0..30 {
            latency.note(Duration::from_micros(300), 1 << 20);
        }
        assert!(!latency.is_slow());
    }
}
