//! The bytes of a new file system's inodes and small files.

use std::collections::BTreeMap;

use extant_ondisk::{
    Checksums, CompatFeatures, FileType, FsBlock, GroupNumber, IncompatFeatures, InodeFlags, InodeNumber,
    Mmp, RawInode, RoCompatFeatures, Timestamp, dirent, indirect, jbd2, orphan_file,
};

use super::files::FileMap;
use super::layout::{LOST_FOUND, Layout, last_inode, orphan_inode};
use super::sizes::default_fast_commit_blocks;
use super::{Mkfs, Result};

/// Blocks to write, by place.
pub(super) type Blocks = BTreeMap<FsBlock, Box<[u8]>>;

const BAD_BLOCKS: InodeNumber = InodeNumber(1);
/// Inodes that a new disk has checksums in, used or not.
const RESERVED: u32 = 10;

/// Writes inodes and small files into blocks.
pub(super) struct Contents<'a> {
    layout: &'a Layout,
    options: &'a Mkfs,
    checksums: Checksums,
    blocks: Blocks,
}

impl<'a> Contents<'a> {
    /// The blocks of inodes, directories, maps, journal superblock, MMP and orphan file.
    pub fn blocks(layout: &'a Layout, options: &'a Mkfs, checksums: Checksums) -> Result<Blocks> {
        let mut contents = Self { layout, options, checksums, blocks: Blocks::new() };
        for ino in (1..=last_inode(&layout.files).0).map(InodeNumber) {
            let inode = contents.inode(ino)?;
            contents.put_inode(ino, inode);
        }
        contents.directories()?;
        contents.resize_map();
        contents.journal();
        contents.mmp();
        contents.quotas();
        contents.orphans();
        contents.maps();
        Ok(contents.blocks)
    }

    fn block(&mut self, block: FsBlock) -> &mut [u8] {
        let block_size = self.layout.geometry.block_size as usize;
        self.blocks.entry(block).or_insert_with(|| vec![0; block_size].into_boxed_slice())
    }

    fn put_inode(&mut self, ino: InodeNumber, mut inode: RawInode) {
        let geometry = &self.layout.geometry;
        let Some((group, index)) = geometry.inode_location(ino) else { return };
        let Some(descriptor) = self.layout.descriptors.get(group.0 as usize) else { return };
        let (block, offset) = geometry.inode_block(descriptor.inode_table(), index);
        if ino.0 <= RESERVED || inode.mode() != 0 {
            self.checksums.update_inode(ino, &mut inode);
        }
        let bytes = inode.as_bytes();
        if let Some(place) = self.block(block).get_mut(offset as usize..offset as usize + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    fn inode(&self, ino: InodeNumber) -> Result<RawInode> {
        let files = &self.layout.files;
        let root_owner = self.options.extended.root_owner;
        match ino {
            BAD_BLOCKS => {
                let mut inode = RawInode::new(self.layout.geometry.inode_size, 0)?;
                self.set_times(&mut inode);
                Ok(inode)
            }
            InodeNumber::ROOT => {
                self.file(&files.root, FileType::Directory.mode_bits() | 0o755, 3, root_owner)
            }
            InodeNumber::RESIZE if files.resize.is_some() => self.resize_inode(),
            InodeNumber::JOURNAL if files.journal.is_some() => self.regular(files.journal.as_ref()),
            LOST_FOUND => self.file(&files.lost_found, FileType::Directory.mode_bits() | 0o700, 2, (0, 0)),
            _ if Some(ino) == orphan_inode(files) => self.regular(files.orphans.as_ref()),
            _ => match files.quotas.iter().find(|file| file.inode == ino) {
                Some(file) => {
                    let mut inode = self.regular(Some(&file.map))?;
                    inode.set_flags(inode.flags() | InodeFlags::IMMUTABLE);
                    Ok(inode)
                }
                None => Ok(RawInode::new(self.layout.geometry.inode_size, 0)?),
            },
        }
    }

    fn regular(&self, map: Option<&FileMap>) -> Result<RawInode> {
        match map {
            Some(map) => self.file(map, FileType::Regular.mode_bits() | 0o600, 1, (0, 0)),
            None => Ok(RawInode::new(self.layout.geometry.inode_size, 0)?),
        }
    }

    fn file(&self, map: &FileMap, mode: u16, links: u16, (uid, gid): (u32, u32)) -> Result<RawInode> {
        let block_size = self.layout.geometry.block_size;
        let mut inode = self.new_inode(mode, links)?;
        inode.set_uid(uid);
        inode.set_gid(gid);
        inode.set_size(map.len() * u64::from(block_size));
        inode.set_flags(if map.extents { InodeFlags::EXTENTS } else { InodeFlags::empty() });
        *inode.i_block_mut() = map.i_block;
        let huge_file = self.layout.features.ro_compat.contains(RoCompatFeatures::HUGE_FILE);
        let blocks = map.blocks(&self.layout.geometry);
        inode.set_blocks_bytes(blocks * u64::from(block_size), block_size, huge_file)?;
        Ok(inode)
    }

    fn new_inode(&self, mode: u16, links: u16) -> Result<RawInode> {
        let superblock = &self.layout.superblock;
        let mut inode = RawInode::new(superblock.inode_size(), superblock.s_want_extra_isize())?;
        inode.set_mode(mode);
        inode.set_links_count(links);
        self.set_times(&mut inode);
        inode.set_crtime(self.now());
        Ok(inode)
    }

    fn now(&self) -> Timestamp {
        Timestamp { seconds: self.layout.identity.seconds, nanoseconds: self.layout.identity.nanoseconds }
    }

    fn set_times(&self, inode: &mut RawInode) {
        inode.set_atime(self.now());
        inode.set_ctime(self.now());
        inode.set_mtime(self.now());
    }

    /// The inode that owns the reserved descriptor blocks: as large as what its two-level map can name.
    fn resize_inode(&self) -> Result<RawInode> {
        let geometry = &self.layout.geometry;
        let block_size = u64::from(geometry.block_size);
        let pointers = block_size / 4;
        let mut inode = self.new_inode(FileType::Regular.mode_bits() | 0o600, 1)?;
        inode.set_size((pointers * pointers + pointers + u64::from(indirect::DIRECT)) * block_size);
        let block = self.layout.files.resize.unwrap_or_default();
        indirect::set_pointer(inode.i_block_mut(), indirect::DOUBLE, block.0 as u32);
        let copies = self.backup_groups().count() as u64 + 1;
        // Each counts as a cluster.
        let blocks = geometry.blocks_of_clusters(1 + u64::from(geometry.reserved_gdt_blocks) * copies);
        inode.set_blocks_bytes(blocks * block_size, geometry.block_size, true)?;
        Ok(inode)
    }

    fn backup_groups(&self) -> impl Iterator<Item = GroupNumber> + '_ {
        let geometry = &self.layout.geometry;
        (1..geometry.group_count).map(GroupNumber).filter(|group| geometry.has_super(*group))
    }

    /// The resize inode's map: each reserved block of group 0 names its copies in the other groups.
    fn resize_map(&mut self) {
        let Some(top) = self.layout.files.resize else { return };
        let geometry = self.layout.geometry.clone();
        let descriptor_blocks = geometry.descriptor_block_count();
        let pointers = geometry.block_size / 4;
        let backups: Vec<GroupNumber> = self.backup_groups().collect();
        let reserved = geometry.descriptor_block(0).0 + u64::from(descriptor_blocks);
        self.block(top);
        for index in 0..geometry.reserved_gdt_blocks {
            let table = reserved + u64::from(index);
            indirect::set_pointer(self.block(top), (descriptor_blocks + index) % pointers, table as u32);
            let table_bytes = self.block(FsBlock(table));
            for (slot, group) in backups.iter().enumerate() {
                let copy = table + u64::from(group.0) * u64::from(geometry.blocks_per_group);
                indirect::set_pointer(table_bytes, slot as u32, copy as u32);
            }
        }
    }

    fn directories(&mut self) -> Result<()> {
        let layout = self.layout;
        let usable =
            dirent::usable_bytes(layout.geometry.block_size as usize, layout.features.has_metadata_csum());
        let has_types = layout.features.incompat.contains(IncompatFeatures::FILETYPE);
        let kind = if has_types { FileType::Directory } else { FileType::Unknown }.dirent_byte();
        for block in layout.files.root.iter() {
            let bytes = self.block(block);
            dirent::init_dot_dotdot(bytes, usable, InodeNumber::ROOT, InodeNumber::ROOT, kind);
            dirent::insert(bytes, usable, LOST_FOUND, b"lost+found", kind)?;
            let checksums = self.checksums;
            checksums.update_dir_block(InodeNumber::ROOT, 0, self.block(block));
        }
        for (index, block) in layout.files.lost_found.iter().enumerate() {
            let checksums = self.checksums;
            let bytes = self.block(block);
            match index {
                0 => dirent::init_dot_dotdot(bytes, usable, LOST_FOUND, InodeNumber::ROOT, kind),
                _ => dirent::init_empty(bytes, usable),
            }
            checksums.update_dir_block(LOST_FOUND, 0, bytes);
        }
        Ok(())
    }

    fn journal(&mut self) {
        let layout = self.layout;
        let Some((first, journal)) =
            layout.files.journal.as_ref().and_then(|map| Some((map.iter().next()?, map)))
        else {
            return;
        };
        let area = match layout.superblock.compat().contains(CompatFeatures::FAST_COMMIT) {
            true => default_fast_commit_blocks(layout.geometry.blocks_count),
            false => 0,
        };
        let superblock =
            empty_log(layout.geometry.block_size, journal.len() as u32, layout.identity.uuid, area);
        superblock.write(self.block(first));
    }

    fn mmp(&mut self) {
        let Some(block) = self.layout.files.mmp else { return };
        let mut mmp = Mmp::new_clean();
        mmp.set_mmp_time(u64::try_from(self.layout.identity.seconds).unwrap_or(0));
        mmp.set_mmp_check_interval(self.layout.superblock.s_mmp_update_interval());
        mmp.update_checksum(&self.checksums);
        let bytes = mmp.as_bytes();
        self.block(block)[..bytes.len()].copy_from_slice(bytes);
    }

    fn quotas(&mut self) {
        let block_size = self.layout.geometry.block_size as usize;
        for file in &self.layout.files.quotas {
            for (block, bytes) in file.map.iter().zip(file.bytes.chunks(block_size)) {
                self.block(block)[..bytes.len()].copy_from_slice(bytes);
            }
        }
    }

    fn orphans(&mut self) {
        let (layout, checksums) = (self.layout, self.checksums);
        let Some(inode) = orphan_inode(&layout.files) else { return };
        for block in layout.files.orphans.iter().flat_map(FileMap::iter) {
            let bytes = self.block(block);
            orphan_file::initialise(bytes);
            orphan_file::update(&checksums, inode, 0, block, bytes);
        }
    }

    fn maps(&mut self) {
        let files = &self.layout.files;
        let journal = files.journal.iter().map(|map| (InodeNumber::JOURNAL, map));
        let quotas = files.quotas.iter().map(|file| (file.inode, &file.map));
        for (ino, map) in journal.chain(quotas).chain(orphan_inode(files).zip(files.orphans.as_ref())) {
            for (block, bytes) in &map.tree {
                let mut bytes = bytes.clone();
                if map.extents {
                    self.checksums.update_extent_block(ino, 0, &mut bytes);
                }
                self.blocks.insert(*block, bytes);
            }
        }
    }
}

/// The superblock of an empty log of `len` blocks, of which the last ones are for fast commits.
pub(crate) fn empty_log(
    block_size: u32,
    len: u32,
    uuid: [u8; 16],
    fast_commit_blocks: u32,
) -> jbd2::Superblock {
    jbd2::Superblock {
        s_blocksize: block_size,
        s_maxlen: len,
        s_first: 1,
        s_sequence: extant_ondisk::TransactionId(1),
        s_start: 0,
        s_errno: 0,
        s_feature_compat: jbd2::Compat::empty(),
        s_feature_incompat: jbd2::Incompat::empty(),
        s_feature_ro_compat: 0,
        s_uuid: uuid,
        s_nr_users: 1,
        s_checksum_type: 0,
        s_num_fc_blks: fast_commit_blocks,
        s_head: 0,
    }
}
