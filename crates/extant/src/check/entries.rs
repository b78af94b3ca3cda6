//! Directory entries: their form, the inodes they name, and where their names may be.

use extant_ondisk::dirent::{self, DirEntry, HEADER_BYTES};
use extant_ondisk::{FileType, IncompatFeatures, InodeNumber, nokey};

use super::Checker;
use super::reading::{Reading, Role};
use crate::error::Location;

/// Bytes of the entry `.`, and of what may follow in the same entry: less than another entry takes.
const DOT_BYTES_MAX: usize = 24;

impl Checker<'_> {
    pub(super) fn check_entries(
        &mut self,
        reading: &mut Reading<'_>,
        logical: u64,
        bytes: &[u8],
        usable: usize,
        role: Role,
        location: Location,
    ) {
        let mut count = 0;
        for (position, entry) in dirent::entries(bytes, usable).enumerate() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.findings.add_format(location, error);
                    self.names_incomplete = true;
                    return;
                }
            };
            count += 1;
            match (logical, position) {
                (0, 0) => self.check_dot(reading, &entry, bytes, location),
                (0, 1) => self.check_dotdot(reading, &entry, bytes, location),
                _ if entry.is_live() => self.check_name(reading, &entry, role, location),
                _ => {}
            }
            if entry.is_live() {
                self.check_target(reading, &entry, logical == 0 && position < 2, location);
            }
            if self.findings.is_full() {
                self.names_incomplete = true;
                return;
            }
        }
        if logical == 0 && count < 2 {
            self.findings.add(location, "no entry `..`");
        }
    }

    fn check_dot(&mut self, reading: &Reading<'_>, entry: &DirEntry<'_>, bytes: &[u8], location: Location) {
        if !entry.is_live() || entry.name != b"." {
            self.findings.add(location, "the first entry is not `.`");
        } else if is_unterminated(entry, bytes) {
            self.findings.add(location, "no NUL follows `.`");
        }
        if entry.inode != reading.number {
            self.findings.add(location, format!("`.` names inode {}", entry.inode));
        }
        if entry.rec_len > DOT_BYTES_MAX {
            self.findings.add(location, "`.` hides entries behind it");
        }
    }

    fn check_dotdot(
        &mut self,
        reading: &Reading<'_>,
        entry: &DirEntry<'_>,
        bytes: &[u8],
        location: Location,
    ) {
        if !entry.is_live() || entry.name != b".." {
            self.findings.add(location, "the second entry is not `..`");
            return;
        }
        if is_unterminated(entry, bytes) {
            self.findings.add(location, "no NUL follows `..`");
        }
        if let Some(directory) = self.directories.get_mut(&reading.number) {
            directory.dotdot = Some(entry.inode);
        }
    }

    /// An entry other than the first two of the directory.
    fn check_name(
        &mut self,
        reading: &mut Reading<'_>,
        entry: &DirEntry<'_>,
        role: Role,
        location: Location,
    ) {
        let shown = entry.name.escape_ascii();
        if entry.name == b"." || entry.name == b".." {
            self.findings.add(location, format!("`{shown}` once more"));
        } else if reading.is_encrypted {
            if entry.name.len() < nokey::NAME_MIN {
                self.findings.add(location, format!("the encrypted name `{shown}` is too short"));
            }
        } else if entry.name.iter().any(|byte| *byte == 0 || *byte == b'/') {
            self.findings.add(location, format!("the name `{shown}` has a slash or NUL"));
        }
        let compared = reading.compared(entry.name);
        if !reading.names.insert(compared.as_deref().unwrap_or(entry.name).into()) {
            self.findings.add(location, format!("the name `{shown}` twice"));
        }
        if let (Some(index), Role::Leaf(range), Some(name)) = (&reading.index, role, compared)
            && !range.contains(index.hasher.hash(&name).hash)
        {
            self.findings.add(location, format!("the hash of `{shown}` belongs into another block"));
        }
        if entry.inode == reading.number || entry.inode == InodeNumber::ROOT {
            self.findings.add(location, format!("`{shown}` names the directory itself or the root"));
        } else if let Some(child) = self.directories.get_mut(&entry.inode) {
            match child.parent {
                Some(other) => {
                    self.findings
                        .add(location, format!("`{shown}` names a directory that is in inode {other} too"));
                }
                None => child.parent = Some(reading.number),
            }
        }
    }

    /// The inode that an entry names.
    pub(super) fn check_target(
        &mut self,
        reading: &Reading<'_>,
        entry: &DirEntry<'_>,
        is_dot: bool,
        location: Location,
    ) {
        let number = entry.inode;
        let shown = entry.name.escape_ascii();
        let is_for_files = number == InodeNumber::ROOT
            || number.0 >= self.geometry.first_ino && number.0 <= self.geometry.inodes_count;
        if !is_for_files || self.is_hidden(number) && number.0 != self.superblock.s_journal_inum() {
            self.findings.add(location, format!("`{shown}` names inode {number}, which is none for files"));
            return;
        }
        let record = self.records.get(number);
        let Some(kind) = record.kind else {
            self.findings.add(location, format!("`{shown}` names inode {number}, which is free"));
            return;
        };
        if self.value_references.contains_key(&number) {
            self.findings
                .add(location, format!("`{shown}` names inode {number}, which holds an attribute's value"));
        }
        self.records.count_name(number);
        let has_types = self.superblock.incompat().contains(IncompatFeatures::FILETYPE);
        let expected = if has_types { kind.dirent_byte() } else { 0 };
        // 0 says nothing, which is what entries from before the feature say.
        if ![0, expected].contains(&entry.file_type) && kind != FileType::Unknown {
            let what = format!("`{shown}` has type {}, but inode {number} {expected}", entry.file_type);
            self.findings.add(location, what);
        }
        if is_dot && kind != FileType::Directory && number != reading.number {
            self.findings.add(location, format!("`{shown}` names inode {number}, which is no directory"));
        }
    }
}

/// Whether the byte behind the name is not NUL; readers of `.` and `..` rely on it.
fn is_unterminated(entry: &DirEntry<'_>, bytes: &[u8]) -> bool {
    bytes.get(entry.offset + HEADER_BYTES + entry.name.len()).is_some_and(|byte| *byte != 0)
}
