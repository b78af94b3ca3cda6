//! Where bitmaps and inode tables go.
//!
//! With `flex_bg`, those of a flex group lie together in its first group: all block bitmaps, all inode bitmaps, all
//! inode tables. Else each group holds its own. `packed_meta_blocks` puts all of them at the start of the disk.
//!
//! Source: `ext2fs_allocate_group_table`, `flexbg_offset`, `packed_allocate_tables` of e2fsprogs 1.47.0, whose
//! places are matched block by block.

use extant_ondisk::{FsBlock, Geometry, GroupDescriptor, GroupNumber};

use super::space::Space;
use super::{Error, Result};

const DOES_NOT_FIT: Error = Error::TooSmall("no room for the inode tables");

/// Places the bitmaps and tables of all groups. Returns which groups hold parts of a flex group, their own or that
/// of another flex group: their block bitmaps must be written.
pub(super) fn place(
    geometry: &Geometry,
    descriptors: &mut [GroupDescriptor],
    space: &mut Space,
    packed: bool,
) -> Result<Vec<bool>> {
    if !packed {
        return place_from(geometry, descriptors, space, 0);
    }
    let mut touched = vec![false; descriptors.len()];
    place_packed(geometry, descriptors, space)?;
    touch(geometry, descriptors, &mut touched);
    Ok(touched)
}

/// As [`place`], of the groups from `first` on; those before are left alone.
pub(crate) fn place_from(
    geometry: &Geometry,
    descriptors: &mut [GroupDescriptor],
    space: &mut Space,
    first: usize,
) -> Result<Vec<bool>> {
    let mut touched = vec![false; descriptors.len()];
    for group in first..descriptors.len() {
        match descriptors.get_mut(group) {
            Some(_) if geometry.groups_per_flex > 1 => {
                place_flex(geometry, descriptors, space, group as u32)?
            }
            Some(descriptor) => place_own(geometry, descriptor, space, GroupNumber(group as u32))?,
            None => {}
        }
    }
    if geometry.groups_per_flex > 1 {
        touch(geometry, descriptors.get(first..).unwrap_or_default(), &mut touched);
    }
    Ok(touched)
}

fn table_len(geometry: &Geometry) -> u64 {
    u64::from(geometry.inode_table_blocks_per_group)
}

fn touch(geometry: &Geometry, descriptors: &[GroupDescriptor], touched: &mut [bool]) {
    let mut note = |first: FsBlock, len: u64| {
        let place = |block: u64| geometry.group_of(FsBlock(block)).map_or(0, |(group, _)| group.0 as usize);
        let (from, to) = (place(first.0), place(first.0 + len.saturating_sub(1)));
        touched.iter_mut().take(to + 1).skip(from).for_each(|touched| *touched = true);
    };
    for descriptor in descriptors {
        note(descriptor.block_bitmap(), 1);
        note(descriptor.inode_bitmap(), 1);
        note(descriptor.inode_table(), table_len(geometry));
    }
}

/// The block after a group's last.
fn group_end(geometry: &Geometry, group: u32) -> u64 {
    geometry.group_first_block(GroupNumber(group)).0 + u64::from(geometry.blocks_in_group(GroupNumber(group)))
}

fn take(space: &mut Space, from: u64, before: u64, len: u64) -> Result<FsBlock> {
    let start = space.find(from, before, len).ok_or(DOES_NOT_FIT)?;
    space.mark(start, len)?;
    Ok(FsBlock(start))
}

fn place_own(
    geometry: &Geometry,
    descriptor: &mut GroupDescriptor,
    space: &mut Space,
    group: GroupNumber,
) -> Result<()> {
    let (first, end) = (geometry.group_first_block(group).0, group_end(geometry, group.0));
    descriptor.set_block_bitmap(take(space, first, end, 1)?);
    descriptor.set_inode_bitmap(take(space, first, end, 1)?);
    descriptor.set_inode_table(take(space, first, end, table_len(geometry))?);
    Ok(())
}

/// The part of a flex group from one group on.
struct Flex {
    /// The flex group's first block.
    first: u64,
    /// The block after its last.
    end: u64,
    /// Groups from this one to its last.
    left: u64,
    /// The most blocks that are looked for at once.
    most: u64,
}

fn place_flex(
    geometry: &Geometry,
    descriptors: &mut [GroupDescriptor],
    space: &mut Space,
    group: u32,
) -> Result<()> {
    let per_flex = geometry.groups_per_flex;
    let first_group = group - group % per_flex;
    let last_group = (first_group + (per_flex - 1)).min(geometry.group_count - 1);
    let flex = Flex {
        first: geometry.group_first_block(GroupNumber(first_group)).0,
        end: group_end(geometry, last_group),
        left: u64::from(last_group - group + 1),
        most: u64::from(geometry.blocks_per_group / 4),
    };
    let before = match group.checked_sub(1) {
        Some(before) if group != first_group => descriptors.get(before as usize).cloned(),
        _ => None,
    };
    // A group that is alone in its flex group leaves room for those that may join it.
    let apart = if flex.left == 1 { u64::from(per_flex) } else { flex.left };
    let after = |block: FsBlock, len: u64| block.0 + len;
    let descriptor = descriptors.get_mut(group as usize).ok_or(DOES_NOT_FIT)?;

    let goal = before.as_ref().map_or(0, |before| after(before.block_bitmap(), 1));
    let start = flex.start(space, goal, 1)?;
    descriptor.set_block_bitmap(take(space, start, flex.end, 1)?);

    let goal =
        before.as_ref().map_or(after(descriptor.block_bitmap(), apart), |b| after(b.inode_bitmap(), 1));
    let start = flex.start(space, goal, 1)?;
    descriptor.set_inode_bitmap(take(space, start, flex.end, 1)?);

    let len = table_len(geometry);
    let goal =
        before.as_ref().map_or(after(descriptor.inode_bitmap(), apart), |b| after(b.inode_table(), len));
    let start = flex.start(space, goal, len)?;
    descriptor.set_inode_table(take(space, start, flex.end, len)?);
    Ok(())
}

impl Flex {
    /// Where to look for `len` blocks: right behind the previous group's if they are free; else where there is room
    /// for those of all groups left; else where there is room for these.
    fn start(&self, space: &Space, goal: u64, len: u64) -> Result<u64> {
        if goal != 0 && space.is_free(goal, len) {
            return Ok(goal);
        }
        space
            .find(self.first, self.end - 1, (self.left * len).min(self.most))
            .or_else(|| space.find(self.first, self.end - 1, len))
            .or_else(|| space.find(0, self.end - 1, len))
            .ok_or(DOES_NOT_FIT)
    }
}

fn place_packed(geometry: &Geometry, descriptors: &mut [GroupDescriptor], space: &mut Space) -> Result<()> {
    let end = geometry.blocks_count;
    let mut goal = 0;
    for descriptor in descriptors.iter_mut() {
        let block = take(space, goal, end, 1)?;
        descriptor.set_block_bitmap(block);
        goal = block.0;
    }
    for descriptor in descriptors.iter_mut() {
        let block = take(space, goal, end, 1)?;
        descriptor.set_inode_bitmap(block);
        goal = block.0;
    }
    for descriptor in descriptors.iter_mut() {
        let block = take(space, goal, end, table_len(geometry))?;
        descriptor.set_inode_table(block);
        goal = block.0;
    }
    Ok(())
}
