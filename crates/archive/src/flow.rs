//! Copying trees: a [`Source`] sends entries and content into a [`Sink`].

use crate::entry::{DataRange, Entry};
use crate::error::Result;
use crate::host_file::HostFile;

/// Bytes of content that a source reads at once.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// The pieces that ranges are read in.
pub(crate) fn pieces(ranges: &[DataRange]) -> impl Iterator<Item = DataRange> + '_ {
    ranges.iter().flat_map(|range| {
        let starts = (range.offset..range.end()).step_by(PIECE_BYTES);
        starts.map(|offset| DataRange { offset, bytes: (range.end() - offset).min(PIECE_BYTES as u64) })
    })
}

/// The part of a tree that a source is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Only the entries: no content is read.
    Entries,
    /// Entries and content.
    Everything,
}

/// Takes the entries of a tree, one after the other.
pub trait Sink {
    /// The next entry. A file comes before its hard links; a directory before what is in it, but for those of a container
    /// image, where a later entry may describe a directory again.
    ///
    /// # Errors
    /// The sink's own; nothing more is poured.
    fn entry(&mut self, entry: Entry) -> Result<()>;

    /// A piece of the content of the last entry, a regular file, inside one of its ranges; offsets ascend. What
    /// comes back, the same buffer or another, is the source's for its next piece: its bytes mean nothing.
    ///
    /// # Errors
    /// The sink's own; nothing more is poured.
    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>>;

    /// The file of the host with all content of the last entry, for a sink that reads it itself, at any time until it is finished. If it
    /// comes back, its pieces are poured.
    ///
    /// # Errors
    /// The sink's own; nothing more is poured.
    fn host_file(&mut self, file: HostFile) -> Result<Option<HostFile>> {
        Ok(Some(file))
    }

    /// Whether the last entry was passed over, because what is there stays.
    fn is_skipping(&self) -> bool {
        false
    }

    /// There is no more.
    ///
    /// # Errors
    /// The sink's own.
    fn finish(&mut self) -> Result<()>;
}

/// Gives the entries of a tree.
pub trait Source {
    /// Pours the tree into `sink`, and finishes it.
    ///
    /// # Errors
    /// The source's and the sink's; the sink is then not finished.
    fn pour(&mut self, sink: &mut dyn Sink, extent: Extent) -> Result<()>;
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn pour(&mut self, sink: &mut dyn Sink, extent: Extent) -> Result<()> {
        (**self).pour(sink, extent)
    }
}

/// A source without entries.
#[derive(Clone, Copy, Debug)]
pub struct Nothing;

impl Source for Nothing {
    fn pour(&mut self, sink: &mut dyn Sink, _extent: Extent) -> Result<()> {
        sink.finish()
    }
}
