//! Archives against GNU tar: what it writes is read, what is written it reads, and nothing is lost.

#[path = "common/collect.rs"]
mod collect;
#[path = "common/tree.rs"]
mod tree;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use collect::Collect;
use extant_archive::{
    Entry, EntryKind, Error, Extent, Input, Shape, Source, TarReader, TarWriter, UserDatabase,
};
use extant_ondisk::Timestamp;
use tree::{Tree, is_root, shell};

fn read(path: &Path) -> extant_archive::Result<Collect> {
    // GNU tar takes the host's names into default lists.
    let names = UserDatabase::parse(&fs::read("/etc/passwd").unwrap(), &fs::read("/etc/group").unwrap());
    Collect::all(TarReader::new(Input::file(File::open(path).unwrap())?).names(names))
}

fn assert_same(left: &BTreeMap<String, Entry>, right: &BTreeMap<String, Entry>, what: &str) {
    let names = |entries: &BTreeMap<String, Entry>| entries.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(left), names(right), "{what}");
    for (path, entry) in left {
        assert_eq!(entry, &right[path], "{what}: {path}");
    }
}

/// What an archive form without extensions keeps.
fn poorer(entries: &BTreeMap<String, Entry>) -> BTreeMap<String, Entry> {
    let mut entries = entries.clone();
    for entry in entries.values_mut() {
        entry.attributes.xattrs.clear();
        entry.attributes.atime = None;
        entry.attributes.mtime.nanoseconds = 0;
        if entry.attributes.mtime.seconds < 0 {
            entry.attributes.mtime = Timestamp::default();
        }
    }
    entries
}

fn without_atime(entries: &BTreeMap<String, Entry>) -> BTreeMap<String, Entry> {
    let mut entries = entries.clone();
    entries.values_mut().for_each(|entry| entry.attributes.atime = None);
    entries
}

/// Which of two names is the link depends on the order of reading; Extant's order and GNU's order by name give the
/// same but for this.
#[test]
fn everything_gnu_tar_writes_is_read() {
    let tree = Tree::new();
    let dir = &tree.dir;
    let walked = Collect::all(tree.source()).unwrap();
    let rich = "--format=posix --xattrs --xattrs-include=* --acls --numeric-owner";
    let forms = [
        ("pax", format!("{rich} -S"), true),
        ("pax-0.0", format!("{rich} -S --sparse-version=0.0"), true),
        ("pax-0.1", format!("{rich} -S --sparse-version=0.1"), true),
        ("pax-gz", format!("{rich} -S -z"), true),
        ("pax-zst", format!("{rich} -S --zstd"), true),
        ("gnu", "--format=gnu --numeric-owner -S".to_owned(), false),
    ];
    for (form, options, is_rich) in forms {
        shell(dir.path(), &format!("tar {options} --sort=name -C tree -cf {form}.tar ."));
        let read = read(&dir.path().join(format!("{form}.tar"))).unwrap();
        if is_rich {
            assert_same(&without_atime(&read.by_path()), &walked.by_path(), form);
        } else {
            assert_same(&poorer(&read.by_path()), &poorer(&walked.by_path()), form);
        }
        assert!(read.contents == walked.contents, "{form}: content");
    }
}

#[test]
fn gnu_tar_reads_everything_that_is_written() {
    let tree = Tree::new();
    let dir = &tree.dir;
    let walked = Collect::all(tree.source()).unwrap();
    let path = dir.path().join("ours.tar");
    let mut writer = TarWriter::new(File::create(&path).unwrap());
    tree.source().pour(&mut writer, Extent::Everything).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len() % 10240, 0);
    assert!(fs::metadata(&path).unwrap().len() < 10_000_000, "holes are not written");

    let own = read(&path).unwrap();
    assert_same(&own.by_path(), &walked.by_path(), "read back");
    assert!(own.contents == walked.contents);

    fs::create_dir(dir.path().join("out")).unwrap();
    shell(dir.path(), "tar --xattrs --xattrs-include=* --acls --numeric-owner -p -C out -xf ours.tar 2>&1");
    let extracted = Collect::all(tree.source_of("out")).unwrap();
    if is_root() {
        assert_same(&extracted.by_path(), &walked.by_path(), "extracted by GNU tar");
    } else {
        println!("skipped: owners, devices and capabilities need root");
    }
    assert!(extracted.contents == walked.contents);
}

#[test]
fn the_same_tree_gives_the_same_bytes() {
    let tree = Tree::new();
    let write = || {
        let mut bytes = Vec::new();
        tree.source().pour(&mut TarWriter::new(&mut bytes), Extent::Everything).unwrap();
        bytes
    };
    assert!(write() == write());
}

#[test]
fn sizes_and_holes_are_seen_without_reading_content() {
    let tree = Tree::new();
    let dir = &tree.dir;
    shell(dir.path(), "tar --format=posix -S -C tree -cf a.tar .");
    let mut entries = Collect::default();
    let mut reader = TarReader::new(Input::file(File::open(dir.path().join("a.tar")).unwrap()).unwrap());
    reader.pour(&mut entries, Extent::Entries).unwrap();
    let EntryKind::File(shape) = &entries.by_path()["/sparse"].kind else { panic!() };
    assert_eq!((shape.size, shape.ranges.len()), (20_000_000, 1));
    assert_eq!(entries.by_path()["/dir/large"].kind, EntryKind::File(Shape::dense(3_000_001)));
}

#[test]
fn members_that_lead_out_are_refused() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(dir.path().join("f"), "x").unwrap();
    shell(
        dir.path(),
        "tar -cPf up.tar --transform='s,^,a/../../,' f; tar -cPf abs.tar --transform='s,^,/etc/,' f",
    );
    assert!(matches!(read(&dir.path().join("up.tar")), Err(Error::UnsafeName(_))));
    assert_eq!(read(&dir.path().join("abs.tar")).unwrap().entries[0].path.to_string(), "/etc/f");
}

#[test]
fn damage_is_reported_and_never_panics() {
    let tree = Tree::new();
    let dir = &tree.dir;
    shell(dir.path(), "rm tree/dir/large; tar --format=posix --xattrs --acls -S -C tree -cf a.tar .");
    let whole = fs::read(dir.path().join("a.tar")).unwrap();
    let names = UserDatabase::parse(&fs::read("/etc/passwd").unwrap(), &fs::read("/etc/group").unwrap());
    let pour = |bytes: Vec<u8>| {
        let input = Input::stream(std::io::Cursor::new(bytes))?;
        Collect::all(TarReader::new(input).names(names.clone())).map(drop)
    };
    pour(whole.clone()).unwrap();
    assert!(matches!(pour(Vec::new()), Err(Error::Format { reason: "the archive is empty", .. })));
    assert!(matches!(pour(vec![b'x'; 2000]), Err(Error::Format { reason: "not a tar archive", .. })));
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut state = seed | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    for _ in 0..500 {
        let mut damaged = whole.clone();
        for _ in 0..=random() % 3 {
            let at = random() % damaged.len();
            damaged[at] = random() as u8;
        }
        damaged.truncate(damaged.len() - random() % 3 * (random() % damaged.len()) / 3);
        // Either outcome is right; neither may panic or run away.
        let _ = pour(damaged);
    }
    for packed in ["gzip -c", "zstd -qc"] {
        shell(dir.path(), &format!("{packed} a.tar > packed; head -c 300 packed > cut"));
        pour(fs::read(dir.path().join("packed")).unwrap()).unwrap();
        assert!(pour(fs::read(dir.path().join("cut")).unwrap()).is_err(), "{packed}");
    }
}
