//! What a part of a disk holds.

use std::fmt;

use extant_block::{BlockDevice, Container};
use extant_ondisk::{SUPERBLOCK_OFFSET, Superblock, superblock::SUPERBLOCK_SIZE};

use super::{Foreign, format_of, has_superblock};
use crate::output::escape;

/// What is on a partition or another part of a disk.
pub enum Content {
    /// An ext4 file system of this label.
    Ext4(Vec<u8>),
    /// Something else that is known.
    Foreign(Foreign),
    /// Nothing that is known.
    Unknown,
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ext4(label) if label.is_empty() => f.write_str("ext4"),
            Self::Ext4(label) => write!(f, "ext4 '{}'", escape(label)),
            Self::Foreign(Foreign { what, .. }) => f.write_str(what),
            Self::Unknown => f.write_str("no known format"),
        }
    }
}

/// What is on a part of a disk.
pub fn content(device: &dyn BlockDevice) -> Content {
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
