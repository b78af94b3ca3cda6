//! Filling holes of files without extents.

use extant_ondisk::{FsBlock, LogicalBlock, RawInode, Run, Structure, indirect};
use extant_rt::Arc;

use crate::error::{Error, Location, Result};
use crate::incore::buffer::{Buffer, BufferKind};
use crate::incore::inode::Inode;
use crate::mapping::{BlockMap, ContentChange, Mapping};
use crate::metadata::update::MetadataUpdate;

/// The way to a hole.
#[derive(Debug)]
pub(crate) struct IndirectHole {
    /// The places in the inode and in each table.
    offsets: Vec<u32>,
    /// The tables that there are, from the inode on.
    tables: Vec<Arc<Buffer>>,
    goal: Option<FsBlock>,
    /// Blocks that one update can map: to the end of the last table.
    pub(crate) len_max: u32,
}

impl IndirectHole {
    /// Where to allocate so that the file lies in order.
    pub(crate) fn goal(&self) -> Option<FsBlock> {
        self.goal
    }

    /// Tables that are missing.
    pub(crate) fn growth(&self) -> u32 {
        (self.offsets.len() - 1 - self.tables.len()) as u32
    }

    /// Credits for filling it: the inode, the tables that there are, and those to be made with bitmap and descriptor.
    pub(crate) fn credits(&self) -> u32 {
        1 + self.tables.len() as u32 + 3 * self.growth()
    }
}

impl BlockMap {
    /// The way to a hole of a file without extents.
    ///
    /// # Errors
    /// `FileTooLarge` beyond what block numbers reach; `Io`; `Corrupt`.
    pub(crate) fn indirect_hole(
        &self,
        inode: &Inode,
        raw: &RawInode,
        logical: LogicalBlock,
    ) -> Result<IndirectHole> {
        let location = Location::of(Structure::IndirectBlock).inode(inode.number);
        let path = indirect::path(logical, self.geometry.block_size).ok_or(Error::FileTooLarge)?;
        let offsets = path.offsets().to_vec();
        let mut pointer = indirect::pointer(raw.i_block(), offsets[0]).unwrap_or(0);
        let mut tables = Vec::with_capacity(offsets.len() - 1);
        for offset in &offsets[1..] {
            if pointer == 0 {
                break;
            }
            let buffer = self.buffer(FsBlock(u64::from(pointer)), BufferKind::Indirect, location)?;
            pointer = buffer.read(|bytes| indirect::pointer(bytes, *offset).unwrap_or(0));
            tables.push(buffer);
        }
        let before = logical
            .0
            .checked_sub(1)
            .map(|before| self.map(inode, raw, LogicalBlock(before), 1))
            .transpose()?;
        let goal = match before {
            Some(Mapping::Data { start, .. }) => start.checked_add(1),
            _ => tables.last().map(|table| table.block),
        };
        Ok(IndirectHole { offsets, tables, goal, len_max: path.following.saturating_add(1) })
    }
}

impl MetadataUpdate<'_> {
    /// Maps a hole to blocks. The missing tables, as many as [`IndirectHole::growth`] says, are made in `tables`, which were taken
    /// but not marked, and counted in the inode.
    ///
    /// # Errors
    /// `FileTooLarge` for blocks that 32 bits do not number; `Corrupt`.
    pub(crate) fn fill_indirect(
        &mut self,
        hole: IndirectHole,
        tables: Vec<Run>,
        run: Run,
    ) -> Result<ContentChange> {
        let first = u32::try_from(run.start.0).map_err(|_| Error::FileTooLarge)?;
        first.checked_add(run.len).filter(|_| run.len <= hole.len_max).ok_or(Error::FileTooLarge)?;
        let growth = hole.growth();
        let mut new = Vec::with_capacity(tables.len());
        for table in tables {
            self.mark_used(self.sbi.to_clusters(table))?;
            new.push(self.new_buffer(table.start, BufferKind::Indirect));
        }
        let tables: Vec<_> = hole.tables.into_iter().chain(new).collect();
        let (mut pointers, mut change) = ((first, run.len), ContentChange::default());
        // From the last table upwards, until a table is reached whose way from the inode there was before.
        for level in (0..hole.offsets.len()).rev() {
            let (offset, (block, count)) = (hole.offsets[level], pointers);
            let set = |table: &mut [u8]| {
                (0..count).for_each(|index| indirect::set_pointer(table, offset + index, block + index));
            };
            let Some(buffer) = level.checked_sub(1).and_then(|above| tables.get(above)) else {
                change = ContentChange::of_pointers(offset, block, count);
                break;
            };
            self.modify_buffer(buffer, set);
            if level <= tables.len() - growth as usize {
                break;
            }
            pointers = (u32::try_from(buffer.block.0).map_err(|_| Error::FileTooLarge)?, 1);
        }
        Ok(change.with_clusters(i64::from(growth)))
    }
}
