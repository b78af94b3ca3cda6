//! What mke2fs prints as it goes on.

use std::io::Write as _;

use extant::mkfs::Layout;
use extant_ondisk::GroupNumber;

use crate::verbs::uuid_text;

/// Columns of the list of copies.
const COLUMNS: usize = 72;
/// Blanks that overwrite a counter.
const BLANKS: &str = "                            ";

/// Standard output, unless nothing is to be said.
pub struct Told {
    is_quiet: bool,
}

impl Told {
    /// Says nothing if `is_quiet`.
    pub fn new(is_quiet: bool) -> Self {
        Self { is_quiet }
    }

    /// A line.
    pub fn line(&self, text: &str) {
        if !self.is_quiet {
            // A caller that does not listen is no reason to leave a disk half made.
            let _ = writeln!(std::io::stdout(), "{text}");
        }
    }

    /// What is being made.
    pub fn layout(&self, layout: &Layout) {
        let (geometry, superblock) = (layout.geometry(), layout.superblock());
        self.line(&format!(
            "Creating filesystem with {} {}k blocks and {} inodes",
            geometry.blocks_count,
            geometry.block_size / 1024,
            geometry.inodes_count
        ));
        if geometry.group_count > 1 {
            self.line(&format!("Filesystem UUID: {}", uuid_text(superblock.s_uuid())));
            let per_group = u64::from(superblock.s_blocks_per_group());
            let copies = (1..geometry.group_count).filter(|group| geometry.has_super(GroupNumber(*group)));
            let copies =
                copies.map(|group| u64::from(superblock.s_first_data_block()) + u64::from(group) * per_group);
            self.line(&format!("Superblock backups stored on blocks: {}", columns(copies)));
        }
        self.line("");
    }

    /// What was written of it.
    pub fn tables(&self, layout: &Layout) {
        self.line(&format!("Allocating group tables: done{BLANKS}"));
        self.line(&format!("Writing inode tables: done{BLANKS}"));
        if layout.journal_blocks() > 0 {
            self.line(&format!("Creating journal ({} blocks): done", layout.journal_blocks()));
        }
    }

    /// The last line.
    pub fn end(&self) {
        self.line("Writing superblocks and filesystem accounting information: done\n");
    }
}

/// Numbers with commas between them, in lines of [`COLUMNS`] behind a tab.
fn columns(numbers: impl Iterator<Item = u64>) -> String {
    let (mut text, mut left) = (String::new(), 0);
    for number in numbers {
        let digits = number.to_string();
        if !text.is_empty() {
            text += ", ";
        }
        if digits.len() + 1 > left {
            text += "\n\t";
            left = COLUMNS;
        }
        left -= digits.len() + 1;
        text += &digits;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::columns;

    #[test]
    fn copies_are_listed_in_lines() {
        assert_eq!(columns([8193, 24577].into_iter()), "\n\t8193, 24577");
        let long = columns((1..=20).map(|group| group * 1_000_000_000));
        assert_eq!(long.lines().count(), 5, "{long:?}");
    }
}
