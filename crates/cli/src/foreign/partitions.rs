//! The partitions of a disk, and what each of them holds.

use std::fmt;

use extant_block::{BlockDevice, Partition, PartitionEntry, PartitionKind};

use super::Foreign;
use super::content::{Content, content};
use super::marks::PHYSICAL_VOLUME;
use super::volumes::Volume;
use crate::partition_types;
use crate::size;

/// The type of the entry that protects a GUID partition table.
const PROTECTIVE: PartitionKind = PartitionKind::Mbr(0xee);

/// A partition.
pub struct Part {
    /// Its entry in the table.
    pub entry: PartitionEntry,
    /// What it holds.
    pub content: Content,
}

impl Part {
    /// Whether it has an ext4 file system.
    pub fn is_ext4(&self) -> bool {
        matches!(self.content, Content::Ext4(_))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PartitionEntry { number, offset, bytes, kind } = &self.entry;
        write!(f, "{number} ({} at byte {offset}, ", size::show(*bytes))?;
        match &self.content {
            Content::Unknown => write!(f, "{}, type {})", self.content, partition_types::name(*kind)),
            content => write!(f, "{content})"),
        }
    }
}

/// The partitions of these entries of a device's table.
pub fn parts(device: &dyn BlockDevice, entries: &[PartitionEntry]) -> Vec<Part> {
    let part = |entry: &PartitionEntry| {
        let content = match Partition::new(device, entry.offset, entry.bytes) {
            Ok(part) => content(&part),
            Err(_) => Content::Unknown,
        };
        Part { entry: entry.clone(), content }
    };
    entries.iter().map(part).collect()
}

/// What to do with a disk of these partitions where a file system was expected.
pub fn advice(parts: &[Part], volumes: &[Volume]) -> String {
    if parts.is_empty() {
        return "it names no partition".to_owned();
    }
    if let [Part { entry, content: Content::Unknown }] = parts
        && entry.kind == PROTECTIVE
    {
        return "it protects a GUID partition table, both copies of which are damaged; `gdisk IMAGE` repairs \
                what can be repaired"
            .to_owned();
    }
    let list = parts.iter().map(Part::to_string).collect::<Vec<_>>().join(", ");
    if parts.iter().any(Part::is_ext4) {
        return format!("choose one with --partition: {list}");
    }
    if volumes.iter().any(Volume::is_ext4) {
        return super::volumes::advice(volumes).unwrap_or_default();
    }
    let mut steps: Vec<String> = Vec::new();
    for part in parts {
        if let Content::Foreign(Foreign { what, advice }) = &part.content {
            let advice = match what == PHYSICAL_VOLUME {
                true => super::volumes::advice(volumes).unwrap_or_else(|| advice.clone()),
                false => advice.clone(),
            };
            let step = format!("{what}: {advice}");
            if !steps.contains(&step) {
                steps.push(step);
            }
        }
    }
    let steps = match steps.is_empty() {
        true => "`extant mkfs --partition N` makes one".to_owned(),
        false => format!("`losetup -fP --show IMAGE` makes a device of each; {}", steps.join("; ")),
    };
    format!("none of its partitions is one: {list}; {steps}")
}
