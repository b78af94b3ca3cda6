//! Identifies a device that holds no bare file system: a partition table, or a disk image of another format.
//!
//! Used only after no file system was found: a bare file system may carry a boot sector that looks like a table.
//! Tables are hostile input: every length is bounded before memory is taken, chains are bounded, and partitions
//! that reach past the device are left out.
//!
//! Leaves out: writing any of it ([`crate::PartitionTable`]). Sources: UEFI specification 2.10, chapter 5 (MBR, GPT); the kernel's
//! `block/partitions/{msdos,efi}.c`. Test: `tests/container.rs`, which holds the lists against `partx`.

use std::fmt;
use std::io;

use crate::{BlockDevice, Segment};

const SECTOR_BYTES: u64 = 512;

/// Logical partitions that are followed, as many as the kernel follows.
const LOGICAL_COUNT_MAX: u32 = 100;

/// Entries of a GUID partition table that are read; 128 is usual.
const GPT_ENTRY_COUNT_MAX: u32 = 1024;

/// Bytes of one entry; 128 is usual.
const GPT_ENTRY_BYTES_MAX: u32 = 4096;

/// The format found instead of a file system.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Container {
    /// A partition table with these partitions, in the order of their numbers.
    PartitionTable(Vec<PartitionEntry>),
    /// A disk image of a format that `qemu-nbd` can show as a device.
    DiskImage(ImageFormat),
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionEntry {
    /// Its number as the kernel counts: 1 to 4 primary and from 5 logical, or its place in a GUID table.
    pub number: u32,
    /// Its start on the device, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// The type that the table gives it.
    pub kind: PartitionKind,
}

impl PartitionEntry {
    /// Its place on the device.
    #[must_use]
    pub fn place(&self) -> Segment {
        Segment { offset: self.offset, bytes: self.bytes }
    }
}

/// The type of a partition, as a table gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionKind {
    /// The type byte of an MBR; Linux is 0x83.
    Mbr(u8),
    /// The type of a GUID partition table, as it lies on the disk.
    Gpt([u8; 16]),
}

impl fmt::Display for PartitionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mbr(kind) => write!(f, "{kind:02x}"),
            Self::Gpt(g) => {
                // The first three fields are little-endian.
                let first = u32::from_le_bytes([g[0], g[1], g[2], g[3]]);
                let (second, third) = (u16::from_le_bytes([g[4], g[5]]), u16::from_le_bytes([g[6], g[7]]));
                let fourth = u16::from_be_bytes([g[8], g[9]]);
                write!(f, "{first:08x}-{second:04x}-{third:04x}-{fourth:04x}-")?;
                g[10..].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
    }
}

/// A format of disk images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageFormat {
    /// QEMU's.
    Qcow2,
    /// VMware's.
    Vmdk,
    /// Hyper-V's.
    Vhdx,
    /// VirtualBox's.
    Vdi,
    /// Virtual PC's, of dynamic size.
    Vhd,
}

impl fmt::Display for ImageFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "VMDK",
            Self::Vhdx => "VHDX",
            Self::Vdi => "VDI",
            Self::Vhd => "VHD",
        })
    }
}

impl Container {
    /// Looks for a partition table or the mark of an image format. `None` means neither.
    ///
    /// # Errors
    /// The device's own.
    pub fn recognise(device: &(impl BlockDevice + ?Sized)) -> io::Result<Option<Self>> {
        let mut first = [0; SECTOR_BYTES as usize];
        if device.size() < SECTOR_BYTES {
            return Ok(None);
        }
        device.read_at(0, &mut first)?;
        if let Some(format) = image_format(&first) {
            return Ok(Some(Self::DiskImage(format)));
        }
        if let Some(partitions) = gpt(device)? {
            return Ok(Some(Self::PartitionTable(partitions)));
        }
        Ok(mbr(device, &first)?.map(Self::PartitionTable))
    }
}

fn image_format(first: &[u8]) -> Option<ImageFormat> {
    const MARKS: [(usize, &[u8], ImageFormat); 6] = [
        (0, b"QFI\xfb", ImageFormat::Qcow2),
        (0, b"KDMV", ImageFormat::Vmdk),
        (0, b"# Disk DescriptorFile", ImageFormat::Vmdk),
        (0, b"vhdxfile", ImageFormat::Vhdx),
        (0x40, &0xbeda_107f_u32.to_le_bytes(), ImageFormat::Vdi),
        (0, b"conectix", ImageFormat::Vhd),
    ];
    let found =
        MARKS.iter().find(|(at, mark, _)| first.get(*at..).is_some_and(|bytes| bytes.starts_with(mark)));
    found.map(|(_, _, format)| *format)
}

pub(crate) fn le32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|field| u32::from_le_bytes(*field))
}

pub(crate) fn le64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|field| u64::from_le_bytes(*field))
}

/// One of the four entries of an MBR or of an extended partition's table.
pub(crate) struct MbrEntry {
    pub(crate) kind: u8,
    pub(crate) start: u64,
    pub(crate) sectors: u64,
}

impl MbrEntry {
    fn is_extended(&self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }

    pub(crate) fn is_used(&self) -> bool {
        self.kind != 0 && self.sectors != 0
    }

    /// The partition, if it lies on the device.
    fn partition(&self, number: u32, base: u64, device_bytes: u64) -> Option<PartitionEntry> {
        let offset = (base + self.start) * SECTOR_BYTES;
        let bytes = self.sectors * SECTOR_BYTES;
        (offset + bytes <= device_bytes).then_some(PartitionEntry {
            number,
            offset,
            bytes,
            kind: PartitionKind::Mbr(self.kind),
        })
    }
}

/// The entries of a table sector; `None` if it is none. A boot sector without a table has the same signature, but
/// hardly four bytes that are all 0x00 or 0x80 where a table has its boot flags.
pub(crate) fn mbr_entries(sector: &[u8; SECTOR_BYTES as usize]) -> Option<Vec<MbrEntry>> {
    let entries = &sector[446..510];
    let is_table = sector[510..] == [0x55, 0xaa] && entries.chunks(16).all(|entry| entry[0] & 0x7f == 0);
    let entry = |bytes: &[u8]| {
        Some(MbrEntry {
            kind: *bytes.get(4)?,
            start: le32(bytes, 8)?.into(),
            sectors: le32(bytes, 12)?.into(),
        })
    };
    is_table.then(|| entries.chunks(16).filter_map(entry).collect())
}

fn mbr(
    device: &(impl BlockDevice + ?Sized),
    first: &[u8; SECTOR_BYTES as usize],
) -> io::Result<Option<Vec<PartitionEntry>>> {
    let Some(entries) = mbr_entries(first) else { return Ok(None) };
    let mut partitions = Vec::new();
    let mut extended = None;
    for (number, entry) in (1..).zip(entries.iter()).filter(|(_, entry)| entry.is_used()) {
        if entry.is_extended() {
            extended = extended.or(Some(entry.start));
        } else {
            partitions.extend(entry.partition(number, 0, device.size()));
        }
    }
    if let Some(start) = extended {
        logical(device, start, &mut partitions)?;
    }
    Ok((!partitions.is_empty()).then_some(partitions))
}

/// Follows the chain of tables in an extended partition. Each names one partition, relative to itself, and the
/// next table, relative to the extended partition.
fn logical(
    device: &(impl BlockDevice + ?Sized),
    extended: u64,
    partitions: &mut Vec<PartitionEntry>,
) -> io::Result<()> {
    let mut table = extended;
    let mut number = 5;
    for _ in 0..LOGICAL_COUNT_MAX {
        let mut sector = [0; SECTOR_BYTES as usize];
        if (table + 1) * SECTOR_BYTES > device.size() {
            break;
        }
        device.read_at(table * SECTOR_BYTES, &mut sector)?;
        let Some(entries) = mbr_entries(&sector) else { break };
        for entry in entries.iter().filter(|entry| entry.is_used() && !entry.is_extended()) {
            partitions.extend(entry.partition(number, table, device.size()));
            number += 1;
        }
        let Some(next) = entries.iter().find(|entry| entry.is_used() && entry.is_extended()) else { break };
        table = extended + next.start;
    }
    Ok(())
}

/// The partitions of a GUID table whose checksums are right: the one at the front, or its copy at the end.
fn gpt(device: &(impl BlockDevice + ?Sized)) -> io::Result<Option<Vec<PartitionEntry>>> {
    for sector_bytes in [SECTOR_BYTES, 4096] {
        let sectors = device.size() / sector_bytes;
        for header in [1, sectors.saturating_sub(1)] {
            if header > 0
                && header < sectors
                && let Some(partitions) = gpt_at(device, header, sector_bytes)?
            {
                return Ok(Some(partitions));
            }
        }
    }
    Ok(None)
}

fn gpt_at(
    device: &(impl BlockDevice + ?Sized),
    header_sector: u64,
    sector_bytes: u64,
) -> io::Result<Option<Vec<PartitionEntry>>> {
    let mut sector = [0; SECTOR_BYTES as usize];
    device.read_at(header_sector * sector_bytes, &mut sector)?;
    let Some(header) = GptHeader::parse(&sector, header_sector) else { return Ok(None) };
    let Some(table) = header.entries(device, sector_bytes)? else { return Ok(None) };
    let entries = (1..).zip(table.chunks(header.entry_bytes as usize));
    let partition = |(number, entry): (u32, &[u8])| gpt_entry(number, entry, sector_bytes, device.size());
    Ok(Some(entries.filter_map(partition).collect()))
}

pub(crate) struct GptHeader {
    entries_start: u64,
    entry_count: u32,
    pub(crate) entry_bytes: u32,
    entries_crc: u32,
}

impl GptHeader {
    /// The bytes of its entries; `None` if their checksum is wrong, or they are not on the device.
    pub(crate) fn entries(
        &self,
        device: &(impl BlockDevice + ?Sized),
        sector_bytes: u64,
    ) -> io::Result<Option<Vec<u8>>> {
        let table_bytes = u64::from(self.entry_count) * u64::from(self.entry_bytes);
        let table_offset = self.entries_start.checked_mul(sector_bytes);
        let Some(offset) = table_offset
            .filter(|start| start.checked_add(table_bytes).is_some_and(|end| end <= device.size()))
        else {
            return Ok(None);
        };
        // At most GPT_ENTRY_COUNT_MAX × GPT_ENTRY_BYTES_MAX = 4 MiB.
        let mut table = vec![0; table_bytes as usize];
        device.read_at(offset, &mut table)?;
        Ok((crc32(&[&table]) == self.entries_crc).then_some(table))
    }

    pub(crate) fn parse(sector: &[u8], at: u64) -> Option<Self> {
        if !sector.starts_with(b"EFI PART") || le64(sector, 24)? != at {
            return None;
        }
        let header = sector.get(..le32(sector, 12)? as usize).filter(|header| header.len() >= 92)?;
        // The header's checksum counts as zero in itself.
        if crc32(&[&header[..16], &[0; 4], &header[20..]]) != le32(header, 16)? {
            return None;
        }
        let (entry_count, entry_bytes) = (le32(header, 80)?, le32(header, 84)?);
        let bounded =
            entry_count <= GPT_ENTRY_COUNT_MAX && (128..=GPT_ENTRY_BYTES_MAX).contains(&entry_bytes);
        bounded.then_some(Self {
            entries_start: le64(header, 72)?,
            entry_count,
            entry_bytes,
            entries_crc: le32(header, 88)?,
        })
    }
}

pub(crate) fn gpt_entry(
    number: u32,
    entry: &[u8],
    sector_bytes: u64,
    device_bytes: u64,
) -> Option<PartitionEntry> {
    let kind: [u8; 16] = *entry.first_chunk()?;
    let (first, last) = (le64(entry, 32)?, le64(entry, 40)?);
    let offset = first.checked_mul(sector_bytes)?;
    let bytes = last.checked_sub(first)?.checked_add(1)?.checked_mul(sector_bytes)?;
    let fits = kind != [0; 16] && offset.checked_add(bytes)? <= device_bytes;
    fits.then_some(PartitionEntry { number, offset, bytes, kind: PartitionKind::Gpt(kind) })
}

/// The checksum of zip, which GUID tables use, over the pieces one after the other.
pub(crate) fn crc32(pieces: &[&[u8]]) -> u32 {
    const CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);
    let mut digest = CRC.digest();
    pieces.iter().for_each(|piece| digest.update(piece));
    digest.finalize()
}
