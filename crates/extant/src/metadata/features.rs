//! Which features of the format a disk has, as far as operations ask for them again and again.

use extant_ondisk::{IncompatFeatures, RoCompatFeatures, Superblock};

/// What the superblock says of inodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Features {
    pub(crate) has_dir_nlink: bool,
    /// Names and targets of links may be encrypted.
    pub(crate) has_encryption: bool,
    pub(crate) has_extents: bool,
    pub(crate) has_verity: bool,
    /// Values of attributes may be in inodes of their own.
    pub(crate) has_value_inodes: bool,
    pub(crate) inode_size: u16,
    /// Bytes of a new inode above 128 that are for fields.
    pub(crate) extra_isize: u16,
}

impl Features {
    pub(crate) fn new(superblock: &Superblock) -> Self {
        let inode_size = superblock.inode_size();
        let ro_compat = superblock.ro_compat();
        let mut extra_isize = extant_ondisk::inode::EXTRA_ISIZE;
        if ro_compat.contains(RoCompatFeatures::EXTRA_ISIZE) {
            extra_isize =
                extra_isize.max(superblock.s_want_extra_isize()).max(superblock.s_min_extra_isize());
        }
        if !extra_isize.is_multiple_of(4) || extra_isize > inode_size.saturating_sub(128) {
            extra_isize = extant_ondisk::inode::EXTRA_ISIZE;
        }
        Self {
            has_dir_nlink: ro_compat.contains(RoCompatFeatures::DIR_NLINK),
            has_encryption: superblock.incompat().contains(IncompatFeatures::ENCRYPT),
            has_extents: superblock.incompat().contains(IncompatFeatures::EXTENTS),
            has_verity: ro_compat.contains(RoCompatFeatures::VERITY),
            has_value_inodes: superblock.incompat().contains(IncompatFeatures::EA_INODE),
            inode_size,
            extra_isize: if inode_size > 128 { extra_isize } else { 0 },
        }
    }
}
