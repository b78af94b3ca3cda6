//! Inodes by any number, as file handles and damaged directories ask for them, on disks whose tables hold what looks like inodes
//! and is none.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use extant::{Error, Filesystem, InodeNumber, Mount};
use extant_testing::{assert_clean, has_e2fsprogs, run, scratch, text};

/// One test at a time: a program that another has just started would hold this one's image open. None, and it says so, without
/// e2fsprogs.
fn alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    has_e2fsprogs().then_some(guard)
}

/// A disk of one group with 256 inodes, of which the last were never used, and the file `/file` of 40 KiB.
fn disk(dir: &Path, options: &[&str]) -> PathBuf {
    let image = dir.join("disk.img");
    let _ = std::fs::remove_file(&image);
    let made = ["-q", "-F", "-t", "ext4", "-N", "256", "-E", "lazy_itable_init=1,nodiscard"];
    run("mke2fs", &[&made, options, &[text(&image), "8M"]].concat()).expect("mke2fs");
    let fs = Mount::new().open(&image).expect("mount");
    fs.write("/file", vec![7; 40 << 10]).expect("write");
    fs.unmount().expect("unmount");
    image
}

fn debugfs(image: &Path, request: &str) {
    let said = run("debugfs", &["-w", "-R", request, text(image)]).expect("debugfs");
    // The first line has the version.
    assert_eq!(said.lines().count(), 1, "{request}: {said}");
}

fn is_stale(fs: &Filesystem, number: u32) -> bool {
    match fs.open_by_handle(InodeNumber(number)) {
        Err(Error::Stale) => true,
        Ok(_) => false,
        Err(error) => panic!("{number}: {error}"),
    }
}

#[test]
fn only_numbers_of_files_and_directories_are_known() {
    let Some(_alone) = alone() else { return };
    let scratch = scratch();
    for options in [&["-O", "metadata_csum"][..], &["-O", "^metadata_csum,uninit_bg"], &["-O", "orphan_file"]]
    {
        let image = disk(scratch.path(), options);
        for read_only in [false, true] {
            let fs = Mount::new().read_only(read_only).open(&image).expect("mount");
            let known = |path: &str| fs.metadata(path).expect("stat").inode.0;
            let named = [2, known("/lost+found"), known("/file")];
            for number in (0..300).chain([u32::MAX - 1, u32::MAX]) {
                assert_eq!(is_stale(&fs, number), !named.contains(&number), "{options:?}: inode {number}");
            }
            let file = fs.open_by_handle(InodeNumber(known("/file"))).expect("the file");
            assert_eq!(file.read_to_end_at(0).expect("read"), [7; 40 << 10]);
            drop(file);
            fs.unmount().expect("unmount");
        }
        assert_clean(&image, options[1]);
    }
}

#[test]
fn what_only_looks_like_an_inode_is_none_and_loses_nobody_a_block() {
    let Some(_alone) = alone() else { return };
    let scratch = scratch();
    for options in ["^metadata_csum,^uninit_bg", "^metadata_csum,uninit_bg", "metadata_csum"] {
        let image = disk(scratch.path(), &["-O", options]);
        // As they are left by an earlier file system: one with a name, one that was deleted. Both map the blocks of the file.
        for number in [30, 31, 250, 251] {
            debugfs(&image, &format!("copy_inode /file <{number}>"));
        }
        for number in [31, 251] {
            debugfs(&image, &format!("set_inode_field <{number}> links_count 0"));
        }
        let fs = Mount::new().open(&image).expect("mount");
        for number in [30, 31, 250, 251] {
            assert!(is_stale(&fs, number), "{options}: inode {number}");
        }
        fs.write("/other", vec![9; 2 << 20]).expect("write");
        assert_eq!(fs.read("/file").expect("read"), [7; 40 << 10], "{options}: the file keeps its blocks");
        fs.unmount().expect("unmount");
    }
}

#[test]
fn name_of_a_free_inode_is_refused_and_loses_nobody_a_block() {
    let Some(_alone) = alone() else { return };
    let scratch = scratch();
    let image = disk(scratch.path(), &["-O", "^metadata_csum"]);
    for request in ["copy_inode /file <30>", "set_inode_field <30> links_count 0", "link <30> /other"] {
        debugfs(&image, request);
    }
    let fs = Mount::new().open(&image).expect("mount");
    let error = fs.read("/other").expect_err("a free inode");
    assert!(error.to_string().contains("names a free inode"), "{error}");
    assert!(matches!(fs.inode(InodeNumber(30)), Err(Error::Stale)));
    // Inode numbers freed by that are allocated again.
    fs.sync().expect("sync");
    while fs.write(format!("/{}", fs.statistics().free_blocks), vec![9; 64 << 10]).is_ok() {}
    assert_eq!(fs.read("/file").expect("read"), [7; 40 << 10], "the file keeps its blocks");
    fs.unmount().expect("unmount");
}

/// The journal, the orphan file, the inode of bad blocks and a reserved one, which debugfs names in the root directory.
#[test]
fn own_inode_is_no_file_whatever_names_it() {
    let Some(_alone) = alone() else { return };
    let scratch = scratch();
    let image = disk(scratch.path(), &["-O", "orphan_file"]);
    let fs = Mount::new().read_only(true).open(&image).expect("mount");
    let orphans = fs.superblock().s_orphan_file_inum();
    assert!(orphans >= fs.superblock().first_ino(), "a number like that of any file");
    drop(fs);
    for number in [1, 7, 8, orphans] {
        debugfs(&image, &format!("link <{number}> /own"));
        for read_only in [true, false] {
            let fs = Mount::new().read_only(read_only).open(&image).expect("mount");
            assert_own_is_refused(&fs, number, read_only);
            fs.unmount().expect("unmount");
        }
        debugfs(&image, "unlink /own");
    }
    // As Linux, e2fsck looks at a disk with the mark that the damage left on it, and finds none.
    assert_clean(&image, "lost no block");
}

fn assert_own_is_refused(fs: &Filesystem, number: u32, read_only: bool) {
    let refused = |what: &str, answer: extant::Result<()>| {
        let error = answer.expect_err(what).into_cause();
        let words = if read_only {
            vec!["own", "read-only"]
        } else {
            vec!["names an inode of the file system's own"]
        };
        assert!(words.iter().any(|words| error.to_string().contains(words)), "{what} of {number}: {error}");
    };
    refused("look-up", fs.lookup("/own").map(drop));
    refused("attributes", fs.symlink_metadata("/own").map(drop));
    refused("open", fs.options().write(true).open("/own").map(drop));
    refused("hard link", fs.hard_link("/own", "/linked"));
    refused("rename", fs.rename("/own", "/moved"));
    refused("replace", fs.rename("/file", "/own"));
    refused("remove", fs.remove_file("/own"));
    let entries = fs.root().expect("the root").entries().expect("names");
    let own = entries.iter().find(|entry| entry.name == b"own").expect("the name");
    // As a directory is read with attributes.
    assert!(matches!(fs.inode(own.inode), Err(Error::Stale)), "inode {number} by its number");
    assert!(is_stale(fs, number), "inode {number} by handle");
}

#[test]
fn inode_that_holds_an_attribute_is_not_a_file() {
    let Some(_alone) = alone() else { return };
    let scratch = scratch();
    let image = disk(scratch.path(), &[]);
    let number = Mount::new().open(&image).expect("mount").metadata("/file").expect("stat").inode.0;
    // EXTENTS and EA_INODE.
    debugfs(&image, "set_inode_field /file flags 0x280000");
    let fs = Mount::new().read_only(true).open(&image).expect("mount");
    let error = fs.metadata("/file").expect_err("an attribute's value");
    assert!(error.to_string().contains("names the inode of an attribute's value"), "{error}");
    assert!(is_stale(&fs, number));
    assert!(matches!(fs.inode(InodeNumber(number)), Err(Error::Stale)));
}

#[test]
fn inode_in_use_without_links_is_not_deleted_by_who_asks_for_it() {
    let Some(_alone) = alone() else { return };
    let scratch = scratch();
    let image = disk(scratch.path(), &[]);
    let number = Mount::new().open(&image).expect("mount").metadata("/file").expect("stat").inode.0;
    debugfs(&image, "set_inode_field /file links_count 0");
    let fs = Mount::new().open(&image).expect("mount");
    let free = fs.statistics().free_blocks;
    assert!(is_stale(&fs, number));
    assert_eq!(fs.statistics().free_blocks, free);
}

#[test]
fn handle_outlives_a_mount_and_ends_with_the_last_name() {
    let Some(_alone) = alone() else { return };
    let scratch = scratch();
    let image = disk(scratch.path(), &[]);
    let fs = Mount::new().open(&image).expect("mount");
    fs.create_dir("/dir").expect("mkdir");
    let handles = ["/file", "/dir"].map(|path| {
        let file = fs.lookup(path).expect("lookup");
        (file.number(), file.generation())
    });
    fs.unmount().expect("unmount");

    let fs = Mount::new().open(&image).expect("mount");
    for (number, generation) in handles {
        assert_eq!(fs.open_by_handle(number).expect("known").generation(), generation);
    }
    let open = fs.lookup("/file").expect("lookup");
    fs.remove_file("/file").expect("unlink");
    fs.remove_dir("/dir").expect("rmdir");
    assert!(handles.iter().all(|(number, _)| is_stale(&fs, number.0)), "without a name");
    assert_eq!(open.read_to_end_at(0).expect("read"), [7; 40 << 10], "who has it open keeps it");
    drop(open);
    assert!(handles.iter().all(|(number, _)| is_stale(&fs, number.0)), "deleted");
    fs.sync().expect("sync");
    assert!(handles.iter().all(|(number, _)| is_stale(&fs, number.0)), "deleted and durable");
    // Numbers that were freed are allocated again.
    for index in 0..240 {
        if fs.write(format!("/{index}"), b"").is_err() {
            break;
        }
    }
    for (number, generation) in handles {
        let another = fs.open_by_handle(number).expect("in use again");
        assert_ne!(another.generation(), generation, "inode {}", number.0);
    }
    fs.unmount().expect("unmount");
    assert_clean(&image, "numbers used again");
}
