//! Random disks of mke2fs, with features of all kinds that are served.

use extant_testing::Random;

use super::Chain;
use crate::disk::{Image, MIB, run, text};
use crate::tree::{age, census, small};

/// A disk with a tree; nothing without mke2fs.
pub fn random(seed: u64) -> Option<Chain> {
    let mut random = Random::new(seed);
    // mke2fs refuses some of what is drawn.
    for _ in 0..20 {
        let (arguments, size) = arguments(&mut random);
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let image = match Image::try_made(size * MIB, &words) {
            Ok(image) => image,
            Err(why) => {
                println!("refused: {why}");
                continue;
            }
        };
        if let Some(faults) = image.faults() {
            println!("mke2fs {words:?}: {faults}");
            continue;
        }
        fill(&image, seed, size, arguments.iter().any(|it| it.contains(",ea_inode")));
        let tree = census(&image.mount()).expect("a census");
        return Some(Chain { image, arguments, random, tree, links: 0 });
    }
    None
}

/// Arguments of mke2fs, and a size in MiB.
fn arguments(random: &mut Random) -> (Vec<String>, u64) {
    let mut one_of = |words: &[&str]| words[random.below(words.len() as u64) as usize].to_owned();
    let block = one_of(&["1024", "1024", "2048", "4096"]);
    let mut arguments = vec![format!("-b{block}"), one_of(&["-I256", "-I256", "-I512", "-I128"])];
    let is_narrow = arguments[1] == "-I128";
    let journal = one_of(&["yes", "yes", "yes", "no"]) == "yes";
    let mut features = vec![
        one_of(&["metadata_csum", "metadata_csum", "^metadata_csum", "^metadata_csum,^uninit_bg"]),
        one_of(&["sparse_super", "sparse_super", "sparse_super2"]),
    ];
    features.push(match one_of(&["extents", "extents", "extents", "none"]).as_str() {
        "none" => "^extents,^64bit".to_owned(),
        _ => one_of(&["64bit", "^64bit"]),
    });
    features.push(one_of(&["resize_inode", "resize_inode", "^resize_inode", "^resize_inode,meta_bg"]));
    match one_of(&["flex_bg", "flex_bg", "^flex_bg"]).as_str() {
        "flex_bg" => arguments.push(one_of(&["-G16", "-G2", "-G4", "-G64", "-G256"])),
        other => features.push(other.to_owned()),
    }
    if journal {
        // A quarter of the smallest disk, and the fewest blocks that mke2fs takes.
        arguments.push(if block == "1024" {
            one_of(&["-Jsize=1", "-Jsize=4"])
        } else {
            "-Jsize=4".to_owned()
        });
        features.push(one_of(&["has_journal", "has_journal", "fast_commit"]));
    } else {
        features.push("^has_journal".to_owned());
    }
    if !is_narrow {
        features.push(one_of(&["quota", "quota,project", "^quota", "^quota", "^quota"]));
        features.push(one_of(&["inline_data", "^inline_data", "^inline_data"]));
    }
    // Quotas and values in inodes are not served together.
    let has_quota = features.iter().any(|it| it.starts_with("quota"));
    features.push(one_of(if has_quota { &["ext_attr"] } else { &["ext_attr", "ext_attr", "ea_inode"] }));
    features.push(one_of(&["dir_index", "dir_index", "large_dir", "orphan_file"]));
    let rare = ["metadata_csum_seed", "stable_inodes", "verity", "mmp", "^huge_file,^dir_nlink"];
    if one_of(&["none", "none", "one"]) == "one" {
        features.push(one_of(&rare));
    }
    if one_of(&["blocks", "blocks", "blocks", "blocks", "clusters"]) == "clusters" {
        features.push("bigalloc".to_owned());
        arguments.push(one_of(&["-C8192", "-C16384", "-C65536"]));
    }
    if block == "1024" && one_of(&["all", "all", "few"]) == "few" {
        arguments.push(one_of(&["-g2048", "-g1024", "-g4096"]));
    }
    arguments.push(format!("-O{}", features.join(",")));
    let size = if block == "4096" { 100 + random.below(300) } else { 40 + random.below(80) };
    (arguments, size)
}

fn fill(image: &Image, seed: u64, size: u64, has_values: bool) {
    let fs = image.mount();
    if size > 60 {
        age(&fs, seed, 60, 30_000)
    } else {
        small(&fs, seed)
    }
    fs.create_dir("/ours").expect("a directory");
    fs.create_dir("/kernel").expect("a directory");
    fs.unmount().expect("unmount");
    if has_values {
        let value = image.path.with_extension("value");
        std::fs::write(&value, vec![9; 3 * 4096]).expect("a value");
        for number in [0, 3, 6, 9] {
            let request = format!("ea_set -f {} /d{number} user.large", text(&value));
            run("debugfs", &["-w", "-R", &request, text(&image.path)]).expect("debugfs");
        }
        // debugfs counts no block for them.
        let _ = run("e2fsck", &["-fy", text(&image.path)]);
    }
    image.assert_clean("filled");
}
