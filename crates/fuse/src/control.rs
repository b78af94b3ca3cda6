//! The control directory `.extant` at the root of a mount: files that are read like those of sysfs.
//!
//! It belongs to the user that mounted, is not listed, and never hides a real entry of that name. Each look-up of a file
//! makes an inode of its own with the content of that moment: one open is one snapshot, with its true size.

mod quota;

use extant::{FileType, Filesystem, Timestamp};
use extant_rt::{AtomicU64, Ordering};
use rustix::io::Errno;

use crate::errno::errno;
use crate::metrics::Metrics;
use crate::ops::{Attributes, NodeId, Reply, Transport};

/// The directory's name.
pub(crate) const NAME: &[u8] = b".extant";

/// The directory's number; above those of inodes, which have 32 bits. Those of files are above it.
pub(crate) const DIRECTORY: NodeId = NodeId(1 << 48);

/// The files.
const FILES: [&str; 11] = [
    "journal",
    "mb_stats",
    "metrics",
    NWRITEBACKS,
    "nwritebacks_max",
    "options",
    "pid",
    QUOTA,
    "transport",
    "version",
    "writeback_stats",
];

/// The kernel's criteria of searches for blocks, in its order.
pub(crate) const CRITERIA: [&str; 5] =
    ["cr_p2_aligned", "cr_goal_fast", "cr_best_avail", "cr_goal_slow", "cr_any_free"];

/// One that can be written: the count of writeback contexts.
const NWRITEBACKS: &str = "nwritebacks";
/// Another: limits of users, groups and projects.
const QUOTA: &str = "quota";

/// What writing to a control file changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    WritebackContexts,
    Quota,
}

impl Setting {
    fn of(name: &[u8]) -> Option<Self> {
        match name {
            _ if name == NWRITEBACKS.as_bytes() => Some(Self::WritebackContexts),
            _ if name == QUOTA.as_bytes() => Some(Self::Quota),
            _ => None,
        }
    }
}

/// A control file as it was when it was looked up.
#[derive(Debug)]
pub(crate) struct Snapshot {
    content: Vec<u8>,
    made: Timestamp,
    setting: Option<Setting>,
}

impl Snapshot {
    /// Its bytes from `offset` on into `buf`; how many.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let from =
            usize::try_from(offset).map_or(self.content.len(), |offset| offset.min(self.content.len()));
        let count = buf.len().min(self.content.len() - from);
        buf[..count].copy_from_slice(&self.content[from..from + count]);
        count
    }

    /// Sets the value, in one piece: a count in decimals, with or without an end of line, or lines of limits.
    ///
    /// # Errors
    /// `EPERM` if it is none to be set; `EINVAL` for another text and for a number out of the range, which for the count ends at what
    /// `nwritebacks_max` says. Then nothing changes, but lines before a wrong one do.
    pub(crate) fn write(&self, fs: &Filesystem, offset: u64, bytes: &[u8]) -> Reply<usize> {
        let setting = self.setting.ok_or(Errno::PERM)?;
        let text = std::str::from_utf8(bytes).ok().filter(|_| offset == 0).ok_or(Errno::INVAL)?;
        match setting {
            Setting::WritebackContexts => {
                let count = text.trim_end().parse().map_err(|_| Errno::INVAL)?;
                fs.set_writeback_contexts(count).map_err(|error| errno(&error))?;
            }
            Setting::Quota => text.lines().try_for_each(|line| quota::set(fs, line))?,
        }
        Ok(bytes.len())
    }

    /// Checks that writing to the file can change a setting.
    ///
    /// # Errors
    /// `EPERM`.
    pub(crate) fn check_writable(&self) -> Reply<()> {
        self.setting.map(drop).ok_or(Errno::PERM)
    }
}

/// The user that mounted, and what control files show of the mount.
#[derive(Clone, Debug, Default)]
pub struct Mounter {
    /// The user, as the host counts.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The server's process.
    pub pid: u32,
    /// The options in force, as `mount` writes them.
    pub options: String,
}

/// The control directory.
#[derive(Debug)]
pub(crate) struct Control {
    mounter: Mounter,
    next: AtomicU64,
}

impl Control {
    pub(crate) const fn new(mounter: Mounter) -> Self {
        Self { mounter, next: AtomicU64::new(DIRECTORY.0 + 1) }
    }

    /// Whether a number is one of the control directory or its files.
    pub(crate) const fn owns(id: NodeId) -> bool {
        id.0 >= DIRECTORY.0
    }

    /// The names of the files.
    pub(crate) const fn names() -> [&'static str; 11] {
        FILES
    }

    /// A file as it is now, under a new number.
    pub(crate) fn snapshot(
        &self,
        name: &[u8],
        now: Timestamp,
        fs: &Filesystem,
        metrics: &Metrics,
        known_inodes: usize,
        transport: Transport,
    ) -> Option<(NodeId, Snapshot)> {
        let mut text = match name {
            b"version" => env!("CARGO_PKG_VERSION").to_owned(),
            b"pid" => self.mounter.pid.to_string(),
            b"options" => self.mounter.options.clone(),
            b"transport" => transport.name().to_owned(),
            b"journal" => journal(fs),
            b"mb_stats" => mb_stats(fs),
            b"nwritebacks" => fs.writeback_contexts().map_or(0, |(count, _)| count).to_string(),
            b"nwritebacks_max" => fs.writeback_contexts().map_or(0, |(_, max)| max).to_string(),
            b"writeback_stats" => writeback_stats(fs),
            b"quota" => quota::text(fs),
            b"metrics" => metrics.text(fs, known_inodes, transport),
            _ => return None,
        };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let id = NodeId(self.next.fetch_add(1, Ordering::Relaxed));
        Some((id, Snapshot { content: text.into_bytes(), made: now, setting: Setting::of(name) }))
    }

    /// The attributes of the directory.
    pub(crate) fn directory(&self, now: Timestamp) -> Attributes {
        self.attributes(DIRECTORY, FileType::Directory, 0, now)
    }

    /// The attributes of a file.
    pub(crate) fn file(&self, id: NodeId, snapshot: &Snapshot) -> Attributes {
        let attributes = self.attributes(id, FileType::Regular, snapshot.content.len() as u64, snapshot.made);
        Attributes { mode: if snapshot.setting.is_some() { 0o600 } else { 0o400 }, ..attributes }
    }

    fn attributes(&self, id: NodeId, file_type: FileType, size: u64, time: Timestamp) -> Attributes {
        let is_directory = file_type == FileType::Directory;
        Attributes {
            inode: id.0,
            file_type,
            mode: if is_directory { 0o500 } else { 0o400 },
            links: if is_directory { 2 } else { 1 },
            uid: self.mounter.uid,
            gid: self.mounter.gid,
            size,
            blocks_512: 0,
            atime: time,
            mtime: time,
            ctime: time,
            birth: None,
            device: 0,
            block_size: 4096,
        }
    }
}

fn journal(fs: &Filesystem) -> String {
    let Some(stats) = fs.journal_statistics() else { return "none".to_owned() };
    let values = [
        ("commits", stats.commits),
        ("fast_commits", stats.fast_commits),
        ("fast_commit_blocks", stats.fast_commit_blocks),
        ("copies", stats.copies),
        ("revokes", stats.revokes),
        ("log_blocks", stats.log_blocks),
        ("checkpoints", stats.checkpoints),
        ("home_blocks", stats.checkpoint_blocks),
        ("start_waits", stats.start_waits),
        ("locked_ns", stats.locked_ns),
        ("request_delay_ns", stats.request_delay_ns),
        ("materialise_ns", stats.materialise_ns),
        ("logging_ns", stats.logging_ns),
        ("flushing_ns", stats.flushing_ns),
    ];
    values.iter().map(|(name, value)| format!("{name} {value}\n")).collect()
}

/// All writeback contexts together and each, in the names and the layout of the kernel's `wb_stats`.
fn writeback_stats(fs: &Filesystem) -> String {
    let Some(stats) = fs.writeback_statistics() else { return "none".to_owned() };
    let kilobytes = |bytes: u64| bytes.div_ceil(1024);
    let (thresh, background) = (kilobytes(stats.dirty_bytes_max), kilobytes(stats.background_bytes));
    let mut text = format!("DirtyThresh: {thresh} kB\nBackgroundThresh: {background} kB\n");
    for (index, context) in stats.contexts.iter().enumerate() {
        let values = [
            ("WbReclaimable", kilobytes(context.dirty_bytes), " kB"),
            ("WbDirtyThresh", kilobytes(context.dirty_bytes_max), " kB"),
            ("WbDirtied", kilobytes(context.dirtied_bytes), " kB"),
            ("WbWritten", kilobytes(context.written_bytes), " kB"),
            ("WbWriteBandwidth", kilobytes(context.bandwidth), " kBps"),
            ("b_dirty", context.dirty as u64, ""),
            ("b_io", context.in_flight as u64, ""),
            ("b_more_io", context.requeued as u64, ""),
            ("b_dirty_time", context.only_times as u64, ""),
            ("for_sync", context.for_sync, ""),
            ("for_pressure", context.for_pressure, ""),
            ("for_age", context.for_age, ""),
            ("for_background", context.for_background, ""),
            ("busy", context.busy, ""),
            ("failed", context.failed, ""),
            ("throttled", context.throttled, ""),
            ("throttled_ms", context.throttled_for.as_millis() as u64, ""),
        ];
        text += &format!("context {index}\n");
        text.extend(values.map(|(name, value, unit)| format!("\t{name}: {value}{unit}\n")));
    }
    text
}

/// Searches for blocks, in the names and the layout of the kernel's `mb_stats` where it has them.
fn mb_stats(fs: &Filesystem) -> String {
    let stats = fs.mballoc_statistics();
    let mut text = format!(
        "mballoc:\n\treqs: {}\n\tsuccess: {}\n\tblocks: {}\n\tgoal_hits: {}\n",
        stats.requests,
        stats.requests - stats.failed,
        stats.blocks,
        stats.at_goal
    );
    for (criterion, name) in CRITERIA.iter().enumerate() {
        let (hits, considered) = (stats.hits[criterion], stats.considered[criterion]);
        text += &format!("\t{name}_stats:\n\t\thits: {hits}\n\t\tgroups_considered: {considered}\n");
    }
    text += &format!(
        "\textents_scanned: {}\n\tgroups_locked: {}\n\tgroups_locked_otherwise: {}\n\tgroups_skipped: {}\n\tgroups_waited: {}\n\tlost: {}\n\tbitmaps_read: {}\n",
        stats.runs_scanned,
        stats.locks,
        stats.other_locks,
        stats.skipped,
        stats.waited,
        stats.lost,
        stats.bitmaps_read
    );
    let ahead = fs.prealloc_statistics();
    text += &format!(
        "\tpreallocated: {}\n\tpa_lookups: {}\n\tpa_visits: {}\n\tpa_hits: {}\n\tpa_discards: {}\n\tpa_discarded: {}\n\tpa_shortages: {}\n",
        ahead.blocks,
        ahead.lookups,
        ahead.visits,
        ahead.hits,
        ahead.discards,
        ahead.discarded_blocks,
        ahead.shortages
    );
    text += &format!(
        "\tlg_preallocated: {}\n\tlg_hits: {}\n\tlg_chunks: {}\n",
        ahead.local_blocks, ahead.local_hits, ahead.local_chunks
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant::Mount;
    use extant_block::MemoryDevice;
    use extant_rt::Arc;

    fn open(page_cache_bytes: u64) -> Filesystem {
        // Sixty-five groups of 8 MiB: 17 ranges of four groups.
        let device = MemoryDevice::new(520 << 20);
        extant::mkfs::Mkfs::new().block_size(1024).format(&device).expect("a file system");
        Mount::new().page_cache_bytes(page_cache_bytes).open_device(Arc::new(device)).expect("a mount")
    }

    fn file(control: &Control, fs: &Filesystem, name: &str) -> Snapshot {
        let made = Timestamp::default();
        let (_, snapshot) = control
            .snapshot(name.as_bytes(), made, fs, &Metrics::new(None), 0, Transport::Device)
            .expect("a control file");
        snapshot
    }

    #[test]
    fn count_of_writeback_contexts_is_read_and_written() {
        let control = Control::new(Mounter::default());
        let fs = open(8 << 20);
        let max = fs.writeback_contexts().expect("a page cache").1;
        assert_eq!(max, 17);
        assert_eq!(file(&control, &fs, "nwritebacks_max").content, b"17\n");
        let nwritebacks = file(&control, &fs, "nwritebacks");
        assert_eq!(nwritebacks.write(&fs, 0, b"1\n"), Ok(2));
        assert_eq!(file(&control, &fs, "nwritebacks").content, b"1\n");
        for (offset, bad) in [(0, "0"), (0, "18"), (0, "two"), (0, ""), (0, "-1"), (1, "2")] {
            assert_eq!(nwritebacks.write(&fs, offset, bad.as_bytes()), Err(Errno::INVAL), "{bad}");
            assert_eq!(fs.writeback_contexts(), Some((1, max)));
        }
        assert_eq!(nwritebacks.write(&fs, 0, b"2"), Ok(1));
        assert_eq!(file(&control, &fs, "nwritebacks_max").write(&fs, 0, b"2"), Err(Errno::PERM));
        let stats = String::from_utf8(file(&control, &fs, "writeback_stats").content).expect("text");
        assert!(
            stats.starts_with(
                "DirtyThresh: 4096 kB\nBackgroundThresh: 2048 kB\ncontext 0\n\tWbReclaimable: 0 kB\n"
            ),
            "{stats}"
        );
        assert!(stats.contains("\ncontext 1\n") && !stats.contains("context 2"), "{stats}");
        assert_eq!(file(&control, &fs, "version").write(&fs, 0, b"2"), Err(Errno::PERM));
    }

    #[test]
    fn every_count_up_to_the_one_that_is_told_can_be_written() {
        let control = Control::new(Mounter::default());
        let fs = open(8 << 20);
        let content = |name| String::from_utf8(file(&control, &fs, name).content).expect("text");
        let max: usize = content("nwritebacks_max").trim_end().parse().expect("a number");
        for count in 1..=max {
            let text = format!("{count}\n");
            assert_eq!(file(&control, &fs, "nwritebacks").write(&fs, 0, text.as_bytes()), Ok(text.len()));
            assert_eq!(content("nwritebacks"), text);
        }
    }

    #[test]
    fn without_a_page_cache_there_is_no_count() {
        let control = Control::new(Mounter::default());
        let fs = open(0);
        let nwritebacks = file(&control, &fs, "nwritebacks");
        assert_eq!(nwritebacks.content, b"0\n");
        assert_eq!(file(&control, &fs, "nwritebacks_max").content, b"0\n");
        assert_eq!(nwritebacks.write(&fs, 0, b"1"), Err(Errno::INVAL));
        assert_eq!(file(&control, &fs, "writeback_stats").content, b"none\n");
    }

    #[test]
    fn page_of_control_files_names_each_file_and_each_line() {
        let page = include_str!("../../../docs/reference/control-files.md");
        let control = Control::new(Mounter::default());
        let fs = open(8 << 20);
        for name in FILES {
            assert!(page.contains(&format!("\n| `{name}` |")), "{name}");
        }
        for name in ["journal", "mb_stats", "writeback_stats"] {
            let text = String::from_utf8(file(&control, &fs, name).content).expect("text");
            let keys = text.lines().filter_map(|line| line.split([':', ' ']).next());
            for key in keys.map(|key| key.trim().trim_end_matches("_stats")).filter(|key| *key != "mballoc") {
                assert!(page.contains(&format!("`{key}`")) || key == "context", "{name}: {key}");
            }
        }
    }
}
