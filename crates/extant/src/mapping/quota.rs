//! Quota files: read at mounting, and longer by the entry of an id that is new.
//!
//! Leaves out: what is charged to whom ([`crate::metadata::quota`]).
//!
//! Invariant: the structure of a file changes under `QUOTA` only. What entries say changes at each freeze, so that bytes of data blocks
//! are read inside the update that changes them.
//!
//! Locks: `QUOTA`, then an update. No lock of an inode: no other thread reads or changes the map of a quota file.
//!
//! Source: `v2_read_file_info`, `ext4_quota_write`. Tests: `../tests/quota`.

use extant_ondisk::quota::{self, QUOTA_BLOCK_SIZE};
use extant_ondisk::{FileType, InodeNumber, LogicalBlock, QuotaType, Structure};

use crate::error::{Error, Location, Result};
use crate::incore::buffer::BufferKind;
use crate::mapping::{BlockMap, Mapping};
use crate::metadata::quota::{QuotaFile, Quotas, quota_inodes};
use crate::metadata::update::{Credits, InodeDirty, RUN_CREDITS};

/// The length of a quota file that is kept in memory, with entries for some 700,000 ids or more.
const QUOTA_FILE_BYTES_MAX: u64 = 64 << 20;

impl BlockMap {
    /// Reads the quota files of a disk that counts usage, with the limits of the `enforced` types in force; None of any other.
    ///
    /// # Errors
    /// `Corrupt`; `Io`; `Unsupported` of a file that is too long to be kept in memory.
    pub(crate) fn read_quotas(&self, enforced: [bool; 3]) -> Result<Option<Quotas>> {
        let inodes = quota_inodes(&self.superblock.lock());
        if inodes.is_empty() {
            return Ok(None);
        }
        let files = inodes.into_iter().map(|(quota_type, inode)| self.read_quota_file(quota_type, inode));
        Ok(Some(Quotas::new(files.collect::<Result<_>>()?, enforced)))
    }

    fn read_quota_file(&self, quota_type: QuotaType, number: InodeNumber) -> Result<QuotaFile> {
        let location = Location::of(Structure::QuotaFile).inode(number);
        let inode = self.special_inode(number)?;
        let raw = inode.raw();
        if raw.file_type() != FileType::Regular || raw.links_count() == 0 {
            return Err(location.corrupt("the inode is no file"));
        }
        if raw.size() > QUOTA_FILE_BYTES_MAX {
            return Err(Error::Unsupported("a quota file of more than 64 MiB"));
        }
        let count = self.blocks_of(raw.size()) as u32;
        let mut blocks = Vec::new();
        while blocks.len() < count as usize {
            let at = blocks.len() as u32;
            let mapping = self.map(&inode, &raw, LogicalBlock(at), count - at)?;
            for index in 0..u64::from(mapping.len()) {
                blocks.push(match mapping {
                    Mapping::Data { start, unwritten: false, .. } => {
                        let block = start.checked_add(index).ok_or(location.corrupt("outside the disk"))?;
                        Some(self.buffer(block, BufferKind::Quota, location)?)
                    }
                    _ => None,
                });
            }
        }
        let file = QuotaFile::new(quota_type, number, blocks, self.quota_blocks_per_block());
        let places = quota::entries(|block| file.read(block), quota_type).map_err(|e| location.format(e))?;
        file.set_places(places);
        Ok(file)
    }

    /// Gives entries to a user, a group and a project to which an inode is going to be charged. To be called before the update
    /// that does it.
    ///
    /// # Errors
    /// `NoSpace`; the journal's; `Corrupt`; `Io`.
    ///
    /// # Locks
    /// Takes `QUOTA`, and an update, if one has none.
    pub(crate) fn add_dquots(&self, ids: [u32; 3]) -> Result<()> {
        let Some(quotas) = &self.quotas else { return Ok(()) };
        quotas.without_entry(ids).into_iter().try_for_each(|(file, id)| self.add_entry(quotas, file, id))
    }

    /// Gives an id an entry, if it has none.
    ///
    /// # Errors
    /// As [`BlockMap::add_dquots`].
    ///
    /// # Locks
    /// As there.
    pub(crate) fn add_entry(&self, quotas: &Quotas, file: &QuotaFile, id: u32) -> Result<()> {
        let _structure = quotas.structure.lock();
        if file.has(id) { Ok(()) } else { self.add_dquot(file, id) }
    }

    /// Counts what was done to inodes of ids that had no entry then.
    ///
    /// # Errors
    /// As [`BlockMap::add_dquots`].
    pub(crate) fn add_unplaced_usage(&self) -> Result<()> {
        let Some(quotas) = &self.quotas else { return Ok(()) };
        while let Some((file, id, usage)) = quotas.take_unplaced() {
            self.add_entry(quotas, file, id)?;
            let update = self.begin(Credits::new(0, 0))?;
            update.begin_change();
            update.charge(quotas.add((file.quota_type, id), usage));
            update.finish();
        }
        Ok(())
    }

    fn quota_blocks_per_block(&self) -> u32 {
        self.geometry.block_size / QUOTA_BLOCK_SIZE as u32
    }

    fn add_dquot(&self, file: &QuotaFile, id: u32) -> Result<()> {
        let location = Location::of(Structure::QuotaFile).inode(file.inode);
        let insertion =
            || quota::insert(|block| file.read(block), file.quota_type, id).map_err(|e| location.format(e));
        let planned = insertion()?;
        let per_block = self.quota_blocks_per_block();
        let end = planned.blocks.last_key_value().map_or(0, |(last, _)| last / per_block + 1);
        while file.block_count() < end {
            self.lengthen_quota_file(file)?;
        }
        // Nothing may stop the update half way.
        if planned.blocks.keys().any(|block| file.buffer(*block).is_none()) {
            return Err(location.corrupt("a hole"));
        }
        let inode = self.special_inode(file.inode)?;
        let mut update = self.begin(Credits::new(planned.blocks.len() as u32 + 1, 0))?;
        // Entries may have changed at a freeze since it was planned.
        let insertion = insertion()?;
        // A new block may be in one of the file system's blocks that the file ends in.
        let size =
            insertion.blocks.keys().map(|block| (u64::from(*block) + 1) * QUOTA_BLOCK_SIZE as u64).max();
        if let Some(size) = size.filter(|size| *size > inode.state().raw.size()) {
            update.modify_inode(&inode, InodeDirty::Mapping, |raw| raw.set_size(size));
        }
        for (block, bytes) in insertion.blocks {
            let (buffer, at) = file.buffer(block).ok_or(location.corrupt("a hole"))?;
            update.modify_buffer(&buffer, |target| {
                target[at..at + QUOTA_BLOCK_SIZE].copy_from_slice(&bytes);
            });
        }
        file.set_place(id, insertion.place);
        update.finish();
        Ok(())
    }

    /// Adds a block of zeroes to a quota file.
    fn lengthen_quota_file(&self, file: &QuotaFile) -> Result<()> {
        let inode = self.special_inode(file.inode)?;
        let logical = LogicalBlock(file.block_count());
        let hole = self.hole(&inode, &inode.raw(), logical)?;
        let growth = hole.growth();
        let need = Credits::new(hole.credits() + (1 + growth) * RUN_CREDITS + 2, 1 + growth);
        let mut update = self.begin(need)?;
        let (buffer, change) = update.add_block(self, &inode, logical, BufferKind::Quota, &mut None)?;
        let size = (u64::from(logical.0) + 1) * u64::from(self.geometry.block_size);
        update.change_content(&inode, change, |raw| raw.set_size(size))?;
        file.push_block(buffer);
        update.finish();
        Ok(())
    }
}
