//! Makes a GUID partition table.

use super::{Gpt, MBR_ENTRIES, PROTECTIVE, PartitionTable, SECTOR_BYTES, put, set_mbr_end};

/// Bytes of the header that its checksum covers.
const HEADER_BYTES: usize = 92;
/// Entries of the table, and the bytes of one, as every program makes them.
const ENTRY_COUNT: usize = 128;
const ENTRY_BYTES: usize = 128;
/// Sectors of all entries.
const ENTRY_SECTORS: u64 = (ENTRY_COUNT * ENTRY_BYTES) as u64 / SECTOR_BYTES;
/// Units of a name's UTF-16 in an entry.
const NAME_UNITS_MAX: usize = 36;

/// A partition of a new GUID partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPartition {
    /// The GUID of its type, as its text is read.
    pub kind: u128,
    /// Its own GUID, likewise.
    pub guid: u128,
    /// Its name, of which the first 36 units of UTF-16 are kept.
    pub name: String,
    /// Its start on the device in bytes, a multiple of 512.
    pub offset: u64,
    /// Its length in bytes, a multiple of 512.
    pub bytes: u64,
}

impl NewPartition {
    fn entry(&self) -> [u8; ENTRY_BYTES] {
        let mut entry = [0; ENTRY_BYTES];
        let first = self.offset / SECTOR_BYTES;
        let last = (first + self.bytes / SECTOR_BYTES).saturating_sub(1);
        put(&mut entry, 0, &stored(self.kind));
        put(&mut entry, 16, &stored(self.guid));
        put(&mut entry, 32, &first.to_le_bytes());
        put(&mut entry, 40, &last.to_le_bytes());
        for (index, unit) in self.name.encode_utf16().take(NAME_UNITS_MAX).enumerate() {
            put(&mut entry, 56 + 2 * index, &unit.to_le_bytes());
        }
        entry
    }
}

impl PartitionTable {
    /// What a GUID partition table takes at the end of a device, in bytes.
    pub const GPT_END_BYTES: u64 = (1 + ENTRY_SECTORS) * SECTOR_BYTES;

    /// A GUID partition table of 128 entries, of which these partitions are the first. `guid` is the disk's.
    #[must_use]
    pub fn new_gpt(guid: u128, partitions: &[NewPartition]) -> Self {
        let mut header = vec![0; HEADER_BYTES];
        put(&mut header, 0, b"EFI PART");
        put(&mut header, 8, &0x1_0000_u32.to_le_bytes());
        put(&mut header, 12, &(HEADER_BYTES as u32).to_le_bytes());
        put(&mut header, 40, &(2 + ENTRY_SECTORS).to_le_bytes());
        put(&mut header, 56, &stored(guid));
        put(&mut header, 72, &2_u64.to_le_bytes());
        put(&mut header, 80, &(ENTRY_COUNT as u32).to_le_bytes());
        put(&mut header, 84, &(ENTRY_BYTES as u32).to_le_bytes());
        let mut entries: Vec<u8> =
            partitions.iter().take(ENTRY_COUNT).flat_map(NewPartition::entry).collect();
        entries.resize(ENTRY_COUNT * ENTRY_BYTES, 0);
        let mut mbr = [0; SECTOR_BYTES as usize];
        // From the sector after the MBR, in the old addressing and the new one.
        put(&mut mbr, MBR_ENTRIES + 1, &[0, 2, 0, PROTECTIVE]);
        put(&mut mbr, MBR_ENTRIES + 8, &1_u32.to_le_bytes());
        set_mbr_end(&mut mbr, 1, (1, 2));
        put(&mut mbr, 510, &[0x55, 0xAA]);
        Self { mbr, gpt: Some(Gpt { header, entries, entry_bytes: ENTRY_BYTES }) }
    }
}

/// A GUID as tables store it: its first three fields are little-endian.
fn stored(guid: u128) -> [u8; 16] {
    let mut bytes = guid.to_be_bytes();
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    bytes
}
