//! Inodes: owner, size, times, flags, and 60 bytes that map the file's blocks.
//!
//! Leaves out: the meaning of the 60 bytes (see [`crate::extent`] and [`crate::indirect`]) and the attributes
//! behind the fields (see the xattr module).
//!
//! Invariant: an inode has at least 128 bytes, and `128 + i_extra_isize` lies within it. A field above 128 bytes
//! exists only if `i_extra_isize` covers it; otherwise it reads as zero, and writing it is clamped or refused.
//!
//! Source: kernel `struct ext4_inode`, `ext4_inode_csum`, `ext4_inode_blocks_set`, `EXT4_FITS_IN_INODE`.

use smallvec::SmallVec;

use crate::checksum::Checksums;
use crate::crcs::crc32c;
use crate::error::{Error, Result, Structure};
use crate::extent;
use crate::field::{self, fields};
use crate::file_type::FileType;
use crate::inode_flags::InodeFlags;
use crate::time::Timestamp;
use crate::types::{FsBlock, InodeNumber};

/// Bytes that every inode has.
pub const GOOD_OLD_INODE_SIZE: usize = 128;
/// Bytes of an inode unless `mke2fs -I` says otherwise.
const COMMON_SIZE: usize = 256;
/// Bytes of an inode that have names.
const NAMED_SIZE: usize = 160;
/// Bytes above 128 that new inodes reserve for named fields.
pub const EXTRA_ISIZE: u16 = (NAMED_SIZE - GOOD_OLD_INODE_SIZE) as u16;
/// Bytes of `i_block`.
pub const I_BLOCK_SIZE: usize = 60;
/// Bytes of a regular file from which on the superblock says by `large_file` that there are such files.
pub const LARGE_FILE_BYTES: u64 = 1 << 31;
/// Bytes of the length before the target of an encrypted symbolic link.
pub const ENCRYPTED_TARGET_HEAD: usize = 2;

/// The target in the content of an encrypted symbolic link; `None` if that is not as long as it says.
#[must_use]
pub fn encrypted_target(content: &[u8]) -> Option<&[u8]> {
    let (head, target) = content.split_first_chunk::<ENCRYPTED_TARGET_HEAD>()?;
    target.get(..usize::from(u16::from_le_bytes(*head))).filter(|target| !target.is_empty())
}

const I_MODE: usize = 0x00;
const I_FLAGS: usize = 0x20;
const I_BLOCK: usize = 0x28;
const I_FILE_ACL_LO: usize = 0x68;
const I_FILE_ACL_HIGH: usize = 0x76;
pub(crate) const I_CHECKSUM_LO: usize = 0x7C;
pub(crate) const I_CHECKSUM_HI: usize = 0x82;
const I_CTIME_EXTRA: usize = 0x84;
const I_MTIME_EXTRA: usize = 0x88;
const I_ATIME_EXTRA: usize = 0x8C;
const I_CRTIME: usize = 0x90;
const I_CRTIME_EXTRA: usize = 0x94;
const I_VERSION_HI: usize = 0x98;
const I_PROJID: usize = 0x9C;

/// An inode. See the module.
#[derive(PartialEq, Eq)]
pub struct RawInode {
    /// In place as most disks have them, so that an inode in memory is in one piece.
    bytes: SmallVec<[u8; COMMON_SIZE]>,
}

impl Clone for RawInode {
    /// The bytes as one piece: the clone of a `SmallVec` takes them one by one.
    fn clone(&self) -> Self {
        Self { bytes: SmallVec::from_slice(&self.bytes) }
    }
}

impl RawInode {
    /// Reads an inode from its bytes, all of them.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when the number of bytes is no inode's, or `i_extra_isize` is out of range.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        if bytes.len() < GOOD_OLD_INODE_SIZE || !bytes.len().is_power_of_two() {
            return Err(corrupt("size out of range"));
        }
        let inode = Self { bytes: SmallVec::from_slice(bytes) };
        let extra = usize::from(inode.extra_isize());
        if !extra.is_multiple_of(4) || GOOD_OLD_INODE_SIZE + extra > bytes.len() {
            return Err(corrupt("extra size out of range"));
        }
        Ok(inode)
    }

    /// An inode of zeros, of `size` bytes, that reserves `extra_isize` bytes for fields above 128.
    ///
    /// # Errors
    ///
    /// [`Error::NotRepresentable`] when the sizes are no inode's.
    pub fn new(size: u16, extra_isize: u16) -> Result<Self> {
        let size = usize::from(size);
        if size < GOOD_OLD_INODE_SIZE || !size.is_power_of_two() {
            return Err(Error::NotRepresentable("inode size"));
        }
        let mut inode = Self { bytes: SmallVec::from_elem(0, size) };
        inode.set_extra_isize(extra_isize)?;
        Ok(inode)
    }

    /// The bytes as they belong on the disk, provided the checksum was updated.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes up to the end of the fields: what a fast commit says of an inode.
    #[must_use]
    pub fn field_bytes(&self) -> &[u8] {
        let end = GOOD_OLD_INODE_SIZE + usize::from(self.extra_isize());
        self.bytes.get(..end).unwrap_or(&self.bytes)
    }

    /// The inode with the fields of another, of which these are [`RawInode::field_bytes`], or more where its content is in it. It keeps
    /// its own map, and its own attributes behind these bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when the bytes are longer than the inode, or end within the fields.
    pub fn with_fields(&self, fields: &[u8]) -> Result<Self> {
        let mut bytes = self.bytes.clone();
        let behind_map = I_BLOCK + I_BLOCK_SIZE;
        match (bytes.get_mut(..fields.len()), fields.get(behind_map..)) {
            (Some(own), Some(behind)) => {
                own[..I_BLOCK].copy_from_slice(&fields[..I_BLOCK]);
                own[behind_map..].copy_from_slice(behind);
            }
            _ => return Err(corrupt("fields of another size")),
        }
        let inode = Self::parse(&bytes)?;
        if inode.field_bytes().len() > fields.len() {
            return Err(corrupt("fields of another size"));
        }
        Ok(inode)
    }

    /// Whether a field of `bytes` bytes at `offset` exists.
    fn has(&self, offset: usize, bytes: usize) -> bool {
        has_field(&self.bytes, offset, bytes)
    }

    fn extra(&self, offset: usize) -> Option<u32> {
        self.has(offset, 4).then(|| field::read(&self.bytes, offset))
    }

    /// Bytes above 128 that are reserved for fields; 0 in an inode of 128 bytes.
    #[must_use]
    pub fn extra_isize(&self) -> u16 {
        extra_isize(&self.bytes)
    }

    /// Sets [`Self::extra_isize`].
    ///
    /// # Errors
    ///
    /// [`Error::NotRepresentable`] when the inode is too small for it, or it is no multiple of 4.
    pub fn set_extra_isize(&mut self, extra_isize: u16) -> Result<()> {
        let end = GOOD_OLD_INODE_SIZE + usize::from(extra_isize);
        if !extra_isize.is_multiple_of(4) || end > self.bytes.len() {
            return Err(Error::NotRepresentable("extra inode size"));
        }
        if self.bytes.len() > GOOD_OLD_INODE_SIZE {
            self.set_i_extra_isize(extra_isize);
        }
        Ok(())
    }

    /// The mode: type and permissions.
    #[must_use]
    pub fn mode(&self) -> u16 {
        self.i_mode()
    }

    /// Sets [`Self::mode`].
    pub fn set_mode(&mut self, mode: u16) {
        self.set_i_mode(mode);
    }

    /// The type, by the mode.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        FileType::from_mode(self.i_mode())
    }

    /// The owner.
    #[must_use]
    pub fn uid(&self) -> u32 {
        u32::from(self.i_uid_high()) << 16 | u32::from(self.i_uid())
    }

    /// Sets [`Self::uid`].
    pub fn set_uid(&mut self, uid: u32) {
        self.set_i_uid(uid as u16);
        self.set_i_uid_high((uid >> 16) as u16);
    }

    /// The group that owns it.
    #[must_use]
    pub fn gid(&self) -> u32 {
        u32::from(self.i_gid_high()) << 16 | u32::from(self.i_gid())
    }

    /// Sets [`Self::gid`].
    pub fn set_gid(&mut self, gid: u32) {
        self.set_i_gid(gid as u16);
        self.set_i_gid_high((gid >> 16) as u16);
    }

    /// Names of the file. A directory with `dir_nlink` has 1 when they are too many to count.
    #[must_use]
    pub fn links_count(&self) -> u16 {
        self.i_links_count()
    }

    /// Sets [`Self::links_count`].
    pub fn set_links_count(&mut self, links: u16) {
        self.set_i_links_count(links);
    }

    /// Bytes of the file. Only files and directories have more than 32 bits.
    #[must_use]
    pub fn size(&self) -> u64 {
        let high = if self.has_wide_size() { self.i_size_high() } else { 0 };
        u64::from(high) << 32 | u64::from(self.i_size_lo())
    }

    /// Sets [`Self::size`]. The mode must have been set before.
    pub fn set_size(&mut self, size: u64) {
        self.set_i_size_lo(size as u32);
        if self.has_wide_size() {
            self.set_i_size_high((size >> 32) as u32);
        }
    }

    fn has_wide_size(&self) -> bool {
        matches!(self.file_type(), FileType::Regular | FileType::Directory)
    }

    /// The flags.
    #[must_use]
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.i_flags())
    }

    /// Sets [`Self::flags`].
    pub fn set_flags(&mut self, flags: InodeFlags) {
        self.set_i_flags(flags.bits());
    }

    /// Distinguishes the uses of one inode number.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.i_generation()
    }

    /// Sets [`Self::generation`].
    pub fn set_generation(&mut self, generation: u32) {
        self.set_i_generation(generation);
    }

    /// When the file was deleted, in seconds since 1970; the next inode while on the orphan list.
    #[must_use]
    pub fn dtime(&self) -> u32 {
        self.i_dtime()
    }

    /// Sets [`Self::dtime`].
    pub fn set_dtime(&mut self, dtime: u32) {
        self.set_i_dtime(dtime);
    }

    /// The block of extended attributes; 0 for none.
    #[must_use]
    pub fn file_acl(&self) -> FsBlock {
        FsBlock(u64::from(self.i_file_acl_high()) << 32 | u64::from(self.i_file_acl_lo()))
    }

    /// Sets [`Self::file_acl`], of which the disk has 48 bits.
    pub fn set_file_acl(&mut self, block: FsBlock) {
        self.set_i_file_acl_lo(block.0 as u32);
        self.set_i_file_acl_high((block.0 >> 32) as u16);
    }

    /// The change counter; its low 32 bits where there is no room for more.
    #[must_use]
    pub fn version(&self) -> u64 {
        u64::from(self.extra(I_VERSION_HI).unwrap_or(0)) << 32 | u64::from(self.l_i_version())
    }

    /// Sets [`Self::version`].
    pub fn set_version(&mut self, version: u64) {
        self.set_l_i_version(version as u32);
        if self.has(I_VERSION_HI, 4) {
            field::write(&mut self.bytes, I_VERSION_HI, (version >> 32) as u32);
        }
    }

    /// The project; 0 where there is no room for one.
    #[must_use]
    pub fn project_id(&self) -> u32 {
        self.extra(I_PROJID).unwrap_or(0)
    }

    /// Sets [`Self::project_id`].
    ///
    /// # Errors
    ///
    /// [`Error::NotRepresentable`] where there is no room for one other than 0.
    pub fn set_project_id(&mut self, project: u32) -> Result<()> {
        if self.has(I_PROJID, 4) {
            field::write(&mut self.bytes, I_PROJID, project);
        } else if project != 0 {
            return Err(Error::NotRepresentable("project id"));
        }
        Ok(())
    }

    /// Space taken, in units of 512 bytes, on a disk of `block_size`.
    #[must_use]
    pub fn blocks_512(&self, block_size: u32) -> u64 {
        let raw = u64::from(self.l_i_blocks_high()) << 32 | u64::from(self.i_blocks_lo());
        // At most 2⁴⁸ blocks of 2⁷ sectors.
        if self.flags().contains(InodeFlags::HUGE_FILE) { raw * u64::from(block_size / 512) } else { raw }
    }

    /// Sets [`Self::blocks_512`]. `huge_file` says whether the disk has that feature, without which the count has
    /// 32 bits.
    ///
    /// # Errors
    ///
    /// [`Error::NotRepresentable`] when the count has too many bits; the inode is unchanged.
    pub fn set_blocks_512(&mut self, sectors: u64, block_size: u32, huge_file: bool) -> Result<()> {
        const TOO_MANY: Error = Error::NotRepresentable("block count of an inode");
        let mut raw = sectors;
        let mut flags = self.flags() - InodeFlags::HUGE_FILE;
        if raw > u64::from(u32::MAX) && !huge_file {
            return Err(TOO_MANY);
        }
        if raw >> 48 != 0 {
            raw /= u64::from((block_size / 512).max(1));
            flags |= InodeFlags::HUGE_FILE;
        }
        if raw >> 48 != 0 {
            return Err(TOO_MANY);
        }
        self.set_i_blocks_lo(raw as u32);
        self.set_l_i_blocks_high((raw >> 32) as u16);
        self.set_flags(flags);
        Ok(())
    }

    /// Space taken in bytes, on a disk of `block_size`.
    #[must_use]
    pub fn blocks_bytes(&self, block_size: u32) -> u64 {
        self.blocks_512(block_size).saturating_mul(512)
    }

    /// Sets [`Self::blocks_bytes`], rounded down to 512; see [`Self::set_blocks_512`].
    ///
    /// # Errors
    ///
    /// As [`Self::set_blocks_512`].
    pub fn set_blocks_bytes(&mut self, bytes: u64, block_size: u32, huge_file: bool) -> Result<()> {
        self.set_blocks_512(bytes / 512, block_size, huge_file)
    }

    /// The map of the file's blocks: an extent root, 15 block numbers, a short symbolic link's target, a device.
    #[must_use]
    pub fn i_block(&self) -> &[u8; I_BLOCK_SIZE] {
        self.bytes[I_BLOCK..].first_chunk().expect("an inode has at least 128 bytes")
    }

    /// [`Self::i_block`] to be changed.
    pub fn i_block_mut(&mut self) -> &mut [u8; I_BLOCK_SIZE] {
        self.bytes[I_BLOCK..].first_chunk_mut().expect("an inode has at least 128 bytes")
    }

    /// The device of a device file: major and minor number.
    #[must_use]
    pub fn device(&self) -> (u32, u32) {
        let old: u32 = field::read(&self.bytes, I_BLOCK);
        if old != 0 {
            return (old >> 8 & 0xFF, old & 0xFF);
        }
        let new: u32 = field::read(&self.bytes, I_BLOCK + 4);
        (new >> 8 & 0xFFF, new & 0xFF | new >> 12 & 0xF_FF00)
    }

    /// Sets [`Self::device`], in the older form where both numbers have 8 bits.
    ///
    /// # Errors
    ///
    /// [`Error::NotRepresentable`] when the major number exceeds 12 bits or the minor one 20.
    pub fn set_device(&mut self, major: u32, minor: u32) -> Result<()> {
        if major >= 1 << 12 || minor >= 1 << 20 {
            return Err(Error::NotRepresentable("device number"));
        }
        let (old, new) = if major < 256 && minor < 256 {
            (major << 8 | minor, 0)
        } else {
            (0, minor & 0xFF | major << 8 | (minor & !0xFF) << 12)
        };
        self.i_block_mut().fill(0);
        field::write(&mut self.bytes, I_BLOCK, old);
        field::write(&mut self.bytes, I_BLOCK + 4, new);
        Ok(())
    }

    /// The bytes behind the fields, for extended attributes; none in an inode of 128 bytes or one that never
    /// reserved room for fields.
    #[must_use]
    pub fn xattr_region(&self) -> Option<&[u8]> {
        self.bytes.get(self.xattr_start()?..)
    }

    /// [`Self::xattr_region`] to be changed.
    pub fn xattr_region_mut(&mut self) -> Option<&mut [u8]> {
        let start = self.xattr_start()?;
        self.bytes.get_mut(start..)
    }

    fn xattr_start(&self) -> Option<usize> {
        let start = GOOD_OLD_INODE_SIZE + usize::from(self.extra_isize());
        (self.extra_isize() != 0 && start < self.bytes.len()).then_some(start)
    }

    fn set_time(&mut self, base: usize, extra: usize, time: Timestamp) {
        if self.has(extra, 4) {
            let (low, high) = time.encode();
            field::write(&mut self.bytes, base, low);
            field::write(&mut self.bytes, extra, high);
        } else {
            field::write(&mut self.bytes, base, time.encode_without_extra());
        }
    }

    /// The last access.
    #[must_use]
    pub fn atime(&self) -> Timestamp {
        Timestamp::decode(self.i_atime(), self.extra(I_ATIME_EXTRA))
    }

    /// Sets [`Self::atime`], clamped to what the inode can hold.
    pub fn set_atime(&mut self, time: Timestamp) {
        self.set_time(0x8, I_ATIME_EXTRA, time);
    }

    /// The last change of the inode.
    #[must_use]
    pub fn ctime(&self) -> Timestamp {
        Timestamp::decode(self.i_ctime(), self.extra(I_CTIME_EXTRA))
    }

    /// Sets [`Self::ctime`], clamped to what the inode can hold.
    pub fn set_ctime(&mut self, time: Timestamp) {
        self.set_time(0xC, I_CTIME_EXTRA, time);
    }

    /// The last change of the content.
    #[must_use]
    pub fn mtime(&self) -> Timestamp {
        Timestamp::decode(self.i_mtime(), self.extra(I_MTIME_EXTRA))
    }

    /// Sets [`Self::mtime`], clamped to what the inode can hold.
    pub fn set_mtime(&mut self, time: Timestamp) {
        self.set_time(0x10, I_MTIME_EXTRA, time);
    }

    /// The creation; `None` where there is no room for it.
    #[must_use]
    pub fn crtime(&self) -> Option<Timestamp> {
        let base = self.extra(I_CRTIME)?;
        Some(Timestamp::decode(base, self.extra(I_CRTIME_EXTRA)))
    }

    /// Sets [`Self::crtime`], where there is room for it.
    pub fn set_crtime(&mut self, time: Timestamp) {
        if self.has(I_CRTIME, 4) {
            self.set_time(I_CRTIME, I_CRTIME_EXTRA, time);
        }
    }

    /// The checksum in the inode; its low 16 bits where there is no room for more.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        let high = if self.has(I_CHECKSUM_HI, 2) { field::read(&self.bytes, I_CHECKSUM_HI) } else { 0_u16 };
        u32::from(high) << 16 | u32::from(self.l_i_checksum_lo())
    }
}

impl Checksums {
    /// The checksum of an inode, as it is stored: 16 bits where the inode has no room for more.
    #[must_use]
    pub fn inode(&self, ino: InodeNumber, inode: &RawInode) -> u32 {
        // One piece, with zeroes in place of the checksum, is summed faster than what lies between.
        let mut bytes = inode.clone().bytes;
        field::write(&mut bytes, I_CHECKSUM_LO, 0_u16);
        let has_high = inode.has(I_CHECKSUM_HI, 2);
        if has_high {
            field::write(&mut bytes, I_CHECKSUM_HI, 0_u16);
        }
        let sum = crc32c(self.inode_seed(ino, inode.generation()), &bytes);
        if has_high { sum } else { sum & 0xFFFF }
    }

    /// Whether an inode's checksum is right.
    #[must_use]
    pub fn verify_inode(&self, ino: InodeNumber, inode: &RawInode) -> bool {
        !self.has_metadata_checksums() || inode.checksum() == self.inode(ino, inode)
    }

    /// Sets an inode's checksum, if the disk has checksums.
    pub fn update_inode(&self, ino: InodeNumber, inode: &mut RawInode) {
        if !self.has_metadata_checksums() {
            return;
        }
        let sum = self.inode(ino, inode);
        inode.set_l_i_checksum_lo(sum as u16);
        if inode.has(I_CHECKSUM_HI, 2) {
            field::write(&mut inode.bytes, I_CHECKSUM_HI, (sum >> 16) as u16);
        }
    }
}

/// Whether an inode, given by its bytes, names blocks that have checksums: those of a directory, a block of attributes, nodes of an extent
/// tree. Most inodes are done with this, without a copy of them.
#[must_use]
pub fn names_summed_blocks(bytes: &[u8]) -> bool {
    let flags = InodeFlags::from_bits_retain(field::read(bytes, I_FLAGS));
    let root = bytes.get(I_BLOCK..I_BLOCK + I_BLOCK_SIZE).unwrap_or_default();
    FileType::from_mode(field::read(bytes, I_MODE)) == FileType::Directory
        || field::read::<u32>(bytes, I_FILE_ACL_LO) != 0
        || field::read::<u16>(bytes, I_FILE_ACL_HIGH) != 0
        || flags.contains(InodeFlags::EXTENTS) && extent::depth(root) != Some(0)
}

/// Bytes above 128 that are reserved for fields, in the bytes of an inode.
fn extra_isize(bytes: &[u8]) -> u16 {
    if bytes.len() > GOOD_OLD_INODE_SIZE { field::read(bytes, GOOD_OLD_INODE_SIZE) } else { 0 }
}

/// Whether the bytes of an inode have a field of `size` bytes at `offset`.
pub(crate) fn has_field(bytes: &[u8], offset: usize, size: usize) -> bool {
    offset + size <= GOOD_OLD_INODE_SIZE + usize::from(extra_isize(bytes))
}

impl std::fmt::Debug for RawInode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawInode")
            .field("mode", &format_args!("{:#o}", self.mode()))
            .field("size", &self.size())
            .field("links_count", &self.links_count())
            .field("flags", &self.flags())
            .field("generation", &self.generation())
            .finish_non_exhaustive()
    }
}

fn corrupt(reason: &'static str) -> Error {
    Error::corrupt(Structure::Inode, reason)
}

fields! { RawInode, NAMED_SIZE;
    i_mode, set_i_mode: u16 = 0x0;
    i_uid, set_i_uid: u16 = 0x2;
    i_size_lo, set_i_size_lo: u32 = 0x4;
    i_atime, set_i_atime: u32 = 0x8;
    i_ctime, set_i_ctime: u32 = 0xC;
    i_mtime, set_i_mtime: u32 = 0x10;
    i_dtime, set_i_dtime: u32 = 0x14;
    i_gid, set_i_gid: u16 = 0x18;
    i_links_count, set_i_links_count: u16 = 0x1A;
    i_blocks_lo, set_i_blocks_lo: u32 = 0x1C;
    i_flags, set_i_flags: u32 = 0x20;
    l_i_version, set_l_i_version: u32 = 0x24;
    i_generation, set_i_generation: u32 = 0x64;
    i_file_acl_lo, set_i_file_acl_lo: u32 = 0x68;
    i_size_high, set_i_size_high: u32 = 0x6C;
    i_obso_faddr, set_i_obso_faddr: u32 = 0x70;
    l_i_blocks_high, set_l_i_blocks_high: u16 = 0x74;
    i_file_acl_high, set_i_file_acl_high: u16 = 0x76;
    i_uid_high, set_i_uid_high: u16 = 0x78;
    i_gid_high, set_i_gid_high: u16 = 0x7A;
    l_i_checksum_lo, set_l_i_checksum_lo: u16 = 0x7C;
    i_extra_isize, set_i_extra_isize: u16 = 0x80;
}
