//! Random changes of a tree on a disk, as a guest makes them.

use std::path::Path;

use extant::{File, Filesystem, New, NewKind, SetAttributes, Times, Timestamp, XattrMode};
use extant_archive::DiskWalk;

use crate::collect::Collect;

/// Knuth's MMIX generator.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// Makes `count` random changes; one that cannot be made is none.
pub fn change(fs: &Filesystem, random: &mut Random, count: usize) {
    for _ in 0..count {
        let _ = change_once(fs, random);
    }
}

fn change_once(fs: &Filesystem, random: &mut Random) -> extant::Result<()> {
    let entries = Collect::all(DiskWalk::new(fs, "/")).unwrap().by_path();
    let path = |bytes: &[u8]| Path::new("/").join(extant_block::os_string(bytes.to_vec()));
    let paths: Vec<_> = entries.values().map(|entry| path(&entry.path.to_bytes())).collect();
    let directories = entries.values().filter(|entry| entry.kind == extant_archive::EntryKind::Directory);
    let directories: Vec<_> = directories.map(|entry| path(&entry.path.to_bytes())).collect();
    let (old, parent) = (random.of(&paths).clone(), random.of(&directories).clone());
    let new = parent.join(format!("n{}", random.below(12)));
    let content = vec![b'a' + random.below(26) as u8; *random.of(&[0, 1, 100, 5000, 70_000])];
    match random.below(20) {
        0..3 => fs.write(&new, &content),
        3 => fs.create_dir(&new),
        4 => fs.remove_dir_all(&old).or_else(|_| fs.remove_file(&old)),
        5 => fs.rename(&old, &new),
        6 | 7 => fs.hard_link(&old, &new),
        8 => fs.symlink(
            *random.of(&[
                "n1",
                "/n2/n3",
                "a target of more bytes than an inode holds in its sixty bytes of map",
            ]),
            &new,
        ),
        9 => special(fs, &new, random),
        10 => fs.set_mode(&old, *random.of(&[0o600, 0o644, 0o4755, 0o1777])),
        11 => fs.set_owner(&old, random.below(3) as u32, random.below(3) as u32),
        12 => xattr(&fs.symlink_lookup(&old)?, random),
        13 => {
            let time = Timestamp { seconds: 1_600_000_000 + random.below(3) as i64, nanoseconds: 5 };
            fs.symlink_lookup(&old)?.set_times(Times { atime: time, mtime: time })
        }
        // In place, behind the back of the times.
        14 | 15 => {
            let file = fs.options().write(true).open(&old)?;
            let mtime = file.metadata().mtime;
            file.write_all_at(b"changed", 0)?;
            file.set_attributes(&SetAttributes { mtime: Some(mtime), ..SetAttributes::default() })
        }
        // In place, with what is there.
        16 => {
            let content = fs.read(&old)?;
            fs.options().write(true).open(&old)?.write_all_at(&content, 0)
        }
        17 => fs.options().write(true).open(&old)?.set_len(*random.of(&[0, 3, 5000, 300_000])),
        18 => fs.options().write(true).open(&old)?.write_all_at(b"behind a hole", 200_000),
        // Another file of the same name and the same bytes.
        _ => {
            let (content, temporary) = (fs.read(&old)?, parent.join("temporary"));
            fs.write(&temporary, &content)?;
            fs.rename(&temporary, &old)
        }
    }
}

fn special(fs: &Filesystem, path: &Path, random: &mut Random) -> extant::Result<()> {
    let kinds = [
        NewKind::Fifo,
        NewKind::Socket,
        NewKind::CharDevice { major: 1, minor: 3 },
        NewKind::BlockDevice { major: 259, minor: 1000 },
    ];
    let new = New { kind: *random.of(&kinds), mode: 0o640, uid: 1, gid: 2, times: None, xattrs: &[] };
    let (parent, name) = (path.parent().unwrap_or(Path::new("/")), path.file_name().unwrap_or_default());
    fs.dir(parent)?.create(name.as_encoded_bytes(), &new).map(drop)
}

fn xattr(file: &File, random: &mut Random) -> extant::Result<()> {
    // user::rw-,user:7:r--,group::r--,mask::r--,other::---
    const ACL: &[u8] = b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x04\0\x07\0\0\0\x04\0\x04\0\xff\xff\xff\xff\x10\0\x04\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";
    const CAPABILITY: &[u8] = b"\x01\0\0\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let mode = XattrMode::default();
    match random.below(5) {
        0 => file.set_xattr(b"user.note", &[b'x'; 3][..random.below(4)], mode),
        1 => file.set_xattr(b"user.long", &vec![7; 100 + random.below(2)], mode),
        2 => file.set_xattr(b"system.posix_acl_access", ACL, mode),
        3 => file.set_xattr(b"security.capability", CAPABILITY, mode),
        _ => file.remove_xattr(b"user.note"),
    }
}
