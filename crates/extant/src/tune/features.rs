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

fn edit_compat(superblock: &mut Superblock, feature: CompatFeatures, on: bool) -> Result<()> {
    let mut compat = superblock.compat();
    if compat.contains(feature) == on {
        return Ok(());
    }
    let has_journal = compat.contains(CompatFeatures::HAS_JOURNAL);
    match (feature, on) {
        (CompatFeatures::FAST_COMMIT, true) if !has_journal => {
            return Err(Error::Unsupported("fast_commit without a journal"));
        }
        (CompatFeatures::FAST_COMMIT, _)
        | (CompatFeatures::EXT_ATTR | CompatFeatures::STABLE_INODES, true) => {}
        (CompatFeatures::DIR_INDEX, true) => {
            if superblock.s_hash_seed() == [0; 4] {
                return Err(Error::Unsupported(
                    "dir_index on a disk without a hash seed; `tune2fs -O dir_index` makes one",
                ));
            }
        }
        (CompatFeatures::DIR_INDEX, false) => {
            return Err(Error::Unsupported(
                "turning dir_index off; `tune2fs -O ^dir_index` and then `e2fsck -fD` do it",
            ));
        }
        (CompatFeatures::HAS_JOURNAL, _) => {
            return Err(Error::Unsupported(
                "adding or removing a journal; `tune2fs -j` and `tune2fs -O ^has_journal` do it",
            ));
        }
        (CompatFeatures::ORPHAN_FILE, _) => {
            return Err(Error::Unsupported(
                "adding or removing an orphan file; `tune2fs -O orphan_file` of e2fsprogs 1.47 does it",
            ));
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
        (IncompatFeatures::LARGEDIR, true) => {}
        (IncompatFeatures::BIT64, _) => {
            return Err(Error::Unsupported(
                "changing 64bit, which moves the descriptors; `resize2fs -b` and `resize2fs -s` do it",
            ));
        }
        (IncompatFeatures::LARGEDIR, false) => {
            return Err(Error::Unsupported(
                "turning large_dir off: directories may need it; copy the disk to one without",
            ));
        }
        (IncompatFeatures::MMP, _) => {
            return Err(Error::Unsupported("changing mmp; `tune2fs -O mmp` and `tune2fs -O ^mmp` do it"));
        }
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
        (
            RoCompatFeatures::LARGE_FILE
            | RoCompatFeatures::HUGE_FILE
            | RoCompatFeatures::DIR_NLINK
            | RoCompatFeatures::VERITY,
            true,
        ) => {}
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
        (RoCompatFeatures::SPARSE_SUPER, _) => {
            return Err(Error::Unsupported(
                "changing sparse_super, which frees blocks; `tune2fs -O sparse_super` and `e2fsck -f` do it",
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
