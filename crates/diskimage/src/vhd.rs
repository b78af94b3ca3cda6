//! VHD images: fixed ones, which are raw with a footer, and dynamic ones, which are read.
//!
//! Leaves out: differencing images. Source: Microsoft's "Virtual Hard Disk Image Format Specification".

use std::io;

use extant_block::{BlockDevice, Partition};
use extant_rt::Arc;

use crate::Format;
use crate::error::{Error, Result, damage};
use crate::field::{be32, be64, read_padded, read_vec};
use crate::read_only::{Pieces, ReadOnly};

const FOOTER_BYTES: u64 = 512;
const SECTOR_BYTES: u64 = 512;
const COOKIE: &[u8] = b"conectix";
const FIXED: u32 = 2;
const DYNAMIC: u32 = 3;
/// Where the checksum of a footer and of a dynamic header is, which counts as zero in itself.
const FOOTER_SUM: usize = 64;
const HEADER_SUM: usize = 36;
const HEADER_BYTES: u64 = 1024;
/// No place in the file.
const UNUSED: u32 = u32::MAX;

/// The last sector of `file`, if it is a VHD's footer.
fn footer(file: &dyn BlockDevice) -> io::Result<Option<Vec<u8>>> {
    let Some(offset) = file.size().checked_sub(FOOTER_BYTES) else { return Ok(None) };
    let footer = read_vec(file, offset, FOOTER_BYTES)?.unwrap_or_default();
    Ok(Some(footer).filter(|footer| footer.starts_with(COOKIE) && has_sum(footer, FOOTER_SUM)))
}

/// Whether the sum of all bytes but the sum's own is the complement of the sum.
fn has_sum(bytes: &[u8], at: usize) -> bool {
    let sum = bytes.iter().enumerate().filter(|(index, _)| !(at..at + 4).contains(index));
    let sum = sum.fold(0u32, |sum, (_, byte)| sum.wrapping_add(u32::from(*byte)));
    !sum == be32(bytes, at)
}

/// Whether the image is a raw one with a footer.
pub(crate) fn is_fixed(file: &dyn BlockDevice) -> io::Result<bool> {
    Ok(footer(file)?.is_some_and(|footer| be32(&footer, 60) == FIXED))
}

/// Opens an image.
pub(crate) fn open(file: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>> {
    if is_fixed(&*file)? {
        let bytes = file.size() - FOOTER_BYTES;
        let disk = Partition::new(file, 0, bytes).map_err(|error| Error::Io(error.into()))?;
        return Ok(Arc::new(disk));
    }
    Ok(Arc::new(ReadOnly(Dynamic::open(file)?)))
}

fn damaged(reason: impl Into<String>) -> Error {
    Error::damaged(Format::Vhd, reason)
}

/// An image of blocks, each with a bitmap of the sectors that it has.
struct Dynamic {
    file: Arc<dyn BlockDevice>,
    bytes: u64,
    block_bytes: u64,
    /// The sector of each block's bitmap.
    blocks: Vec<u32>,
}

impl Dynamic {
    fn open(file: Arc<dyn BlockDevice>) -> Result<Self> {
        let footer = match footer(&*file)? {
            Some(footer) => footer,
            // There is a copy at the front.
            None => read_vec(&*file, 0, FOOTER_BYTES)?.unwrap_or_default(),
        };
        if !footer.starts_with(COOKIE) || !has_sum(&footer, FOOTER_SUM) {
            return Err(damaged("the checksum of its footer"));
        }
        let kind = be32(&footer, 60);
        if kind != DYNAMIC {
            return Err(Error::unsupported(Format::Vhd, format!("a disk of type {kind}")));
        }
        let header = read_vec(&*file, be64(&footer, 16), HEADER_BYTES)?;
        let header = header.ok_or_else(|| damaged("no dynamic header"))?;
        if !header.starts_with(b"cxsparse") || !has_sum(&header, HEADER_SUM) {
            return Err(damaged("the checksum of its dynamic header"));
        }
        let (entries, block_bytes) = (be32(&header, 28), u64::from(be32(&header, 32)));
        if !block_bytes.is_power_of_two() || block_bytes < SECTOR_BYTES {
            return Err(damaged(format!("blocks of {block_bytes} bytes")));
        }
        let bytes = be64(&footer, 48);
        if bytes.div_ceil(block_bytes) > u64::from(entries) {
            return Err(damaged(format!("a disk of {bytes} bytes, more than its {entries} blocks")));
        }
        let table = read_vec(&*file, be64(&header, 16), bytes.div_ceil(block_bytes) * 4)?;
        let table =
            table.ok_or_else(|| damaged("a block table that is not in the file, or of more than 64 MiB"))?;
        let blocks = table.chunks(4).map(|entry| be32(entry, 0)).collect();
        Ok(Self { file, bytes, block_bytes, blocks })
    }
}

impl Pieces for Dynamic {
    const FORMAT: Format = Format::Vhd;

    fn size(&self) -> u64 {
        self.bytes
    }

    fn read_piece(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let within = offset % self.block_bytes;
        let len = (self.block_bytes - within).min(buf.len() as u64) as usize;
        let buf = &mut buf[..len];
        let block = self.blocks.get((offset / self.block_bytes) as usize).copied().unwrap_or(UNUSED);
        if block == UNUSED {
            buf.fill(0);
            return Ok(len);
        }
        // Writers keep sectors that the bitmap does not have at zero.
        let bitmap_bytes = (self.block_bytes / SECTOR_BYTES).div_ceil(8).next_multiple_of(SECTOR_BYTES);
        let start = u64::from(block) * SECTOR_BYTES + bitmap_bytes + within;
        if start >= self.file.size() {
            return Err(damage(Format::Vhd, format!("the block of byte {offset} is not in the file")));
        }
        read_padded(&*self.file, start, buf)?;
        Ok(len)
    }

    fn has_latency(&self) -> bool {
        self.file.has_latency()
    }
}
