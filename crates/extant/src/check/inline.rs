//! Checks content that is in its inode: that it is all there, and the entries of directories.

use std::collections::BTreeSet;

use extant_ondisk::dirent::DirEntry;
use extant_ondisk::inode::I_BLOCK_SIZE;
use extant_ondisk::{
    Error, FileType, IncompatFeatures, InodeNumber, RawInode, Structure, dirent, inline_data,
};

use super::Checker;
use super::directories::Directory;
use super::reading::{Reading, Role};
use crate::error::Location;

impl Checker<'_> {
    /// Whether the content of an inode is in it, as it may on this disk.
    pub(super) fn is_inline(&self, inode: &RawInode) -> bool {
        inode.has_inline_data() && self.superblock.incompat().contains(IncompatFeatures::INLINE_DATA)
    }

    /// Checks the size of an inode's inline content; the content if it can be read.
    pub(super) fn check_inline_content(&mut self, location: Location, inode: &RawInode) -> Option<Vec<u8>> {
        let content = match inline_data::content(inode) {
            Ok(content) => content,
            // Found with the attributes.
            Err(Error::Corrupt(found)) if found.structure == Structure::InodeXattrs => return None,
            Err(error) => {
                self.findings.add_format(location, error);
                return None;
            }
        };
        let (size, bytes) = (inode.size(), content.len());
        // A file may use less of it.
        if inode.file_type() != FileType::Regular && size != bytes as u64 {
            self.findings.add(location, format!("the size is {size}, but the inode holds {bytes} bytes"));
        }
        let value = bytes - I_BLOCK_SIZE;
        let is_no_list = !value.is_multiple_of(4) || (1..dirent::entry_bytes(1)).contains(&value);
        if inode.file_type() == FileType::Directory && is_no_list {
            self.findings.add(location, format!("{value} bytes behind the first 60 hold no entries"));
        }
        Some(content)
    }

    pub(super) fn check_inline_directory(&mut self, number: InodeNumber, generation: u32, content: &[u8]) {
        let location = Location::of(Structure::InlineDirectory).inode(number);
        let flag = |flag: fn(&Directory) -> bool| self.directories.get(&number).is_some_and(flag);
        let folds_case = flag(|directory| directory.folds_case);
        let is_encrypted = flag(|directory| directory.is_encrypted);
        let names = BTreeSet::new();
        let mut reading =
            Reading { number, generation, folds_case, is_encrypted, runs: &[], index: None, names };
        let parent = inline_data::parent(content);
        if let Some(directory) = self.directories.get_mut(&number) {
            directory.dotdot = Some(parent);
        }
        // These entries are not stored, and no field says their type.
        for (name, inode) in [(b".".as_slice(), number), (b"..", parent)] {
            let rec_len = dirent::entry_bytes(name.len());
            let entry =
                DirEntry { offset: 0, inode, rec_len, name, file_type: FileType::Unknown.dirent_byte() };
            self.check_target(&reading, &entry, true, location);
        }
        for list in inline_data::entry_lists(content) {
            // No list has the role of a first block, which holds `.` and `..`.
            self.check_entries(&mut reading, 1, list, list.len(), Role::linear(), location);
        }
    }
}
