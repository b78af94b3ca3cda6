//! Trees on the host: read by [`Walk`], written by [`Extract`].

mod extract;
mod walk;

pub use extract::{Extract, Keep};
pub use walk::Walk;
