//! What changed since the last commit, for fast commits: inodes, ranges of files, names.
//!
//! An update is tracked if it says so, and only then changes what records can say. Any other makes the transaction one that is committed:
//! what nobody thought of is never lost. In a tracked update, what no record says makes the transaction such a one too.
//!
//! All inodes with tracked changes go into a fast commit, whoever asked for it, or two files could have one block after a crash.
//!
//! Invariant: no handle is open while records are collected, so that they say one state.
//!
//! Locks: `CACHE` (key 3) for moments; while records are collected, `INODE_STATE` and `BUFFER` too, never within it.
//!
//! Source: `ext4_fc_track_*`, `ext4_fc_commit_dentry_updates`, `ext4_fc_write_inode` (`fs/ext4/fast_commit.c`). Tests: `../tests/fast_commit`,
//! `../tests/crash`.

use std::collections::BTreeMap;
use std::ops::Range;

use extant_ondisk::fast_commit::{Change, Dentry};
use extant_ondisk::{Extent, InodeNumber, LogicalBlock};
use extant_rt::{Arc, AtomicBool, LockClass, Mutex, Ordering};

use crate::error::Result;
use crate::incore::inode::Inode;

/// Ranges of a file that are tracked apart; with more, the two that are nearest become one.
const RANGES_MAX: usize = 16;
/// Records of a fast commit, beyond which a commit of the transaction costs no more.
const RECORDS_MAX: usize = 4096;

/// How a name changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NameChange {
    /// It is there, and its inode is new.
    Creat,
    /// It is there.
    Link,
    /// It is not there.
    Unlink,
}

/// The changes since the last commit.
#[derive(Debug)]
pub(crate) struct FastCommits {
    is_on: bool,
    /// The running transaction has changes that no record says.
    is_ineligible: AtomicBool,
    changes: Mutex<Changes>,
}

#[derive(Debug, Default)]
struct Changes {
    inodes: BTreeMap<InodeNumber, ChangedInode>,
    names: Vec<ChangedName>,
}

#[derive(Debug)]
struct ChangedInode {
    inode: Arc<Inode>,
    ranges: Vec<Range<u64>>,
}

#[derive(Debug)]
struct ChangedName {
    change: NameChange,
    parent: InodeNumber,
    inode: Arc<Inode>,
    name: Box<[u8]>,
}

impl FastCommits {
    pub(crate) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            is_ineligible: AtomicBool::new(false),
            changes: Mutex::with_key(LockClass::CACHE, 3, Changes::default()),
        }
    }

    /// Whether changes are tracked at all.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on
    }

    /// The running transaction has a change that no record says. With a handle open.
    pub(crate) fn mark_ineligible(&self) {
        // Relaxed: the handle's gate orders it before the records are collected. Read first, so that threads share the line.
        if self.is_on && !self.is_ineligible.load(Ordering::Relaxed) {
            self.is_ineligible.store(true, Ordering::Relaxed);
        }
    }

    fn is_tracking(&self) -> bool {
        self.is_on && !self.is_ineligible.load(Ordering::Relaxed)
    }

    /// An inode changed that is no directory.
    pub(crate) fn track_inode(&self, inode: &Arc<Inode>) {
        if self.is_tracking() {
            self.changes.lock().inode(inode);
        }
    }

    /// Blocks of a file have another mapping.
    pub(crate) fn track_range(&self, inode: &Arc<Inode>, range: Range<u64>) {
        if self.is_tracking() && !range.is_empty() {
            add_range(&mut self.changes.lock().inode(inode).ranges, range);
        }
    }

    /// A name changed.
    pub(crate) fn track_name(
        &self,
        change: NameChange,
        parent: InodeNumber,
        inode: &Arc<Inode>,
        name: &[u8],
    ) {
        if self.is_tracking() {
            let name = ChangedName { change, parent, inode: inode.clone(), name: name.into() };
            self.changes.lock().names.push(name);
        }
    }

    /// The transaction is frozen: all that was tracked is in it.
    pub(crate) fn forget(&self) {
        if self.is_on {
            *self.changes.lock() = Changes::default();
            self.is_ineligible.store(false, Ordering::Relaxed);
        }
    }

    /// The records of what changed since the last commit; `None` if records cannot say it. `map` gives the extents of a range of a file.
    /// No handle is open.
    pub(crate) fn collect(
        &self,
        map: impl Fn(&Inode, Range<u64>) -> Result<Vec<Extent>>,
    ) -> Option<Vec<Vec<u8>>> {
        if !self.is_tracking() {
            return None;
        }
        let changes = std::mem::take(&mut *self.changes.lock());
        changes.records(map).filter(|records| records.len() <= RECORDS_MAX)
    }
}

impl Changes {
    fn inode(&mut self, inode: &Arc<Inode>) -> &mut ChangedInode {
        let fresh = || ChangedInode { inode: inode.clone(), ranges: Vec::new() };
        let changed = self.inodes.entry(inode.number).or_insert_with(fresh);
        if !Arc::ptr_eq(&changed.inode, inode) {
            // The number was deleted and allocated again.
            *changed = fresh();
        }
        changed
    }

    fn records(&self, map: impl Fn(&Inode, Range<u64>) -> Result<Vec<Extent>>) -> Option<Vec<Vec<u8>>> {
        let mut out = Vec::new();
        let is_deleted = |inode: &Inode| inode.state().deleted;
        let is_created = |inode: &Arc<Inode>| {
            self.names.iter().any(|name| name.change == NameChange::Creat && Arc::ptr_eq(&name.inode, inode))
        };
        for name in &self.names {
            // Of an inode that came and went nothing is left.
            if is_deleted(&name.inode) && is_created(&name.inode) {
                continue;
            }
            let dentry = Dentry { parent: name.parent, inode: name.inode.number, name: &name.name };
            match name.change {
                NameChange::Creat => {
                    // First the inode, which the name is given.
                    push_fields(&name.inode, &mut out)?;
                    self.push_ranges(&name.inode, &map, &mut out)?;
                    push(&Change::Creat(dentry), &mut out)?;
                }
                NameChange::Link => push(&Change::Link(dentry), &mut out)?,
                NameChange::Unlink => push(&Change::Unlink(dentry), &mut out)?,
            }
        }
        for changed in self.inodes.values().filter(|changed| !is_deleted(&changed.inode)) {
            // The fields come last: Linux counts the blocks of an inode when it comes to them.
            if !is_created(&changed.inode) {
                self.push_ranges(&changed.inode, &map, &mut out)?;
                push_fields(&changed.inode, &mut out)?;
            } else if !changed.ranges.is_empty() || changed.inode.raw().links_count() != 1 {
                push_fields(&changed.inode, &mut out)?;
            }
        }
        Some(out)
    }

    /// The mapping of the ranges of an inode that changed.
    fn push_ranges(
        &self,
        inode: &Arc<Inode>,
        map: impl Fn(&Inode, Range<u64>) -> Result<Vec<Extent>>,
        out: &mut Vec<Vec<u8>>,
    ) -> Option<()> {
        let changed = self.inodes.get(&inode.number).filter(|changed| Arc::ptr_eq(&changed.inode, inode));
        for range in changed.into_iter().flat_map(|changed| &changed.ranges) {
            let mut at = range.start;
            let hole = |from: u64, end: u64| {
                let len = u32::try_from(end - from).unwrap_or(u32::MAX);
                Change::DelRange(inode.number, LogicalBlock(from as u32), len)
            };
            // What cannot be read is committed, and found there.
            for extent in map(inode, range.clone()).ok()? {
                if u64::from(extent.logical.0) > at {
                    push(&hole(at, u64::from(extent.logical.0)), out)?;
                }
                push(&Change::AddRange(inode.number, extent), out)?;
                at = extent.end();
            }
            if at < range.end {
                push(&hole(at, range.end), out)?;
            }
        }
        Some(())
    }
}

/// The fields of an inode, unless it has a block of attributes: Linux does not count that among the blocks of an inode that it replays.
fn push_fields(inode: &Inode, out: &mut Vec<Vec<u8>>) -> Option<()> {
    let raw = inode.raw();
    if raw.file_acl().0 != 0 {
        return None;
    }
    push(&Change::Inode(inode.number, raw.field_bytes()), out)
}

fn push(change: &Change<'_>, out: &mut Vec<Vec<u8>>) -> Option<()> {
    let mut record = Vec::new();
    change.write(&mut record).ok()?;
    out.push(record);
    Some(())
}

/// Adds a range to others, ascending and apart.
fn add_range(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    let first = ranges.partition_point(|other| other.end < range.start);
    let behind = ranges.partition_point(|other| other.start <= range.end);
    let joined = ranges[first..behind]
        .iter()
        .fold(range, |joined, other| joined.start.min(other.start)..joined.end.max(other.end));
    ranges.splice(first..behind, [joined]);
    if ranges.len() > RANGES_MAX {
        let gap = |at: &usize| ranges[at + 1].start - ranges[*at].end;
        if let Some(at) = (0..ranges.len() - 1).min_by_key(gap) {
            let joined = ranges[at].start..ranges[at + 1].end;
            ranges.splice(at..at + 2, [joined]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "a list of one range")]
    fn ranges_join_where_they_touch_and_where_there_are_too_many() {
        let mut ranges = Vec::new();
        for range in [10..20, 30..40, 20..25, 5..6] {
            add_range(&mut ranges, range);
        }
        assert_eq!(ranges, [5..6, 10..25, 30..40]);
        add_range(&mut ranges, 0..100);
        assert_eq!(ranges, [0..100]);
        for at in 1..=20 {
            add_range(&mut ranges, at * 1000..at * 1000 + 10 * at);
        }
        assert_eq!(ranges.len(), RANGES_MAX);
        assert_eq!((ranges[0].start, ranges[RANGES_MAX - 1].end), (0, 20_200));
    }
}
