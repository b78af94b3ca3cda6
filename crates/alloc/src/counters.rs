//! Counts of free blocks and inodes; free blocks are in escrow.
//!
//! Invariant: the blocks that groups can give out are at least `available` plus all reservations ([`crate::reservation`]), except in
//! groups found bad. So a block becomes free in its group before it is counted here, and is counted out here
//! before it is taken there.

use extant_rt::{AtomicBool, AtomicU64, LockClass, Mutex, Ordering, Padded, SHARDS, thread_slot};

use crate::{Error, Result};

/// Which of the free blocks a reservation may take (kernel `ext4_has_free_clusters`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MayUse {
    /// All but root's blocks and the reserved pool.
    Free,
    /// Root's blocks too (kernel `EXT4_MB_USE_ROOT_BLOCKS`).
    RootBlocks,
    /// Every free block, those of the reserved pool too (kernel `EXT4_MB_USE_RESERVED`): for tree blocks of an operation
    /// that frees blocks or was promised that it needs none.
    Reserved,
}

/// A number kept in shards, so that different threads that change it write no line in common.
#[derive(Debug)]
pub(crate) struct ShardedCounter {
    /// Two's complement: only the sum means something.
    shards: Box<[Padded<AtomicU64>]>,
}

impl ShardedCounter {
    pub fn new(value: u64) -> Self {
        let shard = |index| Padded(AtomicU64::new(if index == 0 { value } else { 0 }));
        Self { shards: (0..SHARDS).map(shard).collect() }
    }

    pub fn add(&self, count: u64) {
        self.shard().fetch_add(count, Ordering::Relaxed);
    }

    pub fn subtract(&self, count: u64) {
        self.shard().fetch_sub(count, Ordering::Relaxed);
    }

    fn shard(&self) -> &AtomicU64 {
        &self.shards[thread_slot() % SHARDS]
    }

    /// The number; exact while nobody changes it.
    pub fn sum(&self) -> u64 {
        sum(&self.shards)
    }
}

/// The sum of parts in two's complement; 0 if a change that moves a count between them is seen by half.
fn sum<'a>(parts: impl IntoIterator<Item = &'a Padded<AtomicU64>>) -> u64 {
    let sum = parts.into_iter().fold(0u64, |sum, part| sum.wrapping_add(part.load(Ordering::Relaxed)));
    u64::try_from(signed(sum)).unwrap_or(0)
}

/// Free blocks that nobody has, waits for or reserved, as tokens: most in a pool, some held ready by shards of threads.
///
/// A shard takes a portion of the pool at a time: for as many requests of that size as there is room for. Tokens that move
/// between the pool and a shard do so under a lock, so that whoever looks for the last ones misses none.
#[derive(Debug)]
struct Escrow {
    /// Two's complement, for a group found bad may take away blocks that are reserved.
    pool: Padded<AtomicU64>,
    shards: Box<[Padded<AtomicU64>]>,
    moving: Mutex<()>,
    /// What claims of [`MayUse::Free`] must leave in the pool: root's blocks and the reserved ones.
    kept: u64,
    /// What claims of [`MayUse::RootBlocks`] must leave in it.
    reserved: u64,
    /// Below so many blocks, beside those kept, nobody takes any ahead.
    scarce: u64,
    /// Shards may hold so much that the pool alone does not tell whether blocks are scarce.
    is_spread: Padded<AtomicBool>,
    /// Blocks that shards hold ready each, as of the last change of the pool: a power of two, so that it seldom changes, for
    /// all read it; 0 while [`MayUse::Free`] has nothing left.
    ready: Padded<AtomicU64>,
}

/// Blocks of a portion where there is no more room, or nobody asks for more.
const PORTION_MIN: u64 = 1024;
/// Requests that a portion is to suffice for.
const REQUESTS: u64 = 2048;

impl Escrow {
    fn new(totals: &Totals) -> Self {
        let Totals { free_blocks, root_blocks, reserved_blocks, scarce_blocks, .. } = *totals;
        let escrow = Self {
            pool: Padded(AtomicU64::new(free_blocks)),
            shards: (0..SHARDS).map(|_| Padded::default()).collect(),
            moving: Mutex::new(LockClass::FREE_BLOCKS, ()),
            kept: root_blocks.saturating_add(reserved_blocks),
            reserved: reserved_blocks,
            scarce: scarce_blocks,
            is_spread: Padded(AtomicBool::new(false)),
            ready: Padded::default(),
        };
        escrow.note_room();
        escrow
    }

    fn shard(&self) -> &AtomicU64 {
        &self.shards[thread_slot() % SHARDS]
    }

    /// What a claim must leave in the pool.
    fn left_by(&self, may_use: MayUse) -> u64 {
        match may_use {
            MayUse::Free => self.kept,
            MayUse::RootBlocks => self.reserved,
            MayUse::Reserved => 0,
        }
    }

    /// Takes tokens: whether the shard had them, so that the pool was not asked.
    fn claim(&self, blocks: u64, may_use: MayUse) -> Result<bool> {
        if try_subtract(self.shard(), blocks, 0) {
            return Ok(true);
        }
        let _moving = self.moving.lock();
        let result = self.claim_of_pool(blocks, may_use);
        self.note_room();
        result.map(|()| false)
    }

    fn claim_of_pool(&self, blocks: u64, may_use: MayUse) -> Result<()> {
        // Of the pool alone: what the shards hold lies on lines that other threads write.
        let portion = blocks.saturating_mul(REQUESTS).max(PORTION_MIN).min(self.portion_max());
        if try_subtract(&self.pool, blocks.saturating_add(portion), self.kept) {
            self.hold(portion);
            return Ok(());
        }
        // Once it came so low the shards were emptied, and what is released goes to the pool.
        if may_use > MayUse::Free && self.is_low() && try_subtract(&self.pool, blocks, self.left_by(may_use))
        {
            return Ok(());
        }
        // Little is left: no shard holds any of it back.
        self.collect();
        if try_subtract(&self.pool, blocks, self.left_by(may_use)) { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// Takes tokens if there are many; `note` is called before.
    fn claim_spare(&self, blocks: u64, note: impl FnOnce()) -> bool {
        let is_there = || self.spare() >= self.scarce.saturating_add(blocks);
        let ready = self.ready.load(Ordering::Relaxed);
        // With large portions there is room for many, and the pool need not be looked at.
        if !(ready > PORTION_MIN && ready >= blocks || is_there()) {
            if !self.is_spread.load(Ordering::Relaxed) {
                return false;
            }
            let moving = self.moving.lock();
            // Of all who came at once the first one does it.
            if self.is_spread.load(Ordering::Relaxed) {
                self.collect();
                self.note_room();
            }
            drop(moving);
            if !is_there() {
                return false;
            }
        }
        note();
        self.claim(blocks, MayUse::Free).is_ok()
    }

    fn release(&self, blocks: u64) {
        let ready = self.ready.load(Ordering::Relaxed);
        // What root may need comes back first, and a long run is for all.
        if ready == 0 || blocks >= ready.max(PORTION_MIN) {
            self.add_to_pool(blocks);
            return;
        }
        let portion = ready.max(PORTION_MIN);
        if self.hold(blocks) > 2 * portion {
            let _moving = self.moving.lock();
            if try_subtract(self.shard(), portion, 0) {
                self.add_to_pool(portion);
            }
        }
    }

    fn add_to_pool(&self, blocks: u64) {
        self.pool.fetch_add(blocks, Ordering::Relaxed);
        self.note_room();
    }

    /// Puts blocks into the shard: what it holds then.
    fn hold(&self, blocks: u64) -> u64 {
        let held = self.shard().fetch_add(blocks, Ordering::Relaxed).wrapping_add(blocks);
        // Looked at first: it seldom changes.
        if held > 2 * PORTION_MIN && !self.is_spread.load(Ordering::Relaxed) {
            self.is_spread.store(true, Ordering::Relaxed);
        }
        held
    }

    /// Empties the shards into the pool. To be called with `moving` held.
    fn collect(&self) {
        self.is_spread.store(false, Ordering::Relaxed);
        for shard in &self.shards {
            self.pool.fetch_add(shard.swap(0, Ordering::Acquire), Ordering::Relaxed);
        }
    }

    /// Blocks of the largest portion: of what is not scarce as many as would suffice for all shards, or few.
    fn portion_max(&self) -> u64 {
        let (spare, shards) = (self.spare(), SHARDS as u64);
        let room = spare.saturating_sub(self.scarce);
        (room / shards).max((spare / shards).min(PORTION_MIN))
    }

    /// The pool changed. Of two at once one may note what was before the other: it lasts until the next.
    fn note_room(&self) {
        let largest = self.portion_max().max(1);
        let ready = if self.is_low() { 0 } else { 1 << largest.ilog2() };
        if self.ready.load(Ordering::Relaxed) != ready {
            self.ready.store(ready, Ordering::Relaxed);
        }
    }

    /// What the pool has beside what is kept.
    fn spare(&self) -> u64 {
        u64::try_from(signed(self.pool.load(Ordering::Relaxed))).unwrap_or(0).saturating_sub(self.kept)
    }

    /// Whether the pool has nothing for [`MayUse::Free`].
    fn is_low(&self) -> bool {
        signed(self.pool.load(Ordering::Relaxed)) < signed(self.kept)
    }

    /// All tokens; exact while nobody changes them.
    fn sum(&self) -> u64 {
        sum(std::iter::once(&self.pool).chain(&self.shards))
    }
}

/// A count in two's complement.
fn signed(count: u64) -> i64 {
    count.cast_signed()
}

/// Takes tokens if at least `kept` stay. A thread that misses them sees what was noted before.
fn try_subtract(tokens: &AtomicU64, blocks: u64, kept: u64) -> bool {
    let Some(wanted) = blocks.checked_add(kept).and_then(|wanted| i64::try_from(wanted).ok()) else {
        return false;
    };
    tokens
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, |held| {
            (signed(held) >= wanted).then(|| held.wrapping_sub(blocks))
        })
        .is_ok()
}

/// What the counts start from.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub free_blocks: u64,
    pub free_inodes: u64,
    pub directories: u64,
    /// Root's blocks.
    pub root_blocks: u64,
    /// Blocks of the reserved pool.
    pub reserved_blocks: u64,
    /// What claims of spare blocks leave besides.
    pub scarce_blocks: u64,
}

/// Totals of all groups.
///
/// All operations but the taking of tokens are relaxed: each number stands for itself, and a group's bits are handed over by
/// its lock.
#[derive(Debug)]
pub(crate) struct Counters {
    escrow: Escrow,
    /// Little is left, and a commit would bring much.
    wants_commit: AtomicBool,
    /// Blocks freed in transactions that are not committed.
    pub pending: ShardedCounter,
    /// Blocks in preallocations of inodes.
    pub preallocated: ShardedCounter,
    /// Blocks in chunks of locality groups.
    pub local: ShardedCounter,
    /// Free blocks as the running transaction says.
    pub disk_free: ShardedCounter,
    /// Free inodes as the running transaction says.
    pub free_inodes: ShardedCounter,
    /// Directories as the running transaction says.
    pub directories: ShardedCounter,
    /// How often tokens were claimed, or blocks of a chunk taken, that stay to be had by a discard.
    taken_ahead: ShardedCounter,
    /// What these started from.
    claimed: (u64, u64),
}

impl Counters {
    pub fn new(totals: &Totals) -> Self {
        let Totals { free_blocks, free_inodes, directories, .. } = *totals;
        Self {
            escrow: Escrow::new(totals),
            wants_commit: AtomicBool::new(false),
            pending: ShardedCounter::new(0),
            preallocated: ShardedCounter::new(0),
            local: ShardedCounter::new(0),
            disk_free: ShardedCounter::new(free_blocks),
            free_inodes: ShardedCounter::new(free_inodes),
            directories: ShardedCounter::new(directories),
            taken_ahead: ShardedCounter::new(0),
            claimed: (free_blocks, free_inodes),
        }
    }

    /// The free blocks and inodes that the counts should have started from. To be called once.
    pub fn correct(&self, free_blocks: u64, free_inodes: u64) {
        let (blocks, inodes) = self.claimed;
        let (blocks, inodes) = (free_blocks.wrapping_sub(blocks), free_inodes.wrapping_sub(inodes));
        self.escrow.add_to_pool(blocks);
        self.disk_free.add(blocks);
        self.free_inodes.add(inodes);
    }

    pub fn available(&self) -> u64 {
        // Or tokens on their way from the pool to a shard are seen in both.
        let _moving = self.escrow.moving.lock();
        self.escrow.sum()
    }

    /// Takes `blocks` out of the available ones.
    pub fn claim(&self, blocks: u64, may_use: MayUse) -> Result<()> {
        if blocks == 0 || self.escrow.claim(blocks, may_use)? {
            return Ok(());
        }
        // The pool was asked, which is seldom: time to look at how much there is.
        let scarce = self.escrow.scarce;
        if self.escrow.spare() < scarce && self.pending.sum() >= scarce {
            self.wants_commit.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether a commit is worth its while; one caller gets true for each request.
    pub fn consume_commit_request(&self) -> bool {
        // Looked at first: it is nearly always false, and all may read it side by side.
        self.wants_commit.load(Ordering::Relaxed) && self.wants_commit.swap(false, Ordering::Relaxed)
    }

    /// Takes `blocks` that nobody will miss out of the available ones; whether there were so many.
    pub fn claim_spare(&self, blocks: u64) -> bool {
        self.escrow.claim_spare(blocks, || self.note_taken_ahead())
    }

    /// Blocks are about to be taken ahead, or to go from one place of those that are to another.
    pub fn note_taken_ahead(&self) {
        self.taken_ahead.add(1);
    }

    /// Changes whenever blocks were taken ahead: a caller who was refused tokens and found none ahead looks again then, for what
    /// lay before him may lie behind him (kernel `discard_pa_seq`).
    pub fn taken_ahead(&self) -> u64 {
        self.taken_ahead.sum()
    }

    /// How many must become available before a claim can succeed.
    pub fn lacking(&self, blocks: u64, may_use: MayUse) -> u64 {
        blocks.saturating_add(self.escrow.left_by(may_use)).saturating_sub(self.available())
    }

    /// Gives blocks back that were claimed, or that became free.
    pub fn release(&self, blocks: u64) {
        if blocks > 0 {
            self.escrow.release(blocks);
        }
    }

    /// Takes away blocks that turned out not to be there, whoever counts on them.
    pub fn lose(&self, blocks: u64) {
        self.escrow.pool.fetch_sub(blocks, Ordering::Relaxed);
        self.escrow.note_room();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_the_last_blocks_and_leave_what_is_kept() {
        const BLOCKS: u64 = 5000;
        let counters = Counters::new(&Totals { free_blocks: BLOCKS, root_blocks: 100, ..Totals::default() });
        extant_rt::parallel(4, |thread| {
            for round in 0..20_000_u64 {
                let blocks = 1 + (round * 7 + thread as u64) % 1600;
                // At most 4 × 1600 are claimed, so some claims fail; what is claimed is given back.
                if counters.claim(blocks, MayUse::Free).is_ok() {
                    assert!(counters.available() <= BLOCKS);
                    counters.release(blocks);
                }
            }
        });
        assert_eq!(counters.available(), BLOCKS);
        // However the tokens lie, the last one can be had.
        counters.claim(BLOCKS - 100, MayUse::Free).expect("all but what is kept");
        counters.claim(1, MayUse::Free).expect_err("what is kept");
        counters.claim(100, MayUse::RootBlocks).expect("for root");
        counters.claim(1, MayUse::RootBlocks).expect_err("nothing left");
        counters.release(60);
        counters.claim(1, MayUse::Free).expect_err("what is kept comes back first");
        counters.release(BLOCKS - 60);
        assert_eq!(counters.available(), BLOCKS);
    }

    #[test]
    fn a_commit_is_requested_once_few_are_left_and_many_pend() {
        let totals =
            Totals { free_blocks: 100_000, root_blocks: 5000, scarce_blocks: 12_500, ..Totals::default() };
        let counters = Counters::new(&totals);
        counters.claim(80_000, MayUse::Free).expect("enough");
        assert!(!counters.consume_commit_request(), "much is left");
        counters.claim(4000, MayUse::Free).expect("enough");
        assert!(!counters.consume_commit_request(), "nothing pends");
        counters.pending.add(12_500);
        // More than the shard holds ready, so that the pool is asked.
        counters.claim(2 * PORTION_MIN + 1, MayUse::Free).expect("enough");
        assert!(counters.consume_commit_request());
        assert!(!counters.consume_commit_request(), "told already");
    }

    #[test]
    fn where_there_is_room_the_pool_is_asked_once_for_many_large_requests() {
        let counters = Counters::new(&Totals { free_blocks: 1 << 26, ..Totals::default() });
        let asked = (0..1000).filter(|_| !counters.escrow.claim(2048, MayUse::Free).expect("enough")).count();
        assert!(asked <= 1000 / 200, "{asked} times");
        counters.release(2048);
        counters.release(2048);
        assert!(counters.escrow.claim(4096, MayUse::Free).expect("enough"), "what came back is at hand");
        // Few large ones leave enough for whoever else comes.
        assert!(counters.escrow.spare() > (1 << 26) / 2);
    }

    #[test]
    fn what_shards_hold_is_not_scarce() {
        if !extant_rt::HAS_THREADS {
            println!("skipped: the host has no threads");
            return;
        }
        let totals = Totals {
            free_blocks: 1 << 26,
            root_blocks: 1 << 20,
            scarce_blocks: 1 << 21,
            ..Totals::default()
        };
        let counters = Counters::new(&totals);
        let barrier = std::sync::Barrier::new(64);
        extant_rt::parallel(64, |_| {
            assert!(counters.claim_spare(2048));
            // One that ended would leave its shard to the next.
            barrier.wait();
        });
        assert!(counters.escrow.spare() < (1 << 26) / 4 * 3, "shards hold nothing");
        while counters.claim_spare(2048) {}
        // But for the portions that everyone has, and the request that was refused.
        let left = counters.available() - totals.root_blocks;
        let portions = SHARDS as u64 * 2 * PORTION_MIN;
        assert!((totals.scarce_blocks..=totals.scarce_blocks + portions + 2048).contains(&left), "{left}");
        counters.claim(left, MayUse::Free).expect("all but what is kept");
        counters.claim(1, MayUse::Free).expect_err("what is kept");
    }

    #[test]
    fn root_takes_its_blocks_however_the_rest_lies() {
        let counters = Counters::new(&Totals { free_blocks: 10_000, root_blocks: 1000, ..Totals::default() });
        for _ in 0..5000 {
            counters.claim(2, MayUse::RootBlocks).expect("enough for root");
        }
        counters.claim(1, MayUse::RootBlocks).expect_err("nothing left");
        counters.release(500);
        counters.claim(1, MayUse::Free).expect_err("what is kept comes back first");
        counters.claim(500, MayUse::RootBlocks).expect("for root");
    }

    #[test]
    fn the_reserved_pool_stays_for_those_who_may_use_it() {
        let totals =
            Totals { free_blocks: 10_000, root_blocks: 500, reserved_blocks: 200, ..Totals::default() };
        let counters = Counters::new(&totals);
        counters.claim(9301, MayUse::Free).expect_err("beyond root's blocks and the pool");
        counters.claim(9300, MayUse::Free).expect("all that is free");
        counters.claim(1, MayUse::Free).expect_err("root's blocks");
        assert_eq!(counters.lacking(1, MayUse::Free), 1);
        counters.claim(501, MayUse::RootBlocks).expect_err("the pool");
        counters.claim(500, MayUse::RootBlocks).expect("root's blocks");
        assert_eq!(counters.lacking(3, MayUse::RootBlocks), 3);
        counters.claim(200, MayUse::Reserved).expect("the pool");
        counters.claim(1, MayUse::Reserved).expect_err("nothing left");
        counters.release(200);
        counters.claim(1, MayUse::RootBlocks).expect_err("the pool is filled first");
        counters.release(1);
        counters.claim(1, MayUse::RootBlocks).expect("what is above the pool");
    }
}
