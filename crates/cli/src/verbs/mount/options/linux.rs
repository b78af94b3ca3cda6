//! Options of mount(8) and of the kernel's ext4 that change nothing here: accepted where Extant's behaviour is at least as strong, or
//! refused with the reason. `docs/reference/mount-options.md` shows the table; a test compares.
//!
//! Source: `Documentation/admin-guide/ext4.rst`, ext4(5), mount(8).

use Meaning::{Accepted, Refused};

/// What comes of an option, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// It holds as it is, or something stronger does.
    Accepted(&'static str),
    /// It would not hold.
    Refused(&'static str),
}

/// The seconds between commits at most.
const COMMIT_SECONDS: u64 = 5;

/// The options; capitals denote a value.
pub const WORDS: [(&str, Meaning); 87] = [
    ("auto", Accepted("handled by mount(8)")),
    ("noauto", Accepted("handled by mount(8)")),
    ("defaults", Accepted("handled by mount(8)")),
    ("user", Accepted("handled by mount(8)")),
    ("user=NAME", Accepted("handled by mount(8)")),
    ("nouser", Accepted("handled by mount(8)")),
    ("users", Accepted("handled by mount(8)")),
    ("owner", Accepted("handled by mount(8)")),
    ("group", Accepted("handled by mount(8)")),
    ("nofail", Accepted("handled by mount(8)")),
    ("_netdev", Accepted("handled by mount(8)")),
    ("comment=TEXT", Accepted("handled by mount(8)")),
    ("loop", Accepted("an image needs no loop device")),
    ("default_permissions", Accepted("always in effect")),
    ("async", Accepted("always in effect")),
    (
        "sync",
        Refused(
            "single writes are not durable; programs call fsync, and `extant sync DIR` makes everything durable",
        ),
    ),
    ("dirsync", Refused("single directory changes are not durable; programs call fsync")),
    ("remount", Refused("unmount it and mount it with the new options")),
    ("silent", Accepted("affects messages only")),
    ("loud", Accepted("affects messages only")),
    ("nomand", Accepted("mandatory locks do not exist")),
    ("mand", Refused("mandatory locks do not exist since Linux 5.15")),
    ("iversion", Refused("i_version is not exported")),
    ("lazytime", Accepted("times are written with each commit, which is sooner")),
    ("nolazytime", Accepted("times are written with each commit")),
    ("atime", Accepted("as relatime, which is the default")),
    ("norelatime", Refused("strictatime updates the access time at each access")),
    ("nostrictatime", Accepted("as relatime, which is the default")),
    ("data=ordered", Accepted("data is written before its blocks are mapped")),
    ("data=writeback", Accepted("data=ordered is used, which is stronger")),
    ("data=journal", Refused("data is not journalled; data=ordered is used")),
    ("data_err=ignore", Accepted("fsync reports data that could not be written")),
    (
        "data_err=abort",
        Refused("fsync and unmounting report data that could not be written; the journal is not aborted"),
    ),
    ("journal_checksum", Refused("the journal has checksums if the disk has them (mkfs -O metadata_csum)")),
    (
        "nojournal_checksum",
        Accepted("the journal has the checksums that the disk's features require, which is stronger"),
    ),
    (
        "journal_async_commit",
        Accepted("a commit waits for its blocks before the commit block, which is stronger"),
    ),
    ("journal_ioprio=N", Accepted("a hint")),
    ("journal_path=PATH", Refused("journals on other devices are not served")),
    ("journal_dev=NUMBER", Refused("journals on other devices are not served")),
    ("commit=SECONDS", Accepted("5 s or more, or 0: a commit happens at least every 5 s")),
    ("barrier", Accepted("always in effect")),
    ("barrier=1", Accepted("always in effect")),
    ("barrier=0", Accepted("the device is always flushed, which is stronger")),
    ("nobarrier", Accepted("the device is always flushed, which is stronger")),
    ("max_batch_time=US", Accepted("a hint")),
    ("min_batch_time=US", Accepted("a hint")),
    ("errors=panic", Refused("a server cannot stop the host; errors=remount-ro stops writing")),
    ("user_xattr", Accepted("always in effect")),
    ("nouser_xattr", Refused("user attributes are always served")),
    ("acl", Accepted("always in effect")),
    ("noacl", Refused("access control lists are always served")),
    ("auto_da_alloc", Accepted("a rename over a file leaves the old or the new content")),
    (
        "noauto_da_alloc",
        Accepted("a rename over a file leaves the old or the new content, which is stronger"),
    ),
    (
        "delalloc",
        Accepted("in effect with a page cache; otherwise blocks are allocated at once, which is stronger"),
    ),
    ("nodelalloc", Accepted("as page_cache=0")),
    ("stripe=BLOCKS", Accepted("a hint")),
    ("inode_readahead_blks=N", Accepted("a hint")),
    ("init_itable=N", Accepted("a hint")),
    ("noinit_itable", Accepted("a hint")),
    ("mb_optimize_scan=N", Accepted("a hint")),
    ("dioread_lock", Accepted("a hint")),
    ("dioread_nolock", Accepted("a hint")),
    ("block_validity", Accepted("always in effect")),
    ("noblock_validity", Accepted("always checked, which is stronger")),
    ("bsddf", Accepted("always in effect")),
    ("minixdf", Refused("the journal and tables always count as used")),
    ("nogrpid", Accepted("always in effect")),
    ("sysvgroups", Accepted("always in effect")),
    ("grpid", Refused("new files take their creator's group, or that of a directory with set-group-id")),
    ("bsdgroups", Refused("new files take their creator's group, or that of a directory with set-group-id")),
    ("debug", Accepted("a hint")),
    ("nodebug", Accepted("a hint")),
    ("usrjquota=FILE", Refused("usage is counted in hidden quota files only (the feature `quota`)")),
    ("grpjquota=FILE", Refused("usage is counted in hidden quota files only (the feature `quota`)")),
    ("jqfmt=FORMAT", Refused("usage is counted in hidden quota files only (the feature `quota`)")),
    ("dax", Refused("DAX is not supported")),
    ("dax=always", Refused("DAX is not supported")),
    ("dax=inode", Accepted("the flag is stored; DAX is not supported")),
    ("dax=never", Accepted("always in effect")),
    ("nodax", Accepted("always in effect")),
    ("resuid=USER", Refused("the superblock names the user of the reserved blocks")),
    ("resgid=GROUP", Refused("the superblock names the user of the reserved blocks")),
    ("sb=BLOCK", Refused("`e2fsck -b` uses a backup superblock")),
    ("max_dir_size_kb=N", Refused("directories have no such limit")),
    ("test_dummy_encryption", Refused("encrypted files are not written")),
    ("inlinecrypt", Refused("encrypted files are not written")),
    (
        "writeback",
        Refused(
            "the kernel's cache accepts data without reserving blocks and loses it on a full disk; page_cache=BYTES reserves first",
        ),
    ),
];

/// The row of an option.
pub fn find(word: &str) -> Option<(&'static str, Meaning)> {
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    let named = WORDS.iter().find(|(name, _)| *name == word);
    let with_value = || {
        WORDS.iter().find(|(name, _)| {
            name.split_once('=').is_some_and(|(name, value)| name == key && is_placeholder(value))
        })
    };
    let row = *named.or_else(|| if value.is_empty() { None } else { with_value() })?;
    if key != "commit" {
        return Some(row);
    }
    match value.parse::<u64>() {
        Ok(0 | COMMIT_SECONDS..) => Some(row),
        Ok(_) => Some((row.0, Refused("commits come every 5 s; programs call fsync"))),
        Err(_) => Some((row.0, Refused("not a number"))),
    }
}

fn is_placeholder(value: &str) -> bool {
    value.bytes().all(|byte| byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::mount::Options;

    #[test]
    fn page_of_options_is_the_table_and_the_parser_keeps_to_it() {
        let mut page = String::new();
        for (name, meaning) in WORDS {
            let (done, reason) = match meaning {
                Accepted(reason) => ("accepted", reason),
                Refused(reason) => ("refused", reason),
            };
            page += &format!("| `{name}` | {done} | {reason} |\n");
            let word = match name.split_once('=') {
                Some((key, value)) if is_placeholder(value) => format!("{key}=17"),
                _ => name.to_owned(),
            };
            let parsed = Options::parse(std::slice::from_ref(&word));
            match meaning {
                Accepted(_) => assert!(parsed.is_ok(), "{word}"),
                Refused(reason) => {
                    let said = parsed.expect_err("refused").to_string();
                    assert!(said.contains(&word) && said.contains(reason), "{said}");
                }
            }
        }
        let document = include_str!("../../../../../../docs/reference/mount-options.md");
        assert!(document.contains(&page), "docs/reference/mount-options.md is to have these rows:\n{page}");
    }

    #[test]
    fn options_of_an_fstab_are_read() {
        let words = "defaults,noatime,errors=remount-ro,data=ordered,commit=30,barrier=1,user_xattr,acl,nofail,x-systemd.automount";
        let options = Options::parse(&[words.to_owned()]).expect("an ordinary line");
        assert_eq!(options.describe(), "rw,nosuid,nodev,noatime,errors=remount-ro");
        for (word, said) in [
            ("commit=1", "every 5 s"),
            ("commit=x", "not a number"),
            ("stripe", "unknown"),
            ("data=none", "unknown"),
        ] {
            let refused = Options::parse(&[word.to_owned()]).expect_err("refused").to_string();
            assert!(refused.contains(said) && refused.contains(word), "{refused}");
        }
    }
}
