//! Usage of users, groups and projects: what inodes take against what the quota files say.
//!
//! Leaves out: disks with `ea_inode`, where values count for each inode that has them; limits; the lists of free entries.
//!
//! Source: `quota_compare_and_update` of `lib/support/mkquota.c`.

use std::collections::{BTreeMap, BTreeSet};

use extant_ondisk::quota::{self, QUOTA_BLOCK_SIZE};
use extant_ondisk::{Dqblk, IncompatFeatures, InodeNumber, QuotaType, RawInode, RoCompatFeatures, Structure};
use extant_rt::Arc;

use super::Checker;
use crate::error::{Location, Result};

/// The most of a quota file that is read.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Usage as counted.
pub(super) type Usage = BTreeMap<(QuotaType, u32), Used>;

/// Space in bytes, and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    space: u64,
    inodes: u64,
}

impl Checker<'_> {
    /// Whether usage is counted: with the disk's quota files, of which each names an inode.
    fn quota_files(&self) -> Vec<(QuotaType, InodeNumber)> {
        let superblock = &self.superblock;
        let counts = superblock.ro_compat().contains(RoCompatFeatures::QUOTA)
            && !superblock.incompat().contains(IncompatFeatures::EA_INODE);
        let inodes =
            [superblock.s_usr_quota_inum(), superblock.s_grp_quota_inum(), superblock.s_prj_quota_inum()];
        let named = QuotaType::ALL.into_iter().zip(inodes.map(InodeNumber));
        named.filter(|(_, inode)| counts && inode.0 != 0).collect()
    }

    /// Counts an inode that is in use.
    pub(super) fn count_usage(&mut self, number: InodeNumber, inode: &RawInode) {
        if self.is_hidden(number) {
            return;
        }
        for (quota_type, _) in self.quota_files() {
            let id = match quota_type {
                QuotaType::User => inode.uid(),
                QuotaType::Group => inode.gid(),
                QuotaType::Project => inode.project_id(),
            };
            let used = self.usage.entry((quota_type, id)).or_default();
            used.space = used.space.saturating_add(inode.blocks_bytes(self.geometry.block_size));
            used.inodes += 1;
        }
    }

    /// Compares what was counted with what the quota files say.
    pub(super) fn check_quotas(&mut self) -> Result<()> {
        for (quota_type, number) in self.quota_files() {
            self.check_quota_file(quota_type, number)?;
        }
        Ok(())
    }

    fn check_quota_file(&mut self, quota_type: QuotaType, number: InodeNumber) -> Result<()> {
        let location = Location::of(Structure::QuotaFile).inode(number);
        let Some(inode) = self.read_inode(number)?.filter(|inode| inode.links_count() > 0) else {
            self.findings.add(location, "the superblock names it as a quota file, but it is free");
            return Ok(());
        };
        if inode.size() > FILE_BYTES_MAX {
            self.findings.add(location, "longer than 64 MiB, and not checked");
            return Ok(());
        }
        let per_block = self.geometry.block_size / QUOTA_BLOCK_SIZE as u32;
        let count = inode.size().div_ceil(u64::from(self.geometry.block_size)) as u32;
        let mut blocks: Vec<Option<Arc<[u8]>>> = Vec::new();
        let places = self.blocks_of_file(&inode, count)?;
        for (at, block) in places.iter().enumerate() {
            if let Some(next) = block {
                self.read_window(*next, places.iter().skip(at).copied().flatten());
            }
            blocks.push(block.map(|block| self.read(block, location)).transpose()?);
        }
        let read = |block: u32| {
            let bytes = blocks.get((block / per_block) as usize)?.as_ref()?;
            let at = (block % per_block) as usize * QUOTA_BLOCK_SIZE;
            bytes.get(at..at + QUOTA_BLOCK_SIZE)?.try_into().ok()
        };
        let places = match quota::entries(read, quota_type) {
            Ok(places) => places,
            Err(error) => {
                self.findings.add_format(location, error);
                return Ok(());
            }
        };
        let counted = self.usage.keys().filter(|(counted, _)| *counted == quota_type).map(|(_, id)| *id);
        for id in counted.chain(places.keys().copied()).collect::<BTreeSet<u32>>() {
            let entry = places
                .get(&id)
                .and_then(|place| Dqblk::read(&read(place.block)?, place.slot))
                .unwrap_or(Dqblk::new(id));
            let used = self.usage.get(&(quota_type, id)).copied().unwrap_or_default();
            let stated = Used { space: entry.curspace, inodes: entry.curinodes };
            if stated != used {
                let what = format!(
                    "of {} {id} it says {} bytes and {} inodes, but {} bytes and {} inodes are in use",
                    quota_type.name(),
                    stated.space,
                    stated.inodes,
                    used.space,
                    used.inodes
                );
                self.findings.add(location, what);
            }
        }
        Ok(())
    }
}
