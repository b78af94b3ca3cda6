//! The control directory `.extant` at the root of a mount: files that read as those of sysfs do.
//!
//! It is the mounter's own, is not listed, and never stands before a real entry of that name. Each look-up of a file
//! makes an inode of its own with the content of that moment: one open is one snapshot, with its true size.

use extant::{FileType, Filesystem, Timestamp};
use extant_rt::{AtomicU64, Ordering};

use crate::metrics::Metrics;
use crate::ops::{Attributes, NodeId, Transport};

/// The directory's name.
pub(crate) const NAME: &[u8] = b".extant";

/// The directory's number; above those of inodes, which have 32 bits. Those of files are above it.
pub(crate) const DIRECTORY: NodeId = NodeId(1 << 48);

/// The files.
const FILES: [&str; 7] = ["journal", "mb_stats", "metrics", "options", "pid", "transport", "version"];

/// A control file as it was when it was looked up.
#[derive(Debug)]
pub(crate) struct Snapshot {
    content: Vec<u8>,
    made: Timestamp,
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
}

/// Who mounted, and what is to be told of it.
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
    pub(crate) const fn names() -> [&'static str; 7] {
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
            b"metrics" => metrics.text(fs, known_inodes, transport),
            _ => return None,
        };
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let id = NodeId(self.next.fetch_add(1, Ordering::Relaxed));
        Some((id, Snapshot { content: text.into_bytes(), made: now }))
    }

    /// The attributes of the directory.
    pub(crate) fn directory(&self, now: Timestamp) -> Attributes {
        self.attributes(DIRECTORY, FileType::Directory, 0, now)
    }

    /// The attributes of a file.
    pub(crate) fn file(&self, id: NodeId, snapshot: &Snapshot) -> Attributes {
        self.attributes(id, FileType::Regular, snapshot.content.len() as u64, snapshot.made)
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
        ("copies", stats.copies),
        ("revokes", stats.revokes),
        ("log_blocks", stats.log_blocks),
        ("checkpoints", stats.checkpoints),
        ("home_blocks", stats.home_blocks),
        ("start_waits", stats.start_waits),
    ];
    values.iter().map(|(name, value)| format!("{name} {value}\n")).collect()
}

/// Searches for blocks, in the names and the layout of the kernel's `mb_stats` where it has them.
fn mb_stats(fs: &Filesystem) -> String {
    const CRITERIA: [&str; 5] =
        ["cr_p2_aligned", "cr_goal_fast", "cr_best_avail", "cr_goal_slow", "cr_any_free"];
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
