//! Moving bitmaps and inode tables from behind the new end, of groups that stay.
//!
//! With `flex_bg` they may lie in other groups than their own: behind the room that all groups of a large flex group need, or where
//! `resize2fs` put them.
//!
//! They are copied into free blocks first. One transaction then changes the descriptors and the bitmaps of blocks. It is checkpointed
//! before anything uses the old blocks: a recovery finds the log by the journal's inode, and that by the descriptor at its place.
//! Nothing else changes meanwhile, so the old blocks and the new ones are the same.
//!
//! What is in memory of a group names its old places. So the file system is mounted anew afterwards.
//!
//! Source: `blocks_to_move`, `move_itables` of e2fsprogs' `resize2fs`. Tests: `tests/resize`.

use std::collections::BTreeMap;

use extant_ondisk::{FsBlock, Geometry, GroupNumber, IncompatFeatures, Run};

use super::Progress;
use super::cut::in_groups;
use super::relocate::copy_blocks;
use super::space::Space;
use super::usage::{Table, TableKind, Usage};
use crate::error::Result;
use crate::metadata::update::{Credits, MetadataUpdate};
use crate::mount::Volume;
use crate::resize::copies as backups;

/// Blocks that a transaction may write for one that moves: bitmaps and descriptors where it was and where it is, and the descriptor that
/// names it; tables may lie in two groups.
const CREDITS: u32 = 2 * 2 * 2 + 1;

/// Moves as many bitmaps and inode tables from behind the end of `geometry` as a transaction can hold; durable when it returns. False if there
/// was none.
///
/// # Errors
/// `NoSpace` if no free run is as long as a table; `Interrupted`; `Io`; `Corrupt`; the journal's. The file system is as it was then.
pub(super) fn relocate(
    volume: &Volume,
    usage: &Usage<'_>,
    geometry: &Geometry,
    progress: &mut Progress<'_>,
) -> Result<bool> {
    let journal = volume.writable()?;
    let most = (journal.max_credits().saturating_sub(2) / CREDITS) as usize;
    let tables: Vec<Table> = usage.tables_behind(geometry.blocks_count).take(most).copied().collect();
    if tables.is_empty() {
        return Ok(false);
    }
    let old = &volume.geometry;
    // Also what the log has of them is to be copied, and must not come back.
    journal.commit_running()?;
    journal.checkpoint()?;
    let mut space = Space::new(volume, geometry.blocks_count)?;
    let mut freed: BTreeMap<GroupNumber, Vec<Run>> = BTreeMap::new();
    let take = |table: &Table| space.take_run(table.len, &allowed(volume, table, geometry));
    let places = tables.iter().map(take).collect::<Result<Vec<u64>>>()?;
    let mut buffer = Vec::new();
    for (table, place) in tables.iter().zip(&places) {
        copy_blocks(volume, &mut buffer, table.location(), (table.start, *place), table.len)?;
        for run in in_groups(old, table.start, table.end()) {
            freed.entry(old.group_of(run.start).map_or(GroupNumber(0), |it| it.0)).or_default().push(run);
        }
        progress.add(table.len)?;
    }
    for group in freed.keys() {
        volume.free_runs(*group)?;
    }
    let mut update = volume.begin(Credits::new(CREDITS * tables.len() as u32 + 1, 0))?;
    space.taken().into_iter().try_for_each(|run| update.mark_used(volume.to_clusters(run)))?;
    for (group, own) in &freed {
        update.shrink_group(*group, old.blocks_in_group(*group), own)?;
    }
    tables.iter().zip(places).try_for_each(|(table, place)| update.place_table(table, FsBlock(place)))?;
    update.finish();
    journal.commit_running()?;
    backups::write(volume, old, old, 0..old.descriptor_block_count())?;
    journal.checkpoint()?;
    journal.flush()?;
    Ok(true)
}

/// The end of the group behind which none of the bitmaps and tables lies that are behind `blocks`.
pub(super) fn group_end(volume: &Volume, usage: &Usage<'_>, blocks: u64) -> u64 {
    let geometry = &volume.geometry;
    let last = usage.tables_behind(blocks).map(|table| table.end() - 1).max().unwrap_or(blocks);
    let group = geometry.group_of(FsBlock(last)).map_or(geometry.group_count, |(group, _)| group.0 + 1);
    geometry.group_first_block(GroupNumber(group)).0
}

/// Where the format has a table: without `flex_bg` in its own group.
fn allowed(volume: &Volume, table: &Table, geometry: &Geometry) -> std::ops::Range<u64> {
    if volume.superblock.lock().incompat().contains(IncompatFeatures::FLEX_BG) {
        return 0..geometry.blocks_count;
    }
    let first = geometry.group_first_block(table.group).0;
    first..first + u64::from(geometry.blocks_in_group(table.group))
}

impl MetadataUpdate<'_> {
    /// Makes a descriptor name another place.
    fn place_table(&mut self, table: &Table, place: FsBlock) -> Result<()> {
        self.begin_change();
        let written =
            self.sbi.allocator.move_tables(self.tid(), table.group, |descriptor| match table.kind {
                TableKind::BlockBitmap => descriptor.set_block_bitmap(place),
                TableKind::InodeBitmap => descriptor.set_inode_bitmap(place),
                TableKind::Inodes => descriptor.set_inode_table(place),
            })?;
        self.charge(written);
        Ok(())
    }
}
