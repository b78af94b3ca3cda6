//! Default mount options, which the superblock holds as bits.
//!
//! Source: `lib/e2p/mntopts.c` of e2fsprogs, `EXT4_DEFM_*` of the kernel.

use crate::error::{Error, Result};

/// The three ways of data take two bits together.
const JOURNAL_MODES: u32 = 0x60;

const OPTIONS: [(&str, u32); 12] = [
    ("debug", 0x1),
    ("bsdgroups", 0x2),
    ("user_xattr", 0x4),
    ("acl", 0x8),
    ("uid16", 0x10),
    ("journal_data", 0x20),
    ("journal_data_ordered", 0x40),
    ("journal_data_writeback", 0x60),
    ("nobarrier", 0x100),
    ("block_validity", 0x200),
    ("discard", 0x400),
    ("nodelalloc", 0x800),
];

/// The bits with one option set, or cleared if `^` comes before it.
pub(super) fn edit(bits: u32, word: &str) -> Result<u32> {
    let (name, is_set) = word.strip_prefix('^').map_or((word, true), |name| (name, false));
    let Some((_, option)) = OPTIONS.iter().find(|(known, _)| *known == name) else {
        return Err(Error::InvalidArgument(
            "unknown default mount option; there are debug, bsdgroups, user_xattr, acl, uid16, journal_data, journal_data_ordered, \
             journal_data_writeback, nobarrier, block_validity, discard and nodelalloc",
        ));
    };
    let is_mode = option & JOURNAL_MODES != 0;
    Ok(match (is_set, is_mode) {
        (true, true) => bits & !JOURNAL_MODES | option,
        (true, false) => bits | option,
        // Another mode than the one that is cleared stays.
        (false, true) if bits & JOURNAL_MODES != *option => bits,
        (false, _) => bits & !option,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_exclude_each_other_and_the_rest_adds_up() {
        let edited = |words: &[&str]| words.iter().fold(0, |bits, word| edit(bits, word).expect("known"));
        assert_eq!(edited(&["acl", "journal_data", "journal_data_ordered"]), 0x48);
        assert_eq!(edited(&["journal_data_writeback", "^journal_data"]), 0x60);
        assert_eq!(edited(&["journal_data_writeback", "^journal_data_writeback", "discard"]), 0x400);
        assert!(edit(0, "^no_such").is_err());
    }
}
