//! Counters of requests, and their text for the control file `metrics`.
//!
//! Each worker counts in one of 16 sets of its own cache lines, so that counting does not join what else is apart.

use std::cell::Cell;
use std::fmt::Write;

use extant::Filesystem;
use extant_rt::{AtomicU64, AtomicUsize, Ordering};

use crate::ops::Transport;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Lookup,
    Attributes,
    SetAttributes,
    ReadLink,
    Make,
    Unlink,
    Rmdir,
    Rename,
    Link,
    Read,
    Write,
    Sync,
    List,
    Fullness,
    Xattr,
    SetXattr,
    Allocate,
    Seek,
    Ioctl,
}

/// The labels, in the order of [`Request`]: the protocol's names.
const NAMES: [&str; 19] = [
    "lookup",
    "getattr",
    "setattr",
    "readlink",
    "make",
    "unlink",
    "rmdir",
    "rename",
    "link",
    "read",
    "write",
    "fsync",
    "readdir",
    "statfs",
    "getxattr",
    "setxattr",
    "fallocate",
    "lseek",
    "ioctl",
];

const SETS: usize = 16;

#[repr(align(128))]
#[derive(Debug, Default)]
struct Set {
    requests: [AtomicU64; NAMES.len()],
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

/// The counters.
#[derive(Debug)]
pub(crate) struct Metrics {
    sets: Vec<Set>,
}

static NEXT_SET: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static OWN_SET: Cell<Option<usize>> = const { Cell::new(None) };
}

fn own_set() -> usize {
    OWN_SET.with(|own| {
        own.get().unwrap_or_else(|| {
            let set = NEXT_SET.fetch_add(1, Ordering::Relaxed) % SETS;
            own.set(Some(set));
            set
        })
    })
}

impl Metrics {
    pub(crate) fn new() -> Self {
        Self { sets: (0..SETS).map(|_| Set::default()).collect() }
    }

    /// Counts a request.
    pub(crate) fn count(&self, request: Request) {
        self.sets[own_set()].requests[request as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts bytes that were read.
    pub(crate) fn count_read(&self, bytes: usize) {
        self.sets[own_set()].bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes that were written.
    pub(crate) fn count_written(&self, bytes: usize) {
        self.sets[own_set()].bytes_written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn sum(&self, of: impl Fn(&Set) -> &AtomicU64) -> u64 {
        self.sets.iter().map(|set| of(set).load(Ordering::Relaxed)).sum()
    }

    /// All of it in the form of OpenMetrics 1.0.
    pub(crate) fn text(&self, fs: &Filesystem, known_inodes: usize, transport: Transport) -> String {
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, samples: &[(String, u64)]| {
            // Writing into a String does not fail.
            let _ = writeln!(text, "# TYPE extant_{name} {kind}");
            let suffix = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            for (labels, value) in samples {
                let _ = writeln!(text, "extant_{name}{suffix}{labels} {value}");
            }
        };
        let requests: Vec<_> = NAMES
            .iter()
            .enumerate()
            .map(|(index, name)| (format!("{{op=\"{name}\"}}"), self.sum(|set| &set.requests[index])))
            .collect();
        let plain = |value: u64| [(String::new(), value)];
        family("transport", "info", &[(format!("{{name=\"{}\"}}", transport.name()), 1)]);
        family("requests", "counter", &requests);
        family("read_bytes", "counter", &plain(self.sum(|set| &set.bytes_read)));
        family("written_bytes", "counter", &plain(self.sum(|set| &set.bytes_written)));
        family("known_inodes", "gauge", &plain(known_inodes as u64));
        let full = fs.statistics();
        let bytes = |blocks: u64| plain(blocks.saturating_mul(u64::from(full.block_size)));
        family("usable_bytes", "gauge", &bytes(full.blocks));
        family("free_bytes", "gauge", &bytes(full.free_blocks));
        family("available_bytes", "gauge", &bytes(full.available_blocks));
        family("inodes", "gauge", &plain(u64::from(full.inodes)));
        family("free_inodes", "gauge", &plain(u64::from(full.free_inodes)));
        let descriptors = fs.descriptors();
        family("descriptor_blocks", "gauge", &plain(u64::from(descriptors.blocks)));
        family("descriptor_blocks_read", "gauge", &plain(u64::from(descriptors.read)));
        let tables = fs.table_initialisation();
        family("inode_tables_seen", "gauge", &plain(u64::from(tables.seen)));
        family("inode_tables_zeroed", "counter", &plain(u64::from(tables.zeroed)));
        family("inode_tables_skipped", "counter", &plain(u64::from(tables.skipped)));
        if let Some(journal) = fs.journal_statistics() {
            family("journal_commits", "counter", &plain(journal.commits));
            family("journal_copies", "counter", &plain(journal.copies));
            family("journal_revokes", "counter", &plain(journal.revokes));
            family("journal_log_blocks", "counter", &plain(journal.log_blocks));
            family("journal_checkpoints", "counter", &plain(journal.checkpoints));
            family("journal_home_blocks", "counter", &plain(journal.home_blocks));
            family("journal_start_waits", "counter", &plain(journal.start_waits));
        }
        text.push_str("# EOF\n");
        text
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
