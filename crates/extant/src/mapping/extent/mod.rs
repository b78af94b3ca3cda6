//! Extent trees: from the blocks of a file to blocks of the disk.
//!
//! A tree has its root in the inode and its nodes in blocks, which are buffers. A change loads the whole path from the
//! root to a leaf first (`path`), computes the new leaf (`leaf`, without I/O), and then applies it inside an update
//! (`edit`), which cannot fail with `NoSpace`.
//!
//! Invariants: an entry of an index node has the number of the first logical block under it; no node but the root is
//! empty; neighbours in a leaf that could be one extent are one, as far as a change touched them.
//!
//! Locks: the caller holds `INODE` of the file, for a change alone, or shared with `MAPPING` alone ([`crate::incore::content`]).
//!
//! Source: `fs/ext4/extents.c`: `ext4_ext_insert_extent`, `ext4_ext_correct_indexes`, `ext4_ext_remove_space`,
//! `ext4_ext_shift_extents`.
//!
//! Tests: `leaf`, and `tests/trees.rs` for trees of all depths.

mod convert;
mod edit;
mod leaf;
mod lookup;
mod path;
mod remove;
mod shift;

pub(crate) use convert::Conversion;
pub(crate) use leaf::Shift;
pub(crate) use path::Path;
pub(crate) use remove::Removal;
