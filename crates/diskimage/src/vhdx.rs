//! VHDX images, read.
//!
//! Leaves out: images with a parent. Source: Microsoft's [MS-VHDX].

mod log;

use std::io;

use extant_block::BlockDevice;
use extant_rt::Arc;

use crate::Format;
use crate::error::{Error, Result, damage};
use crate::field::{le16, le32, le64, read_vec};
use crate::read_only::Pieces;

const HEADERS: [u64; 2] = [64 << 10, 128 << 10];
const HEADER_BYTES: u64 = 4096;
const REGION_TABLES: [u64; 2] = [192 << 10, 256 << 10];
const REGION_TABLE_BYTES: u64 = 64 << 10;
const REGION_ENTRIES_MAX: u32 = 2047;
const METADATA_TABLE_BYTES: u64 = 64 << 10;
const METADATA_ENTRIES_MAX: u16 = 2047;
const SECTORS_PER_CHUNK: u64 = 1 << 23;
const SIZE_MAX: u64 = 64 << 40;

const BAT: [u8; 16] = guid(0x2dc2_7766, 0xf623, 0x4200, [0x9d, 0x64, 0x11, 0x5e, 0x9b, 0xfd, 0x4a, 0x08]);
const METADATA: [u8; 16] =
    guid(0x8b7c_a206, 0x4790, 0x4b9a, [0xb8, 0xfe, 0x57, 0x5f, 0x05, 0x0f, 0x88, 0x6e]);
const FILE_PARAMETERS: [u8; 16] =
    guid(0xcaa1_6737, 0xfa36, 0x4d43, [0xb3, 0xb6, 0x33, 0xf0, 0xaa, 0x44, 0xe7, 0x6b]);
const DISK_SIZE: [u8; 16] =
    guid(0x2fa5_4224, 0xcd1b, 0x4876, [0xb2, 0x11, 0x5d, 0xbe, 0xd8, 0x3b, 0xf4, 0xb8]);
const SECTOR_SIZE: [u8; 16] =
    guid(0x8141_bf1d, 0xa96f, 0x4709, [0xba, 0x47, 0xf2, 0x33, 0xa8, 0xfa, 0xab, 0x5f]);

const FULLY_PRESENT: u64 = 6;
const PARTIALLY_PRESENT: u64 = 7;

/// A GUID as it is in a file.
const fn guid(first: u32, second: u16, third: u16, rest: [u8; 8]) -> [u8; 16] {
    let (a, b, c, r) = (first.to_le_bytes(), second.to_le_bytes(), third.to_le_bytes(), rest);
    [a[0], a[1], a[2], a[3], b[0], b[1], c[0], c[1], r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]]
}

fn damaged(reason: impl Into<String>) -> Error {
    Error::damaged(Format::Vhdx, reason)
}

/// A structure with `signature`, whose checksum is right.
fn checked(file: &dyn BlockDevice, offset: u64, bytes: u64, signature: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some(mut found) = read_vec(file, offset, bytes)? else { return Ok(None) };
    let sum = le32(&found, 4);
    found[4..8].fill(0);
    Ok(Some(found).filter(|found| found.starts_with(signature) && crc32c::crc32c(found) == sum))
}

/// An image as pieces of a disk.
pub(crate) struct Vhdx {
    file: Arc<dyn BlockDevice>,
    bytes: u64,
    block_bytes: u64,
    /// Blocks between the entries of two bitmaps.
    chunk_blocks: u64,
    table: Vec<u8>,
}

impl Vhdx {
    pub(crate) fn open(file: Arc<dyn BlockDevice>) -> Result<Self> {
        let mut header: Option<Vec<u8>> = None;
        for offset in HEADERS {
            let found = checked(&*file, offset, HEADER_BYTES, b"head")?;
            header = match (header, found) {
                (Some(one), Some(other)) if le64(&other, 8) < le64(&one, 8) => Some(one),
                (one, None) => one,
                (_, other) => other,
            };
        }
        let header = header.ok_or_else(|| damaged("no header with the right checksum"))?;
        if le16(&header, 66) != 1 {
            return Err(Error::unsupported(Format::Vhdx, format!("version {}", le16(&header, 66))));
        }
        let file = match &header[48..64] {
            guid if *guid != [0; 16] => {
                log::replayed(file, le64(&header, 72), u64::from(le32(&header, 68)), guid)?
            }
            _ => file,
        };
        let [table, metadata] = regions(&*file)?;
        let parameters = Parameters::read(&*file, metadata)?;
        let blocks = parameters.bytes.div_ceil(parameters.block_bytes);
        let chunk_blocks = SECTORS_PER_CHUNK * parameters.sector_bytes / parameters.block_bytes;
        // After each chunk of blocks there is an entry of a bitmap.
        let entries = blocks + blocks.saturating_sub(1) / chunk_blocks;
        if entries * 8 > table.1 {
            return Err(damaged(format!("a table of {} bytes for {blocks} blocks", table.1)));
        }
        let found = read_vec(&*file, table.0, entries * 8)?;
        let table =
            found.ok_or_else(|| damaged("a block table that is not in the file, or of more than 64 MiB"))?;
        Ok(Self { file, bytes: parameters.bytes, block_bytes: parameters.block_bytes, chunk_blocks, table })
    }
}

/// The offset and the length of the block table and of the metadata.
fn regions(file: &dyn BlockDevice) -> Result<[(u64, u64); 2]> {
    let mut table = None;
    for offset in REGION_TABLES {
        table = table.or(checked(file, offset, REGION_TABLE_BYTES, b"regi")?);
    }
    let table = table.ok_or_else(|| damaged("no region table with the right checksum"))?;
    let entries = le32(&table, 8).min(REGION_ENTRIES_MAX) as usize;
    let mut found = [None; 2];
    for entry in table[16..].chunks(32).take(entries) {
        let place = (le64(entry, 16), u64::from(le32(entry, 24)));
        if entry[..16] == BAT {
            found[0] = Some(place);
        } else if entry[..16] == METADATA {
            found[1] = Some(place);
        } else if le32(entry, 28) & 1 != 0 {
            return Err(Error::unsupported(Format::Vhdx, "an unknown region that is required"));
        }
    }
    match found {
        [Some(table), Some(metadata)] => Ok([table, metadata]),
        _ => Err(damaged("no block table or no metadata")),
    }
}

struct Parameters {
    bytes: u64,
    block_bytes: u64,
    sector_bytes: u64,
}

impl Parameters {
    fn read(file: &dyn BlockDevice, (offset, bytes): (u64, u64)) -> Result<Self> {
        let table = read_vec(file, offset, METADATA_TABLE_BYTES)?;
        let table = table.filter(|table| table.starts_with(b"metadata") && bytes >= METADATA_TABLE_BYTES);
        let table = table.ok_or_else(|| damaged("no metadata table"))?;
        let entries = usize::from(le16(&table, 10).min(METADATA_ENTRIES_MAX));
        let [mut parameters, mut disk_bytes, mut sector_bytes] = [None; 3];
        for entry in table[32..].chunks(32).take(entries) {
            let place = u64::from(le32(entry, 16));
            let Some(at) = offset.checked_add(place).filter(|_| place + 8 <= bytes) else {
                return Err(damaged(format!("metadata at {place}")));
            };
            let item = || read_vec(file, at, 8);
            let slot = if entry[..16] == FILE_PARAMETERS {
                &mut parameters
            } else if entry[..16] == DISK_SIZE {
                &mut disk_bytes
            } else if entry[..16] == SECTOR_SIZE {
                &mut sector_bytes
            } else {
                continue;
            };
            *slot = item()?.map(|item| le64(&item, 0));
        }
        let (Some(parameters), Some(bytes), Some(sector_bytes)) = (parameters, disk_bytes, sector_bytes)
        else {
            return Err(damaged("no block size, disk size or sector size"));
        };
        let (block_bytes, sector_bytes) = (parameters & 0xffff_ffff, sector_bytes & 0xffff_ffff);
        if parameters >> 32 & 2 != 0 {
            return Err(Error::unsupported(Format::Vhdx, "a parent"));
        }
        let is_sound = block_bytes.is_power_of_two()
            && (1 << 20..=256 << 20).contains(&block_bytes)
            && matches!(sector_bytes, 512 | 4096)
            && bytes <= SIZE_MAX
            && bytes.is_multiple_of(sector_bytes);
        if !is_sound {
            return Err(damaged(format!(
                "{bytes} bytes in blocks of {block_bytes}, sectors of {sector_bytes}"
            )));
        }
        Ok(Self { bytes, block_bytes, sector_bytes })
    }
}

impl Pieces for Vhdx {
    const FORMAT: Format = Format::Vhdx;

    fn size(&self) -> u64 {
        self.bytes
    }

    fn read_piece(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let (block, within) = (offset / self.block_bytes, offset % self.block_bytes);
        let len = (self.block_bytes - within).min(buf.len() as u64) as usize;
        let buf = &mut buf[..len];
        let entry = le64(&self.table, ((block + block / self.chunk_blocks) * 8) as usize);
        match entry & 7 {
            FULLY_PRESENT => {
                let start = entry >> 20 << 20;
                let is_there =
                    start.checked_add(within + len as u64).is_some_and(|end| end <= self.file.size());
                if !is_there {
                    return Err(damage(
                        Format::Vhdx,
                        format!("the block of byte {offset} is not in the file"),
                    ));
                }
                self.file.read_at(start + within, buf)?;
            }
            PARTIALLY_PRESENT => {
                return Err(damage(
                    Format::Vhdx,
                    format!("a part of a block at byte {offset}, without a parent"),
                ));
            }
            _ => buf.fill(0),
        }
        Ok(len)
    }

    fn has_latency(&self) -> bool {
        self.file.has_latency()
    }
}
