//! Trees on a disk: what goes in comes out, names stay inside, and the census is right.

#[path = "common/collect.rs"]
mod collect;
#[path = "common/tree.rs"]
mod tree;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use collect::Collect;
use extant::mkfs::Mkfs;
use extant::{Filesystem, Mount};
use extant_archive::{
    Attributes, Census, CopyOptions, DataRange, DiskFormat, DiskWalk, Entry, EntryKind, Error, Existing,
    Extent, Import, Manner, Preserve, Shape, Sink, Source, TarWriter, TreePath, Walk, pour_concurrently,
};
use extant_block::{BlockDevice, Fault, FaultDevice, FileExt, MemoryDevice, Operation, Request};
use tree::{Tree, is_root};

fn new_disk(bytes: u64) -> (Arc<MemoryDevice>, Filesystem) {
    let device = Arc::new(MemoryDevice::new(bytes));
    Mkfs::new().format(&*device).unwrap();
    let fs = Mount::new().open_device(device.clone()).unwrap();
    (device, fs)
}

fn import(
    fs: &Filesystem,
    target: &str,
    manner: Manner,
    entries: &[(Entry, &[u8])],
) -> extant_archive::Result<()> {
    let mut import = Import::new(fs, target, manner, None)?;
    for (entry, content) in entries {
        import.entry(entry.clone())?;
        if !content.is_empty() {
            import.content(0, content.to_vec())?;
        }
    }
    import.finish()
}

fn entry(path: &str, kind: EntryKind, mode: u16) -> Entry {
    let attributes = Attributes { mode, ..Attributes::default() };
    Entry { path: TreePath::parse(path.as_bytes()).unwrap(), kind, attributes }
}

fn file(path: &str, content: &'static str) -> (Entry, &'static [u8]) {
    (entry(path, EntryKind::File(Shape::dense(content.len() as u64)), 0o644), content.as_bytes())
}

fn link(path: &str, says: &str) -> (Entry, &'static [u8]) {
    (entry(path, EntryKind::Symlink(says.into()), 0o777), b"")
}

fn assert_clean(fs: Filesystem, device: &Arc<MemoryDevice>) {
    fs.unmount().unwrap();
    let fs = Mount::new().read_only(true).open_device(device.clone()).unwrap();
    assert_eq!(fs.check(&mut |_| {}).unwrap(), []);
}

/// Sizes of data ranges on a disk are whole blocks, on the host maybe not; which name is the link may differ.
fn comparable(collect: &Collect) -> BTreeMap<String, Entry> {
    let mut entries = collect.by_path();
    for entry in entries.values_mut() {
        if let EntryKind::File(shape) = &mut entry.kind {
            shape.ranges.clear();
        }
    }
    entries
}

#[test]
fn a_tree_comes_out_as_it_went_in() {
    let tree = Tree::new();
    let (device, fs) = new_disk(64 << 20);
    let mut import = Import::new(&fs, "/", Manner::Unpack, None).unwrap();
    pour_concurrently(tree.source(), &mut import, Extent::Everything).unwrap();
    drop(import);
    let walked = Collect::all(tree.source()).unwrap();
    let read = Collect::all(DiskWalk::new(&fs, "/")).unwrap();
    let (walked_entries, read_entries) = (comparable(&walked), comparable(&read));
    for (path, entry) in &walked_entries {
        assert_eq!(Some(entry), read_entries.get(path), "{path}");
    }
    assert_eq!(walked_entries.len(), read_entries.len());
    assert!(walked.contents == read.contents);
    let EntryKind::File(shape) = &read.by_path()["/sparse"].kind else { panic!() };
    assert_eq!(
        shape.ranges,
        [DataRange { offset: 8_000_000 / 4096 * 4096, bytes: 4096 }],
        "holes stay holes"
    );
    assert_clean(fs, &device);
}

#[test]
fn census_is_an_upper_bound_and_a_close_one() {
    let tree = Tree::new();
    let many = tree.dir.path().join("tree/many");
    std::fs::create_dir(&many).unwrap();
    for number in 0..3000 {
        std::fs::write(many.join(format!("a-file-of-number-{number}")), vec![1; number]).unwrap();
    }
    let mut census = Census::new(DiskFormat { block_size: 4096, cluster_size: 4096, inode_size: 256 });
    tree.source().pour(&mut census, Extent::Entries).unwrap();
    let (_device, fs) = new_disk(64 << 20);
    let before = fs.statistics();
    let mut import = Import::new(&fs, "/", Manner::Unpack, None).unwrap();
    tree.source().pour(&mut import, Extent::Everything).unwrap();
    drop(import);
    fs.sync().unwrap();
    let after = fs.statistics();
    let needs = census.needs();
    let taken = before.free_blocks - after.free_blocks;
    assert_eq!(needs.inodes, u64::from(before.free_inodes - after.free_inodes));
    assert!(needs.blocks >= taken, "{} counted, {taken} taken", needs.blocks);
    assert!(needs.blocks <= taken + taken / 20 + 8, "{} counted, {taken} taken", needs.blocks);
    if !is_root() {
        println!("skipped: attributes that only root may set");
    }
}

#[test]
fn links_inside_a_disk_lead_nowhere_out_of_the_target() {
    let (device, fs) = new_disk(16 << 20);
    fs.create_dir_all("/jail/sub").unwrap();
    fs.create_dir("/etc").unwrap();
    fs.write("/etc/passwd", "root").unwrap();
    let tree = [
        link("absolute", "/etc"),
        link("upwards", "../../../etc"),
        link("sub/upwards", "../../etc/../etc"),
        file("absolute/passwd", "1"),
        file("upwards/group", "2"),
        file("sub/upwards/shadow", "3"),
        link("loop", "loop"),
    ];
    import(&fs, "/jail", Manner::Unpack, &tree).unwrap();
    assert_eq!(fs.read("/etc/passwd").unwrap(), b"root");
    assert_eq!(fs.read_dir("/etc").unwrap().count(), 1);
    for (name, content) in [("passwd", "1"), ("group", "2"), ("shadow", "3")] {
        assert_eq!(fs.read(format!("/jail/etc/{name}")).unwrap(), content.as_bytes());
    }
    let error = import(&fs, "/jail", Manner::Unpack, &[file("loop/x", "4")]).unwrap_err();
    assert!(matches!(error, Error::Disk { source: extant::Error::Loop, .. }), "{error}");
    assert_clean(fs, &device);
}

#[test]
fn unpacking_replaces_files_and_keeps_links_to_directories() {
    let (device, fs) = new_disk(16 << 20);
    import(&fs, "/", Manner::Unpack, &[file("usr/bin/old", "a"), link("bin", "usr/bin"), file("f", "one")])
        .unwrap();
    let again = [
        (entry("bin", EntryKind::Directory, 0o700), &b""[..]),
        file("bin/new", "b"),
        file("f", "two"),
        link("usr/bin/old", "new"),
        (entry("bin/hard", EntryKind::HardLink(TreePath::parse(b"bin/new").unwrap()), 0), b""),
    ];
    import(&fs, "/", Manner::Unpack, &again).unwrap();
    assert_eq!(fs.read_link("/bin").unwrap(), b"usr/bin");
    assert_eq!(fs.read("/usr/bin/old").unwrap(), b"b");
    assert_eq!(fs.read("/f").unwrap(), b"two");
    assert_eq!(fs.metadata("/usr/bin/hard").unwrap().links, 2);
    fs.create_dir_all("/full/x").unwrap();
    let error = import(&fs, "/", Manner::Unpack, &[file("full", "c")]).unwrap_err();
    assert!(matches!(error, Error::Disk { source: extant::Error::NotEmpty, .. }), "{error}");
    assert_clean(fs, &device);
}

#[test]
fn a_copy_that_breaks_off_leaves_the_old_file() {
    let (device, fs) = new_disk(16 << 20);
    fs.write("/f", "old").unwrap();
    let mut broken = Import::new(&fs, "/", Manner::Copy(CopyOptions::default()), None).unwrap();
    broken.entry(entry("f", EntryKind::File(Shape::dense(6)), 0o600)).unwrap();
    broken.content(0, b"new".to_vec()).unwrap();
    drop(broken);
    assert_eq!(fs.read("/f").unwrap(), b"old");
    assert_eq!(fs.read_dir("/").unwrap().count(), 2, "the file and lost+found");
    import(&fs, "/", Manner::Copy(CopyOptions::default()), &[file("f", "new")]).unwrap();
    assert_eq!(fs.read("/f").unwrap(), b"new");
    let error =
        import(&fs, "/", Manner::Copy(CopyOptions::default()), &[file("lost+found", "x")]).unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    assert_clean(fs, &device);
}

const COPY: Manner = Manner::Copy(CopyOptions {
    existing: Existing::Write,
    force: false,
    preserve: Preserve {
        mode: false,
        acls: false,
        uid: false,
        gid: false,
        times: false,
        xattrs: false,
        links: false,
    },
});

#[test]
fn copies_keep_what_is_there() {
    let (device, fs) = new_disk(16 << 20);
    fs.create_dir_all("/d/e").unwrap();
    fs.write("/d/f", "the old content").unwrap();
    fs.hard_link("/d/f", "/other").unwrap();
    fs.symlink("/d/f", "/d/link").unwrap();
    fs.symlink("nowhere", "/d/dangling").unwrap();
    let f = fs.lookup("/d/f").unwrap();
    f.set_xattr(b"user.kept", b"1", extant::XattrMode::default()).unwrap();
    fs.set_owner("/d/f", 5, 6).unwrap();
    fs.set_mode("/d/f", 0o4640).unwrap();
    import(&fs, "/d", COPY, &[file("f", "new")]).unwrap();
    let found = fs.metadata("/d/f").unwrap();
    assert_eq!((found.inode, found.mode, found.uid, found.gid, found.links), (f.number(), 0o4640, 5, 6, 2));
    assert_eq!(
        (fs.read("/other").unwrap(), f.xattr(b"user.kept").unwrap()),
        (b"new".to_vec(), b"1".to_vec())
    );
    // An absolute link leads to the disk's root, not to the target.
    import(&fs, "/d", COPY, &[file("link", "through")]).unwrap();
    assert_eq!(fs.read_link("/d/link").unwrap(), b"/d/f");
    assert_eq!(fs.read("/other").unwrap(), b"through");
    import(&fs, "/d", Manner::Unpack, &[(entry("null", EntryKind::CharDevice(1, 3), 0o666), b"")]).unwrap();
    for (name, kind) in [
        ("e", EntryKind::File(Shape::default())),
        ("e", EntryKind::Fifo),
        ("f", EntryKind::Directory),
        ("dangling", EntryKind::File(Shape::default())),
        ("null", EntryKind::File(Shape::default())),
    ] {
        let error = import(&fs, "/d", COPY, &[(entry(name, kind, 0o644), b"")]).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{name}: {error}");
    }
    drop(f);
    assert_clean(fs, &device);
}

#[test]
fn a_disk_with_block_maps_is_written_in_place() {
    let device = MemoryDevice::new(16 << 20);
    Mkfs::new().features("^extents,^64bit").unwrap().format(&device).unwrap();
    let device = Arc::new(device);
    let fs = Mount::new().open_device(device.clone()).unwrap();
    fs.write("/f", vec![1; 300 << 10]).unwrap();
    let before = fs.metadata("/f").unwrap().inode;
    import(&fs, "/", COPY, &[file("f", "new")]).unwrap();
    assert_eq!((fs.read("/f").unwrap(), fs.metadata("/f").unwrap().inode), (b"new".to_vec(), before));
    assert_clean(fs, &device);
}

#[test]
fn what_a_directory_hands_down_does_not_change_an_entry() {
    let (device, fs) = new_disk(16 << 20);
    let mut parent = entry("d", EntryKind::Directory, 0o2770);
    parent.attributes.gid = 7;
    // user::rwx, user:7:r-x, group::r-x, mask::r-x, other::---
    let acl = [
        &[2, 0, 0, 0][..],
        &[1, 0, 7, 0, 255, 255, 255, 255],
        &[2, 0, 5, 0, 7, 0, 0, 0],
        &[4, 0, 5, 0, 255, 255, 255, 255],
        &[16, 0, 5, 0, 255, 255, 255, 255],
        &[32, 0, 0, 0, 255, 255, 255, 255],
    ]
    .concat();
    parent.attributes.xattrs = vec![(b"system.posix_acl_default".to_vec(), acl)];
    import(&fs, "/", Manner::Unpack, &[(parent.clone(), b""), file("d/f", "x")]).unwrap();
    let made = fs.metadata("/d/f").unwrap();
    assert_eq!((made.mode, made.gid), (0o644, 0));
    assert_eq!(fs.lookup("/d/f").unwrap().list_xattrs().unwrap(), Vec::<Vec<u8>>::new());
    assert_eq!(Collect::all(DiskWalk::new(&fs, "/d")).unwrap().by_path()["/"].attributes, parent.attributes);
    assert_clean(fs, &device);
}

#[test]
fn a_full_disk_is_an_error_and_stays_consistent() {
    let (device, fs) = new_disk(4 << 20);
    let mut import = Import::new(&fs, "/", Manner::Unpack, None).unwrap();
    import.entry(entry("big", EntryKind::File(Shape::dense(8 << 20)), 0o644)).unwrap();
    let filled = (0..8).try_for_each(|piece| import.content(piece << 20, vec![7; 1 << 20]).map(drop));
    assert!(matches!(filled, Err(Error::Disk { source: extant::Error::NoSpace, .. })));
    drop(import);
    assert_clean(fs, &device);
}

/// Either outcome is right; neither a panic nor a walk without end.
#[test]
fn a_damaged_disk_gives_an_error_or_a_tree() {
    let tree = Tree::new();
    let device = MemoryDevice::new(32 << 20);
    // Without checksums, which would stop most damage at the gate.
    Mkfs::new().features("^metadata_csum,^has_journal").unwrap().format(&device).unwrap();
    let device = Arc::new(device);
    let fs = Mount::new().open_device(device.clone()).unwrap();
    let mut import = Import::new(&fs, "/", Manner::Unpack, None).unwrap();
    tree.source().pour(&mut import, Extent::Everything).unwrap();
    drop(import);
    fs.unmount().unwrap();
    let mut sound = vec![0; 32 << 20];
    device.read_at(0, &mut sound).unwrap();
    let used: Vec<usize> = (0..sound.len()).filter(|at| !matches!(sound[*at], 0 | b'x')).collect();
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    println!("seed {seed}");
    let mut state = seed | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    for _ in 0..300 {
        let places: Vec<_> =
            (0..=random() % 4).map(|_| (used[random() % used.len()], random() as u8)).collect();
        for (at, byte) in &places {
            device.write_at(*at as u64, &[*byte]).unwrap();
        }
        if let Ok(fs) = Mount::new().read_only(true).open_device(device.clone()) {
            let mut writer = TarWriter::new(std::io::sink());
            let _ = DiskWalk::new(&fs, "/").pour(&mut writer, Extent::Everything);
        }
        for (at, _) in &places {
            device.write_at(*at as u64, &sound[*at..=*at]).unwrap();
        }
    }
    let fs = Mount::new().read_only(true).open_device(device).unwrap();
    Collect::all(DiskWalk::new(&fs, "/")).unwrap();
}

/// Makes files in a directory, walks it, meddles with it, and puts it on a disk that was full of other bytes, with the content copied aside.
fn copied_aside(
    meddle: impl FnOnce(&std::path::Path),
    device: impl FnOnce(Arc<MemoryDevice>) -> Arc<dyn BlockDevice>,
) -> (tempfile::TempDir, Arc<MemoryDevice>, extant_archive::Result<()>) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    make_files(dir.path());
    let mut listed = Walk::new(dir.path()).list().unwrap().map(Arc::new).expect("few entries");
    meddle(dir.path());
    let memory = Arc::new(MemoryDevice::new(64 << 20));
    memory.write_at(0, &vec![0x55; 64 << 20]).unwrap();
    Mkfs::new().format(&*memory).unwrap();
    let fs = Mount::new().open_device(memory.clone()).unwrap();
    let import = Import::new(&fs, "/", Manner::Unpack, None).unwrap();
    let mut import = import.copy_to(device(memory.clone())).unwrap();
    let poured = listed.pour(&mut import, Extent::Everything);
    drop(import);
    fs.unmount().unwrap();
    (dir, memory, poured)
}

/// Files of all sizes around blocks and pieces, with holes and without.
fn make_files(dir: &std::path::Path) {
    for (number, bytes) in
        [1_u64, 4095, 4096, 4097, 60_000, (1 << 20) + 1, (5 << 20) - 7].into_iter().enumerate()
    {
        let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8 + 1).collect();
        std::fs::write(dir.join(format!("dense-{number}")), &content).unwrap();
        let sparse = std::fs::File::create(dir.join(format!("sparse-{number}"))).unwrap();
        for at in [0, 3 << 20, 9 << 20] {
            sparse.write_all_at(&content[..content.len().min(70_000)], at + 8192).unwrap();
        }
        sparse.set_len(12 << 20).unwrap();
    }
    std::fs::write(dir.join("empty"), "").unwrap();
}

#[test]
fn content_copied_aside_is_all_there() {
    let (dir, device, poured) = copied_aside(|_| {}, |memory| memory);
    poured.unwrap();
    let fs = Mount::new().read_only(true).open_device(device.clone()).unwrap();
    assert_eq!(fs.check(&mut |_| {}).unwrap(), []);
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let wanted = std::fs::read(dir.path().join(&name)).unwrap();
        assert!(fs.read(format!("/{name}")).unwrap() == wanted, "{name}");
        let end = wanted.len() as u64;
        if end.is_multiple_of(4096) {
            continue;
        }
        // What is behind the end is zero, as the kernel expects.
        let last = fs.open(format!("/{name}")).unwrap().device_offset(end - 1, 1).unwrap().unwrap();
        let mut behind = vec![0xFF; (4096 - end % 4096) as usize];
        device.read_at(last + 1, &mut behind).unwrap();
        assert!(behind.iter().all(|byte| *byte == 0), "{name}");
    }
}

#[test]
fn a_failure_beside_the_tree_ends_it_and_names_the_file() {
    let cut = |dir: &std::path::Path| std::fs::write(dir.join("dense-4"), "short").unwrap();
    let (dir, _, poured) = copied_aside(cut, |memory| memory);
    let wanted = dir.path().join("dense-4");
    assert!(matches!(&poured, Err(Error::Changed { path }) if *path == wanted), "{poured:?}");
    let (_, sound, poured) = copied_aside(|_| {}, |memory| memory);
    poured.unwrap();
    let fs = Mount::new().read_only(true).open_device(sound).unwrap();
    let bad = fs.open("/dense-4").unwrap().device_offset(4096, 1).unwrap().unwrap();
    // Also what is written together with files beside it.
    let fails = |memory| -> Arc<dyn BlockDevice> {
        Arc::new(FaultDevice::new(memory, move |request: &Request| match request.operation {
            Operation::Write if (request.offset..request.offset + request.bytes).contains(&bad) => {
                Fault::Error(io::ErrorKind::Other)
            }
            _ => Fault::None,
        }))
    };
    let (_, _, poured) = copied_aside(|_| {}, fails);
    let Err(Error::Disk { path, source: extant::Error::Io { .. } }) = &poured else { panic!("{poured:?}") };
    assert_eq!(path, "/dense-4");
}

/// A device that takes time, and fails to read one byte.
#[derive(Debug)]
struct Far {
    memory: Arc<MemoryDevice>,
    in_flight: AtomicU64,
    most_in_flight: AtomicU64,
    bad: AtomicU64,
}

impl BlockDevice for Far {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let in_flight = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_in_flight.fetch_max(in_flight, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(2));
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        match (offset..offset + buf.len() as u64).contains(&self.bad.load(Ordering::SeqCst)) {
            true => Err(io::Error::from_raw_os_error(5)),
            false => self.memory.read_at(offset, buf),
        }
    }

    fn write_vectored_at(&self, _offset: u64, _bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn has_latency(&self) -> bool {
        true
    }
}

#[test]
fn from_a_device_that_takes_time_files_are_read_side_by_side_and_poured_in_order() {
    let (device, fs) = new_disk(64 << 20);
    for directory in ["/a", "/b", "/b/c", "/d"] {
        fs.create_dir(directory).unwrap();
        for number in 0..40_u8 {
            fs.write(format!("{directory}/{number}"), vec![number; usize::from(number) * 997]).unwrap();
        }
    }
    // Larger than what is read beforehand, so that others come before and behind it.
    fs.write("/b/10-large", [7, 8, 9].repeat(1 << 20)).unwrap();
    fs.write("/b/11-bad", "what cannot be read").unwrap();
    fs.hard_link("/a/3", "/d/3-again").unwrap();
    fs.symlink("../a/3", "/d/4-link").unwrap();
    fs.unmount().unwrap();

    let near =
        Collect::all(DiskWalk::new(&Mount::new().read_only(true).open_device(device.clone()).unwrap(), "/"));
    let near = near.unwrap();
    let [in_flight, most_in_flight] = [const { AtomicU64::new(0) }; 2];
    let far =
        Arc::new(Far { memory: device.clone(), in_flight, most_in_flight, bad: AtomicU64::new(u64::MAX) });
    let fs = Mount::new().read_only(true).open_device(far.clone()).unwrap();
    // A directory whose inodes are read at once, and small files.
    far.most_in_flight.store(0, Ordering::SeqCst);
    Collect::all(DiskWalk::new(&fs, "/a")).unwrap();
    let most = far.most_in_flight.load(Ordering::SeqCst);
    let in_flight = if extant_rt::HAS_THREADS { 8.. } else { 1.. };
    assert!(in_flight.contains(&most), "{most} requests in flight");
    let read = Collect::all(DiskWalk::new(&fs, "/")).unwrap();
    assert_eq!(read.entries, near.entries);
    assert!(read.contents == near.contents);

    // What comes before a file that cannot be read is poured.
    let content = b"what cannot be read";
    let mut bytes = vec![0; 64 << 20];
    device.read_at(0, &mut bytes).unwrap();
    let at = bytes.windows(content.len()).rposition(|found| found == content).unwrap();
    far.bad.store(at as u64, Ordering::SeqCst);
    let fs = Mount::new().read_only(true).open_device(far).unwrap();
    let mut read = Collect::default();
    let error = DiskWalk::new(&fs, "/").pour(&mut read, Extent::Everything).unwrap_err().to_string();
    assert!(error.contains("/b/11-bad"), "{error}");
    let before = near.entries.iter().position(|entry| entry.path.to_string() == "/b/11-bad").unwrap();
    assert_eq!(read.entries, near.entries[..=before]);
}
