//! Limits of users, groups and projects: read, set and shown.
//!
//! Leaves out: what limits refuse ([`crate::metadata::quota`]).
//!
//! Locks: `QUOTA`, then an update.
//!
//! Source: `do_set_dqblk`, `dquot_set_dqinfo` of `fs/quota/dquot.c`, `ext4_statfs_project` of `fs/ext4/super.c`.

use extant_ondisk::quota::{LIMIT_UNIT, QUOTA_BLOCK_SIZE};
use extant_ondisk::{Dqblk, InodeFlags, QuotaType, Structure};

use crate::error::{Error, Location, Result};
use crate::incore::inode::Inode;
use crate::mapping::BlockMap;
use crate::metadata::Statistics;
use crate::metadata::quota::values::{Quota, QuotaGrace, SetQuota};
use crate::metadata::quota::{ChangedLimits, QuotaFile, Quotas, quota_inodes};
use crate::metadata::update::Credits;

impl BlockMap {
    /// The types of which the disk counts usage.
    pub(crate) fn quota_types(&self) -> Vec<QuotaType> {
        quota_inodes(&self.superblock.lock()).into_iter().map(|(quota_type, _)| quota_type).collect()
    }

    /// Calls `read` with the quotas and the file of a type, which are read now if the disk is opened for reading.
    fn with_quota_file<T>(
        &self,
        quota_type: QuotaType,
        read: impl FnOnce(&Quotas, &QuotaFile) -> Result<T>,
    ) -> Result<T> {
        let read_now;
        let quotas = match &self.quotas {
            Some(quotas) => Some(quotas),
            None => {
                read_now = self.read_quotas([false; 3])?;
                read_now.as_ref()
            }
        };
        match quotas.and_then(|quotas| Some((quotas, quotas.file(quota_type)?))) {
            Some((quotas, file)) => read(quotas, file),
            None => Err(Error::Unsupported("quotas of a type that the disk does not count")),
        }
    }

    /// What all ids of a type use and may use, by id.
    ///
    /// # Errors
    /// `Unsupported` if the disk does not count it; `Corrupt`; `Io`.
    pub(crate) fn list_quotas(&self, quota_type: QuotaType) -> Result<Vec<Quota>> {
        self.with_quota_file(quota_type, |quotas, file| {
            // While it is open nothing is frozen. One that only reads counts as the disk does.
            let update = if self.is_read_only() { None } else { Some(self.begin(Credits::new(0, 0))?) };
            let entries = quotas.current_entries(file);
            drop(update);
            Ok(entries.values().map(Quota::of).collect())
        })
    }

    /// Sets limits of an id, and makes them durable and, if the type's are, in force.
    ///
    /// # Errors
    /// `Unsupported` if the disk does not count it; `OutOfRange`; `NoSpace`; `ReadOnly`; the journal's; `Corrupt`; `Io`.
    ///
    /// # Locks
    /// Takes `QUOTA`.
    pub(crate) fn set_quota(&self, quota_type: QuotaType, id: u32, set: &SetQuota) -> Result<()> {
        set.check()?;
        let journal = self.writable()?;
        self.with_quota_file(quota_type, |quotas, file| {
            let location = Location::of(Structure::QuotaFile).inode(file.inode);
            self.add_entry(quotas, file, id)?;
            let mut update = self.begin(Credits::new(1, 0))?;
            let (buffer, at, slot) = file.entry(id).ok_or(location.corrupt("no entry"))?;
            update.modify_buffer(&buffer, |bytes| {
                let block = bytes.get_mut(at..at + QUOTA_BLOCK_SIZE).unwrap_or_default();
                let mut entry = Dqblk::read(block, slot).unwrap_or(Dqblk::new(id));
                set.apply(&mut entry);
                entry.write(block, slot);
            });
            quotas.note_changed_limits(ChangedLimits {
                dquot: (quota_type, id),
                keeps_space_time: set.keeps_space_time(),
                keeps_inode_time: set.keeps_inode_time(),
            });
            update.finish();
            Ok(())
        })?;
        Ok(journal.commit_running()?)
    }

    /// For how long soft limits of a type may be exceeded.
    ///
    /// # Errors
    /// As [`BlockMap::list_quotas`].
    pub(crate) fn quota_grace(&self, quota_type: QuotaType) -> Result<QuotaGrace> {
        self.with_quota_file(quota_type, |_, file| Ok(file.grace()))
    }

    /// Sets it, durably.
    ///
    /// # Errors
    /// As [`BlockMap::set_quota`].
    ///
    /// # Locks
    /// Takes `QUOTA`.
    pub(crate) fn set_quota_grace(&self, quota_type: QuotaType, grace: QuotaGrace) -> Result<()> {
        let journal = self.writable()?;
        self.with_quota_file(quota_type, |quotas, file| {
            let _structure = quotas.structure.lock();
            let location = Location::of(Structure::QuotaFile).inode(file.inode);
            let (buffer, at) = file.buffer(0).ok_or(location.corrupt("no header"))?;
            let mut update = self.begin(Credits::new(1, 0))?;
            update.modify_buffer(&buffer, |bytes| {
                grace.write(bytes.get_mut(at..at + QUOTA_BLOCK_SIZE).unwrap_or_default());
            });
            quotas.set_grace(quota_type, grace);
            update.finish();
            Ok(())
        })?;
        Ok(journal.commit_running()?)
    }

    /// How full the file system is for what is made in a directory: as full as the limits of the project are that it inherits.
    pub(crate) fn statistics_at(&self, inode: &Inode) -> Statistics {
        let whole = self.statistics();
        let project = {
            let raw = inode.raw();
            raw.flags().contains(InodeFlags::PROJINHERIT).then(|| raw.project_id())
        };
        let limits =
            project.and_then(|project| self.quotas.as_ref()?.limits_of((QuotaType::Project, project)));
        let Some(entry) = limits else { return whole };
        let nearest = |limits: [u64; 2]| limits.into_iter().filter(|limit| *limit > 0).min();
        let mut shown = whole;
        let block_size = u64::from(whole.block_size);
        let space = nearest([entry.bsoftlimit, entry.bhardlimit]);
        let blocks =
            space.map(|units| units.saturating_mul(LIMIT_UNIT) / block_size).filter(|blocks| *blocks > 0);
        if let Some(blocks) = blocks {
            let left = blocks.saturating_sub(entry.curspace / block_size);
            shown.blocks = shown.blocks.min(blocks);
            shown.free_blocks = shown.free_blocks.min(left);
            shown.available_blocks = shown.available_blocks.min(left);
        }
        if let Some(inodes) = nearest([entry.isoftlimit, entry.ihardlimit]) {
            let left = inodes.saturating_sub(entry.curinodes);
            shown.inodes = shown.inodes.min(u32::try_from(inodes).unwrap_or(u32::MAX));
            shown.free_inodes = shown.free_inodes.min(u32::try_from(left).unwrap_or(u32::MAX));
        }
        shown
    }
}
