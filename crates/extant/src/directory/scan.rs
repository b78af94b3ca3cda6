//! Going through all blocks of a directory whose index cannot be trusted.
//!
//! Which of its blocks belong to the index is seen by their first entry, as the kernel sees it
//! (`__ext4_read_dirblock`): an index block is one free entry over the whole block. A block read here does not
//! enter the cache, for an empty leaf of a disk without checksums looks the same.

use extant_ondisk::{LogicalBlock, Structure, dirent};
use extant_rt::Arc;

use crate::directory::Directories;
use crate::error::{Error, Location, Result};
use crate::incore::buffer::BufferKind;
use crate::incore::inode::Inode;
use crate::mapping::Mapping;
use crate::metadata::verify;

/// Gets a block's place in the directory, its bytes and how many of them are entries; false ends the scan.
type Visit<'v> = dyn FnMut(LogicalBlock, &[u8], usize) -> Result<bool> + 'v;

impl Directories {
    /// Calls `visit` with each block that holds entries, and how many bytes of it, until it says false. Damaged
    /// blocks are passed over, and the first damage is the result if no call said false.
    pub(crate) fn scan_directory(&self, dir: &Arc<Inode>, visit: &mut Visit<'_>) -> Result<()> {
        if let Some(bytes) = self.inline_directory(dir)? {
            return visit(LogicalBlock(0), &bytes, self.dir_format.usable).map(drop);
        }
        let mut damage = Ok(());
        let len = self.directory_len(dir)?;
        let mut next = 0;
        while next < len {
            let logical = LogicalBlock(next);
            // Holes are damage, and may be as long as the size claims: passed over in one step.
            let passed = match self.map(dir, &dir.raw(), logical, len - next)? {
                Mapping::Hole { len } => len,
                Mapping::Data { .. } => 1,
            };
            match self.scan_block(dir, logical, visit) {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error @ Error::Corrupt { .. }) => damage = damage.and(Err(error)),
                Err(error) => return Err(error),
            }
            next = next.saturating_add(passed);
        }
        damage
    }

    fn scan_block(&self, dir: &Arc<Inode>, logical: LogicalBlock, visit: &mut Visit<'_>) -> Result<bool> {
        let format = &self.dir_format;
        let location = Location::of(Structure::DirectoryBlock).inode(dir.number);
        let block = self.directory_block(dir, logical)?;
        // Bytes in memory were verified, and their sum may be out of date until the commit.
        let (bytes, in_memory) = match self.buffers.get(block.0, Arc::clone) {
            Some(buffer) => (buffer.bytes(), true),
            None => (self.read_block(block, location)?, false),
        };
        let first = dirent::entry_at(&bytes, bytes.len(), 0).map_err(|e| location.block(block).format(e))?;
        if !first.is_live() && first.rec_len == bytes.len() {
            return Ok(true);
        }
        let second = first.offset + first.rec_len;
        let is_root = logical.0 == 0
            && dirent::entry_at(&bytes, bytes.len(), second).is_ok_and(|e| second + e.rec_len == bytes.len());
        if is_root {
            return visit(logical, &bytes, bytes.len());
        }
        if !in_memory {
            verify::verify(&self.checksums, BufferKind::Directory(dir.owner()), block, &bytes)
                .map_err(|e| location.block(block).format(e))?;
        }
        visit(logical, &bytes, format.usable)
    }
}
