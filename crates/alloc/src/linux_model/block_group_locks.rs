//! The groups' locks, and their older form: under one of 128 for all groups (kernel `struct blockgroup_lock`), so that a
//! group may be found busy for another's sake.
//!
//! Locks: `GROUPS`, outside the group's own.

use std::ops::{Deref, DerefMut};

use extant_ondisk::GroupNumber;
use extant_rt::{LockClass, Mutex, MutexGuard, Padded};

use crate::group::{Group, State};
use crate::tuning::Tuning;

/// Kernel `NR_BG_LOCKS`.
const LOCKS: usize = 128;

/// See the module; empty unless the older form is used.
#[derive(Debug)]
pub(crate) struct GroupLocks(Box<[Padded<Mutex<()>>]>);

/// Holds a group's lock.
#[derive(Debug)]
pub(crate) struct GroupGuard<'a> {
    state: MutexGuard<'a, State>,
    _shared: Option<MutexGuard<'a, ()>>,
}

impl GroupLocks {
    pub fn new(tuning: &Tuning) -> Self {
        let count = if tuning.linux_model.block_group_locks { LOCKS } else { 0 };
        let lock = |key| Padded(Mutex::with_key(LockClass::GROUPS, key as u64, ()));
        Self((0..count).map(lock).collect())
    }

    fn of(&self, number: GroupNumber) -> Option<&Mutex<()>> {
        self.0.get((number.0 as usize).checked_rem(self.0.len())?).map(|padded| &padded.0)
    }

    /// Takes the group's lock; blocks.
    pub fn lock<'a>(&'a self, number: GroupNumber, group: &'a Group) -> GroupGuard<'a> {
        // Not the function itself, whose place in the source would be the standard library's.
        let shared = self.of(number).map(|shared| shared.lock());
        GroupGuard { state: group.state.lock(), _shared: shared }
    }

    /// Whether somebody holds the group's lock, as a hint; `group` is there if it was touched.
    pub fn is_locked(&self, number: GroupNumber, group: Option<&Group>) -> bool {
        match self.of(number) {
            Some(shared) => shared.is_locked(),
            None => group.is_some_and(|group| group.state.is_locked()),
        }
    }

    /// Takes the group's lock if it is free.
    pub fn try_lock<'a>(&'a self, number: GroupNumber, group: &'a Group) -> Option<GroupGuard<'a>> {
        let shared = match self.of(number) {
            Some(shared) => Some(shared.try_lock()?),
            None => None,
        };
        Some(GroupGuard { state: group.state.try_lock()?, _shared: shared })
    }
}

impl Deref for GroupGuard<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for GroupGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}
