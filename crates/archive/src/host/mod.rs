//! Trees on the host: read by [`Walk`], written by [`Extract`].

mod extract;
mod listed;
mod walk;
mod way;

pub use extract::{Extract, Keep};
pub use listed::Listed;
pub use walk::Walk;
