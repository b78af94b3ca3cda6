//! Trees on the host: read by [`Walk`], written by [`Extract`]; single files as streams.

#[cfg(target_os = "linux")]
mod attributes;
pub(crate) mod directories;
#[cfg(target_os = "linux")]
mod extract;
mod listed;
mod open_file;
#[cfg(target_os = "linux")]
mod open_path;
mod pieces;
#[cfg(not(target_os = "linux"))]
mod portable;
mod stream;
mod walk;

#[cfg(target_os = "linux")]
pub use extract::Extract;
pub use listed::Listed;
pub(crate) use open_file::OpenFile;
#[cfg(not(target_os = "linux"))]
pub use portable::Extract;
pub use stream::{StreamReader, StreamWriter};
pub use walk::Walk;
use walk::open_regular;
