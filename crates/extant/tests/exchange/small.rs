//! Thousands of small files, directories and symbolic links that the kernel makes, of which many are inline, and what the
//! engine reads of each of them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use extant::{InodeFlags, Mount};
use extant_testing::Random;

use crate::listing::Listing;
use crate::ops::Op;
use crate::{PAGE_CACHES, assert_clean, format, kernel, ours};

const DIRECTORIES: u64 = 260;

/// Sets of mkfs options with room for content in inodes, and the size up to which files are made.
const DISKS: &[(&[&str], u64)] = &[
    (&["-b", "1024", "-N", "8192", "-O", "inline_data"], 250),
    (&["-b", "4096", "-I", "1024", "-N", "8192", "-O", "inline_data,^metadata_csum"], 1000),
    (&["-b", "2048", "-I", "512", "-N", "8192", "-O", "inline_data,^extent,^64bit,^dir_index"], 500),
    (&["-b", "1024", "-N", "8192", "-O", "ea_inode"], 500),
];

fn name(dir: u64, file: u64) -> String {
    format!("d{dir}/{}{file}", "n".repeat((dir * 7 % 20) as usize))
}

/// How many files a directory has: none, up to more than fit into an inode.
fn count(dir: u64) -> u64 {
    dir % 17
}

fn make(random: &mut Random, bytes_max: u64) -> Vec<Op> {
    let mut ops = Vec::new();
    for dir in 0..DIRECTORIES {
        ops.push(Op::Mkdir(format!("d{dir}")));
        if dir.is_multiple_of(5) {
            ops.push(Op::Mkdir(format!("d{dir}/sub")));
        }
        for file in 0..count(dir) {
            let (path, fill) = (name(dir, file), random.next() as u8 | 1);
            if random.below(8) == 0 {
                let target = "t".repeat(1 + random.below(200) as usize);
                ops.push(Op::Symlink { target, path });
                continue;
            }
            let bytes = random.below(bytes_max) as usize;
            let offset = if random.below(8) == 0 { random.below(60) } else { 0 };
            ops.push(Op::Write { path: path.clone(), offset, bytes, fill });
            if random.below(4) == 0 {
                ops.push(Op::Truncate { path: path.clone(), size: random.below(bytes_max) });
            }
            ops.push(attribute(random, path));
        }
        ops.push(attribute(random, format!("d{dir}")));
    }
    ops
}

fn attribute(random: &mut Random, path: String) -> Op {
    let bytes = if random.below(5) == 0 { 2500 + random.below(6) * 100 } else { random.below(300) };
    let value = vec![b'v'; bytes as usize];
    match random.below(3) {
        0 => Op::SetXattr { path, name: format!("user.{}", random.below(3)), value },
        1 => Op::RemoveXattr { path, name: "user.0".to_owned() },
        _ => Op::Chmod { path, mode: 0o700 },
    }
}

/// Each operation that there is, on all that was made.
fn change(random: &mut Random) -> Vec<Op> {
    let mut ops = Vec::new();
    for dir in 0..DIRECTORIES {
        for file in 0..count(dir) {
            let (path, other) = (name(dir, file), random.below(DIRECTORIES));
            let (offset, bytes) = (random.below(300), 1 + random.below(5000));
            ops.push(match random.below(16) {
                0 | 1 => Op::Write { path, offset, bytes: bytes as usize, fill: 0xA5 },
                2 => Op::Write { path, offset: 5000 + offset, bytes: 1, fill: 0xA5 },
                3 => Op::Truncate { path, size: 0 },
                4 => Op::Truncate { path, size: offset },
                5 => Op::Allocate { path, offset, bytes, keep_size: random.below(2) == 0 },
                6 => Op::Zero { path, offset, bytes },
                7 => Op::Punch { path, offset, bytes },
                8 => Op::Rename { from: path, to: name(dir, file + 20) },
                9 => Op::Rename { from: path, to: name(other, file) },
                10 => Op::Link { from: path, to: name(other, file + 40) },
                11 => Op::Unlink(path),
                12 | 13 => attribute(random, path),
                _ => continue,
            });
        }
        let (path, other) = (format!("d{dir}"), random.below(DIRECTORIES));
        ops.push(match random.below(6) {
            0 => Op::Mkdir(format!("d{dir}/new")),
            1 => Op::Rename { from: format!("d{dir}/sub"), to: format!("d{other}/sub") },
            2 => Op::Rename { from: path, to: format!("d{other}/moved") },
            3 => Op::Rmdir(format!("d{dir}/sub")),
            4 => Op::Rmdir(path),
            _ => attribute(random, path),
        });
    }
    ops
}

/// How many of these have their content in their inodes.
fn count_inline(image: &Path, listing: &Listing) -> usize {
    let fs = Mount::new().read_only(true).open(image).expect("a disk");
    let is_inline = |path: &&Vec<u8>| {
        let metadata = fs.symlink_metadata(OsStr::from_bytes(path)).expect("what was listed");
        metadata.flags.contains(InodeFlags::INLINE_DATA)
    };
    listing.0.keys().filter(is_inline).count()
}

#[test]
fn small_things_of_the_kernel_are_read_and_changed() {
    if !kernel::is_available() {
        println!("skipped: needs root and loop devices");
        return;
    }
    let scratch = tempfile::tempdir_in("/dev/shm").expect("scratch on /dev/shm");
    let scratch = scratch.path();
    for (seed, (options, bytes_max)) in (0..).zip(DISKS) {
        let what = format!("mke2fs {}", options.join(" "));
        let (image, dirty) = format(scratch, options);
        let mut random = Random::new(seed);
        let made = kernel::turn(&image, scratch, make(&mut random, *bytes_max).into_iter(), dirty).left;
        let mount = Mount::new().page_cache_bytes(PAGE_CACHES[seed as usize % PAGE_CACHES.len()]);
        let inline = count_inline(&image, &made);
        let large =
            made.0.values().flat_map(|seen| seen.xattrs.values()).filter(|value| value.len() > 2000).count();
        if options.contains(&"ea_inode") {
            assert!(large > 100, "{what}: only {large} values in inodes of their own");
        } else {
            assert!(inline > made.0.len() / 4, "{what}: content of {inline} only stands in inodes");
        }
        let changed = ours::turn(&image, &mount, change(&mut random).into_iter(), dirty);
        made.assert_equals(&changed.found, &what);
        assert_clean(&image, scratch, &what);
        let found = kernel::turn(&image, scratch, std::iter::empty(), dirty).found;
        changed.left.assert_equals(&found, &what);
        println!(
            "{what}: {} things made, {inline} of them in their inodes, {} left, {} of them in theirs",
            made.0.len(),
            found.0.len(),
            count_inline(&image, &found)
        );
    }
}
