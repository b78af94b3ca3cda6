//! The label of a physical volume, and the texts of its metadata areas.

use std::io;

use crate::container::{le32, le64};
use crate::{BlockDevice, Segment, check_range};

const SECTOR_BYTES: u64 = 512;
/// The label is in one of so many sectors at the front.
const LABEL_SECTORS: u64 = 4;
/// Where the checksum of a label begins: behind itself.
const LABEL_SUM_FROM: usize = 20;
/// Areas of either kind that are read; there are one or two.
const AREAS_MAX: usize = 8;
/// Bytes of the header of a metadata area, behind which its text goes around.
const HEADER_BYTES: u64 = 512;
const HEADER_MAGIC: &[u8; 16] = b" LVM2 x[5A%r0N*>";
/// Where a header has its list of texts, the bytes of an entry, and the mark of one that is not to be used.
const TEXTS_AT: usize = 40;
const TEXT_ENTRY_BYTES: usize = 24;
const IGNORED: u32 = 1;
/// Bytes of a text that is read; a thousand volumes take some hundred KiB.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// A physical volume.
pub struct PhysicalVolume {
    /// Its UUID, without hyphens.
    pub id: Vec<u8>,
    /// Where it is on the device.
    pub place: Segment,
    /// Where its metadata areas are on it.
    areas: Vec<Segment>,
}

impl PhysicalVolume {
    /// Reads the label at a place of `device`. `None` if there is none.
    pub fn read(device: &(impl BlockDevice + ?Sized), place: Segment) -> io::Result<Option<Self>> {
        for index in 0..LABEL_SECTORS {
            let mut sector = [0; SECTOR_BYTES as usize];
            let at = index * SECTOR_BYTES;
            if check_range(place.bytes, at, SECTOR_BYTES).is_err() {
                break;
            }
            device.read_at(place.offset.saturating_add(at), &mut sector)?;
            let Some((id, areas)) = parse(&sector, index) else { continue };
            return Ok(Some(Self { id, place, areas }));
        }
        Ok(None)
    }

    /// The texts of its metadata areas whose checksums are right. What is read is taken from `budget`, and no more.
    pub fn texts(&self, device: &(impl BlockDevice + ?Sized), budget: &mut u64) -> io::Result<Vec<Vec<u8>>> {
        let mut texts = Vec::new();
        for area in &self.areas {
            texts.extend(read_text(device, self.place, *area, budget)?);
        }
        Ok(texts)
    }
}

/// The UUID of a label and where its metadata areas are on the physical volume.
fn parse(sector: &[u8], index: u64) -> Option<(Vec<u8>, Vec<Segment>)> {
    let is_label = sector.starts_with(b"LABELONE") && sector.get(24..32)? == b"LVM2 001";
    if !is_label || le64(sector, 8)? != index || le32(sector, 16)? != checksum(sector.get(LABEL_SUM_FROM..)?)
    {
        return None;
    }
    let header = sector.get(le32(sector, 20)? as usize..)?;
    let id = header.get(..32)?.to_vec();
    // Two lists, of data and of metadata areas, each of which ends with an empty entry.
    let mut entries = header.get(40..)?.chunks_exact(16).map(|entry| {
        Some(Segment { offset: le64(entry, 0)?, bytes: le64(entry, 8)? }).filter(|area| area.offset != 0)
    });
    entries.by_ref().take(AREAS_MAX).find(Option::is_none)?;
    Some((id, entries.take(AREAS_MAX).map_while(|area| area).collect()))
}

/// The newest text of a metadata area. `None` if a checksum is wrong, or it is not on the physical volume.
fn read_text(
    device: &(impl BlockDevice + ?Sized),
    place: Segment,
    area: Segment,
    budget: &mut u64,
) -> io::Result<Option<Vec<u8>>> {
    let mut header = [0; HEADER_BYTES as usize];
    if check_range(place.bytes, area.offset, area.bytes).is_err() || area.bytes <= HEADER_BYTES {
        return Ok(None);
    }
    let start = place.offset.saturating_add(area.offset);
    device.read_at(start, &mut header)?;
    let Some((offset, bytes, sum)) = newest(&header, area) else { return Ok(None) };
    let Some(left) = budget.checked_sub(bytes) else { return Ok(None) };
    *budget = left;
    let mut text = vec![0; bytes as usize];
    // It goes on behind the header where the area ends.
    let first = bytes.min(area.bytes - offset);
    let (front, rest) = text.split_at_mut(first as usize);
    device.read_at(start + offset, front)?;
    device.read_at(start + HEADER_BYTES, rest)?;
    Ok((checksum(&text) == sum).then_some(text))
}

/// Where the newest text is in its area, its length and its checksum.
fn newest(header: &[u8], area: Segment) -> Option<(u64, u64, u32)> {
    let is_header = header.get(4..20)? == HEADER_MAGIC
        && le32(header, 0)? == checksum(header.get(4..)?)
        && le32(header, 20)? == 1
        && le64(header, 24)? == area.offset
        && le64(header, 32)? == area.bytes;
    let entry = header.get(TEXTS_AT..TEXTS_AT + TEXT_ENTRY_BYTES)?;
    let (offset, bytes) = (le64(entry, 0)?, le64(entry, 8)?);
    let is_text = le32(entry, 20)? & IGNORED == 0
        && (HEADER_BYTES..area.bytes).contains(&offset)
        && (1..=TEXT_BYTES_MAX.min(area.bytes - HEADER_BYTES)).contains(&bytes);
    (is_header && is_text).then_some((offset, bytes, le32(entry, 16)?))
}

/// The checksum of LVM: that of zip with another start, not inverted.
fn checksum(bytes: &[u8]) -> u32 {
    const START: u32 = 0xf597_a6cf;
    const ALGORITHM: crc::Algorithm<u32> =
        crc::Algorithm { init: START.reverse_bits(), xorout: 0, ..crc::CRC_32_ISO_HDLC };
    const CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&ALGORITHM);
    CRC.checksum(bytes)
}
