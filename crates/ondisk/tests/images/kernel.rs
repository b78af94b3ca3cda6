//! Inodes as the kernel writes them, through a loop device: what `mke2fs` never makes.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use extant_ondisk::{Entries, ExtentNode, FileType, InodeNumber, Timestamp};
use extant_testing::scratch;

use crate::disk::Disk;
use crate::tools::{Image, run};
use crate::{files, groups, sums};

/// A mounted image; unmounted on drop.
struct Mount {
    dir: tempfile::TempDir,
}

impl Mount {
    fn new(image: &Image) -> Option<Self> {
        let dir = scratch();
        run("mount", &["-o", "loop", &image.path.to_string_lossy(), &dir.path().to_string_lossy()])?;
        Some(Self { dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        extant_testing::unmount(self.dir.path());
    }
}

/// Moments at and around the edges of the epoch bits.
const SECONDS: [i64; 9] =
    [-0x8000_0000, -1, 0, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 0x1_0000_0000, 0x2_8000_0000, 0x3_7FFF_FFFF];

fn touch(path: &Path, seconds: i64) -> Option<String> {
    let fraction = if seconds < 0 { "" } else { ".123456789" };
    run("touch", &["-d", &format!("@{seconds}{fraction}"), &path.to_string_lossy()])
}

fn make_files(mount: &Mount) -> Option<Vec<(String, InodeNumber)>> {
    let mut made = Vec::new();
    let note = |name: &str, made: &mut Vec<_>| {
        let ino = fs::symlink_metadata(mount.path(name)).ok().map(|found| InodeNumber(found.ino() as u32));
        made.extend(ino.map(|ino| (name.to_owned(), ino)));
    };
    for (index, seconds) in SECONDS.into_iter().enumerate() {
        let name = format!("time {index}");
        File::create(mount.path(&name)).ok()?;
        touch(&mount.path(&name), seconds)?;
        note(&name, &mut made);
    }
    let unwritten = mount.path("unwritten");
    run("fallocate", &["-l", "8M", &unwritten.to_string_lossy()])?;
    File::options().write(true).open(&unwritten).ok()?.write_all_at(&[7; 5000], 1 << 20).ok()?;
    note("unwritten", &mut made);
    // 4 KiB blocks: almost the largest file that extents can map.
    let large = File::create(mount.path("large")).ok()?;
    large.write_all_at(b"end", (1 << 44) - 8192).ok()?;
    note("large", &mut made);
    for (name, kind, major, minor) in
        [("old", "b", "255", "255"), ("major", "c", "256", "0"), ("minor", "c", "4095", "1048575")]
    {
        run("mknod", &[&mount.path(name).to_string_lossy(), kind, major, minor])?;
        note(name, &mut made);
    }
    Some(made)
}

#[test]
fn the_kernels_inodes_read_as_it_wrote_them() {
    let Some(image) = Image::make_empty(&["-t", "ext4", "-O", "^has_journal", "-b", "4096", "64M"]) else {
        println!("skipped: no mke2fs");
        return;
    };
    let Some(mount) = Mount::new(&image) else {
        println!("skipped: cannot mount an image");
        return;
    };
    let made = make_files(&mount).expect("files on a fresh disk");
    let stats: Vec<_> =
        made.iter().map(|(name, _)| fs::symlink_metadata(mount.path(name)).expect("its stat")).collect();
    drop(mount);
    let disk = Disk::open(&image);
    groups::count_free_bits(&disk);
    groups::compare_groups(&disk, &image);
    sums::check_descriptors(&disk);
    sums::check_bitmaps(&disk);
    sums::check_inodes(&disk);
    let commands: Vec<_> = made.iter().map(|(_, ino)| format!("stat <{ino}>")).collect();
    for (((name, ino), stat), said) in made.iter().zip(stats).zip(image.debugfs(&commands)) {
        let inode = disk.inode(*ino);
        files::compare_inode(&disk, *ino, &inode, &said);
        assert_eq!(inode.size(), stat.size(), "{name}");
        assert_eq!(inode.blocks_512(4096), stat.blocks(), "{name}");
        assert_eq!(inode.mode(), stat.mode() as u16, "{name}");
        for (ours, seconds, nanoseconds) in [
            (inode.mtime(), stat.mtime(), stat.mtime_nsec()),
            (inode.atime(), stat.atime(), stat.atime_nsec()),
            (inode.ctime(), stat.ctime(), stat.ctime_nsec()),
        ] {
            assert_eq!(ours, Timestamp { seconds, nanoseconds: nanoseconds as u32 }, "{name}");
        }
        if matches!(inode.file_type(), FileType::BlockDevice | FileType::CharDevice) {
            let device = stat.rdev();
            let major = device >> 8 & 0xFFF | device >> 32 & !0xFFF;
            let minor = device & 0xFF | device >> 12 & !0xFF;
            assert_eq!(inode.device(), (major as u32, minor as u32), "{name}");
        }
        let node = ExtentNode::parse(inode.i_block(), Some(0));
        if name == "unwritten" {
            let Ok(ExtentNode { entries: Entries::Leaf(extents), .. }) = node else {
                panic!("extents of {name}")
            };
            let written: u32 = extents.iter().filter(|e| !e.unwritten).map(|e| u32::from(e.len)).sum();
            let unwritten: u32 = extents.iter().filter(|e| e.unwritten).map(|e| u32::from(e.len)).sum();
            assert_eq!((written, unwritten), (2, 2046));
        }
    }
    let moments: Vec<_> =
        made.iter().take(SECONDS.len()).map(|(_, ino)| disk.inode(*ino).mtime().seconds).collect();
    assert_eq!(moments, SECONDS);
}
