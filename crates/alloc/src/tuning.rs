//! What can be chosen about the allocators, the kernel's tunables among it. Each mechanism can be put back to its older
//! form, so that before and after are measured from one binary.

/// How a group is searched for: all but the last by the kernel's criteria, in this order of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Scan {
    /// Group by group from the goal, then from 0 (kernel `mb_optimize_scan=0`).
    Linear,
    /// By order, always from the first group of the lowest sufficient one (kernel before 6.17).
    ListHead,
    /// By order, from the goal rightwards through all, then from 0 (kernel since 6.17).
    Ordered,
    /// The nearest sufficient group right of the goal, of whatever order, then from 0.
    Nearest,
    /// The nearest group with a chunk as long as wanted, else with the longest there is; a group not read is passed over
    /// if those read lately had smaller ones.
    #[default]
    NearestFit,
}

/// How an inode keeps the blocks that were taken ahead for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Preallocation {
    /// None are taken ahead.
    Off,
    /// A list that is searched from the newest on, capped and trimmed (kernel before 6.4).
    List,
    /// A balanced tree by logical start (kernel since 6.4).
    #[default]
    Tree,
}

/// How a free inode is found in a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum InodeSearch {
    /// Found, set and counted in one hold of the group's lock.
    #[default]
    Hold,
    /// Found without the lock, then tested and set under it; if another was quicker, found and set in a second hold. Counted in
    /// a further one (posted for the kernel's 4.14).
    Locked,
    /// Found without the lock, then tested and set under it; if another was quicker, found and set in the same hold. Counted
    /// in a second one (kernel since 4.14).
    Recheck,
    /// Found without the lock, then tested and set under it, and again from the next bit if another was quicker (kernel
    /// before 4.14).
    Repeat,
}

/// Which requests try their exact goal before anything else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum ExactGoal {
    /// Those that take blocks ahead; others, such as fallocate's, begin at the stream's goal (kernel
    /// `EXT4_MB_HINT_TRY_GOAL`, which only `ext4_mb_normalize_request` sets).
    Ahead,
    /// All.
    #[default]
    Always,
}

/// Where the streams of large files go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum StreamGoals {
    /// Each at its own goal.
    Off,
    /// Where the last of all ended, which is kept under a lock (kernel before 6.17).
    Locked,
    /// Where the last of all ended, without a lock.
    One,
    /// Where the last of their number ended (kernel since 6.17).
    ByNumber,
    /// Where the last of their band and number ended.
    #[default]
    Several,
}

/// How freed runs wait for the commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Frees {
    /// On one list of the disk: its lock is taken to enter a run and for each one that it is joined with, and counts the
    /// blocks (kernel before 6.17).
    OneList,
    /// The same, with the blocks counted apart.
    CountedApart,
    /// On one list; what can be joined is joined before, so that the lock is taken once or not at all (kernel since 6.17).
    JoinedFirst,
    /// With their group alone.
    #[default]
    Joined,
}

/// How the allocators work.
///
/// With the feature `serde` it can be read from a file: fields that are not there have their default, and unknown ones are
/// errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(default, deny_unknown_fields))]
pub struct Tuning {
    /// In which order groups are visited.
    pub scan: Scan,
    /// [`Scan::ListHead`] finds groups on lists under locks, always from the head (kernel before 6.17); else by the index.
    pub order_lists: bool,
    /// Directories at the top are spread over the groups; else all go where their parent is.
    pub spread_directories: bool,
    /// Groups share 128 locks, as the kernel's; else each has its own.
    pub block_group_locks: bool,
    /// Skip groups whose lock is taken, but for the last criterion; else wait for each.
    pub skip_busy: bool,
    /// Who tries the exact goal.
    pub exact_goal: ExactGoal,
    /// Where streams go on.
    pub stream_goals: StreamGoals,
    /// How freed runs wait.
    pub frees: Frees,
    /// Groups looked at one by one from the goal before `scan` (kernel `mb_max_linear_groups`).
    pub max_linear_groups: u32,
    /// Runs looked at for a longer one (kernel `mb_max_to_scan`).
    pub max_to_scan: u32,
    /// Sufficient runs looked at for a closer fit (kernel `mb_min_to_scan`).
    pub min_to_scan: u32,
    /// The least order that is looked for in the buddy, counted from 1: 2 means two blocks, as is the kernel's default
    /// (kernel `mb_order2_req`).
    pub order2_req: u8,
    /// Blocks up to which a file is small (kernel `mb_stream_req`).
    pub stream_req: u32,
    /// Orders by which a goal's length may be trimmed (kernel `mb_best_avail_max_trim_order`).
    pub best_avail_max_trim_order: u8,
    /// Blocks that are taken ahead for small files of one place; 0 means none (kernel `mb_group_prealloc`).
    pub group_prealloc: u32,
    /// How preallocations are kept.
    pub preallocation: Preallocation,
    /// How free inodes are found.
    pub inode_search: InodeSearch,
    /// Freed inodes are given out again at once; else rather not before the transaction that freed them is durable, as
    /// is good for disks without a journal.
    pub reuse_inodes: bool,
}

impl Tuning {
    /// Every mechanism in its oldest form, as before the kernel's 6.17.
    #[must_use]
    pub fn oldest() -> Self {
        Self {
            scan: Scan::ListHead,
            order_lists: true,
            block_group_locks: true,
            skip_busy: false,
            exact_goal: ExactGoal::Ahead,
            stream_goals: StreamGoals::Locked,
            frees: Frees::OneList,
            order2_req: 2,
            preallocation: Preallocation::List,
            inode_search: InodeSearch::Repeat,
            ..Self::default()
        }
    }

    /// For a disk that is filled once and has hardly more room than its content needs: one file behind the other.
    #[must_use]
    pub fn packed() -> Self {
        Self {
            spread_directories: false,
            stream_goals: StreamGoals::Off,
            order2_req: u8::MAX,
            group_prealloc: 0,
            ..Self::default()
        }
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            scan: Scan::default(),
            order_lists: false,
            spread_directories: true,
            block_group_locks: false,
            skip_busy: true,
            exact_goal: ExactGoal::default(),
            stream_goals: StreamGoals::default(),
            frees: Frees::default(),
            max_linear_groups: 0,
            max_to_scan: 200,
            min_to_scan: 10,
            order2_req: 3,
            stream_req: 16,
            best_avail_max_trim_order: 3,
            group_prealloc: 512,
            preallocation: Preallocation::default(),
            inode_search: InodeSearch::default(),
            reuse_inodes: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_of_tunables_has_every_field_with_its_default() {
        let page = include_str!("../../../docs/reference/tunables.md");
        let written = format!("{:?}", Tuning::default());
        let fields = written.split(['{', '}', ',']).filter_map(|part| part.trim().split_once(": "));
        let mut count = 0;
        for (field, value) in fields {
            // Variants are in kebab case there, as in policy files.
            let mut word = String::new();
            for letter in value.chars() {
                let is_joint = letter.is_uppercase() && !word.is_empty();
                word.extend(is_joint.then_some('-').into_iter().chain(letter.to_lowercase()));
            }
            let cell = if value.parse::<u32>().is_ok() { word } else { format!("`{word}`") };
            assert!(page.contains(&format!("| `{field}` | {cell} |")), "{field}: {cell}");
            count += 1;
        }
        assert!(count > 10, "{written}");
    }
}
