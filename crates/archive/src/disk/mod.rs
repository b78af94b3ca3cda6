//! Trees on a disk: read by [`DiskWalk`], written by [`Import`].

mod compare;
mod content_copier;
mod difference;
mod existing;
mod import;
mod links;
mod lower;
mod mirror;
mod pairs;
mod pending;
mod pouring;
mod read;
mod target_dirs;
mod waiting;
mod walk;

pub use compare::Aspect;
pub(crate) use compare::{Thoroughness, differing};
pub(crate) use difference::Known;
pub use difference::{Change, ChangeKind, Difference};
pub use import::{Import, Imported, Manner};
pub use mirror::Mirror;
pub(crate) use pairs::{Found, Level};
pub(crate) use pouring::Pouring;
pub use walk::DiskWalk;

use extant::Times;

use crate::entry::Attributes;

/// The times that a file gets; that of its last access is the one of its last change where the source tells none.
fn times(attributes: &Attributes) -> Times {
    Times { atime: attributes.atime.unwrap_or(attributes.mtime), mtime: attributes.mtime }
}
