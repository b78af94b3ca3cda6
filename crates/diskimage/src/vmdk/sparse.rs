//! A sparse extent of a VMDK image: grains found by a directory of tables.

use std::io;

use extant_block::BlockDevice;
use extant_rt::{Arc, LockClass, Mutex};
use flate2::{Decompress, FlushDecompress};

use super::{DESCRIPTOR_BYTES_MAX, SECTOR_BYTES, SECTORS_MAX, damaged, text_of};
use crate::Format;
use crate::error::{Error, Result, damage};
use crate::field::{le16, le32, le64, read_padded, read_vec};

const HEADER_BYTES: u64 = 512;
const HAS_ZERO_GRAINS: u32 = 1 << 2;
const HAS_PACKED_GRAINS: u32 = 1 << 16;
const DEFLATE: u16 = 1;
/// The directory is where the footer says, a sector before the last one.
const AT_END: u64 = u64::MAX;
const FOOTER_FROM_END: u64 = 1024;
/// Bytes of a grain at most, 128 sectors being usual.
const GRAIN_BYTES_MAX: u64 = 16 << 20;
/// Entries of a table, for which 512 is usual.
const TABLE_ENTRIES_MAX: u32 = 4096;
/// A packed grain has its place on the disk and its length before its bytes.
const MARKER_BYTES: usize = 12;

/// An extent.
pub(super) struct Sparse {
    file: Arc<dyn BlockDevice>,
    bytes: u64,
    grain_bytes: u64,
    table_entries: u64,
    /// The sector of each table.
    directory: Vec<u32>,
    has_zero_grains: bool,
    is_packed: bool,
    descriptor: (u64, u64),
    /// The last grain that was unpacked, with its sector.
    unpacked: Mutex<Option<(u64, Arc<[u8]>)>>,
}

fn header(file: &dyn BlockDevice, offset: u64) -> Result<Vec<u8>> {
    let header = read_vec(file, offset, HEADER_BYTES)?.filter(|header| header.starts_with(b"KDMV"));
    header.ok_or_else(|| damaged(format!("no header at {offset}")))
}

impl Sparse {
    pub(super) fn open(file: Arc<dyn BlockDevice>) -> Result<Self> {
        let mut found = header(&*file, 0)?;
        let descriptor = (le64(&found, 28), le64(&found, 36));
        if le64(&found, 56) == AT_END {
            found = header(&*file, file.size().saturating_sub(FOOTER_FROM_END))?;
        }
        let (version, flags) = (le32(&found, 4), le32(&found, 8));
        let (sectors, grain_sectors, table_entries) = (le64(&found, 12), le64(&found, 20), le32(&found, 44));
        if !(1..=3).contains(&version) {
            return Err(Error::unsupported(Format::Vmdk, format!("version {version}")));
        }
        let is_packed = flags & HAS_PACKED_GRAINS != 0;
        if is_packed && le16(&found, 77) != DEFLATE {
            return Err(Error::unsupported(Format::Vmdk, format!("compression {}", le16(&found, 77))));
        }
        let is_sound = sectors <= SECTORS_MAX
            && (1..=GRAIN_BYTES_MAX / SECTOR_BYTES).contains(&grain_sectors)
            && (1..=TABLE_ENTRIES_MAX).contains(&table_entries);
        if !is_sound {
            return Err(damaged(format!(
                "{sectors} sectors in grains of {grain_sectors}, {table_entries} a table"
            )));
        }
        let tables = sectors.div_ceil(grain_sectors).div_ceil(table_entries.into());
        let offset = le64(&found, 56).checked_mul(SECTOR_BYTES);
        let directory = offset.map(|offset| read_vec(&*file, offset, tables * 4)).transpose()?.flatten();
        let directory = directory
            .ok_or_else(|| damaged("a grain directory that is not in the file, or of more than 64 MiB"))?;
        Ok(Self {
            bytes: sectors * SECTOR_BYTES,
            grain_bytes: grain_sectors * SECTOR_BYTES,
            table_entries: table_entries.into(),
            directory: directory.chunks(4).map(|entry| le32(entry, 0)).collect(),
            has_zero_grains: flags & HAS_ZERO_GRAINS != 0,
            is_packed,
            descriptor,
            unpacked: Mutex::new(LockClass::DEVICE, None),
            file,
        })
    }

    /// The descriptor in the extent, if there is one.
    pub(super) fn descriptor(&self) -> Result<Option<String>> {
        let (sector, sectors) = self.descriptor;
        if sector == 0 {
            return Ok(None);
        }
        let bytes = sectors.saturating_mul(SECTOR_BYTES).min(DESCRIPTOR_BYTES_MAX);
        let text = match sector.checked_mul(SECTOR_BYTES) {
            Some(offset) => read_vec(&*self.file, offset, bytes)?,
            None => None,
        };
        let text = text.ok_or_else(|| damaged("a descriptor that is not in the file"))?;
        Ok(Some(text_of(&text)))
    }

    pub(super) fn size(&self) -> u64 {
        self.bytes
    }

    pub(super) fn has_latency(&self) -> bool {
        self.file.has_latency()
    }

    /// Reads in one grain at `offset`: how much.
    pub(super) fn read_piece(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let (grain, within) = (offset / self.grain_bytes, offset % self.grain_bytes);
        let len = (self.grain_bytes - within).min(buf.len() as u64) as usize;
        let buf = &mut buf[..len];
        let sector = self.sector_of(grain)?;
        if sector == 0 || sector == 1 && self.has_zero_grains {
            buf.fill(0);
            return Ok(len);
        }
        let start = sector * SECTOR_BYTES;
        if start >= self.file.size() {
            return Err(damage(Format::Vmdk, format!("the grain of byte {offset} is not in the file")));
        }
        if self.is_packed {
            let content = self.unpack(start)?;
            buf.copy_from_slice(&content[within as usize..within as usize + len]);
        } else {
            read_padded(&*self.file, start + within, buf)?;
        }
        Ok(len)
    }

    /// The sector of a grain; 0 for none.
    fn sector_of(&self, grain: u64) -> io::Result<u64> {
        let table = self.directory.get((grain / self.table_entries) as usize).copied().unwrap_or(0);
        if table == 0 {
            return Ok(0);
        }
        let at = u64::from(table) * SECTOR_BYTES + grain % self.table_entries * 4;
        let mut entry = [0; 4];
        if at + 4 > self.file.size() {
            return Err(damage(Format::Vmdk, format!("the table of grain {grain} is not in the file")));
        }
        self.file.read_at(at, &mut entry)?;
        Ok(u32::from_le_bytes(entry).into())
    }

    /// The content of the grain that is packed at `start`.
    fn unpack(&self, start: u64) -> io::Result<Arc<[u8]>> {
        let kept = self
            .unpacked
            .lock()
            .as_ref()
            .filter(|(place, _)| *place == start)
            .map(|(_, content)| content.clone());
        if let Some(content) = kept {
            return Ok(content);
        }
        let broken = || damage(Format::Vmdk, format!("the packed grain at {start}"));
        let mut marker = [0; MARKER_BYTES];
        read_padded(&*self.file, start, &mut marker)?;
        let bytes = u64::from(le32(&marker, 8));
        // Deflate makes nothing more than a few bytes longer.
        if bytes > self.grain_bytes * 2 {
            return Err(broken());
        }
        let packed = read_vec(&*self.file, start + MARKER_BYTES as u64, bytes)?.ok_or_else(broken)?;
        let mut content = vec![0; self.grain_bytes as usize];
        let mut decoder = Decompress::new(true);
        decoder.decompress(&packed, &mut content, FlushDecompress::Finish).map_err(|_| broken())?;
        let content: Arc<[u8]> = content.into();
        *self.unpacked.lock() = Some((start, content.clone()));
        Ok(content)
    }
}
