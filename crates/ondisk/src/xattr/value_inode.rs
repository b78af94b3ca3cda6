//! Inodes that hold a value (`ea_inode`): the reference count and hash that they keep in fields of times and
//! version.
//!
//! Source: kernel `ext4_xattr_inode_get_ref`, `ext4_xattr_inode_get_hash`, `ext4_xattr_inode_verify_hashes`.

use super::{Xattr, XattrValue, hash_entry};
use crate::checksum::Checksums;
use crate::crcs::crc32c;
use crate::inode::RawInode;

impl RawInode {
    /// The entries that name an inode as that of their value.
    #[must_use]
    pub fn value_references(&self) -> u64 {
        u64::from(self.i_ctime()) << 32 | u64::from(self.l_i_version())
    }

    /// Sets [`Self::value_references`].
    pub fn set_value_references(&mut self, references: u64) {
        self.set_i_ctime((references >> 32) as u32);
        self.set_version(references & u64::from(u32::MAX));
    }

    /// The hash of the value, [`Checksums::value_hash`].
    #[must_use]
    pub fn value_hash(&self) -> u32 {
        self.i_atime()
    }
}

impl Checksums {
    /// The hash of a value in an inode of its own; on disks without checksums too.
    #[must_use]
    pub fn value_hash(&self, value: &[u8]) -> u32 {
        crc32c(self.seed, value)
    }
}

impl Xattr {
    /// Whether it is one whose value is in an inode of its own, and one of that hash.
    #[must_use]
    pub fn has_value_of_hash(&self, value_hash: u32) -> bool {
        let XattrValue::Inode { hash, .. } = self.value else { return false };
        let value = value_hash.to_le_bytes();
        [false, true].iter().any(|signed| hash == hash_entry(&self.name, &value, *signed))
    }
}
