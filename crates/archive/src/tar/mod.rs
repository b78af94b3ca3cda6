//! Tar archives: ustar, GNU and PAX are read; PAX is written.
//!
//! Sources: POSIX.1-2017 `pax`; GNU tar manual, "Standard Format", "Storing Sparse Files" and "Extensions";
//! libarchive `tar(5)`. Tests: `tests/tar.rs`, against GNU tar both ways.

mod acl;
mod header;
mod input;
mod pax;
mod read;
mod sparse;
mod write;

pub use input::Input;
pub use read::TarReader;
pub use write::TarWriter;

/// Bytes of a block, the unit of an archive.
const BLOCK: usize = 512;

/// Bytes after `bytes` up to the next whole block.
fn padding(bytes: u64) -> u64 {
    bytes.wrapping_neg() % BLOCK as u64
}
