//! How to mount.

use std::time::Duration;

use extant_alloc::Tuning;
use extant_block::BlockDevice;
use extant_rt::{HAS_THREADS, WallClock, available_parallelism};

use crate::metadata::tables::START_DELAY as TABLE_DELAY;

/// As the kernel's `commit=5`.
const COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// How to mount.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) read_only: bool,
    /// Leave a dirty journal alone; for reading only.
    pub(crate) no_recovery: bool,
    pub(crate) clock: WallClock,
    /// Bytes of clean metadata blocks, inodes and names to keep.
    pub(crate) cache_bytes: u64,
    /// Bytes of files to keep in memory; 0: all is written at once. None: as suits the device.
    pub(crate) page_cache_bytes: Option<u64>,
    /// Whether those stay that are on the disk.
    pub(crate) keep_clean_pages: bool,
    pub(crate) tuning: Tuning,
    /// The value for `s_last_mounted`.
    pub(crate) last_mounted: Option<Vec<u8>>,
    /// Commit at intervals, checkpoint, write back and zero inode tables in the background.
    pub(crate) background: bool,
    /// The time between commits in the background.
    pub(crate) commit_interval: Duration,
    /// The time from mounting to the first inode table that is zeroed in the background.
    pub(crate) table_delay: Duration,
    /// Discard what transactions freed.
    pub(crate) discard: bool,
    /// Blocks of the reserved pool at most.
    pub(crate) reserved_pool_max: u64,
    /// Stop writing at damage, whatever the superblock says.
    pub(crate) stop_on_damage: bool,
    /// Limits of users, groups and projects are in force.
    pub(crate) enforced_quotas: [bool; 3],
}

/// Bytes of the cache for each CPU, if that is more than 256 MiB: so its shards are many enough for threads not to meet.
const CPU_CACHE_BYTES: u64 = 16 << 20;

/// Bytes of the cache per cached name, whose inode stays in memory with it (1,152 bytes both), and per cached inode that is not in use. A
/// quarter of the bytes is for blocks, one for bitmaps.
pub(super) const ENTRY_BYTES: u64 = 4096;

/// Bytes of the page cache of a device with latency.
const PAGE_CACHE_BYTES: u64 = 256 << 20;

impl Options {
    /// Bytes of the page cache over a device.
    pub(super) fn page_cache_bytes_for(&self, device: &dyn BlockDevice) -> u64 {
        self.page_cache_bytes.unwrap_or(if device.has_latency() { PAGE_CACHE_BYTES } else { 0 })
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            no_recovery: false,
            clock: WallClock::System,
            cache_bytes: (256 << 20).max(available_parallelism() as u64 * CPU_CACHE_BYTES),
            page_cache_bytes: None,
            keep_clean_pages: true,
            tuning: Tuning::default(),
            last_mounted: None,
            background: HAS_THREADS,
            commit_interval: COMMIT_INTERVAL,
            table_delay: TABLE_DELAY,
            discard: false,
            reserved_pool_max: u64::MAX,
            stop_on_damage: false,
            enforced_quotas: [false; 3],
        }
    }
}
