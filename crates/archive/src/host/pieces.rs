//! The content of files of the host, piece by piece.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::entry::DataRange;
use crate::error::{Error, Result};
use crate::flow::{PIECE_BYTES, REUSED_BYTES, Sink};

/// Reads the content of files, into buffers that come back.
#[derive(Default)]
pub(super) struct Pieces(Vec<u8>);

impl Pieces {
    /// Pours these ranges of an open file.
    pub(super) fn read(
        &mut self,
        host: &Path,
        file: &mut File,
        ranges: &[DataRange],
        sink: &mut dyn Sink,
    ) -> Result<()> {
        ranges.iter().try_for_each(|range| self.range(host, file, *range, sink))
    }

    fn range(&mut self, host: &Path, file: &mut File, range: DataRange, sink: &mut dyn Sink) -> Result<()> {
        file.seek(SeekFrom::Start(range.offset)).map_err(Error::host(host))?;
        let mut done = 0;
        while done < range.bytes {
            let wanted = (range.bytes - done).min(PIECE_BYTES as u64);
            let mut piece = match wanted as usize {
                REUSED_BYTES.. => std::mem::take(&mut self.0),
                _ => Vec::new(),
            };
            piece.clear();
            // Reserved memory need not be zeroed before it is read into.
            piece.reserve(wanted as usize);
            let read = file.take(wanted).read_to_end(&mut piece).map_err(Error::host(host))?;
            if (read as u64) < wanted {
                return Err(Error::Changed { path: host.to_owned() });
            }
            let offset = range.offset + done;
            done += wanted;
            let used = sink.content(offset, piece)?;
            if used.capacity() >= REUSED_BYTES {
                self.0 = used;
            }
        }
        Ok(())
    }
}
