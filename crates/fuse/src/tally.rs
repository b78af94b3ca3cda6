//! Counts of what begins and ends, by kind, with the time and the bytes; on cache lines of the thread's own, so that
//! counting adds no sharing between threads.

use std::time::Duration;

use extant_rt::{AtomicU64, Ordering, Padded, SHARDS, thread_slot};

/// See the module. All accesses are relaxed: nothing is decided by a count.
#[derive(Debug)]
pub(crate) struct Tally<const KINDS: usize> {
    shards: Box<[Padded<[Counts; KINDS]>]>,
}

#[derive(Debug, Default)]
struct Counts {
    begun: AtomicU64,
    ended: AtomicU64,
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

/// The totals of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// How many ended.
    pub ended: u64,
    /// How many began and did not end.
    pub under_way: u64,
    /// Bytes that those which ended moved.
    pub bytes: u64,
    /// How long they took, all together.
    pub time: Duration,
}

impl<const KINDS: usize> Tally<KINDS> {
    pub(crate) fn new() -> Self {
        let shard = |_| Padded(std::array::from_fn(|_| Counts::default()));
        Self { shards: (0..SHARDS).map(shard).collect() }
    }

    fn own(&self, kind: usize) -> &Counts {
        &self.shards[thread_slot() % SHARDS][kind]
    }

    /// One begins on this thread.
    pub(crate) fn begin(&self, kind: usize) {
        self.own(kind).begun.fetch_add(1, Ordering::Relaxed);
    }

    /// One ends on the thread on which it began.
    pub(crate) fn end(&self, kind: usize, took: Duration, bytes: usize) {
        let own = self.own(kind);
        own.nanoseconds.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        own.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        own.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// The totals of a kind.
    pub(crate) fn total(&self, kind: usize) -> Total {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.shards.iter().map(|shard| &shard[kind]).fold(Total::default(), |total, counts| {
            let ended = read(&counts.ended);
            Total {
                ended: total.ended + ended,
                // More may end than were seen to begin.
                under_way: total.under_way + read(&counts.begun).saturating_sub(ended),
                bytes: total.bytes + read(&counts.bytes),
                time: total.time + Duration::from_nanos(read(&counts.nanoseconds)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Tally, Total};

    #[test]
    fn threads_add_up_and_what_did_not_end_is_under_way() {
        let tally = Tally::<2>::new();
        extant_rt::parallel(4, |_| {
            tally.begin(1);
            tally.begin(1);
            tally.end(1, Duration::from_micros(5), 100);
        });
        let time = Duration::from_micros(20);
        assert_eq!(tally.total(1), Total { ended: 4, under_way: 4, bytes: 400, time });
        assert_eq!(tally.total(0), Total::default());
    }
}
