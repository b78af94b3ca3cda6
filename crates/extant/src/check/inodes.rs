//! Each inode alone: checksum, mode, flags, size and block count against what its map holds.

use extant_ondisk::inode::{ENCRYPTED_TARGET_HEAD, LARGE_FILE_BYTES};
use extant_ondisk::{
    CompatFeatures, FileType, FsBlock, GroupNumber, IncompatFeatures, InodeFlags, InodeNumber, RawInode,
    RoCompatFeatures, Structure, extent, inode,
};

use super::directories::Directory;
use super::maps::Mapped;
use super::records::Record;
use super::{Checker, Pass, Progress};
use crate::error::{Location, Result};

/// The offset of the two bytes of `i_extra_isize`.
const EXTRA_ISIZE: std::ops::Range<usize> = 0x80..0x82;
/// The offset of the two bytes of `i_links_count`.
const LINKS_COUNT: std::ops::Range<usize> = 0x1A..0x1C;

impl Checker<'_> {
    pub(super) fn check_inodes(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<()> {
        for group in self.groups() {
            self.check_table(group)?;
            self.tell(progress, Pass::Inodes, group);
        }
        Ok(())
    }

    fn check_table(&mut self, group: GroupNumber) -> Result<()> {
        let Some(table) = self.checked_table(group) else { return Ok(()) };
        let location = Location::of(Structure::Inode).group(group);
        let count = self.initialised_inodes(group);
        let mut index = 0;
        while index < count && !self.findings.is_full() {
            let (block, _) = self.geometry.inode_block(table, index);
            if self.read_window(block, self.table_blocks_from(group, index)) {
                self.read_ahead(self.blocks_of_inodes(self.table_blocks_from(group, index)).into_iter());
            }
            let bytes = self.read(block, location)?;
            for raw in bytes.chunks_exact(usize::from(self.geometry.inode_size)) {
                if index >= count {
                    break;
                }
                if let Some(number) = self.geometry.inode_number(group, index) {
                    self.check_inode(number, block, raw)?;
                }
                index += 1;
            }
        }
        Ok(())
    }

    /// The table of a group, if it lies on the disk.
    pub(super) fn checked_table(&self, group: GroupNumber) -> Option<FsBlock> {
        let table = self.descriptor(group)?.inode_table();
        let blocks = u64::from(self.geometry.inode_table_blocks_per_group);
        self.geometry.is_valid_block_run(table, blocks).then_some(table)
    }

    fn check_inode(&mut self, number: InodeNumber, block: FsBlock, raw: &[u8]) -> Result<()> {
        let location = Location::of(Structure::Inode).inode(number);
        let is_orphan = self.orphans.contains(&number);
        let in_use = raw.get(LINKS_COUNT) != Some(&[0, 0]) || is_orphan;
        let inode = match RawInode::parse(raw) {
            Ok(inode) => inode,
            Err(error) => {
                if in_use {
                    self.findings.add_format(location.block(block), error);
                }
                let mut sound = raw.to_vec();
                sound.get_mut(EXTRA_ISIZE).unwrap_or_default().fill(0);
                match RawInode::parse(&sound) {
                    Ok(inode) => inode,
                    Err(_) => return Ok(()),
                }
            }
        };
        if !self.checksums.verify_inode(number, &inode) && raw.iter().any(|byte| *byte != 0) {
            self.findings.add(location.block(block), "bad checksum");
        }
        if inode.dtime() != 0 && !is_orphan && self.is_inode_number_as_time(inode.dtime()) {
            self.findings.add(location, "left over from a list of orphans");
        }
        if self.is_reserved(number) {
            return self.check_reserved(number, &inode);
        }
        if in_use {
            self.check_used(number, &inode, is_orphan)
        } else {
            self.check_free(location, &inode);
            Ok(())
        }
    }

    fn check_free(&mut self, location: Location, inode: &RawInode) {
        if inode.dtime() == 0 && inode.mode() != 0 {
            self.findings.add(location, "no links, but no time of deletion");
        }
    }

    /// Whether a time of deletion must be an inode number, because the disk is younger than that time.
    fn is_inode_number_as_time(&self, time: u32) -> bool {
        let count = self.geometry.inodes_count;
        let superblock = &self.superblock;
        let times = [superblock.s_wtime(), superblock.s_mtime(), superblock.s_mkfs_time()];
        time < count && times.into_iter().all(|time| time == 0 || time >= count)
    }

    fn check_used(&mut self, number: InodeNumber, inode: &RawInode, is_orphan: bool) -> Result<()> {
        let location = Location::of(Structure::Inode).inode(number);
        let kind = inode.file_type();
        self.records.set(number, Record { kind: Some(kind), links: inode.links_count(), names: 0 });
        if inode.links_count() > 0 && inode.dtime() != 0 && !is_orphan {
            self.findings.add(location, "in use, but with a time of deletion");
        }
        if kind == FileType::Unknown {
            self.findings.add(location, format!("the mode {:#o} is no type of file", inode.mode()));
        }
        if number == InodeNumber::ROOT && kind != FileType::Directory {
            self.findings.add(location, "the root is no directory");
        }
        self.count_usage(number, inode);
        self.check_flags_and_high_fields(location, inode, kind);
        let mut runs = Vec::new();
        let mapped = self.map(number, inode, kind == FileType::Directory, &mut runs)?;
        let xattr_blocks = self.check_xattrs(number, inode)?;
        self.check_block_count(location, inode, mapped.blocks + xattr_blocks);
        if self.superblock.ro_compat().contains(RoCompatFeatures::BIGALLOC)
            && mapped.blocks > 0
            && !inode.flags().contains(InodeFlags::EXTENTS)
            && kind != FileType::Symlink
        {
            self.findings.add(location, "mapped by block numbers on a disk of clusters");
        }
        match kind {
            FileType::Directory if self.is_inline(inode) => {
                let content = self.check_inline_content(location, inode);
                self.names_incomplete |= content.is_none();
                self.directories.insert(number, Directory::new(inode, runs, content));
            }
            FileType::Directory => {
                self.check_directory_inode(location, inode, &mapped);
                if !mapped.sound {
                    self.names_incomplete = true;
                }
                self.directories.insert(number, Directory::new(inode, runs, None));
            }
            FileType::Symlink if self.is_inline(inode) => {
                self.check_no_immutable(location, inode);
                self.check_inline_content(location, inode);
            }
            FileType::Symlink => self.check_symlink(location, inode, &mapped)?,
            FileType::Regular if self.is_inline(inode) => {
                self.check_inline_content(location, inode);
            }
            FileType::Regular => self.check_file_size(location, inode, &mapped, is_orphan),
            FileType::Unknown => {}
            _ => self.check_special_file(location, inode),
        }
        Ok(())
    }

    fn check_flags_and_high_fields(&mut self, location: Location, inode: &RawInode, kind: FileType) {
        let flags = inode.flags();
        let (incompat, ro_compat) = (self.superblock.incompat(), self.superblock.ro_compat());
        let has_extents = incompat.contains(IncompatFeatures::EXTENTS);
        let is_content = matches!(kind, FileType::Regular | FileType::Directory);
        let root = extent::depth(inode.i_block()).is_some();
        let statements = [
            (
                flags.contains(InodeFlags::EXTENTS) && !has_extents,
                "mapped by extents, which the disk has not",
            ),
            (
                has_extents && is_content && !flags.contains(InodeFlags::EXTENTS) && root,
                "mapped by an extent tree without the flag for it",
            ),
            (
                flags.contains(InodeFlags::INLINE_DATA) && !incompat.contains(IncompatFeatures::INLINE_DATA),
                "content in the inode, which the disk has not",
            ),
            (
                flags.contains(InodeFlags::CASEFOLD) && !incompat.contains(IncompatFeatures::CASEFOLD),
                "names without regard to case, which the disk has not",
            ),
            (
                flags.contains(InodeFlags::ENCRYPT) && !incompat.contains(IncompatFeatures::ENCRYPT),
                "encrypted, which the disk has not",
            ),
            (
                flags.contains(InodeFlags::IMAGIC)
                    && !self.superblock.compat().contains(CompatFeatures::IMAGIC_INODES),
                "an AFS inode, which the disk has not",
            ),
            (
                flags.contains(InodeFlags::INDEX)
                    && !(kind == FileType::Directory
                        && !self.is_inline(inode)
                        && self.superblock.compat().contains(CompatFeatures::DIR_INDEX)),
                "a hash tree where there can be none",
            ),
            (
                flags.contains(InodeFlags::EA_INODE) && kind != FileType::Regular,
                "marked as the value of an attribute, but no file",
            ),
            (inode.i_obso_faddr() != 0, "a fragment address, which no ext4 has"),
            (
                inode.i_file_acl_high() != 0 && !incompat.contains(IncompatFeatures::BIT64),
                "a 48-bit xattr block on a disk of 32-bit block numbers",
            ),
            (
                inode.l_i_blocks_high() != 0 && !ro_compat.contains(RoCompatFeatures::HUGE_FILE),
                "a 48-bit block count on a disk without huge_file",
            ),
        ];
        for (_, what) in statements.into_iter().filter(|(wrong, _)| *wrong) {
            self.findings.add(location, what);
        }
    }

    pub(super) fn check_block_count(&mut self, location: Location, inode: &RawInode, blocks: u64) {
        let block_size = self.geometry.block_size;
        let ratio = u64::from(self.geometry.cluster_ratio);
        let found = blocks.saturating_mul(ratio).saturating_mul(u64::from(block_size / 512));
        let stated = inode.blocks_512(block_size);
        if stated != found {
            self.findings.add(location, format!("i_blocks is {stated}, but {found} are in use"));
        }
    }

    pub(super) fn check_file_size(
        &mut self,
        location: Location,
        inode: &RawInode,
        mapped: &Mapped,
        is_orphan: bool,
    ) {
        let size = inode.size();
        let last = mapped.last_written.unwrap_or(0).saturating_mul(u64::from(self.geometry.block_size));
        let by_extents = inode.flags().contains(InodeFlags::EXTENTS);
        if size < last && !inode.flags().contains(InodeFlags::VERITY) && !is_orphan {
            self.findings
                .add(location, format!("the size is {size}, but blocks follow as far as byte {last}"));
        }
        if !by_extents && size > self.geometry.max_file_size(false)
            || size >= (u64::from(u32::MAX) + 1) << self.geometry.block_bits
        {
            self.findings.add(location, format!("the size {size} is more than the map can hold"));
        }
        self.check_large_file(location, inode);
    }

    pub(super) fn check_large_file(&mut self, location: Location, inode: &RawInode) {
        if inode.size() >= LARGE_FILE_BYTES
            && !self.superblock.ro_compat().contains(RoCompatFeatures::LARGE_FILE)
        {
            self.findings.add(location, "a file of 2 GiB or more on a disk without large_file");
        }
    }

    fn check_directory_inode(&mut self, location: Location, inode: &RawInode, mapped: &Mapped) {
        let size = inode.size();
        let block_size = u64::from(self.geometry.block_size);
        let blocks = mapped.last.map_or(0, |last| last + 1);
        if !size.is_multiple_of(block_size) {
            self.findings.add(location, format!("the directory's size {size} is not one of whole blocks"));
            return;
        }
        let stated = size / block_size;
        let in_advance = u64::from(self.superblock.s_prealloc_dir_blocks());
        if mapped.last.is_none() {
            self.findings.add(location, "a directory without blocks");
        } else if mapped.sound && (stated > blocks || blocks - stated > in_advance) {
            self.findings
                .add(location, format!("the directory's size is {stated} blocks, but it has {blocks}"));
        }
        if inode.i_size_high() != 0 && !self.superblock.incompat().contains(IncompatFeatures::LARGEDIR) {
            self.findings.add(location, "a directory of 4 GiB or more on a disk without large_dir");
        }
    }

    fn check_symlink(&mut self, location: Location, inode: &RawInode, mapped: &Mapped) -> Result<()> {
        let location = Location { structure: Structure::Symlink, ..location };
        let size = u64::from(inode.i_size_high()) << 32 | inode.size();
        self.check_no_immutable(location, inode);
        if size == 0 || size >= u64::from(self.geometry.block_size) {
            self.findings.add(location, format!("the target has {size} bytes"));
            return Ok(());
        }
        let is_encrypted = inode.flags().contains(InodeFlags::ENCRYPT);
        let target_len = |bytes: &[u8]| match is_encrypted {
            true => {
                inode::encrypted_target(bytes).map(|target| (target.len() + ENCRYPTED_TARGET_HEAD) as u64)
            }
            false => bytes.iter().position(|byte| *byte == 0).map(|len| len as u64),
        };
        if size < inode::I_BLOCK_SIZE as u64 {
            if inode.flags().contains(InodeFlags::EXTENTS) {
                self.findings.add(location, "a short target, flagged as mapped by extents");
            } else if target_len(inode.i_block()) != Some(size) {
                self.findings.add(location, "the target is not as long as the size says");
            }
            return Ok(());
        }
        let Some(block) = mapped.first_block.filter(|_| mapped.last == Some(0)) else {
            self.findings.add(location, "the target is not in one block, the first");
            return Ok(());
        };
        let bytes = self.read(block, location)?;
        // `size` is below the block size, so a NUL must follow.
        if target_len(&bytes) != Some(size) {
            self.findings.add(location.block(block), "the target is not as long as the size says");
        }
        Ok(())
    }

    /// Devices, pipes and sockets.
    fn check_special_file(&mut self, location: Location, inode: &RawInode) {
        if inode.flags().intersects(InodeFlags::INDEX | InodeFlags::EXTENTS) {
            self.findings.add(location, "a device, pipe or socket with a map of blocks");
        }
        if inode.flags().contains(InodeFlags::INLINE_DATA) {
            self.findings.add(location, "a device, pipe or socket with content");
        }
        if inode.size() != 0 {
            self.findings.add(location, "a device, pipe or socket with a size");
        }
        self.check_no_immutable(location, inode);
    }

    pub(super) fn check_no_immutable(&mut self, location: Location, inode: &RawInode) {
        if inode.flags().intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
            self.findings.add(location, "immutable or append-only, which only files and directories can be");
        }
    }
}
