//! Content that `mke2fs` put into inodes, through the public interface. What the kernel puts there is in `exchange`, crashes of
//! what moves it are in `crash`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use extant::{Error, Fallocate, Filesystem, InodeFlags, Mount, SeekTo, XattrMode};
use extant_testing::{has_e2fsprogs, run, scratch, symlink, text};

/// Room for 128 and for 640 bytes and more in an inode.
const DISKS: &[&[&str]] = &[
    &["-O", "inline_data", "-b", "1024"],
    &["-O", "inline_data,^metadata_csum,^dir_index", "-b", "4096", "-I", "1024"],
    &["-O", "inline_data,^extent,^64bit", "-b", "2048", "-I", "512"],
];
/// The longest small files and targets of links.
const SIZES_MAX: usize = 140;

/// One test at a time: a program that another has just started would hold this one's image open. None, and it says so, without
/// e2fsprogs.
fn alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    has_e2fsprogs().then_some(guard)
}

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| (size + at * 7) as u8 | 1).collect()
}

/// Files `/f/0` to `/f/139` of so many bytes, links `/l/1` and on to targets of so many, directories `/d/0` to `/d/9` of up to
/// four names. The disk has 16 MiB.
fn disk(scratch: &Path, options: &[&str]) -> PathBuf {
    let (tree, image) = (scratch.join("tree"), scratch.join("image"));
    if !tree.exists() {
        for dir in ["f", "l", "d"] {
            fs::create_dir_all(tree.join(dir)).expect("a directory");
        }
        for size in 0..SIZES_MAX {
            fs::write(tree.join(format!("f/{size}")), content(size)).expect("a file");
        }
        for size in 1..SIZES_MAX {
            symlink(&"t".repeat(size), &tree.join(format!("l/{size}")));
        }
        for count in 0..10 {
            let dir = tree.join(format!("d/{count}"));
            fs::create_dir(&dir).expect("a directory");
            (0..count % 5).for_each(|name| fs::write(dir.join(name.to_string()), b"").expect("a file"));
        }
    }
    let _ = fs::remove_file(&image);
    let made = ["-q", "-F", "-t", "ext4", "-m", "0", "-J", "size=4", "-N", "512", "-d", text(&tree)];
    run("mke2fs", &[&made, options, &[text(&image), "16M"]].concat()).expect("mke2fs");
    image
}

/// Panics unless neither `e2fsck` nor our own check finds anything.
fn assert_clean(image: &Path, what: &str) {
    extant_testing::assert_clean(image, what);
    let findings = Mount::new().read_only(true).open(image).expect(what).check(&mut |_| {}).expect(what);
    assert!(findings.is_empty(), "{what}: {findings:?}");
}

fn is_inline(fs: &Filesystem, path: &str) -> bool {
    fs.symlink_metadata(path).expect(path).flags.contains(InodeFlags::INLINE_DATA)
}

/// Runs `test` on each disk, through page caches of two sizes, and has the disk judged.
fn on_each(test: impl Fn(&Filesystem, &str)) {
    let Some(_alone) = alone() else { return };
    let scratch = scratch();
    for options in DISKS {
        for pages in [0, 4 << 20] {
            let what = format!("{options:?}, {pages} bytes of pages");
            let image = disk(scratch.path(), options);
            let fs = Mount::new().background(false).page_cache_bytes(pages).open(&image).expect(&what);
            test(&fs, &what);
            fs.unmount().expect(&what);
            assert_clean(&image, &what);
        }
    }
}

#[test]
fn content_in_inodes_is_read_where_it_stands() {
    on_each(|fs, what| {
        for size in 0..SIZES_MAX {
            let path = format!("/f/{size}");
            let file = fs.lookup(&path).expect(&path);
            assert_eq!(file.read_to_end_at(0).expect(&path), content(size), "{what}: {path}");
            if is_inline(fs, &path) {
                let mut part = [0xEE; 50];
                let expected = content(size).get(30..).map_or(0, |rest| rest.len().min(50));
                assert_eq!(file.read_at(&mut part, 30).expect(&path), expected);
                assert_eq!(part[..expected], content(size)[size.min(30)..][..expected], "{what}: {path}");
                assert_eq!(file.metadata().blocks_512, u64::from(size > 0), "{what}: {path}");
                if size > 3 {
                    let end = size as u64;
                    assert_eq!(file.seek_to(SeekTo::Data, 3).expect(&path), 3);
                    assert_eq!(file.seek_to(SeekTo::Hole, 3).expect(&path), end);
                    assert!(matches!(file.seek_to(SeekTo::Data, end), Err(Error::NoSuchOffset)));
                }
            }
        }
        for size in 1..SIZES_MAX {
            let path = format!("/l/{size}");
            assert_eq!(fs.read_link(&path).expect(&path), "t".repeat(size).as_bytes(), "{what}: {path}");
        }
        for count in 0..10 {
            let path = format!("/d/{count}");
            let mut names: Vec<_> = fs
                .dir(&path)
                .and_then(|dir| dir.entries())
                .expect(&path)
                .into_iter()
                .map(|entry| entry.name)
                .collect();
            names.sort();
            let expected: Vec<_> = (0..count % 5).map(|name| name.to_string().into_bytes()).collect();
            assert_eq!(names, expected, "{what}: {path}");
            assert_eq!(
                fs.metadata(format!("{path}/..")).expect(&path).inode,
                fs.metadata("/d").unwrap().inode
            );
        }
        for path in ["/f/128", "/l/100", "/d/4"] {
            assert!(is_inline(fs, path), "{what}: {path} is in a block");
        }
    });
}

#[test]
fn content_is_no_attribute() {
    on_each(|fs, what| {
        for path in ["/f/100", "/l/100", "/d/4"] {
            let file = fs.symlink_lookup(path).expect(path);
            assert_eq!(file.list_xattrs().expect(path), Vec::<Vec<u8>>::new(), "{what}: {path}");
            let name = b"system.data";
            assert!(matches!(file.xattr(name), Err(Error::Unsupported(_))));
            assert!(matches!(file.set_xattr(name, b"x", XattrMode::default()), Err(Error::Unsupported(_))));
            assert!(matches!(file.remove_xattr(name), Err(Error::Unsupported(_))));
        }
    });
}

#[test]
fn attributes_beside_content_leave_it_alone() {
    on_each(|fs, what| {
        for path in ["/f/7", "/f/60", "/f/100", "/l/100", "/d/0", "/d/4"] {
            let file = fs.symlink_lookup(path).expect(path);
            for bytes in [0, 8, 300] {
                let name = format!("trusted.{bytes}");
                file.set_xattr(name.as_bytes(), &content(bytes), XattrMode::default()).expect(path);
                assert_eq!(file.xattr(name.as_bytes()).expect(path), content(bytes), "{what}: {path}");
            }
            file.remove_xattr(b"trusted.8").expect(path);
            assert_eq!(is_inline(fs, path), !path.starts_with("/l"), "{what}: {path}");
        }
        for size in [7, 60, 100] {
            assert_eq!(fs.read(format!("/f/{size}")).expect(what), content(size), "{what}");
        }
        assert_eq!(fs.read_link("/l/100").expect(what).len(), 100);
        assert_eq!(fs.read_dir("/d/4").expect(what).count(), 4);
    });
}

#[test]
fn what_changes_moves_to_a_block_and_the_rest_stays() {
    on_each(|fs, what| {
        let file = |size: usize| fs.options().read(true).write(true).open(format!("/f/{size}")).expect(what);
        let with = |size: usize, change: &dyn Fn(&mut Vec<u8>)| {
            let mut expected = content(size);
            change(&mut expected);
            assert_eq!(file(size).read_to_end_at(0).expect(what), expected, "{what}: {size}");
            assert!(!is_inline(fs, &format!("/f/{size}")), "{what}: {size}");
        };
        file(100).write_all_at(b"new", 50).expect(what);
        with(100, &|bytes| bytes[50..53].copy_from_slice(b"new"));
        file(101).write_all_at(b"new", 9000).expect(what);
        with(101, &|bytes| {
            bytes.resize(9000, 0);
            bytes.extend(b"new");
        });
        for (size, len) in [(102, 0), (103, 10), (104, 5000), (0, 100), (1, 0)] {
            file(size).set_len(len).expect(what);
            with(size, &|bytes| bytes.resize(len as usize, 0));
        }
        let ranges = [
            (105, Fallocate::Allocate { keep_size: true }),
            (106, Fallocate::ZeroRange { keep_size: true }),
            (107, Fallocate::PunchHole),
        ];
        for (size, range) in ranges {
            match file(size).allocate(range, 20, 30) {
                Ok(()) if size == 105 => with(size, &|_| ()),
                Ok(()) => with(size, &|bytes| bytes[20..50].fill(0)),
                Err(Error::Unsupported(_)) => with(size, &|_| ()),
                Err(error) => panic!("{what}: {error}"),
            }
        }
        for (path, change) in [
            ("/d/4", &(|| fs.write("/d/4/new", b"")) as &dyn Fn() -> extant::Result<()>),
            ("/d/9", &|| fs.remove_file("/d/9/2")),
            ("/d/8", &|| fs.rename("/d/8/2", "/d/8/3")),
            ("/d/7", &|| fs.rename("/d/7", "/moved")),
            ("/d/3", &|| fs.hard_link("/d/3/0", "/d/3/new")),
        ] {
            assert!(is_inline(fs, path), "{what}: {path}");
            change().expect(what);
            assert!(!is_inline(fs, if path == "/d/7" { "/moved" } else { path }), "{what}: {path}");
        }
        assert_eq!(
            [3, 4, 8, 9].map(|dir| fs.read_dir(format!("/d/{dir}")).expect(what).count()),
            [4, 5, 3, 3]
        );
        assert_eq!(fs.metadata("/moved/..").expect(what).inode, fs.metadata("/").expect(what).inode);
        for path in ["/f/99", "/d/2"] {
            assert!(is_inline(fs, path), "{what}: {path}");
        }
    });
}

#[test]
fn what_stands_in_inodes_goes_with_them() {
    on_each(|fs, what| {
        let free = fs.statistics().free_blocks;
        for path in ["/f/100", "/l/100", "/f/7"] {
            assert!(path == "/f/7" || is_inline(fs, path), "{what}: {path}");
            fs.remove_file(path).expect(what);
        }
        fs.remove_dir("/d/0").expect(what);
        fs.sync().expect(what);
        // The files' directories may have moved to blocks.
        assert!(fs.statistics().free_blocks >= free - 3, "{what}");
    });
}

#[test]
fn on_a_full_disk_content_stays_where_it_is() {
    on_each(|fs, what| {
        let filler = fs.options().write(true).create(true).open("/filler").expect(what);
        let mut at = 0;
        for bytes in [1 << 16, 1 << 10] {
            while let Ok(written) = filler.write_at(&vec![1; bytes], at) {
                at += written as u64;
            }
        }
        fs.sync().expect(what);
        let file = fs.options().write(true).open("/f/100").expect(what);
        for refused in [
            file.write_all_at(b"x", 50),
            file.set_len(50),
            fs.write("/d/4/new", b""),
            fs.remove_file("/d/4/2"),
            fs.rename("/d/3/2", "/d/3/new"),
        ] {
            let error = refused.expect_err(what);
            assert!(matches!(error.cause(), Error::NoSpace), "{what}: {error:?}");
        }
        assert_eq!(fs.read("/f/100").expect(what), content(100), "{what}");
        assert_eq!([3, 4].map(|dir| fs.read_dir(format!("/d/{dir}")).expect(what).count()), [3, 4]);
        file.set_len(0).expect("no block is taken");
    });
}
