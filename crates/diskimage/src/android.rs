//! Android's sparse images, read.
//!
//! Source: Android's `system/core/libsparse/sparse_format.h`.

use std::io;

use extant_block::BlockDevice;
use extant_rt::Arc;

use crate::Format;
use crate::error::{Error, Result};
use crate::field::{le16, le32, read_padded};
use crate::read_only::Pieces;

const HEADER_BYTES: u64 = 28;
const CHUNK_HEADER_BYTES: u64 = 12;
/// Bytes of a block at most, for which 4 KiB is usual; so no sum of blocks overflows.
const BLOCK_BYTES_MAX: u64 = 16 << 20;
const RAW: u16 = 0xcac1;
const FILL: u16 = 0xcac2;
const DONT_CARE: u16 = 0xcac3;
const CRC32: u16 = 0xcac4;

/// What a chunk has for its blocks.
#[derive(Clone, Copy)]
enum Content {
    /// The bytes at this offset of the file.
    Raw(u64),
    /// These bytes again and again.
    Fill([u8; 4]),
    Zero,
}

struct Chunk {
    /// The byte of the disk where it ends.
    end: u64,
    start: u64,
    content: Content,
}

/// An image as pieces of a disk.
pub(crate) struct AndroidSparse {
    file: Arc<dyn BlockDevice>,
    bytes: u64,
    /// In the order of the disk, without a gap.
    chunks: Vec<Chunk>,
}

fn damaged(reason: impl Into<String>) -> Error {
    Error::damaged(Format::AndroidSparse, reason)
}

impl AndroidSparse {
    pub(crate) fn open(file: Arc<dyn BlockDevice>) -> Result<Self> {
        let mut header = [0; HEADER_BYTES as usize];
        read_padded(&*file, 0, &mut header)?;
        let (header_bytes, chunk_header_bytes) = (u64::from(le16(&header, 8)), u64::from(le16(&header, 10)));
        let block_bytes = u64::from(le32(&header, 12));
        if le16(&header, 4) != 1 {
            return Err(Error::unsupported(Format::AndroidSparse, format!("version {}", le16(&header, 4))));
        }
        if header_bytes < HEADER_BYTES || chunk_header_bytes < CHUNK_HEADER_BYTES {
            return Err(damaged("headers that are too short"));
        }
        if block_bytes == 0 || !block_bytes.is_multiple_of(4) || block_bytes > BLOCK_BYTES_MAX {
            return Err(damaged(format!("blocks of {block_bytes} bytes")));
        }
        let bytes = u64::from(le32(&header, 16)) * block_bytes;
        let mut chunks = Vec::new();
        let (mut at, mut start) = (header_bytes, 0);
        // Each chunk takes bytes of the file for its header, so that there is no more of them than those.
        for number in 0..le32(&header, 20) {
            let mut chunk = [0; CHUNK_HEADER_BYTES as usize + 4];
            if at + chunk_header_bytes > file.size() {
                return Err(damaged(format!("chunk {number} is not in the file")));
            }
            read_padded(&*file, at, &mut chunk[..CHUNK_HEADER_BYTES as usize])?;
            let content_at = at + chunk_header_bytes;
            read_padded(&*file, content_at, &mut chunk[CHUNK_HEADER_BYTES as usize..])?;
            let chunk_bytes = u64::from(le32(&chunk, 4)) * block_bytes;
            let total = u64::from(le32(&chunk, 8));
            let (content, wanted) = match le16(&chunk, 0) {
                RAW => (Some(Content::Raw(content_at)), chunk_bytes),
                FILL => (Some(Content::Fill(le32(&chunk, 12).to_le_bytes())), 4),
                DONT_CARE => (Some(Content::Zero), 0),
                CRC32 => (None, 4),
                kind => return Err(damaged(format!("chunk {number} is of type {kind:#x}"))),
            };
            let is_there = content_at.checked_add(wanted).is_some_and(|end| end <= file.size());
            let end = start + if content.is_some() { chunk_bytes } else { 0 };
            if total != chunk_header_bytes + wanted || !is_there || end > bytes {
                return Err(damaged(format!("the lengths of chunk {number}")));
            }
            if let Some(content) = content.filter(|_| chunk_bytes > 0) {
                chunks.push(Chunk { start, end, content });
            }
            start = end;
            at += total;
        }
        if start != bytes {
            return Err(damaged(format!("its chunks have {start} bytes of {bytes}")));
        }
        Ok(Self { file, bytes, chunks })
    }
}

impl Pieces for AndroidSparse {
    const FORMAT: Format = Format::AndroidSparse;

    fn size(&self) -> u64 {
        self.bytes
    }

    fn read_piece(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let index = self.chunks.partition_point(|chunk| chunk.end <= offset);
        let chunk = self.chunks.get(index).ok_or(io::ErrorKind::UnexpectedEof)?;
        let len = (chunk.end - offset).min(buf.len() as u64) as usize;
        let buf = &mut buf[..len];
        let within = offset - chunk.start;
        match chunk.content {
            Content::Raw(at) => self.file.read_at(at + within, buf)?,
            Content::Fill(pattern) => {
                let bytes = pattern.iter().cycle().skip((within % 4) as usize);
                buf.iter_mut().zip(bytes).for_each(|(byte, from)| *byte = *from);
            }
            Content::Zero => buf.fill(0),
        }
        Ok(len)
    }

    fn has_latency(&self) -> bool {
        self.file.has_latency()
    }
}
