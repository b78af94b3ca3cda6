//! Which features a mount accepts, for reading and for writing.
//!
//! Source: `ext4_feature_set_ok` of `fs/ext4/super.c`.

use extant_ondisk::{IncompatFeatures, QuotaType, RoCompatFeatures, Superblock, casefold};

use crate::error::{Error, Result};
use crate::metadata::quota::quota_inodes;

/// Features without which the disk can be neither read nor written here.
pub(crate) const INCOMPAT_READ: IncompatFeatures = IncompatFeatures::FILETYPE
    .union(IncompatFeatures::RECOVER)
    .union(IncompatFeatures::META_BG)
    .union(IncompatFeatures::EXTENTS)
    .union(IncompatFeatures::BIT64)
    .union(IncompatFeatures::MMP)
    .union(IncompatFeatures::FLEX_BG)
    .union(IncompatFeatures::CSUM_SEED)
    .union(IncompatFeatures::LARGEDIR)
    .union(IncompatFeatures::INLINE_DATA)
    .union(IncompatFeatures::EA_INODE)
    .union(IncompatFeatures::ENCRYPT.intersection(built_with(cfg!(feature = "encrypt"))))
    .union(IncompatFeatures::CASEFOLD.intersection(built_with(cfg!(feature = "casefold"))));

/// All features, or none if what they need is not built in.
const fn built_with(it: bool) -> IncompatFeatures {
    if it { IncompatFeatures::all() } else { IncompatFeatures::empty() }
}

/// Incompatible features with which a disk can only be read.
pub(crate) const INCOMPAT_READ_ONLY: IncompatFeatures =
    IncompatFeatures::ENCRYPT.union(IncompatFeatures::CASEFOLD);

/// Read-only-compatible features that can be written.
pub(crate) const RO_COMPAT_WRITE: RoCompatFeatures = RoCompatFeatures::SPARSE_SUPER
    .union(RoCompatFeatures::LARGE_FILE)
    .union(RoCompatFeatures::HUGE_FILE)
    .union(RoCompatFeatures::GDT_CSUM)
    .union(RoCompatFeatures::DIR_NLINK)
    .union(RoCompatFeatures::EXTRA_ISIZE)
    .union(RoCompatFeatures::BIGALLOC)
    .union(RoCompatFeatures::METADATA_CSUM)
    .union(RoCompatFeatures::VERITY)
    .union(RoCompatFeatures::QUOTA)
    .union(RoCompatFeatures::PROJECT)
    .union(RoCompatFeatures::ORPHAN_PRESENT);

/// Refuses a disk with features that cannot be read, or cannot be written if it is to be.
///
/// # Errors
/// `Incompatible`, `Unsupported`, `ReadOnlyFeatures`.
pub(super) fn check_features(superblock: &Superblock, read_only: bool) -> Result<()> {
    let unknown = superblock.incompat() - INCOMPAT_READ;
    if !unknown.is_empty() {
        return Err(Error::Incompatible(list(unknown.all_names())));
    }
    let folds = superblock.incompat().contains(IncompatFeatures::CASEFOLD);
    if folds && superblock.s_encoding() != casefold::ENCODING_UTF8_12_1 {
        return Err(Error::Unsupported("an unknown encoding of names"));
    }
    if read_only {
        return Ok(());
    }
    let incompat = superblock.incompat() & INCOMPAT_READ_ONLY;
    let ro_compat = superblock.ro_compat() - RO_COMPAT_WRITE;
    let counts = superblock.ro_compat().contains(RoCompatFeatures::QUOTA);
    if counts && superblock.incompat().contains(IncompatFeatures::EA_INODE) {
        // Usage of values in inodes of their own is not counted.
        return Err(Error::ReadOnlyFeatures("quota and ea_inode together".to_owned()));
    }
    let has_clusters = superblock.ro_compat().contains(RoCompatFeatures::BIGALLOC);
    if has_clusters && !superblock.incompat().contains(IncompatFeatures::EXTENTS) {
        return Err(Error::ReadOnlyFeatures("bigalloc without extent".to_owned()));
    }
    if !superblock.blocks_count().is_multiple_of(u64::from(superblock.cluster_ratio())) {
        return Err(Error::ReadOnlyFeatures("bigalloc with a part of a cluster at the end".to_owned()));
    }
    if incompat.is_empty() && ro_compat.is_empty() {
        return Ok(());
    }
    Err(Error::ReadOnlyFeatures(list(incompat.all_names().chain(ro_compat.all_names()))))
}

/// Checks that the disk counts usage of the types whose limits are to be in force.
///
/// Source: `ext4_check_quota_consistency`, which leaves other disks to the tools of quotas.
///
/// # Errors
/// `Unsupported`.
pub(super) fn check_enforced_quotas(superblock: &Superblock, enforced: [bool; 3]) -> Result<()> {
    let counted = quota_inodes(superblock);
    let is_counted = |quota_type: &QuotaType| counted.iter().any(|(counted, _)| counted == quota_type);
    match QuotaType::ALL.iter().find(|quota_type| enforced[**quota_type as usize] && !is_counted(quota_type))
    {
        Some(QuotaType::User) => {
            Err(Error::Unsupported("limits of users on a disk that does not count them (tune -O quota)"))
        }
        Some(QuotaType::Group) => {
            Err(Error::Unsupported("limits of groups on a disk that does not count them (tune -O quota)"))
        }
        Some(QuotaType::Project) => Err(Error::Unsupported(
            "limits of projects on a disk that does not count them (tune -O quota,project)",
        )),
        None => Ok(()),
    }
}

fn list(names: impl Iterator<Item = String>) -> String {
    names.collect::<Vec<_>>().join(", ")
}
