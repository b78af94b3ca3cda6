//! Files against a model of bytes: random writes, sizes and ranges, on disks of all block sizes, with little and much
//! fragmentation; `e2fsck` and `debugfs` judge the disk.

use extant_block::MemoryDevice;
use extant_ondisk::{InodeFlags, InodeNumber};
use extant_rt::Arc;

use super::disk::{Random, assert_clean, dumped, format, has_e2fsprogs, mount, mount_with_pages};
use crate::error::Error;
use crate::file::fallocate::Fallocate;
use crate::file::seek::SeekTo;
use crate::incore::inode_cache::InodeRef;
use crate::mount::Volume;

const NAMES: [&str; 3] = ["a", "b", "c"];

/// The files of a disk and what they must hold.
struct Model {
    volume: Arc<Volume>,
    inodes: Vec<InodeRef>,
    contents: Vec<Vec<u8>>,
    size_max: u64,
    block_size: u64,
    /// What ranges that are taken out or put in are made of.
    cluster_bytes: u64,
    /// Whether ranges can be punched and moved: the files have extents.
    ranges: bool,
    random: Random,
}

impl Model {
    fn new(device: &Arc<MemoryDevice>, inodes: &[InodeNumber], block_size: u64, seed: u64) -> Self {
        let volume = match seed % 4 {
            0 => mount(device),
            // So small that folios come and go and writers flush.
            1 => mount_with_pages(device, 64 << 10, true),
            2 => mount_with_pages(device, 32 << 20, true),
            _ => mount_with_pages(device, 32 << 20, false),
        };
        let inodes: Vec<_> = inodes.iter().map(|inode| volume.inode(*inode).unwrap()).collect();
        let contents = vec![Vec::new(); inodes.len()];
        let ranges = inodes.iter().all(|inode: &InodeRef| inode.raw().flags().contains(InodeFlags::EXTENTS));
        Self {
            inodes,
            contents,
            size_max: 200 * block_size,
            block_size,
            cluster_bytes: volume.geometry.cluster_bytes(),
            volume,
            ranges,
            random: Random::new(seed),
        }
    }

    /// An offset, often at or beside the start of a block.
    fn offset(&mut self, bound: u64) -> u64 {
        let at = self.random.below(bound);
        match self.random.below(4) {
            0 => at - at % self.block_size,
            1 => (at - at % self.block_size + 1).min(bound),
            _ => at,
        }
    }

    fn aligned(&mut self, bound: u64) -> u64 {
        let at = self.random.below(bound + 1);
        at - at % self.cluster_bytes
    }

    fn step(&mut self) -> String {
        let file = self.random.below(self.inodes.len() as u64) as usize;
        let size = self.contents[file].len() as u64;
        match self.random.below(16) {
            0 => self.place(file),
            1..6 => {
                let offset = self.offset(self.size_max);
                self.write(file, Some(offset))
            }
            6..8 => self.write(file, None),
            8 => {
                let bound = if self.random.below(2) == 0 { size + 1 } else { self.size_max };
                let size = self.offset(bound);
                self.volume.set_size(&self.inodes[file], size).unwrap();
                self.contents[file].resize(size as usize, 0);
                format!("set_size({file}, {size})")
            }
            9..14 if self.ranges => self.range(file),
            9..15 => {
                self.volume.sync().unwrap();
                "sync".into()
            }
            _ => {
                self.check(file);
                format!("check({file})")
            }
        }
    }

    fn write(&mut self, file: usize, offset: Option<u64>) -> String {
        let bytes = match self.random.below(3) {
            0 => self.random.below(100),
            1 => self.random.below(4 * self.block_size),
            _ => self.random.below(40 * self.block_size),
        };
        let buf = self.random.bytes(bytes as usize + 1);
        let written = self.volume.write_at(&self.inodes[file], offset, &buf, true).unwrap();
        assert_eq!(written, buf.len());
        let content = &mut self.contents[file];
        let at = offset.map_or(content.len(), |offset| offset as usize);
        content.resize(content.len().max(at + written), 0);
        content[at..at + written].copy_from_slice(&buf);
        format!("write({file}, {at}, {written})")
    }

    /// Gives a range blocks, and writes them to the device.
    fn place(&mut self, file: usize) -> String {
        let size = self.contents[file].len() as u64;
        let offset = self.offset(self.size_max);
        let bytes = self.random.below(40 * self.block_size) + 1;
        let (inode, is_whole) = (&self.inodes[file], |at: u64| at.is_multiple_of(self.block_size));
        let said = format!("place({file}, {offset}, {bytes})");
        let (mut at, end) = (offset, offset + bytes);
        if !is_whole(offset) || (end < size && !is_whole(end)) {
            let refused = self.volume.place_at(inode, offset, bytes as usize, true);
            assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{said}: {refused:?}");
            return said;
        }
        let content = self.random.bytes(bytes as usize);
        while at < end {
            let placed = self.volume.place_at(inode, at, (end - at) as usize, true).unwrap();
            assert!(!placed.is_empty(), "{said}");
            for segment in placed {
                let piece = &content[(at - offset) as usize..];
                let mut blocks = piece[..piece.len().min(segment.bytes as usize)].to_vec();
                at += segment.bytes;
                blocks.resize(segment.bytes as usize, 0);
                self.volume.device.write_at(segment.offset, &blocks).unwrap();
            }
        }
        let whole = &mut self.contents[file];
        whole.resize(whole.len().max(end as usize), 0);
        whole[offset as usize..end as usize].copy_from_slice(&content);
        said
    }

    fn range(&mut self, file: usize) -> String {
        let kind = self.random.below(7);
        let shifts = kind >= 5;
        let (offset, bytes) = if shifts {
            (self.aligned(self.size_max / 2), self.aligned(20 * self.block_size))
        } else {
            (self.offset(self.size_max), self.offset(30 * self.block_size) + 1)
        };
        let keep_size = self.random.below(2) == 0;
        let what = match kind {
            0 => Fallocate::Allocate { keep_size },
            1 | 2 => Fallocate::ZeroRange { keep_size },
            3 | 4 => Fallocate::PunchHole,
            5 => Fallocate::CollapseRange,
            _ => Fallocate::InsertRange,
        };
        let result = self.volume.fallocate(&self.inodes[file], what, offset, bytes, true);
        let said = format!("{what:?}({file}, {offset}, {bytes}): {result:?}");
        let content = &mut self.contents[file];
        let size = content.len();
        let (start, end) = (offset as usize, (offset + bytes) as usize);
        let refused = bytes == 0
            || (what == Fallocate::CollapseRange && end >= size)
            || (what == Fallocate::InsertRange && start >= size);
        if refused {
            assert!(matches!(result, Err(Error::InvalidArgument(_))), "{said}");
            return said;
        }
        result.unwrap();
        match what {
            Fallocate::Allocate { keep_size: false } => content.resize(size.max(end), 0),
            Fallocate::ZeroRange { keep_size: false } => {
                content.resize(size.max(end), 0);
                content[start..end].fill(0);
            }
            Fallocate::ZeroRange { .. } | Fallocate::PunchHole => {
                content[start.min(size)..end.min(size)].fill(0);
            }
            Fallocate::CollapseRange => drop(content.drain(start..end)),
            Fallocate::InsertRange => drop(content.splice(start..start, vec![0; bytes as usize])),
            Fallocate::Allocate { .. } => {}
        }
        said
    }

    fn check(&mut self, file: usize) {
        let (inode, content) = (&self.inodes[file], &self.contents[file]);
        assert_eq!(inode.state().size(), content.len() as u64);
        let mut read = vec![0xAA; content.len() + 10];
        assert_eq!(self.volume.read_at(inode, 0, &mut read).unwrap(), content.len());
        let wrong = content.iter().zip(&read).position(|(a, b)| a != b);
        assert_eq!(wrong, None, "file {file} of {} bytes", content.len());
        let from = self.random.below(content.len() as u64 + 5);
        let mut part = vec![0xAA; 3000];
        let count = self.volume.read_at(inode, from, &mut part).unwrap();
        assert_eq!(part[..count], content[content.len().min(from as usize)..][..count]);
        // What is reported to be a hole reads as zero.
        match self.volume.seek(inode, from, SeekTo::Data) {
            Ok(data) => assert!(content[from as usize..data as usize].iter().all(|byte| *byte == 0)),
            Err(Error::NoSuchOffset) => assert!(content.iter().skip(from as usize).all(|byte| *byte == 0)),
            Err(error) => panic!("{error}"),
        }
        match self.volume.seek(inode, from, SeekTo::Hole) {
            Ok(hole) => assert!(hole >= from && hole <= content.len() as u64),
            Err(Error::NoSuchOffset) => assert!(from >= content.len() as u64),
            Err(error) => panic!("{error}"),
        }
        self.check_place(file, from);
    }

    /// A range has a place on the device if its bytes follow each other there, and what was written is in it.
    fn check_place(&mut self, file: usize, from: u64) {
        let bytes = 1 + self.random.below(3 * self.block_size);
        let inode = &self.inodes[file];
        let place = |from, bytes| self.volume.device_offset(inode, from, bytes).unwrap();
        let first = place(from, 1);
        let follows = |at: u64| first.is_some_and(|first| place(from + at, 1) == Some(first + at));
        // At least once in each block.
        let are_side_by_side = (0..bytes).step_by(512).chain([bytes - 1]).all(follows);
        assert_eq!(place(from, bytes), first.filter(|_| are_side_by_side), "{bytes} bytes from {from}");
        let mut is_unwritten = false;
        self.volume.fiemap(inode, from, bytes, &mut |extent| is_unwritten |= extent.unwritten).unwrap();
        let Some(place) = place(from, bytes).filter(|_| !is_unwritten) else { return };
        let mut found = vec![0xAA; bytes as usize];
        self.volume.device.read_at(place, &mut found).unwrap();
        let content = self.contents[file].iter().skip(from as usize);
        assert!(
            content.zip(&found).all(|(byte, found)| byte == found),
            "{bytes} bytes from {from} at {place}"
        );
    }
}

fn one_seed(base: &MemoryDevice, inodes: &[InodeNumber], block_size: u64, seed: u64) {
    let device = Arc::new(base.snapshot());
    let mut done = Vec::new();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut model = Model::new(&device, inodes, block_size, seed);
        for _ in 0..60 {
            let step = model.step();
            done.push(step);
        }
        for file in 0..inodes.len() {
            model.check(file);
        }
        model.volume.unmount().unwrap();
        let contents = std::mem::take(&mut model.contents);
        drop(model);
        assert_clean(&*device, "after the last step");
        if seed.is_multiple_of(16) {
            for (inode, content) in inodes.iter().zip(&contents) {
                assert!(dumped(&*device, *inode) == *content, "debugfs reads inode {inode} differently");
            }
        }
        let volume = mount(&device);
        for inode in inodes {
            volume.set_size(&volume.inode(*inode).unwrap(), 0).unwrap();
            assert_eq!(volume.inode(*inode).unwrap().raw().blocks_512(block_size as u32), 0);
        }
        volume.unmount().unwrap();
        assert_clean(&*device, "after all files were cut to nothing");
    }));
    if outcome.is_err() {
        panic!("seed {seed}, block size {block_size}: {done:#?}");
    }
}

fn model(block_size: u64, kilobytes: u32, features: &str, seeds: std::ops::Range<u64>) {
    model_with(block_size, kilobytes, &["-O", features], seeds);
}

fn model_with(block_size: u64, kilobytes: u32, arguments: &[&str], seeds: std::ops::Range<u64>) {
    if !has_e2fsprogs() {
        return;
    }
    let block = block_size.to_string();
    let arguments = [&["-b", &block, "-J", "size=4", "-N", "64"], arguments].concat();
    let (base, inodes) = format(&arguments, kilobytes, &NAMES);
    for seed in seeds {
        one_seed(&base, &inodes, block_size, seed);
    }
}

#[test]
fn files_hold_what_the_model_says_with_blocks_of_1_kib() {
    model(1024, 16 << 10, "extents", 0..80);
}

#[test]
fn files_hold_what_the_model_says_with_blocks_of_2_kib() {
    model(2048, 16 << 10, "extents", 100..160);
}

#[test]
fn files_hold_what_the_model_says_with_blocks_of_4_kib() {
    model(4096, 32 << 10, "extents,^metadata_csum", 200..260);
}

#[test]
fn files_in_clusters_of_16_and_64_kib_hold_what_the_model_says() {
    model_with(1024, 16 << 10, &["-O", "bigalloc", "-C", "16384"], 500..520);
    model_with(4096, 32 << 10, &["-O", "bigalloc", "-C", "16384"], 600..608);
    model_with(4096, 32 << 10, &["-O", "bigalloc", "-C", "65536"], 700..712);
    model_with(1024, 16 << 10, &["-O", "bigalloc", "-C", "2048"], 800..808);
}

#[test]
fn files_without_extents_hold_what_the_model_says() {
    model(1024, 16 << 10, "^extents,^64bit", 300..340);
    model(4096, 32 << 10, "^extents,^64bit,^huge_file", 400..420);
}

#[test]
fn files_without_extents_reach_through_three_levels() {
    if !has_e2fsprogs() {
        return;
    }
    let arguments = ["-b", "1024", "-J", "size=1", "-N", "64", "-O", "^extents,^64bit"];
    let (device, inodes) = format(&arguments, 8 << 10, &["a"]);
    let device = Arc::new(device);
    let volume = mount(&device);
    let inode = volume.inode(inodes[0]).unwrap();
    let free = volume.allocator.free_blocks();
    let mut random = Random::new(7);
    // The ends of the direct blocks and of the trees of one and two levels, and beyond.
    let places = [0, 10, 260, 267, 300, 12 + 256 + 65_530, 12 + 256 + 65_536 + 70_000, 16_000_000];
    let pieces: Vec<_> = places.map(|block| (block * 1024 + 100, random.bytes(20_000))).into();
    for (offset, bytes) in pieces.iter().rev() {
        assert_eq!(volume.write_at(&inode, Some(*offset), bytes, true).unwrap(), bytes.len());
    }
    let mut covered = Vec::new();
    for (offset, bytes) in &pieces {
        let mut read = vec![0; bytes.len()];
        volume.read_at(&inode, *offset, &mut read).unwrap();
        let hidden = covered.iter().any(|start| offset.abs_diff(*start) < 20_000);
        assert!(hidden || read == *bytes, "at {offset}");
        covered.push(*offset);
        covered.push(*offset + 20_000);
    }
    volume.sync().unwrap();
    let copy = Arc::new(device.snapshot());
    mount(&copy).unmount().unwrap();
    assert_clean(&*copy, "grown");
    for block in [16_000_001, 100_000, 12 + 256 + 65_536, 12 + 256 + 65_535, 280, 12, 1, 0] {
        volume.set_size(&inode, block * 1024).unwrap();
        volume.sync().unwrap();
        let copy = Arc::new(device.snapshot());
        mount(&copy).unmount().unwrap();
        assert_clean(&*copy, &format!("cut to {block} blocks"));
    }
    assert_eq!(volume.statistics().free_blocks, free);
    assert_eq!(inode.raw().blocks_512(1024), 0);
}
