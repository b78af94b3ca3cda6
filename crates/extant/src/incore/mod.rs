//! What is in memory of a mounted file system: buffers, inodes, their pages, and the caches that hold them.
//!
//! Leaves out: the device. Nothing here reads or writes it.

pub(crate) mod budget;
pub(crate) mod buffer;
pub(crate) mod cache;
pub(crate) mod content;
pub(crate) mod dirty_in;
pub(crate) mod errseq;
pub(crate) mod fill_window;
pub(crate) mod folio_map;
pub(crate) mod folios;
pub(crate) mod inode;
pub(crate) mod inode_cache;
pub(crate) mod leaf_map;
pub(crate) mod pages;
pub(crate) mod unreported_errors;
pub(crate) mod usage;
