//! ext4 in user space: the engine and its Rust API.
//!
//! Leaves out: printing, process exit, the environment.

mod access;
mod api;
mod attributes;
mod buffer;
mod cache;
mod check;
mod commit;
mod content;
mod counting;
mod delete;
mod dir;
mod error;
mod errors;
mod exchange;
mod extent;
mod fallocate;
mod groups;
mod handle;
mod indirect;
mod inline;
mod inode;
mod io;
mod map;
pub mod mkfs;
mod mmp;
mod mount;
mod namei;
mod orphan;
mod pages;
mod prealloc;
mod reserve;
mod reserved;
mod seek;
mod superblock_recovery;
mod tables;
#[cfg(test)]
mod tests;
mod trim;
mod truncate;
mod update;
mod verify;
mod volume;
mod worker;
mod write;
mod xattr;

pub use access::Credentials;
pub use api::{Dir, DirEntry, File, Filesystem, Mount, OpenOptions, Statistics};
pub use attributes::{AccessTimes, Metadata, SetAttributes, Times};
pub use check::{FINDINGS_MAX, Finding, Pass, Progress};
pub use counting::Descriptors;
pub use dir::DirItem;
pub use error::{Error, Location, Result};
#[cfg(extant_linux_model)]
pub use extant_alloc::linux_model;
pub use extant_alloc::{MballocStatistics, PreallocStatistics, Scan, Tuning};
pub use extant_journal::{Error as JournalError, Stats as JournalStatistics};
pub use extant_ondisk::{FileType, InodeFlags, InodeNumber, Timestamp};
pub use extant_writeback::{ContextStatistics, Statistics as WritebackStatistics};
pub use fallocate::Fallocate;
pub use mmp::MmpHolder;
pub use mount::Mounted;
pub use namei::{New, NewKind, RenameFlags};
pub use seek::{FileExtent, SeekTo};
pub use tables::TableInitialisation;
pub use xattr::XattrMode;

/// The snippets of README.md compile, and those of the guide run.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guides/use-the-library.md")]
    struct Guide;
}
