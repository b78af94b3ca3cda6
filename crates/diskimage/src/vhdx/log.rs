//! The log of a VHDX image that was not closed, replayed in memory.

use extant_block::{BlockDevice, Overlay};
use extant_rt::Arc;

use super::damaged;
use crate::Format;
use crate::error::{Error, Result};
use crate::field::{le32, le64, read_vec};

const SECTOR_BYTES: usize = 4096;
const HEADER_BYTES: usize = 64;
const DESCRIPTOR_BYTES: usize = 32;
/// Bytes of a log at most, for which 1 MiB is usual.
const LOG_BYTES_MAX: u64 = 4 << 20;
/// Bytes that the replay of a log keeps in memory at most.
const CHANGED_BYTES_MAX: u64 = 64 << 20;

/// Changes of the file that belong together, at a sector of the log.
struct LogEntry {
    sector: usize,
    sectors: usize,
    sequence: u64,
    /// The sector of the log where the entry begins with which a replay of this one begins.
    tail: usize,
}

/// `file` with what its log has to be changed in it, where the header's log begins at `offset` and has the mark `guid`.
pub(super) fn replayed(
    file: Arc<dyn BlockDevice>,
    offset: u64,
    bytes: u64,
    guid: &[u8],
) -> Result<Arc<dyn BlockDevice>> {
    if bytes > LOG_BYTES_MAX {
        return Err(Error::unsupported(
            Format::Vhdx,
            format!("a log of {bytes} bytes that is to be replayed"),
        ));
    }
    let log = read_vec(&*file, offset, bytes)?
        .filter(|log| !log.is_empty() && log.len().is_multiple_of(SECTOR_BYTES));
    let log = log.ok_or_else(|| damaged(format!("a log of {bytes} bytes at {offset}")))?;
    let entries: Vec<Option<LogEntry>> =
        (0..log.len() / SECTOR_BYTES).map(|sector| LogEntry::parse(&log, sector, guid)).collect();
    let sequence =
        active_sequence(&entries).ok_or_else(|| damaged("a log without a whole sequence of entries"))?;
    let overlay = Overlay::new(file, SECTOR_BYTES as u32);
    let mut left = CHANGED_BYTES_MAX;
    for entry in sequence {
        entry.apply(&log, &overlay, &mut left)?;
    }
    Ok(Arc::new(overlay))
}

/// The entries from the tail to the head of the sequence that was written last.
fn active_sequence(entries: &[Option<LogEntry>]) -> Option<Vec<&LogEntry>> {
    let mut active: Option<Vec<&LogEntry>> = None;
    for start in 0..entries.len() {
        let mut sequence: Vec<&LogEntry> = Vec::new();
        let (mut at, mut used) = (start, 0);
        while let Some(entry) = &entries[at] {
            let is_next =
                sequence.last().is_none_or(|last| last.sequence.checked_add(1) == Some(entry.sequence));
            used += entry.sectors;
            if !is_next || used > entries.len() {
                break;
            }
            sequence.push(entry);
            at = (start + used) % entries.len();
        }
        let tail =
            sequence.last().and_then(|head| sequence.iter().position(|entry| entry.sector == head.tail));
        let newest = |sequence: &[&LogEntry]| sequence.last().map(|head| head.sequence);
        if let Some(tail) = tail
            && active.as_deref().is_none_or(|active| newest(active) < newest(&sequence))
        {
            active = Some(sequence.split_off(tail));
        }
    }
    active
}

/// Bytes of the log from a sector on, which go on at its begin.
fn ring(log: &[u8], sector: usize, bytes: usize) -> Vec<u8> {
    let rest = log.get(sector * SECTOR_BYTES..).unwrap_or_default();
    let first = &rest[..bytes.min(rest.len())];
    [first, &log[..bytes - first.len()]].concat()
}

impl LogEntry {
    /// The entry at a sector of the log, which is a ring, if there is a whole one.
    fn parse(log: &[u8], sector: usize, guid: &[u8]) -> Option<Self> {
        if !log.get(sector * SECTOR_BYTES..)?.starts_with(b"loge") {
            return None;
        }
        let bytes = le32(&ring(log, sector, HEADER_BYTES), 8) as usize;
        if bytes == 0 || bytes > log.len() || !bytes.is_multiple_of(SECTOR_BYTES) {
            return None;
        }
        let mut found = ring(log, sector, bytes);
        let sum = le32(&found, 4);
        found[4..8].fill(0);
        let (tail, sequence) = (le32(&found, 12) as usize, le64(&found, 16));
        let is_whole =
            crc32c::crc32c(&found) == sum && found[32..48] == *guid && tail.is_multiple_of(SECTOR_BYTES);
        let (tail, sectors) = (tail / SECTOR_BYTES, bytes / SECTOR_BYTES);
        is_whole.then_some(Self { sector, sectors, sequence, tail })
    }

    /// Makes its changes.
    fn apply(&self, log: &[u8], overlay: &Overlay<Arc<dyn BlockDevice>>, left: &mut u64) -> Result<()> {
        let bytes = ring(log, self.sector, self.sectors * SECTOR_BYTES);
        let wrong = || damaged(format!("entry {} of its log", self.sequence));
        if le64(&bytes, 48).max(le64(&bytes, 56)) > overlay.size() {
            return Err(damaged("its log is of a longer file"));
        }
        let descriptors = (le32(&bytes, 24) as usize).checked_mul(DESCRIPTOR_BYTES);
        let descriptors_end =
            descriptors.and_then(|bytes| bytes.checked_add(HEADER_BYTES)).ok_or_else(wrong)?;
        let descriptors = bytes.get(HEADER_BYTES..descriptors_end).ok_or_else(wrong)?;
        let data = bytes.get(descriptors_end.next_multiple_of(SECTOR_BYTES)..).unwrap_or_default();
        let mut sectors = data.chunks(SECTOR_BYTES);
        for descriptor in descriptors.chunks(DESCRIPTOR_BYTES) {
            let (offset, zero_bytes) = (le64(descriptor, 16), le64(descriptor, 8));
            if le64(descriptor, 24) != self.sequence {
                return Err(wrong());
            }
            let is_zero = descriptor.starts_with(b"zero");
            let changed = if is_zero { zero_bytes } else { SECTOR_BYTES as u64 };
            *left = left.checked_sub(changed).ok_or_else(|| {
                Error::unsupported(Format::Vhdx, "a log with more than 64 MiB that is to be replayed")
            })?;
            if is_zero {
                overlay.write_zeroes(offset, zero_bytes)?;
            } else {
                let sector = sectors.next().filter(|_| descriptor.starts_with(b"desc")).ok_or_else(wrong)?;
                let sequence = u64::from(le32(sector, 4)) << 32 | u64::from(le32(sector, 4092));
                if !sector.starts_with(b"data") || sequence != self.sequence {
                    return Err(wrong());
                }
                let content = [&descriptor[8..16], &sector[8..4092], &descriptor[4..8]].concat();
                overlay.write_at(offset, &content)?;
            }
        }
        Ok(())
    }
}
