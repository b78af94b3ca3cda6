//! The partitions of a disk, and what each of them holds.

use std::fmt;

use extant_block::{BlockDevice, Container, Partition, PartitionEntry, PartitionKind};
use extant_ondisk::{SUPERBLOCK_OFFSET, Superblock, superblock::SUPERBLOCK_SIZE};

use super::{Foreign, format_of, has_superblock};
use crate::output::escape;
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

/// What is on a partition.
pub enum Content {
    /// An ext4 file system of this label.
    Ext4(Vec<u8>),
    /// Something else that is known.
    Foreign(Foreign),
    /// Nothing that is known.
    Unknown,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PartitionEntry { number, offset, bytes, kind } = &self.entry;
        write!(f, "{number} ({} at byte {offset}, ", size::show(*bytes))?;
        match &self.content {
            Content::Ext4(label) if label.is_empty() => f.write_str("ext4)"),
            Content::Ext4(label) => write!(f, "ext4 '{}')", escape(label)),
            Content::Foreign(Foreign { what, .. }) => write!(f, "{what})"),
            Content::Unknown => write!(f, "no known format, type {})", partition_types::name(*kind)),
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

fn content(device: &dyn BlockDevice) -> Content {
    if has_superblock(device) {
        return Content::Ext4(label(device));
    }
    let container = Container::recognise(device).ok().flatten();
    let found = format_of(device, container.as_ref()).or_else(|| {
        Some(match container? {
            Container::PartitionTable(_) => Foreign::new("a partition table", "look at it with `sfdisk -l`"),
            Container::DiskImage(format) => {
                Foreign::new(&format!("a {format} image"), "copy it out with `dd`, and look at that")
            }
            _ => return None,
        })
    });
    found.map_or(Content::Unknown, Content::Foreign)
}

/// The label of an ext4 file system, which is empty if its superblock is damaged.
fn label(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let read = device.read_at(SUPERBLOCK_OFFSET, &mut bytes).ok();
    read.and_then(|()| Superblock::parse(&bytes).ok()).map_or_else(Vec::new, |it| it.volume_name())
}

/// What to do with a disk of these partitions where a file system was expected.
pub fn advice(parts: &[Part]) -> String {
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
    if parts.iter().any(|part| matches!(part.content, Content::Ext4(_))) {
        return format!("choose one with --partition: {list}");
    }
    let mut steps: Vec<String> = Vec::new();
    for part in parts {
        if let Content::Foreign(Foreign { what, advice }) = &part.content {
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
