//! Computes when a request that arrives now ends. Times are nanoseconds since the device was made; nothing here
//! waits.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::model::{Model, Rotating};

/// The heads' work is cut into such pieces, between which a read may come.
const PIECE_BYTES: u64 = 1 << 20;

/// The kind of work for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Read {
        offset: u64,
        bytes: u64,
    },
    Write {
        offset: u64,
        bytes: u64,
    },
    /// A write that ends when it is durable.
    WriteThrough {
        offset: u64,
        bytes: u64,
    },
    Flush,
}

/// The time that `amount` takes at a rate, rounded up.
fn time_of(amount: u64, per_second: u64) -> u64 {
    let ns = (u128::from(amount) * 1_000_000_000).div_ceil(u128::from(per_second));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// The device's state.
#[derive(Debug)]
pub struct Service {
    model: Model,
    /// When those that are worked on end: at most `queue_depth`.
    slots: BinaryHeap<Reverse<u64>>,
    /// Until when the channel that all requests share, or the heads, have work.
    busy_until: u64,
    /// When the last of the writes ends.
    written_at: u64,
    heads: Heads,
}

/// A disk's heads and cache.
#[derive(Debug, Default)]
struct Heads {
    /// The byte that comes under them next.
    at: u64,
    /// The ranges that are in the cache alone: offset to length, neither overlapping nor touching.
    cached: BTreeMap<u64, u64>,
    cached_bytes: u64,
}

impl Service {
    pub fn new(model: Model) -> Self {
        let slots = BinaryHeap::new();
        Self { model, slots, busy_until: 0, written_at: 0, heads: Heads::default() }
    }

    /// When work that comes at `now` ends.
    pub fn end_of(&mut self, now: u64, work: Work) -> u64 {
        if work == Work::Flush {
            return self.flush(now);
        }
        let start = if (self.slots.len() as u64) < self.model.queue_depth {
            now
        } else {
            self.slots.pop().map_or(now, |Reverse(end)| end.max(now))
        };
        let end = match self.model.rotating {
            None => self.solid(start, work),
            Some(rotating) => self.rotate(start, work, &rotating),
        };
        self.slots.push(Reverse(end));
        if !matches!(work, Work::Read { .. }) {
            self.written_at = self.written_at.max(end);
        }
        end
    }

    fn flush(&mut self, now: u64) -> u64 {
        if let Some(rotating) = self.model.rotating {
            self.clean(now, &rotating);
            while self.clean_next(&rotating) {}
            self.written_at = self.written_at.max(self.busy_until);
        }
        now.max(self.written_at) + self.model.flush_latency_ns
    }

    /// Each request has its latency and moves at a stream's rate; all share one channel, which each occupies for as
    /// long as the device needs for it at full load.
    fn solid(&mut self, start: u64, work: Work) -> u64 {
        let model = &self.model;
        let (bytes, latency_ns, stream, all, requests) = match work {
            Work::Read { bytes, .. } => (
                bytes,
                model.read_latency_ns,
                model.stream_read_bytes_per_s,
                model.read_bytes_per_s,
                model.read_requests_per_s,
            ),
            Work::Write { bytes, .. } | Work::WriteThrough { bytes, .. } => (
                bytes,
                model.write_latency_ns,
                model.stream_write_bytes_per_s,
                model.write_bytes_per_s,
                model.write_requests_per_s,
            ),
            Work::Flush => (0, model.flush_latency_ns, 1, 1, 1),
        };
        let share = time_of(bytes, all).max(time_of(1, requests));
        self.busy_until = self.busy_until.max(start) + share;
        self.busy_until.max(start + latency_ns + time_of(bytes, stream))
    }

    /// Reads go to the platters at once; writes to the cache, from where the heads fetch them in rising order, one
    /// sweep after the other.
    fn rotate(&mut self, start: u64, work: Work, rotating: &Rotating) -> u64 {
        self.clean(start, rotating);
        match work {
            Work::Read { offset, bytes } => {
                self.busy_until = self.busy_until.max(start);
                self.pass(offset, bytes, self.model.read_bytes_per_s, rotating);
                self.busy_until + self.model.read_latency_ns
            }
            Work::WriteThrough { offset, bytes } => {
                self.busy_until = self.busy_until.max(start);
                self.pass(offset, bytes, self.model.write_bytes_per_s, rotating);
                self.busy_until + self.model.write_latency_ns
            }
            Work::Write { offset, bytes } => {
                let mut start = start;
                while self.heads.cached_bytes.saturating_add(bytes) > rotating.cache_bytes
                    && self.clean_next(rotating)
                {
                    start = start.max(self.busy_until);
                }
                if self.heads.cached.is_empty() {
                    self.busy_until = self.busy_until.max(start);
                }
                self.heads.cache(offset, bytes);
                start + self.model.write_latency_ns + time_of(bytes, self.model.stream_write_bytes_per_s)
            }
            Work::Flush => self.flush(start),
        }
    }

    /// Writes the pieces of the cache that the heads begin to write by `now`.
    fn clean(&mut self, now: u64, rotating: &Rotating) {
        while self.busy_until <= now && self.clean_next(rotating) {}
    }

    /// Writes the next piece of the cache; false if there is none.
    fn clean_next(&mut self, rotating: &Rotating) -> bool {
        let Some((offset, bytes)) = self.heads.take_next() else { return false };
        self.pass(offset, bytes, self.model.write_bytes_per_s, rotating);
        true
    }

    /// Moves the heads to a place and over it.
    fn pass(&mut self, offset: u64, bytes: u64, per_second: u64, rotating: &Rotating) {
        let seek_ns = rotating.seek_ns(self.heads.at.abs_diff(offset)) + rotating.revolution_ns / 2;
        let way_ns = match offset.checked_sub(self.heads.at) {
            // A small gap passes below the heads.
            Some(gap) => time_of(gap, per_second).min(seek_ns),
            None => seek_ns,
        };
        self.busy_until += way_ns + time_of(bytes, per_second);
        self.heads.at = offset.saturating_add(bytes);
    }
}

impl Heads {
    /// Adds a range to what is cached; what it covers already is there once.
    fn cache(&mut self, offset: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let (mut start, mut end) = (offset, offset.saturating_add(bytes));
        while let Some((&at, &len)) = self.cached.range(..=end).next_back()
            && at + len >= start
        {
            (start, end) = (start.min(at), end.max(at + len));
            self.cached.remove(&at);
            self.cached_bytes -= len;
        }
        self.cached.insert(start, end - start);
        self.cached_bytes += end - start;
    }

    /// Takes out the next piece at or behind the heads' place, or from the begin of the disk.
    fn take_next(&mut self) -> Option<(u64, u64)> {
        let (&offset, &len) = self.cached.range(self.at..).next().or_else(|| self.cached.iter().next())?;
        self.cached.remove(&offset);
        let bytes = len.min(PIECE_BYTES);
        if bytes < len {
            self.cached.insert(offset + bytes, len - bytes);
        }
        self.cached_bytes -= bytes;
        Some((offset, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn disk() -> (Service, Model, Rotating) {
        let model = Model::kept("disk-7200").expect("kept");
        (Service::new(model), model, model.rotating.expect("heads"))
    }

    #[test]
    fn cache_takes_writes_until_it_is_full_and_a_flush_waits_for_the_heads() {
        let (mut disk, model, rotating) = disk();
        let megabyte = model.write_latency_ns + time_of(MIB, model.stream_write_bytes_per_s);
        let mut now = 0;
        let count = rotating.cache_bytes / MIB;
        for index in 0..count {
            let end = disk.end_of(now, Work::Write { offset: index * MIB, bytes: MIB });
            assert_eq!(end - now, megabyte, "no head is waited for");
            now = end;
        }
        // All writes follow one another, so that no head ever moves.
        let media = time_of(count * MIB, model.write_bytes_per_s);
        let flushed = disk.end_of(now, Work::Flush);
        assert!(flushed.abs_diff(media + megabyte) < media / 100, "{flushed} {media}");
        let end = disk.end_of(flushed, Work::Flush);
        assert_eq!(end - flushed, model.flush_latency_ns, "nothing is left");
    }

    #[test]
    fn sweep_of_the_cache_visits_places_in_order() {
        let (mut disk, model, _) = disk();
        // Eight streams with 16 MiB each: a sweep has eight ways, and not one for each write.
        let mut now = 0;
        for turn in 0..16 {
            for stream in 0..8 {
                now = disk.end_of(now, Work::Write { offset: (stream << 40) / 2 + turn * MIB, bytes: MIB });
            }
        }
        let media = time_of(128 * MIB, model.write_bytes_per_s);
        let flushed = disk.end_of(now, Work::Flush);
        let ways = (flushed - media) / 12_000_000;
        assert!((8..40).contains(&ways), "{ways}");
    }

    #[test]
    fn random_reads_take_seek_and_half_a_revolution() {
        let (mut disk, _, rotating) = disk();
        let (mut now, mut place, reads) = (0, 1_u64, 2000);
        for _ in 0..reads {
            place = place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            now = disk.end_of(now, Work::Read { offset: place % rotating.capacity_bytes, bytes: 4096 });
        }
        let mean = now / reads;
        // Average seek 8.2 ms, half a revolution 4.17 ms, command and transfer 0.12 ms.
        assert!((12_100_000..12_900_000).contains(&mean), "{mean}");
    }

    #[test]
    fn bytes_written_twice_are_cached_once() {
        let mut heads = Heads::default();
        for (offset, bytes) in [(10, 10), (40, 10), (15, 10), (20, 20), (0, 5), (8, 60)] {
            heads.cache(offset, bytes);
        }
        assert_eq!(heads.cached, BTreeMap::from([(0, 5), (8, 60)]));
        assert_eq!(heads.cached_bytes, 65);
    }
}
