//! The older form of the stream goal and of freed runs: one of each for the disk, under one lock (kernel before 6.17:
//! `s_mb_last_group` and `s_freed_data_list` under `s_md_lock`). Only for measurements, through [`crate::Tuning`].
//!
//! Locks: `ONE_LOCK`, inside a group's.

use std::collections::BTreeMap;

use extant_ondisk::GroupNumber;
use extant_rt::{LockClass, Mutex, Padded};

use crate::freed::FreedRuns;
use crate::words::Gap;

/// See the module.
#[derive(Debug)]
pub(crate) struct OneLock(Padded<Mutex<State>>);

#[derive(Debug)]
struct State {
    goal: GroupNumber,
    freed: Vec<(GroupNumber, Gap)>,
}

impl OneLock {
    pub fn new() -> Self {
        let state = State { goal: GroupNumber(0), freed: Vec::new() };
        Self(Padded(Mutex::new(LockClass::ONE_LOCK, state)))
    }

    pub fn goal(&self) -> GroupNumber {
        self.0.lock().goal
    }

    pub fn set_goal(&self, group: GroupNumber) {
        self.0.lock().goal = group;
    }

    pub fn free(&self, group: GroupNumber, gap: Gap) {
        self.0.lock().freed.push((group, gap));
    }

    /// What was freed, by group.
    pub fn take_freed(&self) -> BTreeMap<GroupNumber, FreedRuns> {
        let mut groups = BTreeMap::<_, FreedRuns>::new();
        for (group, gap) in std::mem::take(&mut self.0.lock().freed) {
            groups.entry(group).or_default().add(gap, false);
        }
        groups
    }
}
