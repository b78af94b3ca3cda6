//! Writes a layer: a tar archive, packed or not, with the digests of both forms.
//!
//! The same entries give the same bytes: no time of writing, no name of the host.

use std::io::{self, Write};

use extant::Timestamp;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::digest::Hasher;
use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::flow::Sink;
use crate::tar::TarWriter;

/// How a layer is packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Packing {
    /// Not at all.
    None,
    /// gzip, which every program reads.
    #[default]
    Gzip,
    /// Zstandard, faster.
    Zstd,
}

/// A layer that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// The digest of the archive before it was packed.
    pub diff_id: String,
    /// The digest of what was written.
    pub digest: String,
    /// Bytes that were written.
    pub bytes: u64,
    /// How it is packed.
    pub packing: Packing,
    /// The newest time of its files that is not before 1970; none if there is no file.
    pub newest: Option<Timestamp>,
    /// Sockets that were left out, for archives cannot hold them.
    pub sockets_left_out: usize,
}

/// A layer as a sink.
#[derive(Debug)]
pub struct LayerWriter<W: Write> {
    tar: TarWriter<Hashed<Packer<Hashed<W>>>>,
    packing: Packing,
    newest: Option<Timestamp>,
}

impl<W: Write> LayerWriter<W> {
    /// Writes to `out`.
    pub fn new(out: W, packing: Packing) -> Self {
        let packer = Packer::new(Hashed::new(out), packing);
        Self { tar: TarWriter::new(Hashed::new(packer)).for_layer(), packing, newest: None }
    }

    /// Ends the layer, whose source has finished, and gives it and what it was written to.
    ///
    /// # Errors
    /// [`Error::Stream`].
    pub fn complete(self) -> Result<(Layer, W)> {
        let sockets_left_out = self.tar.sockets_left_out();
        let plain = self.tar.into_inner()?;
        let packed =
            plain.out.finish().and_then(|mut out| out.flush().map(|()| out)).map_err(Error::Stream)?;
        let layer = Layer {
            diff_id: plain.hasher.finish(),
            digest: packed.hasher.finish(),
            bytes: packed.bytes,
            packing: self.packing,
            newest: self.newest,
            sockets_left_out,
        };
        Ok((layer, packed.out))
    }
}

impl<W: Write> Sink for LayerWriter<W> {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        let times = self.newest.into_iter().chain([entry.attributes.mtime]);
        self.newest = times.filter(|time| time.seconds >= 0).max();
        self.tar.entry(entry)
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.tar.content(offset, bytes)
    }

    fn finish(&mut self) -> Result<()> {
        self.tar.finish()
    }
}

/// Computes the digest of what passes.
#[derive(Debug)]
pub(super) struct Hashed<W> {
    pub out: W,
    pub hasher: Hasher,
    pub bytes: u64,
}

impl<W: Write> Hashed<W> {
    pub fn new(out: W) -> Self {
        Self { out, hasher: Hasher::sha256(), bytes: 0 }
    }
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Bytes of a Zstandard frame before it is packed. Frames follow each other, which every program unpacks.
const FRAME_BYTES: usize = 4 << 20;

/// Packs what passes.
#[derive(Debug)]
enum Packer<W: Write> {
    Plain(W),
    Gzip(GzEncoder<W>),
    /// The bytes that are not yet packed.
    Zstd(W, Vec<u8>),
}

impl<W: Write> Packer<W> {
    fn new(out: W, packing: Packing) -> Self {
        match packing {
            Packing::None => Self::Plain(out),
            Packing::Gzip => Self::Gzip(GzEncoder::new(out, flate2::Compression::default())),
            Packing::Zstd => Self::Zstd(out, Vec::with_capacity(FRAME_BYTES)),
        }
    }

    fn finish(self) -> io::Result<W> {
        match self {
            Self::Plain(out) => Ok(out),
            Self::Gzip(encoder) => encoder.finish(),
            Self::Zstd(mut out, pending) => {
                out.write_all(&frame(&pending))?;
                Ok(out)
            }
        }
    }
}

impl<W: Write> Write for Packer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zstd(out, pending) => {
                if pending.len() == FRAME_BYTES {
                    out.write_all(&frame(pending))?;
                    pending.clear();
                }
                let taken = bytes.len().min(FRAME_BYTES - pending.len());
                pending.extend(&bytes[..taken]);
                Ok(taken)
            }
        }
    }

    /// Packing decides itself when to write.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn frame(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}
