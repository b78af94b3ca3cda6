//! Trees on the host: read by [`Walk`], written by [`Extract`]; single files as streams.

#[cfg(target_os = "linux")]
mod attributes;
pub(crate) mod directories;
#[cfg(target_os = "linux")]
mod extract;
mod listed;
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
#[cfg(target_os = "linux")]
use open_path::FileId;
#[cfg(not(target_os = "linux"))]
pub use portable::Extract;
pub use stream::{StreamReader, StreamWriter};
#[cfg(not(target_os = "linux"))]
use walk::FileId;
pub use walk::Walk;
use walk::open_regular;
