//! A tree with all that makes moving it hard, and a census of all that is to stay.

use extant::{Fallocate, FileType, Filesystem, XattrMode};
use extant_testing::Random;

/// Fills a disk with directories in many groups, files in parts, hard links, holes, unwritten blocks, long links, attributes that inodes
/// share, and one directory of many names; then removes every third file, so that free space is broken up.
pub fn age(fs: &Filesystem, seed: u64, files: u64, bytes_max: u64) {
    let mut random = Random::new(seed);
    let folders = 12;
    for folder in 0..folders {
        fs.create_dir(format!("/d{folder}")).expect("a directory");
        fs.create_dir(format!("/d{folder}/sub")).expect("a directory");
    }
    let shared = vec![7; 500];
    for number in 0..files {
        let path = format!("/d{}/f{number}", number % folders);
        fs.write(&path, vec![number as u8 | 1; random.below(bytes_max) as usize]).expect("a file");
        if number % 4 == 0 {
            let file = fs.options().write(true).open(&path).expect("the file");
            file.set_xattr(b"user.shared", &shared, XattrMode::default()).expect("an attribute");
            file.set_xattr(b"user.short", b"value", XattrMode::default()).expect("an attribute");
        }
        if number % 5 == 0 {
            fs.hard_link(&path, format!("/d{}/sub/l{number}", (number + 5) % folders)).expect("a link");
        }
        if number % 7 == 0 {
            let target = "t".repeat(80 + number as usize % 100);
            fs.symlink(target, format!("/d{}/s{number}", number % folders)).expect("a link");
        }
    }
    for number in (0..files).filter(|number| number % 3 == 1) {
        fs.remove_file(format!("/d{}/f{number}", number % folders)).expect("the file");
    }
    let sparse = fs.options().read(true).write(true).create(true).open("/d3/sparse").expect("a file");
    for part in 0..40 {
        sparse.write_all_at(&[part as u8 + 1; 3000], part * 20_000).expect("a part");
    }
    sparse.write_all_at(b"far", 90 << 20).or_else(|_| sparse.write_all_at(b"far", 9 << 20)).expect("the end");
    let ahead = fs.options().read(true).write(true).create(true).open("/d4/ahead").expect("a file");
    if ahead.allocate(Fallocate::Allocate { keep_size: false }, 0, 100_000).is_ok() {
        ahead.write_all_at(b"written", 50_000).expect("a part");
    }
    fs.create_dir("/d5/many").expect("a directory");
    for number in 0..files {
        fs.write(format!("/d5/many/a-name-that-is-somewhat-long-{number}"), b"x").expect("a file");
    }
}

/// A smaller tree of the same kinds, with directories in many groups.
pub fn small(fs: &Filesystem, seed: u64) {
    let mut random = Random::new(seed);
    let shared = vec![7; 500];
    for folder in 0..8 {
        let folder = format!("/d{folder}");
        fs.create_dir(&folder).expect("a directory");
        fs.create_dir(format!("{folder}/sub")).expect("a directory");
        for number in 0..3 {
            let path = format!("{folder}/sub/f{number}");
            let bytes = 3000 + random.below(30_000) as usize;
            fs.write(&path, vec![number as u8 | 1; bytes]).expect("a file");
            let file = fs.options().write(true).open(&path).expect("the file");
            file.set_xattr(b"user.shared", &shared, XattrMode::default()).expect("an attribute");
        }
        fs.hard_link(format!("{folder}/sub/f0"), format!("{folder}/link")).expect("a link");
        fs.symlink("t".repeat(90), format!("{folder}/symlink")).expect("a link");
        fs.remove_file(format!("{folder}/sub/f1")).expect("the file");
    }
    for number in 0..60 {
        fs.write(format!("/d5/a-name-that-is-somewhat-long-{number}"), b"x").expect("a file");
    }
    let sparse = fs.options().read(true).write(true).create(true).open("/d6/sparse").expect("a file");
    (0..12).for_each(|part| sparse.write_all_at(&[part as u8 + 1; 1500], part * 5000).expect("a part"));
}

/// What of a path must not change: its name, its metadata, and its content.
pub type Census = Vec<(String, String, Vec<u8>)>;

/// All of a tree that must not change: of each path the type, mode, owner, size, time, links, attributes and content; and which ranges
/// are mapped.
pub fn census(fs: &Filesystem) -> extant::Result<Census> {
    let mut found = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs.dir(format!("{folder}/")).and_then(|dir| dir.entries())? {
            let path = format!("{folder}/{}", String::from_utf8_lossy(&entry.name));
            if path.ends_with("/.") || path.ends_with("/..") {
                continue;
            }
            let file = fs.symlink_lookup(&path)?;
            let told = file.metadata();
            let (mut content, mut mapped) = (Vec::new(), Vec::new());
            match told.file_type {
                FileType::Regular => {
                    content = file.read_to_end_at(0)?;
                    let all = file.extents(0, u64::MAX >> 1)?;
                    mapped =
                        all.iter().map(|e| (u64::from(e.logical.0), u64::from(e.len), e.unwritten)).collect();
                    mapped.dedup_by(|next, last| {
                        let joins = last.0 + last.1 == next.0 && last.2 == next.2;
                        last.1 += if joins { next.1 } else { 0 };
                        joins
                    });
                }
                FileType::Symlink => content = file.read_link()?,
                FileType::Directory => folders.push(path.clone()),
                _ => {}
            }
            let mut xattrs = file.list_xattrs()?;
            xattrs.sort();
            let mut values = Vec::new();
            for name in xattrs {
                values.push((file.xattr(&name)?, name));
            }
            let told = format!(
                "{:?} {:o} {} {} {} {:?} {:?} {:?} {mapped:?} {values:?}",
                told.file_type,
                told.mode,
                told.uid,
                told.links,
                told.size,
                told.mtime,
                told.crtime,
                told.flags
            );
            found.push((path, told, content));
        }
    }
    found.sort();
    Ok(found)
}

/// The first difference between two trees.
pub fn difference(one: &Census, other: &Census) -> Option<String> {
    let pairs = one.iter().zip(other).find(|(one, other)| one != other);
    match pairs {
        Some((one, other)) if one.0 == other.0 && one.1 == other.1 => {
            Some(format!("{}: other content", one.0))
        }
        Some((one, other)) => Some(format!("{} {} is {} {}", one.0, one.1, other.0, other.1)),
        None if one.len() != other.len() => Some(format!("{} paths are {}", one.len(), other.len())),
        None => None,
    }
}
