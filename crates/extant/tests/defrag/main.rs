//! Defragmenting: what it reaches on aged disks, judged by e2fsprogs and the kernel; what stays in its place; crashes and failing devices
//! on the way; and threads that work meanwhile.
//!
//! Tests that need mke2fs, e2fsck or loop devices say so where there are none.

mod age;
mod aged;
mod crash;
mod directories;
#[path = "../resize/disk.rs"]
#[allow(dead_code, reason = "tests of resizing use the rest")]
mod disk;
#[path = "../crash/fault.rs"]
#[allow(dead_code, reason = "tests of crashes use the rest")]
mod fault;
mod fixed;
mod in_use;
mod measure;
#[cfg(target_os = "linux")]
mod peers;
#[path = "../resize/tree.rs"]
#[allow(dead_code, reason = "tests of resizing use the rest")]
mod tree;
