//! Link counts: each inode in use has as many names as it says.

use extant_ondisk::{FileType, InodeNumber, RoCompatFeatures, Structure};

use super::records::Record;
use super::{Checker, Pass, Progress};
use crate::error::{Location, Result};

/// Names from which a directory's link count is 1 (`EXT4_LINK_MAX`).
const LINK_MAX: u32 = 65_000;

impl Checker<'_> {
    /// Says nothing where names could not be read: what is wrong there was found already.
    pub(super) fn check_links(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<()> {
        for group in self.groups() {
            if !self.names_incomplete {
                let records: Vec<_> = self.records.in_group(group).collect();
                for (number, record) in records {
                    match self.value_references.get(&number) {
                        Some(references) => self.check_references(number, record, *references)?,
                        None => self.check_link_count(number, record),
                    }
                }
            }
            self.tell(progress, Pass::Links, group);
        }
        Ok(())
    }

    fn check_link_count(&mut self, number: InodeNumber, record: Record) {
        let location = Location::of(Structure::Inode).inode(number);
        if self.is_hidden(number) {
            return;
        }
        let is_directory = record.kind == Some(FileType::Directory);
        // A directory that nothing names still has its own `.` and its children's `..`.
        let is_named = match self.directories.get(&number) {
            Some(directory) => number == InodeNumber::ROOT || directory.parent.is_some(),
            None => record.names > 0,
        };
        if !is_named {
            if record.links > 0 || !self.orphans.contains(&number) {
                self.findings.add(location, "in use, but no directory names it");
            }
            return;
        }
        let is_many = is_directory && record.names > LINK_MAX;
        if is_many && !self.superblock.ro_compat().contains(RoCompatFeatures::DIR_NLINK) {
            self.findings.add(location, "more than 65,000 subdirectories on a disk without dir_nlink");
        }
        let counted = if is_many { 1 } else { record.names };
        // The count stays 1 when such a directory loses entries.
        let was_many = self.directories.get(&number).is_some_and(|d| d.is_indexed) && record.links == 1;
        if u32::from(record.links) != counted && !was_many {
            self.findings
                .add(location, format!("i_links_count is {}, but there are {counted} names", record.links));
        }
    }
}
