//! Names and targets that the kernel encrypted, shown as the kernel shows them without the key.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use extant::{Error, FileType, Filesystem, Mount};
use extant_testing::scratch;

use super::disk::{alone, assert_clean, make, run, unmount_by_kernel};

/// Lengths of names and targets: around the shortest, around where a digest begins, and the
/// longest.
const LENS: [usize; 9] = [1, 16, 17, 100, 149, 150, 160, 200, 240];

/// A disk that the kernel has mounted, and where; unmounted when dropped.
struct Mounted(PathBuf, PathBuf);

impl Mounted {
    fn new(image: &Path, options: &str) -> Option<Self> {
        let at = image.with_extension("at");
        fs::create_dir_all(&at).expect("a directory");
        let mounted = run("mount", &["-t", "ext4", "-o", options, image.to_str().expect("a path")], &at);
        if !mounted.status.success() {
            println!("skipped: no mount by the kernel: {mounted:?}");
            return None;
        }
        Some(Self(at, image.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount_by_kernel(&self.0, &self.1);
    }
}

/// A disk with an encrypted directory `/enc`, as the kernel made it.
fn disk(scratch: &Path, features: &str, more: usize) -> Option<PathBuf> {
    let image = make(scratch, &["-O", features, "-N", "2048"], |tree| {
        fs::write(tree.join("plain"), "plain").expect("a file");
    });
    // With a key of the kernel's own all that is made is encrypted.
    let mounted = Mounted::new(&image, "loop,test_dummy_encryption")?;
    let enc = mounted.0.join("enc");
    fs::create_dir(&enc).expect("a directory");
    for len in LENS {
        fs::write(enc.join("n".repeat(len)), "content").expect("a file");
        symlink("t".repeat(len), enc.join(format!("l{len}"))).expect("a link");
    }
    fs::create_dir(enc.join("sub")).expect("a directory");
    fs::write(enc.join("sub/inner"), "inner").expect("a file");
    for number in 0..more {
        fs::write(enc.join(format!("many-{number:060}")), "").expect("a file");
    }
    drop(mounted);
    Some(image)
}

/// Inode, size and target of each name below `dir`, as the kernel shows them.
fn by_kernel(dir: &Path, below: &Path, shown: &mut BTreeMap<Vec<u8>, (u64, u64, Vec<u8>)>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let entry = entry.expect("an entry");
        let path = below.join(entry.file_name());
        let metadata = fs::symlink_metadata(entry.path()).expect("found by its name");
        let target = fs::read_link(entry.path()).map(|target| target.as_os_str().as_bytes().to_vec());
        let told = (metadata.ino(), metadata.size(), target.unwrap_or_default());
        shown.insert(path.as_os_str().as_bytes().to_vec(), told);
        if metadata.is_dir() {
            by_kernel(&entry.path(), &path, shown);
        }
    }
}

fn by_us(fs: &Filesystem, dir: &Path, shown: &mut BTreeMap<Vec<u8>, (u64, u64, Vec<u8>)>) {
    for entry in fs.dir(dir).and_then(|dir| dir.entries()).expect("a directory") {
        let path = dir.join(std::ffi::OsStr::from_bytes(&entry.name));
        let metadata = fs.symlink_metadata(&path).expect("found by its name");
        let target = fs.read_link(&path).unwrap_or_default();
        let told = (u64::from(metadata.inode.0), metadata.size, target);
        shown.insert(path.as_os_str().as_bytes().to_vec(), told);
        match metadata.file_type {
            FileType::Directory => by_us(fs, &path, shown),
            FileType::Regular => {
                let read = fs.read(&path).map_err(Error::into_cause);
                assert!(matches!(read, Err(Error::NoKey)), "{}: {read:?}", path.display());
            }
            _ => {}
        }
    }
}

#[test]
fn what_is_encrypted_is_shown_as_the_kernel_shows_it_without_the_key() {
    let Some(_alone) = alone() else { return };
    // One block; an index; blocks without one.
    for (features, more) in [("encrypt", 0), ("encrypt", 600), ("encrypt,^dir_index,^metadata_csum", 100)] {
        let what = format!("{features}, {more} more");
        let scratch = scratch();
        let Some(image) = disk(scratch.path(), features, more) else { return };
        assert_clean(&image, &what);
        let mut expected = BTreeMap::new();
        {
            let mounted = Mounted::new(&image, "loop,ro").expect("mounted before");
            by_kernel(&mounted.0.join("enc"), Path::new("/enc"), &mut expected);
        }
        let fs = Mount::new().read_only(true).open(&image).expect(&what);
        let mut shown = BTreeMap::new();
        by_us(&fs, Path::new("/enc"), &mut shown);
        assert_eq!(shown, expected, "{what}");
        assert_eq!(shown.len(), 2 * LENS.len() + 2 + more);
        for name in ["sub", "n", "AAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"] {
            let found = fs.symlink_metadata(Path::new("/enc").join(name)).map_err(Error::into_cause);
            assert!(matches!(found, Err(Error::NotFound)), "{what}: {name}");
        }
        assert_eq!(fs.read("/plain").expect(&what), b"plain");
        drop(fs);
        match Mount::new().open(&image) {
            Err(Error::ReadOnlyFeatures(names)) => assert_eq!(names, "encrypt"),
            other => panic!("{other:?}"),
        }
    }
}
