//! Counts and times of requests, and the text of the control file `metrics`.

mod exposition;
mod text;

use std::time::Duration;

use extant_rt::{AtomicU64, Monotonic, Ordering, Padded, SHARDS, thread_slot};

use crate::tally::Tally;
use crate::timed_device::{DeviceTimes, IO_NAMES, Waits, waited};

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Lookup,
    Attributes,
    SetAttributes,
    ReadLink,
    Create,
    Unlink,
    Rmdir,
    Rename,
    Link,
    Open,
    Read,
    Write,
    Sync,
    List,
    StatFs,
    Xattr,
    SetXattr,
    Allocate,
    Seek,
    FindBlock,
    Ioctl,
}

/// The labels, in the order of [`Request`]: the protocol's names.
const NAMES: [&str; 21] = [
    "lookup",
    "getattr",
    "setattr",
    "readlink",
    "make",
    "unlink",
    "rmdir",
    "rename",
    "link",
    "open",
    "read",
    "write",
    "fsync",
    "readdir",
    "statfs",
    "getxattr",
    "setxattr",
    "fallocate",
    "lseek",
    "bmap",
    "ioctl",
];

/// The counters.
#[derive(Debug)]
pub(crate) struct Metrics {
    requests: Tally<{ NAMES.len() }>,
    /// Nanoseconds of requests in which their threads waited for the device.
    waits: Box<[Padded<RequestWaits>]>,
    device: Option<DeviceTimes>,
    since: Monotonic,
}

/// By [`Request`] and [`Io`](crate::timed_device::Io).
type RequestWaits = [[AtomicU64; IO_NAMES.len()]; NAMES.len()];

/// A request that is being answered, until it is dropped.
pub(crate) struct Timed<'m> {
    metrics: &'m Metrics,
    request: Request,
    start: Monotonic,
    waited: Waits,
    bytes: usize,
}

impl Timed<'_> {
    /// It reads or writes so many bytes.
    pub(crate) fn moves(&mut self, bytes: usize) {
        self.bytes = bytes;
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        self.metrics.requests.end(self.request as usize, self.start.elapsed(), self.bytes);
        let waits = &self.metrics.waits[thread_slot() % SHARDS][self.request as usize];
        for ((wait, now), before) in waits.iter().zip(waited()).zip(self.waited) {
            if now > before {
                wait.fetch_add(now - before, Ordering::Relaxed);
            }
        }
    }
}

impl Metrics {
    /// All counts are zero but those of `device`.
    pub(crate) fn new(device: Option<DeviceTimes>) -> Self {
        let waits = || Padded(std::array::from_fn(|_| Default::default()));
        Self {
            requests: Tally::new(),
            waits: std::iter::repeat_with(waits).take(SHARDS).collect(),
            device,
            since: Monotonic::now(),
        }
    }

    /// A request begins, which ends on this thread.
    pub(crate) fn begin(&self, request: Request) -> Timed<'_> {
        self.requests.begin(request as usize);
        Timed { metrics: self, request, start: Monotonic::now(), waited: waited(), bytes: 0 }
    }

    /// How long requests of a kind waited for the device, by kind of device request.
    fn device_waits(&self, request: usize) -> [Duration; IO_NAMES.len()] {
        let sum = |io: usize| self.waits.iter().map(|waits| waits[request][io].load(Ordering::Relaxed)).sum();
        std::array::from_fn(|io| Duration::from_nanos(sum(io)))
    }
}

#[cfg(test)]
mod tests {
    use super::{NAMES, Request};

    #[test]
    fn each_request_has_a_name() {
        assert_eq!(NAMES[Request::Lookup as usize], "lookup");
        assert_eq!(Request::Ioctl as usize, NAMES.len() - 1);
        assert_eq!(NAMES[Request::Write as usize], "write");
        assert_eq!(NAMES[Request::List as usize], "readdir");
    }
}
