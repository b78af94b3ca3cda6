//! The engine's side.

use std::collections::BTreeMap;
use std::path::Path;

use extant::{
    Dir, Error, Fallocate, File, FileType, Filesystem, Mount, New, NewKind, Result, SetAttributes, Times,
    Timestamp, XattrMode,
};

use crate::listing::{Listing, Seen, Turn};
use crate::ops::{Op, filler};

/// Mounts, lists, works, lists; the image is left with the journal dirty, as a crash after `sync` would.
pub fn turn(image: &Path, mount: &Mount, ops: impl Iterator<Item = Op>, dirty: bool) -> Turn {
    let fs = mount.clone().background(false).open(image).expect("the engine mounts");
    let found = list(&fs);
    for op in ops {
        match apply(&fs, &op).map_err(Error::into_cause) {
            Ok(())
            | Err(
                Error::NotFound
                | Error::Exists
                | Error::NotADirectory
                | Error::IsADirectory
                | Error::NotEmpty
                | Error::InvalidArgument(_)
                | Error::NotPermitted
                | Error::NoAttribute
                | Error::NoSpace
                | Error::NoInodes
                | Error::Loop
                | Error::NameTooLong
                | Error::Unsupported("ranges of a file without extents"),
            ) => {}
            Err(error) => panic!("{op:?}: {error}"),
        }
    }
    let mut unwritten = list(&fs);
    fs.sync().expect("sync");
    let left = list(&fs);
    // Delayed blocks are counted before they have a place, also in clusters that the file has; blocks of the extent tree to them are not.
    let has_clusters = fs.superblock().cluster_ratio() > 1;
    for (path, seen) in &mut unwritten.0 {
        let written = left.0.get(path).map_or(0, |written| written.blocks_512);
        seen.blocks_512 = if has_clusters { written } else { written.max(seen.blocks_512) };
    }
    unwritten.assert_equals(&left, "written");
    if dirty {
        let copy = image.with_extension("ours");
        std::fs::copy(image, &copy).expect("copy while mounted");
        fs.unmount().expect("unmount");
        std::fs::rename(&copy, image).expect("the dirty copy goes on");
    } else {
        fs.unmount().expect("unmount");
    }
    Turn { found, left }
}

fn parent<'p>(fs: &Filesystem, path: &'p str) -> Result<(Dir, &'p [u8])> {
    let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
    Ok((fs.dir(format!("/{dir}"))?, name.as_bytes()))
}

fn apply(fs: &Filesystem, op: &Op) -> Result<()> {
    let regular = |path: &str| -> Result<File> {
        let file = fs.lookup(path)?;
        match file.metadata().file_type {
            FileType::Regular => Ok(file),
            _ => Err(Error::InvalidArgument("not a file")),
        }
    };
    match op {
        Op::Mkdir(path) => fs.create_dir(path),
        Op::Write { path, offset, bytes, fill } => {
            let file = fs.options().write(true).create(true).open(path)?;
            if file.metadata().file_type != FileType::Regular {
                return Ok(());
            }
            file.write_all_at(&vec![*fill; *bytes], *offset)
        }
        Op::Truncate { path, size } => regular(path)?.set_len(*size),
        Op::Allocate { path, offset, bytes, keep_size } => {
            regular(path)?.allocate(Fallocate::Allocate { keep_size: *keep_size }, *offset, *bytes)
        }
        Op::Zero { path, offset, bytes } => {
            regular(path)?.allocate(Fallocate::ZeroRange { keep_size: false }, *offset, *bytes)
        }
        Op::Punch { path, offset, bytes } => regular(path)?.allocate(Fallocate::PunchHole, *offset, *bytes),
        Op::Rename { from, to } => fs.rename(from, to),
        Op::Link { from, to } => fs.hard_link(from, to),
        Op::Symlink { target, path } => fs.symlink(target, path),
        Op::Unlink(path) => fs.remove_file(path),
        Op::Rmdir(path) => fs.remove_dir(path),
        Op::Chmod { path, mode } => match fs.symlink_metadata(path)?.file_type {
            FileType::Symlink => Ok(()),
            _ => fs.set_mode(path, *mode),
        },
        Op::Chown { path, uid, gid } => {
            let set = SetAttributes { uid: Some(*uid), gid: Some(*gid), ..SetAttributes::default() };
            fs.symlink_lookup(path)?.set_attributes(&set)
        }
        Op::Utimes { path, seconds, nanoseconds } => {
            let time = Timestamp { seconds: *seconds, nanoseconds: *nanoseconds };
            fs.symlink_lookup(path)?.set_times(Times { atime: time, mtime: time })
        }
        Op::SetXattr { path, name, value } => {
            let file = fs.symlink_lookup(path)?;
            if !matches!(file.metadata().file_type, FileType::Regular | FileType::Directory) {
                return Ok(());
            }
            file.set_xattr(name.as_bytes(), value, XattrMode::default())
        }
        Op::RemoveXattr { path, name } => fs.symlink_lookup(path)?.remove_xattr(name.as_bytes()),
        Op::Device { path, major, minor } => {
            let (dir, name) = parent(fs, path)?;
            let kind = NewKind::CharDevice { major: *major, minor: *minor };
            dir.create(name, &New { kind, mode: 0o600, uid: 0, gid: 0, times: None, xattrs: &[] }).map(drop)
        }
        Op::Fill { dir, count, stem } => {
            (0..*count).try_for_each(|index| fs.write(filler(dir, *stem, index), index.to_string()))
        }
        Op::Thin { dir, count, stem } => {
            (0..*count).step_by(2).try_for_each(|index| fs.remove_file(filler(dir, *stem, index)))
        }
    }
}

fn list(fs: &Filesystem) -> Listing {
    let mut listing = Listing::default();
    let mut pending = vec![String::new()];
    while let Some(path) = pending.pop() {
        let file = fs.symlink_lookup(&path).expect("lookup");
        let meta = file.metadata();
        let content = match meta.file_type {
            FileType::Regular => file.read_to_end_at(0).expect("read"),
            FileType::Symlink => file.read_link().expect("readlink"),
            _ => Vec::new(),
        };
        if meta.file_type == FileType::Directory {
            for entry in fs.dir(&path).and_then(|dir| dir.entries()).expect("readdir") {
                let name = String::from_utf8(entry.name).expect("names of the test are UTF-8");
                pending.push(if path.is_empty() { name } else { format!("{path}/{name}") });
            }
        }
        let mut xattrs = BTreeMap::new();
        for name in file.list_xattrs().expect("list") {
            let value = file.xattr(&name).expect("value");
            xattrs.insert(name, value);
        }
        let seen = Seen {
            mode: u32::from(meta.file_type.mode_bits() | meta.mode),
            uid: meta.uid,
            gid: meta.gid,
            links: u64::from(meta.links),
            size: meta.size,
            blocks_512: meta.blocks_512,
            mtime: (meta.mtime.seconds, i64::from(meta.mtime.nanoseconds)),
            device: meta.device,
            content,
            xattrs,
        };
        listing.0.insert(path.into_bytes(), seen);
    }
    listing
}
