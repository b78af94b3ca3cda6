//! `tune`: the judge is what `tune2fs` makes of the same letters, as `dumpe2fs` shows it.

use super::bench::{Bench, DISK, is_root, tool};

/// What `dumpe2fs` says of the superblock, but for times, counts of writes and checksums.
fn header(bench: &Bench, image: &str) -> String {
    let varies = [
        "Last write time",
        "Lifetime writes",
        "Checksum",
        "Journal sequence",
        "Journal checksum",
        "Journal features",
        "Filesystem features",
    ];
    let said = bench.program("dumpe2fs", &["-h", image]).out;
    said.lines()
        .filter(|line| !varies.iter().any(|word| line.starts_with(word)))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn letters_do_what_those_of_tune2fs_do() {
    let Some(bench) = Bench::new() else { return };
    tool("tune2fs").expect("a program of e2fsprogs");
    for letters in [
        &["-L", "a label"][..],
        &["-U", "12345678-9abc-def0-1234-56789abcdef0"],
        &["-m", "2.5"],
        &["-r", "123"],
        &["-e", "remount-ro"],
        &["-e", "panic"],
        &["-o", "^acl,discard,journal_data"],
        &["-o", "^journal_data,journal_data_writeback"],
        &["-c", "30", "-C", "7"],
        &["-c", "-1", "-i", "2w"],
        &["-i", "6m"],
        &["-T", "@1000000000"],
        &["-M", "/srv"],
        &["-E", "stride=8,stripe_width=32"],
        &["-E", "hash_alg=tea,mount_opts=nodelalloc"],
        &["-E", "test_fs"],
    ] {
        let theirs: Vec<&str> = letters
            .iter()
            .map(|word| if *word == "@1000000000" { "20010909014640" } else { *word })
            .collect();
        bench.program("cp", &[DISK, "theirs.img"]);
        let arguments = [&theirs[..], &["theirs.img"]].concat();
        let run = bench
            .finish(bench.command(tool("tune2fs").expect("tune2fs")).env("TZ", "UTC").args(arguments), b"");
        assert_eq!(run.status, 0, "{letters:?}: {}", run.err);
        bench.ok(&[&["tune"], letters, &[DISK]].concat());
        assert_eq!(header(&bench, DISK), header(&bench, "theirs.img"), "{letters:?}");
        bench.assert_clean(DISK);
    }
    assert_eq!(bench.content(DISK, "/etc/hostname"), b"guest\n");
}

#[test]
fn uuids_have_the_form_that_was_asked_for() {
    let Some(bench) = Bench::new() else { return };
    let uuid = || bench.document("info --json disk.img")["uuid"].as_str().expect("a UUID").to_owned();
    for (word, version) in [("random", '4'), ("time", '1'), ("clear", '0')] {
        let before = uuid();
        let said = bench.document(&format!("tune --json -U {word} disk.img"));
        assert!(said["checksums_rewritten"].as_u64() > Some(10), "{said}");
        let after = uuid();
        assert!(after != before && after.as_bytes()[14] == version as u8, "{word}: {after}");
        bench.assert_clean(DISK);
    }
    bench.words("tune -O metadata_csum_seed disk.img");
    assert_eq!(bench.document("tune --json -U random disk.img")["checksums_rewritten"], 0);
    bench.assert_clean(DISK);
}

#[test]
fn what_cannot_be_tuned_says_what_to_do() {
    let Some(bench) = Bench::new() else { return };
    bench.assert_untouched(DISK, || {
        assert!(bench.fails(2, &["tune", DISK]).contains("extant info disk.img"));
        assert!(bench.fails(2, &["tune", "-O", "no_such", DISK]).contains("no such feature"));
        assert!(bench.fails(2, &["tune", "-U", "12", DISK]).contains("32 hexadecimal digits"));
        assert!(bench.fails(2, &["tune", "-L", "a label that is too long", DISK]).contains("16 bytes"));
        for (word, advice) in [
            ("^sparse_super", "mkfs -O ^sparse_super"),
            ("orphan_file,^has_journal", "^orphan_file,^has_journal"),
            ("^extent", "mkfs -O"),
        ] {
            let said = bench.fails(1, &["tune", "-O", word, DISK]);
            assert!(said.contains(advice), "{word}: {said}");
        }
    });
    assert!(bench.fails(1, &["tune", "-L", "x", "tree/etc/passwd"]).contains("passwd"));
}

#[test]
fn journal_goes_and_comes() {
    let Some(bench) = Bench::new() else { return };
    for words in ["-O ^has_journal", "-j", "-O orphan_file"] {
        bench.words(&format!("tune {words} disk.img"));
        bench.assert_clean(DISK);
    }
}

#[test]
fn disk_that_the_kernel_has_mounted_is_refused() {
    let Some(bench) = Bench::new() else { return };
    std::fs::create_dir(bench.path("dir")).expect("directory");
    if !is_root() || bench.finish(bench.command("mount").args(["-o", "loop", DISK, "dir"]), b"").status != 0 {
        println!("skipped: no loop device");
        return;
    }
    let run = bench.run(&["tune", "-L", "x", DISK]);
    bench.program("umount", &["dir"]);
    assert_eq!(run.status, 1, "{}", run.out);
    assert!(!run.err.is_empty());
}
