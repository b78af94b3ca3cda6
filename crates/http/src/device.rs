//! A file of a server as a block device.
//!
//! Each read is one request, or several at once where it is long. The first bytes, which the first request brings, stay in memory: formats are
//! recognised by them. The version of the file, its length and entity tag, is that of the first answer; an answer with another
//! one is an error.
//!
//! Leaves out: writing; locks against others who change the file.

use std::io::{self, IoSlice};

use extant_block::{BlockDevice, check_range};
use extant_rt::share_work;

use crate::client::Client;
use crate::response::Version;
use crate::{Error, Object, Options};

/// Bytes that the first request asks for: a superblock, and the descriptors of 500 groups.
const HEAD_BYTES: usize = 32 << 10;
/// Most bytes of one request.
const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Requests in flight for one read.
const REQUESTS_PER_READ: usize = 8;

/// A file of a server.
#[derive(Debug)]
pub struct HttpDevice {
    client: Client,
    /// None of an empty file.
    version: Option<Version>,
    head: Vec<u8>,
}

impl HttpDevice {
    /// Asks the server for the beginning of a file. Proxies are those that the environment names (`HTTPS_PROXY`, `NO_PROXY`).
    ///
    /// # Errors
    /// All but [`Error::Url`] and [`Error::Changed`].
    pub fn open(object: Object, options: &Options) -> Result<Self, Error> {
        let client = Client::new(object, options)?;
        let (version, head) = client.head(HEAD_BYTES)?;
        Ok(Self { client, version, head })
    }

    /// The file.
    #[must_use]
    pub fn object(&self) -> &Object {
        self.client.object()
    }

    fn refuse(&self) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, format!("{}: only read", self.object()))
    }
}

impl BlockDevice for HttpDevice {
    fn size(&self) -> u64 {
        self.version.as_ref().map_or(0, |version| version.bytes)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_range(self.size(), offset, buf.len() as u64)?;
        let Some(version) = self.version.as_ref().filter(|_| !buf.is_empty()) else { return Ok(()) };
        let end = offset + buf.len() as u64;
        if end <= self.head.len() as u64 {
            buf.copy_from_slice(&self.head[offset as usize..end as usize]);
            return Ok(());
        }
        let pieces = (offset..).step_by(REQUEST_BYTES_MAX).zip(buf.chunks_mut(REQUEST_BYTES_MAX));
        let pieces: Vec<_> = pieces.collect();
        let read = |(at, piece): (u64, &mut [u8])| self.client.read(version, at, piece);
        let done: Result<Vec<()>, Error> =
            share_work(REQUESTS_PER_READ, pieces.into_iter(), read).into_iter().collect();
        done.map_err(Into::into).map(|_| ())
    }

    fn write_vectored_at(&self, _offset: u64, _bufs: &[IoSlice<'_>]) -> io::Result<()> {
        Err(self.refuse())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Err(self.refuse())
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn has_latency(&self) -> bool {
        true
    }
}
