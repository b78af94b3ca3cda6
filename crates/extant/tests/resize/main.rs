//! Growing, shrinking and trimming: the layouts that result, judged by e2fsprogs and the kernel; crashes and failing devices on the way.
//!
//! Tests that need mke2fs, e2fsck or loop devices say so where there are none.

mod chains;
mod crash;
mod disk;
mod failures;
mod grow;
mod grow_faults;
mod in_use;
#[cfg(target_os = "linux")]
mod online;
mod order;
mod shrink;
mod shrink_crash;
mod shrink_faults;
mod tree;
mod trim;
