//! Usage of users, groups and projects on disks that count it: e2fsck counts it anew and must find the same.
//!
//! Random operations work through the library, without pages and with few and many of them. A mount and the kernel take part in
//! `crates/cli/tests/mount/quotas.rs`.

mod disk;
mod fast_commits;
mod limits;
mod made;
mod usage;
