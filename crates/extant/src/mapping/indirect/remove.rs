//! Freeing the end of a file without extents, in steps that each fit an update.

use std::collections::BTreeSet;

use extant_ondisk::indirect::{self, DIRECT};
use extant_ondisk::{FsBlock, InodeNumber, Run, Structure};
use extant_rt::Arc;

use crate::error::{Location, Result};
use crate::incore::buffer::{Buffer, BufferKind};
use crate::incore::inode::Inode;
use crate::mapping::{BlockMap, ContentKind};
use crate::metadata::update::{InodeDirty, MetadataUpdate, RUN_CREDITS};

/// Block numbers in an inode.
const ROOT_LEN: u32 = 15;

/// A table of block numbers: a block, or the inode's own.
#[derive(Debug)]
struct Table {
    /// None for the inode's own.
    buffer: Option<Arc<Buffer>>,
    bytes: Vec<u8>,
    /// The entry of the next table on the way; in the last table, unused.
    index: u32,
}

impl Table {
    fn pointers(&self) -> u32 {
        (self.bytes.len() / 4) as u32
    }

    fn pointer(&self, index: u32) -> u32 {
        indirect::pointer(&self.bytes, index).unwrap_or(0)
    }

    fn is_empty(&self) -> bool {
        self.bytes.iter().all(|byte| *byte == 0)
    }
}

/// One step of freeing the end of a file: entries of one table, and the tables that become empty.
#[derive(Debug)]
pub(crate) struct IndirectRemoval {
    /// From the inode to the table with the entries.
    tables: Vec<Table>,
    /// The entries that are cleared.
    cleared: std::ops::Range<u32>,
    freed: Vec<Run>,
    kind: ContentKind,
    /// Credits that the step takes.
    pub(crate) credits: u32,
    /// The end of the remaining range; nothing is left if that is its start.
    pub(crate) end: u64,
}

impl BlockMap {
    /// The next step of freeing a file from block `from` to its end. None if there is nothing to free.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(crate) fn indirect_removal(
        &self,
        inode: &Inode,
        from: u64,
        credits_max: u32,
    ) -> Result<Option<IndirectRemoval>> {
        let root = inode.raw().i_block().to_vec();
        let mut tables = vec![Table { buffer: None, bytes: root, index: 0 }];
        let Some(base) = self.last_table(inode.number, from, &mut tables)? else { return Ok(None) };
        let Some(table) = tables.last() else { return Ok(None) };
        let data = if tables.len() == 1 { DIRECT } else { table.pointers() };
        let first = from.saturating_sub(base).min(u64::from(data)) as u32;
        // The inode, the tables on the way, and of those that become empty the bitmaps and the descriptors.
        let mut credits = 1 + (RUN_CREDITS + 1) * (tables.len() as u32 - 1);
        let mut cleared = data..data;
        let mut freed: Vec<Run> = Vec::new();
        let mut groups = BTreeSet::new();
        let kind = ContentKind::of(inode);
        let mut room = kind.step_blocks_max();
        for index in (first..data).rev() {
            let pointer = table.pointer(index);
            let block = FsBlock(u64::from(pointer));
            if pointer != 0 {
                let new = groups.insert(self.geometry.group_of(block).map(|(group, _)| group));
                if room == 0 || (new && credits + RUN_CREDITS > credits_max && !freed.is_empty()) {
                    break;
                }
                room -= 1;
                credits += if new { RUN_CREDITS } else { 0 };
                match freed.last_mut() {
                    Some(run) if block.0 + 1 == run.start.0 => *run = Run { start: block, len: run.len + 1 },
                    _ => freed.push(Run { start: block, len: 1 }),
                }
            }
            cleared.start = index;
        }
        freed.iter().try_for_each(|run| self.prepare_free(*run))?;
        let buffers = tables.iter().filter_map(|table| table.buffer.as_ref());
        buffers.map(|buffer| buffer.block).try_for_each(|block| self.prepare_free_block(block))?;
        let end = if (0..cleared.start).all(|index| table.pointer(index) == 0) && tables.len() == 1 {
            from
        } else {
            (base + u64::from(cleared.start)).max(from)
        };
        Ok(Some(IndirectRemoval { tables, cleared, freed, kind, credits, end }))
    }

    /// Adds the way from the inode to the last table that names blocks of the file from `from` on; the file's block
    /// that its first entry maps. An empty table counts, for it is to be freed.
    fn last_table(&self, number: InodeNumber, from: u64, tables: &mut Vec<Table>) -> Result<Option<u64>> {
        let per_block = u64::from(self.geometry.block_size / 4);
        let mut base = 0;
        let mut tops = Vec::new();
        for height in 1..=3 {
            base = if height == 1 { u64::from(DIRECT) } else { base + per_block.pow(height - 1) };
            tops.push((DIRECT + height - 1, height, base));
        }
        for (index, height, base) in tops.into_iter().rev() {
            let Some(root) = tables.first_mut() else { return Ok(None) };
            root.index = index;
            let pointer = root.pointer(index);
            if pointer != 0 && base + per_block.pow(height) > from {
                return self.descend(number, pointer, height, base, from, tables);
            }
        }
        let Some(root) = tables.first() else { return Ok(None) };
        let named = (0..DIRECT).any(|index| root.pointer(index) != 0 && u64::from(index) >= from);
        Ok(named.then_some(0))
    }

    fn descend(
        &self,
        number: InodeNumber,
        block: u32,
        height: u32,
        base: u64,
        from: u64,
        tables: &mut Vec<Table>,
    ) -> Result<Option<u64>> {
        let location = Location::of(Structure::IndirectBlock).inode(number);
        let buffer = self.buffer(FsBlock(u64::from(block)), BufferKind::Indirect, location)?;
        let bytes = buffer.bytes().to_vec();
        let mut table = Table { buffer: Some(buffer), bytes, index: 0 };
        let span = u64::from(table.pointers()).pow(height - 1);
        let last = (0..table.pointers())
            .rev()
            .find(|index| table.pointer(*index) != 0 && base + (u64::from(*index) + 1) * span > from);
        let Some(index) = last else {
            let empty = table.is_empty();
            tables.push(table);
            return Ok(empty.then_some(base));
        };
        table.index = index;
        let child = table.pointer(index);
        tables.push(table);
        if height == 1 {
            return Ok(Some(base));
        }
        self.descend(number, child, height - 1, base + u64::from(index) * span, from, tables)
    }
}

impl MetadataUpdate<'_> {
    /// Carries out a step.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn remove_indirect(&mut self, inode: &Arc<Inode>, removal: IndirectRemoval) -> Result<()> {
        self.mark_ineligible();
        let IndirectRemoval { mut tables, cleared, freed, kind, .. } = removal;
        let mut blocks: i64 = freed.iter().map(|run| i64::from(run.len)).sum();
        let mut clear = cleared;
        while let Some(mut table) = tables.pop() {
            for index in clear {
                indirect::set_pointer(&mut table.bytes, index, 0);
            }
            let Some(buffer) = &table.buffer else {
                let len = (ROOT_LEN * 4) as usize;
                self.modify_inode(inode, InodeDirty::Mapping, |raw| {
                    raw.i_block_mut()[..len].copy_from_slice(&table.bytes[..len]);
                });
                break;
            };
            if !table.is_empty() {
                self.modify_buffer(buffer, |bytes| bytes.copy_from_slice(&table.bytes));
                break;
            }
            self.free_metadata(buffer.block)?;
            blocks += 1;
            let Some(parent) = tables.last() else { break };
            clear = parent.index..parent.index + 1;
        }
        let clusters: Vec<_> = freed.iter().map(|run| self.sbi.to_clusters(*run)).collect();
        self.free_content(kind, &freed, &clusters)?;
        self.count_clusters(inode, -blocks)
    }
}
