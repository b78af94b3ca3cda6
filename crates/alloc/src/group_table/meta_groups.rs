//! The groups of a disk in memory. A group never touched costs its counts, a pointer, and its part of what its meta
//! group has in common; the [`Group`] with its lock and its bitmaps is made at the first touch.
//!
//! Descriptors are read by the block, which is a meta group's. Of a meta group that was not read, groups are believed to be
//! empty, so that whoever looks for space comes, reads, and looks again.
//!
//! Invariants: a meta group is listed by its descriptors before it is published, and changes afterwards under the groups'
//! locks only. A group's descriptor is read from the disk before anything in it changes: by then the disk has all of it.
//! Once all are read, the counts of the disk are the sums over the descriptors, whatever the superblock said.
//!
//! The file system's own blocks in a group are those that groups of its flex group keep there, which are read before
//! the group's bitmap is believed or a block of it is freed; and those of any other group that was read. A block that a
//! group keeps outside of its flex group is protected by its bit in the bitmap alone until that group is read.
//!
//! Locks: `DESCRIPTORS` while a meta group is entered; no I/O under it. Tests: `tests/alloc/descriptors.rs`.

use std::ops::Range;

use extant_ondisk::{Cluster, FsBlock, Geometry, GroupDescriptor, GroupFlags, GroupNumber};
use extant_rt::{AtomicU32, LockClass, Mutex, OnceBox, OnceBoxes, Ordering, Padded};

use super::GroupTable;
use crate::bitmap64::FreeExtent;
use crate::group::Group;
use crate::group::summary::Summary;
use crate::group_set::GroupSet;
use crate::parts::Parts;
use crate::system_zone::{SystemZones, base_meta_clusters, metadata_ranges};
use crate::{Error, Result};

/// All meta groups.
#[derive(Debug)]
pub(crate) struct MetaGroups {
    parts: Parts<Part>,
    groups_per_meta_group: u32,
    /// How many were read.
    read: AtomicU32,
    /// What the descriptors read so far count.
    sums: Mutex<Sums>,
}

/// The meta groups of one part of the groups. At its ends a meta group may belong to two parts, which know their own groups of it.
#[derive(Debug)]
struct Part {
    groups: Range<u32>,
    /// The number of the first one.
    first: u32,
    all: OnceBoxes<Padded<MetaGroup>>,
    /// Those with blocks outside of their flex groups, counted from the first one.
    with_far: GroupSet,
}

/// Where a group is.
struct Place<'a> {
    part: &'a Part,
    /// The number of the meta group in its part.
    slot: u32,
    /// The groups of it that the part knows.
    groups: Range<u32>,
    /// The group's number among these.
    index: usize,
}

impl Place<'_> {
    fn meta_group(&self) -> Option<&OnceBox<Padded<MetaGroup>>> {
        self.part.all.get(self.slot as usize)
    }
}

/// Sums over descriptors.
#[derive(Debug, Default)]
struct Sums {
    free_blocks: u64,
    free_inodes: u64,
}

/// Groups whose descriptors share a block.
#[derive(Debug)]
pub(crate) struct MetaGroup {
    /// None if the descriptors could not be read.
    groups: OnceBoxes<Group>,
    /// Of groups that nobody has touched.
    counts: Box<[Counts]>,
    tables: Box<[Tables]>,
    /// Bitmaps and tables inside of the flex groups that they belong to, and others.
    near: SystemZones,
    far: SystemZones,
}

/// What a group has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OrlovStats {
    pub free_blocks: u32,
    pub free_inodes: u32,
    pub directories: u32,
}

/// What a descriptor says of inodes, for who chooses a group: more than fits in is as good as what does.
#[derive(Clone, Copy, Debug)]
struct Counts {
    free_inodes: u16,
    directories: u16,
}

/// Inode tables at equal distances.
#[derive(Clone, Copy, Debug)]
struct Tables {
    start: FsBlock,
    /// The first group's place in the meta group.
    index: u32,
    /// Blocks from one table's start to the next one's.
    stride: u32,
}

impl Counts {
    fn new(descriptor: &GroupDescriptor) -> Self {
        let fit = |count: u32| u16::try_from(count).unwrap_or(u16::MAX);
        Self {
            free_inodes: fit(descriptor.free_inodes_count()),
            directories: fit(descriptor.used_dirs_count()),
        }
    }
}

impl MetaGroup {
    /// By the descriptors of its groups, of which the first is `first`.
    fn new(geometry: &Geometry, first: GroupNumber, descriptors: &[GroupDescriptor]) -> Self {
        let (mut near, mut far, mut tables) = (Vec::new(), Vec::new(), Vec::new());
        for (index, descriptor) in (0..).zip(descriptors) {
            let group = GroupNumber(first.0 + index);
            add_table(&mut tables, index, descriptor.inode_table());
            let flex = flex_clusters(geometry, group);
            for (start, end) in metadata_ranges(geometry, descriptor) {
                let is_near = flex.0 <= start && end <= flex.1;
                if is_near { &mut near } else { &mut far }.push((start, end));
            }
        }
        Self {
            groups: OnceBoxes::new(descriptors.len()),
            counts: descriptors.iter().map(Counts::new).collect(),
            tables: tables.into(),
            near: SystemZones::new(near),
            far: SystemZones::new(far),
        }
    }

    fn table(&self, index: u32) -> Option<FsBlock> {
        let after = self.tables.partition_point(|tables| tables.index <= index);
        let tables = self.tables.get(after.checked_sub(1)?)?;
        Some(FsBlock(tables.start.0 + u64::from(index - tables.index) * u64::from(tables.stride)))
    }
}

/// Adds the table of the next group.
fn add_table(all: &mut Vec<Tables>, index: u32, start: FsBlock) {
    if let Some(last) = all.last_mut() {
        let count = index - last.index;
        let distance = start.0.checked_sub(last.start.0).and_then(|distance| u32::try_from(distance).ok());
        match distance {
            // The second one says at which distance they follow.
            Some(distance) if count == 1 => return last.stride = distance,
            Some(distance) if u64::from(count) * u64::from(last.stride) == u64::from(distance) => return,
            _ => {}
        }
    }
    all.push(Tables { start, index, stride: 0 });
}

/// The groups of a group's flex group: the first, and the one after the last.
fn flex_groups(geometry: &Geometry, group: GroupNumber) -> (u32, u32) {
    let per_flex = geometry.groups_per_flex.max(1);
    let first = group.0 - group.0 % per_flex;
    (first, first.saturating_add(per_flex).min(geometry.group_count))
}

/// The clusters of a group's flex group: the first, and the one after the last.
fn flex_clusters(geometry: &Geometry, group: GroupNumber) -> (u64, u64) {
    let (first, end) = flex_groups(geometry, group);
    (geometry.group_first_cluster(GroupNumber(first)).0, geometry.group_first_cluster(GroupNumber(end)).0)
}

impl MetaGroups {
    /// None read.
    pub fn new(geometry: &Geometry) -> Self {
        let (groups, per_meta_group) = (geometry.group_count, geometry.desc_per_block);
        Self {
            parts: Parts::new(groups, Part::new(0..groups, per_meta_group)),
            groups_per_meta_group: per_meta_group,
            read: AtomicU32::new(0),
            sums: Mutex::new(LockClass::DESCRIPTORS, Sums::default()),
        }
    }

    /// Adds new groups by their descriptors, once all others were read. To be called by one thread at a time.
    pub fn extend(&self, geometry: &Geometry, descriptors: &[GroupDescriptor]) {
        let first = self.parts.groups();
        let part = Part::new(first..geometry.group_count, self.groups_per_meta_group);
        let mut rest = descriptors;
        let mut group = first;
        while let Some(place) = part.place(group, self.groups_per_meta_group).filter(|_| !rest.is_empty()) {
            let (own, others) = rest.split_at(place.groups.len().min(rest.len()));
            let meta_group = MetaGroup::new(geometry, GroupNumber(group), own);
            if !meta_group.far.is_empty() {
                part.with_far.insert(GroupNumber(place.slot));
            }
            if let Some(empty) = place.meta_group() {
                empty.get_or_init(|| Padded(meta_group));
            }
            (rest, group) = (others, place.groups.end);
        }
        self.read.fetch_add(part.all.len() as u32, Ordering::Release);
        self.parts.append(geometry.group_count, part);
    }

    #[inline]
    fn place(&self, group: GroupNumber) -> Option<Place<'_>> {
        self.parts.of(group).and_then(|(part, _)| part.place(group.0, self.groups_per_meta_group))
    }

    fn count(&self) -> usize {
        self.parts.iter().map(|(_, part)| part.all.len()).sum()
    }

    fn are_all_read(&self) -> bool {
        self.read.load(Ordering::Acquire) as usize == self.count()
    }

    /// A group that was touched.
    pub fn touched(&self, group: GroupNumber) -> Option<&Group> {
        let Place { part, slot, index, .. } = self.place(group)?;
        part.all.get(slot as usize)?.get()?.groups.get(index)?.get()
    }

    /// Forgets a group of the first part that was touched.
    pub fn forget(&mut self, group: GroupNumber) {
        let Some(Place { slot, index, .. }) = self.place(group) else { return };
        let meta_group = self.parts.first_mut().all.get_mut(slot as usize).and_then(OnceBox::get_mut);
        if let Some(touched) = meta_group.and_then(|meta_group| meta_group.0.groups.get_mut(index)) {
            *touched = OnceBox::new();
        }
    }
}

impl Part {
    fn new(groups: Range<u32>, per_meta_group: u32) -> Self {
        let first = groups.start / per_meta_group;
        let count = groups.end.div_ceil(per_meta_group).saturating_sub(first);
        Self { groups, first, all: OnceBoxes::new(count as usize), with_far: GroupSet::new(count) }
    }

    #[inline]
    fn place(&self, group: u32, per_meta_group: u32) -> Option<Place<'_>> {
        if !self.groups.contains(&group) {
            return None;
        }
        let (number, index) = (group / per_meta_group, group % per_meta_group);
        let start = (group - index).max(self.groups.start);
        let end = (group - index).saturating_add(per_meta_group).min(self.groups.end);
        Some(Place {
            part: self,
            slot: number - self.first,
            groups: start..end,
            index: (group - start) as usize,
        })
    }
}

fn unreadable(group: GroupNumber) -> Error {
    Error::Corrupt { group, what: "group descriptor cannot be read" }
}

/// What stands for a group whose descriptor was not read.
pub(crate) fn unknown(geometry: &Geometry, group: GroupNumber, order_max: u8) -> Summary {
    Summary::unused(geometry.clusters_in_group(group), order_max)
}

impl GroupTable {
    /// What a group has; may be stale without its lock. Reads its descriptor if need be; nothing if that cannot be.
    pub(crate) fn counts_of(&self, number: GroupNumber) -> OrlovStats {
        let Ok((meta_group, index)) = self.meta_group(number) else { return OrlovStats::default() };
        let free_blocks = self.index.get(number).free;
        if let Some(group) = meta_group.groups.get(index).and_then(OnceBox::get) {
            return OrlovStats {
                free_blocks,
                free_inodes: group.free_inodes(),
                directories: group.directories(),
            };
        }
        let Some(counts) = meta_group.counts.get(index) else { return OrlovStats::default() };
        OrlovStats {
            free_blocks,
            free_inodes: counts.free_inodes.into(),
            directories: counts.directories.into(),
        }
    }

    /// Reads a group's descriptor, unless it was read before, and lists the group by it; as without free space if it cannot be read.
    pub(crate) fn load_descriptor(&self, group: GroupNumber) {
        // The error goes to the operation that touches the group next.
        let _ = self.meta_group(group);
    }

    /// A group, touched.
    ///
    /// # Errors
    /// `Store` and `Corrupt` if its descriptor cannot be read.
    pub(crate) fn group(&self, number: GroupNumber) -> Result<&Group> {
        let (meta_group, index) = self.meta_group(number)?;
        let group = meta_group.groups.get(index).ok_or(unreadable(number))?;
        if let Some(group) = group.get() {
            return Ok(group);
        }
        let descriptor = self.load_descriptors(number, 1)?.swap_remove(0);
        Ok(group.get_or_init(|| Group::new(number, descriptor, self.geometry.inodes_per_group)))
    }

    /// Lists a group whose descriptor cannot be read as without free space, so that searches do not come to it again and again.
    pub(crate) fn mark_unusable(&self, number: GroupNumber) {
        let _one = self.meta_groups.sums.lock();
        let before = self.index.get(number);
        if self.meta_groups.touched(number).is_none() && before.free > 0 {
            self.counters.lose(u64::from(before.free));
            self.set_summary(number, Summary::NONE);
        }
    }

    /// Whether a group's whole inode table was written. Touches no group.
    ///
    /// # Errors
    /// `Store` and `Corrupt` if its descriptor cannot be read.
    pub fn is_table_zeroed(&self, number: GroupNumber) -> Result<bool> {
        let flags = match self.meta_groups.touched(number) {
            Some(group) => self.locks.lock(number, group).record.descriptor.flags(),
            None => self.load_descriptors(number, 1)?.swap_remove(0).flags(),
        };
        Ok(flags.contains(GroupFlags::INODE_ZEROED))
    }

    /// The first block of a group's inode table. Touches no group.
    ///
    /// # Errors
    /// `Store` and `Corrupt` if its descriptor cannot be read.
    pub fn inode_table(&self, group: GroupNumber) -> Result<FsBlock> {
        let (meta_group, index) = self.meta_group(group)?;
        meta_group.table(index as u32).ok_or(unreadable(group))
    }

    /// Reads the descriptors of some blocks of them, from block `first` on, that were not read.
    ///
    /// # Errors
    /// `Store` and `Corrupt` of the first that cannot be read; those behind it are not.
    pub fn read_descriptors(&self, blocks: std::ops::Range<u32>) -> Result<()> {
        let count = self.geometry.descriptor_block_count();
        (blocks.start.min(count)..blocks.end.min(count)).try_for_each(|block| {
            self.meta_group(GroupNumber(block * self.geometry.desc_per_block)).map(drop)
        })
    }

    /// How many of the blocks of descriptors were read; all, once the counts of free blocks and inodes are their sums.
    pub fn descriptor_blocks_read(&self) -> u32 {
        self.meta_groups.read.load(Ordering::Acquire)
    }

    /// Reads all descriptors that can be read, so that all counts are exact. False if they were read before.
    pub fn count_exactly(&self) -> bool {
        if self.meta_groups.are_all_read() {
            return false;
        }
        for block in 0..self.geometry.descriptor_block_count() {
            // What cannot be read has nothing to give out.
            let _ = self.read_descriptors(block..block + 1);
        }
        true
    }

    /// Calls `each(first bit, bits)` for the file system's own blocks in a group.
    ///
    /// # Errors
    /// As [`GroupTable::group`], for the groups of its flex group.
    pub(crate) fn each_system_range(&self, group: GroupNumber, mut each: impl FnMut(u32, u32)) -> Result<()> {
        let Cluster(first) = self.geometry.group_first_cluster(group);
        let end = first + u64::from(self.geometry.clusters_in_group(group));
        each(0, base_meta_clusters(&self.geometry, group));
        let mut in_group = |from: u64, to: u64| each((from - first) as u32, (to - from) as u32);
        let (mut member, flex_end) = flex_groups(&self.geometry, group);
        while member < flex_end {
            self.meta_group(GroupNumber(member))?.0.near.each_in(first, end, &mut in_group);
            member = self.meta_groups.place(GroupNumber(member)).map_or(flex_end, |place| place.groups.end);
        }
        for (_, part) in self.meta_groups.parts.iter() {
            for GroupNumber(slot) in part.with_far.walk(GroupNumber(0)) {
                if let Some(meta_group) = part.all.get(slot as usize).and_then(OnceBox::get) {
                    meta_group.far.each_in(first, end, &mut in_group);
                }
            }
        }
        Ok(())
    }

    /// How many clusters of a group the file system's own blocks are in.
    ///
    /// # Errors
    /// As [`GroupTable::group`], for the groups of its flex group.
    pub fn system_clusters(&self, group: GroupNumber) -> Result<u32> {
        let mut ranges = Vec::new();
        self.each_system_range(group, |start, len| ranges.push((start, start + len)))?;
        ranges.sort_unstable();
        let (mut count, mut end) = (0, 0);
        for (from, to) in ranges {
            count += to.saturating_sub(from.max(end));
            end = end.max(to);
        }
        Ok(count)
    }

    /// Whether any block of a part of a group is the file system's own.
    ///
    /// # Errors
    /// As [`GroupTable::group`], for the groups of its flex group.
    pub(crate) fn has_system_block(&self, group: GroupNumber, gap: FreeExtent) -> Result<bool> {
        let mut found = false;
        self.each_system_range(group, |start, len| {
            found |= start < gap.start + gap.len && gap.start < start + len
        })?;
        Ok(found)
    }

    fn load_descriptors(&self, first: GroupNumber, count: u32) -> Result<Vec<GroupDescriptor>> {
        let descriptors = self
            .store
            .load_descriptors(&self.geometry, first, count)
            .map_err(|source| Error::Store { group: first, source })?;
        if descriptors.len() != count as usize {
            return Err(unreadable(first));
        }
        Ok(descriptors)
    }

    /// The meta group of a group, read if it was not, and the group's number in it.
    ///
    /// # Errors
    /// `Corrupt` if there is no such group; `Store` and `Corrupt` the first time that its descriptors cannot be read: from
    /// then on it has no groups.
    ///
    /// # Locks
    /// `DESCRIPTORS`, only if it was not read.
    fn meta_group(&self, group: GroupNumber) -> Result<(&MetaGroup, usize)> {
        let none = Error::Corrupt { group, what: "no such group" };
        let Some(Place { part, slot, groups, index }) = self.meta_groups.place(group) else {
            return Err(none);
        };
        let Some(place) = part.all.get(slot as usize) else { return Err(none) };
        match place.get() {
            Some(meta_group) => Ok((meta_group, index)),
            None => Ok((self.enter_meta_group(part, slot, groups, place)?, index)),
        }
    }

    fn enter_meta_group<'a>(
        &'a self,
        part: &Part,
        slot: u32,
        groups: Range<u32>,
        place: &'a OnceBox<Padded<MetaGroup>>,
    ) -> Result<&'a MetaGroup> {
        let (first, count) = (GroupNumber(groups.start), groups.end - groups.start);
        let loaded = self.load_descriptors(first, count);
        let mut sums = self.meta_groups.sums.lock();
        if let Some(meta_group) = place.get() {
            return Ok(meta_group);
        }
        let (descriptors, error) = match loaded {
            Ok(descriptors) => (descriptors, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        for index in 0..count {
            let group = GroupNumber(first.0 + index);
            let OrlovStats { free_blocks, free_inodes, directories } =
                self.list(group, descriptors.get(index as usize));
            sums.free_blocks += u64::from(free_blocks);
            sums.free_inodes += u64::from(free_inodes);
            self.counters.directories.add(u64::from(directories));
        }
        let meta_group = MetaGroup::new(&self.geometry, first, &descriptors);
        if !meta_group.far.is_empty() {
            part.with_far.insert(GroupNumber(slot));
        }
        let meta_group = place.get_or_init(|| Padded(meta_group));
        // Release, with the acquire of who asks whether all are read: the counts are seen to be exact then.
        let is_last = self.meta_groups.read.load(Ordering::Relaxed) as usize + 1 == self.meta_groups.count();
        if is_last {
            self.counters.correct(sums.free_blocks, sums.free_inodes);
        }
        self.meta_groups.read.fetch_add(1, Ordering::Release);
        error.map_or(Ok(meta_group), Err)
    }

    /// Lists a group by what its descriptor counts, which may be missing, instead of as unknown.
    pub(super) fn list(&self, group: GroupNumber, descriptor: Option<&GroupDescriptor>) -> OrlovStats {
        let available = descriptor.map_or_else(OrlovStats::default, |descriptor| OrlovStats {
            free_blocks: descriptor.free_blocks_count().min(self.geometry.clusters_in_group(group)),
            free_inodes: descriptor.free_inodes_count().min(self.geometry.inodes_per_group),
            directories: descriptor.used_dirs_count().min(self.geometry.inodes_per_group),
        });
        let is_unused = descriptor.is_some_and(|it| it.flags().contains(GroupFlags::BLOCK_UNINIT));
        let summary = if is_unused { Summary::unused } else { Summary::unread };
        self.set_summary(group, summary(available.free_blocks, self.order_max));
        if available.free_inodes == 0 {
            self.with_inodes.remove(group);
        }
        available
    }
}
