//! Exchanging the whole contents of two files, in one transaction.
//!
//! A file is replaced without a new inode: the new content is written into another file, usually one without a name,
//! and then both exchange extent trees, sizes and block counts. After a crash each file has either its own content or
//! the other's. Owner, mode, names and extended attributes stay with the inode.
//!
//! The checksum of a tree node covers the number and the generation of the inode, so every node of both trees becomes
//! part of the transaction. Its credits limit how many extents the files may have.
//!
//! Locks: `INODE` of both files, exclusively, by number.
//!
//! Source: `EXT4_IOC_SWAP_BOOT` (`swap_inode_boot_loader`); the interface is that of `XFS_IOC_EXCHANGE_RANGE`.
//!
//! Tests: `tests/exchange.rs` (trees of several depths, crashes).

use extant_ondisk::{Inode, InodeFlags, Structure};
use extant_rt::Arc;

use crate::buffer::{Buffer, Kind};
use crate::error::{Error, Place, Result};
use crate::map::MapKind;
use crate::namei::lock_all;
use crate::node::Node;
use crate::update::{Change, Need, Update};
use crate::volume::Volume;

/// A content as the inode describes it, and what it occupies.
struct Content {
    root: [u8; extant_ondisk::inode::I_BLOCK_SIZE],
    size: u64,
    /// 512-byte units of data and tree nodes, without extended attributes.
    sectors: u64,
    nodes: Vec<Arc<Buffer>>,
}

impl Volume {
    /// Exchanges the contents of two regular files in one transaction, and sets the times of both.
    ///
    /// # Errors
    /// `InvalidArgument` if both are one file; `IsADirectory`; `NotPermitted` for an immutable, append-only or verity
    /// file; `Unsupported` for a file that is encrypted or has no extents, and for more extents than a transaction can
    /// hold; `NoSpace`; `ReadOnly`; `Io`; `Corrupt`. Nothing is exchanged then.
    pub(crate) fn exchange_content(&self, left: &Arc<Node>, right: &Arc<Node>) -> Result<()> {
        if left.number == right.number {
            return Err(Error::InvalidArgument("a file cannot be exchanged with itself"));
        }
        for node in [left, right] {
            self.check_regular(node)?;
        }
        self.writable()?;
        let _contents = lock_all(&[left, right]);
        for node in [left, right] {
            self.prepare_exchange(node)?;
        }
        let (of_left, of_right) = (self.whole_content(left)?, self.whole_content(right)?);
        let block_size = self.geometry.block_size;
        let huge = self.geometry.has_huge_file;
        // A block count that does not fit is found before anything is changed.
        let sectors = |node: &Node, own: &Content, new: &Content| {
            let mut inode = (*node.inode()).clone();
            let place = Place::of(Structure::Inode).inode(node.number);
            let other = inode.blocks_512(block_size).checked_sub(own.sectors);
            let other = other.ok_or(place.corrupt("counts fewer blocks than it has"))?;
            let sectors = other.saturating_add(new.sectors);
            inode.set_blocks_512(sectors, block_size, huge).map_err(|_| Error::FileTooLarge)?;
            Ok::<u64, Error>(sectors)
        };
        let counts = (sectors(left, &of_left, &of_right)?, sectors(right, &of_right, &of_left)?);
        let credits = u32::try_from(2 + of_left.nodes.len() + of_right.nodes.len()).unwrap_or(u32::MAX);
        if credits > self.writable()?.max_credits() {
            return Err(Error::Unsupported("exchanging files of more extents than a transaction holds"));
        }
        let mut update = self.begin(Need::new(credits, 0))?;
        update.begin_change();
        update.take_over(left, &of_right, counts.0);
        update.take_over(right, &of_left, counts.1);
        update.finish();
        Ok(())
    }

    /// Brings a file into the form in which only its inode and its tree describe its content.
    fn prepare_exchange(&self, node: &Arc<Node>) -> Result<()> {
        let flags = node.inode().flags();
        if flags.intersects(InodeFlags::FIXED_CONTENT | InodeFlags::APPEND) {
            return Err(Error::NotPermitted);
        }
        if flags.contains(InodeFlags::ENCRYPT) {
            return Err(Error::Unsupported("exchanging the content of an encrypted file"));
        }
        self.flush_out(node)?;
        self.move_to_blocks(node)?;
        if self.map_kind(&node.inode()) != MapKind::Extents {
            return Err(Error::Unsupported("exchanging the content of a file without extents"));
        }
        self.discard_preallocations(node);
        Ok(())
    }

    fn whole_content(&self, node: &Node) -> Result<Content> {
        let inode = node.inode();
        let (nodes, extents) = self.whole_tree(node.owner(), inode.i_block())?;
        let data: u64 = extents.iter().map(|extent| u64::from(extent.len)).sum();
        let sectors = (data + nodes.len() as u64) * u64::from(self.geometry.block_size / 512);
        Ok(Content { root: *inode.i_block(), size: inode.size(), sectors, nodes })
    }
}

impl Update<'_> {
    /// Gives a file the content that another one had. Takes a credit for each node and one for the inode.
    fn take_over(&mut self, node: &Arc<Node>, content: &Content, sectors: u64) {
        for buffer in &content.nodes {
            self.set_kind(buffer, Kind::Extent(node.owner()));
        }
        node.core().ahead.end = 0;
        let now = self.now();
        let (block_size, huge) = (self.volume.geometry.block_size, self.volume.geometry.has_huge_file);
        self.modify_inode(node, Change::Mapping, |inode: &mut Inode| {
            *inode.i_block_mut() = content.root;
            inode.set_size(content.size);
            // Tried before on a copy of the same inode.
            let _ = inode.set_blocks_512(sectors, block_size, huge);
            inode.set_mtime(now);
            inode.set_ctime(now);
        });
    }
}
