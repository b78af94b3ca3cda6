//! Tar archives: ustar, GNU and PAX are read; PAX is written.
//!
//! Sources: POSIX.1-2017 `pax`; GNU tar manual, "Standard Format", "Storing Sparse Files" and "Extensions";
//! libarchive `tar(5)`. Tests: `tests/tar.rs`, against GNU tar both ways.

mod acl;
mod header;
mod input;
mod member;
mod pax;
mod read;
mod sparse;
mod write;

pub use input::Input;
pub(crate) use input::unnamed_file;
pub use read::TarReader;
pub use write::TarWriter;

/// Bytes of a block, the unit of an archive.
const BLOCK: usize = 512;

/// Bytes of a member's path, or of what a link says: 16 times `PATH_MAX` of Linux, enough for 32,768 directories in each
/// other. Programs that hold a path for each directory would need memory that grows with the square of it.
const PATH_BYTES_MAX: usize = 64 << 10;

/// Bytes after `bytes` up to the next whole block.
fn padding(bytes: u64) -> u64 {
    bytes.wrapping_neg() % BLOCK as u64
}
