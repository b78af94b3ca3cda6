//! One block group in memory: its descriptor, its bitmaps, and a hint that is read without its lock.
//!
//! Invariants, under the lock, once the block bitmaps are loaded:
//! - `busy` ⊇ `disk`; a bit of `busy` that `disk` lacks was taken and not yet marked, or freed and not committed.
//! - the descriptor's free count is the number of clear bits of `disk`;
//! - `Hint::free` is the number of clear bits of `busy`, and no gap is longer than `Hint::longest`.
//!
//! Locks: the group's own (`GROUP`). No I/O under it.

use extant_ondisk::{FsBlock, GroupDescriptor, GroupFlags, TransactionId, bitmap};
use extant_rt::{Arc, AtomicU32, AtomicU64, Mutex, Ordering};

use crate::words::{Gap, Words};

/// A run of blocks. Those that the allocator gives out lie in one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    /// The first block.
    pub start: FsBlock,
    /// How many blocks.
    pub len: u32,
}

/// A block group, on cache lines of its own.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Group {
    /// `free` in the upper half, `longest` in the lower.
    hint: AtomicU64,
    /// As the descriptor says.
    directories: AtomicU32,
    pub state: Mutex<State>,
}

/// What can be known of a group without its lock. It may be stale: whoever acts on it looks again under the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hint {
    /// Blocks that can be given out.
    pub free: u32,
    /// No run of free blocks is longer.
    pub longest: u32,
}

/// What the lock protects.
#[derive(Debug)]
pub(crate) struct State {
    pub summary: Summary,
    pub blocks: Bitmap<BlockBits>,
    pub inodes: Bitmap<InodeBits>,
}

/// What a group keeps beside its bitmaps.
#[derive(Debug)]
pub(crate) struct Summary {
    /// As the running transaction says; its checksums are stale.
    pub descriptor: GroupDescriptor,
    /// The block bitmap changed in the running transaction.
    pub blocks_changed: bool,
    /// The inode bitmap changed in the running transaction.
    pub inodes_changed: bool,
    /// The transaction of these changes.
    pub tid: TransactionId,
    /// Inodes given out since mounting.
    pub inodes_made: u32,
    /// Freed in the running transaction.
    pub freed: Vec<Gap>,
}

/// A bitmap that is read when it is first needed.
#[derive(Debug)]
pub(crate) enum Bitmap<T> {
    Unread,
    Loaded(T),
    /// It contradicts its descriptor; the group is left alone.
    Bad(&'static str),
}

/// The two block bitmaps.
#[derive(Debug)]
pub(crate) struct BlockBits {
    /// As the running transaction says.
    pub disk: Arc<[u8]>,
    /// What may not be given out.
    pub busy: Words,
}

/// The inode bitmap, as the running transaction says.
#[derive(Debug)]
pub(crate) struct InodeBits {
    pub disk: Arc<[u8]>,
    /// No free inode has a lower bit.
    pub first_free: u32,
}

impl Group {
    pub fn new(state: Mutex<State>, free_blocks: u32, directories: u32) -> Self {
        let group = Self { hint: AtomicU64::new(0), directories: AtomicU32::new(directories), state };
        group.set_hint(Hint { free: free_blocks, longest: free_blocks });
        group
    }

    pub fn hint(&self) -> Hint {
        let packed = self.hint.load(Ordering::Relaxed);
        Hint { free: (packed >> 32) as u32, longest: packed as u32 }
    }

    /// To be called with the lock held.
    pub fn set_hint(&self, hint: Hint) {
        let longest = hint.longest.min(hint.free);
        self.hint.store(u64::from(hint.free) << 32 | u64::from(longest), Ordering::Relaxed);
    }

    /// How many directories it has. May be stale, as the hint.
    pub fn directories(&self) -> u32 {
        self.directories.load(Ordering::Relaxed)
    }

    /// Sets how many directories it has. To be called with the lock held, with what it protects.
    pub fn count_directories(&self, summary: &mut Summary, directories: u32) {
        summary.descriptor.set_used_dirs_count(directories);
        self.directories.store(directories, Ordering::Relaxed);
    }

    /// Sets the busy bits of a gap. To be called with the lock held.
    pub fn occupy(&self, bits: &mut BlockBits, gap: Gap) {
        bits.busy.set(gap.start, gap.len);
        let hint = self.hint();
        self.set_hint(Hint { free: hint.free.saturating_sub(gap.len), ..hint });
    }

    /// Clears the busy bits of a gap. To be called with the lock held.
    pub fn vacate(&self, bits: &mut BlockBits, gap: Gap) {
        bits.busy.clear(gap.start, gap.len);
        let merged = bits.busy.next_set(gap.start) - bits.busy.gap_start(gap.start);
        let hint = self.hint();
        self.set_hint(Hint { free: hint.free + gap.len, longest: hint.longest.max(merged) });
    }

    /// A gap of `want` bits, preferably at or after `from`, or else the longest. To be called with the lock held.
    pub fn find(&self, bits: &BlockBits, from: u32, want: u32) -> Gap {
        // No gap is longer than `longest`, so the search may end at the first that is as long.
        let want = want.min(self.hint().longest);
        let right = bits.busy.find_gap(from, u32::MAX, want);
        if right.len >= want || from == 0 {
            if from == 0 && right.len < want {
                self.set_hint(Hint { longest: right.len, ..self.hint() });
            }
            return right;
        }
        // Nothing right of the goal is long enough, so gaps on its left may as well reach over it.
        let any = bits.busy.find_gap(0, u32::MAX, want);
        if any.len < want {
            self.set_hint(Hint { longest: any.len, ..self.hint() });
        }
        if any.len > right.len { any } else { right }
    }
}

impl State {
    pub fn new(descriptor: GroupDescriptor) -> Self {
        let summary = Summary {
            descriptor,
            blocks_changed: false,
            inodes_changed: false,
            tid: TransactionId(0),
            inodes_made: 0,
            freed: Vec::new(),
        };
        Self { summary, blocks: Bitmap::Unread, inodes: Bitmap::Unread }
    }
}

impl Summary {
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

    fn change(&mut self, tid: TransactionId, no_longer: GroupFlags) -> u32 {
        debug_assert!(
            self.tid == tid || !(self.blocks_changed || self.inodes_changed),
            "a group changes in transaction {tid} while {} is not frozen",
            self.tid
        );
        self.tid = tid;
        self.descriptor.set_flags(self.descriptor.flags() - no_longer);
        u32::from(!self.blocks_changed && !self.inodes_changed)
    }
}

impl BlockBits {
    /// The bytes to change; copied if a freeze holds them.
    pub fn disk_mut(&mut self) -> &mut [u8] {
        Arc::make_mut(&mut self.disk)
    }

    pub fn is_used(&self, gap: Gap) -> bool {
        bitmap::is_range_set(&self.disk, gap.range())
    }

    pub fn is_free(&self, gap: Gap) -> bool {
        bitmap::is_range_clear(&self.disk, gap.range())
    }
}

impl InodeBits {
    /// The bytes to change; copied if a freeze holds them.
    pub fn disk_mut(&mut self) -> &mut [u8] {
        Arc::make_mut(&mut self.disk)
    }
}
