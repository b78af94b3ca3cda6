//! Directories of real disks: the kernel's read by Extant, Extant's read by the kernel and `e2fsck`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use extant_ondisk::dir_hash::DirHasher;
use extant_ondisk::dirent;
use extant_ondisk::htree::RootInfo;
use extant_ondisk::{Checksums, FileType, InodeNumber, SuperFlags};

use crate::htree_model::equal_hash_names;
use crate::image::{Image, run};
use crate::indexed_dir::IndexedDir;
use crate::rng::Rng;

type Names = BTreeSet<Vec<u8>>;

/// The disk of the directory test.
struct Disk {
    image: Image,
    /// The directory.
    ino: InodeNumber,
    /// The file that all its names are links of.
    file: InodeNumber,
}

fn listed(dir: &Path) -> Names {
    std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_vec()).collect()
}

fn link(dir: &Path, name: &[u8]) {
    std::fs::hard_link(dir.join("../file"), dir.join(OsStr::from_bytes(name))).unwrap();
}

/// A disk with a directory `dir` that had `names` and then lost `gone`.
fn fill(image: Image, names: &[Vec<u8>], gone: &[Vec<u8>]) -> Disk {
    let (ino, file) = image.mounted(|root| {
        std::fs::write(root.join("file"), "x").unwrap();
        let dir = root.join("dir");
        std::fs::create_dir(&dir).unwrap();
        names.iter().for_each(|name| link(&dir, name));
        gone.iter().for_each(|name| std::fs::remove_file(dir.join(OsStr::from_bytes(name))).unwrap());
        (dir.metadata().unwrap().ino() as u32, root.join("file").metadata().unwrap().ino() as u32)
    });
    image.assert_clean();
    Disk { image, ino: InodeNumber(ino), file: InodeNumber(file) }
}

impl Disk {
    fn hasher(&self, version: u8) -> DirHasher {
        let superblock = self.image.superblock();
        let unsigned = superblock.flags().contains(SuperFlags::UNSIGNED_HASH);
        let version = RootInfo { version, indirect_levels: 0 }.hash_version(unsigned);
        DirHasher::new(version, superblock.s_hash_seed())
    }

    /// The directory as stored on the disk, every checksum verified.
    fn load(&self) -> IndexedDir {
        let checksums = Checksums::new(&self.image.superblock());
        let generation = self.image.inode(self.ino).generation();
        let blocks: Vec<Vec<u8>> =
            self.image.blocks(self.ino).iter().map(|b| self.image.read_block(*b)).collect();
        let info = RootInfo::parse(&blocks[0], false).unwrap();
        let dir = IndexedDir {
            blocks,
            hasher: self.hasher(info.version),
            has_csum: checksums.has_metadata_checksums(),
            large_dir: false,
        };
        let (nodes, leaves) = dir.walk();
        for node in nodes {
            assert!(checksums.verify_htree_node(self.ino, generation, &dir.blocks[node]), "node {node}");
        }
        for (leaf, _) in leaves {
            assert!(checksums.verify_dir_block(self.ino, generation, &dir.blocks[leaf]), "leaf {leaf}");
        }
        dir
    }

    fn store(&self, dir: &mut IndexedDir) {
        let checksums = Checksums::new(&self.image.superblock());
        dir.sum(&checksums, self.ino, self.image.inode(self.ino).generation());
        let places = self.image.blocks(self.ino);
        assert_eq!(places.len(), dir.blocks.len());
        for (place, block) in places.iter().zip(&dir.blocks) {
            self.image.write_block(*place, block);
        }
    }

    /// The kernel's directory holds `names`; rebuilt by Extant it still does, for `e2fsck` and the kernel,
    /// which then changes it further, and Extant reads the result.
    fn round_trip(&self, names: &Names, rng: &mut Rng) {
        let theirs = self.load();
        assert_eq!(theirs.check(), names.len());
        for name in names {
            assert_eq!(theirs.find(name).unwrap().2, self.file);
        }
        let mut ours = IndexedDir::new(
            self.image.block_bytes(),
            theirs.has_csum,
            theirs.hasher,
            self.ino,
            InodeNumber::ROOT,
        );
        for name in names {
            assert!(ours.insert(self.file, name, FileType::Regular.dirent_byte()));
        }
        ours.grow_to(theirs.blocks.len(), rng);
        assert_eq!(ours.check(), names.len());
        self.store(&mut ours);
        self.image.assert_clean();
        let mut names = names.clone();
        self.image.mounted(|root| {
            let dir = root.join("dir");
            assert_eq!(listed(&dir), names);
            for name in &names {
                assert!(dir.join(OsStr::from_bytes(name)).symlink_metadata().is_ok());
            }
            for at in 0..400 {
                let name = [format!("new{at}").into_bytes(), rng.name(1 + at % 200)].concat();
                link(&dir, &name);
                names.insert(name);
                let gone = names.iter().nth(rng.below(names.len())).unwrap().clone();
                std::fs::remove_file(dir.join(OsStr::from_bytes(&gone))).unwrap();
                names.remove(&gone);
            }
        });
        self.image.assert_clean();
        let theirs = self.load();
        assert_eq!(theirs.check(), names.len());
        assert!(names.iter().all(|name| theirs.find(name).is_some()));
    }
}

fn random_names(count: usize, longest: usize, rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut names = Names::new();
    while names.len() < count {
        let len = 5 + rng.below(longest);
        names.insert(rng.name(len));
    }
    // In no order of theirs.
    let mut names: Vec<_> = names.into_iter().collect();
    for at in (1..names.len()).rev() {
        names.swap(at, rng.below(at + 1));
    }
    names
}

fn random_directory(seed: u64, args: &[&str], prepare: impl FnOnce(&Image)) {
    let mut rng = Rng::new(seed);
    let Some(image) = Image::mkfs(32, args) else {
        return;
    };
    prepare(&image);
    let names = random_names(5000, 120, &mut rng);
    // Removed names leave blocks behind, so that Extant has as many to use.
    let (gone, kept) = names.split_at(1200);
    let disk = fill(image, &names, gone);
    disk.round_trip(&kept.iter().cloned().collect(), &mut rng);
}

fn hash_algorithm(image: &Image, name: &str) {
    run("tune2fs", &["-E", &format!("hash_alg={name}"), image.path()]);
}

#[test]
fn a_directory_of_1k_blocks_with_checksums_goes_both_ways() {
    random_directory(41, &["-b", "1024"], |_| ());
}

#[test]
fn a_directory_of_4k_blocks_with_checksums_goes_both_ways() {
    random_directory(42, &["-b", "4096"], |image| hash_algorithm(image, "tea"));
}

#[test]
fn a_directory_without_checksums_goes_both_ways() {
    random_directory(43, &["-b", "1024", "-O", "^metadata_csum"], |image| hash_algorithm(image, "legacy"));
}

#[test]
fn a_directory_hashed_by_unsigned_bytes_goes_both_ways() {
    random_directory(44, &["-b", "1024", "-O", "^metadata_csum"], |image| {
        image.debugfs(&["ssv flags 2".into()], true);
        assert!(image.superblock().flags().contains(SuperFlags::UNSIGNED_HASH));
    });
}

#[test]
fn runs_of_equal_hashes_go_both_ways() {
    let mut rng = Rng::new(45);
    let Some(image) = Image::mkfs(32, &["-b", "1024"]) else {
        return;
    };
    hash_algorithm(&image, "legacy");
    let (same, others) = (equal_hash_names(14, &mut rng), random_names(600, 250, &mut rng));
    let (gone, others) = others.split_at(150);
    let names = [&same, gone, others].concat();
    let kept: Names = [&same, others].concat().into_iter().collect();
    let disk = fill(image, &names, gone);
    let (_, leaves) = disk.load().walk();
    assert!(leaves.iter().any(|(_, hash)| hash & 1 == 1), "the kernel continued a run");
    disk.round_trip(&kept, &mut rng);
}

#[test]
fn a_linear_directory_goes_both_ways() {
    let mut rng = Rng::new(46);
    for args in
        [&["-b", "1024"][..], &["-b", "4096", "-O", "^metadata_csum"], &["-b", "1024", "-O", "^filetype"]]
    {
        let Some(image) = Image::mkfs(16, args) else {
            return;
        };
        let names = random_names(10, 20, &mut rng);
        let disk = fill(image, &names, &names[..3]);
        let image = &disk.image;
        let sums = Checksums::new(&image.superblock());
        let (place, generation) = (image.blocks(disk.ino)[0], image.inode(disk.ino).generation());
        let mut block = image.read_block(place);
        assert!(sums.verify_dir_block(disk.ino, generation, &block));
        let usable = dirent::usable_bytes(block.len(), sums.has_metadata_checksums());
        let read: Names =
            dirent::live_entries(&block, usable).skip(2).map(|e| e.unwrap().name.to_vec()).collect();
        assert_eq!(read, names[3..].iter().cloned().collect());
        let offset = dirent::find(&block, usable, &names[5]).unwrap().unwrap().offset;
        let file_type = dirent::entry_at(&block, usable, offset).unwrap().file_type;
        assert_eq!(file_type == 0, args.contains(&"^filetype"));
        dirent::remove(&mut block, usable, offset, 0).unwrap();
        assert!(dirent::insert(&mut block, usable, disk.file, b"ours", file_type).unwrap());
        sums.update_dir_block(disk.ino, generation, &mut block);
        image.write_block(place, &block);
        image.assert_clean();
        let mut expected: Names = names[3..].iter().cloned().collect();
        expected.remove(&names[5]);
        expected.insert(b"ours".to_vec());
        assert_eq!(image.mounted(|root| listed(&root.join("dir"))), expected);
    }
}
