//! Streams as devices: their bytes in a file of the host without a name, of which zeroes take no space.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use extant_block::{BlockDevice, FileExt, check_range};

/// Bytes of a stream that are taken, unless the caller says otherwise: 64 GiB.
pub const SCRATCH_BYTES_MAX: u64 = 64 << 30;

/// Bytes that are read at once; what is zero in pieces of this size takes no space.
const PIECE_BYTES: usize = 64 << 10;

struct Scratch {
    file: File,
    bytes: u64,
}

/// A device of what `stream` gives, in a file without a name in `directory`. It is only read.
///
/// # Errors
/// `FileTooLarge` for more than `max` bytes; those of the stream and the host.
pub fn spool(stream: &mut dyn Read, directory: &Path, max: u64) -> io::Result<impl BlockDevice + 'static> {
    let file = tempfile::tempfile_in(directory)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut bytes = 0;
    loop {
        let len = fill(stream, &mut piece)?;
        if len == 0 {
            break;
        }
        let end = bytes + len as u64;
        if end > max {
            let message = format!("more than {max} bytes; EXTANT_SCRATCH_BYTES=BYTES allows more");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
        }
        if piece[..len].iter().any(|byte| *byte != 0) {
            file.write_all_at(&piece[..len], bytes)?;
        }
        bytes = end;
    }
    file.set_len(bytes)?;
    Ok(Scratch { file, bytes })
}

/// Reads until `buf` is full or the stream ends.
fn fill(stream: &mut dyn Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buf.len() {
        match stream.read(&mut buf[len..]) {
            Ok(0) => break,
            Ok(read) => len += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

impl BlockDevice for Scratch {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.bytes, offset, buf.len() as u64)?;
        self.file.read_exact_at(buf, offset)
    }

    fn write_vectored_at(&self, _offset: u64, _bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn is_read_only(&self) -> bool {
        true
    }
}
