//! The public API: a mounted [`Filesystem`], its files and directories, in the manner of `std::fs`.

mod dir;
mod file;
mod filesystem;
mod options;
mod paths;
mod quota;
mod remove_all;
mod walk;

pub use dir::{Dir, DirEntry};
pub use file::File;
pub use filesystem::Filesystem;
pub use options::{Mount, OpenOptions};
pub use walk::SYMLINKS_MAX;
