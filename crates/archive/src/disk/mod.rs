//! Trees on a disk: read by [`DiskWalk`], written by [`Import`].

mod existing;
mod import;
mod lower;
mod pending;
mod target_dirs;
mod walk;

pub use import::{Import, Imported, Manner};
pub use walk::DiskWalk;

use extant::Times;

use crate::entry::Attributes;

/// The times that a file gets; that of its last access is the one of its last change where the source tells none.
fn times(attributes: &Attributes) -> Times {
    Times { atime: attributes.atime.unwrap_or(attributes.mtime), mtime: attributes.mtime }
}
