//! Block maps of files without extents: 12 direct blocks and three trees of block numbers.
//!
//! Source: kernel `ext4_block_to_path`.

use crate::field;
use crate::types::LogicalBlock;

/// Block numbers in an inode that name blocks of the file itself.
pub const DIRECT: u32 = 12;
/// The place in an inode of the block of block numbers.
pub const SINGLE: u32 = 12;
/// The place in an inode of the tree of two levels.
pub const DOUBLE: u32 = 13;
/// The place in an inode of the tree of three levels.
pub const TRIPLE: u32 = 14;

/// The way from the inode to a block of the file: a place in each table of block numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    offsets: [u32; 4],
    len: usize,
    /// Blocks of the file behind this one in the same last table.
    pub following: u32,
}

impl Path {
    /// The places: the first in the inode, then one in each block of block numbers.
    #[must_use]
    pub fn offsets(&self) -> &[u32] {
        &self.offsets[..self.len]
    }
}

/// The way to a block of a file; `None` beyond the largest one.
#[must_use]
pub fn path(logical: LogicalBlock, block_size: u32) -> Option<Path> {
    let per_block = u64::from(block_size / 4);
    if per_block == 0 {
        return None;
    }
    let mut rest = u64::from(logical.0);
    if rest < u64::from(DIRECT) {
        return Some(Path { offsets: [rest as u32, 0, 0, 0], len: 1, following: DIRECT - 1 - rest as u32 });
    }
    rest -= u64::from(DIRECT);
    let last = |rest: u64| (rest % per_block) as u32;
    let following = |rest: u64| per_block as u32 - 1 - last(rest);
    if rest < per_block {
        return Some(Path { offsets: [SINGLE, last(rest), 0, 0], len: 2, following: following(rest) });
    }
    rest -= per_block;
    let second = |rest: u64| (rest / per_block % per_block) as u32;
    if rest < per_block * per_block {
        let offsets = [DOUBLE, second(rest), last(rest), 0];
        return Some(Path { offsets, len: 3, following: following(rest) });
    }
    rest -= per_block * per_block;
    if rest / per_block / per_block < per_block {
        let first = (rest / per_block / per_block) as u32;
        let offsets = [TRIPLE, first, second(rest), last(rest)];
        return Some(Path { offsets, len: 4, following: following(rest) });
    }
    None
}

/// The block number at a place of a table; 0 for a hole, `None` outside of the table.
#[must_use]
pub fn pointer(table: &[u8], index: u32) -> Option<u32> {
    let start = (index as usize).checked_mul(4)?;
    table.get(start..start.checked_add(4)?).map(|bytes| field::read(bytes, 0))
}

/// Whether the pointer at a place of a table is set, and how many pointers from there on, up to `count_max`, are in the same
/// state: none outside of the table.
#[must_use]
pub fn count_alike(table: &[u8], index: u32, count_max: u32) -> (bool, u32) {
    const NONE: [u8; 4] = [0; 4];
    let start = (index as usize).saturating_mul(NONE.len());
    let end = start.saturating_add((count_max as usize).saturating_mul(NONE.len())).min(table.len());
    let (pointers, _) = table.get(start..end).unwrap_or_default().as_chunks();
    let is_set = pointers.first().is_some_and(|first| *first != NONE);
    // Compared by the line: a walk over a file of holes looks at each pointer.
    let (lines, _) = pointers.as_chunks::<64>();
    let empty = if is_set { 0 } else { 64 * lines.iter().take_while(|line| **line == [NONE; 64]).count() };
    let alike = pointers[empty..].iter().take_while(|pointer| (**pointer != NONE) == is_set).count();
    (is_set, (empty + alike) as u32)
}

/// Sets [`pointer`]; nothing outside of the table.
pub fn set_pointer(table: &mut [u8], index: u32, block: u32) {
    field::write(table, (index as usize).saturating_mul(4), block);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(logical: u32) -> Vec<u32> {
        path(LogicalBlock(logical), 1024).map(|path| path.offsets().to_vec()).unwrap_or_default()
    }

    #[test]
    fn the_tree_begins_and_ends_where_its_levels_do() {
        let (single, double, triple) = (256, 256 * 256, 256 * 256 * 256);
        assert_eq!(places(0), [0]);
        assert_eq!(places(11), [11]);
        assert_eq!(places(12), [12, 0]);
        assert_eq!(places(11 + single), [12, 255]);
        assert_eq!(places(12 + single), [13, 0, 0]);
        assert_eq!(places(11 + single + double), [13, 255, 255]);
        assert_eq!(places(12 + single + double), [14, 0, 0, 0]);
        assert_eq!(places(11 + single + double + triple), [14, 255, 255, 255]);
        assert!(places(12 + single + double + triple).is_empty());
        assert!(path(LogicalBlock(u32::MAX), 4096).is_none());
        assert!(path(LogicalBlock(u32::MAX), 65536).is_some());
    }

    #[test]
    fn following_counts_to_the_end_of_the_last_table() {
        let following = |logical| path(LogicalBlock(logical), 1024).map(|path| path.following);
        assert_eq!(following(0), Some(11));
        assert_eq!(following(11), Some(0));
        assert_eq!(following(12), Some(255));
        assert_eq!(following(12 + 255), Some(0));
        assert_eq!(following(12 + 256 + 1), Some(254));
    }

    #[test]
    fn pointers_alike_are_counted_to_the_first_other_one() {
        for len in 0..7 {
            for others in 0..1_u32 << len {
                let mut table = vec![0; len * 4];
                for index in (0..len as u32).filter(|index| others >> index & 1 != 0) {
                    set_pointer(&mut table, index, 1 << (index * 4 % 32));
                }
                for (index, count_max) in
                    (0..=len as u32 + 1).flat_map(|i| (0..=len as u32 + 1).map(move |c| (i, c)))
                {
                    let at = |index| pointer(&table, index).map(|pointer| pointer != 0);
                    let first = at(index).filter(|_| count_max > 0);
                    let alike =
                        (index..index + count_max).take_while(|index| first.is_some() && at(*index) == first);
                    let expected = (first.unwrap_or(false), alike.count() as u32);
                    assert_eq!(
                        count_alike(&table, index, count_max),
                        expected,
                        "{others:b}, {index}, {count_max}"
                    );
                }
            }
        }
    }

    #[test]
    fn long_holes_are_counted_whole() {
        for set in [0, 1, 63, 64, 65, 127, 128, 200, 255] {
            let mut table = vec![0; 1024];
            set_pointer(&mut table, set, 1 << 31);
            for from in 0..=set {
                let expected = if from == set { (true, 1) } else { (false, set - from) };
                assert_eq!(count_alike(&table, from, 256), expected);
                assert_eq!(count_alike(&table, from, set - from), (false, set - from));
            }
        }
    }

    #[test]
    fn pointers_outside_of_the_table_are_none() {
        let mut table = [0; 8];
        set_pointer(&mut table, 1, 0x0102_0304);
        set_pointer(&mut table, 2, 1);
        assert_eq!(table, [0, 0, 0, 0, 4, 3, 2, 1]);
        assert_eq!(pointer(&table, 1), Some(0x0102_0304));
        assert_eq!(pointer(&table, 2), None);
        assert_eq!(pointer(&table, u32::MAX), None);
    }
}
