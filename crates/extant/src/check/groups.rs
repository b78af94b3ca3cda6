//! Group descriptors, and the places of what they and the geometry name.

use extant_ondisk::{FsBlock, GroupDescriptor, GroupFlags, GroupNumber, IncompatFeatures, Structure};

use super::{Checker, Pass, Progress};
use crate::error::{Location, Result};

impl Checker<'_> {
    /// Reads the descriptors and claims the file system's own blocks.
    pub(super) fn check_groups(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<()> {
        let mut runs: Vec<(FsBlock, u64, Location)> = Vec::new();
        for group in self.groups() {
            let descriptor = self.read_descriptor(group)?;
            self.check_flags(group, &descriptor);
            self.list_runs(group, &descriptor, &mut runs);
            self.descriptors.push(descriptor);
            self.tell(progress, Pass::Groups, group);
        }
        if self.superblock.incompat().contains(IncompatFeatures::MMP) {
            let block = FsBlock(self.superblock.s_mmp_block());
            if self.geometry.is_valid_block_run(block, 1) {
                runs.push((block, 1, Location::of(Structure::Mmp)));
            }
        }
        runs.sort_unstable_by_key(|(start, len, _)| (*start, *len));
        let mut end = 0;
        for (start, len, location) in &runs {
            if start.0 < end {
                self.findings.add(location.block(*start), "overlaps other metadata");
            }
            end = end.max(start.0.saturating_add(*len));
            let _ = self.claims.claim(*start, *len);
        }
        self.own_runs = runs.into_iter().map(|(start, len, _)| (start, len)).collect();
        Ok(())
    }

    fn read_descriptor(&mut self, group: GroupNumber) -> Result<GroupDescriptor> {
        let (block, offset) = self.geometry.descriptor_location(group);
        let rest = group.0 / self.geometry.desc_per_block..self.geometry.descriptor_block_count();
        self.read_window(block, rest.map(|index| self.geometry.descriptor_block(index)));
        let location = Location::of(Structure::GroupDescriptor).group(group).block(block);
        let bytes = self.read(block, location)?;
        let raw = bytes.get(offset as usize..).unwrap_or_default();
        let descriptor =
            GroupDescriptor::parse(raw, self.geometry.desc_size).map_err(|e| location.format(e))?;
        if !descriptor.verify_checksum(self.checksums, group) {
            self.findings.add(location, "bad checksum");
        }
        Ok(descriptor)
    }

    fn check_flags(&mut self, group: GroupNumber, descriptor: &GroupDescriptor) {
        let location = Location::of(Structure::GroupDescriptor).group(group);
        let uninit = GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_UNINIT;
        if self.checksums.has_group_checksums() {
            if descriptor.itable_unused() > self.geometry.inodes_per_group {
                self.findings.add(location, "more unused inodes than the group has");
            }
            let is_last = group.0 + 1 == self.geometry.group_count;
            if is_last && descriptor.flags().contains(GroupFlags::BLOCK_UNINIT) {
                self.findings.add(location, "the last group's block bitmap is not initialised");
            }
        } else if descriptor.flags().intersects(uninit) || descriptor.itable_unused() != 0 {
            self.findings.add(location, "parts are not initialised, which takes descriptor checksums");
        }
    }

    fn list_runs(
        &mut self,
        group: GroupNumber,
        descriptor: &GroupDescriptor,
        runs: &mut Vec<(FsBlock, u64, Location)>,
    ) {
        let geometry = self.geometry;
        let base = u64::from(geometry.base_meta_blocks(group));
        if base > 0 {
            let location = Location::of(Structure::GroupDescriptor).group(group);
            runs.push((geometry.group_first_block(group), base, location));
        }
        let table_blocks = u64::from(geometry.inode_table_blocks_per_group);
        let anywhere = self.superblock.incompat().contains(IncompatFeatures::FLEX_BG);
        for (structure, start, len) in [
            (Structure::BlockBitmap, descriptor.block_bitmap(), 1),
            (Structure::InodeBitmap, descriptor.inode_bitmap(), 1),
            (Structure::Inode, descriptor.inode_table(), table_blocks),
        ] {
            let location = Location::of(structure).group(group).block(start);
            if !geometry.is_valid_block_run(start, len) {
                self.findings.add(location, "outside the disk");
                continue;
            }
            let last = FsBlock(start.0 + len - 1);
            let in_group = |block| geometry.group_of(block).is_some_and(|(of, _)| of == group);
            if !(anywhere || in_group(start) && in_group(last)) {
                self.findings.add(location, "outside its group");
            }
            runs.push((start, len, location));
        }
    }

    /// Whether a group's inode bitmap and table were never written.
    pub(super) fn is_inode_uninit(&self, group: GroupNumber) -> bool {
        self.checksums.has_group_checksums()
            && self.descriptor(group).is_some_and(|d| d.flags().contains(GroupFlags::INODE_UNINIT))
    }

    /// Inodes from the start of a group's table that may be in use.
    pub(super) fn initialised_inodes(&self, group: GroupNumber) -> u32 {
        let Some(descriptor) = self.descriptor(group) else { return 0 };
        if self.is_inode_uninit(group) {
            return 0;
        }
        let unused = if self.checksums.has_group_checksums() { descriptor.itable_unused() } else { 0 };
        self.geometry.inodes_per_group.saturating_sub(unused)
    }

    pub(super) fn descriptor(&self, group: GroupNumber) -> Option<&GroupDescriptor> {
        self.descriptors.get(group.0 as usize)
    }
}
