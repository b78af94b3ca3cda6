//! A copy of a disk becomes like another tree, and keeps what both have.

use std::collections::BTreeMap;
use std::sync::Arc;

use extant::{Filesystem, InodeNumber, Mount, Timestamp};
use extant_archive::{DiskWalk, EntryKind, Extent, Mirror, Source};
use extant_block::{BlockDevice, MemoryDevice};
use extant_rt::WallClock;

use super::overlay::assert_equal;
use super::{Collect, ORIGINS, PAIRS, Pair, mkfs, mount, number_of, read, tree};

/// Makes a copy of `base` like `disk`.
fn mirror(base: &MemoryDevice, disk: &Arc<MemoryDevice>) -> Arc<MemoryDevice> {
    let copy = Arc::new(base.snapshot());
    let fs = mount(&copy, WallClock::System);
    let mut mirror = Mirror::new(&fs, "/", None).unwrap();
    DiskWalk::new(&read(disk), "/").pour(&mut mirror, Extent::Everything).unwrap();
    drop(mirror);
    fs.unmount().unwrap();
    copy
}

/// What a file keeps if nothing wrote it: its inode, when that changed, and where its blocks are.
type Identity = (InodeNumber, Timestamp, Vec<(u32, u64)>);

/// Of the regular files of a disk.
fn identities(device: &Arc<MemoryDevice>) -> BTreeMap<String, Identity> {
    let fs = read(device);
    let entries = Collect::all(DiskWalk::new(&fs, "/")).unwrap().by_path();
    let files = entries.into_iter().filter(|(_, entry)| matches!(entry.kind, EntryKind::File(_)));
    files.map(|(path, _)| (path.clone(), identity(&fs, &path))).collect()
}

fn identity(fs: &Filesystem, path: &str) -> Identity {
    let file = fs.symlink_lookup(path).unwrap();
    let metadata = file.metadata();
    let extents = file.extents(0, u64::MAX).unwrap();
    (
        metadata.inode,
        metadata.ctime,
        extents.iter().map(|extent| (extent.logical.0, extent.start.0)).collect(),
    )
}

#[test]
fn copy_of_the_base_becomes_the_disk() {
    let from = number_of("EXTANT_LAYERS_FROM").unwrap_or(0);
    let mut kept = 0;
    for seed in from..from + number_of("EXTANT_LAYERS").unwrap_or(PAIRS) {
        let what = format!("seed {seed}");
        let pair = Pair::random(ORIGINS[seed as usize % ORIGINS.len()], seed);
        let copy = mirror(&pair.base, &pair.disk);
        assert_equal(&tree(&copy), &tree(&pair.disk), &what);
        let fs = Mount::new().read_only(true).open_device(copy.clone()).unwrap();
        assert_eq!(fs.check(&mut |_| {}).unwrap(), [], "{what}");
        let before = Collect::all(DiskWalk::new(&read(&pair.base), "/")).unwrap();
        let after = Collect::all(DiskWalk::new(&fs, "/")).unwrap();
        let (identities_before, identities) = (identities(&pair.base), identities(&copy));
        let (entries_before, entries) = (before.by_path(), after.by_path());
        for (path, identity) in &identities {
            let key = entries[path].path.to_bytes();
            let is_same = entries_before.get(path) == entries.get(path)
                && before.contents.get(&key) == after.contents.get(&key);
            let has_one_name = |fs: &Filesystem| fs.symlink_metadata(path).unwrap().links == 1;
            // A name that goes or comes changes the inode too.
            if is_same && has_one_name(&fs) && has_one_name(&read(&pair.base)) {
                assert_eq!(identities_before.get(path), Some(identity), "{what}: {path}");
                kept += 1;
            }
        }
    }
    assert!(kept > 0, "no file stayed what it was");
}

#[test]
fn mirror_of_the_same_tree_changes_no_file() {
    let pair = super::Pair::random(super::Origin::Copy, 5);
    let before = identities(&pair.base);
    let copy = mirror(&pair.base, &Arc::new(pair.base.snapshot()));
    assert_eq!(identities(&copy), before);
    let blocks = |device: &MemoryDevice| {
        let mut bytes = vec![0; device.size() as usize];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    };
    let (old, new) = (blocks(&pair.base), blocks(&copy));
    let differing = old.chunks(4096).zip(new.chunks(4096)).enumerate().filter(|(_, (old, new))| old != new);
    let differing: Vec<_> = differing.map(|(number, _)| number).collect();
    // The superblock, and that of the journal, count mounts.
    assert!(differing.len() <= 2, "{differing:?}");
}

#[test]
fn large_file_keeps_the_blocks_that_did_not_change() {
    let base = mkfs(WallClock::System);
    let mut content: Vec<u8> = (0..3 << 20_u32).map(|at: u32| (at >> 8) as u8).collect();
    let fs = mount(&base, WallClock::System);
    fs.write("/large", &content).unwrap();
    fs.write("/small", &content[..100_000]).unwrap();
    fs.unmount().unwrap();
    let disk = Arc::new(base.snapshot());
    let fs = mount(&disk, WallClock::System);
    content[1_000_000] ^= 1;
    content.extend([7; 5000]);
    fs.write("/large", &content).unwrap();
    fs.write("/small", &content[1..100_001]).unwrap();
    fs.unmount().unwrap();
    let copy = mirror(&base, &disk);
    assert_equal(&tree(&copy), &tree(&disk), "a large file");
    let (before, after) = (identities(&base), identities(&copy));
    assert_eq!(before["/large"].2[0], after["/large"].2[0], "the large file lies where it lay");
    assert_ne!(before["/small"].2, after["/small"].2, "the small file was written to new blocks");
    assert_eq!(before["/small"].0, after["/small"].0, "and is the same inode");
    let changed = |device: &Arc<MemoryDevice>| {
        let at = before["/large"].2[0].1 * 4096;
        let mut bytes = vec![0; 3 << 20];
        device.read_at(at, &mut bytes).unwrap();
        bytes
    };
    let (old, new) = (changed(&base), changed(&copy));
    let differing = old.chunks(4096).zip(new.chunks(4096)).filter(|(old, new)| old != new).count();
    assert_eq!(differing, 1, "blocks of the large file that were written");
}
