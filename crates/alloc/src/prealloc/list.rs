//! The older form of the live ranges: a list, searched from the newest on, capped and trimmed (kernel before 6.4).

use extant_ondisk::LogicalBlock;

use super::ranges::{Around, Range};

/// Ranges at most (kernel `mb_max_inode_prealloc`), and how many more before the oldest go.
const RANGES_MAX: usize = 512;
const EXCESS_MAX: usize = RANGES_MAX / 4;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct List {
    /// Oldest first.
    ranges: Vec<Range>,
}

impl List {
    /// Ends at the range that covers the block, if there is one.
    pub fn around(&self, logical: LogicalBlock) -> Around {
        let mut around = Around::default();
        for range in self.ranges.iter().rev() {
            if around.visit(*range, logical) && range.end() > u64::from(logical.0) {
                break;
            }
        }
        around
    }

    /// Adds a range; the oldest, if there are too many.
    pub fn insert(&mut self, range: Range) -> Vec<Range> {
        self.ranges.push(range);
        if self.ranges.len() <= RANGES_MAX + EXCESS_MAX {
            return Vec::new();
        }
        self.ranges.drain(..self.ranges.len() - RANGES_MAX).collect()
    }

    pub fn change(&mut self, logical: LogicalBlock, part: Range) {
        if let Some(range) = self.ranges.iter_mut().rfind(|range| range.logical == logical) {
            *range = part;
        }
    }

    pub fn remove(&mut self, logical: LogicalBlock) {
        self.ranges.retain(|range| range.logical != logical);
    }

    pub fn into_ranges(self) -> Vec<Range> {
        self.ranges
    }
}

#[cfg(test)]
impl List {
    /// A list beyond its cap, to measure look-ups.
    pub fn uncapped(ranges: Vec<Range>) -> Self {
        Self { ranges }
    }
}
