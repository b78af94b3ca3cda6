//! ext4 in user space: the engine and its Rust API.
//!
//! Leaves out: printing, process exit, the environment.

mod api;
mod check;
mod defrag;
mod directory;
mod error;
mod file;
mod incore;
mod inode;
mod mapping;
mod metadata;
pub mod mkfs;
mod mount;
mod namespace;
mod page_cache;
mod resize;
#[cfg(test)]
mod tests;
mod tune;

pub use api::{Dir, DirEntry, File, Filesystem, Mount, OpenOptions, SYMLINKS_MAX};
pub use check::{FINDINGS_MAX, Finding, Pass, Progress};
pub use defrag::{Changed, DefragEvent, DefragOptions, Defragmented};
pub use directory::DirItem;
pub use error::{Error, Location, MmpHolder, Result};
#[cfg(extant_linux_model)]
pub use extant_alloc::linux_model;
pub use extant_alloc::{MballocStatistics, PreallocStatistics, Scan, Tuning};
pub use extant_journal::{Error as JournalError, Stats as JournalStatistics};
pub use extant_ondisk::{FileType, InodeFlags, InodeNumber, QuotaType, Timestamp, mode};
pub use extant_writeback::{ContextStatistics, Statistics as WritebackStatistics};
pub use file::fallocate::Fallocate;
pub use file::seek::{FileExtent, SeekTo};
pub use inode::attributes::{AccessTimes, Metadata, SetAttributes, Times};
pub use inode::xattr::XattrMode;
pub use metadata::Statistics;
pub use metadata::changed_inodes::ChangedInodes;
pub use metadata::counting::Descriptors;
pub use metadata::quota::reserve::QuotaScope;
pub use metadata::quota::values::{Quota, QuotaGrace, QuotaLimits, SetQuota};
pub use metadata::tables::TableInitialisation;
pub use mount::Mounted;

pub use namespace::Credentials;
pub use namespace::{New, NewKind, RenameFlags};
pub use resize::Grown;
pub use resize::shrink::{ShrinkPlan, ShrinkProgress, ShrinkTo, Shrunk};
pub use tune::{ErrorBehavior, Tune, TuneProgress, Tuned};

/// The snippets of README.md compile, and those of the guide run.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guides/use-the-library.md")]
    struct Guide;
}
