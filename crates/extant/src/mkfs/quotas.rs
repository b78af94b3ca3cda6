//! The quota files of a new file system: what root directory and lost+found take.
//!
//! Source: `create_quota_inodes` of `misc/mke2fs.c`, `quota_type2inum`.

use extant_ondisk::quota::file_with;
use extant_ondisk::{Dqblk, InodeNumber, QuotaType, RoCompatFeatures};

use super::features::Features;
use super::{Error, Result};

/// Which quota files there are, of those that `-E quotatype` names.
pub(super) fn types(features: &Features, named: Option<&[QuotaType]>) -> Result<Vec<QuotaType>> {
    let has_projects = features.ro_compat.contains(RoCompatFeatures::PROJECT);
    if !features.ro_compat.contains(RoCompatFeatures::QUOTA) {
        return Ok(Vec::new());
    }
    let named = named.unwrap_or(&[QuotaType::User, QuotaType::Group]);
    if named.contains(&QuotaType::Project) && !has_projects {
        return Err(Error::Conflict("quotas of projects need the feature project"));
    }
    let is_made = |quota_type: &QuotaType| match quota_type {
        QuotaType::Project => has_projects,
        _ => named.contains(quota_type),
    };
    Ok(QuotaType::ALL.into_iter().filter(is_made).collect())
}

/// The number of a quota file's inode.
pub(super) fn inode_of(quota_type: QuotaType) -> InodeNumber {
    match quota_type {
        QuotaType::User => InodeNumber(3),
        QuotaType::Group => InodeNumber(4),
        QuotaType::Project => InodeNumber(12),
    }
}

/// The bytes of a quota file. `taken` has the owner, the group and the bytes of each inode.
pub(super) fn bytes_of(quota_type: QuotaType, taken: &[((u32, u32), u64)]) -> Result<Vec<u8>> {
    let mut entries: Vec<Dqblk> = Vec::new();
    for ((uid, gid), space) in taken {
        let id = match quota_type {
            QuotaType::User => *uid,
            QuotaType::Group => *gid,
            QuotaType::Project => 0,
        };
        let at = entries.iter().position(|entry| entry.id == id).unwrap_or_else(|| {
            entries.push(Dqblk::new(id));
            entries.len() - 1
        });
        entries[at].curspace += space;
        entries[at].curinodes += 1;
    }
    Ok(file_with(quota_type, &entries)?)
}
