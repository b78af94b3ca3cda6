//! `mkfs --fs-verity`, with `fsverity` as the judge of the hashes, and `debugfs` and `e2fsck` as those of the disk.

use std::fs;

use super::bench::{Bench, DISK, tool};

/// Sizes around blocks of content, of the tree's levels, and of 64 KiB.
const SIZES: [u64; 12] = [
    0,
    1,
    4096,
    4097,
    65535,
    65536,
    65537,
    128 * 4096,
    128 * 4096 + 1,
    1 << 20,
    128 * 128 * 4096,
    128 * 128 * 4096 + 1,
];

fn new_bench() -> Option<Bench> {
    let tools = ["fsverity", "debugfs", "e2fsck"].map(tool);
    tools.iter().all(Option::is_some).then(|| {
        let bench = Bench::empty();
        fs::create_dir(bench.path("tree")).expect("directory");
        let mut list = String::from("# all of them\n\n");
        for size in SIZES {
            let content: Vec<u8> = (0..size).map(|at| (at / 4096 * 31 + at % 251) as u8).collect();
            fs::write(bench.path(&format!("tree/{size}")), content).expect("file");
            list += &format!("/{size}\n");
        }
        fs::write(bench.path("tree/plain"), vec![7; 9000]).expect("file");
        fs::write(bench.path("list"), list).expect("list");
        bench
    })
}

/// The bytes of a file's blocks from a multiple of 64 KiB behind its end on.
fn behind_end(bench: &Bench, image: &[u8], path: &str, size: u64) -> Vec<u8> {
    let first = size.next_multiple_of(65536) / 4096;
    let mut blocks: Vec<(u64, u64)> = Vec::new();
    for line in bench.debugfs(DISK, &format!("dump_extents {path}")).lines() {
        // Level/of level, extent/of extents, logical range, physical range, length.
        let words: Vec<&str> =
            line.split(|letter: char| !letter.is_ascii_digit()).filter(|word| !word.is_empty()).collect();
        if let [level, depth, _, _, from, to, physical, ..] = words[..]
            && level == depth
        {
            let number = |word: &str| word.parse::<u64>().expect("a number");
            let (from, to, physical) = (number(from), number(to), number(physical));
            blocks.extend((from..=to).map(|logical| (logical, physical + logical - from)));
        }
    }
    assert_eq!(
        blocks.iter().filter(|(logical, _)| *logical < first).count() as u64,
        size.div_ceil(4096),
        "{path}"
    );
    let behind: Vec<_> = blocks.into_iter().filter(|(logical, _)| *logical >= first).collect();
    assert!((first..).zip(&behind).all(|(logical, found)| logical == found.0), "{path}: {behind:?}");
    let block = |(_, physical): &(u64, u64)| &image[*physical as usize * 4096..][..4096];
    behind.iter().flat_map(block).copied().collect()
}

#[test]
fn hashes_are_those_of_fsverity_where_linux_looks_for_them() {
    let Some(bench) = new_bench() else { return };
    bench.words(&format!("mkfs -q -d tree --fs-verity list --free 1M {DISK}"));
    bench.assert_clean(DISK);
    bench.words(&format!("check {DISK}"));
    let image = bench.bytes(DISK);
    for size in SIZES {
        let host = format!("tree/{size}");
        let more = ["--out-merkle-tree=merkle", "--out-descriptor=descriptor", "--compact", &host];
        bench.program("fsverity", &[&["digest"][..], &more].concat());
        let (tree, descriptor) = (bench.bytes("merkle"), bench.bytes("descriptor"));
        let mut expected = [tree, descriptor.clone()].concat();
        expected.resize(expected.len().next_multiple_of(4096) - 4, 0);
        expected.extend((descriptor.len() as u32).to_le_bytes());
        let path = format!("/{size}");
        assert!(behind_end(&bench, &image, &path, size) == expected, "{path}");
        assert_eq!(bench.field(DISK, &path, "Flags: "), "0x180000", "{path}");
        assert_eq!(bench.field(DISK, &path, "Size: "), size.to_string());
        assert!(bench.content(DISK, &path) == bench.bytes(&host), "{path}");
    }
    assert_eq!(bench.field(DISK, "/plain", "Flags: "), "0x80000");
    let said = bench.fails(1, &["cp", "list", &format!("{DISK}:/4097")]);
    assert!(said.contains("not permitted"), "{said}");
}

#[test]
fn a_file_of_the_list_that_cannot_be_a_verity_file_is_named() {
    let Some(bench) = new_bench() else { return };
    bench.shell("mkdir tree/dir; ln -s plain tree/link; ln tree/plain tree/second");
    for (line, reason) in [
        ("/none", "there is no /none"),
        ("dir", "/dir is no regular file"),
        ("link", "/link is no regular file"),
        ("plain/x", "not below directories"),
        ("second", "/second is another name of /plain"),
        ("../plain", "unsafe name"),
    ] {
        fs::write(bench.path("list"), format!("4097\n{line}\n")).expect("list");
        let said = bench.fails(1, &["mkfs", "-q", "-d", "tree", "--fs-verity", "list", DISK]);
        assert!(said.contains("list:2: ") && said.contains(reason), "{line}: {said}");
        assert!(!bench.path(DISK).exists());
    }
    fs::write(bench.path("list"), "second\nplain\n").expect("list");
    bench.words(&format!("mkfs -q -d tree --fs-verity list {DISK}"));
    bench.assert_clean(DISK);
    bench.fails(2, &["mkfs", "-q", "-b", "1024", "-d", "tree", "--fs-verity", "list", "small.img"]);
    bench.fails(1, &["mkfs", "-q", "-O", "^verity", "-d", "tree", "--fs-verity", "list", "without.img"]);
}
