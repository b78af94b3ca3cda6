//! A disk, what was changed on a copy of it, and the layer between them: applied to the one, it gives the other.
//!
//! `EXTANT_LAYERS=N` tries so many pairs of random disks, `EXTANT_LAYERS_FROM=N` begins with another.

#[cfg(target_os = "linux")]
mod append;
#[path = "../common/changes.rs"]
mod changes;
#[path = "../common/collect.rs"]
mod collect;
mod listing;
mod mirror;
#[path = "../common/overlay.rs"]
mod overlay;

use std::io::Cursor;
use std::sync::Arc;

use changes::{Random, change};
use collect::Collect;
use extant::mkfs::Mkfs;
use extant::{Filesystem, Mount, New, NewKind, SetAttributes, Times, Timestamp};
use extant_archive::oci::{Changes, LayerWriter, Packing};
use extant_archive::{
    Aspect, ChangeKind, Difference, DiskWalk, Entry, EntryKind, Error, Extent, Import, Input, Manner, Shape,
    Sink, Source, TarReader,
};
use extant_block::{BlockDevice, MemoryDevice};
use extant_rt::WallClock;
use listing::assert_difference;
use overlay::{Tree, assert_equal};

const DISK_BYTES: u64 = 64 << 20;
const PAIRS: u64 = 20;

fn number_of(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// A base and a disk that came of it.
struct Pair {
    base: Arc<MemoryDevice>,
    disk: Arc<MemoryDevice>,
}

/// How the disk of a pair came of its base.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Origin {
    /// It is a copy, and was changed and unmounted.
    Copy,
    /// Likewise, under a clock that stands still.
    FixedClock,
    /// It is a copy, and crashed while it was changed.
    Crashed,
    /// It is another file system with the same files.
    Apart,
}

const ORIGINS: [Origin; 4] = [Origin::Copy, Origin::FixedClock, Origin::Crashed, Origin::Apart];

fn mkfs(clock: WallClock) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(DISK_BYTES));
    Mkfs::new().clock(clock).format(&*device).unwrap();
    device
}

fn mount(device: &Arc<MemoryDevice>, clock: WallClock) -> Filesystem {
    Mount::new().clock(clock).background(false).open_device(device.clone()).unwrap()
}

fn read(device: &Arc<MemoryDevice>) -> Filesystem {
    Mount::new().read_only(true).open_device(device.clone()).unwrap()
}

impl Pair {
    fn random(origin: Origin, seed: u64) -> Self {
        let clock = match origin {
            Origin::FixedClock => WallClock::Fixed(1_700_000_000, 0),
            _ => WallClock::System,
        };
        let mut random = Random::new(seed);
        let base = mkfs(clock);
        let fs = mount(&base, clock);
        change(&fs, &mut random, 80);
        fs.unmount().unwrap();
        let disk = if origin == Origin::Apart { mkfs(clock) } else { Arc::new(base.snapshot()) };
        let fs = mount(&disk, clock);
        if origin == Origin::Apart {
            let mut import = Import::new(&fs, "/", Manner::Unpack, None).unwrap();
            DiskWalk::new(&read(&base), "/").pour(&mut import, Extent::Everything).unwrap();
        }
        let count = random.below(40);
        change(&fs, &mut random, count);
        if origin == Origin::Crashed {
            fs.force_shutdown(true).unwrap();
        } else {
            fs.unmount().unwrap();
        }
        Self { base, disk }
    }

    fn difference(&self) -> Difference {
        Difference::new(&read(&self.base), &read(&self.disk))
    }
}

fn tree(device: &Arc<MemoryDevice>) -> Tree {
    Tree::of(&Collect::all(DiskWalk::new(&read(device), "/")).unwrap())
}

/// The layer as bytes.
fn layer(changes: &mut Changes, packing: Packing) -> Vec<u8> {
    let mut writer = LayerWriter::new(Vec::new(), packing);
    changes.pour(&mut writer, Extent::Everything).unwrap();
    writer.complete().unwrap().1
}

fn entries_of(layer: Vec<u8>) -> Collect {
    Collect::all(TarReader::new(Input::stream(Cursor::new(layer)).unwrap())).unwrap()
}

fn bytes_of(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

/// Asserts that the changes listed are right, and the layer too; the entries of the layer.
fn assert_layer(pair: &Pair, what: &str) -> Collect {
    let (difference, trees) = (pair.difference(), (&tree(&pair.base), &tree(&pair.disk)));
    assert_difference(&difference, trees, what);
    assert_difference(&difference.clone().reads_all(true), trees, what);
    let mut changes = Changes::new(difference);
    let bytes = layer(&mut changes, Packing::None);
    assert!(bytes == layer(&mut changes, Packing::None), "{what}: other bytes in another run");
    let entries = entries_of(bytes);
    let mut applied = trees.0.clone();
    applied.apply(&entries);
    assert_equal(&applied, trees.1, what);
    entries
}

#[test]
fn base_and_layer_give_the_disk() {
    let from = number_of("EXTANT_LAYERS_FROM").unwrap_or(0);
    for seed in from..from + number_of("EXTANT_LAYERS").unwrap_or(PAIRS) {
        let origin = ORIGINS[seed as usize % ORIGINS.len()];
        let what = format!("seed {seed}, {origin:?}");
        let pair = Pair::random(origin, seed);
        let before = [&pair.base, &pair.disk].map(|device| bytes_of(device));
        assert_layer(&pair, &what);
        assert!(before == [&pair.base, &pair.disk].map(|device| bytes_of(device)), "{what}: written to");
    }
}

#[test]
fn layer_of_a_whole_disk_gives_it() {
    let pair = Pair::random(Origin::Copy, 3);
    let mut whole = Changes::new(Difference::from_nothing(&read(&pair.disk)));
    for packing in [Packing::None, Packing::Gzip, Packing::Zstd] {
        let mut applied = Tree::default();
        applied.apply(&entries_of(layer(&mut whole, packing)));
        assert_equal(&applied, &tree(&pair.disk), &format!("{packing:?}"));
    }
}

#[test]
fn disk_and_its_copy_do_not_differ() {
    let pair = Pair::random(Origin::Copy, 1);
    let copy = Pair { base: pair.disk.clone(), disk: Arc::new(pair.disk.snapshot()) };
    copy.difference().visit(|| {}, |change| panic!("{change:?}")).unwrap();
    assert!(entries_of(layer(&mut Changes::new(copy.difference()), Packing::None)).entries.is_empty());
}

/// Two copies of a disk, changed under one clock that stands still: the inode of the file has the same bytes on both.
#[test]
fn copies_that_one_clock_changed_are_distinguished() {
    for nanoseconds in [0, 1] {
        let clock = WallClock::Fixed(1_700_000_000, nanoseconds);
        let first = mkfs(clock);
        let fs = mount(&first, clock);
        fs.write("/file", "original").unwrap();
        fs.unmount().unwrap();
        let pair = Pair { disk: Arc::new(first.snapshot()), base: first };
        for (device, content) in [(&pair.base, "one bytes"), (&pair.disk, "two bytes")] {
            let fs = mount(device, clock);
            fs.options().write(true).open("/file").unwrap().write_all_at(content.as_bytes(), 0).unwrap();
            fs.unmount().unwrap();
        }
        let listed = |difference: Difference| {
            let mut changes = Vec::new();
            difference
                .visit(
                    || {},
                    |change| {
                        changes.push((change.path.to_string(), change.kind));
                        Ok(())
                    },
                )
                .unwrap();
            changes
        };
        let change = ("/file".to_owned(), ChangeKind::Changed(vec![Aspect::Content]));
        // A clock of the host never stands still in the middle of a second; such inodes are not read, unless all are.
        assert_eq!(listed(pair.difference()).contains(&change), nanoseconds == 0);
        assert!(listed(pair.difference().reads_all(true)).contains(&change));
    }
}

/// A pair whose base was made by `before`, and its copy changed by `after`; the names in the layer.
fn names_in_layer(before: fn(&Filesystem), after: fn(&Filesystem)) -> Vec<String> {
    let base = mkfs(WallClock::System);
    let disk_of = |device: &Arc<MemoryDevice>, make: fn(&Filesystem)| {
        let fs = mount(device, WallClock::System);
        make(&fs);
        fs.unmount().unwrap();
    };
    disk_of(&base, before);
    let pair = Pair { disk: Arc::new(base.snapshot()), base };
    disk_of(&pair.disk, after);
    let entries = assert_layer(&pair, "pair").entries;
    entries.into_iter().map(|entry| entry.path.to_string()).collect()
}

/// Its time and its size are as before.
#[test]
fn content_that_no_time_tells_of_is_found() {
    let names = names_in_layer(
        |fs| fs.write("/file", "original").unwrap(),
        |fs| {
            let file = fs.options().write(true).open("/file").unwrap();
            let mtime = file.metadata().mtime;
            file.write_all_at(b"changed!", 0).unwrap();
            file.set_attributes(&SetAttributes { mtime: Some(mtime), ..SetAttributes::default() }).unwrap();
        },
    );
    assert_eq!(names, ["/", "/file"]);
}

/// The content is durable, the inode was not committed.
#[test]
fn content_that_a_crash_parted_from_its_inode_is_found() {
    let base = mkfs(WallClock::System);
    let fs = mount(&base, WallClock::System);
    fs.write("/file", "original").unwrap();
    fs.unmount().unwrap();
    let pair = Pair { disk: Arc::new(base.snapshot()), base };
    let fs = mount(&pair.disk, WallClock::System);
    let file = fs.options().write(true).open("/file").unwrap();
    file.write_all_at(b"changed!", 0).unwrap();
    file.sync_data().unwrap();
    fs.force_shutdown(false).unwrap();
    drop((file, fs));
    let [before, now] = [&pair.base, &pair.disk].map(|device| read(device).metadata("/file").unwrap());
    assert_eq!((before.version, before.mtime, before.ctime), (now.version, now.mtime, now.ctime));
    let names: Vec<_> =
        assert_layer(&pair, "crash").entries.iter().map(|entry| entry.path.to_string()).collect();
    assert_eq!(names, ["/", "/file"]);
}

/// Writes a file that differs from others of the same content in nothing but its inode.
fn write(fs: &Filesystem, path: &str) {
    let time = Timestamp { seconds: 1_600_000_000, nanoseconds: 7 };
    fs.write(path, "same").unwrap();
    fs.set_times(path, Times { atime: time, mtime: time }).unwrap();
}

fn write_linked(fs: &Filesystem) {
    write(fs, "/a");
    fs.hard_link("/a", "/b").unwrap();
}

#[test]
fn files_that_got_names_or_parted_are_whole_in_the_layer() {
    // A further name: all names of the file.
    assert_eq!(names_in_layer(write_linked, |fs| fs.hard_link("/b", "/c").unwrap()), ["/", "/a", "/b", "/c"]);
    // A name less: nothing of the file.
    assert_eq!(names_in_layer(write_linked, |fs| fs.remove_file("/b").unwrap()), ["/", "/.wh.b"]);
    // A name that is now a file of its own.
    let parted = names_in_layer(write_linked, |fs| {
        fs.remove_file("/b").unwrap();
        write(fs, "/b");
    });
    assert_eq!(parted, ["/", "/b"]);
    let parted = names_in_layer(write_linked, |fs| {
        fs.remove_file("/a").unwrap();
        write(fs, "/a");
    });
    assert_eq!(parted, ["/", "/b"]);
    // Two files that became one.
    let joined = names_in_layer(
        |fs| ["/a", "/b"].iter().for_each(|path| write(fs, path)),
        |fs| {
            fs.remove_file("/b").unwrap();
            fs.hard_link("/a", "/b").unwrap();
        },
    );
    assert_eq!(joined, ["/", "/a", "/b"]);
}

/// A terabyte that is a hole would be as many zeros.
#[test]
fn holes_are_zeros_up_to_a_limit() {
    let base = mkfs(WallClock::System);
    let disk = Arc::new(base.snapshot());
    let fs = mount(&disk, WallClock::System);
    for (name, bytes) in [("/a", 3 << 20), ("/b", 1 << 40), ("/c", 3 << 20)] {
        fs.options().write(true).create(true).open(name).unwrap().set_len(bytes).unwrap();
    }
    fs.unmount().unwrap();
    let bytes = layer(&mut Changes::new(Pair { base, disk }.difference()), Packing::None);
    let mut reader = TarReader::new(Input::stream(Cursor::new(bytes)).unwrap());
    let mut shapes = Shapes::default();
    reader.pour(&mut shapes, Extent::Entries).unwrap();
    let holes = |size| Shape { size, ranges: Vec::new() };
    assert_eq!(shapes.0, [Shape::dense(3 << 20), holes(1 << 40), Shape::dense(3 << 20)]);
}

/// The shapes of files.
#[derive(Default)]
struct Shapes(Vec<Shape>);

impl Sink for Shapes {
    fn entry(&mut self, entry: Entry) -> extant_archive::Result<()> {
        if let EntryKind::File(shape) = entry.kind {
            self.0.push(shape);
        }
        Ok(())
    }

    fn content(&mut self, _offset: u64, bytes: Vec<u8>) -> extant_archive::Result<Vec<u8>> {
        Ok(bytes)
    }

    fn finish(&mut self) -> extant_archive::Result<()> {
        Ok(())
    }
}

#[test]
fn removed_directories_and_changes_of_type_are_in_the_layer() {
    let tree = |fs: &Filesystem| {
        fs.create_dir_all("/d/e").unwrap();
        fs.write("/d/e/f", "deep").unwrap();
        fs.write("/file", "file").unwrap();
    };
    assert_eq!(names_in_layer(tree, |fs| fs.remove_dir_all("/d").unwrap()), ["/", "/.wh.d"]);
    let replaced = names_in_layer(tree, |fs| {
        fs.remove_dir_all("/d/e").unwrap();
        fs.write("/d/e", "a file now").unwrap();
        fs.remove_file("/file").unwrap();
        fs.create_dir_all("/file/below").unwrap();
    });
    assert_eq!(replaced, ["/", "/d", "/d/e", "/file", "/file/below"]);
    // A directory above a change comes with it, and with its own attributes.
    assert_eq!(
        names_in_layer(tree, |fs| fs.set_mode("/d/e/f", 0o600).unwrap()),
        ["/", "/d", "/d/e", "/d/e/f"]
    );
    // No layer holds a socket, so nothing is left where one took the place of a file.
    let socket = names_in_layer(tree, |fs| {
        fs.remove_file("/d/e/f").unwrap();
        let new = New { kind: NewKind::Socket, mode: 0o600, uid: 0, gid: 0, times: None, xattrs: &[] };
        fs.dir("/d/e").unwrap().create(b"f", &new).unwrap();
    });
    assert_eq!(socket, ["/", "/d", "/d/e", "/d/e/.wh.f"]);
}

#[test]
fn names_that_are_whiteouts_are_refused() {
    for name in ["/.wh.file", "/.wh..wh..opq"] {
        let base = mkfs(WallClock::System);
        let disk = Arc::new(base.snapshot());
        let fs = mount(&disk, WallClock::System);
        fs.write(name, "").unwrap();
        fs.unmount().unwrap();
        for pair in [Pair { base: base.clone(), disk: disk.clone() }, Pair { base: disk, disk: base }] {
            let mut writer = LayerWriter::new(Vec::new(), Packing::None);
            let poured = Changes::new(pair.difference()).pour(&mut writer, Extent::Everything);
            let Err(Error::Refused { path, .. }) = poured else { panic!("{name}: {poured:?}") };
            assert_eq!(path.to_string(), name);
        }
    }
}
