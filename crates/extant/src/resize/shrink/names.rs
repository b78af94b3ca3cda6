//! What refers to inodes that get other numbers: entries of directories, their `..`, and attributes whose values are inodes.
//!
//! Places are found by one pass over all inodes, and stay right: entries are neither made nor removed meanwhile.

use std::collections::BTreeMap;

use extant_ondisk::htree::{DxKind, DxNode};
use extant_ondisk::inode::I_BLOCK_SIZE;
use extant_ondisk::xattr::{Xattr, XattrValue, parse_block, parse_ibody, write_block, write_ibody};
use extant_ondisk::{FileType, FsBlock, InodeNumber, LogicalBlock, Structure, dirent, inline_data, xattr};
use extant_rt::Arc;

use crate::error::{Location, Result};
use crate::incore::buffer::{Buffer, BufferKind};
use crate::incore::inode::Inode;
use crate::metadata::update::{InodeDirty, MetadataUpdate};
use crate::mount::Volume;

/// Where an inode is referred to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reference {
    /// The inode that refers to it.
    from: InodeNumber,
    place: Place,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    /// An entry in a block of a directory, at a byte.
    Block { logical: u32, offset: usize, is_parent: bool },
    /// An entry in the inode of a directory, at a byte of its content.
    Inline { offset: usize, is_parent: bool },
    /// An attribute in the inode.
    Body,
    /// An attribute in the inode's block of attributes.
    XattrBlock,
}

impl Reference {
    /// Whether it is a name, which counts as a link of an inode that is no directory.
    pub(super) fn is_name(&self) -> bool {
        !matches!(
            self.place,
            Place::Block { is_parent: true, .. }
                | Place::Inline { is_parent: true, .. }
                | Place::Body
                | Place::XattrBlock
        )
    }
}

/// References by the inodes that they refer to.
pub(super) type References = BTreeMap<InodeNumber, Vec<Reference>>;

/// The buffer of a block of a directory.
///
/// # Errors
/// `Io`; `Corrupt`.
pub(super) fn directory_buffer(
    volume: &Volume,
    dir: &Inode,
    logical: u32,
    block: FsBlock,
) -> Result<(Arc<Buffer>, usize)> {
    let location = Location::of(Structure::DirectoryBlock).inode(dir.number);
    let format = &volume.dir_format;
    let is_indexed = volume.dir_format.is_indexed(&dir.raw());
    let is_node = is_indexed && {
        let held = volume.buffers.get(block.0, Arc::clone).map(|buffer| buffer.bytes());
        let bytes = held.map_or_else(|| volume.read_block(block, location), Ok)?;
        // A leaf without names, or with one, looks like a node but for its counts.
        logical == 0 || DxNode::parse(&bytes, DxKind::Node, format.has_csum).is_ok()
    };
    let (kind, usable) = match is_node {
        true => (BufferKind::HtreeNode(dir.owner()), format.block_bytes),
        false => (BufferKind::Directory(dir.owner()), format.usable),
    };
    Ok((volume.buffer(block, kind, location)?, usable))
}

/// Adds the references of one inode to inodes that `is_wanted` names.
///
/// # Errors
/// `Io`; `Corrupt`.
pub(super) fn collect(
    volume: &Volume,
    inode: &Arc<Inode>,
    is_wanted: &dyn Fn(InodeNumber) -> bool,
    found: &mut References,
) -> Result<()> {
    let (raw, from) = (inode.raw(), inode.number);
    let mut add = |to: InodeNumber, place| {
        if is_wanted(to) {
            found.entry(to).or_default().push(Reference { from, place });
        }
    };
    if volume.features.has_value_inodes {
        let value_inode = |xattr: &Xattr| match xattr.value {
            XattrValue::Inode { inum, .. } => Some(InodeNumber(inum)),
            XattrValue::Inline(_) => None,
        };
        let location = Location::of(Structure::InodeXattrs).inode(from);
        let body = parse_ibody(raw.xattr_region().unwrap_or_default()).map_err(|e| location.format(e))?;
        body.iter().filter_map(value_inode).for_each(|to| add(to, Place::Body));
        if raw.file_acl().0 != 0 {
            let buffer = volume.buffer(raw.file_acl(), BufferKind::Xattr, location)?;
            let block = buffer.read(parse_block).map_err(|e| location.format(e))?;
            block.iter().filter_map(value_inode).for_each(|to| add(to, Place::XattrBlock));
        }
    }
    if raw.file_type() != FileType::Directory {
        return Ok(());
    }
    let location = Location::of(Structure::DirectoryBlock).inode(from);
    if raw.has_inline_data() {
        let content = inline_data::content(&raw).map_err(|e| location.format(e))?;
        add(inline_data::parent(&content), Place::Inline { offset: 0, is_parent: true });
        let starts = [size_of::<u32>(), I_BLOCK_SIZE];
        for (start, list) in starts.into_iter().zip(inline_data::entry_lists(&content)) {
            for entry in dirent::live_entries(list, list.len()) {
                let entry = entry.map_err(|e| location.format(e))?;
                add(entry.inode, Place::Inline { offset: start + entry.offset, is_parent: false });
            }
        }
        return Ok(());
    }
    for logical in 0..volume.directory_len(inode)? {
        let block = volume.directory_block(inode, LogicalBlock(logical))?;
        let (buffer, usable) = directory_buffer(volume, inode, logical, block)?;
        let bytes = buffer.bytes();
        for entry in dirent::live_entries(&bytes, usable) {
            let entry = entry.map_err(|e| location.block(block).format(e))?;
            if entry.name != b"." {
                let is_parent = entry.name == b"..";
                add(entry.inode, Place::Block { logical, offset: entry.offset, is_parent });
            }
        }
    }
    Ok(())
}

/// A reference with what changing it needs, so that nothing can fail half way.
pub(super) struct Ready {
    inode: Arc<Inode>,
    place: Place,
    buffer: Option<(Arc<Buffer>, usize)>,
}

impl Ready {
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(super) fn new(
        volume: &Volume,
        reference: Reference,
        renumbered: &BTreeMap<InodeNumber, InodeNumber>,
    ) -> Result<Self> {
        let from = renumbered.get(&reference.from).copied().unwrap_or(reference.from);
        let inode = volume.inode_if(from, |_| true)?;
        let buffer = match reference.place {
            Place::Block { logical, .. } => {
                let block = volume.directory_block(&inode, LogicalBlock(logical))?;
                Some(directory_buffer(volume, &inode, logical, block)?)
            }
            Place::XattrBlock => {
                let location = Location::of(Structure::XattrBlock).inode(from);
                Some((volume.buffer(inode.raw().file_acl(), BufferKind::Xattr, location)?, 0))
            }
            Place::Inline { .. } | Place::Body => None,
        };
        Ok(Self { inode: inode.inode().clone(), place: reference.place, buffer })
    }
}

impl MetadataUpdate<'_> {
    /// Makes a reference to the inode `old` one to `new`. Takes one credit.
    ///
    /// # Errors
    /// `Corrupt` if it is not there.
    pub(super) fn set_reference(&mut self, ready: &Ready, old: InodeNumber, new: InodeNumber) -> Result<()> {
        let location = Location::of(Structure::DirectoryBlock).inode(ready.inode.number);
        let missing = location.corrupt("an entry that was found is not there");
        let renumber = |xattrs: &mut Vec<Xattr>| {
            for xattr in xattrs {
                if let XattrValue::Inode { inum, .. } = &mut xattr.value
                    && *inum == old.0
                {
                    *inum = new.0;
                }
            }
        };
        let done = match (ready.place, &ready.buffer) {
            (Place::Block { offset, .. }, Some((buffer, usable))) => self.modify_buffer(buffer, |bytes| {
                let entry =
                    dirent::entry_at(bytes, *usable, offset).ok().filter(|entry| entry.inode == old)?;
                let file_type = entry.file_type;
                dirent::set_inode(bytes, *usable, offset, new, file_type).ok()
            }),
            (Place::XattrBlock, Some((buffer, _))) => self.modify_buffer(buffer, |bytes| {
                let mut xattrs = parse_block(bytes).ok()?;
                renumber(&mut xattrs);
                let count = xattr::refcount(bytes).ok()?;
                write_block(bytes, &xattrs, count).ok()
            }),
            (Place::Body, _) => self.modify_inode(&ready.inode, InodeDirty::Mapping, |raw| {
                let region = raw.xattr_region_mut()?;
                let mut xattrs = parse_ibody(region).ok()?;
                renumber(&mut xattrs);
                write_ibody(region, &xattrs).ok()
            }),
            (Place::Inline { offset, .. }, _) => {
                self.modify_inode(&ready.inode, InodeDirty::Mapping, |raw| {
                    let number = new.0.to_le_bytes();
                    let field = |bytes: &mut [u8], at: usize| {
                        bytes.get_mut(at..at + number.len()).map(|field| field.copy_from_slice(&number))
                    };
                    let Some(at) = offset.checked_sub(I_BLOCK_SIZE) else {
                        return field(raw.i_block_mut(), offset);
                    };
                    let region = raw.xattr_region_mut()?;
                    let mut xattrs = parse_ibody(region).ok()?;
                    let value = xattrs
                        .iter_mut()
                        .find(|xattr| xattr.is_inline_content())
                        .map(|xattr| &mut xattr.value);
                    let Some(XattrValue::Inline(value)) = value else { return None };
                    field(value, at)?;
                    write_ibody(region, &xattrs).ok()
                })
            }
            (Place::Block { .. } | Place::XattrBlock, None) => None,
        };
        done.ok_or(missing)
    }
}
