//! `mkfs --verity`, with `veritysetup` as the judge.

use std::fs;

use super::bench::{Bench, DISK, tool};

fn new_bench() -> Option<Bench> {
    tool("veritysetup").and(tool("e2fsck"))?;
    let bench = Bench::empty();
    fs::create_dir_all(bench.path("tree/sub")).expect("directory");
    fs::write(bench.path("tree/sub/file"), vec![7; 100_000]).expect("file");
    Some(bench)
}

/// The word behind `key` in what `mkfs` said.
fn told(said: &str, key: &str) -> String {
    let behind = said.split_once(key).unwrap_or_else(|| panic!("{key}: {said}")).1;
    behind.split([',', '\n']).next().expect("a word").trim().to_owned()
}

#[test]
fn a_tree_behind_the_file_system_vouches_for_every_block() {
    let Some(bench) = new_bench() else { return };
    for block_size in ["1024", "4096"] {
        let said =
            bench.words(&format!("mkfs -F -b {block_size} -d tree --verity --root-hash-to root.hash {DISK}"));
        let root = told(&said, "root hash ");
        assert_eq!(fs::read_to_string(bench.path("root.hash")).expect("file").trim(), root);
        let offset = told(&said, "hash offset ").parse::<u64>().expect("a number");
        let option = format!("--hash-offset={offset}");
        let verify = ["verify", DISK, DISK, &root, &option];
        bench.program("veritysetup", &verify);
        bench.assert_clean(DISK);
        assert_eq!(bench.words(&format!("cat {DISK}:/sub/file")).len(), 100_000);
        let mut image = bench.bytes(DISK);
        image[offset as usize / 2] ^= 1;
        fs::write(bench.path(DISK), image).expect("image");
        let program = tool("veritysetup").expect("veritysetup");
        assert_ne!(bench.finish(bench.command(program).args(verify), b"").status, 0);
    }
}

#[test]
fn the_root_hash_follows_from_disk_and_salt() {
    let Some(bench) = new_bench() else { return };
    let root = |options: &str| {
        let words = format!("mkfs -F -d tree --verity{options} {DISK}");
        let mut command = bench.extant();
        command.env("SOURCE_DATE_EPOCH", "1000000000").args(words.split(' '));
        told(&bench.finish(&mut command, b"").out, "root hash ")
    };
    let first = root("");
    assert_eq!(root(""), first);
    assert_ne!(root(" --verity-salt 00ff"), first);
    assert_ne!(root(" --verity-salt -"), first);
}

#[test]
fn what_cannot_have_a_tree_is_refused() {
    let Some(bench) = new_bench() else { return };
    for salt in ["0", "+1", "zz"] {
        let refused = bench.fails(2, &["mkfs", "--verity", "--verity-salt", salt, DISK, "8M"]);
        assert!(refused.contains("hexadecimal"), "{refused}");
    }
    bench.words(&format!("mkfs -q {DISK} 8M"));
    let refused = bench.fails(2, &["mkfs", "-F", "--verity", "--offset", "1M", DISK, "4M"]);
    assert!(refused.contains("for image files"), "{refused}");
}
