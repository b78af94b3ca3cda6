//! The blocks of a disk that is being laid out, as ranges: what is in use, and the first free ones.
//!
//! Ranges, not bitmaps, because a new disk of terabytes has a few hundred of them.

use std::collections::BTreeMap;

use extant_ondisk::{FsBlock, Geometry, GroupNumber};

use super::{Error, Result};

/// Blocks in use. Invariant: ranges are disjoint, do not touch, and lie inside the disk.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    /// First block of a range → the block after its last.
    used: BTreeMap<u64, u64>,
    first: u64,
    end: u64,
    used_count: u64,
    /// Blocks that are taken at once; a run that is taken begins at a multiple of it.
    unit: u64,
}

impl Space {
    /// All blocks of a disk, free.
    pub fn new(geometry: &Geometry) -> Self {
        let first = u64::from(geometry.first_data_block);
        Self { used: BTreeMap::new(), first, end: geometry.blocks_count, used_count: 0, unit: 1 }
    }

    /// Whether a run may begin with the block.
    pub fn can_take(&self, block: u64) -> bool {
        block.is_multiple_of(self.unit) && self.is_free(block, 1)
    }

    /// Takes whole clusters from now on, and the rest of those that blocks were taken of: bitmaps and tables lie in clusters block by
    /// block, and files do not share clusters with them.
    pub fn take_clusters(&mut self, geometry: &Geometry) {
        self.unit = u64::from(geometry.cluster_ratio);
        let mut rounded: Vec<(u64, u64)> = Vec::new();
        for (start, end) in &self.used {
            let (start, end) = (start - start % self.unit, end.next_multiple_of(self.unit));
            match rounded.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => rounded.push((start, end)),
            }
        }
        if self.unit > 1 {
            self.used_count = rounded.iter().map(|(start, end)| end - start).sum();
            self.used = rounded.into_iter().collect();
        }
    }

    /// Whether the blocks lie inside the disk and none is in use.
    pub fn is_free(&self, start: u64, len: u64) -> bool {
        let Some(end) = start.checked_add(len) else { return false };
        start >= self.first
            && end <= self.end
            && self.used.range(..end).next_back().is_none_or(|(_, used_end)| *used_end <= start)
    }

    /// Takes blocks that are free, with the rest of their last cluster.
    pub fn mark(&mut self, start: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let len = len.next_multiple_of(self.unit);
        if !self.is_free(start, len) {
            return Err(Error::TooSmall("metadata does not fit its groups"));
        }
        self.used_count += len;
        let (mut start, mut end) = (start, start + len);
        if let Some((&before, &before_end)) = self.used.range(..start).next_back()
            && before_end == start
        {
            self.used.remove(&before);
            start = before;
        }
        if let Some(after_end) = self.used.remove(&end) {
            end = after_end;
        }
        self.used.insert(start, end);
        Ok(())
    }

    /// The first run of `len` free blocks that starts in `from..before`; it may end behind.
    pub fn find(&self, from: u64, before: u64, len: u64) -> Option<u64> {
        let mut at = from.max(self.first);
        loop {
            at = self.skip_used(at);
            if at >= before || at.checked_add(len)? > self.end {
                return None;
            }
            match self.used.range(at..at + len).next() {
                None => return Some(at),
                Some((_, used_end)) => at = *used_end,
            }
        }
    }

    /// The first free run at or after `goal`, or else from the start: its first block and the block after its last.
    pub fn next_free(&self, goal: u64) -> Option<(u64, u64)> {
        let start = self.find(goal, self.end, 1).or_else(|| self.find(self.first, goal, 1))?;
        let end = self.used.range(start..).next().map_or(self.end, |(used, _)| *used);
        Some((start, end))
    }

    /// Takes the first free block at or after `goal`, or else from the start.
    pub fn take(&mut self, goal: u64) -> Result<FsBlock> {
        let (start, _) = self.next_free(goal).ok_or(Error::TooSmall("no block is left"))?;
        self.mark(start, 1)?;
        Ok(FsBlock(start))
    }

    /// The clusters of a group that are in use, as first bit and number of bits. Whole clusters are taken.
    pub fn in_group<'a>(
        &'a self,
        geometry: &'a Geometry,
        group: GroupNumber,
    ) -> impl Iterator<Item = (u32, u32)> + 'a {
        let first = geometry.group_first_block(group).0;
        let end = first + u64::from(geometry.blocks_in_group(group));
        let from = self.used.range(..=first).next_back().map_or(first, |(start, _)| *start);
        self.used
            .range(from..end)
            .map(move |(start, used_end)| ((*start).max(first), (*used_end).min(end)))
            .filter(|(start, used_end)| start < used_end)
            .map(move |(start, used_end)| {
                let (bit, bit_end) =
                    (geometry.clusters_of(start - first), geometry.clusters_of(used_end - first));
                (bit as u32, (bit_end - bit) as u32)
            })
    }

    /// Free clusters of a group.
    pub fn free_in_group(&self, geometry: &Geometry, group: GroupNumber) -> u32 {
        geometry.clusters_in_group(group) - self.in_group(geometry, group).map(|(_, len)| len).sum::<u32>()
    }

    /// Blocks in use.
    pub fn used_count(&self) -> u64 {
        self.used_count
    }

    /// Free blocks of the disk.
    pub fn free_count(&self) -> u64 {
        self.end - self.first - self.used_count
    }

    fn skip_used(&self, at: u64) -> u64 {
        match self.used.range(..=at).next_back() {
            Some((_, end)) if *end > at => *end,
            _ => at,
        }
    }
}
