//! Inline content (`inline_data`): the first 60 bytes in `i_block`, what follows as the value of the attribute `system.data`
//! behind the inode's fields.
//!
//! A directory's content begins with the number of its parent. Two lists of entries follow, one to the end of `i_block` and
//! one that is the value; neither has `.` and `..`.
//!
//! Leaves out: making such content; Extant moves it to blocks before it changes.
//!
//! Invariant: [`content`] has at least 60 bytes, at least as many as the size says, and fewer than an inode.
//!
//! Source: kernel `fs/ext4/inline.c` (`ext4_find_inline_data_nolock`, `ext4_finish_convert_inline_dir`,
//! `ext4_destroy_inline_data_nolock`). Tests: `tests/dirs_and_xattrs/inline.rs`.

use crate::dirent;
use crate::error::{Error, Result, Structure};
use crate::extent::{ExtentNode, ROOT_CAPACITY};
use crate::field;
use crate::file_type::FileType;
use crate::inode::{I_BLOCK_SIZE, RawInode};
use crate::inode_flags::InodeFlags;
use crate::types::InodeNumber;
use crate::xattr::{Xattr, XattrValue, parse_ibody, write_ibody};

/// Bytes of a directory's content before its entries: the parent's number.
const PARENT_BYTES: usize = 4;

/// The inline content: `i_block` and the value of `system.data`. The flag for it is not looked at.
///
/// # Errors
/// `Corrupt` when there is no `system.data` among the inode's own attributes, when its value is elsewhere, when the inode is
/// mapped by extents as well, and when the size is more than the content's.
pub fn content(inode: &RawInode) -> Result<Vec<u8>> {
    if inode.flags().contains(InodeFlags::EXTENTS) {
        return Err(corrupt("content in the inode, and mapped by extents"));
    }
    let xattrs = parse_ibody(inode.xattr_region().unwrap_or_default())?;
    let value = match xattrs.iter().find(|xattr| xattr.is_inline_content()).map(|xattr| &xattr.value) {
        Some(XattrValue::Inline(value)) => value,
        Some(XattrValue::Inode { .. }) => return Err(corrupt("content of an inode in another one")),
        None => return Err(corrupt("content in the inode without an attribute for it")),
    };
    let content = [inode.i_block(), value.as_slice()].concat();
    if inode.size() > content.len() as u64 {
        return Err(corrupt("size is more than the inode holds"));
    }
    Ok(content)
}

/// Takes the content out: the inode is as one of no blocks, by extents if the disk has them. Its size stays.
///
/// # Errors
/// `Corrupt`, and no change, when the inode's own attributes are.
pub fn take_out(inode: &mut RawInode, has_extents: bool) -> Result<()> {
    let mut flags = inode.flags() - InodeFlags::INLINE_DATA - InodeFlags::INDEX;
    let mut map = [0; I_BLOCK_SIZE];
    if has_extents {
        flags |= InodeFlags::EXTENTS;
        ExtentNode::empty_leaf(ROOT_CAPACITY).write(&mut map)?;
    }
    if let Some(region) = inode.xattr_region_mut() {
        let mut xattrs = parse_ibody(region)?;
        xattrs.retain(|xattr| !xattr.is_inline_content());
        // Fewer than before.
        write_ibody(region, &xattrs).map_err(|_| corrupt("no room for the attributes that it has"))?;
    }
    *inode.i_block_mut() = map;
    inode.set_flags(flags);
    Ok(())
}

/// The parent of a directory of that content.
#[must_use]
pub fn parent(content: &[u8]) -> InodeNumber {
    InodeNumber(field::get(content, 0).unwrap_or(0))
}

/// The lists of entries of a directory of that content; the second may be empty. Read each with [`dirent::entries`].
#[must_use]
pub fn entry_lists(content: &[u8]) -> [&[u8]; 2] {
    let (own, value) = content.split_at(content.len().min(I_BLOCK_SIZE));
    [own.get(PARENT_BYTES..).unwrap_or_default(), value]
}

/// Fills a block with what a directory of that content has, in the same order behind `.` and `..`.
///
/// `file_type` is as in [`dirent::init_dot_dotdot`].
///
/// # Errors
/// `Corrupt` when there is no parent or an entry is broken.
pub fn fill_directory_block(
    block: &mut [u8],
    usable: usize,
    content: &[u8],
    own: InodeNumber,
    file_type: u8,
) -> Result<()> {
    let parent = parent(content);
    if parent.0 == 0 {
        return Err(broken("no parent"));
    }
    dirent::init_dot_dotdot(block, usable, own, parent, file_type);
    for list in entry_lists(content) {
        for entry in dirent::live_entries(list, list.len()) {
            let entry = entry.map_err(|_| broken("an entry is broken"))?;
            if !dirent::insert(block, usable, entry.inode, entry.name, entry.file_type)? {
                return Err(broken("more names than a block holds"));
            }
        }
    }
    Ok(())
}

impl RawInode {
    /// Whether it is of a type that has content and says that its content is inline.
    #[must_use]
    pub fn has_inline_data(&self) -> bool {
        let has_content =
            matches!(self.file_type(), FileType::Regular | FileType::Directory | FileType::Symlink);
        has_content && self.flags().contains(InodeFlags::INLINE_DATA)
    }
}

impl Xattr {
    /// Whether it is `system.data`, which holds content and is shown to no user as an attribute.
    #[must_use]
    pub fn is_inline_content(&self) -> bool {
        is_inline_content(self.name_index, &self.name)
    }
}

/// [`Xattr::is_inline_content`] by name.
#[must_use]
pub fn is_inline_content(name_index: u8, name: &[u8]) -> bool {
    name_index == crate::xattr::index::SYSTEM && name == b"data"
}

fn corrupt(reason: &'static str) -> Error {
    Error::corrupt(Structure::Inode, reason)
}

fn broken(reason: &'static str) -> Error {
    Error::corrupt(Structure::InlineDirectory, reason)
}
