//! Removing trees whose directories name each other in circles: what is outside of the named directory stays.

use std::sync::Arc;

use extant::mkfs::Mkfs;
use extant::{Error, Filesystem, InodeNumber, Mount};
use extant_block::{BlockDevice, MemoryDevice};

const BYTES: u64 = 16 << 20;

fn new_disk() -> (Arc<MemoryDevice>, Filesystem) {
    let device = Arc::new(MemoryDevice::new(BYTES));
    // Without checksums, so that a directory is changed by its bytes alone.
    Mkfs::new().features("^metadata_csum,^has_journal").unwrap().format(&*device).unwrap();
    let fs = Mount::new().background(false).open_device(device.clone()).unwrap();
    (device, fs)
}

/// The disk on which all entries `name` lead to the inode `to`, and those of `..` as `above` says: of which directory, to
/// which.
fn redirected(
    device: &Arc<MemoryDevice>,
    fs: Filesystem,
    redirect: &[(&str, InodeNumber)],
    above: &[(InodeNumber, InodeNumber)],
) -> Filesystem {
    fs.unmount().unwrap();
    let mut bytes = vec![0; BYTES as usize];
    device.read_at(0, &mut bytes).unwrap();
    for at in (0..bytes.len() - 300).step_by(4) {
        for (name, to) in redirect {
            if bytes[at + 6] as usize == name.len() && bytes[at + 8..].starts_with(name.as_bytes()) {
                bytes[at..at + 4].copy_from_slice(&to.0.to_le_bytes());
                // A directory.
                bytes[at + 7] = 2;
            }
        }
        for (dir, to) in above {
            let dot = [&dir.0.to_le_bytes()[..], &[12, 0, 1, 2, b'.', 0, 0, 0]].concat();
            if bytes[at..].starts_with(&dot) {
                bytes[at + 12..at + 16].copy_from_slice(&to.0.to_le_bytes());
            }
        }
    }
    device.write_at(0, &bytes).unwrap();
    Mount::new().background(false).open_device(device.clone()).unwrap()
}

fn assert_damage(result: Result<(), Error>, words: &str) {
    let said = result.expect_err("damage").into_cause().to_string();
    assert!(said.contains(words) && said.contains("inode"), "{said}");
}

/// `/top/named/inner/again` leads to `to`, and the `..` of `to` to `inner` if it is to fit.
fn removal_of_a_cycle(to: &str, fits: bool) {
    let (device, fs) = new_disk();
    fs.create_dir_all("/top/named/inner/again").unwrap();
    fs.write("/top/beside", "kept").unwrap();
    fs.create_dir("/other").unwrap();
    fs.write("/other/file", "kept").unwrap();
    let (number, inner) = (fs.lookup(to).unwrap().number(), fs.lookup("/top/named/inner").unwrap().number());
    let above = if fits { vec![(number, inner)] } else { Vec::new() };
    let fs = redirected(&device, fs, &[("again", number)], &above);
    assert_damage(fs.remove_dir_all("/top/named"), "directory");
    assert_eq!(fs.read("/top/beside").unwrap(), b"kept");
    assert_eq!(fs.read("/other/file").unwrap(), b"kept");
}

#[test]
fn a_cycle_ends() {
    removal_of_a_cycle("/top/named", false);
    removal_of_a_cycle("/top/named", true);
    removal_of_a_cycle("/top/named/inner", false);
    removal_of_a_cycle("/top/named/inner", true);
}

#[test]
fn a_directory_of_another_is_not_emptied() {
    for to in ["/top", "/other", "/"] {
        removal_of_a_cycle(to, false);
    }
    removal_of_a_cycle("/top", true);
    removal_of_a_cycle("/", true);
}

#[test]
fn trees_of_all_shapes_are_removed() {
    let (device, fs) = new_disk();
    fs.create_dir_all("/t/empty").unwrap();
    let mut deep = fs.dir("/t").unwrap();
    for level in 0..300 {
        let new = extant::New {
            kind: extant::NewKind::Directory,
            mode: 0o755,
            uid: 0,
            gid: 0,
            times: None,
            xattrs: &[],
        };
        deep = deep.create_dir(b"d", &new).unwrap();
        if level == 200 {
            for number in 0..500 {
                let name = format!("a rather long name of number {number}");
                deep.create(name.as_bytes(), &extant::New { kind: extant::NewKind::Fifo, ..new }).unwrap();
            }
        }
    }
    drop(deep);
    fs.symlink("/", "/t/link").unwrap();
    fs.write("/kept", "kept").unwrap();
    fs.symlink("t", "/to-t").unwrap();
    assert!(matches!(fs.remove_dir_all("/to-t").map_err(Error::into_cause), Err(Error::NotADirectory)));
    fs.remove_dir_all("/t").unwrap();
    assert_eq!(fs.read_dir("/").unwrap().count(), 3, "a link, a file and lost+found");
    fs.unmount().unwrap();
    let fs = Mount::new().read_only(true).open_device(device).unwrap();
    assert_eq!(fs.check(&mut |_| {}).unwrap(), []);
}
