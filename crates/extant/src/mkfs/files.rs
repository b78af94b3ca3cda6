//! The blocks of a new file system's few files: root directory, lost+found, resize inode, journal, MMP block, quota files, orphan
//! file; taken in this order, first free first.
//!
//! Source: `mke2fs`, `ext2fs_add_journal_inode3`, `ext2fs_fallocate` of e2fsprogs 1.47.0, whose places are matched.

use extant_ondisk::extent::{MAX_LEN, ROOT_CAPACITY, block_capacity};
use extant_ondisk::inode::I_BLOCK_SIZE;
use extant_ondisk::{
    CompatFeatures, Entries, Extent, ExtentIndex, ExtentNode, FsBlock, Geometry, GroupNumber, InodeNumber,
    LogicalBlock, QuotaType, indirect,
};

use super::features::Features;
use super::quotas;
use super::sizes::{default_fast_commit_blocks, default_journal_blocks};
use super::space::Space;
use super::{Error, Mkfs, Result};

const JOURNAL_BLOCKS_MIN: u32 = 1024;
const JOURNAL_BLOCKS_MAX: u32 = 10_240_000;
/// lost+found is made of whole blocks up to this size, so that `e2fsck` need not allocate.
const LOST_FOUND_BYTES: u32 = 16 << 10;
pub(crate) const ORPHAN_FILE_BLOCKS: (u64, u64) = (32, 512);

/// Where a file's blocks are.
#[derive(Clone, Debug)]
pub(super) struct FileMap {
    /// The map in the inode.
    pub i_block: [u8; I_BLOCK_SIZE],
    pub extents: bool,
    /// First block and number of blocks, in the order of the file.
    pub runs: Vec<(u64, u64)>,
    /// Blocks of the map outside of the inode.
    pub tree: Vec<(FsBlock, Box<[u8]>)>,
}

/// A quota file.
#[derive(Clone, Debug)]
pub(super) struct QuotaFile {
    pub quota_type: QuotaType,
    pub inode: InodeNumber,
    pub map: FileMap,
    pub bytes: Vec<u8>,
}

/// The files and metadata of a new disk outside its groups' tables.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub root: FileMap,
    pub lost_found: FileMap,
    /// The block of block numbers of the resize inode's indirect blocks.
    pub resize: Option<FsBlock>,
    pub journal: Option<FileMap>,
    pub mmp: Option<FsBlock>,
    pub quotas: Vec<QuotaFile>,
    pub orphans: Option<FileMap>,
}

impl FileMap {
    /// Blocks of the file.
    pub fn len(&self) -> u64 {
        self.runs.iter().map(|(_, len)| len).sum()
    }

    /// Blocks of the clusters of the file and of its map.
    pub fn blocks(&self, geometry: &Geometry) -> u64 {
        let runs: u64 = self.runs.iter().map(|(_, len)| geometry.clusters_of(*len)).sum();
        geometry.blocks_of_clusters(runs + self.tree.len() as u64)
    }

    /// The file's blocks.
    pub fn iter(&self) -> impl Iterator<Item = FsBlock> + '_ {
        self.runs.iter().flat_map(|(start, len)| (*start..start + len).map(FsBlock))
    }
}

impl Files {
    /// Takes the blocks of all files.
    pub fn new(options: &Mkfs, features: &Features, geometry: &Geometry, space: &mut Space) -> Result<Self> {
        let extents = features.has_extents();
        let allocate =
            |space: &mut Space, goal, len| allocate(space, goal, len, extents, geometry.block_size);
        let root = allocate(space, 0, 1)?;
        let lost_found = allocate(space, 0, lost_found_blocks(geometry.block_size))?;
        let resize = match features.has_resize_inode() {
            true => Some(space.take(resize_goal(geometry))?),
            false => None,
        };
        let journal = match journal_blocks(options, features, geometry, space)? {
            0 => None,
            len => {
                let packed = options.extended.packed_meta_blocks;
                let goal = if extents && !packed { journal_goal(geometry, space) } else { 0 };
                Some(allocate(space, goal, u64::from(len))?)
            }
        };
        let mmp = if features.has_mmp() { Some(space.take(0)?) } else { None };
        let bytes = |map: &FileMap| map.blocks(geometry) * u64::from(geometry.block_size);
        let taken = [(options.extended.root_owner, bytes(&root)), ((0, 0), bytes(&lost_found))];
        let mut quotas = Vec::new();
        for quota_type in quotas::types(features, options.extended.quota_types.as_deref())? {
            let bytes = quotas::bytes_of(quota_type, &taken)?;
            let len = (bytes.len() as u64).div_ceil(u64::from(geometry.block_size));
            let map = allocate(space, 0, len)?;
            quotas.push(QuotaFile { quota_type, inode: quotas::inode_of(quota_type), map, bytes });
        }
        let orphans = if features.has_orphan_file() {
            let (least, most) = ORPHAN_FILE_BLOCKS;
            let len = match options.extended.orphan_file_blocks {
                Some(0) => return Err(Error::invalid("size of the orphan file", 0)),
                Some(blocks) => u64::from(blocks).min(most),
                None => (geometry.blocks_count / 4096).clamp(least, most),
            };
            Some(allocate(space, 0, len)?)
        } else {
            None
        };
        Ok(Self { root, lost_found, resize, journal, mmp, quotas, orphans })
    }
}

/// Behind the inode table of group 0, if that followed its bitmaps.
fn resize_goal(geometry: &Geometry) -> u64 {
    let first = GroupNumber(0);
    let metadata = geometry.base_meta_blocks(first) + geometry.inode_table_blocks_per_group;
    geometry.group_first_block(first).0 + u64::from(metadata) + 1
}

fn lost_found_blocks(block_size: u32) -> u64 {
    // Two blocks at least, and no more than an inode names directly.
    u64::from((LOST_FOUND_BYTES / block_size).clamp(2, indirect::DIRECT))
}

fn journal_blocks(options: &Mkfs, features: &Features, geometry: &Geometry, space: &Space) -> Result<u32> {
    if !features.has_journal() {
        return Ok(0);
    }
    let asked = match (options.journal_blocks, options.journal_megabytes) {
        (Some(blocks), _) => Some(blocks),
        (None, Some(megabytes)) => {
            let blocks = (u64::from(megabytes) << 20) / u64::from(geometry.block_size);
            Some(u32::try_from(blocks).map_err(|_| Error::TooLarge("journal"))?)
        }
        (None, None) => None,
    };
    let area = match features.compat.contains(CompatFeatures::FAST_COMMIT) {
        true => default_fast_commit_blocks(geometry.blocks_count),
        false => 0,
    };
    let Some(asked) = asked else { return Ok(default_journal_blocks(geometry.blocks_count) + area) };
    let blocks = asked.saturating_add(area);
    if !(JOURNAL_BLOCKS_MIN..=JOURNAL_BLOCKS_MAX).contains(&blocks) {
        return Err(Error::invalid("journal size in blocks", blocks));
    }
    if u64::from(blocks) > space.free_count() / 2 {
        return Err(Error::TooLarge("the journal would take more than half of the disk"));
    }
    Ok(blocks)
}

/// The start of the freest group about the middle of the disk (`get_midpoint_journal_block`).
fn journal_goal(geometry: &Geometry, space: &Space) -> u64 {
    let middle = (geometry.blocks_count - u64::from(geometry.first_data_block)) / 2;
    let group = geometry.group_of(FsBlock(middle)).map_or(0, |(group, _)| group.0);
    let per_flex = geometry.groups_per_flex;
    let free = |group: u32| space.free_in_group(geometry, GroupNumber(group));
    let start = if per_flex > 1 && group > per_flex {
        let flex_start = group / per_flex * per_flex;
        (flex_start..geometry.group_count).find(|group| free(*group) > 0).unwrap_or(0)
    } else {
        group.saturating_sub(1)
    };
    // The flex group's start may have moved the group back, not what follows it.
    let group = if per_flex > 1 && group > per_flex { start } else { group };
    let end = (group + 1).min(geometry.group_count - 1);
    let mut best = start;
    for group in start + 1..=end {
        if free(group) > free(best) {
            best = group;
        }
    }
    geometry.group_first_block(GroupNumber(best)).0
}

/// Takes `len` blocks for a file, one run after the other from the goal, and maps them.
fn allocate(space: &mut Space, goal: u64, len: u64, extents: bool, block_size: u32) -> Result<FileMap> {
    if extents { map_extents(space, goal, len, block_size) } else { map_blocks(space, goal, len, block_size) }
}

fn map_extents(space: &mut Space, goal: u64, len: u64, block_size: u32) -> Result<FileMap> {
    let mut runs = Vec::new();
    let mut leaf = Vec::new();
    let (mut at, mut logical) = (goal, 0);
    while logical < len {
        let (start, end) = space.next_free(at).ok_or(Error::TooSmall("no room for the journal"))?;
        let run = (end - start).min(len - logical);
        space.mark(start, run)?;
        runs.push((start, run));
        for first in (0..run).step_by(usize::from(MAX_LEN)) {
            leaf.push(Extent {
                logical: LogicalBlock((logical + first) as u32),
                len: (run - first).min(u64::from(MAX_LEN)) as u16,
                start: FsBlock(start + first),
                unwritten: false,
            });
        }
        logical += run;
        at = start + run;
    }
    let mut i_block = [0; I_BLOCK_SIZE];
    let mut tree = Vec::new();
    let is_flat = leaf.len() <= usize::from(ROOT_CAPACITY);
    let max_entries = if is_flat { ROOT_CAPACITY } else { block_capacity(block_size) };
    let leaf = ExtentNode { depth: 0, max_entries, entries: Entries::Leaf(leaf) };
    if is_flat {
        leaf.write(&mut i_block)?;
    } else {
        // Where mke2fs has it: before the file.
        let child = match goal.checked_sub(1).filter(|before| space.can_take(*before)) {
            Some(before) => before,
            None => space.next_free(at).ok_or(Error::TooSmall("no block is left"))?.0,
        };
        space.mark(child, 1)?;
        let mut block = vec![0; block_size as usize].into_boxed_slice();
        leaf.write(&mut block)?;
        tree.push((FsBlock(child), block));
        let entry = ExtentIndex { logical: LogicalBlock(0), child: FsBlock(child) };
        ExtentNode { depth: 1, max_entries: ROOT_CAPACITY, entries: Entries::Index(vec![entry]) }
            .write(&mut i_block)?;
    }
    Ok(FileMap { i_block, extents: true, runs, tree })
}

/// Blocks and the tables that name them, each table right before the first block that it names.
fn map_blocks(space: &mut Space, goal: u64, len: u64, block_size: u32) -> Result<FileMap> {
    let mut blocks = Sequence { space, at: goal, start: goal, end: goal };
    let mut map = FileMap { i_block: [0; I_BLOCK_SIZE], extents: false, runs: Vec::new(), tree: Vec::new() };
    // The tables on the way to the current block: places in `map.tree`.
    let mut open: Vec<(Vec<u32>, usize)> = Vec::new();
    for logical in 0..len {
        let path =
            indirect::path(LogicalBlock(logical as u32), block_size).ok_or(Error::TooLarge("journal"))?;
        let offsets = path.offsets();
        open.retain(|(prefix, _)| offsets.starts_with(prefix));
        for depth in open.len() + 1..offsets.len() {
            let table = blocks.next()?;
            set_pointer(&mut map, open.last().map(|(_, table)| *table), offsets[depth - 1], table)?;
            open.push((offsets[..depth].to_vec(), map.tree.len()));
            map.tree.push((FsBlock(table), vec![0; block_size as usize].into_boxed_slice()));
        }
        let block = blocks.next()?;
        set_pointer(&mut map, open.last().map(|(_, table)| *table), offsets[offsets.len() - 1], block)?;
        match map.runs.last_mut() {
            Some((start, len)) if *start + *len == block => *len += 1,
            _ => map.runs.push((block, 1)),
        }
    }
    blocks.finish()?;
    Ok(map)
}

fn set_pointer(map: &mut FileMap, table: Option<usize>, index: u32, block: u64) -> Result<()> {
    let block =
        u32::try_from(block).map_err(|_| Error::Conflict("blocks beyond 2^32 need the feature extent"))?;
    match table.and_then(|table| map.tree.get_mut(table)) {
        Some((_, bytes)) => indirect::set_pointer(bytes, index, block),
        None => indirect::set_pointer(&mut map.i_block, index, block),
    }
    Ok(())
}

/// Free blocks one after the other; those before `at` in the current free run are taken.
struct Sequence<'a> {
    space: &'a mut Space,
    start: u64,
    at: u64,
    end: u64,
}

impl Sequence<'_> {
    fn next(&mut self) -> Result<u64> {
        if self.at == self.end {
            self.space.mark(self.start, self.at - self.start)?;
            let (start, end) =
                self.space.next_free(self.at).ok_or(Error::TooSmall("no room for the journal"))?;
            (self.start, self.at, self.end) = (start, start, end);
        }
        self.at += 1;
        Ok(self.at - 1)
    }

    fn finish(self) -> Result<()> {
        self.space.mark(self.start, self.at - self.start)
    }
}
