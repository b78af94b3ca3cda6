//! The superblock: the disk's size, features and state.
//!
//! Leaves out: derived numbers (see [`crate::Geometry`]).
//!
//! Invariant: in a value from [`Superblock::parse`] every field that arithmetic depends on is in range.
//! The setters do not check that: a caller that changes geometry fields must keep them in range.
//!
//! Source: kernel `struct ext4_super_block`, `__ext4_fill_super`.

use crate::crcs::crc32c;
use crate::error::{Error, Result, Structure};
use crate::feature::{CompatFeatures, IncompatFeatures, RoCompatFeatures};
use crate::field::fields;

/// The byte of the device at which the first superblock starts.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// Bytes of a superblock.
pub const SUPERBLOCK_SIZE: usize = 1024;
/// The value of `s_magic`.
pub const MAGIC: u16 = 0xEF53;
/// The value of `s_checksum_type` for CRC-32C.
pub const CHECKSUM_TYPE_CRC32C: u8 = 1;
/// The value of `s_errors` that has an error stop nothing.
pub const ERRORS_CONTINUE: u16 = 1;
/// The highest `s_rev_level` there is: fields have the sizes that the superblock says.
const MAX_SUPP_REV: u32 = 1;
/// The first inode that is not reserved, at least.
const GOOD_OLD_FIRST_INO: u32 = 11;
const GOOD_OLD_INODE_SIZE: u16 = 128;
const GOOD_OLD_DESC_SIZE: u16 = 32;
const CHECKSUM_OFFSET: usize = 0x3FC;

bitflags::bitflags! {
    /// `s_state`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct State: u16 {
        /// Unmounted cleanly.
        const VALID = 0x1;
        /// Errors were found.
        const ERROR = 0x2;
        /// Orphans are being recovered.
        const ORPHAN = 0x4;
        /// A fast commit is being replayed.
        const FC_REPLAY = 0x20;
    }
}

bitflags::bitflags! {
    /// `s_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SuperFlags: u32 {
        /// Directory hashes take bytes as signed.
        const SIGNED_HASH = 0x1;
        /// Directory hashes take bytes as unsigned.
        const UNSIGNED_HASH = 0x2;
        /// May be used by code under development.
        const TEST_FILESYS = 0x4;
    }
}

/// A superblock. See the module.
#[derive(Clone, PartialEq, Eq)]
pub struct Superblock {
    bytes: Box<[u8; SUPERBLOCK_SIZE]>,
}

impl Superblock {
    /// Reads a superblock from its bytes, and checks it.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] when it is not one, its checksum is wrong or a field is out of range;
    /// [`Error::Incompatible`] when it belongs to an external journal.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let bytes = bytes
            .get(..SUPERBLOCK_SIZE)
            .and_then(|bytes| <[u8; SUPERBLOCK_SIZE]>::try_from(bytes).ok())
            .ok_or(corrupt("too short"))?;
        let superblock = Self { bytes: Box::new(bytes) };
        if superblock.s_magic() != MAGIC {
            return Err(corrupt("wrong magic number"));
        }
        superblock.check_checksum()?;
        if superblock.incompat().contains(IncompatFeatures::JOURNAL_DEV) {
            return Err(Error::Incompatible(IncompatFeatures::JOURNAL_DEV));
        }
        superblock.check_sizes()?;
        superblock.check_groups()?;
        Ok(superblock)
    }

    /// A superblock of zeros but for the magic number, to be filled.
    #[must_use]
    pub fn new_zeroed() -> Self {
        let mut superblock = Self { bytes: Box::new([0; SUPERBLOCK_SIZE]) };
        superblock.set_s_magic(MAGIC);
        superblock
    }

    /// The bytes as they belong on the disk, provided the checksum was updated.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; SUPERBLOCK_SIZE] {
        &self.bytes
    }

    /// Sets the checksum, if the disk has checksums.
    pub fn update_checksum(&mut self) {
        if self.has_metadata_csum() {
            self.set_s_checksum(self.computed_checksum());
        }
    }

    fn computed_checksum(&self) -> u32 {
        crc32c(!0, &self.bytes[..CHECKSUM_OFFSET])
    }

    fn check_checksum(&self) -> Result<()> {
        if !self.has_metadata_csum() {
            return Ok(());
        }
        if self.s_checksum_type() != CHECKSUM_TYPE_CRC32C {
            return Err(corrupt("unknown checksum algorithm"));
        }
        if self.s_checksum() != self.computed_checksum() {
            return Err(corrupt("bad checksum"));
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<()> {
        if self.s_log_block_size() > 6 {
            return Err(corrupt("block size out of range"));
        }
        let block_size = self.block_size();
        if self.has_bigalloc() {
            if self.s_log_cluster_size() < self.s_log_block_size() || self.s_log_cluster_size() > 20 {
                return Err(corrupt("cluster size out of range"));
            }
        } else if self.s_log_cluster_size() != self.s_log_block_size() {
            return Err(corrupt("cluster size differs from block size"));
        }
        if self.s_rev_level() > MAX_SUPP_REV {
            return Err(corrupt("revision is not known"));
        }
        let inode_size = u32::from(self.inode_size());
        if !inode_size.is_power_of_two() || inode_size < 128 || inode_size > block_size {
            return Err(corrupt("inode size out of range"));
        }
        let desc_size = self.desc_size();
        if !desc_size.is_power_of_two() || !(32..=1024).contains(&desc_size) {
            return Err(corrupt("descriptor size out of range"));
        }
        if self.is_64bit() && desc_size < 64 {
            return Err(corrupt("descriptor too small for 64-bit block numbers"));
        }
        if u32::from(self.s_reserved_gdt_blocks()) > block_size / 4 {
            return Err(corrupt("too many reserved descriptor blocks"));
        }
        if self.s_log_groups_per_flex() > 31 {
            return Err(corrupt("flex group size out of range"));
        }
        Ok(())
    }

    fn check_groups(&self) -> Result<()> {
        let bits_per_block = 8 * self.block_size();
        let clusters = self.clusters_per_group();
        if clusters == 0 || clusters > bits_per_block || !clusters.is_multiple_of(8) {
            return Err(corrupt("clusters per group out of range"));
        }
        if u64::from(self.s_blocks_per_group()) != u64::from(clusters) * u64::from(self.cluster_ratio()) {
            return Err(corrupt("blocks per group do not match clusters per group"));
        }
        let inodes = self.s_inodes_per_group();
        if inodes == 0 || inodes > bits_per_block || !inodes.is_multiple_of(8) {
            return Err(corrupt("inodes per group out of range"));
        }
        // Group 0 begins with the boot block unless that shares a block or cluster with the superblock.
        let first_data_block = u32::from(self.s_log_cluster_size() == 0);
        if self.s_first_data_block() != first_data_block {
            return Err(corrupt("first data block does not match the block size"));
        }
        if self.blocks_count() <= u64::from(first_data_block) {
            return Err(corrupt("no blocks"));
        }
        if self.blocks_count() >> 48 != 0 {
            return Err(corrupt("more blocks than an extent can name"));
        }
        let groups = self.computed_group_count();
        if groups > u64::from(u32::MAX) {
            return Err(corrupt("too many groups"));
        }
        if groups.checked_mul(u64::from(inodes)) != Some(u64::from(self.s_inodes_count())) {
            return Err(corrupt("inode count does not match the groups"));
        }
        let table_blocks =
            (u64::from(inodes) * u64::from(self.inode_size())).div_ceil(u64::from(self.block_size()));
        if groups * (table_blocks + 2) > self.blocks_count() {
            return Err(corrupt("no room for bitmaps and inode tables"));
        }
        if self.first_ino() < GOOD_OLD_FIRST_INO || self.first_ino() > self.s_inodes_count() {
            return Err(corrupt("first inode out of range"));
        }
        let desc_per_block = u64::from(self.block_size() / u32::from(self.desc_size()));
        let has_meta_bg = self.incompat().contains(IncompatFeatures::META_BG);
        if has_meta_bg && u64::from(self.s_first_meta_bg()) > groups.div_ceil(desc_per_block) {
            return Err(corrupt("first meta group out of range"));
        }
        Ok(())
    }

    /// Groups, by the size of the disk; zero when the fields make no sense.
    #[must_use]
    pub fn computed_group_count(&self) -> u64 {
        let blocks = self.blocks_count().saturating_sub(u64::from(self.s_first_data_block()));
        match u64::from(self.s_blocks_per_group()) {
            0 => 0,
            per_group => blocks.div_ceil(per_group),
        }
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        1024 << self.s_log_block_size().min(6)
    }

    /// Blocks of a cluster; 1 without `bigalloc`.
    #[must_use]
    pub fn cluster_ratio(&self) -> u32 {
        if self.has_bigalloc() {
            1 << self.s_log_cluster_size().saturating_sub(self.s_log_block_size()).min(20)
        } else {
            1
        }
    }

    /// Clusters of a group. Without `bigalloc` a cluster is a block, and old disks leave the field unset.
    #[must_use]
    pub fn clusters_per_group(&self) -> u32 {
        if self.has_bigalloc() { self.s_clusters_per_group() } else { self.s_blocks_per_group() }
    }

    /// Bytes of an inode; 128 at revision 0, which has no such field.
    #[must_use]
    pub fn inode_size(&self) -> u16 {
        if self.s_rev_level() == 0 { GOOD_OLD_INODE_SIZE } else { self.s_inode_size() }
    }

    /// The first inode that is not reserved.
    #[must_use]
    pub fn first_ino(&self) -> u32 {
        if self.s_rev_level() == 0 { GOOD_OLD_FIRST_INO } else { self.s_first_ino() }
    }

    /// Bytes of a group descriptor; 32 without `64bit`, whatever the field says.
    #[must_use]
    pub fn desc_size(&self) -> u16 {
        if self.is_64bit() { self.s_desc_size() } else { GOOD_OLD_DESC_SIZE }
    }

    /// The features a reader and a writer may ignore.
    #[must_use]
    pub fn compat(&self) -> CompatFeatures {
        CompatFeatures::from_bits_retain(self.s_feature_compat())
    }

    /// Sets [`Self::compat`].
    pub fn set_compat(&mut self, features: CompatFeatures) {
        self.set_s_feature_compat(features.bits());
    }

    /// The features a reader must know.
    #[must_use]
    pub fn incompat(&self) -> IncompatFeatures {
        IncompatFeatures::from_bits_retain(self.s_feature_incompat())
    }

    /// Sets [`Self::incompat`].
    pub fn set_incompat(&mut self, features: IncompatFeatures) {
        self.set_s_feature_incompat(features.bits());
    }

    /// The features a writer must know.
    #[must_use]
    pub fn ro_compat(&self) -> RoCompatFeatures {
        RoCompatFeatures::from_bits_retain(self.s_feature_ro_compat())
    }

    /// Sets [`Self::ro_compat`].
    pub fn set_ro_compat(&mut self, features: RoCompatFeatures) {
        self.set_s_feature_ro_compat(features.bits());
    }

    /// Whether all metadata is summed.
    #[must_use]
    pub fn has_metadata_csum(&self) -> bool {
        self.ro_compat().contains(RoCompatFeatures::METADATA_CSUM)
    }

    fn has_bigalloc(&self) -> bool {
        self.ro_compat().contains(RoCompatFeatures::BIGALLOC)
    }

    fn is_64bit(&self) -> bool {
        self.incompat().contains(IncompatFeatures::BIT64)
    }

    /// The sum that every structure's checksum continues from.
    #[must_use]
    pub fn checksum_seed(&self) -> u32 {
        if self.incompat().contains(IncompatFeatures::CSUM_SEED) {
            self.s_checksum_seed()
        } else {
            crc32c(!0, &self.s_uuid())
        }
    }

    /// `s_state` as flags.
    #[must_use]
    pub fn state(&self) -> State {
        State::from_bits_retain(self.s_state())
    }

    /// Sets [`Self::state`].
    pub fn set_state(&mut self, state: State) {
        self.set_s_state(state.bits());
    }

    /// `s_flags` as flags.
    #[must_use]
    pub fn flags(&self) -> SuperFlags {
        SuperFlags::from_bits_retain(self.s_flags())
    }

    /// Sets [`Self::flags`].
    pub fn set_flags(&mut self, flags: SuperFlags) {
        self.set_s_flags(flags.bits());
    }

    /// The volume's name, up to its first zero byte.
    #[must_use]
    pub fn volume_name(&self) -> Vec<u8> {
        self.s_volume_name().iter().copied().take_while(|&byte| byte != 0).collect()
    }
}

macro_rules! block_counts {
    ($($(#[$doc:meta])* $get:ident, $set:ident: $lo:ident, $set_lo:ident, $hi:ident, $set_hi:ident;)*) => {
        impl Superblock {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $get(&self) -> u64 {
                    let high = if self.is_64bit() { self.$hi() } else { 0 };
                    u64::from(high) << 32 | u64::from(self.$lo())
                }

                #[doc = concat!("Sets [`Self::", stringify!($get), "`]; without `64bit` its low 32 bits.")]
                pub fn $set(&mut self, value: u64) {
                    self.$set_lo(value as u32);
                    if self.is_64bit() {
                        self.$set_hi((value >> 32) as u32);
                    }
                }
            )*
        }
    };
}

block_counts! {
    /// Blocks of the disk.
    blocks_count, set_blocks_count: s_blocks_count_lo, set_s_blocks_count_lo, s_blocks_count_hi, set_s_blocks_count_hi;
    /// Blocks that only privileged users may take.
    r_blocks_count, set_r_blocks_count:
        s_r_blocks_count_lo, set_s_r_blocks_count_lo, s_r_blocks_count_hi, set_s_r_blocks_count_hi;
    /// Free blocks.
    free_blocks_count, set_free_blocks_count:
        s_free_blocks_count_lo, set_s_free_blocks_count_lo, s_free_blocks_count_hi, set_s_free_blocks_count_hi;
}

macro_rules! times {
    ($($(#[$doc:meta])* $get:ident, $set:ident: $lo:ident, $set_lo:ident, $hi:ident, $set_hi:ident;)*) => {
        impl Superblock {
            $(
                $(#[$doc])*
                /// In seconds since 1970, 40 bits.
                #[must_use]
                pub fn $get(&self) -> u64 {
                    u64::from(self.$hi()) << 32 | u64::from(self.$lo())
                }

                #[doc = concat!("Sets [`Self::", stringify!($get), "`].")]
                pub fn $set(&mut self, seconds: u64) {
                    self.$set_lo(seconds as u32);
                    self.$set_hi((seconds >> 32) as u8);
                }
            )*
        }
    };
}

times! {
    /// The last mount.
    mount_time, set_mount_time: s_mtime, set_s_mtime, s_mtime_hi, set_s_mtime_hi;
    /// The last write of the superblock.
    write_time, set_write_time: s_wtime, set_s_wtime, s_wtime_hi, set_s_wtime_hi;
    /// The creation of the file system.
    mkfs_time, set_mkfs_time: s_mkfs_time, set_s_mkfs_time, s_mkfs_time_hi, set_s_mkfs_time_hi;
    /// The last check.
    check_time, set_check_time: s_lastcheck, set_s_lastcheck, s_lastcheck_hi, set_s_lastcheck_hi;
    /// The first error.
    first_error_time, set_first_error_time:
        s_first_error_time, set_s_first_error_time, s_first_error_time_hi, set_s_first_error_time_hi;
    /// The last error.
    last_error_time, set_last_error_time:
        s_last_error_time, set_s_last_error_time, s_last_error_time_hi, set_s_last_error_time_hi;
}

impl std::fmt::Debug for Superblock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Superblock")
            .field("blocks_count", &self.blocks_count())
            .field("block_size", &self.block_size())
            .field("compat", &self.compat())
            .field("incompat", &self.incompat())
            .field("ro_compat", &self.ro_compat())
            .finish_non_exhaustive()
    }
}

fn corrupt(reason: &'static str) -> Error {
    Error::corrupt(Structure::Superblock, reason)
}

fields! { Superblock, SUPERBLOCK_SIZE;
    s_inodes_count, set_s_inodes_count: u32 = 0x0;
    s_blocks_count_lo, set_s_blocks_count_lo: u32 = 0x4;
    s_r_blocks_count_lo, set_s_r_blocks_count_lo: u32 = 0x8;
    s_free_blocks_count_lo, set_s_free_blocks_count_lo: u32 = 0xC;
    s_free_inodes_count, set_s_free_inodes_count: u32 = 0x10;
    s_first_data_block, set_s_first_data_block: u32 = 0x14;
    s_log_block_size, set_s_log_block_size: u32 = 0x18;
    s_log_cluster_size, set_s_log_cluster_size: u32 = 0x1C;
    s_blocks_per_group, set_s_blocks_per_group: u32 = 0x20;
    s_clusters_per_group, set_s_clusters_per_group: u32 = 0x24;
    s_inodes_per_group, set_s_inodes_per_group: u32 = 0x28;
    s_mtime, set_s_mtime: u32 = 0x2C;
    s_wtime, set_s_wtime: u32 = 0x30;
    s_mnt_count, set_s_mnt_count: u16 = 0x34;
    s_max_mnt_count, set_s_max_mnt_count: u16 = 0x36;
    s_magic, set_s_magic: u16 = 0x38;
    s_state, set_s_state: u16 = 0x3A;
    s_errors, set_s_errors: u16 = 0x3C;
    s_minor_rev_level, set_s_minor_rev_level: u16 = 0x3E;
    s_lastcheck, set_s_lastcheck: u32 = 0x40;
    s_checkinterval, set_s_checkinterval: u32 = 0x44;
    s_creator_os, set_s_creator_os: u32 = 0x48;
    s_rev_level, set_s_rev_level: u32 = 0x4C;
    s_def_resuid, set_s_def_resuid: u16 = 0x50;
    s_def_resgid, set_s_def_resgid: u16 = 0x52;
    s_first_ino, set_s_first_ino: u32 = 0x54;
    s_inode_size, set_s_inode_size: u16 = 0x58;
    s_block_group_nr, set_s_block_group_nr: u16 = 0x5A;
    s_feature_compat, set_s_feature_compat: u32 = 0x5C;
    s_feature_incompat, set_s_feature_incompat: u32 = 0x60;
    s_feature_ro_compat, set_s_feature_ro_compat: u32 = 0x64;
    s_uuid, set_s_uuid: [u8; 16] = 0x68;
    s_volume_name, set_s_volume_name: [u8; 16] = 0x78;
    s_last_mounted, set_s_last_mounted: [u8; 64] = 0x88;
    s_algorithm_usage_bitmap, set_s_algorithm_usage_bitmap: u32 = 0xC8;
    s_prealloc_blocks, set_s_prealloc_blocks: u8 = 0xCC;
    s_prealloc_dir_blocks, set_s_prealloc_dir_blocks: u8 = 0xCD;
    s_reserved_gdt_blocks, set_s_reserved_gdt_blocks: u16 = 0xCE;
    s_journal_uuid, set_s_journal_uuid: [u8; 16] = 0xD0;
    s_journal_inum, set_s_journal_inum: u32 = 0xE0;
    s_journal_dev, set_s_journal_dev: u32 = 0xE4;
    s_last_orphan, set_s_last_orphan: u32 = 0xE8;
    s_hash_seed, set_s_hash_seed: [u32; 4] = 0xEC;
    s_def_hash_version, set_s_def_hash_version: u8 = 0xFC;
    s_jnl_backup_type, set_s_jnl_backup_type: u8 = 0xFD;
    s_desc_size, set_s_desc_size: u16 = 0xFE;
    s_default_mount_opts, set_s_default_mount_opts: u32 = 0x100;
    s_first_meta_bg, set_s_first_meta_bg: u32 = 0x104;
    s_mkfs_time, set_s_mkfs_time: u32 = 0x108;
    s_jnl_blocks, set_s_jnl_blocks: [u32; 17] = 0x10C;
    s_blocks_count_hi, set_s_blocks_count_hi: u32 = 0x150;
    s_r_blocks_count_hi, set_s_r_blocks_count_hi: u32 = 0x154;
    s_free_blocks_count_hi, set_s_free_blocks_count_hi: u32 = 0x158;
    s_min_extra_isize, set_s_min_extra_isize: u16 = 0x15C;
    s_want_extra_isize, set_s_want_extra_isize: u16 = 0x15E;
    s_flags, set_s_flags: u32 = 0x160;
    s_raid_stride, set_s_raid_stride: u16 = 0x164;
    s_mmp_update_interval, set_s_mmp_update_interval: u16 = 0x166;
    s_mmp_block, set_s_mmp_block: u64 = 0x168;
    s_raid_stripe_width, set_s_raid_stripe_width: u32 = 0x170;
    s_log_groups_per_flex, set_s_log_groups_per_flex: u8 = 0x174;
    s_checksum_type, set_s_checksum_type: u8 = 0x175;
    s_encryption_level, set_s_encryption_level: u8 = 0x176;
    s_kbytes_written, set_s_kbytes_written: u64 = 0x178;
    s_snapshot_inum, set_s_snapshot_inum: u32 = 0x180;
    s_snapshot_id, set_s_snapshot_id: u32 = 0x184;
    s_snapshot_r_blocks_count, set_s_snapshot_r_blocks_count: u64 = 0x188;
    s_snapshot_list, set_s_snapshot_list: u32 = 0x190;
    s_error_count, set_s_error_count: u32 = 0x194;
    s_first_error_time, set_s_first_error_time: u32 = 0x198;
    s_first_error_ino, set_s_first_error_ino: u32 = 0x19C;
    s_first_error_block, set_s_first_error_block: u64 = 0x1A0;
    s_first_error_func, set_s_first_error_func: [u8; 32] = 0x1A8;
    s_first_error_line, set_s_first_error_line: u32 = 0x1C8;
    s_last_error_time, set_s_last_error_time: u32 = 0x1CC;
    s_last_error_ino, set_s_last_error_ino: u32 = 0x1D0;
    s_last_error_line, set_s_last_error_line: u32 = 0x1D4;
    s_last_error_block, set_s_last_error_block: u64 = 0x1D8;
    s_last_error_func, set_s_last_error_func: [u8; 32] = 0x1E0;
    s_mount_opts, set_s_mount_opts: [u8; 64] = 0x200;
    s_usr_quota_inum, set_s_usr_quota_inum: u32 = 0x240;
    s_grp_quota_inum, set_s_grp_quota_inum: u32 = 0x244;
    s_overhead_clusters, set_s_overhead_clusters: u32 = 0x248;
    s_backup_bgs, set_s_backup_bgs: [u32; 2] = 0x24C;
    s_encrypt_algos, set_s_encrypt_algos: [u8; 4] = 0x254;
    s_encrypt_pw_salt, set_s_encrypt_pw_salt: [u8; 16] = 0x258;
    s_lpf_ino, set_s_lpf_ino: u32 = 0x268;
    s_prj_quota_inum, set_s_prj_quota_inum: u32 = 0x26C;
    s_checksum_seed, set_s_checksum_seed: u32 = 0x270;
    s_wtime_hi, set_s_wtime_hi: u8 = 0x274;
    s_mtime_hi, set_s_mtime_hi: u8 = 0x275;
    s_mkfs_time_hi, set_s_mkfs_time_hi: u8 = 0x276;
    s_lastcheck_hi, set_s_lastcheck_hi: u8 = 0x277;
    s_first_error_time_hi, set_s_first_error_time_hi: u8 = 0x278;
    s_last_error_time_hi, set_s_last_error_time_hi: u8 = 0x279;
    s_first_error_errcode, set_s_first_error_errcode: u8 = 0x27A;
    s_last_error_errcode, set_s_last_error_errcode: u8 = 0x27B;
    s_encoding, set_s_encoding: u16 = 0x27C;
    s_encoding_flags, set_s_encoding_flags: u16 = 0x27E;
    s_orphan_file_inum, set_s_orphan_file_inum: u32 = 0x280;
    s_def_resuid_hi, set_s_def_resuid_hi: u16 = 0x284;
    s_def_resgid_hi, set_s_def_resgid_hi: u16 = 0x286;
    s_checksum, set_s_checksum: u32 = 0x3FC;
}
