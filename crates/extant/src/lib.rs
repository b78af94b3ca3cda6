//! ext4 in user space: reads, writes, makes, checks and resizes the file systems of Linux, without a mount, without root, and with a journal.
//!
//! [`Mount`] opens an image file, a block device or any [device](device::BlockDevice) of your own, and gives a [`Filesystem`]. Its functions have
//! the names and the meaning of [`std::fs`], and a [`File`] reads, writes and seeks as [`std::fs::File`] does; `?` makes their [`Error`] a
//! [`std::io::Error`].
//!
//! Make a file system in memory, write to it and read it back:
//!
//! ```
//! use std::io::{BufRead, BufReader, Write};
//!
//! use extant::{Mount, device::MemoryDevice, mkfs::Mkfs};
//!
//! fn main() -> std::io::Result<()> {
//!     let device = MemoryDevice::new(64 << 20);
//!     Mkfs::new().format(&device)?;
//!     let fs = Mount::new().open_device(device)?;
//!
//!     fs.create_dir_all("/etc/init.d")?;
//!     fs.write("/etc/hostname", "guest\n")?;
//!     writeln!(fs.create("/etc/motd")?, "Welcome to {}", fs.read_to_string("/etc/hostname")?.trim())?;
//!     fs.symlink("motd", "/etc/issue")?;
//!
//!     let mut lines = BufReader::new(fs.open("/etc/issue")?).lines();
//!     assert_eq!(lines.next().transpose()?.as_deref(), Some("Welcome to guest"));
//!     Ok(fs.unmount()?)
//! }
//! ```
//!
//! Read a file of an image. No byte of the image changes, and a journal that a crash left is replayed in memory:
//!
//! ```no_run
//! use extant::Mount;
//!
//! fn main() -> std::io::Result<()> {
//!     let fs = Mount::new().read_only(true).open("disk.img")?;
//!     print!("{}", fs.read_to_string("/etc/os-release")?);
//!     Ok(())
//! }
//! ```
//!
//! Mount with options, make a file durable, and walk the tree:
//!
//! ```
//! use std::sync::Mutex;
//! use std::time::Duration;
//!
//! use extant::{Mount, mkfs::Mkfs};
//!
//! fn main() -> std::io::Result<()> {
//!     let device = Mutex::new(vec![0; 16 << 20]);
//!     Mkfs::new().label(b"data")?.format(&device)?;
//!     let fs = Mount::new()
//!         .commit_interval(Duration::from_secs(1))
//!         .page_cache_bytes(8 << 20)
//!         .open_device(device)?;
//!
//!     fs.create_dir("/log")?;
//!     let file = fs.options().create_new(true).append(true).mode(0o600).open("/log/today")?;
//!     file.write_all_at(b"started\n", 0)?;
//!     file.sync_all()?;
//!
//!     let mut bytes = 0;
//!     for entry in fs.walk("/")? {
//!         let entry = entry?;
//!         if entry.file_type()?.is_file() {
//!             bytes += entry.metadata()?.len();
//!         }
//!     }
//!     assert_eq!(bytes, 8);
//!     Ok(fs.unmount()?)
//! }
//! ```
//!
//! The library does not print, exit or read the environment. It runs on Linux.
//!
//! # Features
//!
//! All are on by default. Without the first two, disks that need them are refused by name.
//!
//! - `casefold`: directories that ignore case, by the tables of Unicode;
//! - `encrypt`: names of encrypted files, shown as Linux shows them without keys;
//! - `check`: [`Filesystem::check`];
//! - `tune`: [`Tune`], which changes features, labels and checksums of disks that exist.

mod api;
#[cfg(feature = "check")]
mod check;
mod defrag;
pub mod device;
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
pub mod ondisk;
mod page_cache;
mod resize;
#[cfg(test)]
mod tests;
#[cfg(feature = "tune")]
mod tune;

pub use api::{
    Dir, DirEntry, Dirent, File, Filesystem, Mount, OpenOptions, ReadAhead, ReadDir, SYMLINKS_MAX, Walk,
};
#[cfg(feature = "check")]
pub use check::{FINDINGS_MAX, Finding, Pass, Progress};
pub use defrag::{Changed, DefragEvent, DefragOptions};
pub use directory::DirItem;
pub use error::{Error, Location, MmpHolder, Result};
#[cfg(extant_linux_model)]
pub use extant_alloc::linux_model;
pub use extant_alloc::{MballocStatistics, PreallocStatistics, Scan, Tuning, policy};
pub use extant_block::Defragmented;
pub use extant_journal::{Corrupt as JournalCorrupt, Error as JournalError, Stats as JournalStatistics};
pub use extant_ondisk::{
    FileType, FsBlock, GroupNumber, InodeFlags, InodeNumber, LogicalBlock, QuotaType, Structure, Timestamp,
    mode,
};
pub use extant_rt::WallClock;
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
#[cfg(feature = "tune")]
pub use tune::{ErrorBehavior, Tune, TuneProgress, Tuned};

/// The snippets of README.md compile, and those of the guide run.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guides/use-the-library.md")]
    struct Guide;
}
