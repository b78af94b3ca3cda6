//! Forms of the kernel's allocator that measurements compare with the default, through [`crate::Tuning`]. By default none is in use.

pub(crate) mod block_group_locks;
pub(crate) mod group_info;
pub(crate) mod inode_search;
pub(crate) mod md_lock;
pub(crate) mod order_lists;
pub(crate) mod pa_list;
