//! Files whose content is fixed by hashes behind their end (fs-verity).
//!
//! The hashes are written past the end of a file that is in the orphan list, so that a crash cuts them off again. The
//! flag is set, and the file leaves the list, in one update when they are written.
//!
//! Leaves out: what the hashes are, and reading them.
//!
//! Source: `fs/ext4/verity.c`, `ext4_begin_enable_verity`, `ext4_end_enable_verity`. Test: `tests/formats/verity.rs`.

use extant_ondisk::InodeFlags;
use extant_rt::Arc;

use crate::error::{Error, Result};
use crate::file::Files;
use crate::incore::inode::Inode;
use crate::mapping::MapKind;
use crate::metadata::orphan_list::ORPHAN_CREDITS;
use crate::metadata::update::{Credits, InodeDirty};

/// What the hashes begin at a multiple of, in bytes, so that pages of any size are either content or hashes.
const METADATA_ALIGNMENT: u64 = 65536;

impl Files {
    /// Writes `metadata`, a hash tree and its descriptor, behind the end of a file, whose content is fixed from then on.
    ///
    /// # Errors
    /// `Exists` if it is fixed already; `NotPermitted` for an immutable or append-only file; `Unsupported` for a disk without the feature, an encrypted
    /// file or one without extents; `InvalidArgument` without metadata; `FileTooLarge`; `NoSpace`; `IsADirectory`; `ReadOnly`; `Io`;
    /// `Corrupt`. The file is as it was then.
    pub(crate) fn enable_verity(&self, inode: &Arc<Inode>, metadata: &[u8]) -> Result<()> {
        self.check_regular(&inode.raw())?;
        self.writable()?;
        if metadata.is_empty() {
            return Err(Error::InvalidArgument("a verity file without a descriptor"));
        }
        if !self.features.has_verity {
            return Err(Error::Unsupported("verity files on a disk without the feature verity"));
        }
        let _content = inode.content.write();
        let flags = inode.raw().flags();
        if flags.contains(InodeFlags::VERITY) {
            return Err(Error::Exists);
        }
        if flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
            return Err(Error::NotPermitted);
        }
        if flags.contains(InodeFlags::ENCRYPT) {
            return Err(Error::Unsupported("verity of an encrypted file"));
        }
        self.flush_out(inode)?;
        self.move_to_blocks(inode)?;
        if self.map_kind(&inode.raw()) != MapKind::Extents {
            return Err(Error::Unsupported("verity of a file without extents"));
        }
        let (size, size_max) = (inode.raw().size(), self.size_max(&inode.raw()));
        let offset = size.checked_next_multiple_of(METADATA_ALIGNMENT);
        let offset = offset
            .filter(|offset| offset.checked_add(metadata.len() as u64).is_some_and(|end| end <= size_max));
        let offset = offset.ok_or(Error::FileTooLarge)?;
        self.discard_preallocations(inode);
        // What was allocated behind the end is not to be between content and hashes.
        self.begin_behind_end(inode)?;
        self.cut(inode)?;
        self.begin_behind_end(inode)?;
        if let Err(error) = self.write_behind_end(inode, offset, metadata) {
            // What cannot be cut now stays in the orphan list.
            let _ = self.cut(inode);
            return Err(error);
        }
        self.discard_preallocations(inode);
        let mut update = self.begin(Credits::new(1 + ORPHAN_CREDITS, 0))?;
        update
            .modify_inode(inode, InodeDirty::Mapping, |raw| raw.set_flags(raw.flags() | InodeFlags::VERITY));
        update.end_truncate(inode);
        update.finish();
        Ok(())
    }

    /// Puts a file into the orphan list, so that what is behind its end goes if there is a crash.
    fn begin_behind_end(&self, inode: &Arc<Inode>) -> Result<()> {
        let mut update = self.begin(Credits::new(1 + ORPHAN_CREDITS, 0))?;
        update.begin_truncate(inode);
        update.finish();
        Ok(())
    }
}
