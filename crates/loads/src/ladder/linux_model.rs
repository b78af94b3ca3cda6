//! The forms of older kernels.

use extant::linux_model::{Frees, InodeSearch, LinuxModel, ListHead, StreamGoals};
use extant::{Scan, Tuning};

use super::{NotBuilt, Order, Step, default_step};

/// From the oldest form of everything to the default.
///
/// # Errors
/// None in this build.
pub fn steps(order: Order) -> Result<Vec<Step>, NotBuilt> {
    let mut tuning = Tuning::oldest();
    match order {
        Order::Linear => tuning.scan = Scan::Linear,
        Order::ListHead => {}
        Order::Ordered => tuning.linux_model.list_head = ListHead::Off,
    }
    let mut steps = vec![Step { key: "oldest", name: "every mechanism in its oldest form", tuning }];
    let mut step = |key, name, change: &dyn Fn(&mut Tuning)| {
        change(&mut tuning);
        steps.push(Step { key, name, tuning });
    };
    step("inodes", "inodes, after a loss, found and set in a second hold (posted for 4.14)", &|tuning| {
        tuning.linux_model.inode_search = InodeSearch::Locked;
    });
    step("inodes-merged", "inodes, after a loss, found and set in the same hold (4.14)", &|tuning| {
        tuning.linux_model.inode_search = InodeSearch::Recheck;
    });
    step("base", "preallocations in a tree (6.4): the published base", &|tuning| {
        tuning.linux_model.preallocation_list = false;
    });
    step("patch-1", "busy groups are skipped (6.17, patch 1)", &|tuning| tuning.linux_model.skip_busy = true);
    step("patch-4", "stream goal without a lock (patch 4)", &|tuning| {
        tuning.linux_model.stream_goals = StreamGoals::One
    });
    step("patch-5", "several stream goals (patch 5)", &|tuning| {
        tuning.linux_model.stream_goals = StreamGoals::ByNumber
    });
    step("patch-8", "freed blocks are counted without the list's lock (patch 8)", &|tuning| {
        tuning.linux_model.frees = Frees::CountedApart;
    });
    step("patch-9", "freed runs join before they enter the list (patch 9)", &|tuning| {
        tuning.linux_model.frees = Frees::JoinedFirst;
    });
    step("patch-17", "groups by order from the goal on (patches 15, 17)", &|tuning| {
        tuning.scan = Scan::Ordered;
        tuning.linux_model.list_head = ListHead::Off;
    });
    step("unhashed", "one lock for each group, not 128 for all", &|tuning| {
        tuning.linux_model.block_group_locks = false
    });
    steps.push(default_step());
    Ok(steps)
}

/// A tuning by which searches go by order, from the first group of the lowest sufficient one, which the index finds.
///
/// # Errors
/// None in this build.
pub fn with_list_head(tuning: Tuning) -> Result<Tuning, NotBuilt> {
    let linux_model = LinuxModel { list_head: ListHead::Index, ..tuning.linux_model };
    Ok(Tuning { scan: Scan::Ordered, linux_model, ..tuning })
}

/// A tuning by which an inode's preallocations are a list.
///
/// # Errors
/// None in this build.
pub fn with_preallocation_list(tuning: Tuning) -> Result<Tuning, NotBuilt> {
    Ok(Tuning { linux_model: LinuxModel { preallocation_list: true, ..tuning.linux_model }, ..tuning })
}
