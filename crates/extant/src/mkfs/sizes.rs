//! The numbers of a new file system: groups, inodes, reserved blocks, as superblock fields.
//!
//! Source: `ext2fs_initialize` and `mke2fs` of e2fsprogs 1.47.0, whose numbers are matched.

use extant_ondisk::superblock::ERRORS_CONTINUE;
use extant_ondisk::{
    CompatFeatures, Geometry, IncompatFeatures, RoCompatFeatures, SuperFlags, Superblock, crc32c,
};

use super::features::Features;
use super::identity::Identity;
use super::{Error, Mkfs, Result};

/// A tail with fewer free blocks behind its metadata does not become a group.
const TAIL_MIN_FREE: u64 = 50;
const FIRST_INO: u32 = 11;
/// Reserved inodes, lost+found, the quota file of projects and the orphan file.
const INODES_MIN: u64 = 13;
/// `user_xattr` and `acl`, as `mke2fs.conf` says.
const DEFAULT_MOUNT_OPTIONS: u32 = 0xC;
const DYNAMIC_REVISION: u32 = 1;
const HALF_MD4: u8 = 1;
/// -1: never check by count.
const NEVER: u16 = u16::MAX;
/// Blocks of a cluster, as `mke2fs` has it.
const DEFAULT_CLUSTER_RATIO: u32 = 16;
/// The largest cluster that `mke2fs` makes.
const CLUSTER_BYTES_MAX: u32 = 512 << 20;
const EXTRA_ISIZE: u16 = extant_ondisk::inode::EXTRA_ISIZE;

/// Wishes as numbers.
struct Wanted {
    block_size: u32,
    /// Blocks of a cluster.
    cluster_ratio: u32,
    blocks: u64,
    inodes: u64,
    inode_size: u16,
    reserved_blocks: u64,
}

/// The superblock of the disk that `options` describe on a device of `device_bytes`, without counts of what is free,
/// and its geometry.
pub(super) fn superblock(
    options: &Mkfs,
    device_bytes: Option<u64>,
    identity: &Identity,
) -> Result<(Superblock, Geometry)> {
    let wanted = wanted(options, device_bytes)?;
    let mut features = options.features;
    if wanted.blocks > u64::from(u32::MAX) {
        if !features.is_64bit() {
            return Err(Error::TooLarge("2^32 blocks and more need the feature 64bit"));
        }
        // The resize inode's map and its blocks have 32-bit numbers.
        features.compat -= CompatFeatures::RESIZE_INODE;
    }
    features.check(wanted.inode_size)?;
    if features.has_resize_inode() {
        // The resize inode exceeds 2 GiB.
        features.ro_compat |= RoCompatFeatures::LARGE_FILE;
    }
    if default_journal_blocks(wanted.blocks) == 0
        && options.journal_blocks.is_none()
        && options.journal_megabytes.is_none()
    {
        features.compat -=
            CompatFeatures::HAS_JOURNAL | CompatFeatures::ORPHAN_FILE | CompatFeatures::FAST_COMMIT;
    }
    let mut superblock = Superblock::new_zeroed();
    describe(&mut superblock, options, &features, &wanted, identity)?;
    let geometry = fit(&mut superblock, options, &wanted)?;
    Ok((superblock, geometry))
}

/// The journal that a disk of so many blocks gets; 0 if it is too small for one (`ext2fs_default_journal_size`).
pub(crate) fn default_journal_blocks(blocks: u64) -> u32 {
    const K: u64 = 1024;
    match blocks {
        0..2048 => 0,
        2048..32768 => 1024,
        n if n < 256 * K => 4096,
        n if n < 512 * K => 8192,
        n if n < 4096 * K => 16384,
        n if n < 8192 * K => 32768,
        n if n < 16384 * K => 65536,
        n if n < 32768 * K => 131_072,
        _ => 262_144,
    }
}

/// The fast-commit area that the journal of a disk of so many blocks gets behind it (`EXT2_JOURNAL_TO_FC_BLKS_RATIO`).
pub(crate) fn default_fast_commit_blocks(blocks: u64) -> u32 {
    default_journal_blocks(blocks) / 64
}

fn wanted(options: &Mkfs, device_bytes: Option<u64>) -> Result<Wanted> {
    let block_size = options.block_size;
    if !block_size.is_power_of_two() || !(1024..=65536).contains(&block_size) {
        return Err(Error::invalid("block size", block_size));
    }
    let cluster_ratio = cluster_ratio(options)?;
    let blocks = match (options.blocks, options.bytes, device_bytes) {
        (Some(blocks), _, _) => blocks,
        (None, Some(bytes), _) => bytes / u64::from(block_size),
        // Blocks of less than a page come in pages, or page-wise access would run off the end.
        (None, None, Some(bytes)) => {
            let per_page = u64::from((4096 / block_size).max(1));
            bytes / u64::from(block_size) / per_page * per_page
        }
        (None, None, None) => return Err(Error::Conflict("neither a size nor a device")),
    };
    let blocks = blocks / u64::from(cluster_ratio) * u64::from(cluster_ratio);
    if let Some(bytes) = device_bytes
        && blocks > bytes / u64::from(block_size)
    {
        return Err(Error::TooLarge("more blocks than the device has"));
    }
    if blocks >> 48 != 0 {
        return Err(Error::TooLarge("more blocks than an extent can name"));
    }
    let inode_size = options.inode_size;
    if !inode_size.is_power_of_two() || inode_size < 128 || u32::from(inode_size) > block_size {
        return Err(Error::invalid("inode size", inode_size));
    }
    let bytes = u128::from(blocks) * u128::from(block_size);
    let inodes = match options.inodes {
        Some(inodes) => u64::from(inodes),
        None => {
            let ratio = options.inode_ratio.unwrap_or_else(|| {
                // A file has a cluster at least.
                default_inode_ratio(bytes).max(block_size.saturating_mul(cluster_ratio))
            });
            if !(1024..=64 << 20).contains(&ratio) {
                return Err(Error::invalid("inode ratio", ratio));
            }
            u64::try_from(bytes / u128::from(ratio)).unwrap_or(u64::MAX).min(u64::from(u32::MAX))
        }
    };
    if u128::from(inodes) * u128::from(inode_size) >= bytes {
        return Err(Error::TooLarge("inodes would fill the disk"));
    }
    if !(0.0..=50.0).contains(&options.reserved_percent) {
        return Err(Error::invalid("reserved percentage", options.reserved_percent));
    }
    let reserved_blocks = (options.reserved_percent * blocks as f64 / 100.0) as u64;
    Ok(Wanted { block_size, cluster_ratio, blocks, inodes, inode_size, reserved_blocks })
}

/// Blocks of a cluster: 1 without `bigalloc`, and 16 with it if nothing was asked for.
fn cluster_ratio(options: &Mkfs) -> Result<u32> {
    let (has_clusters, block_size) = (options.features.has_bigalloc(), options.block_size);
    match options.cluster_size {
        None if has_clusters => Ok(DEFAULT_CLUSTER_RATIO),
        None => Ok(1),
        Some(_) if !has_clusters => Err(Error::Conflict("a cluster size needs the feature bigalloc")),
        Some(bytes) if bytes.is_power_of_two() && bytes > block_size && bytes <= CLUSTER_BYTES_MAX => {
            Ok(bytes / block_size)
        }
        Some(bytes) => Err(Error::invalid("cluster size", bytes)),
    }
}

/// Larger disks get fewer inodes (`mke2fs.conf`: big from 4 TiB, huge from 16 TiB).
fn default_inode_ratio(bytes: u128) -> u32 {
    const TIB: u128 = 1 << 40;
    match bytes {
        n if n < 4 * TIB => 16384,
        n if n < 16 * TIB => 32768,
        _ => 65536,
    }
}

fn describe(
    superblock: &mut Superblock,
    options: &Mkfs,
    features: &Features,
    wanted: &Wanted,
    identity: &Identity,
) -> Result<()> {
    superblock.set_compat(features.compat);
    superblock.set_incompat(features.incompat);
    superblock.set_ro_compat(features.ro_compat);
    superblock.set_s_rev_level(DYNAMIC_REVISION);
    superblock.set_s_errors(ERRORS_CONTINUE);
    superblock.set_s_max_mnt_count(NEVER);
    superblock.set_s_first_ino(FIRST_INO);
    superblock.set_s_inode_size(wanted.inode_size);
    let log_block_size = wanted.block_size.trailing_zeros() - 10;
    let log_ratio = wanted.cluster_ratio.trailing_zeros();
    superblock.set_s_log_block_size(log_block_size);
    superblock.set_s_log_cluster_size(log_block_size + log_ratio);
    superblock.set_s_first_data_block(u32::from(wanted.block_size == 1024 && log_ratio == 0));
    superblock.set_s_default_mount_opts(DEFAULT_MOUNT_OPTIONS);
    superblock.set_s_def_hash_version(HALF_MD4);
    superblock.set_flags(SuperFlags::SIGNED_HASH);
    superblock.set_s_uuid(identity.uuid);
    superblock.set_s_hash_seed(identity.hash_seed);
    superblock.set_s_volume_name(options.label);
    superblock.set_s_last_mounted(options.last_mounted);
    if features.is_64bit() {
        superblock.set_s_desc_size(64);
    }
    if wanted.inode_size > 128 {
        superblock.set_s_min_extra_isize(EXTRA_ISIZE);
        superblock.set_s_want_extra_isize(EXTRA_ISIZE);
    }
    if features.has_metadata_csum() {
        superblock.set_s_checksum_type(extant_ondisk::superblock::CHECKSUM_TYPE_CRC32C);
    }
    if features.incompat.contains(IncompatFeatures::CSUM_SEED) {
        superblock.set_s_checksum_seed(crc32c(!0, &identity.uuid));
    }
    let groups_per_flex = options.groups_per_flex.unwrap_or(16);
    if !groups_per_flex.is_power_of_two() {
        return Err(Error::invalid("flex group size", groups_per_flex));
    }
    if features.has_flex_bg() {
        superblock.set_s_log_groups_per_flex(groups_per_flex.trailing_zeros() as u8);
    } else if options.extended.packed_meta_blocks || options.groups_per_flex.is_some() {
        return Err(Error::Conflict("packed_meta_blocks and a flex group size need the feature flex_bg"));
    }
    superblock.set_s_raid_stride(options.extended.stride);
    superblock.set_s_raid_stripe_width(options.extended.stripe_width);
    let seconds = u64::try_from(identity.seconds).unwrap_or(0);
    superblock.set_mkfs_time(seconds);
    superblock.set_write_time(seconds);
    superblock.set_check_time(seconds);
    Ok(())
}

/// Finds the number of groups and of inodes in each that fit the disk, and sets the fields that follow.
fn fit(superblock: &mut Superblock, options: &Mkfs, wanted: &Wanted) -> Result<Geometry> {
    let reserved_ratio = wanted.reserved_blocks as f64 / wanted.blocks.max(1) as f64;
    let ratio = wanted.cluster_ratio;
    let mut clusters_per_group = (wanted.block_size * 8).min((1 << 16) - 8);
    let mut blocks = wanted.blocks;
    superblock.set_r_blocks_count(wanted.reserved_blocks);
    let first = u64::from(superblock.s_first_data_block());
    loop {
        let blocks_per_group = clusters_per_group
            .checked_mul(ratio)
            .ok_or(Error::TooLarge("a group has more blocks than 32 bits count; take smaller clusters"))?;
        let groups = blocks.saturating_sub(first).div_ceil(u64::from(blocks_per_group));
        let groups =
            u32::try_from(groups).map_err(|_| Error::TooLarge("more groups than can be numbered"))?;
        if groups == 0 {
            return Err(Error::TooSmall("no block for a group"));
        }
        superblock.set_blocks_count(blocks);
        superblock.set_s_blocks_per_group(blocks_per_group);
        superblock.set_s_clusters_per_group(clusters_per_group);
        let Some(inodes_per_group) = inodes_per_group(wanted, groups, blocks) else {
            if clusters_per_group < 256 {
                return Err(Error::TooLarge("more inodes than groups can hold"));
            }
            // Smaller groups are more groups.
            clusters_per_group -= 8;
            blocks = wanted.blocks;
            continue;
        };
        superblock.set_s_inodes_per_group(inodes_per_group);
        superblock.set_s_inodes_count(inodes_per_group * groups);
        set_backups(superblock, options, groups);
        reserve_descriptors(superblock, options)?;
        let geometry = Geometry::new(superblock)?;
        let last = extant_ondisk::GroupNumber(groups - 1);
        let overhead = 2
            + u64::from(geometry.inode_table_blocks_per_group)
            + if geometry.has_super(last) {
                1 + u64::from(geometry.descriptor_block_count()) + u64::from(geometry.reserved_gdt_blocks)
            } else {
                0
            };
        if overhead > u64::from(blocks_per_group) {
            return Err(Error::TooLarge("more inodes than groups can hold"));
        }
        let tail = (blocks - first) % u64::from(blocks_per_group);
        if groups == 1 && tail != 0 && tail < overhead {
            return Err(Error::TooSmall("metadata alone fills the disk"));
        }
        if tail == 0 || tail >= overhead + TAIL_MIN_FREE {
            return Ok(geometry);
        }
        if groups == 1 {
            return Err(Error::TooSmall("metadata leaves no room for files"));
        }
        blocks -= tail;
        superblock.set_r_blocks_count((reserved_ratio * blocks as f64) as u64);
    }
}

/// Inodes of each group, filling whole table blocks; `None` if they exceed what a bitmap counts.
fn inodes_per_group(wanted: &Wanted, groups: u32, blocks: u64) -> Option<u32> {
    let (block_size, inode_size) = (wanted.block_size, u32::from(wanted.inode_size));
    let inodes = match wanted.inodes {
        0 => blocks / u64::from((4096 / block_size).max(1)),
        inodes => inodes,
    };
    let inodes = inodes.max(INODES_MIN);
    let mut each = u32::try_from(inodes.div_ceil(u64::from(groups))).ok()?;
    if each > block_size * 8 {
        return None;
    }
    each = each.min((1 << 16) - block_size / inode_size);
    loop {
        let table_blocks = (each * inode_size).div_ceil(block_size);
        let mut full = (table_blocks * block_size / inode_size).max(8) / 8 * 8;
        if u64::from(full) * u64::from(groups) < INODES_MIN {
            full += 8;
        }
        if u64::from(full) * u64::from(groups) <= u64::from(u32::MAX) {
            return Some(full);
        }
        each = each.checked_sub(1)?;
    }
}

/// With `sparse_super2`, which two groups have copies.
fn set_backups(superblock: &mut Superblock, options: &Mkfs, groups: u32) {
    if superblock.compat().contains(CompatFeatures::SPARSE_SUPER2) {
        let count = options.extended.backup_superblocks.unwrap_or(2);
        let first = if count >= 1 && groups > 1 { 1 } else { 0 };
        let last = if count >= 2 && groups > 2 { groups - 1 } else { 0 };
        superblock.set_s_backup_bgs([first, last]);
    }
}

/// Reserves descriptor blocks for growth: to 1024 times the size, or as asked.
fn reserve_descriptors(superblock: &mut Superblock, options: &Mkfs) -> Result<()> {
    if !superblock.compat().contains(CompatFeatures::RESIZE_INODE) {
        superblock.set_s_reserved_gdt_blocks(0);
        return Ok(());
    }
    let blocks = superblock.blocks_count();
    let (per_group, first) =
        (u64::from(superblock.s_blocks_per_group()), u64::from(superblock.s_first_data_block()));
    let per_block = u64::from(superblock.block_size() / u32::from(superblock.desc_size()));
    let descriptor_blocks = |blocks: u64| (blocks - first).div_ceil(per_group).div_ceil(per_block);
    let most = u64::from(u32::MAX);
    let largest = match options.extended.resize_blocks {
        Some(resize) if resize <= blocks => return Err(Error::invalid("size to resize to", resize)),
        Some(resize) => resize.min(most),
        None if blocks < most / 1024 => blocks * 1024,
        None => most,
    };
    let own = descriptor_blocks(blocks);
    let reserved = descriptor_blocks(largest).saturating_sub(own).min(u64::from(superblock.block_size() / 4));
    superblock.set_s_reserved_gdt_blocks(reserved as u16);
    if reserved + own > per_group * 3 / 4 {
        superblock.set_compat(superblock.compat() - CompatFeatures::RESIZE_INODE);
        superblock.set_incompat(superblock.incompat() | IncompatFeatures::META_BG);
        superblock.set_s_reserved_gdt_blocks(0);
    }
    Ok(())
}
