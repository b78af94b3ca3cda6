//! Holes of a file, and blocks behind its end, that threads fill beside each other.
//!
//! A thread that has a file's pages alone opens a window over blocks of the file. From then on threads that share the pages put blocks of it
//! in that are neither in memory nor on the disk, each into a place of its own, until a thread has the pages alone again: it closes the window
//! first and takes out what was put in. So only they who fill holes know of a window.
//!
//! Which blocks are holes is looked up by spans of [`SPAN_BLOCKS`], before the first block of a span is put in.

use extant_rt::{OnceBox, OnceBoxes};

/// Blocks of a span.
pub(crate) const SPAN_BLOCKS: u32 = 256;
/// Blocks of a window at most.
pub(crate) const WINDOW_BLOCKS_MAX: u32 = SPANS_MAX * SPAN_BLOCKS;
/// Spans of a window at most, and how many of them lie before the block that it is opened for: other threads may be behind.
const SPANS_MAX: u32 = 1024;
const SPANS_BEFORE: u32 = SPANS_MAX / 4;

/// A value for each block of a span.
pub(crate) type OfSpan<T> = [T; SPAN_BLOCKS as usize];

/// A window over blocks of which each that was put in has a `T`.
#[derive(Debug)]
pub(crate) struct FillWindow<T> {
    first_span: u32,
    /// No block from here on.
    end: u32,
    spans: OnceBoxes<Span<T>>,
}

#[derive(Debug)]
struct Span<T> {
    holes: OfSpan<bool>,
    blocks: OfSpan<OnceBox<T>>,
}

/// A block has no place in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is not known which blocks of its span are holes.
    Span,
    /// It lies outside, or is no hole.
    Block,
}

impl<T: Send + Sync> FillWindow<T> {
    /// An empty window around a block of a file that may have blocks up to `end`.
    pub(crate) fn around(block: u32, end: u32) -> Self {
        let first_span = (block / SPAN_BLOCKS).saturating_sub(SPANS_BEFORE);
        let spans = end.div_ceil(SPAN_BLOCKS).saturating_sub(first_span).min(SPANS_MAX);
        Self { first_span, end, spans: OnceBoxes::new(spans as usize) }
    }

    fn span(&self, block: u32) -> Result<&OnceBox<Span<T>>, Missing> {
        let index = (block / SPAN_BLOCKS).checked_sub(self.first_span).filter(|_| block < self.end);
        index.and_then(|index| self.spans.get(index as usize)).ok_or(Missing::Block)
    }

    /// The place of a block.
    ///
    /// # Errors
    /// Why it has none.
    pub(crate) fn place(&self, block: u32) -> Result<&OnceBox<T>, Missing> {
        let span = self.span(block)?.get().ok_or(Missing::Span)?;
        let index = (block % SPAN_BLOCKS) as usize;
        if span.holes[index] { Ok(&span.blocks[index]) } else { Err(Missing::Block) }
    }

    /// What was put in for a block.
    pub(crate) fn get(&self, block: u32) -> Option<&T> {
        self.place(block).ok()?.get()
    }

    /// Makes places for the holes in the span of a block, if it lies inside.
    pub(crate) fn add_span(&self, block: u32, holes: OfSpan<bool>) {
        let blocks = [const { OnceBox::new() }; SPAN_BLOCKS as usize];
        if let Ok(span) = self.span(block) {
            // Another thread may be quicker with the same holes.
            let _ = span.try_insert(Span { holes, blocks });
        }
    }

    /// Puts a block in: whether it has a place and was not there.
    pub(crate) fn insert(&self, block: u32, value: T) -> bool {
        self.place(block).is_ok_and(|place| place.try_insert(value).is_ok())
    }

    /// Takes out what was put in, in ascending order.
    pub(crate) fn into_blocks(mut self) -> impl Iterator<Item = (u32, T)> {
        let numbered = (self.first_span..).zip(self.spans.iter_mut());
        let spans: Vec<_> =
            numbered.filter_map(|(number, span)| Some((number * SPAN_BLOCKS, span.take()?.blocks))).collect();
        let places = spans.into_iter().flat_map(|(first, blocks)| (first..).zip(blocks));
        places.filter_map(|(block, mut place)| Some((block, place.take()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_gives_back_what_was_put_in() {
        let window = FillWindow::around(300, 2_000);
        assert_eq!(window.place(300).err(), Some(Missing::Span));
        assert!(!window.insert(300, 'a'));
        for block in [300, 511, 1_999, 2_000] {
            window.add_span(block, std::array::from_fn(|index| index != 7));
        }
        assert_eq!(window.place(256 + 7).err(), Some(Missing::Block), "no hole");
        assert_eq!(window.place(2_000).err(), Some(Missing::Block));
        assert!(window.insert(511, 'b') && window.insert(300, 'a') && window.insert(1_999, 'c'));
        assert!(!window.insert(300, 'd'));
        let found = [300, 301, 511, 1_999, 2_000].map(|block| window.get(block).copied());
        assert_eq!(found, [Some('a'), None, Some('b'), Some('c'), None]);
        assert!(window.into_blocks().eq([(300, 'a'), (511, 'b'), (1_999, 'c')]));
    }

    #[test]
    fn a_window_reaches_before_its_block_and_no_further_than_its_table() {
        let window = FillWindow::<u8>::around(SPAN_BLOCKS * 1_000, u32::MAX);
        let (first, last) = (1_000 - SPANS_BEFORE, 1_000 - SPANS_BEFORE + SPANS_MAX - 1);
        let missing = [first - 1, first, last, last + 1].map(|span| window.place(span * SPAN_BLOCKS).err());
        assert_eq!(missing, [Missing::Block, Missing::Span, Missing::Span, Missing::Block].map(Some));
        let last = FillWindow::<u8>::around(u32::MAX - 1, u32::MAX);
        assert_eq!(last.place(u32::MAX - 1).err(), Some(Missing::Span));
        assert_eq!(last.spans.len(), SPANS_BEFORE as usize + 1);
    }
}
