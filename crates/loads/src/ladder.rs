//! The steps that the kernel's allocator took, each put back to its older form by [`Tuning`].
//!
//! Source: the commits of Linux 4.14, 6.4 and 6.17 that the names of the steps say.

use extant::{Frees, InodeSearch, Preallocation, Scan, StreamGoals, Tuning};

/// A step, with all steps up to it.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// By which it is asked for.
    pub key: &'static str,
    /// In words.
    pub name: &'static str,
    /// How the allocators work then.
    pub tuning: Tuning,
}

/// From the oldest form of everything to the default. `scan` is the order of visiting groups until the kernel's last.
#[must_use]
pub fn steps(scan: Scan) -> Vec<Step> {
    let mut tuning = Tuning { scan, ..Tuning::oldest() };
    let mut steps = vec![Step { key: "oldest", name: "every mechanism in its oldest form", tuning }];
    let mut step = |key, name, change: &dyn Fn(&mut Tuning)| {
        change(&mut tuning);
        steps.push(Step { key, name, tuning });
    };
    step("inodes", "inodes, after a loss, found and set in a second hold (posted for 4.14)", &|tuning| {
        tuning.inode_search = InodeSearch::Locked;
    });
    step("inodes-merged", "inodes, after a loss, found and set in the same hold (4.14)", &|tuning| {
        tuning.inode_search = InodeSearch::Recheck;
    });
    step("base", "preallocations in a tree (6.4): the published base", &|tuning| {
        tuning.preallocation = Preallocation::Tree;
    });
    step("patch-1", "busy groups are skipped (6.17, patch 1)", &|tuning| tuning.skip_busy = true);
    step("patch-4", "stream goal without a lock (patch 4)", &|tuning| tuning.stream_goals = StreamGoals::One);
    step("patch-5", "several stream goals (patch 5)", &|tuning| tuning.stream_goals = StreamGoals::ByNumber);
    step("patch-8", "freed blocks are counted without the list's lock (patch 8)", &|tuning| {
        tuning.frees = Frees::CountedApart;
    });
    step("patch-9", "freed runs join before they enter the list (patch 9)", &|tuning| {
        tuning.frees = Frees::JoinedFirst;
    });
    step("patch-17", "groups by order from the goal on (patches 15, 17)", &|tuning| {
        tuning.scan = Scan::Ordered;
    });
    step("unhashed", "one lock for each group, not 128 for all", &|tuning| tuning.block_group_locks = false);
    step("default", "the default: the nearest group with a chunk", &|tuning| *tuning = Tuning::default());
    steps
}
