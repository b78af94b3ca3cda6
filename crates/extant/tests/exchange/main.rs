//! One disk, changed in turn by the running kernel and by the engine.
//!
//! Each side works at random, leaves its journal dirty, and lists what it sees. The other side must see the same
//! before it goes on. At the end of each round `e2fsck -fn` must find a replayed copy clean. In two of three rounds the engine
//! has a page cache, roomy or tight.
//!
//! `EXTANT_EXCHANGE_SETS=60` adds rounds on disks with so many random sets of features, and `EXTANT_EXCHANGE_FROM=N` begins with
//! another one.
#![cfg(target_os = "linux")]

mod kernel;
mod listing;
mod ops;
mod ours;
mod small;
mod values;

use std::path::{Path, PathBuf};
use std::process::Command;

use extant_rt::share_work;
use extant_testing::Random;
use listing::Listing;

const ROUNDS: usize = 54;
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
    &["-b", "1024", "-O", "inline_data"],
    &["-b", "4096", "-I", "1024", "-N", "2048", "-O", "inline_data,^metadata_csum"],
    &["-b", "1024", "-O", "ea_inode"],
    &["-b", "4096", "-O", "ea_inode,^extent,^64bit,^metadata_csum,orphan_file"],
    &["-b", "1024", "-O", "bigalloc", "-C", "16384"],
    &["-b", "4096", "-O", "bigalloc,orphan_file", "-C", "65536"],
];

/// A random set of mkfs options that Linux and the engine both write.
fn random_options(seed: u64) -> Vec<String> {
    let mut random = Random::new(seed ^ 0x5E75);
    let mut one_of = |choices: &[&str]| choices[random.below(choices.len() as u64) as usize].to_owned();
    let block = one_of(&["1024", "2048", "4096"]);
    let inode = one_of(&["128", "256", "256", "512", "1024"]);
    let sums = one_of(&[
        "metadata_csum",
        "metadata_csum,metadata_csum_seed",
        "^metadata_csum,uninit_bg",
        "^metadata_csum,^uninit_bg",
    ]);
    // Neither side zeroes or moves ranges of files without extents.
    let maps = one_of(&["extent,64bit", "extent,^64bit"]);
    let groups = one_of(&[
        "flex_bg",
        "flex_bg,^resize_inode",
        "^flex_bg",
        "flex_bg,meta_bg,^resize_inode",
        "^flex_bg,meta_bg,^resize_inode",
    ]);
    let journal = one_of(&["has_journal", "has_journal", "has_journal,orphan_file", "^has_journal"]);
    let names = one_of(&["dir_index", "^dir_index", "dir_index,^dir_nlink", "dir_index,large_dir"]);
    let sizes = one_of(&["huge_file", "^huge_file", "huge_file,^large_file"]);
    let copies = one_of(&["sparse_super", "^sparse_super,^resize_inode", "sparse_super2,^resize_inode"]);
    // Which needs room behind the fields.
    let inline = match inode.as_str() {
        "128" => "^inline_data".to_owned(),
        _ => one_of(&["inline_data", "^inline_data"]),
    };
    // With both features Linux 6.18 counts more references to values than there are.
    let values = match inline.as_str() {
        "inline_data" => "^ea_inode".to_owned(),
        _ => one_of(&["ea_inode", "^ea_inode"]),
    };
    let has_flex = !groups.contains("^flex_bg");
    let clusters = one_of(&["^bigalloc", "^bigalloc", "bigalloc"]);
    let cluster_bytes = one_of(&["8192", "16384", "65536"]);
    let has_clusters = clusters == "bigalloc";
    let features = [sums, maps, groups, journal, names, sizes, copies, inline, values, clusters].join(",");
    let mut options = vec!["-b".to_owned(), block, "-I".to_owned(), inode, "-O".to_owned(), features];
    if has_clusters {
        options.extend(["-C".to_owned(), cluster_bytes]);
    }
    match random.below(4) {
        0 if !has_clusters => options.extend(["-g", "4096"].map(str::to_owned)),
        1 if has_flex => options.extend(["-G", "4"].map(str::to_owned)),
        2 => options.extend(["-N", "3000"].map(str::to_owned)),
        _ => {}
    }
    options
}

#[test]
fn the_kernel_and_the_engine_see_the_same_disk() {
    if !kernel::is_available() {
        println!("skipped: needs root and loop devices");
        return;
    }
    share_work(2, 0..ROUNDS, |round| {
        let options = DISKS[round % DISKS.len()];
        let pages = PAGE_CACHES[(round / DISKS.len()) % PAGE_CACHES.len()];
        exchange(options, pages, round as u64);
    });
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let sets: usize = number("EXTANT_EXCHANGE_SETS").unwrap_or(0);
    let from: usize = number("EXTANT_EXCHANGE_FROM").unwrap_or(0);
    share_work(2, from..from + sets, |set| {
        let options = random_options(set as u64);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        println!("set {set}: {}", options.join(" "));
        exchange(&options, PAGE_CACHES[set % PAGE_CACHES.len()], (ROUNDS + set) as u64);
    });
    println!("{sets} random sets of features: the same tree on both sides, clean");
    println!("{ROUNDS} rounds, each with both journals left dirty: the same tree on both sides, clean");
}

fn exchange(options: &[&str], pages: u64, seed: u64) {
    let scratch = tempfile::tempdir_in("/dev/shm").expect("scratch on /dev/shm");
    let scratch = scratch.path();
    let what = format!("round {seed}, mke2fs {}, {pages} bytes of pages", options.join(" "));
    let (image, has_journal) = format(scratch, options);
    let mut random = Random::new(seed);
    let mut seen: Option<Listing> = None;
    for turn in 0..4 {
        // Every other time nothing stays in memory that can be read again.
        let mount = extant::Mount::new().page_cache_bytes(pages).cache_bytes(random.below(2) << 26);
        let ops = (0..OPS_PER_TURN).map(|_| ops::draw(&mut random));
        let listings = if (turn + seed).is_multiple_of(2) {
            kernel::turn(&image, scratch, ops, has_journal)
        } else {
            ours::turn(&image, &mount, ops, has_journal)
        };
        if let Some(before) = seen {
            before.assert_equals(&listings.found, &format!("{what}, turn {turn}"));
        }
        seen = Some(listings.left);
        assert_clean(&image, scratch, &format!("{what}, after turn {turn}"));
    }
}

/// A disk, and whether it has a journal.
fn format(scratch: &Path, options: &[&str]) -> (PathBuf, bool) {
    let image = scratch.join("disk.img");
    std::fs::File::create(&image).and_then(|file| file.set_len(48 << 20)).expect("image");
    let mut mkfs = Command::new("mke2fs");
    mkfs.args(["-q", "-F", "-t", "ext4"]);
    let has_journal = !options.iter().any(|option| option.contains("^has_journal"));
    if has_journal {
        mkfs.args(["-J", "size=4"]);
    }
    let made = mkfs.args(options).arg(&image).output().expect("mke2fs runs");
    assert!(made.status.success(), "{options:?}: {}", String::from_utf8_lossy(&made.stderr));
    (image, has_journal)
}

/// Asserts that a copy is clean once its journal is replayed: by Extant for the first check, by `e2fsck` for the second.
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
