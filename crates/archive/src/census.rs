//! Computes the space that a tree takes on a disk.
//!
//! An upper bound, close to the exact size: data and the blocks of small structures are counted exactly; directories
//! with an index are counted with leaves half full, the worst that splits leave.
//!
//! Leaves out: a disk's own metadata, which follows from its layout.
//!
//! Source: `fs/ext4/{extents,namei,xattr}.c`. Test: `tests/disk.rs`, against what importing takes.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use crate::entry::{Entry, EntryKind, Shape, Xattr};
use crate::error::{Error, Result};
use crate::flow::Sink;
use crate::path::{PathWriter, TreePath};

/// Blocks of the longest extent.
const EXTENT_BLOCKS_MAX: u64 = 32768;
/// Extents that an inode itself holds.
const INODE_EXTENTS: u64 = 4;
/// Bytes of a symbolic link that an inode itself holds.
const INODE_LINK_BYTES: usize = 59;
/// Bytes of inode fields before its attributes.
const INODE_FIELDS_BYTES: u64 = 128 + 32;

/// Directories that are counted: some 100 MiB of them.
const DIRECTORIES_MAX: usize = 1 << 21;

/// The properties of a disk's format that determine the space that a tree takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskFormat {
    /// Bytes of a block.
    pub block_size: u32,
    /// Bytes of a cluster, which is a block without `bigalloc`.
    pub cluster_size: u32,
    /// Bytes of an inode.
    pub inode_size: u32,
}

impl DiskFormat {
    /// The blocks that are taken for so many that lie in clusters of their own.
    fn in_clusters(self, blocks: u64) -> u64 {
        blocks.next_multiple_of(self.blocks_per_cluster())
    }

    fn blocks_per_cluster(self) -> u64 {
        u64::from(self.cluster_size / self.block_size).max(1)
    }
}

/// Room on a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Blocks, without inode tables; with `bigalloc` whole clusters.
    pub blocks: u64,
    /// Inodes.
    pub inodes: u64,
}

/// The directories of a tree, by number; the root is 0.
#[derive(Clone, Debug)]
struct Directories {
    directories: Vec<Directory>,
    /// Their names, one behind the other.
    names: Vec<u8>,
    /// Their numbers, by the hash of parent and name, whose keys are random: a hostile tree has no more collisions than others.
    numbers: HashTable<u32>,
    hasher: RandomState,
    /// The last directory that was looked up, and the numbers of those above it.
    last: TreePath,
    way: Vec<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Directory {
    parent: u32,
    /// Where its name ends, which begins where that of the directory before ends.
    name_end: usize,
    /// Bytes of the entries in it.
    entry_bytes: u64,
}

impl Directories {
    fn new() -> Self {
        Self {
            directories: vec![Directory { parent: 0, name_end: 0, entry_bytes: 0 }],
            names: Vec::new(),
            numbers: HashTable::new(),
            hasher: RandomState::new(),
            last: TreePath::root(),
            way: Vec::new(),
        }
    }

    /// The parent and the name of a directory.
    fn key<'a>(directories: &[Directory], names: &'a [u8], number: u32) -> (u32, &'a [u8]) {
        let Directory { parent, name_end, .. } = directories[number as usize];
        let start = number.checked_sub(1).map_or(0, |before| directories[before as usize].name_end);
        (parent, &names[start..name_end])
    }

    /// The number of the directory `name` in `parent`, if it was counted.
    fn find(&self, parent: u32, name: &[u8]) -> Option<u32> {
        let is_it = |number: &u32| Self::key(&self.directories, &self.names, *number) == (parent, name);
        self.numbers.find(self.hasher.hash_one((parent, name)), is_it).copied()
    }

    fn add(&mut self, parent: u32, name: &[u8]) -> u32 {
        let number = self.directories.len() as u32;
        self.names.extend(name);
        self.directories.push(Directory { parent, name_end: self.names.len(), entry_bytes: 0 });
        let Self { directories, names, hasher, .. } = self;
        let hash = |number: &u32| hasher.hash_one(Self::key(directories, names, *number));
        self.numbers.insert_unique(hash(&number), number, hash);
        self.name(parent, name);
        number
    }

    /// The number of the directory at `path`. It is counted now, as are those above it, if it was not before.
    fn number(&mut self, path: &TreePath) -> Result<u32> {
        let shared = self.last.shared_depth(path);
        self.way.truncate(shared);
        // If the way is left before its end it is not known.
        self.last = TreePath::root();
        for name in path.components_from(shared) {
            let parent = self.way.last().copied().unwrap_or(0);
            let number = match self.find(parent, name) {
                Some(number) => number,
                None if self.directories.len() > DIRECTORIES_MAX => {
                    return Err(Error::Limit { path: path.clone(), what: "more than 2097152 directories" });
                }
                None => self.add(parent, name),
            };
            self.way.push(number);
        }
        self.last = path.clone();
        Ok(self.way.last().copied().unwrap_or(0))
    }

    fn name(&mut self, parent: u32, name: &[u8]) {
        if let Some(directory) = self.directories.get_mut(parent as usize) {
            directory.entry_bytes += 8 + (name.len() as u64).next_multiple_of(4);
        }
    }
}

/// Counts a tree; a sink for [`crate::Extent::Entries`].
#[derive(Clone, Debug)]
pub struct Census {
    format: DiskFormat,
    needs: Needs,
    directories: Directories,
    paths: PathWriter,
    entries: u64,
    content_bytes: u64,
    digest: u128,
}

impl Census {
    /// An empty census.
    #[must_use]
    pub fn new(format: DiskFormat) -> Self {
        Self {
            format,
            needs: Needs::default(),
            directories: Directories::new(),
            paths: PathWriter::default(),
            entries: 0,
            content_bytes: 0,
            digest: 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d,
        }
    }

    /// Room for what was counted, below a root directory that exists.
    #[must_use]
    pub fn needs(&self) -> Needs {
        let directories = &self.directories.directories;
        let blocks_of = |entry_bytes| self.format.in_clusters(self.directory_blocks(entry_bytes));
        let blocks = directories.iter().map(|one| blocks_of(one.entry_bytes)).sum::<u64>();
        // The root has its inode and its first cluster already.
        let made = directories.len() as u64 - 1;
        Needs {
            blocks: self.needs.blocks + blocks - self.format.in_clusters(1),
            inodes: self.needs.inodes + made,
        }
    }

    /// Entries counted.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Bytes of content counted, without holes.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// A number that follows from the entries counted: paths, kinds, sizes, attributes; not from the content.
    #[must_use]
    pub fn digest(&self) -> u128 {
        self.digest
    }

    /// FNV-1a.
    fn digest_bytes(&mut self, bytes: &[u8]) {
        // The length keeps neighbouring fields apart.
        for byte in (bytes.len() as u64).to_le_bytes().iter().chain(bytes) {
            self.digest = (self.digest ^ u128::from(*byte)).wrapping_mul(0x0100_0000_0000_0000_0000_013b);
        }
    }

    fn digest_entry(&mut self, entry: &Entry) {
        let attributes = &entry.attributes;
        let (kind, detail) = match &entry.kind {
            EntryKind::Directory => (0_u8, Vec::new()),
            EntryKind::File(shape) => (1, shape.size.to_le_bytes().to_vec()),
            EntryKind::HardLink(original) => (2, original.to_bytes()),
            EntryKind::Symlink(says) => (3, says.clone()),
            EntryKind::Fifo => (4, Vec::new()),
            EntryKind::Socket => (5, Vec::new()),
            EntryKind::CharDevice(major, minor) => (6, [major.to_le_bytes(), minor.to_le_bytes()].concat()),
            EntryKind::BlockDevice(major, minor) => (7, [major.to_le_bytes(), minor.to_le_bytes()].concat()),
        };
        let path = self.paths.spell(&entry.path).to_vec();
        self.digest_bytes(&path);
        self.digest_bytes(&[&[kind], detail.as_slice()].concat());
        self.digest_bytes(&attributes.mode.to_le_bytes());
        self.digest_bytes(&[attributes.uid.to_le_bytes(), attributes.gid.to_le_bytes()].concat());
        self.digest_bytes(&attributes.mtime.seconds.to_le_bytes());
        self.digest_bytes(&attributes.mtime.nanoseconds.to_le_bytes());
        for (name, value) in &attributes.xattrs {
            self.digest_bytes(name);
            self.digest_bytes(value);
        }
    }

    fn directory_blocks(&self, entry_bytes: u64) -> u64 {
        let block = u64::from(self.format.block_size);
        // The checksum's tail, and `.` and `..` in the first block.
        let (usable, dots) = (block - 12, 24);
        if entry_bytes + dots <= usable {
            return 1;
        }
        let leaves = (2 * entry_bytes).div_ceil(usable) + 1;
        let per_node = (block - 32) / 8;
        1 + leaves + if leaves > per_node { 2 * leaves.div_ceil(per_node) } else { 0 }
    }

    fn file_blocks(&self, shape: &Shape) -> u64 {
        let block = u64::from(self.format.block_size);
        let cluster = u64::from(self.format.cluster_size);
        let (mut clusters, mut extents, mut next, mut next_cluster) = (0, 0, 0, 0);
        for range in &shape.ranges {
            let start = (range.offset / block).max(next);
            let end = (range.offset + range.bytes).div_ceil(block);
            let len = end.saturating_sub(start);
            let cluster_end = (range.offset + range.bytes).div_ceil(cluster);
            clusters += cluster_end.saturating_sub((range.offset / cluster).max(next_cluster));
            // The metadata of block groups splits each long run into one more extent.
            let cuts = if len > EXTENT_BLOCKS_MAX / 4 { 1 + len / EXTENT_BLOCKS_MAX } else { 0 };
            extents += len.div_ceil(EXTENT_BLOCKS_MAX) + cuts;
            (next, next_cluster) = (end, cluster_end);
        }
        (clusters + self.tree_blocks(extents)) * self.format.blocks_per_cluster()
    }

    /// Blocks of an extent tree.
    fn tree_blocks(&self, extents: u64) -> u64 {
        let per_node = (u64::from(self.format.block_size) - 16) / 12;
        let (mut total, mut level) = (0, extents);
        while level > INODE_EXTENTS {
            level = level.div_ceil(per_node);
            total += level;
        }
        total
    }

    /// Blocks for attributes: one if they do not all fit into the inode.
    fn xattr_blocks(&self, xattrs: &[Xattr]) -> u64 {
        let room = u64::from(self.format.inode_size).saturating_sub(INODE_FIELDS_BYTES + 8);
        let bytes = |bytes: usize| (bytes as u64).next_multiple_of(4);
        let needed: u64 =
            xattrs.iter().map(|(name, value)| 16 + bytes(name.len()) + bytes(value.len())).sum();
        u64::from(needed > room)
    }
}

impl Sink for Census {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        self.entries += 1;
        self.digest_entry(&entry);
        self.needs.blocks += self.format.in_clusters(self.xattr_blocks(&entry.attributes.xattrs));
        if entry.kind == EntryKind::Directory {
            return self.directories.number(&entry.path).map(drop);
        }
        if let Some((parent, name)) = entry.path.split_last() {
            let parent = self.directories.number(parent)?;
            self.directories.name(parent, name);
        }
        self.needs.inodes += u64::from(!matches!(entry.kind, EntryKind::HardLink(_)));
        self.needs.blocks += match &entry.kind {
            EntryKind::File(shape) => {
                self.content_bytes += shape.data_bytes();
                self.file_blocks(shape)
            }
            EntryKind::Symlink(says) => self.format.in_clusters(u64::from(says.len() > INODE_LINK_BYTES)),
            _ => 0,
        };
        Ok(())
    }

    fn content(&mut self, _offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        Ok(bytes)
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}
