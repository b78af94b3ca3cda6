//! The content of files in the model.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Answer, Block, Body, Id, Model, Refused};
use crate::op::{Op, pattern_of};

impl Model {
    fn map_of(&mut self, id: Id) -> (&mut u64, &mut BTreeMap<u64, Block>) {
        match &mut Arc::make_mut(self.state.get_mut(&id).expect("an inode of the model")).body {
            Body::File { size, blocks } => (size, blocks),
            _ => unreachable!("a file"),
        }
    }

    pub(super) fn write(&mut self, id: Id, at: u64, bytes: u64, tag: usize) {
        let block_size = self.block_size;
        let data = pattern_of(tag, at, bytes);
        let mut maps = at + bytes > self.size(id);
        for index in at / block_size..(at + bytes).div_ceil(block_size) {
            let fresh = self.new_block(true);
            let (_, blocks) = self.map_of(id);
            let block = blocks.entry(index).or_insert_with(|| {
                maps = true;
                fresh
            });
            maps |= !block.is_written;
            block.is_written = true;
            let start = index * block_size;
            let (from, to) = (at.max(start), (at + bytes).min(start + block_size));
            Arc::make_mut(&mut block.bytes)[(from - start) as usize..(to - start) as usize]
                .copy_from_slice(&data[(from - at) as usize..(to - at) as usize]);
        }
        let (size, _) = self.map_of(id);
        *size = (*size).max(at + bytes);
        if maps {
            self.touch_map(id);
        } else {
            self.touch(id);
        }
        self.step();
    }

    pub(super) fn change_map(&mut self, op: Op) -> Answer {
        if !self.has_extents && !matches!(op, Op::Truncate { .. }) {
            return Err(Refused);
        }
        match op {
            Op::Truncate { file, bytes } => {
                let id = self.file(file)?;
                self.truncate(id, bytes);
                self.finish(id)
            }
            Op::Allocate { file, at, bytes, keep_size } => {
                let id = self.file(file)?;
                self.fill_holes(id, at, at + bytes);
                self.grow(id, at + bytes, keep_size)
            }
            Op::Zero { file, at, bytes, keep_size } => {
                let id = self.file(file)?;
                self.fill_holes(id, at, at + bytes);
                self.zero(id, at, at + bytes, false);
                self.grow(id, at + bytes, keep_size)
            }
            Op::Punch { file, at, bytes } => {
                let id = self.file(file)?;
                let size = self.size(id);
                if at >= size {
                    return Ok(());
                }
                let end = (at + bytes).min(size.next_multiple_of(self.block_size));
                self.zero(id, at, end, true);
                self.finish(id)
            }
            Op::Collapse { file, block, len } => {
                let id = self.file(file)?;
                if (block + len) * self.block_size >= self.size(id) {
                    return Err(Refused);
                }
                let removed = len * self.block_size;
                let (size, blocks) = self.map_of(id);
                *size -= removed;
                let behind = blocks.split_off(&(block + len));
                blocks.split_off(&block);
                blocks.extend(behind.into_iter().map(|(at, block)| (at - len, block)));
                self.finish(id)
            }
            Op::Insert { file, block, len } => {
                let id = self.file(file)?;
                if block * self.block_size >= self.size(id) {
                    return Err(Refused);
                }
                let inserted = len * self.block_size;
                let (size, blocks) = self.map_of(id);
                *size += inserted;
                let behind = blocks.split_off(&block);
                blocks.extend(behind.into_iter().map(|(at, block)| (at + len, block)));
                self.finish(id)
            }
            _ => unreachable!("changes the map of a file"),
        }
    }

    fn finish(&mut self, id: Id) -> Answer {
        self.touch_map(id);
        self.step();
        Ok(())
    }

    fn grow(&mut self, id: Id, end: u64, keep_size: bool) -> Answer {
        let (size, _) = self.map_of(id);
        if !keep_size {
            *size = (*size).max(end);
        }
        self.finish(id)
    }

    fn truncate(&mut self, id: Id, bytes: u64) {
        let block_size = self.block_size;
        let (size, blocks) = self.map_of(id);
        if bytes <= *size {
            blocks.split_off(&bytes.div_ceil(block_size));
            if let Some(last) = blocks.get_mut(&(bytes / block_size)) {
                Arc::make_mut(&mut last.bytes)[(bytes % block_size) as usize..].fill(0);
            }
        }
        *size = bytes;
    }

    fn fill_holes(&mut self, id: Id, at: u64, end: u64) {
        for index in at / self.block_size..end.div_ceil(self.block_size) {
            let fresh = self.new_block(false);
            self.map_of(id).1.entry(index).or_insert(fresh);
        }
    }

    /// Zeroes a range; whole blocks of it are freed, or read as zeroes without having been written.
    fn zero(&mut self, id: Id, at: u64, end: u64, free: bool) {
        let block_size = self.block_size;
        for index in at / block_size..end.div_ceil(block_size) {
            let start = index * block_size;
            let (from, to) = (at.max(start) - start, end.min(start + block_size) - start);
            let (_, blocks) = self.map_of(id);
            let is_whole = from == 0 && to == block_size;
            if is_whole && free {
                blocks.remove(&index);
            } else if let Some(block) = blocks.get_mut(&index) {
                Arc::make_mut(&mut block.bytes)[from as usize..to as usize].fill(0);
                block.is_written &= !is_whole;
            }
        }
    }
}
