//! One block group that was touched: its descriptor and its bitmaps. The [`summary`] of its free space is kept in the index of all
//! groups ([`crate::group_table`]).
//!
//! Invariants, under the lock, once the block bitmaps are loaded:
//! - the buddy's `busy` ⊇ `disk`; a bit of `busy` that `disk` lacks was taken and not yet marked, preallocated ones
//!   among them, or freed and not committed;
//! - the descriptor's free count is the number of clear bits of `disk`;
//! - the summary in the index is the buddy's.
//!
//! Locks: the group's own (`GROUP`). No I/O under it.

pub(crate) mod buddy;
pub(crate) mod freed_runs;
pub(crate) mod summary;

use extant_ondisk::{Cluster, GroupDescriptor, GroupFlags, GroupNumber, TransactionId, bitmap};
use extant_rt::{Arc, AtomicU32, LockClass, Mutex, Ordering};

use self::buddy::Buddy;
use self::freed_runs::FreedRuns;
use crate::bitmap64::FreeExtent;

/// A run of clusters. Those that the allocator gives out lie in one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterRun {
    /// The first cluster.
    pub start: Cluster,
    /// How many clusters.
    pub len: u32,
}

/// A block group, on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Group {
    /// As the descriptor says.
    directories: AtomicU32,
    free_inodes: AtomicU32,
    /// The slot of the locality group that found a chunk here last, and one; 0 if none did.
    chunk_slot: AtomicU32,
    pub state: Mutex<State>,
}

/// What the lock protects.
#[derive(Debug)]
pub(crate) struct State {
    pub record: GroupState,
    pub blocks: Bitmap<BlockBits>,
    pub inodes: Bitmap<InodeBits>,
    /// How often bitmaps were evicted.
    pub evictions: u32,
    /// Bitmaps were used since the clock hand of [`crate::bitmap_cache`] last passed.
    pub is_referenced: bool,
}

/// What a group keeps beside its bitmaps.
#[derive(Debug)]
pub(crate) struct GroupState {
    /// As the running transaction says; its checksums are stale.
    pub descriptor: GroupDescriptor,
    /// The block bitmap changed in the running transaction.
    pub blocks_changed: bool,
    /// The inode bitmap changed in the running transaction.
    pub inodes_changed: bool,
    /// The transaction of these changes, or of the last ones.
    pub tid: TransactionId,
    /// Whether there ever was one.
    was_changed: bool,
    /// Inodes given out since mounting.
    pub inodes_made: u32,
    /// Freed in the running transaction.
    pub freed: FreedRuns,
    /// Inodes at the start of the table that stand in blocks which frozen transactions, or those before, wrote.
    pub inodes_written: u32,
}

/// A bitmap that is read when it is first needed.
#[derive(Debug)]
pub(crate) enum Bitmap<T> {
    Unread,
    Loaded(Box<T>),
    /// The group is unusable: how its bitmap contradicts its descriptor, or None if it could not be read.
    Bad(Option<&'static str>),
}

/// The two block bitmaps.
#[derive(Debug)]
pub(crate) struct BlockBits {
    /// As the running transaction says.
    pub disk: Arc<[u8]>,
    /// What may be given out.
    pub buddy: Buddy,
    /// The least length of runs that are all discarded; `u32::MAX` if blocks came back since.
    pub discarded: u32,
}

/// The inode bitmap, as the running transaction says.
#[derive(Debug)]
pub(crate) struct InodeBits {
    pub disk: Arc<[u8]>,
    /// No free inode has a lower bit.
    pub first_free: u32,
    pub avoided: Option<Avoided>,
}

/// Inodes that are not given out while there are others.
#[derive(Debug)]
pub(crate) struct Avoided {
    /// The last transaction that freed one of them; when it is durable, none is avoided.
    pub tid: TransactionId,
    /// The inode bitmap with theirs set.
    pub used: Box<[u8]>,
}

impl Group {
    /// As its descriptor says, its block bitmap not read.
    pub fn new(number: GroupNumber, descriptor: GroupDescriptor, inodes_per_group: u32) -> Self {
        let (directories, free_inodes) = (descriptor.used_dirs_count(), descriptor.free_inodes_count());
        let state = State::new(descriptor, inodes_per_group);
        Self {
            directories: AtomicU32::new(directories),
            free_inodes: AtomicU32::new(free_inodes.min(inodes_per_group)),
            chunk_slot: AtomicU32::new(0),
            state: Mutex::with_key(LockClass::GROUP, u64::from(number.0), state),
        }
    }

    /// How many directories it has. May be stale without the lock.
    pub fn directories(&self) -> u32 {
        self.directories.load(Ordering::Relaxed)
    }

    /// Sets how many directories it has. To be called with the lock held, with what it protects.
    pub fn count_directories(&self, record: &mut GroupState, directories: u32) {
        record.descriptor.set_used_dirs_count(directories);
        self.directories.store(directories, Ordering::Relaxed);
    }

    /// How many free inodes it has. May be stale without the lock.
    pub fn free_inodes(&self) -> u32 {
        self.free_inodes.load(Ordering::Relaxed)
    }

    /// The slot of the locality group that found a chunk here last. A hint.
    pub fn chunk_slot(&self) -> Option<u32> {
        self.chunk_slot.load(Ordering::Relaxed).checked_sub(1)
    }

    /// A locality group found a chunk here.
    pub fn set_chunk_slot(&self, slot: u32) {
        self.chunk_slot.store(slot + 1, Ordering::Relaxed);
    }

    /// Sets how many free inodes it has. To be called with the lock held, with what it protects.
    pub fn count_free_inodes(&self, record: &mut GroupState, free: u32) {
        record.descriptor.set_free_inodes_count(free);
        self.free_inodes.store(free, Ordering::Relaxed);
    }
}

impl State {
    fn new(descriptor: GroupDescriptor, inodes_per_group: u32) -> Self {
        let is_zeroed = descriptor.flags().contains(GroupFlags::INODE_ZEROED);
        let unwritten = if is_zeroed { 0 } else { descriptor.itable_unused() };
        let record = GroupState {
            inodes_written: inodes_per_group.saturating_sub(unwritten),
            descriptor,
            blocks_changed: false,
            inodes_changed: false,
            tid: TransactionId(0),
            was_changed: false,
            inodes_made: 0,
            freed: FreedRuns::default(),
        };
        Self { record, blocks: Bitmap::Unread, inodes: Bitmap::Unread, evictions: 0, is_referenced: false }
    }
}

impl GroupState {
    /// The last transaction that changed the group.
    pub fn changed_in(&self) -> Option<TransactionId> {
        self.was_changed.then_some(self.tid)
    }

    /// Notes a change of the block bitmap: how many blocks the transaction did not have to write before.
    pub fn change_blocks(&mut self, tid: TransactionId) -> u32 {
        let descriptor = self.change(tid, GroupFlags::BLOCK_UNINIT);
        descriptor + u32::from(!std::mem::replace(&mut self.blocks_changed, true))
    }

    /// Notes a change of the inode bitmap: how many blocks the transaction did not have to write before.
    pub fn change_inodes(&mut self, tid: TransactionId) -> u32 {
        let descriptor = self.change(tid, GroupFlags::INODE_UNINIT);
        descriptor + u32::from(!std::mem::replace(&mut self.inodes_changed, true))
    }

    /// Notes more flags: how many blocks the transaction did not have to write before.
    pub fn change_flags(&mut self, tid: TransactionId, more: GroupFlags) -> u32 {
        let written = self.change(tid, GroupFlags::empty());
        self.descriptor.set_flags(self.descriptor.flags() | more);
        written
    }

    fn change(&mut self, tid: TransactionId, no_longer: GroupFlags) -> u32 {
        debug_assert!(
            self.tid == tid || !(self.blocks_changed || self.inodes_changed),
            "a group changes in transaction {tid} while {} is not frozen",
            self.tid
        );
        self.tid = tid;
        self.was_changed = true;
        self.descriptor.set_flags(self.descriptor.flags() - no_longer);
        u32::from(!self.blocks_changed && !self.inodes_changed)
    }
}

impl BlockBits {
    /// The bytes to change; copied if a freeze holds them.
    pub fn disk_mut(&mut self) -> &mut [u8] {
        Arc::make_mut(&mut self.disk)
    }

    pub fn is_used(&self, gap: FreeExtent) -> bool {
        bitmap::is_range_set(&self.disk, gap.range())
    }

    pub fn is_free(&self, gap: FreeExtent) -> bool {
        bitmap::is_range_clear(&self.disk, gap.range())
    }
}

impl InodeBits {
    /// The bytes to change; copied if a freeze holds them.
    pub fn disk_mut(&mut self) -> &mut [u8] {
        Arc::make_mut(&mut self.disk)
    }

    /// Sets a clear bit.
    pub fn set(&mut self, bit: u32) {
        bitmap::set(self.disk_mut(), bit);
        if bit == self.first_free {
            self.first_free = bit + 1;
        }
        if let Some(avoided) = &mut self.avoided {
            bitmap::set(&mut avoided.used, bit);
        }
    }

    /// Avoids what is in use now, should it be freed, until `tid` is durable.
    pub fn avoid_until_committed(&mut self, tid: TransactionId) {
        self.avoided.get_or_insert_with(|| Avoided { tid, used: self.disk[..].into() }).tid = tid;
    }

    /// Avoids nothing any longer, if all of it was freed in transactions up to `committed`.
    pub fn forget_avoided(&mut self, committed: TransactionId) {
        if self.avoided.as_ref().is_some_and(|avoided| !avoided.tid.is_after(committed)) {
            self.avoided = None;
        }
    }
}
