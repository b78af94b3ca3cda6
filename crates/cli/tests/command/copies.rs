//! `mkfs --from`: disks that begin as copies of others.

use std::collections::HashSet;
use std::fs;

use super::bench::{Bench, DISK, is_root, tool};

/// Bytes of the chunks by which stores find equal parts of images.
const CHUNK_BYTES: usize = 512 << 10;

/// A tree of 400 files of 20 MB, an image of it with some room, and the tree with one file in a hundred changed.
fn changed_tree() -> Option<Bench> {
    tool("e2fsck").and(tool("debugfs"))?;
    let bench = Bench::empty();
    for (tree, changed) in [("tree", None), ("changed", Some(7_u32))] {
        for number in 0..400_u32 {
            let dir = bench.path(&format!("{tree}/{}", number % 20));
            fs::create_dir_all(&dir).expect("directory");
            let salt = changed.filter(|_| number % 100 == 50).unwrap_or(0);
            let words =
                (0..number * 63).map(|at| (at ^ number << 16).wrapping_add(salt).wrapping_mul(0x9e37_79b1));
            fs::write(dir.join(number.to_string()), words.flat_map(u32::to_le_bytes).collect::<Vec<u8>>())
                .expect("file");
        }
    }
    bench.shell("find tree changed -exec touch -hd @1700000000 {} +");
    bench.ok(&["mkfs", "-q", "-d", "tree", "--free", "2M", DISK]);
    Some(bench)
}

/// How many chunks of `image` are not in `base`, of how many.
fn new_chunks(bench: &Bench, base: &str, image: &str) -> (usize, usize) {
    let (base, image) =
        (fs::read(bench.path(base)).expect("image"), fs::read(bench.path(image)).expect("image"));
    let known: HashSet<_> = base.chunks(CHUNK_BYTES).collect();
    let chunks = image.chunks(CHUNK_BYTES);
    (chunks.clone().filter(|chunk| !known.contains(chunk)).count(), chunks.len())
}

#[test]
fn copy_is_the_disk_it_came_from() {
    let Some(bench) = Bench::new() else { return };
    let said = bench.ok(&["mkfs", "--from", DISK, "copy.img"]).out;
    assert!(said.starts_with("copy.img: 16 MiB, ") && said.contains(DISK), "{said}");
    assert!(fs::read(bench.path(DISK)).expect("base") == fs::read(bench.path("copy.img")).expect("copy"));
    let allocated =
        |image: &str| bench.shell(&format!("stat -c %b {image}")).trim().parse::<u64>().expect("blocks");
    assert!(allocated("copy.img") <= allocated(DISK), "holes stay holes");
    let said = bench.fails(1, &["mkfs", "--from", DISK, "copy.img"]);
    assert!(said.contains("copy.img: contains an ext4 file system; use -F to overwrite it"), "{said}");
    bench.ok(&["mkfs", "-q", "-F", "--from", DISK, "copy.img"]);
}

#[test]
fn copies_are_refused_by_name_and_leave_nothing() {
    let Some(bench) = Bench::new() else { return };
    fs::write(bench.path("text"), vec![b'x'; 100_000]).expect("file");
    for (base, words) in [("text", "no ext4 file system"), ("missing.img", "o such file")] {
        let said = bench.fails(1, &["mkfs", "--from", base, "copy.img"]);
        assert!(said.contains(base) && said.contains(words), "{said}");
    }
    bench.fails(2, &["mkfs", "--from", DISK, "copy.img", "64M"]);
    bench.fails(2, &["mkfs", "--from", DISK, "-L", "name", "copy.img"]);
    fs::write(bench.path("devices"), "/dev d 755 0 0 - - - - -\n").expect("file");
    let said = bench.fails(2, &["mkfs", "--from", DISK, "--device-table", "devices", "copy.img"]);
    assert!(said.contains("add -d"), "{said}");
    let said = bench.fails(1, &["mkfs", "--from", DISK, DISK]);
    assert!(said.contains("in use"), "{said}");
    fs::create_dir(bench.path("large")).expect("directory");
    fs::write(bench.path("large/file"), vec![1; 20 << 20]).expect("file");
    let said = bench.fails(1, &["mkfs", "--from", DISK, "-d", "large", "copy.img"]);
    assert!(said.contains("the base has no more room: make it with --free"), "{said}");
    assert!(!bench.path("copy.img").exists(), "what could not be made is left");
    bench.assert_clean(DISK);
}

#[test]
fn copy_has_the_content_and_shares_chunks_with_its_base() {
    let Some(bench) = changed_tree() else { return };
    bench.ok(&["mkfs", "-q", "--from", DISK, "-d", "changed", "copy.img"]);
    bench.assert_clean("copy.img");
    bench.ok(&["mkfs", "-q", "-d", "changed", "--free", "2M", "apart.img"]);
    assert_eq!(bench.ok(&["diff", "--checksum", "apart.img", "copy.img"]).out, "");
    let listed = bench.run(&["diff", "--checksum", DISK, "copy.img"]).out;
    assert_eq!(listed.lines().filter(|line| line.starts_with("C ")).count(), 4, "{listed}");
    let ((new, count), (apart, _)) =
        (new_chunks(&bench, DISK, "copy.img"), new_chunks(&bench, DISK, "apart.img"));
    println!("{new} of {count} chunks are new, {apart} of an image made apart");
    // Superblock, bitmaps, inodes and journal at the beginning, and 100 KB of content.
    assert!(new <= 8, "{new} of {count} chunks are new");
    assert!(apart > 2 * new, "{apart} of {count} chunks are new in an image made apart");
}

#[test]
fn copies_of_one_base_have_the_same_bytes() {
    let Some(bench) = changed_tree() else { return };
    for image in ["one.img", "two.img"] {
        let run = bench
            .extant()
            .args(["mkfs", "-q", "--from", DISK, "-d", "changed", image])
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .status();
        assert!(run.expect("extant").success());
    }
    assert!(fs::read(bench.path("one.img")).expect("one") == fs::read(bench.path("two.img")).expect("two"));
}

#[test]
fn copy_shares_its_blocks_where_the_host_can() {
    let Some(bench) = Bench::new() else { return };
    if !is_root() || tool("mkfs.xfs").is_none() {
        return println!("skipped: needs root and mkfs.xfs");
    }
    bench.shell(
        "truncate -s 512M xfs.img; mkfs.xfs -q -m reflink=1 xfs.img; mkdir host; mount -o loop xfs.img host",
    );
    let unmounted = Unmounted(&bench);
    fs::copy(bench.path(DISK), bench.path("host/base.img")).expect("copy");
    let used =
        || bench.shell("sync host; df --output=used -k host | tail -1").trim().parse::<u64>().expect("KiB");
    let before = used();
    let said = bench.ok(&["mkfs", "--from", "host/base.img", "host/copy.img"]).out;
    assert!(said.contains("shares its blocks with host/base.img"), "{said}");
    bench.ok(&["mkfs", "-q", "--from", "host/base.img", "-d", "tree", "host/other.img"]);
    let taken = used() - before;
    assert!(taken <= 2048, "two copies of 16 MiB take {taken} KiB");
    bench.assert_clean("host/other.img");
    drop(unmounted);
}

/// Unmounts the host's file system, whatever becomes of the test.
struct Unmounted<'a>(&'a Bench);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        self.0.shell("umount host");
    }
}
