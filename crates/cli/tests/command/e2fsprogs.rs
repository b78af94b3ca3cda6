//! The program under the names of e2fsprogs, beside e2fsprogs itself.

use std::fs;
use std::path::Path;

use super::bench::{Bench, DISK, Run, tool};
use super::journal::dirty_disk;

/// Lines that differ between any two disks.
const OF_ONE_DISK: [&str; 9] = [
    "Filesystem UUID:",
    "Directory Hash Seed:",
    "Filesystem created:",
    "Last write time:",
    "Last checked:",
    "Checksum",
    "Lifetime writes:",
    "Journal checksum:",
    "Last mount",
];

/// A bench with the links that `make install-names` makes.
fn with_names(bench: Bench) -> Bench {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-names");
    let run = bench.finish(bench.command(script).args([env!("CARGO_BIN_EXE_extant"), "bin"]), b"");
    assert_eq!(run.status, 0, "{}", run.err);
    bench
}

fn new_bench() -> Option<Bench> {
    tool("mke2fs").and(tool("tune2fs")).and(tool("dumpe2fs")).and(tool("e2fsck")).and(tool("debugfs"))?;
    Some(with_names(Bench::empty()))
}

/// Runs a program of ours, or of e2fsprogs.
fn run(bench: &Bench, is_ours: bool, line: &str) -> Run {
    let mut words = line.split(' ');
    let name = words.next().expect("a program");
    let program = if is_ours { bench.path("bin").join(name) } else { tool(name).expect("a program") };
    bench.finish(bench.command(program).env("TZ", "UTC").args(words), b"")
}

fn ours(bench: &Bench, line: &str) -> Run {
    run(bench, true, line)
}

/// Runs ours, which is to end with this status; what it wrote and said.
fn status(bench: &Bench, status: i32, line: &str) -> String {
    let run = ours(bench, line);
    assert_eq!(run.status, status, "{line}: {}{}", run.out, run.err);
    run.out + &run.err
}

/// Layouts as letters of mke2fs.
const LAYOUTS: [&str; 14] = [
    "-t ext2 -b 1024",
    "-t ext3 -I 128",
    "-t ext4 -b 1024 -L name -M /mnt/x",
    "-t ext4 -O bigalloc -C 64K",
    "-t ext4 -O orphan_file,metadata_csum_seed,quota,project",
    "-t ext4 -O inline_data,ea_inode,large_dir -E stride=4,stripe_width=16",
    "-t ext4 -O casefold,encrypt,verity,fast_commit",
    "-t ext4 -O sparse_super2,^resize_inode -G 8 -b 1024",
    "-t ext4 -O sparse_super2 -E num_backup_sb=1",
    "-t ext4 -O ^flex_bg,meta_bg,^resize_inode,^64bit",
    "-t ext4 -O ^has_journal -E test_fs -e panic",
    "-t ext4 -r 0",
    "-t ext4 -O none",
    "-t ext4 -J size=8 -U clear -N 200 -m 0 -b 2048",
];

#[test]
fn superblocks_are_listed_line_by_line_as_e2fsprogs_lists_them() {
    let Some(bench) = new_bench() else { return };
    let listed = |is_ours: bool, what: &str| run(&bench, is_ours, what).out;
    let compare = |letters: &str| {
        assert_eq!(listed(true, "dumpe2fs -h disk.img"), listed(false, "dumpe2fs -h disk.img"), "{letters}");
        let without_banner = |text: String| text.split_once('\n').map(|(_, rest)| rest.to_owned());
        let tune = |is_ours| without_banner(listed(is_ours, "tune2fs -l disk.img"));
        assert_eq!(tune(true), tune(false), "{letters}");
    };
    for letters in LAYOUTS {
        assert_eq!(
            run(&bench, false, &format!("mke2fs -q -F {letters} disk.img 64M")).status,
            0,
            "{letters}"
        );
        compare(letters);
    }
    assert_eq!(run(&bench, false, "mke2fs -q -F -t ext4 disk.img 64M").status, 0);
    let changes = "tune2fs -c 20 -i 6m -o debug,journal_data_writeback,nobarrier -E mount_opts=nodelalloc -g 12345 disk.img";
    assert_eq!(run(&bench, false, changes).status, 0);
    bench.debugfs_write(
        DISK,
        "ssv error_count 3\nssv first_error_time 20240101\nssv first_error_func abc\nssv first_error_line 7\n\
         ssv last_error_time 20240102\nssv last_error_ino 7\nssv last_error_block 77\nssv state 3\n\
         ssv kbytes_written 123456789\nssv last_orphan 12\nssv mtime 20250101\n",
    );
    compare("of a disk with errors");
}

#[test]
fn disks_are_laid_out_as_mke2fs_lays_them_out() {
    let Some(bench) = new_bench() else { return };
    let sizes = ["1M", "2M", "3071k", "3M", "5000", "64M", "511M", "512M", "5000000"];
    let types = ["mkfs.ext2", "mkfs.ext3 -j", "mke2fs -t ext4", "mkfs.ext4"];
    let by_size = sizes.iter().flat_map(|size| types.iter().map(move |name| (name.to_string(), *size)));
    let letters = [
        "-T news",
        "-T largefile4,small",
        "-T odd",
        "-O bigalloc",
        "-O bigalloc -C 16k -b 1024",
        "-O none",
        "-O ^has_journal,^metadata_csum",
        "-i 1024",
        "-m 0 -N 100",
        "-I 128",
        "-G 4 -b 2048",
        "-O quota,project",
        "-J size=4",
        "-i 512",
        "-b 100000",
        "-O fancy",
        "-N 9999999",
        "-E frobnicate=1",
        "-L",
        "-Z",
    ];
    let by_letters = letters.iter().map(|letters| (format!("mkfs.ext4 {letters}"), "64M"));
    for (line, size) in by_size.chain(by_letters) {
        let line = line.replace("mkfs.ext3", "mke2fs");
        let program = |is_ours, image: &str| {
            let _ = fs::remove_file(bench.path(image));
            run(&bench, is_ours, &format!("{line} -q -F {image} {size}")).status
        };
        let (theirs, own) = (program(false, "theirs.img"), program(true, "ours.img"));
        assert_eq!(own, theirs, "{line} {size}");
        if theirs != 0 {
            continue;
        }
        let groups = |image: &str| {
            let lines = bench.program("dumpe2fs", &[image]).out;
            let kept = lines.lines().filter(|line| !line.contains("csum 0x"));
            let kept = kept.filter(|line| !OF_ONE_DISK.iter().any(|own| line.starts_with(own)));
            (
                kept.map(str::to_owned).collect::<Vec<_>>(),
                fs::metadata(bench.path(image)).expect("image").len(),
            )
        };
        assert_eq!(groups("ours.img"), groups("theirs.img"), "{line} {size}");
    }
}

#[test]
fn content_and_progress_lines_are_those_of_mke2fs() {
    let Some(bench) = new_bench() else { return };
    bench.shell(
        "mkdir -p tree/s/t; echo a >tree/s/f; ln tree/s/f tree/h; ln -s s tree/l; mkfifo tree/p; truncate -s 1M tree/hole
        chmod 4711 tree/s/f; chmod 1700 tree; find tree -exec touch -hd @1000000000 {} +",
    );
    let made = |is_ours: bool, image: &str| run(&bench, is_ours, &format!("mkfs.ext4 -d tree {image} 300M"));
    let (own, theirs) = (made(true, "ours.img"), made(false, "theirs.img"));
    assert_eq!((own.status, theirs.status), (0, 0), "{}{}", own.err, theirs.err);
    bench.assert_clean("ours.img");
    // The two differ in the root's times alone, which are those of the run.
    let differs = bench.run(&["diff", "theirs.img", "ours.img"]);
    assert!(["", "C / (mtime)\n"].contains(&differs.out.as_str()), "{}{}", differs.out, differs.err);
    assert_eq!(
        bench.debugfs("ours.img", "stat /").split("User:").next().map(|head| head.contains("0755")),
        Some(true)
    );
    let lines = |run: &Run| {
        let without_counters = |line: &str| line.split_once(": ").map_or(line, |(step, _)| step).to_owned();
        run.out.lines().map(|line| without_counters(&line.replace("theirs", "ours"))).collect::<Vec<_>>()
    };
    assert_eq!(lines(&own), lines(&theirs), "{}", own.out);
    assert!(own.out.contains("\t8193, 24577, 40961, 57345, 73729, 204801, 221185\n"), "{}", own.out);
}

#[test]
fn places_are_those_of_mke2fs() {
    let Some(bench) = new_bench() else { return };
    // At an offset, in a file that becomes long enough; what is before it stays.
    fs::write(bench.path(DISK), [b'x'; 1 << 20]).expect("file");
    status(&bench, 0, "mke2fs -q -t ext4 -E offset=1048576 disk.img 30M");
    let bytes = bench.bytes(DISK);
    assert!(bytes.len() == 31 << 20 && bytes[..1 << 20].iter().all(|byte| *byte == b'x'));
    fs::write(bench.path("part.img"), &bytes[1 << 20..]).expect("file");
    bench.assert_clean("part.img");
    // At the front of a longer file, whose end stays; over another file system, where there is no terminal to ask at.
    status(&bench, 0, "mkfs.ext4 -q part.img 10M");
    assert!(bench.bytes("part.img").len() == 30 << 20);
    bench.assert_clean("part.img");
    assert!(status(&bench, 0, "mkfs.ext4 -n part.img").contains("Creating filesystem"));
    assert!(status(&bench, 1, "mke2fs missing.img").contains("no size was specified"));
    assert!(status(&bench, 1, "mke2fs -c part.img").contains("-c is not served"));
    assert!(status(&bench, 1, "mke2fs -F -t ext9 part.img").contains("ext9"));
    assert!(status(&bench, 0, "mke2fs -V").starts_with("mke2fs 1.47.0 ("));
    let config = bench.finish(
        bench
            .command(bench.path("bin/mke2fs"))
            .env("MKE2FS_CONFIG", "/etc/mke2fs.conf")
            .args(["new.img", "8M"]),
        b"",
    );
    assert!(config.status == 1 && config.err.contains("MKE2FS_CONFIG") && !bench.path("new.img").exists());
    let fixed = |image: &str| {
        let mut command = bench.command(bench.path("bin/mkfs.ext4"));
        assert_eq!(
            bench.finish(command.env("E2FSPROGS_FAKE_TIME", "1700000000").args([image, "8M"]), b"").status,
            0
        );
        bench.bytes(image)
    };
    assert!(fixed("one.img") == fixed("two.img"), "two runs differ");
}

#[test]
fn fsck_finishes_the_journal_and_leaves_damage_alone() {
    let Some(bench) = dirty_disk().map(with_names) else { return };
    bench.assert_untouched(DISK, || {
        assert!(status(&bench, 0, "fsck.ext4 -n disk.img").contains("disk.img: "));
    });
    let said = status(&bench, 0, "fsck.ext4 -a -C0 disk.img");
    assert!(said.contains("disk.img: recovering journal\ndisk.img: clean, "), "{said}");
    bench.assert_clean(DISK);
    let used = |is_ours| run(&bench, is_ours, "e2fsck -p disk.img").out;
    assert_eq!(used(true), used(false));
    assert_eq!(run(&bench, false, "e2fsck -pf disk.img").status, 0);
    status(&bench, 0, "e2fsck -fy disk.img");
    // Damage that a clean superblock hides is looked for with -f, as by e2fsck.
    bench.debugfs_write(DISK, "clri /etc/group\n");
    status(&bench, 0, "e2fsck -p disk.img");
    bench.assert_untouched(DISK, || {
        for (letters, exit) in [("-fn", 4), ("-fp", 4), ("-fy", 20), ("-f", 20)] {
            let said = status(&bench, exit, &format!("e2fsck {letters} disk.img"));
            assert!(said.contains("group"), "{letters}: {said}");
        }
        assert_eq!(run(&bench, false, "e2fsck -fn disk.img").status, 4);
        for refused in ["-c disk.img", "-n -y disk.img", "-E unshare_blocks disk.img", "-Z disk.img", "-n"] {
            status(&bench, 16, &format!("e2fsck {refused}"));
        }
        status(&bench, 8, "e2fsck -n missing.img");
        status(&bench, 8, "e2fsck -n tree/etc/passwd");
    });
    // The superblock's checksum is wrong: no repair here takes a copy of it.
    let mut bytes = bench.bytes(DISK);
    bytes[1024 + 0x80] ^= 1;
    fs::write(bench.path(DISK), bytes).expect("disk");
    for (letters, exit) in [("-n", 4), ("-p", 4), ("-y", 20)] {
        assert!(
            status(&bench, exit, &format!("e2fsck {letters} disk.img")).contains("checksum"),
            "{letters}"
        );
    }
}

#[test]
fn tune2fs_e2label_and_resize2fs_change_what_they_say() {
    let Some(bench) = new_bench() else { return };
    status(&bench, 0, "mkfs.ext4 -q disk.img 16M");
    status(&bench, 0, "e2label disk.img first");
    assert_eq!(status(&bench, 0, "e2label disk.img"), "first\n");
    let said =
        status(&bench, 0, "tune2fs -L a-label-of-more-than-16 -m 2 -c -1 -O ^metadata_csum -l disk.img");
    assert!(said.contains("Reserved block count:     327\n") && !said.contains("metadata_csum"), "{said}");
    assert_eq!(run(&bench, false, "e2label disk.img").out, "a-label-of-more-\n");
    status(&bench, 1, "tune2fs disk.img");
    assert!(status(&bench, 1, "tune2fs -I 512 disk.img").contains("-I is not served"));
    let said = status(&bench, 0, "resize2fs disk.img 40M");
    assert!(said.contains("The filesystem on disk.img is now 40960 (1k) blocks long.\n"), "{said}");
    bench.assert_clean(DISK);
    assert!(
        status(&bench, 0, "resize2fs disk.img").contains("already 40960 (1k) blocks long.  Nothing to do!")
    );
    let smallest = status(&bench, 0, "resize2fs -P disk.img");
    let blocks =
        smallest.lines().find_map(|line| line.strip_prefix("Estimated minimum size of the filesystem: "));
    let bytes = blocks.and_then(|blocks| blocks.parse().ok()).map(|blocks: usize| blocks << 10);
    status(&bench, 0, "resize2fs -M disk.img");
    assert_eq!(Some(bench.bytes(DISK).len()), bytes);
    bench.assert_clean(DISK);
    assert!(status(&bench, 1, "dumpe2fs disk.img").contains("extant info"));
}

#[test]
fn every_name_that_is_installed_is_served() {
    let bench = with_names(Bench::empty());
    let names =
        fs::read_dir(bench.path("bin")).expect("directory").map(|entry| entry.expect("entry").file_name());
    let names: Vec<_> = names.map(|name| name.into_string().expect("a name")).collect();
    assert_eq!(names.len(), 13);
    for name in names {
        if name != "e2label" {
            assert!(status(&bench, 0, &format!("{name} -V")).contains(" 1.47.0 (Extant "), "{name}");
        }
        let said = status(&bench, if name.contains("fsck") { 16 } else { 1 }, &name);
        assert!(said.contains(&format!("{name}: usage: ")), "{said}");
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-names");
    let run = bench.finish(bench.command(script).args([env!("CARGO_BIN_EXE_extant"), "/usr/sbin"]), b"");
    assert!(run.status == 1 && run.err.contains("e2fsprogs"), "{}", run.err);
}
