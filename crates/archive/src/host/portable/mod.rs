//! Trees of hosts other than Linux, by the standard library: files are found by their paths.
//!
//! Leaves out: extended attributes, holes, device files, pipes and sockets, times of directories; on hosts that are no Unix owners, modes
//! and hard links that are read. Another process that changes the tree meanwhile may redirect what is read or written.

mod extract;

pub use extract::Extract;
