//! Archives that ask for more than they hold: each is refused by name, or served, and none takes much memory.

#[path = "common/build.rs"]
mod build;

use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use build::{archive, header, member, record, seal};
use extant::Mount;
use extant::mkfs::Mkfs;
use extant_archive::{
    Census, DiskFormat, Extent, Import, Input, Manner, Result, Source, TarReader, pour_concurrently,
};
use extant_block::MemoryDevice;

/// For the whole process, of which one test runs at a time.
const MEMORY_MAX: u64 = 512 << 20;

static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn reader(bytes: &[u8]) -> Result<TarReader> {
    Ok(TarReader::new(Input::stream(std::io::Cursor::new(bytes.to_vec()))?))
}

/// Counts the archive and unpacks it into a disk, as `mkfs -d` does. The error of either.
fn unpack(bytes: &[u8]) -> Result<()> {
    let mut census = Census::new(DiskFormat { block_size: 4096, cluster_size: 4096, inode_size: 256 });
    reader(bytes)?.pour(&mut census, Extent::Entries)?;
    let device = Arc::new(MemoryDevice::new(48 << 20));
    Mkfs::new().format(&*device).unwrap();
    let fs = Mount::new().background(false).open_device(device).unwrap();
    let mut import = Import::new(&fs, "/", Manner::Unpack, None)?;
    pour_concurrently(reader(bytes)?, &mut import, Extent::Everything)
}

/// The most memory that this process ever had stays small.
fn assert_small() {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak = line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
    assert!(peak < MEMORY_MAX, "{} MiB", peak >> 20);
}

fn assert_refused(bytes: &[u8], words: &str) {
    let said = unpack(bytes).expect_err(words).to_string();
    assert!(said.contains(words) && said.len() < 1000, "{said}");
    assert_small();
}

/// `count` empty files.
fn files(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| member(format!("f{number}").as_bytes(), b'0', b"")).collect()
}

#[test]
fn records_of_global_headers_do_not_pile_up() {
    let _alone = alone();
    let global =
        |number: usize| member(b"g", b'g', &record(&format!("SCHILY.xattr.user.n{number}"), &[b'v'; 900]));
    let many: Vec<_> = (0..150).map(global).chain(files(4000)).collect();
    assert_refused(&archive(&many), "archive, byte 109056: global headers with more than 64 KiB of records");
    // The same record again and again is one.
    let same: Vec<_> =
        (0..2000).map(|_| member(b"g", b'g', &record("comment", &[b'c'; 60_000]))).chain(files(10)).collect();
    assert_refused(
        &archive(&same),
        "archive, byte 16877056: extended headers of more than 16 MiB before one member",
    );
    unpack(&archive(&[&same[..200], &same[2000..]].concat())).unwrap();
}

#[test]
fn a_global_map_of_holes_is_none_of_every_file() {
    let _alone = alone();
    let map = "0,0,".repeat(15_000);
    let global = member(b"g", b'g', &record("GNU.sparse.map", map.as_bytes()));
    let members: Vec<_> = [global].into_iter().chain(files(1000)).collect();
    unpack(&archive(&members)).unwrap();
    assert_small();
}

#[test]
fn maps_of_holes_are_bounded_in_each_form() {
    let _alone = alone();
    let numbers = "1,1,".repeat((1 << 20) + 1);
    let own = member(b"x", b'x', &record("GNU.sparse.map", numbers.as_bytes()));
    let file = member(b"sparse", b'0', b"");
    let place = |bytes: usize| format!("archive, byte {bytes}, sparse: more than 1048576 pieces");
    assert_refused(&archive(&[own.clone(), file]), &place(own.len()));
    let counted = [
        record("GNU.sparse.major", b"1"),
        record("GNU.sparse.minor", b"0"),
        record("GNU.sparse.realsize", b"9"),
    ];
    let counted = member(b"x", b'x', &counted.concat());
    let file = member(b"sparse", b'0', format!("{:<512}", "4000000000\n0\n").as_bytes());
    assert_refused(&archive(&[counted.clone(), file]), &place(counted.len()));
    let mut old = header(b"sparse", b'S', 0);
    old[257..265].copy_from_slice(b"ustar  \0");
    old[482] = 1;
    old[483..495].copy_from_slice(b"77777777777\0");
    seal(&mut old);
    let mut block = vec![0; 512];
    for piece in 0..21 {
        block[piece * 24..piece * 24 + 23].copy_from_slice(b"00000000001\x0000000000000");
    }
    block[504] = 1;
    assert_refused(&[old, block.repeat(50_000)].concat(), &place(0));
}

#[test]
fn many_members_with_large_maps_wait_for_each_other() {
    let _alone = alone();
    let map: String = (0..20_000).map(|piece| format!("{},0,", piece * 2)).collect();
    let records = [record("GNU.sparse.size", b"100000"), record("GNU.sparse.map", map.as_bytes())].concat();
    let sparse = |number: usize| {
        [member(b"x", b'x', &records), member(format!("s{number}").as_bytes(), b'0', b"")].concat()
    };
    let members: Vec<_> = (0..300).map(sparse).collect();
    unpack(&archive(&members)).unwrap();
    assert_small();
}

#[test]
fn paths_and_records_are_bounded() {
    let _alone = alone();
    let path = "d/".repeat(7 << 20);
    let named = member(b"x", b'x', &record("path", path.as_bytes()));
    assert_refused(&archive(&[named, member(b"f", b'0', b"")]), "a path of more than 65536 bytes");
    let deep = "d/".repeat(32_000);
    let named = member(b"x", b'x', &record("path", deep.as_bytes()));
    let said = unpack(&archive(&[named, member(b"f", b'0', b"")])).unwrap_err();
    assert!(matches!(
        said,
        extant_archive::Error::Disk { source: extant::Error::NoInodes | extant::Error::NoSpace, .. }
    ));
    assert_small();
    let small = member(b"x", b'x', &b"5 a=\n".repeat(300_000));
    let reason = "more than 262144 records in an extended header";
    assert_refused(&archive(&[small, member(b"f", b'0', b"")]), reason);
    let long: Vec<_> = (0..20).map(|_| member(b"L", b'L', &[b'n'; 1 << 20])).chain(files(1)).collect();
    assert_refused(&archive(&long), "more than 16 MiB before one member");
}

/// A piece of one byte in each block: what an archive of few bytes unpacks to fills the disk, and no more memory.
#[test]
fn a_file_of_many_small_pieces_takes_little_memory() {
    let _alone = alone();
    let map: String = (0..9000).map(|piece| format!("{},1,", piece * 8192)).collect();
    let records =
        [record("GNU.sparse.size", b"100000000"), record("GNU.sparse.map", map.as_bytes())].concat();
    let sparse = [member(b"x", b'x', &records), member(b"sparse", b'0', &[b'c'; 9000])];
    unpack(&archive(&sparse)).unwrap();
    assert_small();
}
