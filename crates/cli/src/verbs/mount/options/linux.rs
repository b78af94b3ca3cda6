//! Options of mount(8) and of the kernel's ext4 that change nothing here: accepted where what is done is at least as strong, or refused with
//! the reason. `docs/reference/mount-options.md` shows the table; a test compares.
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

/// The options; what stands in capitals is a value.
pub const WORDS: [(&str, Meaning); 92] = [
    ("auto", Accepted("mount(8)'s")),
    ("noauto", Accepted("mount(8)'s")),
    ("defaults", Accepted("mount(8)'s")),
    ("user", Accepted("mount(8)'s")),
    ("user=NAME", Accepted("mount(8)'s")),
    ("nouser", Accepted("mount(8)'s")),
    ("users", Accepted("mount(8)'s")),
    ("owner", Accepted("mount(8)'s")),
    ("group", Accepted("mount(8)'s")),
    ("nofail", Accepted("mount(8)'s")),
    ("_netdev", Accepted("mount(8)'s")),
    ("comment=TEXT", Accepted("mount(8)'s")),
    ("loop", Accepted("an image needs no loop device")),
    ("default_permissions", Accepted("always so")),
    ("async", Accepted("always so")),
    (
        "sync",
        Refused(
            "writes are not made durable one by one; programs call fsync, and `extant sync DIR` makes all durable",
        ),
    ),
    ("dirsync", Refused("changes of directories are not made durable one by one; programs call fsync")),
    ("remount", Refused("unmount it and mount it with the new options")),
    ("silent", Accepted("says nothing of the disk")),
    ("loud", Accepted("says nothing of the disk")),
    ("nomand", Accepted("no file system has such locks")),
    ("mand", Refused("no file system has such locks since Linux 5.15")),
    ("iversion", Refused("no version of content is kept")),
    ("lazytime", Accepted("times are written with each commit, which is sooner")),
    ("nolazytime", Accepted("times are written with each commit")),
    ("atime", Accepted("as relatime, which is the default")),
    ("norelatime", Refused("strictatime notes each access")),
    ("nostrictatime", Accepted("as relatime, which is the default")),
    ("data=ordered", Accepted("data is on the disk before the blocks have a place in the file")),
    ("data=writeback", Accepted("data=ordered, which is stronger, is done")),
    ("data=journal", Refused("data does not go through the journal; data=ordered is what is done")),
    ("data_err=ignore", Accepted("fsync tells of data that could not be written")),
    (
        "data_err=abort",
        Refused(
            "data that could not be written is told by fsync and at unmounting, and does not stop the journal",
        ),
    ),
    ("journal_checksum", Refused("the journal has checksums if the disk has them (mkfs -O metadata_csum)")),
    ("nojournal_checksum", Accepted("the journal has the checksums that the disk says, which is stronger")),
    ("journal_async_commit", Accepted("a commit waits for its blocks, which is stronger")),
    ("journal_ioprio=N", Accepted("a hint")),
    ("journal_path=PATH", Refused("journals on other devices are not served")),
    ("journal_dev=NUMBER", Refused("journals on other devices are not served")),
    ("commit=SECONDS", Accepted("from 5 s on, and 0: commits come every 5 s at the latest")),
    ("barrier", Accepted("always so")),
    ("barrier=1", Accepted("always so")),
    ("barrier=0", Accepted("the device is always told to flush, which is stronger")),
    ("nobarrier", Accepted("the device is always told to flush, which is stronger")),
    ("max_batch_time=US", Accepted("a hint")),
    ("min_batch_time=US", Accepted("a hint")),
    ("errors=panic", Refused("a server cannot stop the host; errors=remount-ro stops writing")),
    ("user_xattr", Accepted("always so")),
    ("nouser_xattr", Refused("user attributes are always served")),
    ("acl", Accepted("always so")),
    ("noacl", Refused("access control lists are always served")),
    ("auto_da_alloc", Accepted("renaming over a file leaves the old content or the new")),
    (
        "noauto_da_alloc",
        Accepted("renaming over a file leaves the old content or the new, which is stronger"),
    ),
    (
        "delalloc",
        Accepted("so with page_cache=BYTES; otherwise blocks are given out at once, which is stronger"),
    ),
    ("nodelalloc", Accepted("so without page_cache=BYTES")),
    ("stripe=BLOCKS", Accepted("a hint")),
    ("inode_readahead_blks=N", Accepted("a hint")),
    ("init_itable=N", Accepted("a hint")),
    ("noinit_itable", Accepted("a hint")),
    ("mb_optimize_scan=N", Accepted("a hint")),
    ("dioread_lock", Accepted("a hint")),
    ("dioread_nolock", Accepted("a hint")),
    ("block_validity", Accepted("always so")),
    ("noblock_validity", Accepted("always checked, which is stronger")),
    ("bsddf", Accepted("always so")),
    ("minixdf", Refused("the journal and tables always count as used")),
    ("nogrpid", Accepted("always so")),
    ("sysvgroups", Accepted("always so")),
    ("grpid", Refused("new files take the group of their maker, or of a directory with set-group-id")),
    ("bsdgroups", Refused("new files take the group of their maker, or of a directory with set-group-id")),
    ("debug", Accepted("a hint")),
    ("nodebug", Accepted("a hint")),
    ("usrquota", Refused("quotas are not kept")),
    ("grpquota", Refused("quotas are not kept")),
    ("prjquota", Refused("quotas are not kept")),
    ("quota", Refused("quotas are not kept")),
    ("noquota", Accepted("always so")),
    ("usrjquota=FILE", Refused("quotas are not kept")),
    ("grpjquota=FILE", Refused("quotas are not kept")),
    ("jqfmt=FORMAT", Refused("quotas are not kept")),
    ("dax", Refused("nothing is mapped from the device")),
    ("dax=always", Refused("nothing is mapped from the device")),
    ("dax=inode", Accepted("the flag is kept, and nothing is mapped from the device")),
    ("dax=never", Accepted("always so")),
    ("nodax", Accepted("always so")),
    ("resuid=USER", Refused("the superblock says who may use the last blocks")),
    ("resgid=GROUP", Refused("the superblock says who may use the last blocks")),
    ("sb=BLOCK", Refused("`e2fsck -b` takes another superblock")),
    ("max_dir_size_kb=N", Refused("directories have no such limit")),
    ("test_dummy_encryption", Refused("encrypted files are not written")),
    ("inlinecrypt", Refused("encrypted files are not written")),
    (
        "writeback",
        Refused(
            "the kernel's cache took data for which there was no room, and lost it in silence; page_cache=BYTES gathers writes in the server",
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
