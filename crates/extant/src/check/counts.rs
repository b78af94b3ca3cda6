//! The bitmaps of groups against what was found in use, and all counts of free and used blocks and
//! inodes.

use std::ops::Range;

use extant_ondisk::{
    FileType, FsBlock, GroupDescriptor, GroupFlags, GroupNumber, IncompatFeatures, Structure, bitmap,
};
use extant_rt::Arc;

use super::{Checker, Pass, Progress};
use crate::error::{Location, Result};

/// The free blocks and inodes of a group, or of all.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    clusters: u64,
    inodes: u64,
}

impl Checker<'_> {
    pub(super) fn check_counts(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<()> {
        let mut totals = Totals::default();
        for group in self.groups() {
            if self.findings.is_full() {
                return Ok(());
            }
            if let Some(first) = self.bitmaps_of(group).next() {
                let groups = self.groups().skip(group.0 as usize);
                self.read_window(first, groups.flat_map(|group| self.bitmaps_of(group)));
            }
            let Some(descriptor) = self.descriptor(group).cloned() else { continue };
            let clusters = self.check_block_bitmap(group, &descriptor)?;
            let inodes = self.check_inode_bitmap(group, &descriptor)?;
            self.compare_counts(group, &descriptor, clusters, inodes);
            totals.clusters += u64::from(clusters);
            totals.inodes += u64::from(inodes);
            self.tell(progress, Pass::Counts, group);
        }
        // Mounting counts anew what a crash left behind, so only a clean disk must have them right.
        if !self.superblock.incompat().contains(IncompatFeatures::RECOVER) {
            self.compare_totals(totals);
        }
        Ok(())
    }

    /// The blocks of a group's bitmaps that were written.
    fn bitmaps_of(&self, group: GroupNumber) -> impl Iterator<Item = FsBlock> {
        let descriptor = self.descriptor(group);
        let has_blocks = descriptor.filter(|descriptor| !self.is_block_uninit(descriptor));
        let has_inodes = descriptor.filter(|_| !self.is_inode_uninit(group));
        let blocks = has_blocks.map(|descriptor| descriptor.block_bitmap());
        blocks.into_iter().chain(has_inodes.map(|descriptor| descriptor.inode_bitmap()))
    }

    /// Whether a group's block bitmap was never written.
    fn is_block_uninit(&self, descriptor: &GroupDescriptor) -> bool {
        self.checksums.has_group_checksums() && descriptor.flags().contains(GroupFlags::BLOCK_UNINIT)
    }

    /// Compares a group's block bitmap; its free clusters, as found.
    fn check_block_bitmap(&mut self, group: GroupNumber, descriptor: &GroupDescriptor) -> Result<u32> {
        let geometry = self.geometry;
        let block = descriptor.block_bitmap();
        let location = Location::of(Structure::BlockBitmap).group(group).block(block);
        let count = geometry.clusters_in_group(group);
        let found = self.claims.group(group).unwrap_or_default().to_vec();
        if self.is_block_uninit(descriptor) {
            let stated = self.own_blocks_of(group);
            self.compare_bits(&found, &stated, count, location, "cluster");
        } else if geometry.is_valid_block_run(block, 1) {
            let stated = self.read(block, location)?;
            if !self.checksums.verify_block_bitmap(descriptor, &stated) {
                self.findings.add(location, "bad checksum");
            }
            self.compare_bits(&found, &stated, count, location, "cluster");
            self.check_padding(&stated, count, location);
        }
        Ok(count - bitmap::count_ones(&found, 0..count))
    }

    /// The block bitmap of a group that was never written: only the group's own metadata is in use.
    fn own_blocks_of(&self, group: GroupNumber) -> Vec<u8> {
        let geometry = self.geometry;
        let mut bits = vec![0; geometry.clusters_per_group.div_ceil(8) as usize];
        let first = geometry.group_first_block(group).0;
        let end = first + u64::from(geometry.blocks_in_group(group));
        let table_blocks = u64::from(geometry.inode_table_blocks_per_group);
        let longest = table_blocks.max(u64::from(geometry.blocks_per_group));
        let from = self.own_runs.partition_point(|(start, _)| start.0 < first.saturating_sub(longest));
        for (FsBlock(start), len) in self.own_runs.iter().skip(from).take_while(|(start, _)| start.0 < end) {
            let (start, run_end) = ((*start).max(first), start.saturating_add(*len).min(end));
            if start < run_end {
                let ratio = u64::from(geometry.cluster_ratio);
                let clusters = (start - first) / ratio..(run_end - first).div_ceil(ratio);
                bitmap::set_range(&mut bits, clusters.start as u32..clusters.end as u32);
            }
        }
        bits
    }

    /// Compares a group's inode bitmap; its free inodes, as found.
    fn check_inode_bitmap(&mut self, group: GroupNumber, descriptor: &GroupDescriptor) -> Result<u32> {
        let geometry = self.geometry;
        let count = geometry.inodes_per_group;
        let mut found = vec![0; count.div_ceil(8) as usize];
        for (number, _) in self.records.in_group(group) {
            if let Some((_, index)) = geometry.inode_location(number) {
                bitmap::set(&mut found, index);
            }
        }
        let before = u64::from(group.0) * u64::from(count);
        let reserved =
            u64::from(geometry.first_ino).saturating_sub(1).saturating_sub(before).min(u64::from(count));
        bitmap::set_range(&mut found, 0..reserved as u32);
        let block = descriptor.inode_bitmap();
        let location = Location::of(Structure::InodeBitmap).group(group).block(block);
        if self.is_inode_uninit(group) {
            self.compare_bits(&found, &vec![0; found.len()], count, location, "inode");
        } else if geometry.is_valid_block_run(block, 1) {
            let stated: Arc<[u8]> = self.read(block, location)?;
            if !self.checksums.verify_inode_bitmap(descriptor, &stated) {
                self.findings.add(location, "bad checksum");
            }
            self.compare_bits(&found, &stated, count, location, "inode");
            self.check_padding(&stated, count, location);
        }
        Ok(count - bitmap::count_ones(&found, 0..count))
    }

    /// Lists the runs of bits that differ. `found` may be empty for none.
    fn compare_bits(&mut self, found: &[u8], stated: &[u8], count: u32, location: Location, what: &str) {
        let bit = |bits: &[u8], index: u32| {
            bits.get(index as usize / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
        };
        let mut run: Option<(Range<u32>, bool)> = None;
        for byte in 0..count.div_ceil(8) {
            let same = found.get(byte as usize).copied().unwrap_or(0)
                == stated.get(byte as usize).copied().unwrap_or(0);
            if same && run.is_none() {
                continue;
            }
            for index in byte * 8..(byte * 8 + 8).min(count) {
                let (used, set) = (bit(found, index), bit(stated, index));
                match &mut run {
                    Some((range, is_used)) if used != set && *is_used == used => range.end = index + 1,
                    _ => {
                        self.report_run(run.take(), location, what);
                        run = (used != set).then_some((index..index + 1, used));
                    }
                }
            }
        }
        self.report_run(run, location, what);
    }

    fn report_run(&mut self, run: Option<(Range<u32>, bool)>, location: Location, what: &str) {
        let Some((range, is_used)) = run else { return };
        let (first, last) = (range.start, range.end - 1);
        let state = if is_used { "in use, but marked as free" } else { "free, but marked as in use" };
        self.findings.add(location, format!("{what}s {first} to {last} of the group are {state}"));
    }

    /// Bits behind the last cluster or inode must be set, so that no allocator takes them.
    fn check_padding(&mut self, stated: &[u8], count: u32, location: Location) {
        let all = u32::try_from(stated.len().saturating_mul(8)).unwrap_or(u32::MAX);
        if bitmap::find_zero(stated, count..all).is_some() {
            self.findings.add(location, "bits past the end are not set");
        }
    }

    fn compare_counts(
        &mut self,
        group: GroupNumber,
        descriptor: &GroupDescriptor,
        clusters: u32,
        inodes: u32,
    ) {
        let is_directory = |kind| kind == Some(FileType::Directory);
        let directories =
            self.records.in_group(group).filter(|(_, record)| is_directory(record.kind)).count();
        let counts = [
            ("free clusters", descriptor.free_blocks_count(), clusters),
            ("free inodes", descriptor.free_inodes_count(), inodes),
            ("directories", descriptor.used_dirs_count(), directories as u32),
        ];
        let location = Location::of(Structure::GroupDescriptor).group(group);
        for (name, stated, found) in counts.into_iter().filter(|(_, stated, found)| stated != found) {
            self.findings.add(location, format!("{stated} {name}, but {found} were found"));
        }
    }

    fn compare_totals(&mut self, totals: Totals) {
        let location = Location::of(Structure::Superblock);
        let blocks = totals.clusters.saturating_mul(u64::from(self.geometry.cluster_ratio));
        let stated = self.superblock.free_blocks_count();
        if stated != blocks {
            self.findings.add(location, format!("{stated} free blocks, but {blocks} were found"));
        }
        let stated = u64::from(self.superblock.s_free_inodes_count());
        if stated != totals.inodes {
            self.findings.add(location, format!("{stated} free inodes, but {} were found", totals.inodes));
        }
    }
}
