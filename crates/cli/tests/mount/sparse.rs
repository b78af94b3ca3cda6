//! A file of 12 TiB, nearly all of it holes, on a disk of 13 TiB that takes some hundred megabytes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;

use extant_testing::Random;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::common::{Disk, can_mount, path, run, seed};
use crate::kernel::Kernel;

const FILE_BYTES: u64 = 12 << 40;
const DISK_BYTES: &str = "13T";
const PIECES: u64 = 400;
const BLOCK: u64 = 4096;
/// Pieces keep this distance, so that none meets another.
const SLOT_BYTES: u64 = 1 << 24;
/// The largest file with extents and blocks of 4 KiB: 2^32 - 1 blocks.
const LIMIT_BYTES: u64 = ((1 << 32) - 1) * BLOCK;

type Pieces = BTreeMap<u64, Vec<u8>>;

fn write_pieces(file: &File, random: &mut Random) -> Pieces {
    let mut pieces = Pieces::new();
    while (pieces.len() as u64) < PIECES {
        let offset = random.below(FILE_BYTES / SLOT_BYTES) * SLOT_BYTES + random.below(SLOT_BYTES / 2);
        if pieces
            .range(offset / SLOT_BYTES * SLOT_BYTES..)
            .next()
            .is_some_and(|(at, _)| *at / SLOT_BYTES == offset / SLOT_BYTES)
        {
            continue;
        }
        let bytes = vec![random.below(255) as u8 + 1; random.below(100_000) as usize + 1];
        file.write_all_at(&bytes, offset).expect("write");
        pieces.insert(offset, bytes);
    }
    pieces
}

/// Where data is, as whole blocks.
fn data_of(pieces: &Pieces) -> Vec<(u64, u64)> {
    let blocks = |(at, bytes): (&u64, &Vec<u8>)| {
        (at / BLOCK * BLOCK, (at + bytes.len() as u64).next_multiple_of(BLOCK))
    };
    pieces.iter().map(blocks).collect()
}

/// Where `SEEK_DATA` and `SEEK_HOLE` say that data is.
fn data_by_seek(file: &File) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut at = 0;
    loop {
        match seek(file, SeekFrom::Data(at)) {
            Ok(start) => {
                at = seek(file, SeekFrom::Hole(start)).expect("a hole");
                found.push((start, at));
            }
            Err(Errno::NXIO) => return found,
            Err(error) => panic!("SEEK_DATA from {at}: {error}"),
        }
    }
}

/// Asserts that a file holds the pieces and zeroes around them; returns how many units of 512 bytes it
/// takes.
fn check(file: &File, pieces: &Pieces, size: u64) -> u64 {
    let metadata = file.metadata().expect("stat");
    assert_eq!(metadata.size(), size);
    // A file that ends in data ends its last range at its size.
    let mut expected = data_of(pieces);
    if let Some(last) = expected.last_mut() {
        last.1 = last.1.min(size);
    }
    assert_eq!(data_by_seek(file), expected);
    for (offset, bytes) in pieces {
        let before = BLOCK.min(*offset);
        let mut found = vec![1; bytes.len() + 2 * BLOCK as usize];
        let read = file.read_at(&mut found, offset - before).expect("read");
        found.truncate(read);
        let (head, rest) = found.split_at(before as usize);
        let (content, tail) = rest.split_at(bytes.len());
        assert!(content == bytes.as_slice(), "the content at {offset}");
        assert!(head.iter().chain(tail).all(|byte| *byte == 0), "around {offset} are not zeroes");
    }
    let data: u64 = data_of(pieces).iter().map(|(start, end)| end - start).sum();
    // Leaves of 340 extents and their index; halves after splits.
    let tree = (pieces.len() as u64).div_ceil(340 / 2) + 2;
    let taken = metadata.blocks() * 512;
    assert!((data..=data + tree * BLOCK).contains(&taken), "{taken} bytes taken for {data} of data");
    metadata.blocks()
}

/// Errors at and beyond the largest size: what each call did, in words, to be compared with the kernel's.
fn limits(dir: &std::path::Path) -> Vec<String> {
    let file =
        File::options().read(true).write(true).create_new(true).open(dir.join("limits")).expect("create");
    let word = |result: io::Result<usize>| match result {
        Ok(count) => count.to_string(),
        Err(error) => format!("errno {}", error.raw_os_error().unwrap_or(0)),
    };
    let mut words = vec![
        format!("last byte: {}", word(file.write_at(b"x", LIMIT_BYTES - 1))),
        format!("across: {}", word(file.write_at(b"xyz", LIMIT_BYTES - 2))),
        format!("past: {}", word(file.write_at(b"x", LIMIT_BYTES))),
        format!("truncate: {}", word(file.set_len(LIMIT_BYTES).map(|()| 0))),
        format!("truncate past: {}", word(file.set_len(LIMIT_BYTES + 1).map(|()| 0))),
        format!("write at 2^62: {}", word(file.write_at(b"x", 1 << 62))),
    ];
    let allocate = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), LIMIT_BYTES, BLOCK);
    words.push(format!("allocate past: {}", word(allocate.map(|()| 0).map_err(Into::into))));
    let metadata = file.metadata().expect("stat");
    words.push(format!("size {}, {} units", metadata.size(), metadata.blocks()));
    words.push(format!("data {:?}", data_by_seek(&file)));
    words
}

#[test]
#[ignore = "long: make test-scale"]
fn file_of_twelve_tebibytes() {
    if !can_mount() {
        return;
    }
    let mut random = Random::new(seed());
    let disk = Disk::new("64M");
    run(&["mkfs", "-q", "-F", disk.image.to_str().expect("path"), DISK_BYTES]);
    disk.mount("rw");
    let at = |name: &str| disk.point.join(name);
    let file = File::options().read(true).write(true).create_new(true).open(at("file")).expect("create");
    file.set_len(FILE_BYTES).expect("truncate");
    let mut pieces = write_pieces(&file, &mut random);
    check(&file, &pieces, FILE_BYTES);
    // Cut in the middle of a piece, and grown again: zeroes come back.
    let (&offset, middle) = pieces.iter().nth(PIECES as usize / 2).expect("a piece");
    let cut = offset + middle.len() as u64 / 2;
    pieces.split_off(&(offset + 1));
    pieces.get_mut(&offset).expect("the piece").truncate((cut - offset) as usize);
    file.set_len(cut).expect("truncate");
    check(&file, &pieces, cut);
    file.set_len(FILE_BYTES).expect("grow");
    let far = vec![7; 10_000];
    file.write_all_at(&far, FILE_BYTES - 10_000).expect("write");
    pieces.insert(FILE_BYTES - 10_000, far);
    let units = check(&file, &pieces, FILE_BYTES);
    let ours = limits(&disk.point);
    println!("{}", ours.join("\n"));
    drop(file);
    disk.umount();

    disk.mount("ro");
    assert_eq!(check(&File::open(at("file")).expect("open"), &pieces, FILE_BYTES), units);
    disk.umount();
    crate::common::assert_clean(&disk.image);
    if let Some(mounted) = Kernel::mount(&disk.image, &disk.point, "ro") {
        let file = File::open(at("file")).expect("open");
        assert_eq!(check(&file, &pieces, FILE_BYTES), units, "st_blocks by the kernel");
        drop(file);
        drop(mounted);
    }
    let image = disk.image.with_file_name("kernel.img");
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F", "-t", "ext4"]).arg(&image).arg("1G").env("PATH", path());
    assert!(command.status().expect("mke2fs").success());
    if let Some(mounted) = Kernel::mount(&image, &disk.point, "rw") {
        assert_eq!(ours, limits(&disk.point), "limits as the kernel's ext4 has them");
        drop(mounted);
    }
    fs::remove_file(&image).expect("remove");
}
