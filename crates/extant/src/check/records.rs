//! The record of each inode between the passes: eight bytes, for groups in which any inode is in use.

use extant_ondisk::{FileType, Geometry, GroupNumber, InodeNumber};

/// The inode pass's record of an inode, and the names counted since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Record {
    /// `None` if the inode is free.
    pub(super) kind: Option<FileType>,
    /// `i_links_count`.
    pub(super) links: u16,
    /// Entries that name it, `.` and `..` too.
    pub(super) names: u32,
}

/// The records of all inodes.
#[derive(Debug)]
pub(super) struct Records {
    geometry: Geometry,
    groups: Vec<Option<Box<[Record]>>>,
}

impl Records {
    pub(super) fn new(geometry: &Geometry) -> Self {
        Self { geometry: geometry.clone(), groups: vec![None; geometry.group_count as usize] }
    }

    /// The record of an inode; that of a free one for any other number.
    pub(super) fn get(&self, number: InodeNumber) -> Record {
        let location = self.geometry.inode_location(number);
        location
            .and_then(|(group, index)| {
                self.groups.get(group.0 as usize)?.as_ref()?.get(index as usize).copied()
            })
            .unwrap_or_default()
    }

    /// Notes an inode that is in use.
    pub(super) fn set(&mut self, number: InodeNumber, record: Record) {
        let count = self.geometry.inodes_per_group as usize;
        let Some((group, index)) = self.geometry.inode_location(number) else { return };
        let Some(records) = self.groups.get_mut(group.0 as usize) else { return };
        let records = records.get_or_insert_with(|| vec![Record::default(); count].into_boxed_slice());
        if let Some(slot) = records.get_mut(index as usize) {
            *slot = record;
        }
    }

    /// Counts a name of an inode that is in use.
    pub(super) fn count_name(&mut self, number: InodeNumber) {
        let record = self.get(number);
        if record.kind.is_some() {
            self.set(number, Record { names: record.names.saturating_add(1), ..record });
        }
    }

    /// The inodes of a group that are in use.
    pub(super) fn in_group(&self, group: GroupNumber) -> impl Iterator<Item = (InodeNumber, Record)> + '_ {
        let records =
            self.groups.get(group.0 as usize).and_then(|records| records.as_deref()).unwrap_or_default();
        (0..)
            .zip(records)
            .filter(|(_, record)| record.kind.is_some())
            .filter_map(move |(index, record)| Some((self.geometry.inode_number(group, index)?, *record)))
    }
}
