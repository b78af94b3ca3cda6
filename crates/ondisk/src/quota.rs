//! Quota files: the usage and the limits of users, groups or projects, in a tree by id.
//!
//! A file is a row of blocks of 1 KiB, whatever the block size of the file system: block 0 with the header and the free lists, tree
//! blocks of 256 references, and data blocks of 14 entries. Four levels of tree blocks, beginning at block 1, lead to the data block
//! that holds an id. Data blocks with room form a list, as free blocks do.
//!
//! Leaves out: entries are never removed, as an id that was used once is mostly used again.
//!
//! Invariant: [`entries`] visits each tree block at most once, so that it ends on any bytes.
//!
//! Source: kernel `fs/quota/quota_tree.c`, `quota_v2.c`, `quotaio_v2.h` (`vfsv1`). Tests: `../tests/quota.rs`.

use std::collections::BTreeMap;

use crate::error::{Error, Result, Structure};
use crate::field;

/// Bytes of a block of a quota file.
pub const QUOTA_BLOCK_SIZE: usize = 1024;
/// Bytes of a unit of limits on space.
pub const LIMIT_UNIT: u64 = 1024;
/// Seconds for which a soft limit may be exceeded, if nothing else was set.
pub const GRACE_SECONDS: u32 = 7 * 24 * 60 * 60;

const VERSION: u32 = 1;
/// The root of the tree.
const ROOT_BLOCK: u32 = 1;
const LEVELS: u32 = 4;
const REFERENCES: usize = QUOTA_BLOCK_SIZE / 4;
const DATA_HEADER_SIZE: usize = 16;
const ENTRY_SIZE: usize = 72;
const ENTRIES: usize = (QUOTA_BLOCK_SIZE - DATA_HEADER_SIZE) / ENTRY_SIZE;

// Of block 0.
const DQI_BGRACE: usize = 8;
const DQI_IGRACE: usize = 12;
const DQI_BLOCKS: usize = 20;
const DQI_FREE_BLK: usize = 24;
const DQI_FREE_ENTRY: usize = 28;

// Of a data block, and the first of a free block.
const DQDH_NEXT_FREE: usize = 0;
const DQDH_PREV_FREE: usize = 4;
const DQDH_ENTRIES: usize = 8;

/// A block of a quota file.
pub type QuotaBlock = [u8; QUOTA_BLOCK_SIZE];

/// What usage is counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QuotaType {
    /// By owner.
    User,
    /// By group.
    Group,
    /// By project.
    Project,
}

impl QuotaType {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    /// Its name, as `mke2fs` and `repquota` have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Project => "project",
        }
    }

    const fn magic(self) -> u32 {
        match self {
            Self::User => 0xD9C0_1F11,
            Self::Group => 0xD9C0_1927,
            Self::Project => 0xD9C0_3F14,
        }
    }
}

/// The usage and the limits of an id (`struct v2r1_disk_dqblk`). A limit of 0 is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dqblk {
    /// The id.
    pub id: u32,
    /// Inodes that may never be exceeded.
    pub ihardlimit: u64,
    /// Inodes that may be exceeded for the grace time.
    pub isoftlimit: u64,
    /// Inodes in use.
    pub curinodes: u64,
    /// Space that may never be exceeded, in units of [`LIMIT_UNIT`].
    pub bhardlimit: u64,
    /// Space that may be exceeded for the grace time, in units of [`LIMIT_UNIT`].
    pub bsoftlimit: u64,
    /// Space in use, in bytes.
    pub curspace: u64,
    /// When the grace time of space ends, in seconds of the epoch; 0 if the soft limit is not exceeded.
    pub btime: u64,
    /// When the grace time of inodes ends, likewise.
    pub itime: u64,
}

/// Offsets of the 64-bit fields of an entry.
const FIELDS: [usize; 8] = [8, 16, 24, 32, 40, 48, 56, 64];

impl Dqblk {
    /// An entry of no use and no limits.
    #[must_use]
    pub fn new(id: u32) -> Self {
        Self { id, ..Self::default() }
    }

    /// Whether it has any limit.
    #[must_use]
    pub fn has_limit(&self) -> bool {
        [self.bhardlimit, self.bsoftlimit, self.ihardlimit, self.isoftlimit] != [0; 4]
    }

    /// The entry at a place of its block; None if it is free or outside of the block.
    #[must_use]
    pub fn read(block: &[u8], slot: usize) -> Option<Self> {
        let bytes = block.get(slot_range(slot))?;
        if bytes.iter().all(|byte| *byte == 0) {
            return None;
        }
        let [ihardlimit, isoftlimit, curinodes, bhardlimit, bsoftlimit, curspace, btime, itime] =
            FIELDS.map(|offset| field::read::<u64>(bytes, offset));
        let id = field::read::<u32>(bytes, 0);
        let mut entry =
            Self { id, ihardlimit, isoftlimit, curinodes, bhardlimit, bsoftlimit, curspace, btime, itime };
        // An entry of zeroes would be a free one, so it is written with a time.
        if (Self { itime: 0, ..entry }) == Self::default() && itime == 1 {
            entry.itime = 0;
        }
        Some(entry)
    }

    /// Writes the entry to a place of its block; nothing outside of the block.
    pub fn write(&self, block: &mut [u8], slot: usize) {
        let Some(bytes) = block.get_mut(slot_range(slot)) else { return };
        let itime = if *self == Self::default() { 1 } else { self.itime };
        let values = [
            self.ihardlimit,
            self.isoftlimit,
            self.curinodes,
            self.bhardlimit,
            self.bsoftlimit,
            self.curspace,
            self.btime,
            itime,
        ];
        bytes.fill(0);
        field::write(bytes, 0, self.id);
        FIELDS.into_iter().zip(values).for_each(|(offset, value)| field::write(bytes, offset, value));
    }
}

fn slot_range(slot: usize) -> std::ops::Range<usize> {
    let start = DATA_HEADER_SIZE.saturating_add(slot.saturating_mul(ENTRY_SIZE));
    start..start.saturating_add(ENTRY_SIZE)
}

/// The place of an entry in a quota file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryPlace {
    /// The data block.
    pub block: u32,
    /// The entry within it.
    pub slot: usize,
}

/// For how many seconds soft limits may be exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grace {
    /// Those of space.
    pub space_seconds: u32,
    /// Those of inodes.
    pub inode_seconds: u32,
}

impl Grace {
    /// Reads them from block 0.
    #[must_use]
    pub fn read(block: &[u8]) -> Self {
        Self { space_seconds: field::read(block, DQI_BGRACE), inode_seconds: field::read(block, DQI_IGRACE) }
    }

    /// Writes them into block 0.
    pub fn write(self, block: &mut [u8]) {
        field::write(block, DQI_BGRACE, self.space_seconds);
        field::write(block, DQI_IGRACE, self.inode_seconds);
    }
}

/// The bytes of a new quota file with these entries, each of another id.
///
/// # Errors
/// [`Error::Corrupt`] if two have one id, or they are too many for a file.
pub fn file_with(quota_type: QuotaType, entries: &[Dqblk]) -> Result<Vec<u8>> {
    let mut bytes = empty_file(quota_type);
    for entry in entries {
        let Insertion { place, blocks } = insert(|block| block_of(&bytes, block), quota_type, entry.id)?;
        for (block, new) in blocks {
            let start = block as usize * QUOTA_BLOCK_SIZE;
            bytes.resize(bytes.len().max(start + QUOTA_BLOCK_SIZE), 0);
            bytes[start..start + QUOTA_BLOCK_SIZE].copy_from_slice(&new);
        }
        let start = place.block as usize * QUOTA_BLOCK_SIZE;
        entry.write(&mut bytes[start..start + QUOTA_BLOCK_SIZE], place.slot);
    }
    Ok(bytes)
}

/// A block of a quota file that is in memory as a whole.
#[must_use]
pub fn block_of(bytes: &[u8], block: u32) -> Option<QuotaBlock> {
    let start = (block as usize).checked_mul(QUOTA_BLOCK_SIZE)?;
    bytes.get(start..start.checked_add(QUOTA_BLOCK_SIZE)?)?.try_into().ok()
}

fn empty_file(quota_type: QuotaType) -> Vec<u8> {
    let mut bytes = vec![0; (ROOT_BLOCK as usize + 1) * QUOTA_BLOCK_SIZE];
    field::write(&mut bytes, 0, quota_type.magic());
    field::write(&mut bytes, 4, VERSION);
    Grace { space_seconds: GRACE_SECONDS, inode_seconds: GRACE_SECONDS }.write(&mut bytes);
    field::write(&mut bytes, DQI_BLOCKS, ROOT_BLOCK + 1);
    bytes
}

const fn corrupt(reason: &'static str) -> Error {
    Error::corrupt(Structure::QuotaFile, reason)
}

/// Block 0, checked: of this type and a version that is known, and of no more blocks than `block_count`, those of the file.
fn read_header(read: &impl Fn(u32) -> Option<QuotaBlock>, quota_type: QuotaType) -> Result<QuotaBlock> {
    let header = read(0).ok_or(corrupt("no header"))?;
    match () {
        () if field::read::<u32>(&header, 0) != quota_type.magic() => Err(corrupt("wrong magic number")),
        () if field::read::<u32>(&header, 4) != VERSION => Err(corrupt("unknown version")),
        () if field::read::<u32>(&header, DQI_BLOCKS) <= ROOT_BLOCK => Err(corrupt("no tree")),
        () if read(field::read::<u32>(&header, DQI_BLOCKS) - 1).is_none() => {
            Err(corrupt("more blocks than the file has"))
        }
        () => Ok(header),
    }
}

/// All ids of a file and the places of their entries, by id. `read` gives a block of the file, or None behind its end.
///
/// # Errors
/// [`Error::Corrupt`] if the tree contradicts itself.
pub fn entries(
    read: impl Fn(u32) -> Option<QuotaBlock>,
    quota_type: QuotaType,
) -> Result<BTreeMap<u32, EntryPlace>> {
    let header = read_header(&read, quota_type)?;
    let block_count: u32 = field::read(&header, DQI_BLOCKS);
    // As many bits as the file has blocks, which `read_header` found to exist.
    let mut visited = vec![0_u64; block_count as usize / 64 + 1];
    let mut found = BTreeMap::new();
    let mut pending = vec![(ROOT_BLOCK, 0, 0)];
    while let Some((block, level, prefix)) = pending.pop() {
        let (word, bit) = (&mut visited[block as usize / 64], 1 << (block % 64));
        if *word & bit != 0 {
            return Err(corrupt("a block of the tree is named twice"));
        }
        *word |= bit;
        let bytes = read(block).ok_or(corrupt("a hole"))?;
        for index in 0..REFERENCES {
            let reference: u32 = field::read(&bytes, index * 4);
            let id = prefix << 8 | index as u32;
            match reference {
                0 => {}
                1.. if reference <= ROOT_BLOCK || reference >= block_count => {
                    return Err(corrupt("the tree names a block outside of the file"));
                }
                _ if level + 1 < LEVELS => pending.push((reference, level + 1, id)),
                _ => {
                    let data = read(reference).ok_or(corrupt("a hole"))?;
                    let holds = |slot: &usize| Dqblk::read(&data, *slot).is_some_and(|entry| entry.id == id);
                    let slot = (0..ENTRIES)
                        .find(holds)
                        .ok_or(corrupt("an id is not in the block that the tree names"))?;
                    found.insert(id, EntryPlace { block: reference, slot });
                }
            }
        }
    }
    Ok(found)
}

/// The grace times of a file.
///
/// # Errors
/// [`Error::Corrupt`] if its header is wrong.
pub fn grace(read: impl Fn(u32) -> Option<QuotaBlock>, quota_type: QuotaType) -> Result<Grace> {
    read_header(&read, quota_type).map(|header| Grace::read(&header))
}

/// The blocks of a file that an insertion changes.
#[derive(Debug)]
pub struct Insertion {
    /// The place of the new entry.
    pub place: EntryPlace,
    /// The new bytes of blocks; those behind the end of the file lengthen it.
    pub blocks: BTreeMap<u32, QuotaBlock>,
}

/// Works out how an id comes into a file that does not have it, with no use and no limits.
///
/// # Errors
/// [`Error::Corrupt`] if the tree contradicts itself.
pub fn insert(read: impl Fn(u32) -> Option<QuotaBlock>, quota_type: QuotaType, id: u32) -> Result<Insertion> {
    let header = read_header(&read, quota_type)?;
    let block_count = field::read(&header, DQI_BLOCKS);
    let mut editor = Editor { read, block_count, blocks: BTreeMap::from([(0, header)]) };
    let mut node = ROOT_BLOCK;
    for level in 0..LEVELS - 1 {
        let at = reference_offset(id, level);
        let next: u32 = field::read(editor.block(node)?, at);
        node = if next != 0 { editor.checked(next)? } else { editor.allocate_for(node, at)? };
    }
    let at = reference_offset(id, LEVELS - 1);
    if field::read::<u32>(editor.block(node)?, at) != 0 {
        return Err(corrupt("an id that is to be new is in the tree"));
    }
    let place = editor.take_slot()?;
    field::write(editor.block(node)?, at, place.block);
    Dqblk::new(id).write(editor.block(place.block)?, place.slot);
    let Editor { read, mut blocks, .. } = editor;
    blocks.retain(|block, bytes| read(*block).as_ref() != Some(bytes));
    Ok(Insertion { place, blocks })
}

fn reference_offset(id: u32, level: u32) -> usize {
    (id >> (8 * (LEVELS - 1 - level)) & 0xFF) as usize * 4
}

/// A quota file with changes that are not in it yet.
struct Editor<R> {
    read: R,
    block_count: u32,
    blocks: BTreeMap<u32, QuotaBlock>,
}

impl<R: Fn(u32) -> Option<QuotaBlock>> Editor<R> {
    /// A block, which is going to be changed or may be.
    fn block(&mut self, block: u32) -> Result<&mut QuotaBlock> {
        if let std::collections::btree_map::Entry::Vacant(entry) = self.blocks.entry(block) {
            entry.insert((self.read)(block).ok_or(corrupt("a hole"))?);
        }
        self.blocks.get_mut(&block).ok_or(corrupt("a hole"))
    }

    fn checked(&self, block: u32) -> Result<u32> {
        let is_inside = block > ROOT_BLOCK && block < self.block_count;
        is_inside.then_some(block).ok_or(corrupt("the tree names a block outside of the file"))
    }

    fn header(&mut self, offset: usize) -> Result<u32> {
        Ok(field::read(self.block(0)?, offset))
    }

    fn set_header(&mut self, offset: usize, value: u32) -> Result<()> {
        field::write(self.block(0)?, offset, value);
        Ok(())
    }

    /// A block of zeroes, from the list of free ones or behind the last one (`get_free_dqblk`).
    fn allocate(&mut self) -> Result<u32> {
        let free = self.header(DQI_FREE_BLK)?;
        if free != 0 {
            let free = self.checked(free)?;
            let next = field::read(self.block(free)?, DQDH_NEXT_FREE);
            self.set_header(DQI_FREE_BLK, next)?;
            self.block(free)?.fill(0);
            return Ok(free);
        }
        let block = self.block_count;
        self.block_count = block.checked_add(1).ok_or(corrupt("too many blocks"))?;
        self.set_header(DQI_BLOCKS, self.block_count)?;
        self.blocks.insert(block, [0; QUOTA_BLOCK_SIZE]);
        Ok(block)
    }

    /// A new block, named at a place of `node`.
    fn allocate_for(&mut self, node: u32, at: usize) -> Result<u32> {
        let block = self.allocate()?;
        field::write(self.block(node)?, at, block);
        Ok(block)
    }

    /// A free entry, which counts as used in its block (`find_free_dqentry`).
    fn take_slot(&mut self) -> Result<EntryPlace> {
        let mut block = self.header(DQI_FREE_ENTRY)?;
        if block == 0 {
            block = self.allocate()?;
            self.set_header(DQI_FREE_ENTRY, block)?;
        }
        let block = self.checked(block)?;
        let bytes = *self.block(block)?;
        let slot = (0..ENTRIES).find(|slot| Dqblk::read(&bytes, *slot).is_none());
        let slot = slot.ok_or(corrupt("a full block is in the list of those with room"))?;
        let used: u16 = field::read(&bytes, DQDH_ENTRIES);
        let used = used.checked_add(1).ok_or(corrupt("a block counts too many entries"))?;
        if usize::from(used) >= ENTRIES {
            self.leave_list(&bytes)?;
            field::write(self.block(block)?, DQDH_NEXT_FREE, 0_u32);
            field::write(self.block(block)?, DQDH_PREV_FREE, 0_u32);
        }
        field::write(self.block(block)?, DQDH_ENTRIES, used);
        Ok(EntryPlace { block, slot })
    }

    /// Takes the first block out of the list of those with room (`remove_free_dqentry`).
    fn leave_list(&mut self, bytes: &QuotaBlock) -> Result<()> {
        let next: u32 = field::read(bytes, DQDH_NEXT_FREE);
        if next != 0 {
            let next = self.checked(next)?;
            field::write(self.block(next)?, DQDH_PREV_FREE, 0_u32);
        }
        self.set_header(DQI_FREE_ENTRY, next)
    }
}
