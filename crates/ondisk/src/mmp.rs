//! The block of multiple-mount protection: the host that uses the disk, proven by a number that keeps
//! changing.
//!
//! Source: kernel `struct mmp_struct`, `fs/ext4/mmp.c`.

use crate::checksum::Checksums;
use crate::crcs::crc32c;
use crate::error::{Error, Result, Structure};
use crate::field::fields;

/// Bytes of the structure.
pub const MMP_SIZE: usize = 1024;
/// The value of `mmp_magic`: "MMP" and a zero, backwards.
pub const MAGIC: u32 = 0x004D_4D50;
/// The sequence of a disk that is not in use.
pub const SEQ_CLEAN: u32 = 0xFF4D_4D50;
/// The sequence of a disk that is being checked.
pub const SEQ_FSCK: u32 = 0xE24D_4D50;
/// The largest sequence of a mount.
pub const SEQ_MAX: u32 = 0xE24D_4D4F;
/// Seconds between updates, when the superblock names none.
pub const DEFAULT_UPDATE_INTERVAL_S: u16 = 5;
/// Seconds between checks at least.
pub const MIN_CHECK_INTERVAL_S: u16 = 5;
/// Seconds between checks at most.
pub const MAX_CHECK_INTERVAL_S: u16 = 300;

const CHECKSUM_OFFSET: usize = 0x3FC;

/// A multiple-mount protection block. See the module.
#[derive(Clone, PartialEq, Eq)]
pub struct Mmp {
    bytes: Box<[u8; MMP_SIZE]>,
}

impl Mmp {
    /// Reads the structure from the start of its block, and checks magic number and checksum.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when one of them is wrong.
    pub fn parse(bytes: &[u8], checksums: &Checksums) -> Result<Self> {
        let bytes = bytes
            .get(..MMP_SIZE)
            .and_then(|bytes| <[u8; MMP_SIZE]>::try_from(bytes).ok())
            .ok_or(Error::corrupt(Structure::Mmp, "too short"))?;
        let mmp = Self { bytes: Box::new(bytes) };
        if mmp.mmp_magic() != MAGIC {
            return Err(Error::corrupt(Structure::Mmp, "wrong magic number"));
        }
        if checksums.has_metadata_checksums() && mmp.mmp_checksum() != checksums.mmp(&mmp) {
            return Err(Error::corrupt(Structure::Mmp, "bad checksum"));
        }
        Ok(mmp)
    }

    /// The block of a disk that is not in use.
    #[must_use]
    pub fn new_clean() -> Self {
        let mut mmp = Self { bytes: Box::new([0; MMP_SIZE]) };
        mmp.set_mmp_magic(MAGIC);
        mmp.set_mmp_seq(SEQ_CLEAN);
        mmp
    }

    /// The bytes as they belong on the disk, provided the checksum was updated.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; MMP_SIZE] {
        &self.bytes
    }

    /// Sets the checksum, if the disk has checksums.
    pub fn update_checksum(&mut self, checksums: &Checksums) {
        if checksums.has_metadata_checksums() {
            self.set_mmp_checksum(checksums.mmp(self));
        }
    }
}

impl Checksums {
    /// The checksum of a multiple-mount protection block.
    #[must_use]
    pub fn mmp(&self, mmp: &Mmp) -> u32 {
        crc32c(self.seed, &mmp.bytes[..CHECKSUM_OFFSET])
    }
}

impl std::fmt::Debug for Mmp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mmp").field("mmp_seq", &format_args!("{:#x}", self.mmp_seq())).finish_non_exhaustive()
    }
}

fields! { Mmp, MMP_SIZE;
    mmp_magic, set_mmp_magic: u32 = 0x0;
    mmp_seq, set_mmp_seq: u32 = 0x4;
    mmp_time, set_mmp_time: u64 = 0x8;
    mmp_nodename, set_mmp_nodename: [u8; 64] = 0x10;
    mmp_bdevname, set_mmp_bdevname: [u8; 32] = 0x50;
    mmp_check_interval, set_mmp_check_interval: u16 = 0x70;
    mmp_checksum, set_mmp_checksum: u32 = 0x3FC;
}
