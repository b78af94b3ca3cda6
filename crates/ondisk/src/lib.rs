//! Bytes of ext4 and jbd2: every structure on the disk as a type that reads, checks and writes it.
//!
//! Leaves out: I/O, locks, clocks. All functions are pure.
//!
//! Invariant: nothing here panics, overflows or allocates by an unchecked field, whatever the bytes.
#![forbid(unsafe_code)]

pub mod acl;
#[path = "checksum_core.rs"]
pub mod checksum;
pub mod dir_hash;
pub mod dirent;
#[path = "error_core.rs"]
pub mod error;
pub mod htree;
mod le;
mod types;
pub mod xattr;

pub use types::{FsBlock, GroupNumber, InodeNumber, LogicalBlock, TransactionId};
