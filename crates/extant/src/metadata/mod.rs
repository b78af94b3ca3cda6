//! The superblock, the journal, the allocator and the buffers of a mounted file system: what every operation works with.
//!
//! [`SbInfo`] is the lowest layer that reads and writes the disk (the kernel's `ext4_sb_info`). The layers above own it in turn, each the
//! one below it, and deref to it: a method of [`BlockMap`](crate::mapping::BlockMap) calls those of `SbInfo` as its own, and the compiler
//! finds none of a layer above.
//!
//! Locks: those of its parts; `SUPERBLOCK` for the superblock's fields.

pub(crate) mod changed_inodes;
pub(crate) mod clusters;
pub(crate) mod commit;
pub(crate) mod counting;
pub(crate) mod dir_format;
pub(crate) mod dirty;
pub(crate) mod errors;
pub(crate) mod fast_commit;
pub(crate) mod features;
pub(crate) mod groups;
pub(crate) mod growth;
pub(crate) mod orphan_list;
pub(crate) mod quota;
mod read_ahead;
pub(crate) mod reserve;
pub(crate) mod reserved;
mod shards;
pub(crate) mod snapshots;
pub(crate) mod tables;
mod trim;
pub(crate) mod update;
pub(crate) mod verify;
pub(crate) mod worker;

use std::collections::BTreeMap;

use extant_alloc::Allocator;
use extant_block::BlockDevice;
use extant_journal::{Handle, Journal};
use extant_ondisk::{
    Checksums, FsBlock, Geometry, GroupNumber, InodeNumber, RawInode, Structure, Superblock, Timestamp,
};
use extant_rt::{
    Arc, AtomicBool, AtomicU32, AtomicU64, JoinHandle, Mutex, OnceLock, Ordering, Versioned, WallClock,
};

use crate::error::{Error, Location, Result};
use crate::incore::buffer::{Buffer, BufferKind, ZEROES};
use crate::incore::cache::Cache;
use crate::incore::inode_cache::InodeCache;
use crate::metadata::commit::Pinned;
use crate::metadata::dir_format::DirFormat;
use crate::metadata::dirty::DirtyMetadata;
use crate::metadata::fast_commit::FastCommits;
use crate::metadata::features::Features;
use crate::metadata::orphan_list::Orphans;
use crate::metadata::quota::{QUOTA_CREDITS, Quotas};
use crate::metadata::reserved::SpecialInodes;
use crate::metadata::tables::Tables;
use crate::metadata::update::{Credits, MetadataUpdate};

/// What a mounted file system has in common (kernel `ext4_sb_info`).
pub(crate) struct SbInfo {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) geometry: Versioned<Geometry>,
    pub(crate) checksums: Checksums,
    pub(crate) superblock: Mutex<Superblock>,
    pub(crate) special_inodes: SpecialInodes,
    pub(crate) allocator: Allocator,
    /// Blocks of the log inside the file system.
    pub(crate) log_blocks: u64,
    /// Clusters of the reserved pool, which [`extant_alloc::MayUse::Reserved`] takes.
    pub(crate) reserved_clusters: u64,
    /// Blocks that are the file system's own, once they were first asked for; 0 before.
    pub(crate) overhead: AtomicU64,
    /// Whether it was not unmounted cleanly, so that the superblock's counts may be old.
    pub(crate) is_crashed: bool,
    /// The thread that counts then.
    pub(crate) counting: Mutex<Option<JoinHandle<()>>>,
    /// None when opened for reading.
    pub(crate) journal: Option<Arc<Journal>>,
    /// The same, for threads that read bitmaps.
    pub(crate) committed: Arc<OnceLock<Arc<Journal>>>,
    /// The replayed blocks of a dirty journal, when opened for reading.
    pub(crate) replayed: BTreeMap<FsBlock, Arc<[u8]>>,
    pub(crate) buffers: Cache<Buffer>,
    pub(crate) inodes: InodeCache,
    pub(crate) dirty_metadata: DirtyMetadata,
    pub(crate) fast_commits: FastCommits,
    pub(crate) pinned: Mutex<Option<Pinned>>,
    pub(crate) tables: Tables,
    /// Held while the file system becomes larger.
    pub(crate) resizing: Mutex<()>,
    pub(crate) orphans: Mutex<Orphans>,
    /// None if usage is not counted, or when opened for reading.
    pub(crate) quotas: Option<Quotas>,
    pub(crate) features: Features,
    pub(crate) dir_format: DirFormat,
    pub(crate) clock: WallClock,
    /// Blocks that a transaction freed are discarded at its commit; cleared if the device cannot discard.
    pub(crate) discards: AtomicBool,
    /// Features whose flag is known to be set, a bit each, so that their users need not ask the superblock.
    pub(crate) features_in_use: AtomicU32,
    /// Errors since mounting, each of which counts in the superblock in memory.
    pub(crate) error_count: AtomicU32,
    /// Damage stops all writing, whatever the superblock says.
    pub(crate) stop_on_damage: bool,
    /// Set after an error that must stop all writing.
    pub(crate) failed: AtomicBool,
    /// Set by unmounting.
    pub(crate) unmounted: AtomicBool,
}

/// How full a file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes of a block.
    pub block_size: u32,
    /// Blocks, without those that the file system needs for itself.
    pub blocks: u64,
    /// Blocks in no use, those freed but not yet committed among them.
    pub free_blocks: u64,
    /// Free blocks that users other than root may allocate.
    pub available_blocks: u64,
    /// Inodes.
    pub inodes: u32,
    /// Inodes in no use.
    pub free_inodes: u32,
}

impl SbInfo {
    pub(crate) fn now(&self) -> Timestamp {
        let (seconds, nanoseconds) = self.clock.now();
        Timestamp { seconds, nanoseconds }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.journal.is_none() || self.failed.load(Ordering::Acquire)
    }

    /// The journal, if the file system may be written.
    ///
    /// # Errors
    /// `ReadOnly`.
    pub(crate) fn writable(&self) -> Result<&Arc<Journal>> {
        match &self.journal {
            Some(journal) if !self.is_read_only() => Ok(journal),
            _ => Err(Error::ReadOnly),
        }
    }

    /// Opens an update that may use as much as `need` says. Waits for space in the log; if too few blocks are free
    /// but some wait for a commit, commits.
    ///
    /// # Errors
    /// `ReadOnly`; `NoSpace`; the journal's.
    ///
    /// # Locks
    /// None inside `HANDLE` may be held.
    #[track_caller]
    pub(crate) fn begin(&self, need: Credits) -> Result<MetadataUpdate<'_>> {
        let journal = self.writable()?;
        let reservation = match self.allocator.reserve(u64::from(need.blocks), need.may_use) {
            Err(extant_alloc::Error::NoSpace) if self.allocator.pending_free() > 0 => {
                journal.commit_running()?;
                self.allocator.reserve(u64::from(need.blocks), need.may_use)?
            }
            other => other?,
        };
        Ok(MetadataUpdate::new(self, self.start_handle(need.credits)?, reservation))
    }

    /// Opens a handle with credits for what each update may change beside what it says: the superblock and entries of quota files.
    ///
    /// # Errors
    /// `ReadOnly`; the journal's.
    #[track_caller]
    pub(crate) fn start_handle(&self, credits: u32) -> Result<Handle<'_>> {
        let journal = self.writable()?;
        let least = credits.saturating_add(1);
        Ok(journal.start(match &self.quotas {
            None => least,
            Some(_) => least.saturating_add(QUOTA_CREDITS).min(journal.max_credits().max(least)),
        })?)
    }

    /// The newest bytes of a metadata block: as committed, as replayed, or from the device.
    ///
    /// # Errors
    /// `Io` and `Corrupt` (outside the disk), naming `location`.
    pub(crate) fn read_block(&self, block: FsBlock, location: Location) -> Result<Arc<[u8]>> {
        if let Some(bytes) = self.logged(block) {
            return Ok(bytes);
        }
        // The superblock's own block is metadata too, so only the end of the disk bounds it.
        if block.0 >= self.geometry.blocks_count {
            return Err(location.block(block).corrupt("outside the disk"));
        }
        let mut bytes = self.zeroes();
        let offset = block.0 * u64::from(self.geometry.block_size);
        self.device.read_at(offset, Arc::make_mut(&mut bytes)).map_err(|e| location.block(block).io(e))?;
        Ok(bytes)
    }

    /// A block of zeroes, taken from memory once: a vector would be copied.
    pub(crate) fn zeroes(&self) -> Arc<[u8]> {
        ZEROES[..self.geometry.block_size as usize].into()
    }

    /// The content of a block that is newer in the log than at its final location.
    fn logged(&self, block: FsBlock) -> Option<Arc<[u8]>> {
        let committed = self.journal.as_ref().and_then(|journal| journal.committed_block(block));
        committed.or_else(|| self.replayed.get(&block).cloned())
    }

    /// The buffer of a metadata block, read and verified as `kind` if it is not in memory.
    ///
    /// # Errors
    /// `Io`; `Corrupt` if the block is not what `kind` says, or is in use as something else.
    pub(crate) fn buffer(&self, block: FsBlock, kind: BufferKind, location: Location) -> Result<Arc<Buffer>> {
        let buffer = self.buffers.get_or_read(block.0, Arc::clone, || -> Result<_> {
            let bytes = self.read_block(block, location)?;
            verify::verify(&self.checksums, kind, block, &bytes)
                .map_err(|e| location.block(block).format(e))?;
            Ok(Buffer::new(block, kind, bytes))
        })?;
        if buffer.kind() != kind {
            return Err(location.block(block).corrupt("block in use for two things"));
        }
        Ok(buffer)
    }

    /// The position of an inode: the block of the table and the byte in it.
    ///
    /// # Errors
    /// `Corrupt` if there is no such number.
    pub(crate) fn inode_table_location(&self, number: InodeNumber) -> Result<(FsBlock, usize)> {
        let location = Location::of(Structure::Inode).inode(number);
        let (group, index) =
            self.geometry.inode_location(number).ok_or(location.corrupt("no such inode number"))?;
        let table = self.allocator.inode_table(group)?;
        let (block, offset) = self.geometry.inode_block(table, index);
        Ok((block, offset as usize))
    }

    /// Reads an inode as the disk has it, past the cache of inodes.
    ///
    /// # Errors
    /// `Io`; `Corrupt` for a wrong number or checksum.
    pub(crate) fn read_inode(&self, number: InodeNumber) -> Result<RawInode> {
        let location = Location::of(Structure::Inode).inode(number);
        let (block, offset) = self.inode_table_location(number)?;
        self.read_ahead_near_inode(number);
        let buffer = self.buffer(block, BufferKind::InodeTable, location)?;
        buffer.read(|bytes| {
            let bytes = bytes
                .get(offset..offset + usize::from(self.geometry.inode_size))
                .ok_or(location.block(block).corrupt("past the end of the table"))?;
            let raw = RawInode::parse(bytes).map_err(|e| location.block(block).format(e))?;
            if !self.checksums.verify_inode(number, &raw) {
                return Err(location.block(block).corrupt("bad checksum"));
            }
            Ok(raw)
        })
    }

    /// Reads file data of one block run's worth from `offset` bytes into `block`.
    ///
    /// # Errors
    /// `Io`; `Corrupt` if outside the disk.
    pub(crate) fn read_data(
        &self,
        block: FsBlock,
        offset: u64,
        buf: &mut [u8],
        location: Location,
    ) -> Result<()> {
        let at = self.data_offset(block, offset, buf.len(), location)?;
        self.device.read_at(at, buf).map_err(|e| location.block(block).io(e))?;
        if !self.replayed.is_empty() {
            self.apply_replayed(at, buf);
        }
        Ok(())
    }

    /// The position on the device of bytes of a run of blocks.
    ///
    /// # Errors
    /// `Corrupt` if outside the disk.
    pub(crate) fn data_offset(
        &self,
        block: FsBlock,
        offset: u64,
        len: usize,
        location: Location,
    ) -> Result<u64> {
        let size = u64::from(self.geometry.block_size);
        let blocks = (offset.saturating_add(len as u64)).div_ceil(size).max(1);
        let outside = location.block(block).corrupt("outside the disk");
        if !self.geometry.is_valid_block_run(block, blocks) {
            return Err(outside);
        }
        Ok(block.0 * size + offset)
    }

    /// Lays journalled data that is not checkpointed over what was read from `at`.
    fn apply_replayed(&self, at: u64, buf: &mut [u8]) {
        let size = u64::from(self.geometry.block_size);
        let end = at + buf.len() as u64;
        for (block, bytes) in self.replayed.range(FsBlock(at / size)..FsBlock(end.div_ceil(size))) {
            let start = block.0 * size;
            let (from, to) = (start.max(at), (start + size).min(end));
            buf[(from - at) as usize..(to - at) as usize]
                .copy_from_slice(&bytes[(from - start) as usize..(to - start) as usize]);
        }
    }

    /// How full the file system is.
    pub(crate) fn statistics(&self) -> Statistics {
        let reserved = self.geometry.blocks_of_clusters(self.reserved_clusters);
        let kept = self.superblock.lock().r_blocks_count().saturating_add(reserved);
        let inodes = self.superblock.lock().s_inodes_count();
        let overhead = self.overhead();
        let free_clusters = self.allocator.free_blocks()
            + self.allocator.preallocated_blocks()
            + self.allocator.pending_free();
        let free_blocks = self.geometry.blocks_of_clusters(free_clusters);
        Statistics {
            block_size: self.geometry.block_size,
            blocks: self.geometry.blocks_count.saturating_sub(overhead),
            free_blocks,
            available_blocks: free_blocks.saturating_sub(kept),
            inodes,
            free_inodes: u32::try_from(self.allocator.free_inodes()).unwrap_or(u32::MAX),
        }
    }

    /// Blocks that hold neither files nor directories.
    fn overhead(&self) -> u64 {
        match self.overhead.load(Ordering::Relaxed) {
            0 => {
                let overhead = self.count_overhead();
                self.overhead.store(overhead, Ordering::Relaxed);
                overhead
            }
            known => known,
        }
    }

    /// As [`SbInfo::overhead`]; linear in the groups.
    fn count_overhead(&self) -> u64 {
        let groups = self.geometry.group_count;
        let log_clusters = self.geometry.clusters_of(self.log_blocks);
        if let Some(clusters) = self.system_clusters() {
            return self.geometry.blocks_of_clusters(clusters + log_clusters);
        }
        let own = |group| u64::from(self.geometry.base_meta_blocks(GroupNumber(group)));
        (0..groups).map(own).sum::<u64>()
            + u64::from(groups) * (2 + u64::from(self.geometry.inode_table_blocks_per_group))
            + u64::from(self.geometry.first_data_block)
            + self.log_blocks
    }

    /// Clusters of the file system's own blocks, of which several groups' may share one; None without `bigalloc`, or if descriptors
    /// cannot be read.
    fn system_clusters(&self) -> Option<u64> {
        if self.geometry.cluster_ratio == 1 {
            return None;
        }
        let groups = (0..self.geometry.group_count).map(GroupNumber);
        groups.map(|group| self.allocator.system_clusters(group).ok().map(u64::from)).sum()
    }

    /// The group of an inode.
    pub(crate) fn group_of_inode(&self, number: InodeNumber) -> GroupNumber {
        self.geometry.inode_location(number).map_or(GroupNumber(0), |(group, _)| group)
    }

    /// Where to look for blocks of an inode that has none: the start of its group.
    pub(crate) fn goal_of_inode(&self, number: InodeNumber) -> FsBlock {
        self.geometry.group_first_block(self.group_of_inode(number))
    }
}
