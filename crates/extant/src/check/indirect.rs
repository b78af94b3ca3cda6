//! Maps of block numbers: direct ones and three trees.

use extant_ondisk::indirect::{DIRECT, DOUBLE, SINGLE, TRIPLE, pointer};
use extant_ondisk::{FsBlock, Structure};

use super::Checker;
use super::maps::{Run, Walk};
use crate::error::{Location, Result};

/// Tables that a table names and that are read ahead together.
const CHILDREN_AHEAD: u32 = 128;

impl Checker<'_> {
    pub(super) fn map_block_numbers(&mut self, i_block: &[u8], walk: &mut Walk<'_>) -> Result<()> {
        let location = Location::of(Structure::Inode).inode(walk.number);
        for slot in 0..DIRECT {
            self.map_pointer(i_block, slot, u64::from(slot), location, walk);
        }
        let per_table = u64::from(self.geometry.block_size / 4);
        let mut logical = u64::from(DIRECT);
        for (slot, levels) in [(SINGLE, 1), (DOUBLE, 2), (TRIPLE, 3)] {
            let root = pointer(i_block, slot).unwrap_or(0);
            self.map_table(FsBlock(u64::from(root)), levels, logical, walk)?;
            logical += per_table.pow(levels);
        }
        Ok(())
    }

    fn map_pointer(
        &mut self,
        table: &[u8],
        slot: u32,
        logical: u64,
        location: Location,
        walk: &mut Walk<'_>,
    ) {
        let block = pointer(table, slot).unwrap_or(0);
        if block != 0 {
            let run = Run { logical, start: FsBlock(u64::from(block)), len: 1 };
            self.claim_content(walk, run, false, location);
        }
    }

    /// Recursion is at most three deep. A table is read once, as only its first claim leads here.
    fn map_table(&mut self, block: FsBlock, levels: u32, logical: u64, walk: &mut Walk<'_>) -> Result<()> {
        if block.0 == 0
            || self.findings.is_full()
            || !self.claim_map_block(walk, block, Structure::IndirectBlock)
        {
            return Ok(());
        }
        let location = Location::of(Structure::IndirectBlock).inode(walk.number).block(block);
        let table = self.read_last(block, location)?;
        let per_table = self.geometry.block_size / 4;
        let span = u64::from(per_table).pow(levels - 1);
        for slot in 0..per_table {
            let at = logical + u64::from(slot) * span;
            if levels == 1 {
                self.map_pointer(&table, slot, at, location, walk);
            } else {
                if slot.is_multiple_of(CHILDREN_AHEAD) {
                    let children = (slot..per_table).take(CHILDREN_AHEAD as usize);
                    let pointers =
                        children.filter_map(|slot| pointer(&table, slot)).filter(|child| *child != 0);
                    self.read_ahead(pointers.map(|child| FsBlock(u64::from(child))));
                }
                let child = pointer(&table, slot).unwrap_or(0);
                self.map_table(FsBlock(u64::from(child)), levels - 1, at, walk)?;
            }
        }
        Ok(())
    }
}
