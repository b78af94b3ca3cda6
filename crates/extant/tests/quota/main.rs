//! Usage of users, groups and projects on disks that count it: e2fsck counts it anew and must find the same.
//!
//! Random operations work through the library, without pages and with few and many of them. The running kernel takes no part where it was
//! built without `CONFIG_QFMT_V2`: it then mounts such disks for reading only.

mod disk;
mod fast_commits;
mod made;
mod usage;
