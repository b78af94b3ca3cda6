//! Trees on a disk: read by [`DiskWalk`], written by [`Import`].

mod existing;
mod import;
mod target_dirs;
mod walk;

pub use import::{Import, Imported, Manner};
pub use walk::DiskWalk;

/// The extended attributes that hold access control lists.
const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
