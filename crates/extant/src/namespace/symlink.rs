//! Reading symbolic links.
//!
//! Source: `fs/ext4/symlink.c`, `ext4_inode_is_fast_symlink` of `fs/ext4/inode.c`.

use extant_ondisk::dir_hash::NameHash;
use extant_ondisk::inode::{self, I_BLOCK_SIZE};
use extant_ondisk::{FileType, InodeFlags, LogicalBlock, Structure, nokey};
use extant_rt::Arc;

use crate::error::{Error, Location, Result};
use crate::incore::buffer::BufferKind;
use crate::incore::inode::Inode;
use crate::namespace::Namespace;

impl Namespace {
    /// The target of a symbolic link; of an encrypted one, the form that is shown without the key.
    ///
    /// # Errors
    /// `InvalidArgument` if it is none; `Corrupt`, `Io`.
    pub(crate) fn read_link(&self, inode: &Arc<Inode>) -> Result<Vec<u8>> {
        let raw = inode.raw();
        if raw.file_type() != FileType::Symlink {
            return Err(Error::InvalidArgument("not a symbolic link"));
        }
        let location = Location::of(Structure::Symlink).inode(inode.number);
        let len = usize::try_from(raw.size()).unwrap_or(usize::MAX);
        let target = if let Some(mut content) = self.inline_content(inode.number, &raw)? {
            content.truncate(len);
            content
        } else if len < I_BLOCK_SIZE {
            raw.i_block()[..len].to_vec()
        } else {
            let block = self.directory_block(inode, LogicalBlock(0))?;
            let buffer = self.buffer(block, BufferKind::Symlink, location)?;
            buffer
                .read(|bytes| bytes.get(..len).map(<[u8]>::to_vec))
                .ok_or(location.corrupt("longer than a block"))?
        };
        if self.features.has_encryption && raw.flags().contains(InodeFlags::ENCRYPT) {
            let target =
                inode::encrypted_target(&target).ok_or(location.corrupt("not as long as it says"))?;
            return Ok(nokey::show(NameHash::default(), target));
        }
        if target.is_empty() || target.contains(&0) {
            return Err(location.corrupt("empty or with NUL"));
        }
        Ok(target)
    }
}
