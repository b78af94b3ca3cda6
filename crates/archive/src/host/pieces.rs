//! The content of files of the host, piece by piece.

use super::open_file::OpenFile;
use crate::entry::DataRange;
use crate::error::Result;
use crate::flow::{Sink, pieces};

/// What buffers hold at least, and are a power of two of.
const BUFFER_BYTES_MIN: usize = 4096;

/// A buffer is used for a piece of this part of it at least.
const FILLED_PART: usize = 4;

/// Reads the content of files, into buffers that come back.
#[derive(Default)]
pub(super) struct Pieces(Vec<u8>);

impl Pieces {
    /// Pours these ranges of a file.
    pub(super) fn read(&mut self, file: &OpenFile, ranges: &[DataRange], sink: &mut dyn Sink) -> Result<()> {
        for piece in pieces(ranges) {
            let mut content = self.buffer(piece.bytes as usize);
            file.read_at_into(&mut content, piece.bytes as usize, piece.offset)?;
            self.0 = sink.content(piece.offset, content)?;
        }
        Ok(())
    }

    /// A buffer for `bytes`: the one that came back, or a new one where that is much too large, for what waits is counted with all its memory.
    fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        let capacity = bytes.max(BUFFER_BYTES_MIN).next_power_of_two();
        let mut buffer = std::mem::take(&mut self.0);
        if buffer.capacity() < capacity || buffer.capacity() > capacity * FILLED_PART {
            buffer = Vec::with_capacity(capacity);
        }
        buffer
    }
}
