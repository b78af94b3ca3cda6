//! Folios by their first block, found in a few steps: those of 64 blocks lie together, and a bit for each block says where one begins.
//!
//! Invariant: no folio reaches over a multiple of [`CHUNK_BLOCKS`], as folios are naturally aligned and no longer.

use std::collections::BTreeMap;

/// Blocks of a chunk: a bit for each.
pub(crate) const CHUNK_BLOCKS: u32 = u64::BITS;

/// A map from first blocks, in ascending order.
pub(crate) struct FolioMap<T> {
    chunks: BTreeMap<u32, Chunk<T>>,
    len: usize,
}

struct Chunk<T> {
    /// A bit for each block that a folio begins with.
    starts: u64,
    /// In the order of their bits.
    folios: Vec<T>,
}

/// The chunk of a block, and the block's number in it.
fn place(block: u32) -> (u32, u32) {
    (block / CHUNK_BLOCKS, block % CHUNK_BLOCKS)
}

impl<T> Chunk<T> {
    /// How many folios begin before a block of the chunk.
    fn rank(&self, index: u32) -> usize {
        (self.starts & ((1 << index) - 1)).count_ones() as usize
    }

    /// The last folio that begins at a block of the chunk or before: its first block in the chunk, and its rank.
    fn last_to(&self, index: u32) -> Option<(u32, usize)> {
        let before = self.starts & (u64::MAX >> (CHUNK_BLOCKS - 1 - index));
        let first = before.checked_ilog2()?;
        Some((first, before.count_ones() as usize - 1))
    }

    /// Its folios that begin at a block of the chunk or behind, with their first blocks in the chunk.
    fn from(&self, index: u32) -> impl Iterator<Item = (u32, &T)> {
        let mut left = self.starts & (u64::MAX << index);
        let firsts = std::iter::from_fn(move || {
            let first = left.trailing_zeros();
            left &= left.wrapping_sub(1);
            (first < CHUNK_BLOCKS).then_some(first)
        });
        firsts.zip(&self.folios[self.rank(index)..])
    }
}

impl<T> FolioMap<T> {
    pub(crate) fn new() -> Self {
        Self { chunks: BTreeMap::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The last folio that begins at a block or before, in the block's chunk.
    pub(crate) fn last_to(&self, block: u32) -> Option<(u32, &T)> {
        let (number, index) = place(block);
        let chunk = self.chunks.get(&number)?;
        let (first, rank) = chunk.last_to(index)?;
        Some((number * CHUNK_BLOCKS + first, &chunk.folios[rank]))
    }

    /// [`FolioMap::last_to`], to be changed.
    pub(crate) fn last_to_mut(&mut self, block: u32) -> Option<(u32, &mut T)> {
        let (number, index) = place(block);
        let chunk = self.chunks.get_mut(&number)?;
        let (first, rank) = chunk.last_to(index)?;
        Some((number * CHUNK_BLOCKS + first, &mut chunk.folios[rank]))
    }

    /// The folios that begin at a block or behind.
    pub(crate) fn from(&self, block: u32) -> impl Iterator<Item = (u32, &T)> {
        let (first_number, index) = place(block);
        self.chunks.range(first_number..).flat_map(move |(number, chunk)| {
            let start = if *number == first_number { index } else { 0 };
            chunk.from(start).map(move |(first, folio)| (number * CHUNK_BLOCKS + first, folio))
        })
    }

    /// The first folio that begins at a block or behind, to be changed.
    pub(crate) fn first_from_mut(&mut self, block: u32) -> Option<(u32, &mut T)> {
        let (first, _) = self.from(block).next()?;
        self.last_to_mut(first)
    }

    /// Puts a folio in; none may begin there.
    pub(crate) fn insert(&mut self, first: u32, folio: T) {
        let (number, index) = place(first);
        let chunk = self.chunks.entry(number).or_insert_with(|| Chunk { starts: 0, folios: Vec::new() });
        chunk.folios.insert(chunk.rank(index), folio);
        chunk.starts |= 1 << index;
        self.len += 1;
    }

    /// Takes out the folio that begins with a block.
    pub(crate) fn remove(&mut self, first: u32) -> Option<T> {
        let (number, index) = place(first);
        let chunk = self.chunks.get_mut(&number).filter(|chunk| chunk.starts >> index & 1 != 0)?;
        let folio = chunk.folios.remove(chunk.rank(index));
        chunk.starts &= !(1 << index);
        if chunk.starts == 0 {
            self.chunks.remove(&number);
        }
        self.len -= 1;
        Some(folio)
    }

    /// Keeps the folios for which `stays` says so.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(&T) -> bool) {
        let mut len = 0;
        self.chunks.retain(|_, chunk| {
            let mut left = chunk.starts;
            chunk.folios.retain(|folio| {
                let first = left & left.wrapping_neg();
                left &= !first;
                let keeps = stays(folio);
                chunk.starts &= if keeps { u64::MAX } else { !first };
                keeps
            });
            len += chunk.folios.len();
            chunk.starts != 0
        });
        self.len = len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_a_tree_would() {
        let (mut map, mut model) = (FolioMap::new(), BTreeMap::new());
        let mut state = 1_u64;
        let mut below = move |bound: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u32 % bound
        };
        for step in 0..20_000_u32 {
            let block = below(300);
            match below(8) {
                0..4 if !model.contains_key(&block) => {
                    map.insert(block, step);
                    model.insert(block, step);
                }
                4..6 => assert_eq!(map.remove(block), model.remove(&block)),
                6 if step % 50 == 0 => {
                    map.retain(|value| value % 3 != 0);
                    model.retain(|_, value| *value % 3 != 0);
                }
                _ => {}
            }
            assert_eq!(map.len(), model.len());
            let chunk_start = block / CHUNK_BLOCKS * CHUNK_BLOCKS;
            let last = model.range(chunk_start..=block).next_back().map(|(first, value)| (*first, *value));
            assert_eq!(map.last_to(block).map(|(first, value)| (first, *value)), last);
            assert_eq!(map.last_to_mut(block).map(|(first, value)| (first, *value)), last);
            let next = model.range(block..).next().map(|(first, value)| (*first, *value));
            assert_eq!(map.first_from_mut(block).map(|(first, value)| (first, *value)), next);
            assert!(map.from(block).eq(model.range(block..).map(|(first, value)| (*first, value))));
        }
        // The last block that there can be.
        map.insert(u32::MAX, 1);
        assert_eq!(map.last_to(u32::MAX), Some((u32::MAX, &1)));
        assert_eq!(map.remove(u32::MAX), Some(1));
    }
}
