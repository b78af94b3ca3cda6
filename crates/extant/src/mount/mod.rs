//! Mounting and unmounting.
//!
//! Mounting for writing replays the journal, marks the superblock as in need of recovery, and finishes what a
//! crash left in the orphan list. Mounting for reading writes nothing: the journal is replayed into memory.
//!
//! Source: `ext4_fill_super`, `ext4_setup_super`, `ext4_put_super` of `fs/ext4/super.c`.

pub(crate) mod features;
mod load_journal;
pub(crate) mod mmp;
mod options;
pub(crate) mod staged_log;
mod superblock_recovery;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::time::Duration;

use extant_alloc::{Allocator, Setup, Tuning};
use extant_block::{BlockDevice, Overlay};
use extant_journal::recovery::FastCommitRecord;
use extant_journal::{BoxError, Client, FinalBlock, Journal, LogMap};
use extant_ondisk::{
    Checksums, CompatFeatures, FsBlock, Geometry, IncompatFeatures, RoCompatFeatures, State, Structure,
    Superblock, TransactionId,
};
use extant_rt::{
    Arc, AtomicBool, AtomicU32, AtomicU64, LockClass, Mutex, OnceLock, Ordering, Versioned, Weak,
};

use crate::directory::Directories;
use crate::error::{Error, Location, Result};
use crate::file::Files;
use crate::incore::cache::Cache;
use crate::incore::inode_cache::InodeCache;
use crate::inode::Inodes;
use crate::inode::orphan::DamagedList;
use crate::mapping::BlockMap;
use crate::metadata::SbInfo;
use crate::metadata::counting::{self, DESCRIPTOR_BLOCKS_AT_MOUNT};
use crate::metadata::dir_format::DirFormat;
use crate::metadata::dirty::DirtyMetadata;
use crate::metadata::errors::note_loss;
use crate::metadata::fast_commit::FastCommits;
use crate::metadata::features::Features;
use crate::metadata::groups::Groups;
use crate::metadata::orphan_list::Orphans;
use crate::metadata::quota::Quotas;
use crate::metadata::reserve::reserved_clusters_of;
use crate::metadata::reserved::SpecialInodes;
use crate::metadata::tables::{self, Tables};
pub(crate) use load_journal::find_log;
pub(crate) use options::Options;

use crate::mount::features::{check_enforced_quotas, check_features};
use crate::mount::load_journal::{Recovered, open_journal, recover};
use crate::mount::mmp::MmpGuard;
use crate::mount::options::ENTRY_BYTES;
use crate::namespace::Namespace;
use crate::page_cache::{PageCache, PageCacheOwner, Pages, WritebackRanges};

/// The findings of mounting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mounted {
    /// Blocks that the journal held and that were replayed, or are laid over the disk when reading.
    pub replayed_blocks: usize,
    /// Fast commits that were replayed, or are shown as replayed when reading.
    pub replayed_fast_commits: u32,
    /// Whole transactions in the journal of a disk whose superblock says that it was unmounted. They were not replayed; mounting
    /// for writing emptied the journal.
    pub skipped_transactions: u32,
    /// Inodes that were deleted or truncated because a crash had left them so.
    pub orphans: usize,
    /// Users, groups and projects with limits that are not in force; none when reading.
    pub quota_limits: usize,
    /// The error with which the journal was aborted when it was last in use, a negative number of the host's; or 0.
    pub journal_errno: i32,
}

/// A mounted file system: all layers over a device.
pub(crate) struct Volume {
    lower: Namespace,
    /// The multiple-mount protection, on disks that have it.
    mmp_guard: Option<MmpGuard>,
}

impl Deref for Volume {
    type Target = Namespace;

    fn deref(&self) -> &Namespace {
        &self.lower
    }
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume").field("geometry", &self.geometry).finish_non_exhaustive()
    }
}

impl Volume {
    /// Mounts what is on `device`.
    ///
    /// # Errors
    /// `Incompatible`, `ReadOnlyFeatures`, `InUse`, `Corrupt`, `Io`, `Journal`. Nothing was written, unless the error came
    /// from finishing what a crash left.
    pub(crate) fn mount(device: Arc<dyn BlockDevice>, options: &Options) -> Result<(Arc<Self>, Mounted)> {
        let mut mounted = Mounted::default();
        let mut superblock = read_superblock(&*device)?;
        check_features(&superblock, options.read_only)?;
        let mut device = device;
        let mut mmp_guard = None;
        if superblock.incompat().contains(IncompatFeatures::MMP) && !options.read_only {
            let taken = MmpGuard::take(device, &superblock, options.clock)?;
            device = taken.device();
            mmp_guard = Some(taken);
            // Another host that held the disk until now may have changed it.
            superblock = read_superblock(&*device)?;
            check_features(&superblock, options.read_only)?;
        }
        check_enforced_quotas(&superblock, options.enforced_quotas)?;
        let is_crashed = superblock.incompat().contains(IncompatFeatures::RECOVER)
            || superblock.state() & (State::VALID | State::ERROR) != State::VALID;
        let mut recovered = RecoveredMap::read(device.clone(), superblock, options, &mut mounted)?;
        if options.read_only && !recovered.fast_commits.is_empty() {
            recovered.map = replay_in_memory(device, options, &mut mounted)?;
        }
        recovered.map.sb_info_mut().is_crashed = is_crashed;
        let (volume, damage) = Self::open(recovered, mmp_guard, options, &mounted)?;
        if options.read_only {
            return Ok((volume, mounted));
        }
        mounted.quota_limits = volume.quotas.as_ref().map_or(0, Quotas::limit_count);
        volume.mark_mounted(options)?;
        mounted.orphans = volume.process_orphans(damage)?;
        if let Some(journal) = &volume.journal
            && options.background
        {
            journal.spawn_background(options.commit_interval)?;
            if is_crashed {
                counting::start(&volume);
            }
            tables::start(&volume, options.table_delay)?;
        }
        Ok((volume, mounted))
    }

    /// Opens what was recovered, and makes its fast commits durable as one transaction.
    fn open(
        recovered: RecoveredMap,
        mmp_guard: Option<MmpGuard>,
        options: &Options,
        mounted: &Mounted,
    ) -> Result<(Arc<Self>, Option<DamagedList>)> {
        let RecoveredMap { mut map, log, fast_commits } = recovered;
        let sbi = map.sb_info_mut();
        sbi.log_blocks = log.as_ref().map_or(0, |log| u64::from(log.len()));
        sbi.allocator.read_descriptors(0..DESCRIPTOR_BLOCKS_AT_MOUNT)?;
        if !options.read_only {
            open_journal(sbi, log, options.cache_bytes, !fast_commits.is_empty())?;
            let quotas = map.read_quotas(options.enforced_quotas)?;
            map.sb_info_mut().quotas = quotas;
        }
        let volume = Arc::new(Self::over(map, mmp_guard, options)?);
        let Some(journal) = &volume.journal else { return Ok((volume, None)) };
        let owner: Weak<Self> = Arc::downgrade(&volume);
        volume.start_threads(owner);
        if mounted.journal_errno != 0 {
            // The superblock has it now, so that the journal may forget it.
            volume.handle_journal_abort("journal aborted");
        }
        let client: Weak<Self> = Arc::downgrade(&volume);
        journal.set_client(client);
        let damage = volume.load_orphan_list()?;
        if !fast_commits.is_empty() {
            volume.replay_fast_commits(&fast_commits)?;
            journal.commit_running()?;
            journal.checkpoint()?;
            volume.add_unplaced_usage()?;
        }
        Ok((volume, damage))
    }

    /// Puts the layers that work with names, files and pages over a block map.
    ///
    /// # Errors
    /// `Io` if the host gives no threads.
    fn over(map: BlockMap, mmp_guard: Option<MmpGuard>, options: &Options) -> Result<Self> {
        let ranges = WritebackRanges::new(&map.geometry, map.device.has_latency());
        let bytes = options.page_cache_bytes_for(&*map.device);
        let background = options.background && !options.read_only;
        let new_pages = || Pages::new(bytes, options.keep_clean_pages, ranges, background).map(Arc::new);
        let pages = (bytes > 0).then(new_pages).transpose()?;
        let files = Files::new(Directories::new(Inodes::new(PageCache::new(map, pages))));
        let lower = Namespace::new(files, entry_count(options.cache_bytes, ENTRY_BYTES));
        Ok(Self { lower, mmp_guard })
    }

    /// Completes a change whose log lies in free blocks ([`staged_log`]), if the disk has one.
    ///
    /// # Errors
    /// `Corrupt`; `Io`. The log is there to be replayed again.
    #[cfg(feature = "tune")]
    pub(crate) fn complete_staged(device: &Arc<dyn BlockDevice>) -> Result<bool> {
        let superblock = read_superblock(&**device)?;
        let is_staged =
            superblock.compat().contains(CompatFeatures::HAS_JOURNAL) && staged_log::is_named(&superblock);
        if is_staged {
            check_features(&superblock, false)?;
            RecoveredMap::read(device.clone(), superblock, &Options::default(), &mut Mounted::default())?;
        }
        Ok(is_staged)
    }

    /// How long mounting for writing would wait to see whether another host uses the disk.
    ///
    /// # Errors
    /// `Corrupt`; `Io`.
    pub(crate) fn mmp_wait(device: &dyn BlockDevice) -> Result<Duration> {
        let superblock = read_superblock(device)?;
        match superblock.incompat().contains(IncompatFeatures::MMP) {
            true => MmpGuard::wait(device, &superblock),
            false => Ok(Duration::ZERO),
        }
    }

    fn mark_mounted(&self, options: &Options) -> Result<()> {
        let now = u64::try_from(self.now().seconds).unwrap_or(0);
        let copy = {
            let superblock = &mut *self.superblock.lock();
            let has_log = superblock.compat().contains(CompatFeatures::HAS_JOURNAL);
            if has_log {
                superblock.set_incompat(superblock.incompat() | IncompatFeatures::RECOVER);
            } else {
                superblock.set_state(superblock.state() - State::VALID);
            }
            superblock.set_s_mnt_count(superblock.s_mnt_count().wrapping_add(1));
            superblock.set_mount_time(now);
            superblock.set_write_time(now);
            if let Some(path) = &options.last_mounted {
                let mut field = [0; 64];
                let len = path.len().min(field.len() - 1);
                field[..len].copy_from_slice(&path[..len]);
                superblock.set_s_last_mounted(field);
            }
            superblock.set_free_blocks_count(self.disk_free_blocks());
            superblock
                .set_s_free_inodes_count(u32::try_from(self.allocator.free_inodes()).unwrap_or(u32::MAX));
            superblock.clone()
        };
        self.write_superblock(|| Ok(copy))
    }

    /// Makes everything durable, checkpoints it, and marks the superblock as clean. The volume can only be read after.
    ///
    /// # Errors
    /// The journal's and the device's; the disk is then to be recovered as after a crash.
    pub(crate) fn unmount(&self) -> Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        if self.unmounted.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let ended = self.shutdown_clean(journal);
        ended.and(self.release_mmp())
    }

    /// Stops all writing for good, with what is committed by then; the next mount recovers as after a crash.
    ///
    /// Source: `ext4_force_shutdown` of `fs/ext4/ioctl.c`.
    ///
    /// # Errors
    /// The commit's, if `commit`; writing is stopped all the same.
    pub(crate) fn force_shutdown(&self, commit: bool) -> Result<()> {
        let Some(journal) = &self.journal else { return Ok(()) };
        let synced = if commit { self.sync() } else { Ok(()) };
        self.failed.store(true, Ordering::Release);
        self.unmounted.store(true, Ordering::Release);
        journal.abort(extant_journal::Error::ShutDown);
        // Pages left in memory are lost.
        let _ = self.finish_flushing();
        synced.and(self.release_mmp())
    }

    fn shutdown_clean(&self, journal: &Journal) -> Result<()> {
        self.tables.stop();
        let flushed = self.finish_flushing();
        self.evict_all_unlinked();
        self.allocator.discard_preallocations(u64::MAX);
        let closed = journal.close();
        self.failed.store(true, Ordering::Release);
        self.finish_counting();
        if closed.is_err() {
            self.report_errors();
        }
        closed?;
        let lost = flushed.and(self.check_writeback_error());
        let now = u64::try_from(self.now().seconds).unwrap_or(0);
        self.write_superblock(|| {
            let superblock = &mut *self.superblock.lock();
            superblock.set_incompat(superblock.incompat() - IncompatFeatures::RECOVER);
            // A file system with unfinished orphans is valid too: its list is finished at the next mount.
            superblock.set_state(superblock.state() | State::VALID);
            superblock.set_free_blocks_count(self.disk_free_blocks());
            superblock
                .set_s_free_inodes_count(u32::try_from(self.allocator.free_inodes()).unwrap_or(u32::MAX));
            superblock.set_write_time(now);
            if let Err(error) = &lost {
                note_loss(superblock, self.now().seconds, error);
            }
            Ok(superblock.clone())
        })?;
        lost.and(self.check_undeleted())
    }
}

impl AsRef<SbInfo> for Volume {
    fn as_ref(&self) -> &SbInfo {
        self
    }
}

impl Client for Volume {
    fn freeze(
        &self,
        tid: TransactionId,
    ) -> Box<dyn FnOnce() -> Result<Vec<FinalBlock>, BoxError> + Send + '_> {
        SbInfo::freeze(self, tid)
    }

    fn fast_commit(&self, _tid: TransactionId) -> Option<Vec<Vec<u8>>> {
        self.fast_commits.collect(|inode, range| self.extents_in(inode, range))
    }

    fn read_before_recovery(&self) -> Vec<FsBlock> {
        SbInfo::read_before_recovery(self)
    }

    fn committed(&self, tid: TransactionId) {
        SbInfo::committed(self, tid);
    }

    fn aborted(&self, error: &extant_journal::Error) {
        SbInfo::aborted(self, error);
    }
}

impl PageCacheOwner for Volume {
    fn page_cache(&self) -> &PageCache {
        self
    }

    fn worked_on_inode(&self) {
        self.evict_unlinked();
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // As well as it can; `unmount` returns the error.
        let _ = self.unmount();
    }
}

/// The block map of a file system whose log was replayed.
struct RecoveredMap {
    map: BlockMap,
    log: Option<LogMap>,
    fast_commits: Vec<FastCommitRecord>,
}

impl RecoveredMap {
    fn read(
        device: Arc<dyn BlockDevice>,
        superblock: Superblock,
        options: &Options,
        mounted: &mut Mounted,
    ) -> Result<Self> {
        let mut map = BlockMap::new(read_sb_info(device.clone(), superblock, BTreeMap::new(), options)?);
        let mut log = find_log(&map)?;
        let is_staged = log.is_some() && staged_log::is_named(&map.superblock.lock());
        let recovered = match &log {
            Some(log) if !options.no_recovery => recover(&map, log, options.read_only, mounted)?,
            _ => Recovered::default(),
        };
        let Recovered { blocks: replayed, fast_commits } = recovered;
        if mounted.replayed_blocks > 0 {
            // The superblock and the descriptors may have changed.
            let superblock = match replayed.get(&map.superblock_location().0) {
                Some(bytes) => {
                    let at = map.superblock_location().1;
                    parse_superblock(bytes.get(at..at + 1024).unwrap_or_default())?
                }
                None => read_superblock(&*device)?,
            };
            map = BlockMap::new(read_sb_info(device, superblock, replayed, options)?);
        }
        if is_staged && !options.no_recovery {
            if staged_log::is_named(&map.superblock.lock()) {
                let location = Location::of(Structure::Journal).inode(staged_log::STAGED_LOG);
                return Err(location.corrupt("a change that was under way is not in its log"));
            }
            log = find_log(&map)?;
        }
        Ok(Self { map, log, fast_commits })
    }
}

/// The block map of a disk with fast commits, for reading: these are replayed as for writing, but onto an overlay in memory.
///
/// # Errors
/// `Unsupported` if the disk cannot be written; those of mounting for writing.
fn replay_in_memory(
    device: Arc<dyn BlockDevice>,
    options: &Options,
    mounted: &mut Mounted,
) -> Result<BlockMap> {
    let superblock = read_superblock(&*device)?;
    check_features(&superblock, false).map_err(|_| {
        Error::Unsupported(
            "fast commits to replay on a disk that can only be read; a mount by Linux replays them",
        )
    })?;
    let overlay = Arc::new(Overlay::new(device.clone(), superblock.block_size()));
    let writing =
        Options { read_only: false, background: false, page_cache_bytes: Some(0), ..options.clone() };
    let recovered = RecoveredMap::read(overlay.clone(), superblock, &writing, mounted)?;
    let (volume, _) = Volume::open(recovered, None, &writing, &Mounted::default())?;
    if let Some(journal) = &volume.journal {
        journal.close()?;
    }
    let blocks: BTreeMap<_, _> =
        overlay.written().into_iter().map(|(block, bytes)| (FsBlock(block), bytes)).collect();
    let superblock = read_superblock(&*overlay)?;
    mounted.replayed_blocks = blocks.len();
    Ok(BlockMap::new(read_sb_info(device, superblock, blocks, options)?))
}

/// How many entries of a cache `bytes` are for.
fn entry_count(bytes: u64, each: u64) -> usize {
    usize::try_from(bytes / each).unwrap_or(usize::MAX)
}

fn read_sb_info(
    device: Arc<dyn BlockDevice>,
    superblock: Superblock,
    replayed: BTreeMap<FsBlock, Arc<[u8]>>,
    options: &Options,
) -> Result<SbInfo> {
    let location = Location::of(Structure::Superblock);
    let geometry = Geometry::new(&superblock).map_err(|e| location.format(e))?;
    let needed = geometry.blocks_count.saturating_mul(u64::from(geometry.block_size));
    if needed > device.size() {
        return Err(Error::Truncated { needed, found: device.size() });
    }
    let checksums = Checksums::new(&superblock);
    // Without a log, a name may outlast its inode in a crash, and must not name the next one.
    let has_journal = superblock.compat().contains(CompatFeatures::HAS_JOURNAL);
    // No record says what is in the quota files. Of a disk with clusters Linux replays records with a count of blocks that leaves out
    // the blocks of clusters which are not mapped (`ext4_ext_replay_set_iblocks`).
    let has_fast_commits = has_journal
        && superblock.compat().contains(CompatFeatures::FAST_COMMIT)
        && geometry.cluster_ratio == 1
        && !superblock.ro_compat().contains(RoCompatFeatures::QUOTA);
    let tuning = Tuning { reuse_inodes: options.tuning.reuse_inodes && has_journal, ..options.tuning };
    let reserved_clusters = reserved_clusters_of(&superblock).min(options.reserved_pool_max);
    let setup = Setup {
        free_blocks: superblock.free_blocks_count() >> geometry.cluster_bits,
        free_inodes: u64::from(superblock.s_free_inodes_count()),
        root_blocks: superblock.r_blocks_count() >> geometry.cluster_bits,
        reserved_blocks: reserved_clusters,
        bitmap_bytes_max: options.cache_bytes / 4,
        tuning,
    };
    let committed = Arc::new(OnceLock::new());
    let groups = Groups {
        device: device.clone(),
        block_size: geometry.block_size,
        checksums,
        replayed: replayed.clone(),
        journal: committed.clone(),
    };
    let allocator = Allocator::new(geometry.clone(), &setup, Box::new(groups));
    let buffer_count = entry_count(options.cache_bytes / 4, u64::from(geometry.block_size));
    Ok(SbInfo {
        device,
        geometry: Versioned::new(geometry),
        checksums,
        allocator,
        log_blocks: 0,
        reserved_clusters,
        overhead: AtomicU64::new(0),
        is_crashed: false,
        counting: Mutex::with_key(LockClass::CACHE, 1, None),
        journal: None,
        committed,
        replayed,
        buffers: Cache::new(buffer_count),
        inodes: InodeCache::new(entry_count(options.cache_bytes, ENTRY_BYTES)),
        dirty_metadata: DirtyMetadata::new(),
        fast_commits: FastCommits::new(has_fast_commits),
        pinned: Mutex::new(LockClass::CACHE, None),
        quotas: None,
        tables: Tables::new(),
        resizing: Mutex::new(LockClass::RESIZE, ()),
        orphans: Mutex::new(LockClass::ORPHAN, Orphans::default()),
        features: Features::new(&superblock),
        dir_format: DirFormat::new(&superblock),
        special_inodes: SpecialInodes::new(&superblock),
        superblock: Mutex::new(LockClass::SUPERBLOCK, superblock),
        clock: options.clock,
        discards: AtomicBool::new(options.discard),
        features_in_use: AtomicU32::new(0),
        error_count: AtomicU32::new(0),
        failed: AtomicBool::new(false),
        stop_on_damage: options.stop_on_damage,
        unmounted: AtomicBool::new(false),
    })
}

pub(crate) fn read_superblock(device: &dyn BlockDevice) -> Result<Superblock> {
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).map_err(|e| Location::of(Structure::Superblock).io(e))?;
    parse_superblock(&bytes)
        .or_else(|error| superblock_recovery::recover_from_backup(device, &bytes).ok_or(error))
}

fn parse_superblock(bytes: &[u8]) -> Result<Superblock> {
    Superblock::parse(bytes).map_err(|e| Location::of(Structure::Superblock).format(e))
}
