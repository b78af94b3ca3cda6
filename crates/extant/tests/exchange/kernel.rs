//! The kernel's side: system calls on a loop mount.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{self as sys, FallocateFlags, XattrFlags};

use crate::listing::{Listing, Seen, Turn};
use crate::ops::{Op, filler};

pub fn is_available() -> bool {
    rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists()
}

struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        extant_testing::unmount(&self.0);
    }
}

/// Mounts, lists, works, lists; the image is left with the journal dirty, as a crash after `sync` would.
pub fn turn(image: &Path, scratch: &Path, ops: impl Iterator<Item = Op>, dirty: bool) -> Turn {
    let point = scratch.join("mnt");
    fs::create_dir_all(&point).expect("mount point");
    let mounted =
        Command::new("mount").args(["-o", "loop"]).arg(image).arg(&point).output().expect("mount runs");
    assert!(mounted.status.success(), "the kernel refuses: {}", String::from_utf8_lossy(&mounted.stderr));
    let guard = Mounted(point.clone());
    let found = list(&point);
    for op in ops {
        // Operations that fail because a name is missing or taken are skipped.
        let _ = apply(&point, &op);
    }
    // Before the listing: only writeback allocates delayed blocks, and tree blocks for them.
    let synced = File::open(&point).and_then(|dir| Ok(sys::syncfs(dir)?));
    synced.expect("syncfs");
    let left = list(&point);
    let copy = scratch.join("dirty.img");
    fs::copy(image, &copy).expect("copy while mounted");
    drop(guard);
    if dirty {
        fs::rename(&copy, image).expect("the dirty copy goes on");
    }
    Turn { found, left }
}

fn apply(root: &Path, op: &Op) -> io::Result<()> {
    let at = |path: &str| root.join(path);
    let open = |path: &str| File::options().write(true).open(at(path));
    match op {
        Op::Mkdir(path) => fs::create_dir(at(path)),
        Op::Write { path, offset, bytes, fill } => {
            let file = File::options().write(true).create(true).truncate(false).open(at(path))?;
            file.write_all_at(&vec![*fill; *bytes], *offset)
        }
        Op::Truncate { path, size } => open(path)?.set_len(*size),
        Op::Allocate { path, offset, bytes, keep_size } => {
            let flags = if *keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
            Ok(sys::fallocate(open(path)?, flags, *offset, *bytes)?)
        }
        Op::Zero { path, offset, bytes } => {
            Ok(sys::fallocate(open(path)?, FallocateFlags::ZERO_RANGE, *offset, *bytes)?)
        }
        Op::Punch { path, offset, bytes } => {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(sys::fallocate(open(path)?, flags, *offset, *bytes)?)
        }
        Op::Rename { from, to } => fs::rename(at(from), at(to)),
        Op::Link { from, to } => fs::hard_link(at(from), at(to)),
        Op::Symlink { target, path } => symlink(target, at(path)),
        Op::Unlink(path) => fs::remove_file(at(path)),
        Op::Rmdir(path) => fs::remove_dir(at(path)),
        Op::Chmod { path, mode } => {
            if at(path).is_symlink() {
                return Ok(());
            }
            fs::set_permissions(at(path), fs::Permissions::from_mode(u32::from(*mode)))
        }
        Op::Chown { path, uid, gid } => {
            lchown(at(path), Some(*uid), Some(*gid))?;
            chown(at(path), Some(*uid), Some(*gid))
        }
        Op::Utimes { path, seconds, nanoseconds } => {
            let time = sys::Timespec { tv_sec: *seconds, tv_nsec: i64::from(*nanoseconds) };
            let times = sys::Timestamps { last_access: time, last_modification: time };
            Ok(sys::utimensat(sys::CWD, at(path), &times, sys::AtFlags::SYMLINK_NOFOLLOW)?)
        }
        Op::SetXattr { path, name, value } => {
            Ok(sys::lsetxattr(at(path), name.as_str(), value, XattrFlags::empty())?)
        }
        Op::RemoveXattr { path, name } => Ok(sys::lremovexattr(at(path), name.as_str())?),
        Op::Device { path, major, minor } => {
            let device = sys::makedev(*major, *minor);
            Ok(sys::mknodat(sys::CWD, at(path), sys::FileType::CharacterDevice, 0o600.into(), device)?)
        }
        Op::Fill { dir, count, stem } => (0..*count).try_for_each(|index| {
            File::create(at(&filler(dir, *stem, index)))?.write_all_at(index.to_string().as_bytes(), 0)
        }),
        Op::Thin { dir, count, stem } => {
            (0..*count).step_by(2).try_for_each(|index| fs::remove_file(at(&filler(dir, *stem, index))))
        }
    }
}

fn list(root: &Path) -> Listing {
    let mut listing = Listing::default();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let meta = fs::symlink_metadata(&path).expect("lstat");
        let name = path.strip_prefix(root).expect("below the root").as_os_str().as_bytes().to_vec();
        let content = if meta.is_file() {
            fs::read(&path).expect("read")
        } else if meta.is_symlink() {
            fs::read_link(&path).expect("readlink").as_os_str().as_bytes().to_vec()
        } else {
            Vec::new()
        };
        if meta.is_dir() {
            for entry in fs::read_dir(&path).expect("readdir") {
                pending.push(entry.expect("entry").path());
            }
        }
        let seen = Seen {
            mode: meta.mode(),
            uid: meta.uid(),
            gid: meta.gid(),
            links: meta.nlink(),
            size: meta.size(),
            blocks_512: meta.blocks(),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            device: (sys::major(meta.rdev()), sys::minor(meta.rdev())),
            content,
            xattrs: xattrs(&path),
        };
        listing.0.insert(name, seen);
    }
    listing
}

fn xattrs(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 4096];
    let len = sys::llistxattr(path, &mut names).expect("llistxattr");
    let mut found = BTreeMap::new();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 << 10];
        let len = sys::lgetxattr(path, name, &mut value).expect("lgetxattr");
        value.truncate(len);
        found.insert(name.to_vec(), value);
    }
    found
}
