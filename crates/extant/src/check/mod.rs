//! The consistency check: everything on the disk against everything else, without changing a byte.
//!
//! It finds what `e2fsck -fn` finds in its passes 0 to 5 and of usage, and says where; repairing is `e2fsck`'s. Each pass has a
//! file: superblock, groups, inodes (with their maps and attributes), directories, connections and link counts,
//! bitmaps and counts. It decodes with `ondisk` alone and shares nothing with the code that reads files and
//! directories, so that neither can hide the other's faults.
//!
//! Leaves out: repairing; the content of files; whether names are encoded well.
//!
//! Invariants: memory is one bit per cluster and inode and a small record per inode, all of it only for groups that are in use, and a list
//! per directory, shared block and value in an inode of its own, and a few MiB that are read ahead where the device takes time; every metadata block is read a fixed number of times, because a block that
//! was claimed before is not descended into; after [`FINDINGS_MAX`] findings it stops.
//!
//! Locks: none held. The check does not see uncommitted changes of a mounted volume, so a volume that is being written must be synced
//! before and not changed meanwhile.
//!
//! Source: the passes of `e2fsck`. Tests: `tests/check/`.

mod ahead;
mod claims;
mod connections;
mod counts;
mod directories;
mod entries;
mod extents;
mod findings;
mod groups;
mod htree;
mod indirect;
mod inline;
mod inodes;
mod links;
mod maps;
mod orphans;
mod quota;
mod reading;
mod records;
mod reserved;
mod superblock;
mod values;
mod xattrs;

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Location, Result};
use crate::mount::Volume;
use extant_ondisk::{
    Checksums, FsBlock, Geometry, GroupDescriptor, GroupNumber, InodeNumber, Structure, Superblock,
};

use ahead::Ahead;
use claims::Claims;
use directories::Directory;
use findings::Findings;
use quota::Usage;
use records::Records;
use superblock::NOT_CHECKED;
use xattrs::SharedBlock;

pub use findings::{FINDINGS_MAX, Finding};

/// A part of the check, in the order of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Pass {
    /// The superblock, its copies, the descriptors. Counted in groups.
    Groups,
    /// Inodes, with what maps their blocks and with their attributes. Counted in groups.
    Inodes,
    /// The entries of directories. Counted in directories.
    Directories,
    /// Ways to the root, and link counts. Counted in groups.
    Links,
    /// Bitmaps and counts. Counted in groups.
    Counts,
}

/// How far a check has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The part under way.
    pub pass: Pass,
    /// How much of it is done, in the pass's own unit.
    pub done: u64,
    /// How much there is.
    pub total: u64,
}

impl Volume {
    /// As [`crate::Filesystem::check`].
    ///
    /// # Errors
    /// `Io` where the device cannot be read; `Incompatible`.
    pub(crate) fn check(&self, progress: &mut dyn FnMut(Progress)) -> Result<Vec<Finding>> {
        let mut checker = Checker::new(self)?;
        let unknown = checker.superblock.ro_compat() & NOT_CHECKED;
        if !unknown.is_empty() {
            return Err(Error::Incompatible(unknown.all_names().collect::<Vec<_>>().join(", ")));
        }
        match checker.run(progress) {
            // A block outside of the disk was to be read; nothing can be said of what comes after.
            Err(Error::Corrupt { location, reason }) => checker.findings.add(location, reason),
            other => other?,
        }
        Ok(checker.findings.into_list())
    }
}

/// The state that the passes share: the disk, and the findings so far.
struct Checker<'v> {
    volume: &'v Volume,
    geometry: &'v Geometry,
    checksums: &'v Checksums,
    superblock: Superblock,
    ahead: Ahead,
    /// The descriptors of all groups, in order.
    descriptors: Vec<GroupDescriptor>,
    /// The file system's own runs of blocks, sorted.
    own_runs: Vec<(FsBlock, u64)>,
    findings: Findings,
    claims: Claims,
    records: Records,
    /// The inodes that the orphan list and the orphan file name.
    orphans: BTreeSet<InodeNumber>,
    directories: BTreeMap<InodeNumber, Directory>,
    xattr_blocks: BTreeMap<FsBlock, SharedBlock>,
    /// Entries that name an inode for their value.
    value_references: BTreeMap<InodeNumber, u64>,
    /// What users, groups and projects take.
    usage: Usage,
    /// A directory could not be read whole, so names may be missing.
    names_incomplete: bool,
}

impl<'v> Checker<'v> {
    fn new(volume: &'v Volume) -> Result<Self> {
        let geometry = &volume.geometry;
        let (block, offset) = volume.superblock_location();
        let bytes = volume.read_block(block, Location::of(Structure::Superblock))?;
        let newest = bytes.get(offset..).and_then(|bytes| Superblock::parse(bytes).ok());
        Ok(Self {
            volume,
            geometry,
            checksums: &volume.checksums,
            // Damage that came after mounting is `check_superblock`'s to find.
            superblock: newest.unwrap_or_else(|| volume.superblock.lock().clone()),
            ahead: Ahead::default(),
            descriptors: Vec::new(),
            own_runs: Vec::new(),
            findings: Findings::default(),
            claims: Claims::new(geometry),
            records: Records::new(geometry),
            orphans: BTreeSet::new(),
            directories: BTreeMap::new(),
            xattr_blocks: BTreeMap::new(),
            value_references: BTreeMap::new(),
            usage: Usage::new(),
            names_incomplete: false,
        })
    }

    fn run(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<()> {
        self.check_superblock()?;
        self.check_groups(progress)?;
        self.read_orphans()?;
        self.check_inodes(progress)?;
        self.check_shared_xattr_blocks();
        self.check_special_inodes()?;
        self.check_directories(progress)?;
        self.check_connections();
        self.check_links(progress)?;
        self.check_counts(progress)?;
        self.check_quotas()
    }

    fn groups(&self) -> impl Iterator<Item = GroupNumber> + use<> {
        (0..self.geometry.group_count).map(GroupNumber)
    }

    /// Reports how many groups of a pass are done.
    fn tell(&self, progress: &mut dyn FnMut(Progress), pass: Pass, group: GroupNumber) {
        let total = u64::from(self.geometry.group_count);
        progress(Progress { pass, done: u64::from(group.0) + 1, total });
    }
}
