//! Changes entries between source and sink: their owners, modes and times.

use crate::entry::Entry;
use crate::error::Result;
use crate::flow::{Extent, Sink, Source};
use crate::host_file::HostFile;

/// A source whose entries are changed as they are poured.
///
/// The change may not alter paths, kinds or sizes.
#[derive(Debug)]
pub struct Adjust<S, F> {
    source: S,
    change: F,
}

impl<S: Source, F: FnMut(&mut Entry) -> Result<()>> Adjust<S, F> {
    /// Pours what `source` pours, after `change`. An error of that ends it.
    pub fn new(source: S, change: F) -> Self {
        Self { source, change }
    }
}

impl<S: Source, F: FnMut(&mut Entry) -> Result<()>> Source for Adjust<S, F> {
    fn pour(&mut self, sink: &mut dyn Sink, extent: Extent) -> Result<()> {
        self.source.pour(&mut Adjusting { sink, change: &mut self.change }, extent)
    }
}

struct Adjusting<'a, F> {
    sink: &'a mut dyn Sink,
    change: &'a mut F,
}

impl<F: FnMut(&mut Entry) -> Result<()>> Sink for Adjusting<'_, F> {
    fn entry(&mut self, mut entry: Entry) -> Result<()> {
        (self.change)(&mut entry)?;
        self.sink.entry(entry)
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.sink.content(offset, bytes)
    }

    fn host_file(&mut self, file: HostFile) -> Result<Option<HostFile>> {
        self.sink.host_file(file)
    }

    fn is_skipping(&self) -> bool {
        self.sink.is_skipping()
    }

    fn finish(&mut self) -> Result<()> {
        self.sink.finish()
    }
}
