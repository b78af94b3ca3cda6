//! Forms of older kernels' allocators, measured beside the one that ships. Compiled with `--cfg extant_linux_model` only, as
//! `make lab` and `make ladder` do; otherwise `linux_model/absent.rs` is in its place, whose hooks are empty.
//!
//! [`Tuning::linux_model`] chooses among the forms; with its default the allocator does what it does without this module. The
//! rest of the crate meets the forms in the hooks of [`OlderForms`], [`GroupLocks`] and [`OlderInodeSearch`], in the type
//! [`PaRanges`], and in two methods of layers above these: the search's `at_heads` (`list_heads`) and
//! `allocate_inode_as_older` (`lockless_inodes`). A hook that gives an `Option` gives `None` where no older form is chosen.
//!
//! Locks: `GROUPS`, outside a group's own; `MD_LOCK` and `ORDER_LIST`, inside it. Source: `fs/ext4/mballoc.c` and `ialloc.c` of
//! the kernels that the forms name. Tests: here and `tests/alloc/linux_model.rs`; `make test-linux-model` runs them.

mod block_group_locks;
mod group_info;
mod inode_search;
mod list_heads;
mod lockless_inodes;
mod md_lock;
mod order_lists;
mod pa_list;
pub(crate) mod settings;
mod stream_goals;

use extant_ondisk::{GroupNumber, InodeNumber};

pub(crate) use self::block_group_locks::{GroupGuard, GroupLocks};
pub(crate) use self::inode_search::OlderInodeSearch;
pub(crate) use self::pa_list::{PaRanges, trimmed};
pub use self::settings::{ExactGoal, Frees, InodeSearch, LinuxModel, ListHead, StreamGoals};
use crate::group::summary::Summary;
use crate::linux_model::group_info::GroupInfoLines;
use crate::linux_model::md_lock::MdLock;
use crate::linux_model::order_lists::OrderLists;
use crate::linux_model::stream_goals::NumberedGoals;
use crate::request::Request;
use crate::tuning::{Scan, Tuning};

/// What the chosen forms keep.
#[derive(Debug)]
pub(crate) struct OlderForms {
    settings: LinuxModel,
    md_lock: MdLock,
    group_info: GroupInfoLines,
    lists: Option<OrderLists>,
    numbered: NumberedGoals,
}

impl OlderForms {
    /// Of `groups` groups that all have the same free space, `first`, but for the last.
    pub fn new(tuning: &Tuning, groups: u32, first: Summary, last: Summary) -> Self {
        let settings = tuning.linux_model;
        let has_lists = tuning.scan == Scan::Ordered && settings.list_head == ListHead::Lists;
        let lists = has_lists.then(|| OrderLists::full(groups, first));
        if let Some(lists) = &lists {
            lists.set(GroupNumber(groups.saturating_sub(1)), first, last);
        }
        Self {
            settings,
            md_lock: MdLock::new(),
            group_info: GroupInfoLines::new(groups, settings.block_group_locks),
            lists,
            numbered: NumberedGoals::new(groups, settings),
        }
    }

    /// Whether searches wait for groups whose lock is taken instead of passing them over.
    pub fn waits_for_busy(&self) -> bool {
        !self.settings.skip_busy
    }

    /// Whether a request tries its exact goal first.
    pub fn tries_goal(&self, request: &Request) -> bool {
        self.settings.exact_goal == ExactGoal::Always || request.ahead > 0
    }

    /// The group where a stream goes on, if any did so far.
    pub fn stream_goal(&self, inode: InodeNumber) -> Option<Option<GroupNumber>> {
        match self.settings.stream_goals {
            StreamGoals::Several => None,
            StreamGoals::Locked => Some(Some(self.md_lock.goal())),
            StreamGoals::One | StreamGoals::ByNumber => Some(self.numbered.get(inode)),
        }
    }

    /// A stream goes on in a group. False if no older form is chosen.
    pub fn set_stream_goal(&self, inode: InodeNumber, group: GroupNumber) -> bool {
        match self.settings.stream_goals {
            StreamGoals::Several => return false,
            StreamGoals::Locked => self.md_lock.set_goal(group),
            StreamGoals::One | StreamGoals::ByNumber => self.numbered.set(inode, group),
        }
        true
    }

    /// The free space of a group changes, with its lock held: its lists.
    pub fn set_summary(&self, group: GroupNumber, from: impl FnOnce() -> Summary, to: Summary) {
        if let Some(lists) = &self.lists {
            lists.set(group, from(), to);
        }
    }

    /// A run of so many blocks was freed and joined with so many others of its group and transaction.
    pub fn blocks_freed(&self, blocks: u32, joined: u64) {
        self.md_lock.free(self.settings.frees, blocks, joined);
    }

    /// The freed runs go to the transaction that is frozen.
    pub fn freed_frozen(&self) {
        self.md_lock.splice(self.settings.frees);
    }

    /// A freed run of so many blocks can be allocated again.
    pub fn freed_released(&self, blocks: u32) {
        self.md_lock.release(self.settings.frees, blocks);
    }

    /// The preallocations of an inode that has none yet.
    pub fn pa_ranges(&self) -> PaRanges {
        PaRanges::new(self.settings.preallocation_list)
    }
}

impl Tuning {
    /// Every mechanism in its oldest form, as before the kernel's 6.17.
    #[must_use]
    pub fn oldest() -> Self {
        Self {
            scan: Scan::Ordered,
            stream_goals: false,
            order2_req: 2,
            linux_model: LinuxModel {
                list_head: ListHead::Lists,
                block_group_locks: true,
                skip_busy: false,
                exact_goal: ExactGoal::Ahead,
                stream_goals: StreamGoals::Locked,
                stream_goals_max: 128,
                frees: Frees::OneList,
                preallocation_list: true,
                inode_search: InodeSearch::Repeat,
            },
            ..Self::default()
        }
    }
}
