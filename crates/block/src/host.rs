//! The host's files and memory, as far as its operating system decides how they are used.
//!
//! Each platform is a module with the same functions: Linux, and all others by the standard library, which leaves out what a comment
//! there says. Nothing else in this crate, or below or above the engine, asks which platform it is on in order to reach a device.
//!
//! Test: `tests/file.rs` on each.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod portable;
#[cfg(unix)]
mod unix;

#[cfg(target_os = "linux")]
pub use linux::*;
#[cfg(not(target_os = "linux"))]
pub use portable::*;

/// What defragmenting a file system did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Defragmented {
    /// Files that have fewer runs of blocks.
    pub files: u64,
    /// Directories that have fewer blocks or runs.
    pub directories: u64,
    /// Runs of blocks of these files and directories before.
    pub runs_before: u64,
    /// Their runs of blocks after.
    pub runs_after: u64,
    /// Runs of blocks of files that moved to join free runs.
    pub joined_runs: u64,
    /// Bytes that were copied.
    pub moved_bytes: u64,
    /// Files and directories that stay as they are for a reason.
    pub left: u64,
    /// Files and directories that an error kept from being improved.
    pub failed: u64,
}
