//! The usage of users, groups and projects: what is charged to them, and how it comes into the quota files.
//!
//! An inode is charged to its owner, its group and its project, with one inode and the bytes that `i_blocks` counts. So the charge
//! follows from an inode's fields, and [`MetadataUpdate`](crate::metadata::update::MetadataUpdate) moves it with each change of them;
//! no operation counts anything itself. An inode without links is charged until it is deleted.
//!
//! Threads add to shards of their own. A freeze adds the shards up and writes the entries into the buffers of the quota files, so that
//! usage is in the transaction of what it counts. An id has an entry before an inode is charged to it
//! ([`BlockMap::add_dquots`](crate::mapping::BlockMap::add_dquots)): a freeze allocates nothing.
//!
//! Leaves out: values of attributes in inodes of their own, with which disks are not written; entries of ids without use, which stay.
//!
//! Locks: `QUOTA` while an id gets an entry; `DQUOTS`, one per file; `CACHE`, one per shard.
//!
//! Source: `__dquot_alloc_space`, `dquot_transfer` of `fs/quota/dquot.c`, `quota_compute_usage` of `lib/support/mkquota.c`.
//! Tests: `../tests/quota`.

use std::collections::{BTreeMap, BTreeSet};

use extant_ondisk::quota::{EntryPlace, QUOTA_BLOCK_SIZE, QuotaBlock};
use extant_ondisk::{Dqblk, InodeFlags, InodeNumber, QuotaType, RawInode, RoCompatFeatures, Superblock};
use extant_rt::{Arc, LockClass, Mutex};

use crate::incore::buffer::Buffer;
use crate::metadata::SbInfo;
use crate::metadata::dirty::Shards;

/// Credits for the blocks of quota files that an update may change at most: entries of three types for each of the inodes
/// whose owners differ.
pub(crate) const QUOTA_CREDITS: u32 = 12;

/// A user, group or project.
pub(crate) type Dquot = (QuotaType, u32);

/// Space in bytes and inodes, more or less than before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) space: i64,
    pub(crate) inodes: i64,
}

impl Usage {
    fn add(&mut self, other: Self) {
        self.space = self.space.saturating_add(other.space);
        self.inodes = self.inodes.saturating_add(other.inodes);
    }
}

/// What an inode is charged for, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    /// User, group and project.
    pub(crate) ids: [u32; 3],
    pub(crate) space: i64,
}

impl Charge {
    /// The charge of an inode that is in use; None of one that is not, or that holds the value of an attribute.
    pub(crate) fn of(raw: &RawInode, block_size: u32) -> Option<Self> {
        let is_charged = raw.mode() != 0 && !raw.flags().contains(InodeFlags::EA_INODE);
        is_charged.then(|| Self {
            ids: ids_of(raw),
            space: i64::try_from(raw.blocks_bytes(block_size)).unwrap_or(i64::MAX),
        })
    }
}

/// The user, the group and the project of an inode.
pub(crate) fn ids_of(raw: &RawInode) -> [u32; 3] {
    [raw.uid(), raw.gid(), raw.project_id()]
}

/// The inodes of the quota files of a disk that counts usage.
pub(crate) fn quota_inodes(superblock: &Superblock) -> Vec<(QuotaType, InodeNumber)> {
    if !superblock.ro_compat().contains(RoCompatFeatures::QUOTA) {
        return Vec::new();
    }
    let inodes =
        [superblock.s_usr_quota_inum(), superblock.s_grp_quota_inum(), superblock.s_prj_quota_inum()];
    let named = QuotaType::ALL.into_iter().zip(inodes.map(InodeNumber));
    named.filter(|(_, inode)| inode.0 != 0).collect()
}

/// The quota files of a file system that is mounted for writing.
#[derive(Debug)]
pub(crate) struct Quotas {
    /// In the order of their types.
    pub(crate) files: Vec<QuotaFile>,
    shards: Shards<QuotaShard>,
    /// Changes of ids without an entry: of fast commits that Linux left, and on disks that are wrong already.
    unplaced: Mutex<BTreeMap<Dquot, Usage>>,
    /// Held while an id gets an entry.
    pub(crate) structure: Mutex<()>,
}

/// What threads of one shard have done.
#[derive(Debug, Default)]
struct QuotaShard {
    /// In the running transaction.
    changes: BTreeMap<Dquot, Usage>,
    /// Those that have entries, as far as these threads have asked.
    known: BTreeSet<Dquot>,
}

/// A quota file in memory.
#[derive(Debug)]
pub(crate) struct QuotaFile {
    pub(crate) quota_type: QuotaType,
    pub(crate) inode: InodeNumber,
    state: Mutex<QuotaFileState>,
}

#[derive(Debug)]
struct QuotaFileState {
    /// Blocks of the quota file in one of the file system.
    per_block: u32,
    /// Its blocks in their order; None for a hole.
    blocks: Vec<Option<Arc<Buffer>>>,
    places: BTreeMap<u32, EntryPlace>,
}

impl Quotas {
    pub(crate) fn new(files: Vec<QuotaFile>) -> Self {
        Self {
            files,
            shards: Shards::new(),
            unplaced: Mutex::new(LockClass::DQUOTS, BTreeMap::new()),
            structure: Mutex::new(LockClass::QUOTA, ()),
        }
    }

    /// Ids with limits.
    pub(crate) fn limit_count(&self) -> usize {
        self.files.iter().map(QuotaFile::limit_count).sum()
    }

    /// Moves the charge of an inode, and returns how many blocks the transaction may have to write for it.
    pub(crate) fn transfer(&self, before: Option<Charge>, after: Option<Charge>) -> u32 {
        if before == after {
            return 0;
        }
        let mut shard = self.shards.lock_of_thread();
        let mut added = 0;
        for file in &self.files {
            let index = file.quota_type as usize;
            for (charge, sign) in [(before, -1), (after, 1)] {
                let Some(charge) = charge else { continue };
                let change = Usage { space: sign * charge.space, inodes: sign };
                let usage = shard.changes.entry((file.quota_type, charge.ids[index])).or_insert_with(|| {
                    added += 1;
                    Usage::default()
                });
                usage.add(change);
            }
        }
        added
    }

    /// Those of some ids that have no entry.
    pub(crate) fn without_entry(&self, ids: [u32; 3]) -> Vec<(&QuotaFile, u32)> {
        let unknown: Vec<(&QuotaFile, u32)> = {
            let shard = self.shards.lock_of_thread();
            let ids = self.files.iter().map(|file| (file, ids[file.quota_type as usize]));
            ids.filter(|(file, id)| !shard.known.contains(&(file.quota_type, *id))).collect()
        };
        if unknown.is_empty() {
            return unknown;
        }
        let (found, missing): (Vec<_>, Vec<_>) = unknown.into_iter().partition(|(file, id)| file.has(*id));
        let found = found.into_iter().map(|(file, id)| (file.quota_type, id));
        self.shards.lock_of_thread().known.extend(found);
        missing
    }

    /// Takes a change out for which there was no entry, to be added once there is one.
    pub(crate) fn take_unplaced(&self) -> Option<(&QuotaFile, u32, Usage)> {
        let ((quota_type, id), usage) = self.unplaced.lock().pop_first()?;
        let file = self.files.iter().find(|file| file.quota_type == quota_type)?;
        Some((file, id, usage))
    }

    /// Adds a change, and returns how many blocks the transaction may have to write for it.
    pub(crate) fn add(&self, dquot: Dquot, usage: Usage) -> u32 {
        let mut shard = self.shards.lock_of_thread();
        let is_new = !shard.changes.contains_key(&dquot);
        shard.changes.entry(dquot).or_default().add(usage);
        u32::from(is_new)
    }

    /// Writes into the buffers of the files what the transaction changed; those that it had not changed join `buffers`. At the
    /// freeze only.
    pub(crate) fn freeze(&self, buffers: &mut Vec<Arc<Buffer>>) {
        let mut changes: BTreeMap<Dquot, Usage> = BTreeMap::new();
        self.shards.visit(|shard| {
            for (dquot, usage) in std::mem::take(&mut shard.changes) {
                changes.entry(dquot).or_default().add(usage);
            }
        });
        for ((quota_type, id), usage) in changes {
            if usage == Usage::default() {
                continue;
            }
            let file = self.files.iter().find(|file| file.quota_type == quota_type);
            let Some((buffer, at, slot)) = file.and_then(|file| file.entry(id)) else {
                self.unplaced.lock().entry((quota_type, id)).or_default().add(usage);
                continue;
            };
            let mut state = buffer.lock();
            let bytes = Arc::make_mut(&mut state.bytes);
            let block = bytes.get_mut(at..at + QUOTA_BLOCK_SIZE).unwrap_or_default();
            let mut entry = Dqblk::read(block, slot).unwrap_or(Dqblk::new(id));
            entry.curspace = entry.curspace.saturating_add_signed(usage.space);
            entry.curinodes = entry.curinodes.saturating_add_signed(usage.inodes);
            entry.write(block, slot);
            if !std::mem::replace(&mut state.dirty, true) {
                buffers.push(buffer.clone());
            }
        }
    }
}

impl QuotaFile {
    /// A file whose `places` are not known yet; a block of the file system holds `per_block` of it.
    pub(crate) fn new(
        quota_type: QuotaType,
        inode: InodeNumber,
        blocks: Vec<Option<Arc<Buffer>>>,
        per_block: u32,
    ) -> Self {
        let state = QuotaFileState { per_block, blocks, places: BTreeMap::new() };
        Self { quota_type, inode, state: Mutex::new(LockClass::DQUOTS, state) }
    }

    fn limit_count(&self) -> usize {
        let places: Vec<EntryPlace> = self.state.lock().places.values().copied().collect();
        let has_limit =
            |entry: Dqblk| [entry.bhardlimit, entry.bsoftlimit, entry.ihardlimit, entry.isoftlimit] != [0; 4];
        let entries = places.iter().filter_map(|place| Dqblk::read(&self.read(place.block)?, place.slot));
        entries.filter(|entry| has_limit(*entry)).count()
    }

    /// Whether an id has an entry.
    pub(crate) fn has(&self, id: u32) -> bool {
        self.state.lock().places.contains_key(&id)
    }

    pub(crate) fn set_places(&self, places: BTreeMap<u32, EntryPlace>) {
        self.state.lock().places = places;
    }

    pub(crate) fn set_place(&self, id: u32, place: EntryPlace) {
        self.state.lock().places.insert(id, place);
    }

    /// Blocks of the file system that it has.
    pub(crate) fn block_count(&self) -> u32 {
        u32::try_from(self.state.lock().blocks.len()).unwrap_or(u32::MAX)
    }

    /// A block of the file in the file system's size; None for a hole, or behind the end.
    pub(crate) fn file_system_block(&self, logical: u32) -> Option<Arc<Buffer>> {
        self.state.lock().blocks.get(logical as usize)?.clone()
    }

    /// Has a block of the file be another one from now on.
    pub(crate) fn replace_block(&self, logical: u32, buffer: Arc<Buffer>) {
        if let Some(block) = self.state.lock().blocks.get_mut(logical as usize) {
            *block = Some(buffer);
        }
    }

    pub(crate) fn push_block(&self, buffer: Arc<Buffer>) {
        self.state.lock().blocks.push(Some(buffer));
    }

    /// The buffer of a block of the quota file, and the byte in it where the block begins.
    pub(crate) fn buffer(&self, block: u32) -> Option<(Arc<Buffer>, usize)> {
        self.state.lock().buffer(block)
    }

    /// The bytes of a block of the quota file.
    pub(crate) fn read(&self, block: u32) -> Option<QuotaBlock> {
        let (buffer, at) = self.buffer(block)?;
        buffer.read(|bytes| bytes.get(at..at + QUOTA_BLOCK_SIZE)?.try_into().ok())
    }

    fn entry(&self, id: u32) -> Option<(Arc<Buffer>, usize, usize)> {
        let state = self.state.lock();
        let place = state.places.get(&id)?;
        state.buffer(place.block).map(|(buffer, at)| (buffer, at, place.slot))
    }
}

impl QuotaFileState {
    fn buffer(&self, block: u32) -> Option<(Arc<Buffer>, usize)> {
        let buffer = self.blocks.get((block / self.per_block) as usize)?.clone()?;
        Some((buffer, (block % self.per_block) as usize * QUOTA_BLOCK_SIZE))
    }
}

impl SbInfo {
    /// The quota file that an inode is.
    pub(crate) fn quota_file(&self, number: InodeNumber) -> Option<&QuotaFile> {
        self.quotas.as_ref()?.files.iter().find(|file| file.inode == number)
    }

    /// The charge of an inode, where usage is counted.
    pub(crate) fn charge_of(&self, number: InodeNumber, raw: &RawInode) -> Option<Charge> {
        match self.special_inodes.contains(number) {
            true => None,
            false => Charge::of(raw, self.geometry.block_size),
        }
    }
}
