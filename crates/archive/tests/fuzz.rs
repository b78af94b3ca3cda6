//! Damaged disks through everything that walks a tree, and damaged archives: no panic, no hang, little memory, nothing written by
//! reading commands, and nothing outside of the directory that was named.
//!
//! A disk gets fields of up to four metadata blocks changed, with their checksums right, or a log of such blocks. It is packed, copied
//! to another disk and to the host, compared with what it was, and then an archive is unpacked into it and a directory of it removed. An archive gets bytes of
//! its headers and records changed, with the headers' checksums right.
//!
//! `EXTANT_FUZZ_TREES=N` tries so many of each, `EXTANT_FUZZ_FROM=N` begins with another.
#![cfg(target_os = "linux")]

#[path = "common/build.rs"]
mod build;
#[path = "../../extant/tests/check/damage.rs"]
mod damage;
#[path = "../../extant/tests/check/disk.rs"]
mod disk;
#[path = "../../extant/tests/check/fields.rs"]
mod fields;
#[path = "../../extant/tests/check/layouts.rs"]
mod layouts;
#[path = "../../extant/tests/check/tools.rs"]
mod tools;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use build::{archive, header, member, record, seal};
use damage::{Random, choose, damage_block};
use disk::{Disk, Kind};
use extant::mkfs::Mkfs;
use extant::{Filesystem, Mount};
use extant_archive::oci::{Changes, LayerWriter, Packing};
use extant_archive::{
    Census, CopyOptions, Difference, DiskFormat, DiskWalk, Extent, Extract, Import, Input, Manner, Source,
    TarReader, TarWriter, pour_concurrently,
};
use extant_block::{BlockDevice, MemoryDevice};
use extant_ondisk::FsBlock;
use extant_testing::{has_e2fsprogs, scratch};
use fields::{change_field, journal_blocks, write_log};
use layouts::LAYOUTS;
use tools::make_disk;

const TIME_MAX: Duration = Duration::from_secs(20);
/// For the whole process.
const MEMORY_MAX: u64 = 512 << 20;
const CASES: u64 = 100;

fn number_of(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Tries each case that the environment asks for and prints the number of one that fails; how many were tried, and how many of
/// them `try_case` served.
fn try_cases(what: &str, mut try_case: impl FnMut(u64) -> bool) -> (u64, u64) {
    let from = number_of("EXTANT_FUZZ_FROM").unwrap_or(0);
    let count = number_of("EXTANT_FUZZ_TREES").unwrap_or(CASES);
    let (start, mut served) = (Instant::now(), 0);
    for number in from..from + count {
        let begun = Instant::now();
        let tried = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| try_case(number)));
        let Ok(is_served) = tried else { panic!("{what}: EXTANT_FUZZ_FROM={number} EXTANT_FUZZ_TREES=1") };
        assert!(begun.elapsed() < TIME_MAX, "{what}: EXTANT_FUZZ_FROM={number} took {:?}", begun.elapsed());
        served += u64::from(is_served);
    }
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak = line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
    println!(
        "{what}: {count} in {} s, {served} served, at most {} MiB",
        start.elapsed().as_secs(),
        peak >> 20
    );
    assert!(peak < MEMORY_MAX, "{peak} bytes");
    (count, served)
}

fn device_of(bytes: &[u8]) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(bytes.len() as u64));
    device.write_at(0, bytes).unwrap();
    device
}

fn content(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

fn mount(device: Arc<MemoryDevice>, read_only: bool) -> Option<Filesystem> {
    Mount::new().background(false).read_only(read_only).open_device(device).ok()
}

fn empty_disk() -> Filesystem {
    let device = Arc::new(MemoryDevice::new(24 << 20));
    Mkfs::new().format(&*device).unwrap();
    mount(device, false).unwrap()
}

struct Base {
    bytes: Vec<u8>,
    blocks: Vec<(FsBlock, Kind)>,
    journal: Vec<FsBlock>,
}

impl Base {
    fn new(dir: &Path, layout: &[&str]) -> Option<Self> {
        let bytes = fs::read(make_disk(dir, layout, 8 << 10)?).unwrap();
        let disk = Disk::new(bytes.clone());
        Some(Self { bytes, blocks: disk.metadata(), journal: journal_blocks(&disk) })
    }

    fn damaged(&self, random: &mut Random) -> Vec<u8> {
        let mut disk = Disk::new(self.bytes.clone());
        // While places on the disk are as they were.
        if random.below(4) == 0 {
            write_log(&mut disk, &self.journal, &self.blocks, random);
        }
        let mut chosen: Vec<_> = (0..=random.below(4)).map(|_| choose(&self.blocks, random)).collect();
        chosen.sort_by_key(|(_, kind)| matches!(kind, Kind::Descriptors | Kind::Superblock));
        for (block, kind) in chosen {
            if random.below(4) == 0 {
                damage_block(&mut disk, block, kind, random);
            } else {
                change_field(&mut disk, &self.blocks, (block, kind), random);
            }
        }
        disk.bytes
    }
}

/// Whether any of it worked is the disk's affair.
fn read_tree(fs: &Filesystem, host: &Path) {
    let walk = || DiskWalk::new(fs, "/");
    let _ = walk().pour(&mut TarWriter::new(std::io::sink()), Extent::Everything);
    let other = empty_disk();
    if let Ok(mut import) = Import::new(&other, "/", Manner::Copy(CopyOptions::archive()), None) {
        let _ = pour_concurrently(walk(), &mut import, Extent::Everything);
    }
    fs::create_dir_all(host.join("in/target")).unwrap();
    fs::write(host.join("beside"), "kept").unwrap();
    let mut extract = Extract::new(host.join("in/target"), CopyOptions::archive()).unwrap();
    let _ = walk().pour(&mut extract, Extent::Everything);
    drop(extract);
    let names = |path: &Path| fs::read_dir(path).unwrap().count();
    assert_eq!((names(host), names(&host.join("in"))), (2, 1), "the copy has left its directory");
    assert_eq!(fs::read(host.join("beside")).unwrap(), b"kept");
}

/// Compares the disk with what it was, and packs what differs, both ways.
fn compare_trees(base: &Filesystem, fs: &Filesystem) {
    for (base, disk) in [(base, fs), (fs, base)] {
        let difference = Difference::new(base, disk);
        let _ = difference.visit(|| {}, |_| Ok(()));
        let mut writer = LayerWriter::new(std::io::sink(), Packing::None);
        let _ = Changes::new(difference).pour(&mut writer, Extent::Everything);
    }
}

fn change_tree(fs: &Filesystem, tar: &[u8]) {
    if let (Ok(mut import), Ok(input)) =
        (Import::new(fs, "/", Manner::Unpack, None), Input::stream(std::io::Cursor::new(tar.to_vec())))
    {
        let _ = TarReader::new(input).pour(&mut import, Extent::Everything);
    }
    let _ = fs.remove_dir_all("/sub");
    let _ = fs.remove_dir_all("/many");
}

#[test]
fn damaged_disks_are_packed_copied_unpacked_into_and_removed_from() {
    if !has_e2fsprogs() {
        return;
    }
    let dir = scratch();
    let bases: Vec<Base> = LAYOUTS.iter().filter_map(|layout| Base::new(dir.path(), layout)).collect();
    let tar = archive(&members());
    try_cases("damaged disks", |number| {
        let mut random = Random::new(number);
        let base = &bases[number as usize % bases.len()];
        let device = device_of(&base.damaged(&mut random));
        let before = content(&device);
        let host = dir.path().join("host");
        fs::create_dir(&host).unwrap();
        if let Some(fs) = mount(device.clone(), true) {
            read_tree(&fs, &host);
            compare_trees(&mount(device_of(&base.bytes), true).unwrap(), &fs);
        }
        assert!(content(&device) == before, "reading has written");
        assert!(std::process::Command::new("rm").arg("-rf").arg(&host).status().unwrap().success());
        let served = mount(device, false);
        if let Some(fs) = &served {
            change_tree(fs, &tar);
            // It may have stopped writing.
            let _ = fs.sync();
        }
        served.is_some()
    });
}

/// One of each kind of member.
fn members() -> Vec<Vec<u8>> {
    let holes = [("major", "1"), ("minor", "0"), ("name", "sparse"), ("realsize", "100000")];
    let holes: Vec<u8> = holes
        .iter()
        .flat_map(|(keyword, value)| record(&format!("GNU.sparse.{keyword}"), value.as_bytes()))
        .collect();
    let map = [("size", "9000"), ("numblocks", "2"), ("map", "0,512,4096,512")];
    let map: Vec<u8> = map
        .iter()
        .flat_map(|(keyword, value)| record(&format!("GNU.sparse.{keyword}"), value.as_bytes()))
        .collect();
    let more = [
        record("path", format!("{}file", "a/long/way/".repeat(20)).as_bytes()),
        record("mtime", b"1700000000.25"),
        record("SCHILY.xattr.user.note", b"value"),
        record("SCHILY.acl.access", b"user::rw-,user:7:r--,group::r--,mask::r--,other::---"),
        record("uid", b"4000000000"),
    ];
    let mut old = header(b"old", b'S', 1024);
    old[257..265].copy_from_slice(b"ustar  \0");
    old[386..386 + 47].copy_from_slice(b"00000000000\x0000000001000\x0000000010000\x0000000001000");
    old[483..495].copy_from_slice(b"00000020000\0");
    seal(&mut old);
    old.extend([b'o'; 1024]);
    let mut hard = header(b"sub/hard", b'1', 0);
    hard[157..164].copy_from_slice(b"sub/new");
    seal(&mut hard);
    let mut symlink = header(b"sub/link", b'2', 0);
    symlink[157..160].copy_from_slice(b"new");
    seal(&mut symlink);
    let content =
        [format!("{:<512}", "2\n0\n512\n4096\n512\n").replace(' ', "\0").as_bytes(), &[b's'; 1024]].concat();
    vec![
        member(b"g", b'g', &record("comment", b"of all")),
        member(b"sub/", b'5', b""),
        member(b"sub/new", b'0', &[b'n'; 3000]),
        hard,
        symlink,
        member(b"x", b'x', &more.concat()),
        member(b"short", b'0', b"content"),
        member(b"x", b'x', &holes),
        member(b"sparse", b'0', &content),
        member(b"x", b'x', &map),
        member(b"mapped", b'0', &[b'm'; 1024]),
        old,
        member(b"L", b'L', "long/".repeat(60).trim_end_matches('/').as_bytes()),
        member(b"fifo", b'6', b""),
        member(b"null", b'3', b""),
    ]
}

fn damaged_archive(random: &mut Random) -> Vec<u8> {
    let mut members = members();
    for _ in 0..=random.below(4) {
        let chosen = random.below(members.len());
        match random.below(8) {
            0 => members.swap(chosen, 0),
            1 => members.push(members[chosen].clone()),
            _ => {
                let bytes = &mut members[chosen];
                let reach = [512, bytes.len()][random.below(2)];
                let at = random.below(reach);
                let digits = b"0123456789 ,=\n/.\0\x80\xff";
                bytes[at] = match random.below(3) {
                    0 => random.below(256) as u8,
                    1 => bytes[at] ^ 1 << random.below(8),
                    _ => digits[random.below(digits.len())],
                };
                seal(&mut bytes[..512]);
            }
        }
    }
    let mut bytes = archive(&members);
    if random.below(10) == 0 {
        bytes.truncate(random.below(bytes.len()));
    }
    bytes
}

/// Counts an archive, unpacks it into an empty disk and packs it again; the error that unpacking ended with.
fn try_archive(bytes: &[u8]) -> Result<(), extant_archive::Error> {
    let reader = || Input::stream(std::io::Cursor::new(bytes.to_vec())).map(TarReader::new);
    let mut census = Census::new(DiskFormat { block_size: 4096, cluster_size: 4096, inode_size: 256 });
    let counted = reader().and_then(|mut reader| reader.pour(&mut census, Extent::Entries));
    let fs = empty_disk();
    fs.create_dir("/target").unwrap();
    let mut import = Import::new(&fs, "/target", Manner::Unpack, None).unwrap();
    let unpacked = reader().and_then(|reader| pour_concurrently(reader, &mut import, Extent::Everything));
    drop(import);
    assert_eq!(fs.read_dir("/").unwrap().count(), 2, "what was unpacked has left its directory");
    let mut writer = TarWriter::new(std::io::sink());
    let packed = reader().and_then(|mut reader| reader.pour(&mut writer, Extent::Everything));
    fs.sync().unwrap();
    assert_eq!(fs.check(&mut |_| {}).unwrap(), []);
    counted?;
    packed?;
    unpacked.map(drop)
}

#[test]
fn damaged_archives_are_counted_unpacked_and_packed_again() {
    // Each member unpacks, so that damage to one of them does not hide those after it.
    try_archive(&archive(&members())).expect("an archive without damage");
    let (count, served) = try_cases("damaged archives", |number| {
        try_archive(&damaged_archive(&mut Random::new(number))).is_ok()
    });
    // 79 % of 2,000 are. A case that is run alone, to repeat a failure, need not be.
    assert!(count < CASES || served * 2 > count, "only {served} of {count} archives were unpacked whole");
}
