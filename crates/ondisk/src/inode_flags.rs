//! The flags of an inode.
//!
//! Source: kernel `EXT4_*_FL`.

bitflags::bitflags! {
    /// `i_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InodeFlags: u32 {
        /// Secure deletion; not honoured.
        const SECRM = 0x1;
        /// Undelete; not honoured.
        const UNRM = 0x2;
        /// Compress; not honoured.
        const COMPR = 0x4;
        /// Writes are synchronous.
        const SYNC = 0x8;
        /// Must not change.
        const IMMUTABLE = 0x10;
        /// May only grow.
        const APPEND = 0x20;
        /// Left out by `dump`.
        const NODUMP = 0x40;
        /// Reading does not set the access time.
        const NOATIME = 0x80;
        /// Dirty; used by compression.
        const DIRTY = 0x100;
        /// Has compressed clusters.
        const COMPRBLK = 0x200;
        /// Must not be compressed.
        const NOCOMPR = 0x400;
        /// Encrypted.
        const ENCRYPT = 0x800;
        /// The directory has a hash tree.
        const INDEX = 0x1000;
        /// An AFS directory.
        const IMAGIC = 0x2000;
        /// Content goes through the journal.
        const JOURNAL_DATA = 0x4000;
        /// The tail must not be merged.
        const NOTAIL = 0x8000;
        /// Changes of the directory are synchronous.
        const DIRSYNC = 0x1_0000;
        /// The top of a hierarchy: its directories are spread.
        const TOPDIR = 0x2_0000;
        /// The block count is in blocks, not in 512 bytes.
        const HUGE_FILE = 0x4_0000;
        /// Mapped by extents.
        const EXTENTS = 0x8_0000;
        /// Protected by a hash tree.
        const VERITY = 0x10_0000;
        /// Holds a value of an extended attribute.
        const EA_INODE = 0x20_0000;
        /// Blocks beyond the end; no longer set.
        const EOFBLOCKS = 0x40_0000;
        /// Pages map straight to a persistent memory device.
        const DAX = 0x200_0000;
        /// The content lies in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// New entries inherit the project.
        const PROJINHERIT = 0x2000_0000;
        /// Names are compared without regard to case.
        const CASEFOLD = 0x4000_0000;
        /// Reserved for the library that changes disks.
        const RESERVED = 0x8000_0000;
    }
}

impl InodeFlags {
    /// The flags that a user may see (`EXT4_FL_USER_VISIBLE`).
    pub const USER_VISIBLE: Self = Self::from_bits_retain(0x725B_DFFF);
    /// The flags that a user may change (`EXT4_FL_USER_MODIFIABLE`).
    pub const USER_MODIFIABLE: Self = Self::from_bits_retain(0x624B_C0FF);
    /// With any of these no user may write the content.
    pub const FIXED_CONTENT: Self = Self::IMMUTABLE.union(Self::VERITY);
    /// The flags that a new inode inherits from its directory (`EXT4_FL_INHERITED`).
    pub const INHERITED: Self = Self::SECRM
        .union(Self::UNRM)
        .union(Self::COMPR)
        .union(Self::SYNC)
        .union(Self::NODUMP)
        .union(Self::NOATIME)
        .union(Self::NOCOMPR)
        .union(Self::JOURNAL_DATA)
        .union(Self::NOTAIL)
        .union(Self::DIRSYNC)
        .union(Self::PROJINHERIT)
        .union(Self::CASEFOLD)
        .union(Self::DAX);
}
