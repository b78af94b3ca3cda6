//! The hooks of `linux_model.rs` in a build without the forms of older kernels: empty, so that nothing of them is left. What each
//! is for stands there.

#[path = "absent_searches.rs"]
mod searches;

use extant_ondisk::{Geometry, GroupNumber, InodeNumber};
use extant_rt::MutexGuard;

use crate::group::summary::Summary;
use crate::group::{Group, State};
use crate::prealloc::ranges::PaRange;
use crate::prealloc::tree::PaTree;
use crate::request::Request;
use crate::tuning::Tuning;

/// Holds a group's lock.
pub(crate) type GroupGuard<'a> = MutexGuard<'a, State>;

/// The preallocations of an inode.
pub(crate) type PaRanges = PaTree;

/// The groups' locks: each its own.
#[derive(Debug)]
pub(crate) struct GroupLocks;

/// None is in use.
#[derive(Debug)]
pub(crate) struct OlderForms;

/// None is in use.
#[derive(Debug)]
pub(crate) struct OlderInodeSearch;

impl GroupLocks {
    pub fn new(_: &Tuning) -> Self {
        Self
    }

    /// Takes the group's lock; blocks.
    pub fn lock<'a>(&self, _: GroupNumber, group: &'a Group) -> GroupGuard<'a> {
        group.state.lock()
    }

    /// Takes the group's lock if it is free.
    pub fn try_lock<'a>(&self, _: GroupNumber, group: &'a Group) -> Option<GroupGuard<'a>> {
        group.state.try_lock()
    }
}

impl OlderForms {
    pub fn new(_: &Tuning, _: u32, _: Summary, _: Summary) -> Self {
        Self
    }

    pub fn waits_for_busy(&self) -> bool {
        false
    }

    pub fn tries_goal(&self, _: &Request) -> bool {
        true
    }

    pub fn stream_goal(&self, _: InodeNumber) -> Option<Option<GroupNumber>> {
        None
    }

    pub fn set_stream_goal(&self, _: InodeNumber, _: GroupNumber) -> bool {
        false
    }

    pub fn pa_ranges(&self) -> PaRanges {
        PaRanges::default()
    }

    pub fn search_begins(&self, _: GroupNumber, _: &Geometry) {}
    pub fn search_ends(&self, _: GroupNumber, _: &Geometry) {}
    pub fn touch_group_info(&self, _: GroupNumber) {}
    pub fn touch_group_lookup(&self) {}
    pub fn change_group_info(&self, _: GroupNumber) {}
    pub fn set_summary(&self, _: GroupNumber, _: impl FnOnce() -> Summary, _: Summary) {}
    pub fn blocks_freed(&self, _: u32, _: u64) {}
    pub fn freed_frozen(&self) {}
    pub fn freed_released(&self, _: u32) {}
}

impl OlderInodeSearch {
    pub fn new(_: &Tuning, _: u32) -> Self {
        Self
    }

    pub fn freed(&self, _: GroupNumber, _: u32, _: u32) {}
}

pub(crate) fn trimmed(_: &mut PaRanges) -> Vec<PaRange> {
    Vec::new()
}
