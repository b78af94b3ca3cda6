//! One disk, changed in turn by the running kernel and by the engine.
//!
//! Each side works at random, leaves its journal dirty, and lists what it sees. The other side must see the same
//! before it goes on. At the end of each round `e2fsck -fn` must find a replayed copy clean. In two of three rounds the engine
//! has a page cache, roomy or tight.

mod kernel;
mod listing;
mod ops;
mod ours;

use std::path::Path;
use std::process::Command;

use listing::Listing;
use ops::Random;

const ROUNDS: u64 = 36;
const OPS_PER_TURN: usize = 60;
/// Bytes of the engine's page cache, one per round of the same disk in turn.
const PAGE_CACHES: [u64; 3] = [0, 16 << 20, 32 << 10];

/// Sets of mkfs options, one per round in turn.
const DISKS: &[&[&str]] = &[
    &["-b", "1024"],
    &["-b", "4096"],
    &["-b", "2048", "-O", "^64bit"],
    &["-b", "1024", "-O", "^metadata_csum,uninit_bg"],
    &["-b", "4096", "-O", "^metadata_csum,^64bit"],
    &["-b", "4096", "-I", "128"],
    &["-b", "1024", "-I", "1024", "-N", "2048"],
    &["-b", "4096", "-O", "^has_journal"],
    &["-b", "1024", "-O", "^dir_index"],
    &["-b", "4096", "-O", "^flex_bg,^resize_inode,meta_bg"],
    &["-b", "1024", "-O", "orphan_file,metadata_csum_seed"],
    &["-b", "4096", "-O", "^huge_file,^dir_nlink,^large_file", "-G", "4"],
];

#[test]
fn the_kernel_and_the_engine_see_the_same_disk() {
    if !kernel::is_available() {
        println!("skipped: needs root and loop devices");
        return;
    }
    let scratch = tempfile::tempdir_in("/dev/shm").expect("scratch on /dev/shm");
    for round in 0..ROUNDS {
        let options = DISKS[(round as usize) % DISKS.len()];
        let pages = PAGE_CACHES[(round as usize / DISKS.len()) % PAGE_CACHES.len()];
        exchange(scratch.path(), options, pages, round);
    }
    println!("{ROUNDS} rounds, each with both journals left dirty: the same tree on both sides, clean");
}

fn exchange(scratch: &Path, options: &[&str], pages: u64, seed: u64) {
    let image = scratch.join("disk.img");
    let what = format!("round {seed}, mke2fs {}, {pages} bytes of pages", options.join(" "));
    std::fs::File::create(&image).and_then(|file| file.set_len(48 << 20)).expect("image");
    let mut mkfs = Command::new("mke2fs");
    mkfs.args(["-q", "-F", "-t", "ext4", "-J", "size=4"]);
    if options.contains(&"^has_journal") {
        mkfs = Command::new("mke2fs");
        mkfs.args(["-q", "-F", "-t", "ext4"]);
    }
    let made = mkfs.args(options).arg(&image).output().expect("mke2fs runs");
    assert!(made.status.success(), "{what}: {}", String::from_utf8_lossy(&made.stderr));

    let mut random = Random::new(seed);
    let mut seen: Option<Listing> = None;
    for turn in 0..4 {
        let listings = if (turn + seed).is_multiple_of(2) {
            kernel::turn(&image, scratch, &mut random, OPS_PER_TURN, !options.contains(&"^has_journal"))
        } else {
            ours::turn(&image, pages, &mut random, OPS_PER_TURN, !options.contains(&"^has_journal"))
        };
        if let Some(before) = seen {
            before.assert_equals(&listings.found, &format!("{what}, turn {turn}"));
        }
        seen = Some(listings.left);
        assert_clean(&image, scratch, &format!("{what}, after turn {turn}"));
    }
}

/// That a copy is clean once its journal is replayed: by us for its first judge, by `e2fsck` for the second.
fn assert_clean(image: &Path, scratch: &Path, what: &str) {
    let copy = scratch.join("copy.img");
    std::fs::copy(image, &copy).expect("copy");
    extant::Mount::new().background(false).open(&copy).and_then(extant::Filesystem::unmount).expect(what);
    e2fsck(&copy, what);
    std::fs::copy(image, &copy).expect("copy");
    let replayed = Command::new("e2fsck").args(["-fy", "-E", "journal_only"]).arg(&copy).output();
    assert!(
        replayed.expect("e2fsck runs").status.code().is_some_and(|code| code <= 1),
        "{what}: replay by e2fsck"
    );
    // e2fsck's replay leaves orphans and the counts of the superblock as they are; a mount mends both.
    extant::Mount::new().background(false).open(&copy).and_then(extant::Filesystem::unmount).expect(what);
    e2fsck(&copy, what);
}

fn e2fsck(image: &Path, what: &str) {
    let output = Command::new("e2fsck").arg("-fn").arg(image).output().expect("e2fsck runs");
    let words = String::from_utf8_lossy(&output.stdout);
    let clean = output.status.success() && !words.contains("Fix?") && !words.contains("WARNING");
    assert!(clean, "{what}: not clean\n{words}");
}
