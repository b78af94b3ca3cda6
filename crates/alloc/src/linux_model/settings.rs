//! Which forms of older kernels are in use.

/// Where the walk by order begins ([`Scan::Ordered`](crate::Scan::Ordered); without effect on others).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum ListHead {
    /// At the goal, rightwards through all, then from 0 (kernel since 6.17).
    #[default]
    Off,
    /// At the first group of the lowest sufficient order, found by the index.
    Index,
    /// There, found on lists under locks (kernel before 6.17).
    Lists,
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

/// Where the streams of large files go on. Older forms go with [`Tuning::stream_goals`](crate::Tuning::stream_goals) off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum StreamGoals {
    /// Where the last of all ended, which is kept under a lock (kernel before 6.17).
    Locked,
    /// Where the last of all ended, without a lock.
    One,
    /// Where the last of their number ended (kernel since 6.17).
    ByNumber,
    /// As [`Tuning::stream_goals`](crate::Tuning::stream_goals) says: where the last of their band and number ended, or each at
    /// its own goal.
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

/// The mechanisms that have an older form, each by default in the one that ships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Deserialize), serde(default, deny_unknown_fields))]
pub struct LinuxModel {
    /// Where the walk by order begins.
    pub list_head: ListHead,
    /// Groups share 128 locks, as the kernel's; else each has its own.
    pub block_group_locks: bool,
    /// Skip groups whose lock is taken, but for the last criterion; else wait for each.
    pub skip_busy: bool,
    /// Who tries the exact goal.
    pub exact_goal: ExactGoal,
    /// Where streams go on.
    pub stream_goals: StreamGoals,
    /// Goals by number at most; there is one for four groups at most (kernel: as many as possible CPUs).
    pub stream_goals_max: u32,
    /// How freed runs wait.
    pub frees: Frees,
    /// An inode's preallocations are a list that is searched from the newest on, capped and trimmed (kernel before 6.4); else
    /// a balanced tree by logical start.
    pub preallocation_list: bool,
    /// How free inodes are found.
    pub inode_search: InodeSearch,
}

impl Default for LinuxModel {
    fn default() -> Self {
        Self {
            list_head: ListHead::default(),
            block_group_locks: false,
            skip_busy: true,
            exact_goal: ExactGoal::default(),
            stream_goals: StreamGoals::default(),
            stream_goals_max: 128,
            frees: Frees::default(),
            preallocation_list: false,
            inode_search: InodeSearch::default(),
        }
    }
}
