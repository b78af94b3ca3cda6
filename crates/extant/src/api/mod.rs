//! The public API: a mounted [`Filesystem`], its files and directories, in the manner of `std::fs`.

mod dir;
mod file;
mod filesystem;
mod options;
mod paths;
mod quota;
mod read_dir;
mod remove_all;
mod resolve;
mod walk;

pub use dir::{Dir, Dirent, ReadAhead};
pub use file::File;
pub use filesystem::Filesystem;
pub use options::{Mount, OpenOptions};
pub use read_dir::{DirEntry, ReadDir};
pub use resolve::SYMLINKS_MAX;
pub use walk::Walk;
