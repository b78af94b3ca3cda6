//! `mkfs`, with `dumpe2fs` and `e2fsck` as the judges.

use std::fs;

use super::bench::{Bench, DISK, tool};

fn header(bench: &Bench, image: &str, name: &str) -> String {
    let text = bench.program("dumpe2fs", &["-h", image]).out;
    let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    line[name.len()..].trim().to_owned()
}

fn new_bench() -> Option<Bench> {
    tool("dumpe2fs").and(tool("e2fsck"))?;
    let bench = Bench::empty();
    fs::create_dir_all(bench.path("tree/sub")).expect("directory");
    fs::write(bench.path("tree/sub/file"), vec![7; 100_000]).expect("file");
    Some(bench)
}

#[test]
fn letters_mean_what_they_mean_to_mke2fs() {
    let Some(bench) = new_bench() else { return };
    let uuid = "01234567-89ab-cdef-0123-456789abcdef";
    bench.ok(&[
        "mkfs",
        "-q",
        "-b",
        "1024",
        "-I",
        "128",
        "-N",
        "512",
        "-m",
        "1.5",
        "-L",
        "data",
        "-U",
        uuid,
        "-O",
        "^64bit,orphan_file",
        "-E",
        "stride=4,root_owner=5:6",
        "-J",
        "size=2",
        DISK,
        "16M",
    ]);
    bench.assert_clean(DISK);
    for (name, value) in [
        ("Block size:", "1024"),
        ("Inode size:", "128"),
        ("Block count:", "16384"),
        ("Reserved block count:", "245"),
        ("Filesystem volume name:", "data"),
        ("Filesystem UUID:", uuid),
        ("RAID stride:", "4"),
        ("Total journal size:", "2048k"),
    ] {
        assert_eq!(header(&bench, DISK, name), value, "{name}");
    }
    let features = header(&bench, DISK, "Filesystem features:");
    assert!(features.contains("orphan_file") && !features.contains("64bit"), "{features}");
    assert_eq!(
        bench
            .program("debugfs", &["-R", "stat /", DISK])
            .out
            .split("User:")
            .nth(1)
            .map(str::trim_start)
            .and_then(|t| t.chars().next()),
        Some('5')
    );
}

#[test]
fn what_was_made_is_told_as_json() {
    let Some(bench) = new_bench() else { return };
    let would = bench.document("mkfs --json -n a.img 8M");
    assert_eq!((would["is_made"].as_bool(), bench.path("a.img").exists()), (Some(false), false));
    let made = bench.document("mkfs --json a.img 8M");
    let info = bench.document("info --json a.img");
    for key in ["image", "uuid", "size_bytes", "block_size_bytes", "inodes"] {
        assert!(!made[key].is_null(), "{made}");
        assert_eq!(made[key], info[key], "{key}");
    }
    assert_eq!(would["journal_bytes"], made["journal_bytes"]);
    let sealed = bench.document("mkfs --json --verity b.img 8M");
    assert_eq!(sealed["verity"]["hash_offset_bytes"], sealed["size_bytes"]);
    let copy = bench.document("mkfs --json --from a.img c.img");
    assert_eq!((&copy["base"], &copy["size_bytes"]), (&"a.img".into(), &made["size_bytes"]));
}

#[test]
fn sizes_without_a_suffix_are_kibibytes_or_blocks() {
    let Some(bench) = new_bench() else { return };
    for (arguments, bytes) in [
        (&["mkfs", "-q", "a.img", "8192"][..], 8 << 20),
        (&["mkfs", "-q", "-b", "4096", "b.img", "2048"], 8 << 20),
        (&["mkfs", "-q", "c.img", "8m"], 8 << 20),
        (&["mkfs", "-q", "d.img", "16384s"], 8 << 20),
    ] {
        bench.ok(arguments);
        let image = arguments[arguments.len() - 2];
        assert_eq!(fs::metadata(bench.path(image)).expect("image").len(), bytes, "{image}");
        bench.assert_clean(image);
        // Blocks of 4 KiB on small disks too.
        assert_eq!(header(&bench, image, "Block size:"), "4096");
    }
}

#[test]
fn unknown_words_are_refused_by_name() {
    let Some(bench) = new_bench() else { return };
    for (arguments, word) in [
        (&["mkfs", "-O", "dir_index,fancy", DISK, "8M"][..], "fancy"),
        (&["mkfs", "-O", "casefold", DISK, "8M"], "casefold"),
        (&["mkfs", "-C", "16K", DISK, "8M"], "bigalloc"),
        (&["mkfs", "-O", "bigalloc", "-C", "3000", DISK, "8M"], "3000"),
        (&["mkfs", "-O", "bigalloc,^extent", DISK, "8M"], "extent"),
        (&["mkfs", "-E", "stride=4,frobnicate=1", DISK, "8M"], "frobnicate"),
        (&["mkfs", "-J", "device=/dev/x", DISK, "8M"], "device"),
        (&["mkfs", "-T", "nonsense", DISK, "8M"], "nonsense"),
        (&["mkfs", "-U", "not-a-uuid", DISK, "8M"], "not-a-uuid"),
        (&["mkfs", "-t", "xfs", DISK, "8M"], "xfs"),
        (&["mkfs", "-b", "3000", DISK, "8M"], "3000"),
        (&["mkfs", "-m", "60", DISK, "8M"], "60"),
        (&["mkfs", "-L", "a-label-of-17-bytes", DISK, "8M"], "a-label-of-17-bytes"),
        (&["mkfs", DISK, "8Q"], "8Q"),
        (&["mkfs", DISK], DISK),
        (&["mkfs", "--free", "1M", DISK, "8M"], "-d"),
        (&["mkfs", "-d", "tree", "--free", "1M", DISK, "8M"], "--free"),
    ] {
        let said = bench.fails(2, arguments);
        assert!(said.contains(word), "{arguments:?}: {said}");
        assert!(!bench.path(DISK).exists(), "{arguments:?}");
    }
}

#[test]
fn what_is_there_is_overwritten_only_with_force() {
    let Some(bench) = new_bench() else { return };
    bench.ok(&["mkfs", "-q", DISK, "8M"]);
    fs::write(bench.path("vm.qcow2"), [b"QFI\xfb".as_slice(), &[0; 8 << 20]].concat()).expect("file");
    let mut table = vec![0; 8 << 20];
    table[446 + 4] = 0x83;
    table[446 + 9] = 8;
    table[446 + 13] = 8;
    table[510..512].copy_from_slice(&[0x55, 0xaa]);
    fs::write(bench.path("table.img"), table).expect("file");
    for image in [DISK, "vm.qcow2", "table.img"] {
        bench.assert_untouched(image, || {
            let said = bench.fails(1, &["mkfs", "-q", image]);
            assert!(said.contains(image) && said.contains("-F"), "{said}");
            bench.fails(1, &["mkfs", "-q", "-d", "tree", image]);
        });
    }
    for image in [DISK, "vm.qcow2", "table.img"] {
        bench.ok(&["mkfs", "-q", "-F", image]);
        bench.assert_clean(image);
    }
    // An empty file holds nothing dear.
    fs::File::create(bench.path("zero.img")).expect("file").set_len(8 << 20).expect("length");
    bench.ok(&["mkfs", "-q", "zero.img"]);
    bench.assert_clean("zero.img");
}

#[test]
fn failure_keeps_what_is_there_and_leaves_nothing_new() {
    let Some(bench) = new_bench() else { return };
    bench.ok(&["mkfs", "-q", DISK, "8M"]);
    bench.assert_untouched(DISK, || {
        bench.fails(1, &["mkfs", "-F", DISK, "16K"]);
        bench.fails(2, &["mkfs", "-F", "-O", "fancy", DISK]);
        bench.fails(1, &["mkfs", "-F", "-d", "missing", DISK]);
    });
    fs::write(bench.path("none.tar"), vec![b'x'; 2048]).expect("file");
    for content in ["missing", "none.tar"] {
        let said = bench.fails(1, &["mkfs", "-d", content, "new.img"]);
        assert!(said.contains(content), "{said}");
        assert!(!bench.path("new.img").exists());
    }
    let said = bench.fails(1, &["mkfs", "-d", "tree", "new.img", "64K"]);
    assert!(said.contains("new.img"), "{said}");
    assert!(!bench.path("new.img").exists());
    bench.fails(1, &["mkfs", "missing/new.img", "8M"]);
}

#[test]
fn plan_is_printed_and_nothing_is_written() {
    let Some(bench) = new_bench() else { return };
    let said = bench.ok(&["mkfs", "-n", DISK, "64M"]).out;
    assert!(said.contains("16384 blocks"), "{said}");
    assert!(!bench.path(DISK).exists());
    bench.ok(&["mkfs", "-q", DISK, "8M"]);
    bench.assert_untouched(DISK, || {
        bench.ok(&["mkfs", "-n", "-F", DISK]);
        bench.ok(&["mkfs", "-n", "-F", "-d", "tree", DISK]);
    });
}

#[test]
fn disk_is_as_large_as_its_content_and_what_is_to_be_free() {
    let Some(bench) = new_bench() else { return };
    for free in [0_u64, 1 << 20, 40 << 20] {
        bench.ok(&["mkfs", "-q", "-F", "-d", "tree", "--free", &free.to_string(), DISK]);
        bench.assert_clean(DISK);
        let available =
            bench.ok(&["info", "--json", DISK]).json()["available_bytes"].as_u64().expect("count");
        assert!(available >= free && available < free + free / 8 + (1 << 20), "{free}: {available}");
        assert_eq!(bench.content(DISK, "/sub/file"), vec![7; 100_000]);
        if free > 0 {
            fs::write(bench.path("more"), vec![1; (free - (128 << 10)) as usize]).expect("file");
            bench.ok(&["cp", "more", "disk.img:/more"]);
            bench.assert_clean(DISK);
        }
    }
}

#[test]
fn many_small_files_get_inodes_enough() {
    let Some(bench) = new_bench() else { return };
    for number in 0..3000 {
        fs::write(bench.path(&format!("tree/sub/{number}")), "").expect("file");
    }
    bench.ok(&["mkfs", "-q", "-d", "tree", DISK]);
    bench.assert_clean(DISK);
    assert_eq!(bench.ok(&["ls", "disk.img:/sub"]).out.lines().count(), 3001);
    assert!(bench.fails(1, &["mkfs", "-q", "-F", "-N", "100", "-d", "tree", DISK, "16M"]).contains("inode"));
}

#[test]
fn source_date_epoch_gives_the_same_bytes() {
    let (Some(bench), Some(_)) = (new_bench(), tool("tar")) else { return };
    bench.program("tar", &["-cf", "tree.tar", "-C", "tree", "."]);
    let archive = bench.bytes("tree.tar");
    let make = |image: &str, content: &str| {
        let mut command = bench.extant();
        command
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .args(["mkfs", "-q", "-d", content, "--free", "2048k", image]);
        let run = bench.finish(&mut command, if content == "-" { &archive } else { b"" });
        assert_eq!((run.status, run.err.as_str()), (0, ""));
        bench.assert_clean(image);
        bench.bytes(image)
    };
    let first = make("one.img", "tree");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert!(first == make("two.img", "tree"), "two runs differ");
    assert!(make("three.img", "tree.tar") == make("four.img", "-"), "an archive and a pipe differ");
    assert_eq!(header(&bench, "one.img", "Filesystem created:"), "Tue Nov 14 22:13:20 2023");
    fs::write(bench.path("tree/other"), "x").expect("file");
    make("five.img", "tree");
    assert_ne!(header(&bench, "five.img", "Filesystem UUID:"), header(&bench, "one.img", "Filesystem UUID:"));
    let run =
        bench.finish(bench.extant().env("SOURCE_DATE_EPOCH", "soon").args(["mkfs", "six.img", "8M"]), b"");
    assert!(run.status == 2 && run.err.contains("SOURCE_DATE_EPOCH"), "{}", run.err);
}

#[test]
fn part_of_an_image_is_formatted_and_the_rest_left_alone() {
    let Some(bench) = new_bench() else { return };
    let mut table = vec![0xa5; 24 << 20];
    table[..512].fill(0);
    table[446 + 4] = 0x83;
    // 8 MiB at 8 MiB.
    table[446 + 8..446 + 12].copy_from_slice(&16384_u32.to_le_bytes());
    table[446 + 12..446 + 16].copy_from_slice(&16384_u32.to_le_bytes());
    table[510..512].copy_from_slice(&[0x55, 0xaa]);
    for option in [["--partition", "1"], ["--offset", "8M"]] {
        fs::write(bench.path(DISK), &table).expect("file");
        bench.ok(&["mkfs", "-q", "-d", "tree", option[0], option[1], DISK, "8M"]);
        let made = bench.bytes(DISK);
        assert!(
            made.len() == table.len()
                && made[..8 << 20] == table[..8 << 20]
                && made[16 << 20..] == table[16 << 20..]
        );
        fs::write(bench.path("part.img"), &made[8 << 20..16 << 20]).expect("file");
        bench.assert_clean("part.img");
        assert_eq!(bench.ok(&["ls", option[0], option[1], DISK]).out, "lost+found\nsub\n");
        bench.fails(1, &["mkfs", "-q", option[0], option[1], DISK]);
        bench.fails(1, &["mkfs", "-q", "-F", option[0], option[1], DISK, "1G"]);
    }
}

#[test]
fn sizes_are_taken_as_people_spell_them() {
    let bench = Bench::empty();
    for (size, bytes) in [("10MiB", 10 << 20), ("1.5m", 3 << 19), ("20480", 20 << 20), ("0.01G", 10_737_418)]
    {
        bench.ok(&["mkfs", "-q", "-F", "disk.img", size]);
        assert_eq!(bench.bytes("disk.img").len(), bytes, "{size}");
    }
    for (size, words) in
        [("0", "SIZE is 0"), ("10Mi", "invalid size '10Mi'"), ("1.5", "as in 64M"), ("20000P", "2^64")]
    {
        let said = bench.fails(2, &["mkfs", "new.img", size]);
        assert!(said.contains(words), "{size}: {said}");
        assert!(!bench.path("new.img").exists());
    }
    bench.ok(&["mkfs", "-q", "-F", "-J", "size=4MiB", "disk.img", "64M"]);
    bench.assert_clean("disk.img");
}

/// The last directories find no more free blocks than they take.
#[test]
fn a_disk_as_small_as_its_content_takes_every_directory() {
    if tool("tar").is_none() {
        return;
    }
    let bench = Bench::empty();
    bench.shell("mkdir -p tree/z1 tree/z2 tree/z3");
    for files in [1, 50, 100] {
        bench.shell(&format!("for i in $(seq {files}); do echo x > tree/file-$i; done"));
        bench.program("tar", &["--sort=name", "-C", "tree", "-cf", "tree.tar", "."]);
        bench.words("mkfs -q -F -d tree.tar disk.img");
    }
}
