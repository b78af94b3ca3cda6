//! The older form of the stream goal and of freed runs: one of each for the disk, under one lock (kernel before 6.17:
//! `s_mb_last_group`, `s_freed_data_list` and `s_mb_free_pending` under `s_md_lock`).
//!
//! In the lock's cache line stand the pointers by which each search finds groups and buddies (`s_group_info`, `s_buddy_cache`,
//! `s_mb_offsets`, `s_mb_maxs`; the list and the count in the next): who takes the lock takes the line from all searches.
//!
//! Of the list its length stands here, for what the lock is taken as often as the kernel's; the runs are with their groups.
//!
//! Locks: `MD_LOCK`, inside a group's.

use extant_ondisk::GroupNumber;
use extant_rt::{AtomicU64, LockClass, Mutex, Ordering, Padded};

use super::Frees;

/// See the module.
#[derive(Debug)]
pub(super) struct MdLock {
    state: Padded<Mutex<State>>,
    /// Freed blocks that wait for the commit, of the forms that count them apart.
    pending: Padded<AtomicU64>,
}

/// In the line after the lock's.
#[derive(Debug)]
#[repr(align(64))]
struct State {
    goal: GroupNumber,
    /// Freed runs on the list.
    runs: u64,
    /// Freed blocks that wait for the commit.
    pending: u64,
}

impl MdLock {
    pub fn new() -> Self {
        let state = State { goal: GroupNumber(0), runs: 0, pending: 0 };
        Self { state: Padded(Mutex::new(LockClass::MD_LOCK, state)), pending: Padded::default() }
    }

    /// Reads the cache line of the lock.
    pub fn touch(&self) {
        self.state.is_locked();
    }

    pub fn goal(&self) -> GroupNumber {
        self.state.lock().goal
    }

    pub fn set_goal(&self, group: GroupNumber) {
        self.state.lock().goal = group;
    }

    /// A run of so many blocks was freed and joined with so many others.
    pub fn free(&self, form: Frees, blocks: u32, joined: u64) {
        let counted_here = if form == Frees::OneList { u64::from(blocks) } else { 0 };
        match form {
            Frees::Joined => return,
            Frees::OneList | Frees::CountedApart => {
                // Each of the others leaves the list, one by one, before the joined one enters.
                (0..joined).for_each(|_| self.state.lock().runs -= 1);
                let mut state = self.state.lock();
                state.runs += 1;
                state.pending += counted_here;
            }
            Frees::JoinedFirst if joined == 1 => (),
            Frees::JoinedFirst => {
                let mut state = self.state.lock();
                state.runs = (state.runs + 1).saturating_sub(joined);
            }
        }
        if counted_here == 0 {
            self.pending.fetch_add(u64::from(blocks), Ordering::Relaxed);
        }
    }

    /// The runs on the list go to a transaction.
    pub fn splice(&self, form: Frees) {
        if form != Frees::Joined {
            self.state.lock().runs = 0;
        }
    }

    /// A freed run of so many blocks is free.
    pub fn release(&self, form: Frees, blocks: u32) {
        match form {
            Frees::Joined => (),
            Frees::OneList => self.state.lock().pending -= u64::from(blocks),
            _ => _ = self.pending.fetch_sub(u64::from(blocks), Ordering::Relaxed),
        }
    }
}
