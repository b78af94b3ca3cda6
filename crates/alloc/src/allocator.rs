//! The allocator: groups, counters and what waits for commits.
//!
//! Leaves out: checksums, descriptor blocks and superblocks (the committer writes them), and which blocks belong
//! to what (the caller knows).
//!
//! Locks: for a reservation that finds too little, those of [`crate::prealloc`]; a group's (`GROUP`, keyed by its number), never two at once; the queue of freed runs (`FREED`), never
//! together with a group. A bitmap is loaded with no lock held.

use std::collections::VecDeque;

use extant_ondisk::{Geometry, GroupDescriptor, GroupFlags, GroupNumber, InodeNumber, bitmap};
use extant_rt::{AtomicU64, LockClass, Mutex, Padded};

use crate::bands::Bands;
use crate::bitmap_cache::{self, BitmapCache};
use crate::bitmap64::{Bitmap64, FreeExtent};
use crate::counters::{Counters, Totals};
use crate::freed::Freed;
use crate::group::{Bitmap, BlockBits, Group, GroupState, InodeBits, Run, State};
use crate::group_set::GroupSet;
use crate::ialloc::Averages;
use crate::linux_model::{GroupGuard, GroupLocks, OlderForms, OlderInodeSearch};
use crate::mballoc::buddy::Buddy;
use crate::mballoc::{Expectation, Goals, OrderIndex, Statistics, Summary};
use crate::meta_groups::{MetaGroups, unknown};
use crate::prealloc::{LocalityGroups, Lookups, Owners};
use crate::system_zone::{block_bitmap, uninit_inode_bitmap};
use crate::tuning::Tuning;
use crate::{BoxError, Error, MayUse, Reservation, Result};

/// What the engine lends the allocators: descriptors and bitmaps as the last transaction left them.
pub trait GroupStore: Send + Sync {
    /// The descriptors of `count` groups from `first` on, all of one block of descriptors, checked: their places lie on
    /// the disk, and they have flags only where the disk has checksums of groups. Never asked for one that changed.
    ///
    /// # Errors
    /// Whatever keeps one of them from being read or believed.
    fn load_descriptors(&self, first: GroupNumber, count: u32) -> Result<Vec<GroupDescriptor>, BoxError>;

    /// The block bitmap of a group without `BLOCK_UNINIT`, a whole block, its checksum verified.
    ///
    /// # Errors
    /// Whatever keeps it from being read or believed.
    fn load_block_bitmap(
        &self,
        group: GroupNumber,
        descriptor: &GroupDescriptor,
    ) -> Result<Box<[u8]>, BoxError>;

    /// The inode bitmap of a group without `INODE_UNINIT`, a whole block, its checksum verified.
    ///
    /// # Errors
    /// Whatever keeps it from being read or believed.
    fn load_inode_bitmap(
        &self,
        group: GroupNumber,
        descriptor: &GroupDescriptor,
    ) -> Result<Box<[u8]>, BoxError>;
}

/// What an allocator starts from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// Free blocks of the disk, as the superblock says: believed until all descriptors are read.
    pub free_blocks: u64,
    /// Free inodes, likewise.
    pub free_inodes: u64,
    /// Root's blocks, which [`MayUse::Free`] leaves alone.
    pub root_blocks: u64,
    /// The reserved pool, which only [`MayUse::Reserved`] takes (kernel `s_resv_clusters`).
    pub reserved_blocks: u64,
    /// Bytes of bitmaps and buddies to keep in memory, beside those in use.
    pub bitmap_bytes_max: u64,
    /// How it works.
    pub tuning: Tuning,
}

/// The part of a disk that is not taken ahead: preallocations are for disks with room.
const SCARCE_PART: u64 = 32;

/// Which blocks and which inode. See the module and ARCHITECTURE.md, "Free blocks".
pub struct Allocator {
    pub(crate) geometry: Geometry,
    pub(crate) groups: MetaGroups,
    pub(crate) counters: Counters,
    /// Groups by their free space.
    pub(crate) index: OrderIndex,
    pub(crate) expectation: Expectation,
    pub(crate) goals: Goals,
    pub(crate) statistics: Statistics,
    /// Inodes with preallocations.
    pub(crate) owners: Owners,
    pub(crate) lookups: Lookups,
    pub(crate) locality_groups: LocalityGroups,
    pub(crate) tuning: Tuning,
    pub(crate) locks: GroupLocks,
    pub(crate) older: OlderForms,
    pub(crate) older_inode_search: OlderInodeSearch,
    /// Groups that may have free inodes.
    pub(crate) with_inodes: GroupSet,
    /// Groups changed in the running transaction.
    pub(crate) changed: GroupSet,
    /// Runs freed in frozen transactions that are not committed, oldest first.
    pub(crate) freed: Mutex<VecDeque<Freed>>,
    /// Held while a free run is out of its group, so that whoever misses it can wait.
    pub(crate) discarding: Mutex<()>,
    pub(crate) averages: Averages,
    /// The last transaction known to be durable, with bit 32 once there is one.
    pub(crate) committed: Padded<AtomicU64>,
    pub(crate) bitmap_cache: BitmapCache,
    /// The highest order of a buddy.
    pub(crate) order_max: u8,
    pub(crate) store: Box<dyn GroupStore>,
}

impl std::fmt::Debug for Allocator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Allocator")
            .field("groups", &self.geometry.group_count)
            .field("counters", &self.counters)
            .finish()
    }
}

impl Allocator {
    /// An allocator over the groups of a disk. Reads nothing.
    #[must_use]
    pub fn new(geometry: Geometry, setup: &Setup, store: Box<dyn GroupStore>) -> Self {
        let (count, tuning) = (geometry.group_count, setup.tuning);
        let totals = Totals {
            free_blocks: setup.free_blocks.min(geometry.blocks_count),
            free_inodes: setup.free_inodes.min(u64::from(geometry.inodes_count)),
            directories: 0,
            root_blocks: setup.root_blocks,
            reserved_blocks: setup.reserved_blocks,
            scarce_blocks: geometry.blocks_count / SCARCE_PART,
        };
        let order_max = order_max(&geometry);
        let (first, last) = (GroupNumber(0), GroupNumber(count.saturating_sub(1)));
        let of = |group| unknown(&geometry, group, order_max);
        let index = OrderIndex::full(count, of(first));
        // Only the last group may be shorter.
        index.set(last, of(last));
        let allocator = Self {
            groups: MetaGroups::new(&geometry),
            counters: Counters::new(&totals),
            index,
            expectation: Expectation::new(),
            goals: Goals::new(count, tuning.stream_goals),
            statistics: Statistics::new(),
            owners: Owners::new(),
            lookups: Lookups::new(),
            locality_groups: LocalityGroups::new(Bands::new(count)),
            tuning,
            locks: GroupLocks::new(&tuning),
            older: OlderForms::new(&tuning, count, of(first), of(last)),
            older_inode_search: OlderInodeSearch::new(&tuning, count),
            with_inodes: GroupSet::full(count),
            changed: GroupSet::new(count),
            freed: Mutex::new(LockClass::FREED, VecDeque::new()),
            discarding: Mutex::new(LockClass::DISCARDING, ()),
            averages: Averages::new(),
            committed: Padded(AtomicU64::new(0)),
            bitmap_cache: BitmapCache::new(
                count,
                setup.bitmap_bytes_max / u64::from(geometry.block_size.max(1)),
            ),
            order_max,
            geometry,
            store,
        };
        allocator.renew_averages();
        allocator
    }

    /// How it works.
    #[must_use]
    pub fn tuning(&self) -> &Tuning {
        &self.tuning
    }

    /// The layout of the disk.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Reserves `blocks` blocks of those that `may_use` names. Preallocations are discarded for it.
    ///
    /// # Errors
    /// `NoSpace` if so many are not available now; blocks that wait for a commit are not.
    ///
    /// # Locks
    /// May take `DISCARDING` and wait for a discard; `PREALLOCATIONS` of any inode.
    pub fn reserve(&self, blocks: u64, may_use: MayUse) -> Result<Reservation<'_>> {
        Reservation::new(&self.counters, blocks, may_use).or_else(|_| self.reserve_last(blocks, may_use))
    }

    /// The reservation that [`Reservation::into_claimed`] turned into a count.
    pub fn reservation_of_claimed(&self, blocks: u64) -> Reservation<'_> {
        Reservation::of_claimed(&self.counters, blocks)
    }

    /// [`Allocator::reserve`] where little is left.
    fn reserve_last(&self, blocks: u64, may_use: MayUse) -> Result<Reservation<'_>> {
        // What is out for a discard is back then.
        let _no_discard = self.discarding.lock();
        let mut more_to_discard = true;
        loop {
            match Reservation::new(&self.counters, blocks, may_use) {
                // Others may have been quicker with what was discarded. Once more after nothing was left to discard: whoever
                // discarded it meanwhile may have made room.
                Err(Error::NoSpace) if more_to_discard => {
                    more_to_discard = self.discard_preallocations(self.counters.lacking(blocks, may_use)) > 0;
                }
                // The superblock may have promised too little.
                Err(Error::NoSpace) if self.count_exactly() => {}
                other => return other,
            }
        }
    }

    /// Blocks that are free, not reserved and not preallocated.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        self.counters.available()
    }

    /// Blocks that become free when transactions commit.
    #[must_use]
    pub fn pending_free(&self) -> u64 {
        self.counters.pending.sum()
    }

    /// Whether a commit should begin now, before blocks run out: few are left, and at least a 32nd of the disk
    /// waits for it. Each request is told once.
    #[must_use]
    pub fn wants_commit(&self) -> bool {
        self.counters.consume_commit_request()
    }

    /// Free inodes.
    #[must_use]
    pub fn free_inodes(&self) -> u64 {
        self.counters.free_inodes.sum()
    }

    /// Free blocks as the running transaction says: what a superblock written now would claim.
    #[must_use]
    pub fn disk_free_blocks(&self) -> u64 {
        self.counters.disk_free.sum()
    }

    /// A group's descriptor as the running transaction says, its checksums stale.
    ///
    /// # Errors
    /// `Corrupt` if there is no such group.
    pub fn descriptor(&self, group: GroupNumber) -> Result<GroupDescriptor> {
        Ok(self.locks.lock(group, self.group(group)?).record.descriptor.clone())
    }

    /// How many inodes at the end of the group's table were never used: their table blocks need not hold zeros.
    ///
    /// # Errors
    /// `Corrupt` if there is no such group.
    pub fn itable_unused(&self, group: GroupNumber) -> Result<u32> {
        Ok(self.locks.lock(group, self.group(group)?).record.descriptor.itable_unused())
    }

    /// Whether none of the blocks is in use, as the running transaction says. `false` for blocks outside the disk.
    ///
    /// # Errors
    /// `Store` and `Corrupt` if a bitmap cannot be had.
    pub fn is_free(&self, run: Run) -> Result<bool> {
        self.each_piece(run, |group, gap| self.with_block_bits(group, |_, bits| Ok(bits.is_free(gap))))
    }

    /// Whether all of the blocks are in use, as the running transaction says. `false` for blocks outside the disk.
    ///
    /// # Errors
    /// `Store` and `Corrupt` if a bitmap cannot be had.
    pub fn is_used(&self, run: Run) -> Result<bool> {
        self.each_piece(run, |group, gap| self.with_block_bits(group, |_, bits| Ok(bits.is_used(gap))))
    }

    /// Whether any of the blocks is a superblock, descriptor, bitmap or inode table, of any group of the same flex group or
    /// that was read. `false` for blocks outside the disk.
    ///
    /// # Errors
    /// `Store` and `Corrupt` if descriptors cannot be read.
    pub fn is_system(&self, run: Run) -> Result<bool> {
        Ok(!self.each_piece(run, |group, gap| Ok(!self.has_system_block(group, gap)?))?
            && self.pieces(run).is_some())
    }

    /// Whether the inode is in use, as the running transaction says. `false` if there is no such inode.
    ///
    /// # Errors
    /// `Store` and `Corrupt` if a bitmap cannot be had.
    pub fn is_inode_allocated(&self, inode: InodeNumber) -> Result<bool> {
        let Some((group, bit)) = self.geometry.inode_location(inode) else { return Ok(false) };
        self.with_inode_bits(group, |_, _, bits| Ok(bitmap::is_set(&bits.disk, bit)))
    }

    fn each_piece(
        &self,
        run: Run,
        mut each: impl FnMut(GroupNumber, FreeExtent) -> Result<bool>,
    ) -> Result<bool> {
        let Some(pieces) = self.pieces(run) else { return Ok(false) };
        for (group, gap) in pieces {
            if !each(group, gap)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The parts of a run by group, or `None` if it is not wholly inside the disk.
    pub(crate) fn pieces(
        &self,
        run: Run,
    ) -> Option<impl Iterator<Item = (GroupNumber, FreeExtent)> + use<'_>> {
        let last = run.start.checked_add(u64::from(run.len).checked_sub(1)?)?;
        let ((first_group, _), (last_group, _)) =
            (self.geometry.group_of(run.start)?, self.geometry.group_of(last)?);
        Some((first_group.0..=last_group.0).map(GroupNumber).map(move |group| {
            let base = self.geometry.group_first_block(group).0;
            let from = run.start.0.max(base);
            let to = last.0.min(base + u64::from(self.geometry.blocks_in_group(group)) - 1);
            (group, FreeExtent { start: (from - base) as u32, len: (to - from + 1) as u32 })
        }))
    }

    pub(crate) fn lock<'a>(&'a self, number: GroupNumber, group: &'a Group) -> GroupGuard<'a> {
        self.statistics.add_lock();
        self.locks.lock(number, group)
    }

    /// Calls `act` with the group's lock held and its block bitmaps loaded.
    pub(crate) fn with_block_bits<T>(
        &self,
        number: GroupNumber,
        act: impl FnOnce(&mut GroupState, &mut BlockBits) -> Result<T>,
    ) -> Result<T> {
        let group = self.group(number)?;
        let mut state = self.lock(number, group);
        while matches!(state.blocks, Bitmap::Unread) {
            state = self.read_blocks(number, group, state)?;
        }
        state.is_referenced = true;
        let State { record, blocks, .. } = &mut *state;
        match blocks {
            Bitmap::Loaded(bits) => act(record, bits),
            Bitmap::Bad(contradiction) => Err(Error::unusable(number, *contradiction)),
            Bitmap::Unread => Err(Error::unusable(number, None)),
        }
    }

    /// Calls `act` with the group's lock held and its inode bitmap loaded.
    pub(crate) fn with_inode_bits<T>(
        &self,
        number: GroupNumber,
        act: impl FnOnce(&Group, &mut GroupState, &mut InodeBits) -> Result<T>,
    ) -> Result<T> {
        let group = self.group(number)?;
        let mut state = self.lock(number, group);
        while matches!(state.inodes, Bitmap::Unread) {
            state = self.read_inodes(number, group, state)?;
        }
        state.is_referenced = true;
        let State { record, inodes, .. } = &mut *state;
        match inodes {
            Bitmap::Loaded(bits) => act(group, record, bits),
            Bitmap::Bad(contradiction) => Err(Error::unusable(number, *contradiction)),
            Bitmap::Unread => Err(Error::unusable(number, None)),
        }
    }

    /// Reads and checks a block bitmap (kernel `ext4_validate_block_bitmap`, `ext4_mb_generate_buddy`).
    pub(crate) fn load_block_bits(
        &self,
        number: GroupNumber,
        descriptor: &GroupDescriptor,
    ) -> Result<BlockBits> {
        let corrupt = |what| Err(Error::Corrupt { group: number, what });
        let bits = self.geometry.blocks_in_group(number);
        let mut system = Vec::new();
        self.each_system_range(number, |start, len| system.push((start, len)))?;
        let disk = if descriptor.flags().contains(GroupFlags::BLOCK_UNINIT) {
            block_bitmap(&self.geometry, number, system.iter().copied())
        } else {
            self.store
                .load_block_bitmap(number, descriptor)
                .map_err(|source| Error::Store { group: number, source })?
        };
        if disk.len() != self.geometry.block_size as usize {
            return corrupt("block bitmap is not a block");
        }
        let busy = Bitmap64::from_bytes(&disk, bits);
        if !system.iter().all(|(start, len)| busy.is_set(*start, *len)) {
            return corrupt("block bitmap shows file system metadata as free");
        }
        let buddy = Buddy::new(busy, self.order_max);
        if buddy.free() != descriptor.free_blocks_count() {
            return corrupt("block bitmap and free block count differ");
        }
        Ok(BlockBits { disk: disk.into(), buddy, discarded: u32::MAX })
    }

    /// Puts loaded bits in place, unless another thread was quicker; marks the group bad if there are none.
    pub(crate) fn install_block_bits(
        &self,
        number: GroupNumber,
        state: &mut State,
        loaded: Result<BlockBits>,
    ) -> Result<()> {
        if !matches!(state.blocks, Bitmap::Unread) {
            return Ok(());
        }
        let before = self.index.get(number);
        match loaded {
            Ok(bits) => {
                let now = Summary::of(&bits.buddy);
                if before.is_unread() {
                    self.expectation.learn(now);
                }
                self.set_summary(number, now);
                state.blocks = Bitmap::Loaded(Box::new(bits));
                self.bitmap_cache.add(number, bitmap_cache::BLOCK_BITMAP_COST);
                Ok(())
            }
            Err(error) => {
                state.blocks = Bitmap::Bad(error.contradiction());
                self.counters.lose(u64::from(before.free));
                self.set_summary(number, Summary::NONE);
                Err(error)
            }
        }
    }

    pub(crate) fn load_inode_bits(
        &self,
        number: GroupNumber,
        descriptor: &GroupDescriptor,
    ) -> Result<InodeBits> {
        let corrupt = |what| Err(Error::Corrupt { group: number, what });
        let disk = if descriptor.flags().contains(GroupFlags::INODE_UNINIT) {
            uninit_inode_bitmap(&self.geometry)
        } else {
            self.store
                .load_inode_bitmap(number, descriptor)
                .map_err(|source| Error::Store { group: number, source })?
        };
        if disk.len() != self.geometry.block_size as usize {
            return corrupt("inode bitmap is not a block");
        }
        if bitmap::count_zeros(&disk, 0..self.geometry.inodes_per_group) != descriptor.free_inodes_count() {
            return corrupt("inode bitmap and free inode count differ");
        }
        Ok(InodeBits { disk: disk.into(), first_free: self.first_usable_bit(number), avoided: None })
    }

    pub(crate) fn install_inode_bits(
        &self,
        number: GroupNumber,
        state: &mut State,
        loaded: Result<InodeBits>,
    ) -> Result<()> {
        if !matches!(state.inodes, Bitmap::Unread) {
            return Ok(());
        }
        match loaded {
            Ok(bits) => {
                state.inodes = Bitmap::Loaded(Box::new(bits));
                self.bitmap_cache.add(number, bitmap_cache::INODE_BITMAP_COST);
            }
            Err(error) => {
                state.inodes = Bitmap::Bad(error.contradiction());
                self.with_inodes.remove(number);
                return Err(error);
            }
        }
        Ok(())
    }

    /// The first bit of a group's inode bitmap that is not a reserved inode's.
    pub(crate) fn first_usable_bit(&self, group: GroupNumber) -> u32 {
        let before = u64::from(group.0) * u64::from(self.geometry.inodes_per_group);
        let first = u64::from(self.geometry.first_ino.saturating_sub(1)).saturating_sub(before);
        first.min(u64::from(self.geometry.inodes_per_group)) as u32
    }
}

/// The highest order of a buddy (kernel `MB_NUM_ORDERS`).
pub(crate) fn order_max(geometry: &Geometry) -> u8 {
    geometry.block_size.ilog2() as u8 + 1
}
