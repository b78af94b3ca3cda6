//! Trees on the host: read by [`Walk`], written by [`Extract`]; single files as streams.

mod attributes;
mod extract;
mod listed;
mod open_path;
mod stream;
mod walk;

pub use extract::Extract;
pub use listed::Listed;
pub use stream::{StreamReader, StreamWriter};
pub use walk::Walk;
