//! Makes GUID partition tables, and changes where a partition ends.
//!
//! An MBR is one sector, and its write is atomic. Of a GUID partition table the copy at the end of the device is written and made durable
//! before the one at the front, so that at any time one of them is whole, and says where the partition ended or ends. The copy moves to
//! the end of a device that became longer. The MBR that protects the table comes last.
//!
//! Leaves out: logical partitions; sectors other than of 512 bytes; tables of which the one at the front is damaged, or whose MBR names other partitions; telling the
//! kernel, which reads the table of a block special by itself.
//!
//! Source: UEFI specification 2.10, chapter 5. Tests: `tests/partition_table.rs`, where `sfdisk` judges.

mod create;

use std::io;

use crate::BlockDevice;
use crate::container::{GptHeader, MbrEntry, crc32, gpt_entry, le64, mbr_entries};

pub use create::NewPartition;

const SECTOR_BYTES: u64 = 512;
/// Where the entries of an MBR begin, and the bytes of one.
const MBR_ENTRIES: usize = 446;
const MBR_ENTRY_BYTES: usize = 16;
/// The type of the entry that protects a GUID partition table.
const PROTECTIVE: u8 = 0xEE;

/// The partition table of a device, to be changed.
#[derive(Clone, Debug)]
pub struct PartitionTable {
    mbr: [u8; SECTOR_BYTES as usize],
    gpt: Option<Gpt>,
}

#[derive(Clone, Debug)]
struct Gpt {
    /// The bytes of the header that its checksum covers.
    header: Vec<u8>,
    entries: Vec<u8>,
    entry_bytes: usize,
}

/// The sectors of a partition: the first, and the one after the last.
type Span = (u64, u64);

impl PartitionTable {
    /// Reads the table at the front; `None` if there is none that can be changed.
    ///
    /// # Errors
    /// The device's.
    pub fn read(device: &(impl BlockDevice + ?Sized)) -> io::Result<Option<Self>> {
        let mut mbr = [0; SECTOR_BYTES as usize];
        if device.size() < SECTOR_BYTES {
            return Ok(None);
        }
        device.read_at(0, &mut mbr)?;
        let Some(entries) = mbr_entries(&mbr) else { return Ok(None) };
        let used: Vec<u8> = entries.iter().filter(|it| it.is_used()).map(|it| it.kind).collect();
        if !used.contains(&PROTECTIVE) {
            return Ok(Some(Self { mbr, gpt: None }));
        }
        let gpt = Gpt::read(device)?.filter(|_| used.len() == 1);
        Ok(gpt.map(|gpt| Self { mbr, gpt: Some(gpt) }))
    }

    /// The sectors of all partitions with their numbers, logical ones apart.
    fn spans(&self) -> Vec<(u32, Span)> {
        let span = |(number, entry): (u32, MbrEntry)| {
            entry.is_used().then_some((number, (entry.start, entry.start + entry.sectors)))
        };
        match &self.gpt {
            Some(gpt) => gpt.spans(),
            None => (1..).zip(mbr_entries(&self.mbr).unwrap_or_default()).filter_map(span).collect(),
        }
    }

    fn span(&self, number: u32) -> Option<Span> {
        self.spans().iter().find(|(found, _)| *found == number).map(|(_, span)| *span)
    }

    /// The first sector of what follows a partition, if anything does.
    fn next(&self, (start, _): Span) -> Option<u64> {
        self.spans().iter().map(|(_, (first, _))| *first).filter(|first| *first > start).min()
    }

    /// The bytes of a partition. `None` if the table has no entry of that number.
    #[must_use]
    pub fn bytes(&self, number: u32) -> Option<u64> {
        self.span(number).map(|(start, end)| end.saturating_sub(start) * SECTOR_BYTES)
    }

    /// The most bytes that a partition can have on a device of so many bytes: up to the next partition, or to the end. `None` if the table
    /// has no entry of that number, or its partitions do not fit the device.
    #[must_use]
    pub fn most_bytes(&self, number: u32, device_bytes: u64) -> Option<u64> {
        let span = self.span(number)?;
        let sectors = device_bytes / SECTOR_BYTES;
        let end = sectors.checked_sub(self.gpt.as_ref().map_or(0, |gpt| 1 + gpt.entry_sectors()))?;
        if self.spans().iter().any(|(_, (_, last))| *last > end) {
            return None;
        }
        let end = if self.gpt.is_some() { end } else { end.min(span.0 + u64::from(u32::MAX)) };
        let end = self.next(span).map_or(end, |next| next.min(end));
        Some((end - span.0) * SECTOR_BYTES)
    }

    /// How many bytes a device has to have for a partition of so many, which is the last one. `None` if it is not.
    #[must_use]
    pub fn device_bytes_for(&self, number: u32, bytes: u64) -> Option<u64> {
        let span = self.span(number).filter(|span| self.next(*span).is_none())?;
        let behind = self.gpt.as_ref().map_or(0, |gpt| 1 + gpt.entry_sectors());
        let sectors = span.0.checked_add(bytes.div_ceil(SECTOR_BYTES))?.checked_add(behind)?;
        sectors.checked_mul(SECTOR_BYTES)
    }

    /// Makes a partition so many bytes long, whole sectors of it; durable when it returns.
    ///
    /// # Errors
    /// `InvalidInput` for a partition that the table does not have, and a length that it cannot have; the device's.
    pub fn set_bytes(
        &mut self,
        device: &(impl BlockDevice + ?Sized),
        number: u32,
        bytes: u64,
    ) -> io::Result<()> {
        let most = self.most_bytes(number, device.size());
        let (start, _) = self.span(number).filter(|_| bytes > 0 && most >= Some(bytes)).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "a partition cannot be as long in its table")
        })?;
        let end = start + bytes.div_ceil(SECTOR_BYTES);
        match &mut self.gpt {
            Some(gpt) => gpt.set_end(number, end),
            None => set_mbr_end(&mut self.mbr, number, (start, end)),
        }
        self.write(device)
    }

    /// Writes the table for a device of this size; durable when it returns.
    ///
    /// # Errors
    /// `InvalidInput` if the device has no room for a GUID partition table; the device's.
    pub fn write(&mut self, device: &(impl BlockDevice + ?Sized)) -> io::Result<()> {
        let Some(gpt) = &mut self.gpt else {
            device.write_at(0, &self.mbr)?;
            return device.flush();
        };
        gpt.write(device)?;
        let last = (device.size() / SECTOR_BYTES - 1).min(u64::from(u32::MAX));
        for slot in 1..=4 {
            let at = MBR_ENTRIES + (slot as usize - 1) * MBR_ENTRY_BYTES;
            if self.mbr.get(at + 4) == Some(&PROTECTIVE) {
                set_mbr_end(&mut self.mbr, slot, (1, 1 + last));
            }
        }
        device.write_at(0, &self.mbr)?;
        device.flush()
    }
}

/// Sets the length of an entry of an MBR, and the last sector in the old addressing.
fn set_mbr_end(mbr: &mut [u8], number: u32, (start, end): Span) {
    /// Sectors and heads of the geometry that all disks are said to have.
    const SECTORS: u64 = 63;
    const HEADS: u64 = 255;
    let at = MBR_ENTRIES + (number as usize - 1) * MBR_ENTRY_BYTES;
    let Some(entry) = mbr.get_mut(at..at + MBR_ENTRY_BYTES) else { return };
    let last = end.saturating_sub(1);
    let cylinder = last / (SECTORS * HEADS);
    let address = match cylinder {
        0..1024 => {
            let (head, sector) = (last / SECTORS % HEADS, last % SECTORS + 1);
            [head as u8, sector as u8 | (cylinder >> 2) as u8 & 0xC0, cylinder as u8]
        }
        _ => [0xFE, 0xFF, 0xFF],
    };
    entry[5..8].copy_from_slice(&address);
    entry[12..16].copy_from_slice(&((end - start) as u32).to_le_bytes());
}

impl Gpt {
    /// The table at the front, if its checksums are right.
    fn read(device: &(impl BlockDevice + ?Sized)) -> io::Result<Option<Self>> {
        let mut sector = [0; SECTOR_BYTES as usize];
        if device.size() < 2 * SECTOR_BYTES {
            return Ok(None);
        }
        device.read_at(SECTOR_BYTES, &mut sector)?;
        let Some(header) = GptHeader::parse(&sector, 1) else { return Ok(None) };
        let Some(entries) = header.entries(device, SECTOR_BYTES)? else { return Ok(None) };
        let bytes = u32::from_le_bytes([sector[12], sector[13], sector[14], sector[15]]);
        let header_bytes = sector.get(..bytes as usize).unwrap_or_default().to_vec();
        Ok(Some(Self { header: header_bytes, entries, entry_bytes: header.entry_bytes as usize }))
    }

    fn entry_sectors(&self) -> u64 {
        (self.entries.len() as u64).div_ceil(SECTOR_BYTES)
    }

    fn spans(&self) -> Vec<(u32, Span)> {
        let partition = |(number, entry): (u32, &[u8])| {
            let found = gpt_entry(number, entry, SECTOR_BYTES, u64::MAX)?;
            let start = found.offset / SECTOR_BYTES;
            Some((number, (start, start + found.bytes / SECTOR_BYTES)))
        };
        (1..).zip(self.entries.chunks(self.entry_bytes)).filter_map(partition).collect()
    }

    fn set_end(&mut self, number: u32, end: u64) {
        let at = (number as usize - 1) * self.entry_bytes;
        if let Some(last) = self.entries.get_mut(at + 40..at + 48) {
            last.copy_from_slice(&(end - 1).to_le_bytes());
        }
    }

    fn write(&mut self, device: &(impl BlockDevice + ?Sized)) -> io::Result<()> {
        let sectors = device.size() / SECTOR_BYTES;
        // Both copies of header and entries, and the MBR.
        if sectors < 2 * (1 + self.entry_sectors()) + 1 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no room for a GUID partition table"));
        }
        let last = sectors - 1;
        let copy = last - self.entry_sectors();
        let sum = crc32(&[&self.entries]);
        put(&mut self.header, 48, &(copy - 1).to_le_bytes());
        put(&mut self.header, 88, &sum.to_le_bytes());
        let front = le64(&self.header, 72).unwrap_or(2);
        for (at, other, entries) in [(last, 1, copy), (1, last, front)] {
            let header = &mut self.header;
            [(24, at), (32, other), (72, entries)]
                .iter()
                .for_each(|(field, value)| put(header, *field, &value.to_le_bytes()));
            put(header, 16, &[0; 4]);
            let sum = crc32(&[header]);
            put(header, 16, &sum.to_le_bytes());
            device.write_at(entries * SECTOR_BYTES, &self.entries)?;
            device.write_at(at * SECTOR_BYTES, header)?;
            device.flush()?;
        }
        Ok(())
    }
}

/// Puts bytes into a header, which has at least 92.
fn put(header: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(field) = header.get_mut(at..at + bytes.len()) {
        field.copy_from_slice(bytes);
    }
}
