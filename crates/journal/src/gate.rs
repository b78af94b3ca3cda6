//! The gate of the running transaction: the open handles, and the blocks that they may still change.
//!
//! It has shards, chosen by [`thread_slot`], so that handles of different threads write no common cache line. A shard
//! is one word: bits 0–15 its open handles, bit 16 LOCKED (a commit is closing the transaction), bit 17 FULL (no more
//! revoke records), bit 18 STOPPED (aborted or closed), bits 20–41 the credits granted to it, bits 42–63 those of them
//! that its handles took. Flags are set in all shards, one after the other.
//!
//! A shard that runs out is granted a portion of the pool; if little is left there, the credits left in the other shards are
//! collected first. A transaction is full when too little comes together so: portions of little would be small, and each handle
//! would collect, one thread after the other. Handles that are open are extended until all is taken.
//!
//! Leaves out: waiting (`handle.rs`, `commit.rs`). Locks: the pool (`JOURNAL`), for a portion. Checked below and by
//! `tests/threads.rs`.

use extant_rt::{AtomicU64, LockClass, Mutex, Ordering, Padded, SHARDS, thread_slot};

const OPEN: u64 = (1 << 16) - 1;
const LOCKED: u64 = 1 << 16;
const FULL: u64 = 1 << 17;
const STOPPED: u64 = 1 << 18;
const GRANTED_SHIFT: u32 = 20;
const TAKEN_SHIFT: u32 = 42;
/// More than a third of the largest log that mke2fs makes, 10,240,000 blocks.
const CREDITS_MAX: u32 = (1 << 22) - 1;

/// Before a handle opens on less than this part of the credits, they are collected; on less than two such parts none opens then.
const LAST_PART: u32 = 8;

/// Why a handle did not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A commit is closing the transaction: wait.
    Locked,
    /// The transaction has no room: commit it.
    Full,
    /// Aborted or closed.
    Stopped,
}

/// See the module.
#[derive(Debug)]
pub struct Gate {
    shards: Box<[Padded<AtomicU64>]>,
    /// Credits that are granted to no shard. Grants change only under its lock.
    pool: Mutex<u32>,
    credits_max: u32,
}

/// Where a handle entered.
#[derive(Clone, Copy, Debug)]
pub struct Shard(usize);

impl Shard {
    fn of_thread() -> Self {
        Self(thread_slot() % SHARDS)
    }
}

fn granted(word: u64) -> u32 {
    (word >> GRANTED_SHIFT) as u32 & CREDITS_MAX
}

fn taken(word: u64) -> u32 {
    (word >> TAKEN_SHIFT) as u32
}

fn left(word: u64) -> u32 {
    granted(word).saturating_sub(taken(word))
}

impl Gate {
    pub fn new(credits_max: u32) -> Self {
        let credits_max = credits_max.min(CREDITS_MAX);
        Self {
            shards: (0..SHARDS).map(|_| Padded::default()).collect(),
            pool: Mutex::with_key(LockClass::JOURNAL, 3, credits_max),
            credits_max,
        }
    }

    pub fn credits_max(&self) -> u32 {
        self.credits_max
    }

    /// Opens a handle.
    pub fn enter(&self, credits: u32) -> Result<Shard, Refused> {
        let shard = Shard::of_thread();
        self.enter_at(shard, credits).map(|()| shard)
    }

    fn enter_at(&self, shard: Shard, credits: u32) -> Result<(), Refused> {
        let refuse = |word| match word {
            _ if word & STOPPED != 0 => Err(Refused::Stopped),
            _ if word & LOCKED != 0 => Err(Refused::Locked),
            _ if word & FULL != 0 => Err(Refused::Full),
            _ => Ok(()),
        };
        self.take(shard, credits, 1, self.credits_max / LAST_PART, refuse)
    }

    /// More credits for a handle that is open; `false` if there are none. Works on a locked transaction too: its
    /// commit waits for the handle anyway.
    pub fn extend(&self, shard: Shard, credits: u32) -> bool {
        let refuse = |word| if word & FULL != 0 { Err(Refused::Full) } else { Ok(()) };
        self.take(shard, credits, 0, 0, refuse).is_ok()
    }

    fn take(
        &self,
        shard: Shard,
        credits: u32,
        handles: u64,
        low: u32,
        refuse: impl Fn(u64) -> Result<(), Refused>,
    ) -> Result<(), Refused> {
        let word = &self.shards[shard.0];
        let mut found = word.load(Ordering::Acquire);
        loop {
            refuse(found)?;
            if left(found) < credits {
                found = self.grant(shard, credits, low)?;
                continue;
            }
            let next = found + handles + (u64::from(credits) << TAKEN_SHIFT);
            // Acquire: pairs with the Release in `open_next`, so that the handle sees the new transaction's number.
            match word.compare_exchange(found, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(()),
                Err(now) => found = now,
            }
        }
    }

    /// Grants a shard enough for `credits`; its word then. If fewer than `low` are in the pool, twice as many must be there once the others'
    /// are collected, so that this is seldom done.
    fn grant(&self, shard: Shard, credits: u32, low: u32) -> Result<u64, Refused> {
        let mut pool = self.pool.lock();
        let word = &self.shards[shard.0];
        let missing = |found| credits.saturating_sub(left(found));
        let mut least = missing(word.load(Ordering::Acquire));
        if *pool < least.max(low) {
            *pool += self.collect();
            least = missing(word.load(Ordering::Acquire));
            if *pool < least.max(2 * low) {
                return Err(Refused::Full);
            }
        }
        // A part of what is left: however many threads there are, all get some.
        let portion = least.max(*pool / SHARDS as u32);
        *pool -= portion;
        let added = u64::from(portion) << GRANTED_SHIFT;
        Ok(word.fetch_add(added, Ordering::AcqRel) + added)
    }

    /// Takes back what the shards were granted and did not use. With the pool's lock held.
    fn collect(&self) -> u32 {
        let mut collected = 0;
        for word in &self.shards {
            let mut found = word.load(Ordering::Acquire);
            loop {
                let next = found - (u64::from(left(found)) << GRANTED_SHIFT);
                match word.compare_exchange(found, next, Ordering::AcqRel, Ordering::Acquire) {
                    Ok(_) => break,
                    Err(now) => found = now,
                }
            }
            collected += left(found);
        }
        collected
    }

    /// Closes a handle and gives back the credits it did not use. Returns whether the committer must be woken.
    #[must_use]
    pub fn leave(&self, shard: Shard, returned: u32) -> bool {
        let removed = 1 + (u64::from(returned) << TAKEN_SHIFT);
        // Release: pairs with the Acquire in `is_drained`, so that the committer sees what the handle changed.
        let found = self.shards[shard.0].fetch_sub(removed, Ordering::AcqRel);
        found & LOCKED != 0 && found & OPEN == 1
    }

    /// No handle opens from now on.
    pub fn lock(&self) {
        self.set(LOCKED);
    }

    /// Whether the calling thread's handles have to wait.
    pub fn is_locked(&self) -> bool {
        self.shards[Shard::of_thread().0].load(Ordering::Acquire) & LOCKED != 0
    }

    /// Whether every handle has closed. Only on a locked gate does that last.
    pub fn is_drained(&self) -> bool {
        // Acquire: pairs with the Release in `leave`.
        self.shards.iter().all(|word| word.load(Ordering::Acquire) & OPEN == 0)
    }

    /// No handle was opened, or those that were changed nothing.
    pub fn is_untouched(&self) -> bool {
        self.shards.iter().all(|word| taken(word.load(Ordering::Acquire)) == 0)
    }

    /// Opens a locked and drained gate for the next transaction, with all credits.
    pub fn open_next(&self) {
        let mut pool = self.pool.lock();
        *pool = self.credits_max;
        for word in &self.shards {
            // Release: pairs with the Acquire in `take`. Only STOPPED may be set meanwhile.
            let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |found| Some(found & STOPPED));
        }
    }

    /// Lets handles try again after a commit that was abandoned. Those that are open stay counted.
    pub fn unlock(&self) {
        for word in &self.shards {
            word.fetch_and(!LOCKED, Ordering::AcqRel);
        }
    }

    /// No more revoke records fit: no handle opens until the next transaction.
    pub fn fill(&self) {
        self.set(FULL);
    }

    /// No handle opens ever again.
    pub fn stop(&self) {
        self.set(STOPPED);
    }

    fn set(&self, flag: u64) {
        for word in &self.shards {
            word.fetch_or(flag, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_are_collected_seldom_until_a_transaction_is_full() {
        for (credits_max, credits) in [(100_000, 20), (2_000, 20), (300, 100), (64, 64), (5, 2)] {
            let gate = Gate::new(credits_max);
            let (mut used, mut collected) = (0, 0);
            // Each handle uses one of its credits.
            let refused = 'full: loop {
                for shard in (0..SHARDS).map(Shard) {
                    let before = *gate.pool.lock();
                    if let Err(refused) = gate.enter_at(shard, credits) {
                        break 'full refused;
                    }
                    assert!(!gate.leave(shard, credits - 1));
                    used += 1;
                    collected += u32::from(*gate.pool.lock() > before);
                }
            };
            assert_eq!(refused, Refused::Full);
            // In less than that, as many threads as there are shards take each other's.
            if credits_max / credits > 8 * SHARDS as u32 {
                assert!(collected <= LAST_PART, "{collected} times, {credits} of {credits_max}");
            }
            let least = (credits_max - credits).min(credits_max / 4 * 3 - 1);
            assert!(used >= least, "{used} used, {credits} of {credits_max}");
            gate.lock();
            gate.open_next();
            assert!(gate.enter(credits_max).is_ok(), "a handle has all of an empty one");
        }
    }
}
