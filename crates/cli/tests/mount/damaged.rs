//! Disks whose bytes no ext4 writes, mounted: what a request for them costs is bounded, and others are answered meanwhile.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, SeekFrom, StatxFlags, seek, statx};
use rustix::io::Errno;

use crate::common::{Disk, can_mount, path, run};

/// Blocks of this size have the most tables that a walk over a file can meet: two million.
const BLOCK: u64 = 8192;
/// The largest file that is mapped by block numbers.
const FILE_BLOCKS: u64 = u32::MAX as u64 - 1;
/// Behind the blocks that the inode names itself.
const BEHIND: u64 = 12 * BLOCK;
/// Other files.
const OTHERS: u32 = 16;
/// The longest time of any request on a damaged disk.
const END_MAX: Duration = Duration::from_secs(20);
/// The longest time of another request meanwhile: each second one on a machine that others use too, 99 of a hundred on a quiet
/// one.
const OTHERS_MAX: Duration = Duration::from_millis(20);
/// How long the requests about the file are repeated.
const ASKED: Duration = Duration::from_secs(3);

fn debugfs(image: &Path, request: &str) -> String {
    let mut command = Command::new("debugfs");
    let output =
        command.args(["-w", "-R", request]).arg(image).env("PATH", path()).output().expect("debugfs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A disk with a file of the largest size whose tables are three blocks: each entry of the double and triple indirect
/// blocks names the one below, and the lowest table holds `entry`, or its own number. None without debugfs.
fn disk_with_shared_tables(entry: Option<u32>) -> Option<Disk> {
    if Command::new("debugfs").arg("-V").env("PATH", path()).output().is_err() {
        println!("skipped: debugfs");
        return None;
    }
    let disk = Disk::new("64M");
    let image = disk.image.to_str().expect("path");
    let features = "^extents,^64bit,^metadata_csum,^huge_file";
    run(&["mkfs", "-q", "-F", "-b", &BLOCK.to_string(), "-O", features, image, "64M"]);
    let source = disk.image.with_extension("source");
    fs::write(&source, vec![7; 3 * BLOCK as usize]).expect("a file");
    debugfs(&disk.image, &format!("write {} file", source.display()));
    let blocks = debugfs(&disk.image, "blocks file");
    let blocks: Vec<u32> = blocks.split_whitespace().map(|block| block.parse().expect("a block")).collect();
    let [leaf, middle, top] = blocks[..] else { panic!("{blocks:?}") };
    let device = File::options().write(true).open(&disk.image).expect("the image");
    for (table, entry) in [(leaf, entry.unwrap_or(leaf)), (middle, leaf), (top, middle)] {
        let entries = entry.to_le_bytes().repeat(BLOCK as usize / 4);
        device.write_all_at(&entries, u64::from(table) * BLOCK).expect("a table");
    }
    for (field, value) in [("block[IND]", leaf), ("block[DIND]", middle), ("block[TIND]", top)] {
        debugfs(&disk.image, &format!("set_inode_field file {field} {value}"));
    }
    debugfs(&disk.image, &format!("set_inode_field file size {}", FILE_BLOCKS * BLOCK));
    Some(disk)
}

/// Asks the server for the attributes of files until it is stopped; how long each request took, in order.
fn ask_for_others(point: &Path, ends: &AtomicBool) -> Vec<Duration> {
    let mut took = Vec::new();
    for index in (0..OTHERS).cycle() {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        let start = Instant::now();
        let name = point.join(format!("other{index}"));
        // Not what the kernel remembers.
        statx(CWD, &name, AtFlags::STATX_FORCE_SYNC, StatxFlags::ALL).expect("attributes");
        took.push(start.elapsed());
        std::thread::sleep(Duration::from_millis(1));
    }
    took.sort();
    took
}

/// Looks for data and for holes of the damaged file again and again: what it finds, and how long that took.
fn look_for_holes(file: &File, found: &Sender<([Result<u64, Errno>; 2], Duration)>) {
    let asked = Instant::now();
    while asked.elapsed() < ASKED {
        let start = Instant::now();
        let answers = [SeekFrom::Data(BEHIND), SeekFrom::Hole(BEHIND)].map(|from| seek(file, from));
        // If this took too long, the receiver has already stopped waiting.
        let _ = found.send((answers, start.elapsed()));
    }
}

/// Has a thread look for data and holes of the damaged file, beside one that asks for other files; how long `percent` of a hundred
/// of those took at most.
fn seek_beside_others(disk: &Disk, expected: [Result<u64, Errno>; 2], percent: usize) -> Duration {
    let point = &disk.point;
    (0..OTHERS).for_each(|index| fs::write(point.join(format!("other{index}")), "x").expect("a file"));
    let file = File::open(point.join("file")).expect("open");
    assert_eq!(file.metadata().expect("stat").len(), FILE_BLOCKS * BLOCK);
    let (sender, answers) = channel();
    // Left behind if it hangs; it ends with the server then.
    std::thread::spawn(move || look_for_holes(&file, &sender));
    let ends = AtomicBool::new(false);
    let (took, longest) = std::thread::scope(|scope| {
        let others = scope.spawn(|| ask_for_others(point, &ends));
        let mut longest = Duration::ZERO;
        let end = loop {
            match answers.recv_timeout(END_MAX) {
                Ok((found, took)) if found == expected => longest = longest.max(took),
                Err(RecvTimeoutError::Disconnected) => break Ok(()),
                other => break Err(other),
            }
        };
        ends.store(true, Ordering::Relaxed);
        let took = others.join().expect("the others are answered");
        end.expect("data and holes as expected, and in time");
        (took, longest)
    });
    let of = |percent| took[took.len() * percent / 100];
    let (half, most, count) = (of(50), of(99), took.len());
    println!("both looks took {longest:?} at most; of {count} others half {half:?}, 99 % {most:?} at most");
    of(percent)
}

/// Does that on a disk whose tables are full, and on one whose tables are empty.
fn seeks_hold_up_no_other(percent: usize) {
    // All tables full: more blocks are mapped than the disk has. All empty: there are more tables than it has blocks.
    let damaged = Err(Errno::UCLEAN);
    for (entry, expected) in [(None, [Ok(BEHIND), damaged]), (Some(0), [damaged, damaged])] {
        if !can_mount() {
            return;
        }
        let Some(mut disk) = disk_with_shared_tables(entry) else { return };
        disk.serve();
        let took = seek_beside_others(&disk, expected, percent);
        disk.umount();
        disk.wait();
        assert!(took <= OTHERS_MAX, "{percent} % of the others took up to {took:?}");
    }
}

#[test]
fn looking_for_holes_over_shared_tables_ends_and_holds_up_no_other() {
    seeks_hold_up_no_other(50);
}

#[test]
#[ignore = "needs a machine with nothing else to do; make test-scale"]
fn looking_for_holes_over_shared_tables_holds_up_hardly_any_other() {
    seeks_hold_up_no_other(99);
}
