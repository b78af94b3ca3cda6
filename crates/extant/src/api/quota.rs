//! Quotas: what users, groups and projects use, and their limits.

use extant_ondisk::QuotaType;

use super::{File, Filesystem};
use crate::error::Result;
use crate::metadata::Statistics;
use crate::metadata::quota::values::{Quota, QuotaGrace, SetQuota};

impl Filesystem {
    /// The types of which the disk counts usage, in the order of their numbers.
    #[must_use]
    pub fn quota_types(&self) -> Vec<QuotaType> {
        self.volume().quota_types()
    }

    /// Whether the limits of a type are in force ([`Mount::enforce_quotas`](crate::Mount::enforce_quotas)).
    #[must_use]
    pub fn is_quota_enforced(&self, quota_type: QuotaType) -> bool {
        self.volume().quotas.as_ref().is_some_and(|quotas| quotas.is_enforced(quota_type))
    }

    /// What all users, groups or projects use and may use, by id. Blocks of delayed writes count once they are written back.
    ///
    /// # Errors
    /// `Unsupported` if the disk does not count this type; `Corrupt`; `Io`.
    pub fn quotas(&self, quota_type: QuotaType) -> Result<Vec<Quota>> {
        self.finish_operation(self.volume().list_quotas(quota_type))
    }

    /// What one of them uses and may use.
    ///
    /// # Errors
    /// As [`Filesystem::quotas`].
    pub fn quota(&self, quota_type: QuotaType, id: u32) -> Result<Quota> {
        let all = self.quotas(quota_type)?;
        Ok(all.into_iter().find(|quota| quota.id == id).unwrap_or_else(|| Quota::unused(id)))
    }

    /// Sets limits of a user, group or project, as `setquota` does, durably. If limits of the type are in force, these are too when this
    /// returns; what is used already stays.
    ///
    /// # Errors
    /// `Unsupported` if the disk does not count this type; `OutOfRange` for a limit of 8 EiB or more; `NoSpace`; `ReadOnly`; `Io`.
    pub fn set_quota(&self, quota_type: QuotaType, id: u32, set: &SetQuota) -> Result<()> {
        // What is delayed counts then.
        self.sync()?;
        self.retry_on_no_space(|volume| volume.set_quota(quota_type, id, set))
    }

    /// For how long soft limits of a type may be exceeded.
    ///
    /// # Errors
    /// As [`Filesystem::quotas`].
    pub fn quota_grace(&self, quota_type: QuotaType) -> Result<QuotaGrace> {
        self.finish_operation(self.volume().quota_grace(quota_type))
    }

    /// Sets for how long soft limits of a type may be exceeded that are not exceeded yet, durably.
    ///
    /// # Errors
    /// `Unsupported` if the disk does not count this type; `ReadOnly`; `Io`.
    pub fn set_quota_grace(&self, quota_type: QuotaType, grace: QuotaGrace) -> Result<()> {
        self.finish_operation(self.volume().set_quota_grace(quota_type, grace))
    }
}

impl File {
    /// How full the file system is where this is: in a directory whose entries inherit a project, and if limits of projects are in force,
    /// as full as the project's limits are.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.fs().volume().statistics_at(self.inode())
    }
}
