//! Random bytes in metadata blocks, with checksums set right or not: the verdicts agree, and nothing hangs.
//!
//! `EXTANT_CHECK_SEEDS=FROM..TO` runs other seeds than the usual ones.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;

use extant_testing::{has_e2fsprogs, scratch};

use crate::damage::{Random, choose, damage_block};
use crate::disk::Disk;
use crate::tools::make_disk;
use crate::{Agreement, compare};

/// Patches per disk, each from its own seed.
const CASES: u64 = 120;

/// Changes a few bytes of one block; what was done.
fn damage(disk: &mut Disk, seed: u64) -> String {
    let blocks = disk.metadata();
    let mut random = Random::new(seed);
    let (block, kind) = choose(&blocks, &mut random);
    damage_block(disk, block, kind, &mut random)
}

/// Why Extant may find something where `e2fsck` does not, by words of the first finding.
const STRICTER: &[(&str, &str)] = &[
    ("orphan list", "`-n` does not read the list, but every mount does"),
    ("both a journal inode and a journal device", "the kernel refuses to mount this"),
    ("a hash is wrong", "`h_hash` is nothing to `e2fsck`, but by it the kernel finds a block to share"),
    ("unexpected depth", "the kernel refuses such a node"),
    ("the copy's", "`-n` leaves the copies alone, but a copy that does not fit is of no use"),
    ("too deep", "the kernel refuses such a node"),
    ("which is not as long", "the kernel refuses to read such a value"),
    ("a name contains NUL", "the kernel refuses such an attribute"),
    (
        "more than the inode holds",
        "of a file's size `e2fsck` does not ask whether its content reaches so far",
    ),
];

fn is_expected(agreement: Agreement, said: &str) -> bool {
    match agreement {
        Agreement::BothClean | Agreement::BothDamaged => true,
        // A compatible feature may be ignored, whatever it is.
        Agreement::Laxer => said.contains("unsupported feature"),
        Agreement::Stricter => {
            let first = said.lines().skip_while(|line| *line != "extant:").nth(1).unwrap_or_default();
            STRICTER.iter().any(|(words, _)| first.contains(words))
        }
    }
}

/// The seeds of the environment.
fn seeds() -> Option<Range<u64>> {
    let given = std::env::var("EXTANT_CHECK_SEEDS").ok();
    let bounds = given.as_deref().and_then(|text| text.split_once(".."));
    bounds.and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?))
}

fn verdicts_agree(options: &[&str], cases: Range<u64>) {
    if !has_e2fsprogs() {
        return;
    }
    let dir = scratch();
    let base = fs::read(make_disk(dir.path(), options, 12 << 10).expect("a disk")).expect("its bytes");
    let image = dir.path().join("damaged");
    let mut table: BTreeMap<String, u32> = BTreeMap::new();
    let mut differences = Vec::new();
    for seed in seeds().unwrap_or(cases) {
        let mut disk = Disk::new(base.clone());
        let done = damage(&mut disk, seed);
        fs::write(&image, &disk.bytes).expect("an image");
        let (agreement, said) = compare(&image);
        *table.entry(format!("{agreement:?}")).or_default() += 1;
        if !is_expected(agreement, &said) {
            differences.push(format!("seed {seed}: {agreement:?}: {done}\n{said}"));
        }
    }
    println!("{options:?}: {table:?}");
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn verdicts_agree_on_a_disk_with_checksums() {
    verdicts_agree(&["-b", "1024"], 0..CASES);
}

#[test]
fn verdicts_agree_on_a_disk_without_checksums() {
    verdicts_agree(&["-b", "1024", "-O", "^metadata_csum,uninit_bg"], 0..CASES);
}

#[test]
fn verdicts_agree_on_a_disk_of_block_maps() {
    verdicts_agree(&["-b", "4096", "-O", "^extent,^64bit,^flex_bg,^metadata_csum"], 0..CASES);
}

#[test]
fn verdicts_agree_on_a_disk_with_content_in_inodes() {
    verdicts_agree(&["-b", "1024", "-O", "inline_data"], 0..CASES);
}

#[test]
fn verdicts_agree_on_a_disk_with_values_in_inodes() {
    verdicts_agree(&["-b", "1024", "-O", "ea_inode"], 0..CASES);
}

#[test]
fn verdicts_agree_on_other_layouts() {
    let layouts: &[&[&str]] = &[
        &["-b", "1024", "-O", "bigalloc"],
        &["-b", "1024", "-O", "meta_bg,^resize_inode", "-g", "2048"],
        &["-b", "4096", "-I", "128", "-O", "^dir_index"],
        &["-b", "1024", "-O", "orphan_file,metadata_csum_seed"],
        &["-b", "2048", "-O", "^flex_bg,^filetype"],
    ];
    for (number, options) in (0..).zip(layouts) {
        verdicts_agree(options, number * CASES..number * CASES + CASES / 5);
    }
}
