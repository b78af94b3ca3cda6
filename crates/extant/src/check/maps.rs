//! The map of an inode: the common part of extent trees and of block numbers.

use extant_ondisk::{
    FileType, FsBlock, InodeFlags, InodeNumber, RawInode, RoCompatFeatures, Structure, inode,
};

use super::Checker;
use crate::error::{Location, Result};

/// Blocks of a directory that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The first one's place in the directory.
    pub(super) logical: u64,
    pub(super) start: FsBlock,
    pub(super) len: u64,
}

impl Run {
    fn is_continued_by(&self, next: &Self) -> bool {
        self.logical + self.len == next.logical && self.start.0 + self.len == next.start.0
    }
}

/// The result of checking an inode's map.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mapped {
    /// Clusters in use, those of the map itself included.
    pub(super) blocks: u64,
    /// The last block of the file that is mapped.
    pub(super) last: Option<u64>,
    /// The last one that is not marked as unwritten.
    pub(super) last_written: Option<u64>,
    /// The block of the file's first one.
    pub(super) first_block: Option<FsBlock>,
    /// No error was found in it.
    pub(super) sound: bool,
}

/// The walk over one inode's map.
pub(super) struct Walk<'r> {
    pub(super) number: InodeNumber,
    pub(super) generation: u32,
    /// Where the runs go, of a directory.
    pub(super) runs: Option<&'r mut Vec<Run>>,
    pub(super) mapped: Mapped,
    /// The cluster of the last block, which the next run may share.
    last_cluster: Option<u64>,
}

impl Checker<'_> {
    /// Claims all blocks of an inode's map. The runs of a directory go to `runs`.
    pub(super) fn map(
        &mut self,
        number: InodeNumber,
        inode: &RawInode,
        is_directory: bool,
        runs: &mut Vec<Run>,
    ) -> Result<Mapped> {
        let findings = self.findings.count();
        let mut walk = Walk {
            number,
            generation: inode.generation(),
            runs: is_directory.then_some(runs),
            mapped: Mapped::default(),
            last_cluster: None,
        };
        if has_map(inode) && !self.is_inline(inode) {
            if inode.flags().contains(InodeFlags::EXTENTS) {
                self.map_extents(inode.i_block(), &mut walk)?;
            } else {
                self.map_block_numbers(inode.i_block(), &mut walk)?;
            }
        }
        walk.mapped.sound = self.findings.count() == findings && !self.findings.is_full();
        Ok(walk.mapped)
    }

    /// Claims a run of the file's own blocks.
    pub(super) fn claim_content(
        &mut self,
        walk: &mut Walk<'_>,
        run: Run,
        unwritten: bool,
        location: Location,
    ) {
        if !self.geometry.is_valid_block_run(run.start, run.len) {
            let what = format!(
                "blocks {} to {} lie outside the disk",
                run.start,
                run.start.0.saturating_add(run.len)
            );
            self.findings.add(location, what);
            return;
        }
        let (start, len) = self.without_shared_cluster(walk, run, location);
        walk.mapped.blocks += self.clusters(start, len);
        let conflict = if len == 0 { None } else { self.claims.claim(start, len) };
        // Files may share blocks on such a disk, directories never.
        let may_share =
            self.superblock.ro_compat().contains(RoCompatFeatures::SHARED_BLOCKS) && walk.runs.is_none();
        if let Some(block) = conflict.filter(|_| !may_share) {
            self.findings.add(location, format!("block {block} is in use twice"));
        }
        let last = run.logical + run.len - 1;
        let mapped = &mut walk.mapped;
        mapped.last = mapped.last.max(Some(last));
        if !unwritten {
            mapped.last_written = mapped.last_written.max(Some(last));
        }
        if run.logical == 0 {
            mapped.first_block = Some(run.start);
        }
        if let Some(runs) = &mut walk.runs
            && conflict.is_none()
        {
            match runs.last_mut() {
                Some(last) if last.is_continued_by(&run) => last.len += run.len,
                _ => runs.push(run),
            }
        }
    }

    /// The part of a run that begins with a cluster of its own: two runs of a file may share one.
    fn without_shared_cluster(
        &mut self,
        walk: &mut Walk<'_>,
        run: Run,
        location: Location,
    ) -> (FsBlock, u64) {
        let ratio = u64::from(self.geometry.cluster_ratio);
        if ratio == 1 {
            return (run.start, run.len);
        }
        let first_data_block = u64::from(self.geometry.first_data_block);
        if run.start.0.wrapping_sub(first_data_block) % ratio != run.logical % ratio {
            self.findings.add(location, format!("block {} is not at its place in the cluster", run.start));
        }
        let end = run.start.0 + run.len;
        let mut start = run.start.0;
        if walk.last_cluster == Some(self.claims.cluster_of(run.start)) {
            start = ((start - first_data_block) / ratio + 1) * ratio + first_data_block;
        }
        walk.last_cluster = Some(self.claims.cluster_of(FsBlock(end - 1)));
        (FsBlock(start), end.saturating_sub(start))
    }

    fn clusters(&self, start: FsBlock, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        self.claims.cluster_of(FsBlock(start.0 + len - 1)) - self.claims.cluster_of(start) + 1
    }

    /// Claims a block of the map itself, which may be descended into only if this gives true.
    pub(super) fn claim_map_block(
        &mut self,
        walk: &mut Walk<'_>,
        block: FsBlock,
        structure: Structure,
    ) -> bool {
        let location = Location { structure, ..Location::of(structure).inode(walk.number).block(block) };
        if !self.geometry.is_valid_block_run(block, 1) {
            self.findings.add(location, "outside the disk");
            return false;
        }
        walk.mapped.blocks += 1;
        if self.claims.claim(block, 1).is_some() {
            self.findings.add(location, "in use twice");
            return false;
        }
        true
    }
}

/// Whether `i_block` maps blocks, unless it holds content; else it holds a device number, a short target or nothing.
pub(super) fn has_map(inode: &RawInode) -> bool {
    match inode.file_type() {
        // The list of bad blocks has no type.
        FileType::Regular | FileType::Directory | FileType::Unknown => true,
        FileType::Symlink => inode.size() >= inode::I_BLOCK_SIZE as u64,
        _ => false,
    }
}
