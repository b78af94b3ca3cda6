//! Which features can be turned on and off in place.
//!
//! Source: `update_feature_set` of `misc/tune2fs.c`.

use extant_ondisk::superblock::CHECKSUM_TYPE_CRC32C;
use extant_ondisk::{CompatFeatures, IncompatFeatures, RoCompatFeatures, Superblock};

use crate::error::{Error, Result};

/// Bytes of the fields beyond the first 128 of an inode.
const EXTRA_ISIZE: u16 = 32;

/// Whether there is a feature of that name.
pub(super) fn is_known(name: &str) -> bool {
    CompatFeatures::by_name(name).is_some()
        || IncompatFeatures::by_name(name).is_some()
        || RoCompatFeatures::by_name(name).is_some()
}

/// Turns a feature on, or off if `^` comes before it. One that is as it is to be stays.
pub(super) fn edit(superblock: &mut Superblock, word: &str) -> Result<()> {
    let (name, on) = word.strip_prefix('^').map_or((word, true), |name| (name, false));
    if let Some(feature) = CompatFeatures::by_name(name) {
        return edit_compat(superblock, feature, on);
    }
    if let Some(feature) = IncompatFeatures::by_name(name) {
        return edit_incompat(superblock, feature, on);
    }
    RoCompatFeatures::by_name(name).map_or(Ok(()), |feature| edit_ro_compat(superblock, feature, on))
}

/// Refuses features that do not go together.
///
/// # Errors
/// `Unsupported`.
pub(super) fn check(superblock: &Superblock) -> Result<()> {
    let (compat, incompat) = (superblock.compat(), superblock.incompat());
    if incompat.contains(IncompatFeatures::BIT64) && !incompat.contains(IncompatFeatures::EXTENTS) {
        return Err(Error::Unsupported(
            "64bit without extents, which have the block numbers; `-O extent,64bit` turns both on",
        ));
    }
    if compat.contains(CompatFeatures::HAS_JOURNAL) {
        return Ok(());
    }
    if compat.contains(CompatFeatures::FAST_COMMIT) {
        return Err(Error::Unsupported(
            "fast_commit without a journal; `-O has_journal,fast_commit` makes one",
        ));
    }
    if compat.contains(CompatFeatures::ORPHAN_FILE) {
        return Err(Error::Unsupported(
            "orphan_file without a journal; turn both on (`-O has_journal,orphan_file`) or off (`-O ^orphan_file,^has_journal`)",
        ));
    }
    Ok(())
}

fn edit_compat(superblock: &mut Superblock, feature: CompatFeatures, on: bool) -> Result<()> {
    let mut compat = superblock.compat();
    if compat.contains(feature) == on {
        return Ok(());
    }
    match (feature, on) {
        (CompatFeatures::FAST_COMMIT | CompatFeatures::ORPHAN_FILE, _)
        | (CompatFeatures::EXT_ATTR | CompatFeatures::STABLE_INODES | CompatFeatures::HAS_JOURNAL, true)
        | (CompatFeatures::DIR_INDEX, false) => {}
        // They are of no use without.
        (CompatFeatures::HAS_JOURNAL, false) => compat -= CompatFeatures::FAST_COMMIT,
        (CompatFeatures::DIR_INDEX, true) => {
            if superblock.s_hash_seed() == [0; 4] {
                return Err(Error::Unsupported(
                    "dir_index on a disk without a hash seed; `tune2fs -O dir_index` makes one",
                ));
            }
        }
        _ => {
            return Err(Error::Unsupported(
                "changing this feature in place; make the disk anew with `mkfs -O` and copy",
            ));
        }
    }
    compat.set(feature, on);
    superblock.set_compat(compat);
    Ok(())
}

fn edit_incompat(superblock: &mut Superblock, feature: IncompatFeatures, on: bool) -> Result<()> {
    let mut incompat = superblock.incompat();
    if incompat.contains(feature) == on {
        return Ok(());
    }
    match (feature, on) {
        (IncompatFeatures::CSUM_SEED, true) => {
            if !superblock.has_metadata_csum() {
                return Err(Error::Unsupported(
                    "metadata_csum_seed without metadata_csum; turn that on first",
                ));
            }
            superblock.set_s_checksum_seed(superblock.checksum_seed());
        }
        (IncompatFeatures::CSUM_SEED, false) => superblock.set_s_checksum_seed(0),
        (IncompatFeatures::LARGEDIR | IncompatFeatures::BIT64 | IncompatFeatures::MMP, _)
        | (IncompatFeatures::EXTENTS, true) => {}
        _ => {
            return Err(Error::Unsupported(
                "changing this feature in place; make the disk anew with `mkfs -O` and copy",
            ));
        }
    }
    incompat.set(feature, on);
    superblock.set_incompat(incompat);
    Ok(())
}

fn edit_ro_compat(superblock: &mut Superblock, feature: RoCompatFeatures, on: bool) -> Result<()> {
    let mut ro_compat = superblock.ro_compat();
    if ro_compat.contains(feature) == on {
        return Ok(());
    }
    match (feature, on) {
        (RoCompatFeatures::METADATA_CSUM, true) => {
            // It takes the place of the other.
            ro_compat -= RoCompatFeatures::GDT_CSUM;
            superblock.set_s_checksum_type(CHECKSUM_TYPE_CRC32C);
        }
        (RoCompatFeatures::METADATA_CSUM, false) => {
            superblock.set_incompat(superblock.incompat() - IncompatFeatures::CSUM_SEED);
            superblock.set_s_checksum_seed(0);
            superblock.set_s_checksum_type(0);
        }
        (RoCompatFeatures::GDT_CSUM, true) => {
            if superblock.has_metadata_csum() {
                return Err(Error::Unsupported("uninit_bg beside metadata_csum, which does the same"));
            }
        }
        (RoCompatFeatures::GDT_CSUM, false) => superblock.set_s_checksum_type(0),
        (RoCompatFeatures::EXTRA_ISIZE, true) => {
            if superblock.inode_size() < 256 {
                return Err(Error::Unsupported(
                    "extra_isize with inodes of 128 bytes; make the disk anew with `mkfs -I 256` and copy",
                ));
            }
            superblock.set_s_want_extra_isize(EXTRA_ISIZE);
            superblock.set_s_min_extra_isize(EXTRA_ISIZE);
        }
        (RoCompatFeatures::LARGE_FILE | RoCompatFeatures::HUGE_FILE | RoCompatFeatures::DIR_NLINK, _)
        | (RoCompatFeatures::VERITY | RoCompatFeatures::SPARSE_SUPER, true)
        | (RoCompatFeatures::EXTRA_ISIZE, false) => {}
        (RoCompatFeatures::PROJECT, true) if superblock.inode_size() < 256 => {
            return Err(Error::Unsupported(
                "project with inodes of 128 bytes; make the disk anew with `mkfs -I 256` and copy",
            ));
        }
        (RoCompatFeatures::QUOTA, true) if superblock.incompat().contains(IncompatFeatures::EA_INODE) => {
            return Err(Error::Unsupported(
                "quota on a disk with ea_inode, where usage of values is not counted; `tune2fs -O` counts it",
            ));
        }
        // With their quota files.
        (RoCompatFeatures::PROJECT | RoCompatFeatures::QUOTA, _) => {}
        (RoCompatFeatures::SPARSE_SUPER, false) => {
            return Err(Error::Unsupported(
                "turning sparse_super off, which needs blocks in every group; make the disk anew with `mkfs -O ^sparse_super` and copy",
            ));
        }
        _ => {
            return Err(Error::Unsupported(
                "changing this feature in place; make the disk anew with `mkfs -O` and copy",
            ));
        }
    }
    ro_compat.set(feature, on);
    superblock.set_ro_compat(ro_compat);
    Ok(())
}
