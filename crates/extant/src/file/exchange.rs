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

use extant_ondisk::{InodeFlags, RawInode, Structure};
use extant_rt::Arc;

use crate::error::{Error, Location, Result};
use crate::file::Files;
use crate::incore::buffer::{Buffer, BufferKind};
use crate::incore::inode::{Inode, lock_all};
use crate::mapping::MapKind;
use crate::metadata::update::{Credits, InodeDirty, MetadataUpdate};

/// A content as the inode describes it, and what it occupies.
struct FileMapping {
    root: [u8; extant_ondisk::inode::I_BLOCK_SIZE],
    size: u64,
    /// 512-byte units of data and tree nodes, without extended attributes.
    sectors: u64,
    nodes: Vec<Arc<Buffer>>,
}

impl Files {
    /// Exchanges the contents of two regular files in one transaction, and sets the times of both.
    ///
    /// # Errors
    /// `InvalidArgument` if both are one file; `IsADirectory`; `NotPermitted` for an immutable, append-only or verity
    /// file; `Unsupported` for a file that is encrypted or has no extents, and for more extents than a transaction can
    /// hold; `NoSpace`; `ReadOnly`; `Io`; `Corrupt`. Nothing is exchanged then.
    pub(crate) fn exchange_content(&self, left: &Arc<Inode>, right: &Arc<Inode>) -> Result<()> {
        if left.number == right.number {
            return Err(Error::InvalidArgument("a file cannot be exchanged with itself"));
        }
        for inode in [left, right] {
            self.check_regular(&inode.raw())?;
        }
        self.writable()?;
        let _contents = lock_all(&[left, right]);
        for inode in [left, right] {
            self.prepare_exchange(inode)?;
        }
        let (of_left, of_right) = (self.whole_content(left)?, self.whole_content(right)?);
        let block_size = self.geometry.block_size;
        let huge = self.geometry.has_huge_file;
        // A block count that does not fit is found before anything is changed.
        let sectors = |inode: &Inode, own: &FileMapping, new: &FileMapping| {
            let mut raw = (*inode.raw()).clone();
            let location = Location::of(Structure::Inode).inode(inode.number);
            let other = raw.blocks_512(block_size).checked_sub(own.sectors);
            let other = other.ok_or(location.corrupt("counts fewer blocks than it has"))?;
            let sectors = other.saturating_add(new.sectors);
            raw.set_blocks_512(sectors, block_size, huge).map_err(|_| Error::FileTooLarge)?;
            Ok::<u64, Error>(sectors)
        };
        let counts = (sectors(left, &of_left, &of_right)?, sectors(right, &of_right, &of_left)?);
        let credits = u32::try_from(2 + of_left.nodes.len() + of_right.nodes.len()).unwrap_or(u32::MAX);
        if credits > self.writable()?.max_credits() {
            return Err(Error::Unsupported("exchanging files of more extents than a transaction holds"));
        }
        let mut update = self.begin(Credits::new(credits, 0))?;
        update.begin_change();
        // Blocks that either had and that may not be used yet go with the maps.
        let unmapped = [left, right].map(|inode| inode.state().unmapped_tid);
        if unmapped.iter().any(Option::is_some) {
            for inode in [left, right] {
                inode.state_mut().unmapped_tid = Some(update.tid());
            }
        }
        update.take_over(left, &of_right, counts.0);
        update.take_over(right, &of_left, counts.1);
        update.finish();
        Ok(())
    }

    /// Brings a file into the form in which only its inode and its tree describe its content.
    fn prepare_exchange(&self, inode: &Arc<Inode>) -> Result<()> {
        let flags = inode.raw().flags();
        if flags.intersects(InodeFlags::FIXED_CONTENT | InodeFlags::APPEND) {
            return Err(Error::NotPermitted);
        }
        if flags.contains(InodeFlags::ENCRYPT) {
            return Err(Error::Unsupported("exchanging the content of an encrypted file"));
        }
        self.flush_out(inode)?;
        self.move_to_blocks(inode)?;
        if self.map_kind(&inode.raw()) != MapKind::Extents {
            return Err(Error::Unsupported("exchanging the content of a file without extents"));
        }
        self.discard_preallocations(inode);
        Ok(())
    }

    fn whole_content(&self, inode: &Inode) -> Result<FileMapping> {
        let raw = inode.raw();
        let (nodes, extents) = self.whole_tree(inode.owner(), raw.i_block())?;
        let clusters = self.cluster_count(&extents) + nodes.len() as u64;
        let sectors = clusters.saturating_mul(self.geometry.cluster_bytes() / 512);
        Ok(FileMapping { root: *raw.i_block(), size: raw.size(), sectors, nodes })
    }
}

impl MetadataUpdate<'_> {
    /// Gives a file the content that another one had. Takes a credit for each node and one for the inode.
    fn take_over(&mut self, inode: &Arc<Inode>, content: &FileMapping, sectors: u64) {
        for buffer in &content.nodes {
            self.set_kind(buffer, BufferKind::Extent(inode.owner()));
        }
        // The size of the disk's inode is published below.
        inode.state_mut().delalloc.end = 0;
        let now = self.now();
        let (block_size, huge) = (self.sbi.geometry.block_size, self.sbi.geometry.has_huge_file);
        self.modify_inode(inode, InodeDirty::Mapping, |raw: &mut RawInode| {
            *raw.i_block_mut() = content.root;
            raw.set_size(content.size);
            // Tried before on a copy of the same inode.
            let _ = raw.set_blocks_512(sectors, block_size, huge);
            raw.set_mtime(now);
            raw.set_ctime(now);
        });
    }
}
