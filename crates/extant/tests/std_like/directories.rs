//! Directories and trees as iterators.

use std::collections::BTreeSet;
use std::path::Path;

use extant::device::{BlockDevice, MemoryDevice};
use extant::{Credentials, Filesystem, Mount, NewKind, mkfs::Mkfs};

use crate::new_disk;

#[test]
fn entries_have_paths_types_and_attributes() {
    let fs = new_disk(32);
    fs.create_dir_all("/dir/sub").expect("directories");
    fs.write("/dir/file", "text").expect("a file");
    fs.symlink("file", "/dir/link").expect("a link");
    let mut entries: Vec<_> =
        fs.read_dir("dir/").expect("a directory").map(|entry| entry.expect("an entry")).collect();
    entries.sort_by_key(|entry| entry.file_name());
    let [file, link, sub] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!(
        (file.path().as_path(), link.file_name().as_encoded_bytes()),
        (Path::new("dir/file"), &b"link"[..])
    );
    assert!(file.file_type().expect("a type").is_file() && sub.file_type().expect("a type").is_dir());
    let of = link.metadata().expect("stat");
    assert!(of.is_symlink() && of.len() == 4 && of.inode == link.inode());
    fs.remove_file("/dir/file").expect("remove");
    let error = file.metadata().expect_err("it is gone");
    assert_eq!(error.to_string(), "dir/file: no such file or directory");
    assert!(fs.read_dir("/dir/link").is_err());
}

/// Where the directory does not say types, the inode does.
#[test]
fn entries_without_types_ask_the_inode() {
    let device = MemoryDevice::new(32 << 20);
    Mkfs::new().features("^filetype").and_then(|mkfs| mkfs.format(&device)).expect("format");
    let fs = Mount::new().open_device(device).expect("mount");
    fs.create_dir_all("/dir/sub").expect("directories");
    fs.write("/dir/sub/file", "").expect("a file");
    let entry = fs.read_dir("/dir").expect("a directory").next().expect("one").expect("an entry");
    assert!(entry.file_type().expect("a type").is_dir());
    assert_eq!(fs.walk("/dir").expect("a tree").count(), 2);
}

#[test]
fn a_large_directory_is_read_piece_by_piece_while_it_changes() {
    const COUNT: usize = 5000;
    let fs = new_disk(128);
    for number in 0..COUNT {
        fs.write(format!("/{number}"), "").expect("a file");
    }
    let mut seen = BTreeSet::new();
    for (number, entry) in fs.read_dir("/").expect("the root").enumerate() {
        let entry = entry.expect("an entry");
        assert!(seen.insert(entry.file_name()), "{entry:?} twice");
        if number % 7 == 0 {
            fs.write(format!("/new{number}"), "").expect("a file");
            let _ = fs.remove_file(entry.path());
        }
    }
    for number in 0..COUNT {
        assert!(seen.contains(Path::new(&number.to_string()).as_os_str()), "{number} is missing");
    }
}

fn paths(fs: &Filesystem, start: &str) -> Vec<String> {
    let paths =
        fs.walk(start).expect("a tree").map(|entry| entry.expect("an entry").path().display().to_string());
    paths.filter(|path| !path.contains("lost+found")).collect()
}

#[test]
fn a_walk_lists_directories_before_what_is_in_them() {
    let fs = new_disk(32);
    fs.create_dir_all("/a/b/c").expect("directories");
    fs.write("/a/b/c/file", "").expect("a file");
    fs.symlink("/a", "/a/b/loop").expect("a link");
    fs.write("/z", "").expect("a file");
    let listed = paths(&fs, "/");
    assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>().len(), listed.len());
    let at = |path: &str| {
        listed.iter().position(|listed| listed == path).unwrap_or_else(|| panic!("{path}: {listed:?}"))
    };
    assert!(at("/a") < at("/a/b") && at("/a/b") < at("/a/b/c") && at("/a/b/c") < at("/a/b/c/file"));
    assert!(at("/a/b/loop") > at("/a/b") && listed.len() == 6, "{listed:?}");
    assert_eq!(paths(&fs, "a/b/c"), ["a/b/c/file"]);
}

#[test]
fn a_walk_goes_on_behind_a_directory_that_it_may_not_read() {
    let fs = new_disk(32);
    fs.create_dir_all("/top/shut/hidden").expect("directories");
    fs.create_dir_all("/top/open").expect("directories");
    fs.write("/top/open/file", "").expect("a file");
    fs.set_mode("/top/shut", 0o700).expect("mode");
    let user = fs.as_user(Credentials { uid: 1000, gid: 1000, groups: Vec::new() });
    let (entries, errors): (Vec<_>, Vec<_>) = user.walk("/top").expect("a tree").partition(Result::is_ok);
    assert_eq!(entries.len(), 3);
    let [Err(error)] = &errors[..] else { panic!("{errors:?}") };
    assert_eq!(error.to_string(), "/top/shut: permission denied");
}

/// A directory that names one above itself, as only a damaged disk has it.
#[test]
fn a_walk_of_a_cycle_ends() {
    let device = std::sync::Arc::new(MemoryDevice::new(16 << 20));
    Mkfs::new().features("^metadata_csum,^dir_index").and_then(|mkfs| mkfs.format(&device)).expect("format");
    let fs = Mount::new().open_device(device.clone()).expect("mount");
    fs.create_dir_all("/top/named-so").expect("directories");
    fs.write("/top/beside", "").expect("a file");
    let (top, below) = (fs.lookup("/top").expect("top"), fs.lookup("/top/named-so").expect("below"));
    let (at, from, to) =
        (top.device_offset(0, 4096).expect("a block").expect("one"), below.number().0, top.number().0);
    drop((top, below));
    fs.unmount().expect("unmount");
    let mut block = [0; 4096];
    device.read_at(at, &mut block).expect("read");
    let name = block.windows(8).position(|bytes| bytes == b"named-so").expect("the entry");
    assert_eq!(block[name - 8..name - 4], from.to_le_bytes());
    block[name - 8..name - 4].copy_from_slice(&to.to_le_bytes());
    device.write_at(at, &block).expect("write");
    let fs = Mount::new().read_only(true).open_device(device).expect("mount");
    let (entries, errors): (Vec<_>, Vec<_>) = fs.walk("/top").expect("a tree").partition(Result::is_ok);
    assert_eq!((entries.len(), errors.len()), (2, 1), "{entries:?} {errors:?}");
    let Err(error) = &errors[0] else { panic!("no error") };
    assert!(error.to_string().starts_with("/top/named-so: "), "{error}");
}

#[test]
fn a_walk_is_deeper_than_the_stack_of_a_thread() {
    const DEPTH: usize = 3000;
    let fs = new_disk(64);
    let mut dir = fs.root().expect("the root");
    let new = extant::New { kind: NewKind::Directory, mode: 0o755, uid: 0, gid: 0, times: None, xattrs: &[] };
    for _ in 0..DEPTH {
        dir = dir.create_dir(b"d", &new).expect("a directory");
    }
    assert_eq!(fs.walk("/").expect("a tree").filter(Result::is_ok).count(), DEPTH + 1);
}
