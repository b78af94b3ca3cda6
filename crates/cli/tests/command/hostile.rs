//! Damaged disks: an error that names the place, never a loop or a panic.

use super::bench::{Bench, DISK};

#[test]
fn circles_of_directories_end() {
    let Some(bench) = Bench::new() else { return };
    bench.debugfs_write(DISK, "link /deep /deep/er/again\n");
    let listed = bench.run(&["ls", "-R", "disk.img:/deep"]);
    assert_eq!(listed.status, 1);
    assert!(listed.out.contains("file\n") && listed.out.lines().count() < 20);
    bench.run(&["chmod", "-R", "700", "disk.img:/deep"]);
    bench.run(&["chown", "-R", "1:1", "disk.img:/deep"]);
    assert_eq!(bench.run(&["export", DISK, "-o", "out.tar"]).status, 1);
    assert_eq!(bench.run(&["cp", "-r", "disk.img:/deep", "out"]).status, 1);
    assert_eq!(bench.run(&["check", DISK]).status, 4);
}

/// Overwrites a byte of the inode of `path`.
fn damage_inode(bench: &Bench, path: &str) {
    let text = bench.debugfs(DISK, &format!("imap {path}"));
    // "Inode 13 is part of block group 0\n\tlocated at block 37, offset 0x0a00"
    let after = |words: &str| text.split(words).nth(1).unwrap_or_else(|| panic!("{text}")).to_owned();
    let block: u64 = after("at block ").split(',').next().and_then(|n| n.parse().ok()).expect("block");
    let offset = after("offset 0x");
    let offset =
        u64::from_str_radix(offset.split_whitespace().next().unwrap_or_default(), 16).expect("offset");
    let mut bytes = bench.bytes(DISK);
    bytes[(block * 4096 + offset) as usize + 8] ^= 0x40;
    std::fs::write(bench.path(DISK), bytes).expect("image");
}

#[test]
fn damaged_inode_is_named_and_its_neighbours_are_served() {
    let Some(bench) = Bench::new() else { return };
    damage_inode(&bench, "/etc/group");
    let said = bench.fails(1, &["cat", "disk.img:/etc/group"]);
    assert!(said.starts_with("extant: disk.img:/etc/group: ") && said.contains("bad checksum"), "{said}");
    let listed = bench.run(&["ls", "-l", "disk.img:/etc"]);
    assert_eq!(listed.status, 1);
    for name in ["hostname", "link -> hostname", "passwd"] {
        assert!(listed.out.contains(name), "{}{}", listed.out, listed.err);
    }
    assert!(listed.err.contains("disk.img:/etc/group"), "{}", listed.err);
    let listed = bench.run(&["ls", "--json", "disk.img:/etc"]);
    assert_eq!(
        (listed.status, listed.json()["listings"][0]["entries"].as_array().map(Vec::len)),
        (1, Some(3))
    );
    // Names alone need no inodes.
    assert_eq!(bench.ok(&["ls", "disk.img:/etc"]).out, "group\nhostname\nlink\npasswd\n");
    let checked = bench.run(&["check", DISK]);
    assert_eq!(checked.status, 4);
    assert!(checked.out.contains("disk.img: ") && checked.out.contains("inode"), "{}", checked.out);
    let document = bench.run(&["check", "--json", DISK]).json();
    assert_eq!(document["is_clean"], false);
    assert!(document["findings"][0]["what"].is_string(), "{document}");
}

#[test]
fn removal_of_a_file_with_a_broken_map_fails_and_marks_the_disk() {
    let Some(bench) = Bench::new() else { return };
    let stat = bench.debugfs(DISK, "stat /etc/group");
    let number =
        stat.split("Inode: ").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a number");
    // The magic number of the extent tree's root.
    bench.debugfs_write(DISK, "sif /etc/group block[0] 0\n");
    let header = |bench: &Bench| bench.program("dumpe2fs", &["-h", DISK]).out;
    assert!(!header(&bench).contains("with errors"), "{}", header(&bench));
    let said = bench.fails(1, &["rm", "disk.img:/etc/group"]);
    assert!(said.contains("disk.img") && said.contains(&format!("inode {number},")), "{said}");
    let marked = header(&bench);
    assert!(marked.contains("with errors") && marked.contains("FS Error count:"), "{marked}");
    let noted = bench.run(&["check", DISK]);
    assert!(
        noted.err.contains("errors were met when the disk was last in use"),
        "{}{}",
        noted.out,
        noted.err
    );
    // Other files can still be removed; the mark stays until e2fsck has run.
    assert_eq!(bench.run(&["rm", "disk.img:/etc/passwd"]).status, 0);
    assert!(header(&bench).contains("with errors"), "{}", header(&bench));
}

#[test]
fn recursive_changes_go_on_after_damage() {
    let Some(bench) = Bench::new() else { return };
    damage_inode(&bench, "/etc/group");
    let run = bench.run(&["chmod", "-R", "700", "disk.img:/"]);
    assert_eq!(run.status, 1);
    assert!(run.err.contains("disk.img:/etc/group"), "{}", run.err);
    for path in ["/etc/passwd", "/odd", "/bin/tool", "/deep/er/file"] {
        assert_eq!(bench.field(DISK, path, "Mode:"), "0700", "{path}");
    }
}

#[test]
fn damaged_superblock_is_damage_to_check_and_a_failure_to_others() {
    let Some(bench) = Bench::new() else { return };
    let mut bytes = bench.bytes(DISK);
    bytes[1024 + 0x78] ^= 1;
    std::fs::write(bench.path(DISK), bytes).expect("image");
    let said = bench.fails(1, &["ls", DISK]);
    assert!(said.contains("disk.img: superblock") && said.contains("bad checksum"), "{said}");
    let run = bench.run(&["check", DISK]);
    assert!(run.status == 4 && run.out.contains("superblock"), "{}{}", run.out, run.err);
}

#[test]
fn random_damage_never_panics() {
    let Some(bench) = Bench::new() else { return };
    let pristine = bench.bytes(DISK);
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for round in 0..24 {
        let mut bytes = pristine.clone();
        for _ in 0..200 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // The metadata of this disk lies at its start.
            let at = (seed >> 33) as usize % (4 << 20);
            bytes[at] = (seed >> 20) as u8;
        }
        std::fs::write(bench.path(DISK), bytes).expect("image");
        for arguments in [&["ls", "-lR", DISK][..], &["check", DISK], &["export", DISK, "-o", "out.tar"]] {
            let run = bench.run(arguments);
            assert!(
                matches!(run.status, 0 | 1 | 4 | 8),
                "round {round}, {arguments:?}: {} {}",
                run.status,
                run.err
            );
        }
    }
}
