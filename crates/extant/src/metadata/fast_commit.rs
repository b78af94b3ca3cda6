//! What changed since the last commit, for fast commits: inodes, ranges of files, names.
//!
//! An update is tracked if it says so, and only then changes what records can say. Any other makes the transaction one that is committed:
//! a change that was not thought of is never lost. In a tracked update, what no record says makes the transaction such a one too.
//!
//! All inodes with tracked changes go into each fast commit, or two files could have one block after a crash.
//!
//! Invariant: no handle is open while records are collected, so that they say one state.
//!
//! Locks: `CACHE` (key 3) for moments; while records are collected, `INODE_STATE` and `BUFFER` too, never within it.
//!
//! Source: `ext4_fc_track_*`, `ext4_fc_commit_dentry_updates`, `ext4_fc_write_inode` (`fs/ext4/fast_commit.c`). Tests: `../tests/fast_commit`,
//! `../tests/crash`.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use extant_ondisk::fast_commit::{Change, Dentry};
use extant_ondisk::{Extent, FileType, InodeFlags, InodeNumber, LogicalBlock, RawInode};
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

    /// Notes a change, unless there are so many that the transaction is to be committed.
    fn track(&self, note: impl FnOnce(&mut Changes)) {
        if !self.is_tracking() {
            return;
        }
        let mut changes = self.changes.lock();
        note(&mut changes);
        if changes.inodes.len() + changes.names.len() > RECORDS_MAX {
            *changes = Changes::default();
            self.mark_ineligible();
        }
    }

    /// An inode changed that is no directory.
    pub(crate) fn track_inode(&self, inode: &Arc<Inode>) {
        self.track(|changes| {
            changes.inode(inode);
        });
    }

    /// Blocks of a file have another mapping.
    pub(crate) fn track_range(&self, inode: &Arc<Inode>, range: Range<u64>) {
        if !range.is_empty() {
            self.track(|changes| add_range(&mut changes.inode(inode).ranges, range));
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
        let name = ChangedName { change, parent, inode: inode.clone(), name: name.into() };
        self.track(|changes| changes.names.push(name));
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
        let created = self.names.iter().filter(|name| name.change == NameChange::Creat);
        let created: BTreeSet<_> = created.map(|name| Arc::as_ptr(&name.inode)).collect();
        let is_created = |inode: &Arc<Inode>| created.contains(&Arc::as_ptr(inode));
        for name in &self.names {
            // Of an inode that came and went nothing is left.
            if is_deleted(&name.inode) && is_created(&name.inode) {
                continue;
            }
            let dentry = Dentry { parent: name.parent, inode: name.inode.number, name: &name.name };
            match name.change {
                NameChange::Creat => {
                    // First the inode, which the name is given: all its bytes, or Linux leaves it the attributes of one that had its
                    // number, and without blocks, or e2fsck leaves it theirs.
                    let raw = said_by_fields(&name.inode)?;
                    push(&Change::Inode(name.inode.number, raw.as_bytes()), &mut out)?;
                    push(&Change::DelRange(name.inode.number, LogicalBlock(0), u32::MAX), &mut out)?;
                    push(&Change::Creat(dentry), &mut out)?;
                }
                NameChange::Link => push(&Change::Link(dentry), &mut out)?,
                NameChange::Unlink => push(&Change::Unlink(dentry), &mut out)?,
            }
        }
        for changed in self.inodes.values().filter(|changed| !is_deleted(&changed.inode)) {
            // The fields come last: Linux counts the blocks of an inode when it comes to them.
            if is_created(&changed.inode)
                && changed.ranges.is_empty()
                && changed.inode.raw().links_count() == 1
            {
                continue;
            }
            push_ranges(changed, &map, &mut out)?;
            let raw = said_by_fields(&changed.inode)?;
            push(&Change::Inode(changed.inode.number, raw.field_bytes()), &mut out)?;
        }
        Some(out)
    }
}

/// The mapping of the ranges of an inode that changed: first what is mapped, then the holes, the first one last. e2fsck (1.47.0) keeps a
/// hole in place of a file's only extent as one of no blocks, and takes it for 2^32 of them if more of the file follows.
fn push_ranges(
    changed: &ChangedInode,
    map: impl Fn(&Inode, Range<u64>) -> Result<Vec<Extent>>,
    out: &mut Vec<Vec<u8>>,
) -> Option<()> {
    let number = changed.inode.number;
    let mut holes = Vec::new();
    for range in &changed.ranges {
        let mut at = range.start;
        // What cannot be read is committed, and found there.
        for extent in map(&changed.inode, range.clone()).ok()? {
            push(&Change::AddRange(number, extent), out)?;
            holes.push(at..u64::from(extent.logical.0));
            at = extent.end();
        }
        holes.push(at..range.end);
    }
    for hole in holes.iter().rev().filter(|hole| !hole.is_empty()) {
        let len = u32::try_from(hole.end - hole.start).unwrap_or(u32::MAX);
        push(&Change::DelRange(number, LogicalBlock(hole.start as u32), len), out)?;
    }
    Some(())
}

/// An inode of which its fields and ranges say everything. It is a file with a name, for Linux does not mount records of others, and with
/// extents; not with a block of attributes, which Linux does not count among the blocks of an inode that it replays, nor in the list of
/// orphans, of which its neighbours change it.
fn said_by_fields(inode: &Inode) -> Option<Arc<RawInode>> {
    let raw = inode.raw();
    let flags = InodeFlags::EXTENTS | InodeFlags::EA_INODE | InodeFlags::INLINE_DATA;
    let is_said = raw.file_type() == FileType::Regular
        && raw.flags() & flags == InodeFlags::EXTENTS
        && raw.links_count() > 0
        && raw.dtime() == 0
        && raw.file_acl().0 == 0;
    is_said.then_some(raw)
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
