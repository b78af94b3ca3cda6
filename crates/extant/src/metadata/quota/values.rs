//! Usage, limits and grace times as the API has them: in bytes, inodes and seconds.

use extant_ondisk::Dqblk;
pub use extant_ondisk::quota::Grace as QuotaGrace;
use extant_ondisk::quota::LIMIT_UNIT;

use crate::error::{Error, Result};

/// The largest limit, of bytes or inodes (`dqi_max_spc_limit`).
const LIMIT_MAX: u64 = i64::MAX as u64;

/// What a user, group or project uses and may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quota {
    /// Its number.
    pub id: u32,
    /// Space in use.
    pub space_bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Its limits.
    pub limits: QuotaLimits,
    /// When the grace time of space ends, in seconds after 1970, if the soft limit is exceeded.
    pub space_grace_end_s: Option<u64>,
    /// When the grace time of inodes ends, likewise.
    pub inode_grace_end_s: Option<u64>,
}

/// Limits. 0 is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// Space that may be exceeded for the grace time.
    pub space_soft_bytes: u64,
    /// Space that may not be exceeded.
    pub space_hard_bytes: u64,
    /// Inodes that may be exceeded for the grace time.
    pub inodes_soft: u64,
    /// Inodes that may not be exceeded.
    pub inodes_hard: u64,
}

/// The limits of a user, group or project to change; the others stay. Space is rounded up to KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetQuota {
    /// Space that may be exceeded for the grace time; 0 for no limit.
    pub space_soft_bytes: Option<u64>,
    /// Space that may not be exceeded, likewise.
    pub space_hard_bytes: Option<u64>,
    /// Inodes that may be exceeded for the grace time, likewise.
    pub inodes_soft: Option<u64>,
    /// Inodes that may not be exceeded, likewise.
    pub inodes_hard: Option<u64>,
    /// When the grace time of space ends, in seconds after 1970, if the soft limit is exceeded. Otherwise it begins now.
    pub space_grace_end_s: Option<u64>,
    /// When the grace time of inodes ends, likewise.
    pub inode_grace_end_s: Option<u64>,
}

impl Quota {
    pub(crate) fn unused(id: u32) -> Self {
        Self { id, ..Self::default() }
    }

    pub(crate) fn of(entry: &Dqblk) -> Self {
        let bytes = |units: u64| units.saturating_mul(LIMIT_UNIT);
        Self {
            id: entry.id,
            space_bytes: entry.curspace,
            inodes: entry.curinodes,
            limits: QuotaLimits {
                space_soft_bytes: bytes(entry.bsoftlimit),
                space_hard_bytes: bytes(entry.bhardlimit),
                inodes_soft: entry.isoftlimit,
                inodes_hard: entry.ihardlimit,
            },
            space_grace_end_s: Some(entry.btime).filter(|time| *time != 0),
            inode_grace_end_s: Some(entry.itime).filter(|time| *time != 0),
        }
    }
}

impl SetQuota {
    /// Checks that the disk can have them.
    ///
    /// # Errors
    /// `OutOfRange`.
    pub(crate) fn check(&self) -> Result<()> {
        let limits = [self.space_soft_bytes, self.space_hard_bytes, self.inodes_soft, self.inodes_hard];
        match limits.into_iter().flatten().all(|limit| limit <= LIMIT_MAX) {
            true => Ok(()),
            false => Err(Error::OutOfRange { what: "a limit", min: 0, max: LIMIT_MAX }),
        }
    }

    /// Whether the end of the grace time of space is what the entry says.
    pub(crate) fn keeps_space_time(&self) -> bool {
        let sets_limits = self.space_soft_bytes.is_some() || self.space_hard_bytes.is_some();
        self.space_grace_end_s.is_some() || !sets_limits
    }

    /// The same of inodes.
    pub(crate) fn keeps_inode_time(&self) -> bool {
        let sets_limits = self.inodes_soft.is_some() || self.inodes_hard.is_some();
        self.inode_grace_end_s.is_some() || !sets_limits
    }

    pub(crate) fn apply(&self, entry: &mut Dqblk) {
        let units = |bytes: Option<u64>, old: u64| bytes.map_or(old, |bytes| bytes.div_ceil(LIMIT_UNIT));
        entry.bsoftlimit = units(self.space_soft_bytes, entry.bsoftlimit);
        entry.bhardlimit = units(self.space_hard_bytes, entry.bhardlimit);
        entry.isoftlimit = self.inodes_soft.unwrap_or(entry.isoftlimit);
        entry.ihardlimit = self.inodes_hard.unwrap_or(entry.ihardlimit);
        entry.btime = self.space_grace_end_s.unwrap_or(entry.btime);
        entry.itime = self.inode_grace_end_s.unwrap_or(entry.itime);
    }
}
