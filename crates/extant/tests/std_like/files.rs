//! Files by path and by handle, beside `std::fs` on the host.

use std::fmt::Debug;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::time::{Duration, SystemTime};

use extant::{Filesystem, SeekTo, Times};

use crate::new_disk;

fn told<T: Debug, E: Into<io::Error>>(result: Result<T, E>) -> Result<String, ErrorKind> {
    result.map(|value| format!("{value:?}")).map_err(|error| error.into().kind())
}

/// The same calls below a directory of the host, by `std::fs::`, and of a disk, by `fs.`.
macro_rules! work {
    ([$($fs:tt)+] below $root:expr) => {{
        let at = |path: &str| format!("{}{path}", $root);
        [
            told($($fs)+ create_dir_all(at("/a/b"))),
            told($($fs)+ create_dir_all(at("/a/b"))),
            told($($fs)+ create_dir(at("/a/b"))),
            told($($fs)+ create_dir(at("/none/b"))),
            told($($fs)+ write(at("/a/file"), "text")),
            told($($fs)+ create_dir_all(at("/a/file/below"))),
            told($($fs)+ read(at("/a/file"))),
            told($($fs)+ read_to_string(at("/a/file"))),
            told($($fs)+ read(at("/a"))),
            told($($fs)+ write(at("/a"), "x")),
            told($($fs)+ write(at("/a/bytes"), [0xFF, 0xFE])),
            told($($fs)+ read_to_string(at("/a/bytes"))),
            told($($fs)+ exists(at("/a/file"))),
            told($($fs)+ exists(at("/a/none"))),
            told($($fs)+ exists(at("/a/file/none"))),
            told($($fs)+ hard_link(at("/a/file"), at("/a/link"))),
            told($($fs)+ hard_link(at("/a/file"), at("/a/link"))),
            told($($fs)+ copy(at("/a/file"), at("/a/copy"))),
            told($($fs)+ copy(at("/a/bytes"), at("/a/copy"))),
            told($($fs)+ copy(at("/a/none"), at("/a/copy"))),
            told($($fs)+ copy(at("/a"), at("/a/copy"))),
            told($($fs)+ read(at("/a/copy"))),
            told($($fs)+ rename(at("/a/copy"), at("/a/b/moved"))),
            told($($fs)+ rename(at("/a/none"), at("/a/b/moved"))),
            told($($fs)+ canonicalize(at("/a/./b/../b/moved")).map(|path| path.ends_with("a/b/moved"))),
            told($($fs)+ canonicalize(at("/a/none"))),
            told($($fs)+ remove_dir(at("/a"))),
            told($($fs)+ remove_file(at("/a/b"))),
            told($($fs)+ remove_file(at("/a/link"))),
            told($($fs)+ metadata(at("/a/file")).map(|of| (of.is_file(), of.is_dir(), of.is_symlink(), of.len()))),
            told($($fs)+ symlink_metadata(at("/a")).map(|of| (of.is_file(), of.is_dir(), of.is_symlink()))),
            told($($fs)+ remove_dir_all(at("/a"))),
            told($($fs)+ remove_dir_all(at("/a"))),
        ]
    }};
}

#[test]
fn paths_do_what_those_of_the_host_do() {
    if cfg!(windows) {
        return println!("skipped: the host's calls have other errors than those of Unix");
    }
    let host = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let fs = new_disk(32);
    fs.create_dir("/root").expect("a directory");
    let theirs = work!([std::fs::] below host.path().display());
    let ours = work!([fs.] below "/root");
    // The standard library has no name for some errors of WASI.
    let is_nameless = |theirs: &Result<String, ErrorKind>| {
        cfg!(target_os = "wasi") && theirs.as_ref().is_err_and(|kind| format!("{kind:?}") == "Uncategorized")
    };
    for (call, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        match is_nameless(theirs) {
            true => assert!(ours.is_err(), "call {call}: {ours:?}"),
            false => assert_eq!(ours, theirs, "call {call}"),
        }
    }
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn a_copy_keeps_holes_and_permissions() {
    let fs = new_disk(32);
    let file = fs.create_new("/sparse").expect("a file");
    file.write_all_at(&[1; 5000], 40 << 20).expect("data behind a hole");
    file.set_len(100 << 20).expect("a hole at the end");
    fs.set_mode("/sparse", 0o640).expect("mode");
    fs.write("/copy", vec![2; 10_000]).expect("former content");
    assert_eq!(fs.copy("/sparse", "/copy").expect("copy"), 100 << 20);
    let (of, copied) = (fs.metadata("/sparse").expect("stat"), fs.metadata("/copy").expect("stat"));
    assert_eq!((copied.mode, copied.len(), copied.blocks_512), (0o640, of.len(), of.blocks_512));
    let copy = fs.open("/copy").expect("open");
    assert_eq!(copy.seek_to(SeekTo::Data, 0).expect("data"), 40 << 20);
    let mut piece = [0; 5000];
    copy.read_at(&mut piece, 40 << 20).expect("read");
    assert!(piece == [1; 5000]);
    let error = fs.copy("/copy", "/copy").expect_err("one file");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(fs.metadata("/copy").expect("stat").len(), 100 << 20);
}

#[test]
fn canonical_paths_lead_through_no_link() {
    let fs = new_disk(32);
    fs.create_dir_all("/a/b/c").expect("directories");
    fs.write("/a/b/file", "").expect("a file");
    fs.symlink("/a/b", "/absolute").expect("a link");
    fs.symlink("../../../absolute/file", "/a/b/c/relative").expect("a link");
    fs.symlink("../../b/c/relative", "/a/b/c/deep").expect("a link");
    fs.symlink("deep/none", "/a/b/c/broken").expect("a link");
    for (path, canonical) in [
        ("/", "/"),
        ("/../..", "/"),
        ("a//b/./c/", "/a/b/c"),
        ("/absolute/c/..", "/a/b"),
        ("/a/b/c/relative", "/a/b/file"),
        ("/a/b/c/deep", "/a/b/file"),
        ("/absolute/c/../../../absolute/c/relative", "/a/b/file"),
    ] {
        assert_eq!(fs.canonicalize(path).expect(path).to_str(), Some(canonical), "{path}");
    }
    assert_eq!(fs.canonicalize("/a/b/c/broken").expect_err("a file above").kind(), ErrorKind::NotADirectory);
}

fn times_of(fs: &Filesystem) -> [SystemTime; 2] {
    let of = fs.metadata("/file").expect("stat");
    [of.accessed(), of.modified()]
}

#[test]
fn times_are_those_of_the_host() {
    let fs = new_disk(32);
    let before = SystemTime::now() - Duration::from_secs(1);
    fs.write("/file", "").expect("a file");
    let created = fs.metadata("/file").expect("stat").created().expect("inodes have room for it");
    assert!(created > before && created < SystemTime::now() + Duration::from_secs(1));
    let [atime, mtime] = [-1_000_000_001, 1_700_000_000_123_456_789].map(|nanoseconds: i64| {
        let since = Duration::from_nanos(nanoseconds.unsigned_abs());
        if nanoseconds < 0 { SystemTime::UNIX_EPOCH - since } else { SystemTime::UNIX_EPOCH + since }
    });
    fs.set_times("/file", Times { atime: atime.into(), mtime: mtime.into() }).expect("times");
    assert_eq!(times_of(&fs), [atime, mtime]);
}

#[test]
fn a_shared_file_is_read_written_and_positioned() {
    let fs = new_disk(32);
    let file = fs.create_new("/file").expect("a file");
    let mut shared = &file;
    shared.write_all(b"0123456789").expect("write");
    assert_eq!(shared.seek(SeekFrom::Current(-4)).expect("seek"), 6);
    let mut text = String::new();
    (&file).read_to_string(&mut text).expect("read");
    assert_eq!(text, "6789");
    // A clone has the position, and one of its own from then on.
    let mut clone = file.clone();
    assert_eq!(clone.stream_position().expect("position"), 10);
    clone.rewind().expect("rewind");
    assert_eq!((&file).stream_position().expect("position"), 10);
    assert!(shared.seek(SeekFrom::Current(-11)).is_err());
    assert_eq!(shared.seek(SeekFrom::End(-10)).expect("seek"), 0);
    assert_eq!(fs.create_new("/file").expect_err("it exists").kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs.create("/file").expect("cut").metadata().len(), 0);
}
