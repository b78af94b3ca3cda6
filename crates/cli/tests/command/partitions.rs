//! Disks with partitions: every verb takes a place on them, finds the only file system by itself, and names what else is there.

use std::fs;
use std::path::Path;

use super::bench::{Bench, DISK, Run, tool};
use super::reference::verbs;

/// A disk with partitions.
const WHOLE: &str = "whole.img";
const MIB: usize = 1 << 20;

/// Verbs without an image, or that serve all of it.
const WITHOUT_IMAGE: [&str; 6] = ["umount", "sync", "top", "completions", "manuals", "serve"];

/// A call of each verb with an image, and what is run first; `WHERE` is where the options of a place are.
const READING: [&str; 14] = [
    "info WHERE whole.img",
    "check WHERE whole.img",
    "df WHERE whole.img",
    "du WHERE whole.img",
    "ls WHERE -lR whole.img:/",
    "find WHERE whole.img -name passwd",
    "stat WHERE whole.img:/etc/passwd",
    "cat WHERE whole.img:/etc/passwd whole.img:/etc/hostname",
    "frag WHERE whole.img",
    "diff WHERE whole.img whole.img",
    "export WHERE whole.img:/etc -o -",
    "quota WHERE whole.img",
    "cp WHERE whole.img:/etc/passwd -",
    "trim WHERE --dry-run whole.img",
];
const WRITING: [&str; 16] = [
    "mkdir WHERE whole.img:/a whole.img:/b",
    "touch WHERE whole.img:/a/new",
    "cp WHERE tree/etc/passwd whole.img:/b",
    "import WHERE whole.img:/b tree.tar",
    "mv WHERE whole.img:/a whole.img:/c",
    "ln WHERE whole.img:/etc/passwd whole.img:/c/link",
    "chmod WHERE 700 whole.img:/c",
    "chown WHERE 5:6 whole.img:/c",
    "rm WHERE -r whole.img:/b",
    "tune WHERE -L other whole.img",
    "replay WHERE whole.img",
    "defrag WHERE whole.img",
    "resize WHERE whole.img 12M",
    "resize WHERE whole.img",
    "trim WHERE whole.img",
    "quota WHERE --set web 0 1M 0 0 whole.img",
];

/// An MBR with an empty partition, the disk on the second, and swap space on the third.
fn partitioned(bench: &Bench) {
    let disk = bench.bytes(DISK);
    let mut image = vec![0; 2 * MIB];
    let sectors = disk.len() as u32 / 512;
    for (slot, (kind, start, sectors)) in
        [(0x83_u8, 2048_u32, 2048_u32), (0x83, 4096, sectors), (0x82, 4096 + sectors, 2048)]
            .iter()
            .enumerate()
    {
        let entry = &mut image[446 + slot * 16..][..16];
        entry[4] = *kind;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..16].copy_from_slice(&sectors.to_le_bytes());
    }
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    image.extend(disk);
    let mut swap = vec![0; MIB];
    swap[4086..4096].copy_from_slice(b"SWAPSPACE2");
    image.extend(swap);
    fs::write(bench.path(WHOLE), image).expect("image");
}

/// Writes the second partition alone.
fn cut_out(bench: &Bench, name: &str) {
    let whole = bench.bytes(WHOLE);
    fs::write(bench.path(name), &whole[2 * MIB..whole.len() - MIB]).expect("image");
}

fn run_at(bench: &Bench, line: &str, place: &str) -> Run {
    let words = line.replace("WHERE", place);
    let mut command = bench.extant();
    command.env("SOURCE_DATE_EPOCH", "1700000000").args(words.split_whitespace());
    bench.finish(&mut command, b"")
}

const NOTE: &str = "extant: whole.img: partition 2 is the only ext4 file system on 3 partitions\n";

#[test]
fn partitions_are_chosen() {
    let Some(bench) = Bench::new() else { return };
    partitioned(&bench);
    assert_eq!(bench.ok(&["cat", "--partition", "2", "whole.img:/etc/hostname"]).out, "guest\n");
    assert_eq!(bench.ok(&["cat", "--offset", "2M", "whole.img:/etc/hostname"]).out, "guest\n");
    bench.ok(&["mkdir", "--partition", "2", "whole.img:/new"]);
    assert_eq!(bench.ok(&["check", "--partition", "2", "whole.img"]).out, "whole.img: clean\n");
    for arguments in [
        &["ls", "--partition", "1", "whole.img"][..],
        &["ls", "--partition", "7", "whole.img"],
        &["ls", "--partition", "1", DISK],
        &["ls", "--offset", "4096", "whole.img"],
        &["ls", "--offset", "1T", "whole.img"],
    ] {
        bench.fails(1, arguments);
    }
    std::fs::write(bench.path("part.img"), &bench.bytes("whole.img")[2 * MIB..18 * MIB]).expect("image");
    bench.assert_clean("part.img");
}

#[test]
fn every_verb_works_on_a_partition_by_number_by_place_and_by_itself() {
    let (Some(bench), Some(_)) = (Bench::new(), tool("tar")) else { return };
    bench.program("tar", &["-cf", "tree.tar", "-C", "tree", "bin"]);
    bench.ok(&["tune", "-O", "quota", DISK]);
    let help = bench.ok(&["--help"]).out;
    let mut missing = verbs(&help);
    for line in READING.iter().chain(&WRITING) {
        missing.retain(|verb| *verb != line.split(' ').next().expect("a verb"));
    }
    missing.retain(|verb| !WITHOUT_IMAGE.contains(verb));
    assert_eq!(missing, ["mkfs", "mount", "exec"], "these have tests of their own");
    partitioned(&bench);
    for line in READING {
        bench.assert_untouched(WHOLE, || {
            let by_number = run_at(&bench, line, "--partition 2");
            assert_eq!((by_number.status, by_number.err.as_str()), (0, ""), "{line}");
            assert!(!by_number.stdout.is_empty() || line.starts_with("diff"), "{line}");
            let by_place = run_at(&bench, line, "--offset 2M");
            let by_itself = run_at(&bench, line, "");
            assert_eq!((by_place.status, by_place.err.as_str()), (0, ""), "{line}");
            // `diff` has two disks to tell of.
            let notes = if line.starts_with("diff") { 2 } else { 1 };
            assert_eq!((by_itself.status, by_itself.err), (0, NOTE.repeat(notes)), "{line}");
            assert!(by_itself.stdout == by_number.stdout, "{line}");
            // How long the rest of the disk is, and that a partition was named.
            if !line.starts_with("info") {
                assert!(by_place.stdout == by_number.stdout, "{line}");
            }
        });
    }
    let mut wholes = Vec::new();
    for place in ["--partition 2", ""] {
        partitioned(&bench);
        for line in WRITING {
            let run = run_at(&bench, line, place);
            assert_eq!(run.status, 0, "{line}: {}", run.err);
            assert_eq!(run.err.matches(NOTE).count(), usize::from(place.is_empty()), "{line}: {}", run.err);
        }
        cut_out(&bench, "part.img");
        bench.assert_clean("part.img");
        assert_eq!(bench.words("ls part.img:/c"), "link\nnew\n");
        wholes.push(bench.bytes(WHOLE));
    }
    let swap = &wholes[0][18 * MIB..];
    assert!(swap.len() == MIB && swap[4086..4096] == *b"SWAPSPACE2", "the partition behind it was changed");
    assert!(wholes[0] == wholes[1], "a place that was chosen by itself makes a difference");
    partitioned(&bench);
    for line in WRITING.iter().filter(|line| !line.starts_with("resize")) {
        let run = run_at(&bench, line, "--offset 2M");
        assert_eq!(run.status, 0, "{line}: {}", run.err);
    }
    cut_out(&bench, "part.img");
    bench.assert_clean("part.img");
}

#[test]
fn info_names_the_partition_that_was_found() {
    let Some(bench) = Bench::new() else { return };
    partitioned(&bench);
    let run = bench.run(&["info", "--json", WHOLE]);
    assert_eq!((run.json()["partition"].as_u64(), run.err.as_str()), (Some(2), NOTE));
    assert!(bench.run(&["info", WHOLE]).out.starts_with("partition          2\nlabel "));
    assert!(bench.document("info --json disk.img")["partition"].is_null());
    assert!(bench.document("info --json --offset 2M whole.img")["partition"].is_null());
}

/// Writes a table with sfdisk; false if there is none.
fn sfdisk(bench: &Bench, bytes: usize, script: &str) -> bool {
    let Some(program) = tool("sfdisk") else { return false };
    fs::File::create(bench.path(WHOLE)).and_then(|file| file.set_len(bytes as u64)).expect("image");
    let run = bench.finish(bench.command(program).args(["-q", WHOLE]), script.as_bytes());
    assert_eq!(run.status, 0, "{}", run.err);
    true
}

#[test]
fn several_file_systems_are_listed_and_none_is_chosen() {
    let Some(bench) = Bench::new() else { return };
    let script =
        "label: gpt\nstart=1MiB, size=16MiB, type=U\nstart=20MiB, size=20MiB\nstart=40MiB, size=8MiB\n";
    if !sfdisk(&bench, 64 * MIB, script) {
        return;
    }
    bench.ok(&["mkfs", "-q", "-L", "one\u{1b}[31m", "--partition", "1", WHOLE]);
    bench.ok(&["mkfs", "-q", "--partition", "3", WHOLE]);
    for arguments in
        [&["ls", WHOLE][..], &["mkdir", "whole.img:/x"], &["tune", "-L", "x", WHOLE], &["replay", WHOLE]]
    {
        bench.assert_untouched(WHOLE, || {
            let said = bench.fails(1, arguments);
            assert_eq!(
                said,
                "extant: whole.img: 2 partitions have ext4 file systems; choose one with --partition N (mount: -o \
                 partition=N): 1 (16 MiB at byte 1048576, ext4 'one\\033[31m'), 3 (8 MiB at byte 41943040, ext4)\n"
            );
        });
    }
    assert!(bench.fails(8, &["check", WHOLE]).contains("--partition N"));
    let failure = bench.run(&["info", "--json", WHOLE]).err;
    assert!(failure.contains(r#""kind":"ambiguous""#), "{failure}");
    // One that is named is not looked for.
    bench.ok(&["check", "--partition", "3", WHOLE]);
    let said = bench.fails(1, &["ls", "--offset", "0", WHOLE]);
    assert!(
        said.contains("a partition table") && said.contains("choose one with --partition: 1 ("),
        "{said}"
    );
}

#[test]
fn a_disk_without_ext4_says_what_each_partition_is() {
    let Some(bench) = Bench::new() else { return };
    let script = "label: gpt\nstart=1MiB, size=1MiB, type=21686148-6449-6E6F-744E-656564454649\nstart=2MiB, \
                  size=1MiB\nstart=3MiB, size=1MiB\nstart=4MiB, size=1MiB, type=S\nstart=5MiB, size=1MiB\n";
    if !sfdisk(&bench, 8 * MIB, script) {
        return;
    }
    let said = bench.fails(1, &["info", WHOLE]);
    assert!(said.contains("1 (1 MiB at byte 1048576, no known format, type BIOS boot)"), "{said}");
    assert!(said.ends_with("`extant mkfs --partition N` makes one\n"), "{said}");
    let mut disk = bench.bytes(WHOLE);
    disk[2 * MIB..][..6].copy_from_slice(b"LUKS\xba\xbe");
    disk[3 * MIB + 512..][..8].copy_from_slice(b"LABELONE");
    disk[4 * MIB + 4086..][..10].copy_from_slice(b"SWAPSPACE2");
    disk[5 * MIB..][..4].copy_from_slice(b"QFI\xfb");
    fs::write(bench.path(WHOLE), disk).expect("image");
    let said = bench.fails(1, &["info", WHOLE]);
    for part in [
        "a partition table, not an ext4 file system; none of its partitions is one: 1 (",
        "2 (1 MiB at byte 2097152, a LUKS volume), 3 (",
        "3 (1 MiB at byte 3145728, an LVM physical volume), 4 (",
        "4 (1 MiB at byte 4194304, swap space)",
        "5 (1 MiB at byte 5242880, a qcow2 image)",
        "`losetup -fP --show IMAGE` makes a device of each",
        "a LUKS volume: open it with `cryptsetup open",
        "an LVM physical volume: activate it",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let said = bench.fails(1, &["ls", "--partition", "2", WHOLE]);
    assert!(said.contains("a LUKS volume, not an ext4 file system; open it with `cryptsetup open"), "{said}");
    let said = bench.fails(1, &["ls", "--partition", "6", WHOLE]);
    assert!(said.contains("has no partition 6; there are 1, 2, 3, 4, 5"), "{said}");
    // Both copies of the table are damaged.
    let mut disk = bench.bytes(WHOLE);
    let last = disk.len() - 512;
    disk[512] = 0;
    disk[last] = 0;
    fs::write(bench.path(WHOLE), disk).expect("image");
    let said = bench.fails(1, &["ls", WHOLE]);
    assert!(said.contains("protects a GUID partition table, both copies of which are damaged"), "{said}");
}

#[test]
fn a_file_system_below_a_boot_sector_or_another_format_is_not_looked_for() {
    let Some(bench) = Bench::new() else { return };
    partitioned(&bench);
    // A file system with a boot sector whose table names another one: it stays as it is.
    let mut disk = bench.bytes(DISK);
    let entry = &mut disk[446..462];
    entry[4] = 0x83;
    entry[8..12].copy_from_slice(&(8_u32 * 2048).to_le_bytes());
    entry[12..16].copy_from_slice(&(6_u32 * 2048).to_le_bytes());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    bench.ok(&["mkfs", "-q", "-F", "inner.img", "6M"]);
    disk[8 * MIB..14 * MIB].copy_from_slice(&bench.bytes("inner.img"));
    fs::write(bench.path("bare.img"), disk).expect("image");
    assert_eq!(bench.words("cat bare.img:/etc/hostname"), "guest\n");
    assert!(bench.document("info --json bare.img")["partition"].is_null());
    assert_eq!(bench.words("ls --partition 1 bare.img"), "lost+found\n");
    // The metadata of an array at the end: what is on its partitions is the array's.
    let mut whole = bench.bytes(WHOLE);
    let at = whole.len() - 8192;
    whole[at..at + 4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
    let sector = at as u64 / 512;
    whole[at + 144..at + 152].copy_from_slice(&sector.to_le_bytes());
    fs::write(bench.path("member.img"), whole).expect("image");
    bench.assert_untouched("member.img", || {
        let said = bench.fails(1, &["mkdir", "member.img:/x"]);
        assert!(said.contains("a member of a Linux RAID") && said.contains("mdadm --assemble"), "{said}");
    });
    // An ISO image leaves its beginning to a boot sector.
    let mut whole = bench.bytes(WHOLE);
    whole[0x8001..0x8006].copy_from_slice(b"CD001");
    fs::write(bench.path(WHOLE), whole).expect("image");
    let run = bench.run(&["cat", "whole.img:/etc/hostname"]);
    assert_eq!((run.out.as_str(), run.err.as_str()), ("guest\n", NOTE));
}

#[test]
fn mkfs_never_chooses_a_partition() {
    let Some(bench) = Bench::new() else { return };
    partitioned(&bench);
    bench.assert_untouched(WHOLE, || {
        let said = bench.fails(1, &["mkfs", WHOLE]);
        assert!(said.contains("contains a partition table; use -F"), "{said}");
        let said = bench.fails(1, &["mkfs", "--from", WHOLE, "-d", "tree", "new.img"]);
        assert!(said.contains("choose one with --partition: "), "{said}");
        let would = bench.document("mkfs --json -n -F whole.img");
        assert_eq!(would["size_bytes"], 19 * MIB as u64);
    });
    bench.ok(&["mkfs", "-q", "--from", WHOLE, "--partition", "2", "-d", "tree", "new.img"]);
    assert_eq!(bench.words("cat --partition 2 new.img:/etc/hostname"), "guest\n");
    for place in [["--partition", "2"], ["--offset", "2M"]] {
        partitioned(&bench);
        bench.ok(&["mkfs", "-q", "-F", "-d", "tree/etc", place[0], place[1], WHOLE, "8M"]);
        assert_eq!(bench.words("cat --partition 2 whole.img:/hostname"), "guest\n");
    }
}

#[test]
fn mounts_find_the_only_file_system() {
    if !super::bench::is_root() || !Path::new("/dev/fuse").exists() {
        println!("skipped: root and /dev/fuse are needed");
        return;
    }
    let Some(bench) = Bench::new() else { return };
    partitioned(&bench);
    for options in [&["--partition", "2"][..], &["--offset", "2M"], &["-o", "partition=2"], &[]] {
        let run = bench.run(&[&["exec"], options, &[WHOLE, "--", "cat", "etc/hostname"]].concat());
        let note = if options.is_empty() { NOTE } else { "" };
        let err = run.err.replace(&format!("{}/", bench.dir().display()), "");
        assert_eq!((run.status, run.out.as_str(), err.as_str()), (0, "guest\n", note), "{options:?}");
        fs::create_dir_all(bench.path("mnt")).expect("directory");
        let run = bench.run(&[&["mount"], options, &[WHOLE, "mnt"]].concat());
        let read = fs::read(bench.path("mnt/etc/hostname"));
        bench.run(&["umount", "mnt"]);
        let err = run.err.replace(&format!("{}/", bench.dir().display()), "");
        assert_eq!((run.status, err.as_str()), (0, note), "{options:?}");
        assert_eq!(read.expect("file"), b"guest\n");
    }
    cut_out(&bench, "part.img");
    bench.assert_clean("part.img");
}

#[test]
fn programs_of_e2fsprogs_take_an_offset_behind_a_question_mark() {
    let Some(bench) = Bench::new() else { return };
    partitioned(&bench);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/install-names");
    let run = bench.finish(bench.command(script).args([env!("CARGO_BIN_EXE_extant"), "bin"]), b"");
    assert_eq!(run.status, 0, "{}", run.err);
    let place = "whole.img?offset=2097152";
    for (words, status) in [
        (&["tune2fs", "-L", "named", place][..], 0),
        (&["e2label", place], 0),
        (&["e2fsck", "-fn", place], 0),
        (&["dumpe2fs", "-h", place], 0),
        (&["resize2fs", place, "12M"], 0),
        (&["e2fsck", "-fp", place], 0),
        // None of them looks for a partition.
        (&["tune2fs", "-L", "x", WHOLE], 1),
        (&["e2label", WHOLE], 1),
        (&["e2fsck", "-fn", WHOLE], 8),
        (&["dumpe2fs", "-h", WHOLE], 1),
        (&["resize2fs", WHOLE, "12M"], 1),
        (&["e2fsck", "-fn", "whole.img?offset=2M&cache=on"], 16),
    ] {
        let program = bench.path("bin").join(words[0]);
        let run = bench.finish(bench.command(program).args(&words[1..]), b"");
        assert_eq!(run.status, status, "{words:?}: {}{}", run.out, run.err);
        // As theirs do.
        if let (Some(theirs), 0) = (tool(words[0]), status)
            && !words.contains(&"resize2fs")
        {
            let run = bench.finish(bench.command(theirs).args(&words[1..]), b"");
            assert_eq!(run.status, 0, "{words:?}: {}{}", run.out, run.err);
        }
        if words[0] == "e2label" && status == 0 {
            assert_eq!(run.out, "named\n");
        }
    }
    cut_out(&bench, "part.img");
    bench.assert_clean("part.img");
    let info = bench.document("info --json part.img");
    assert_eq!((info["label"].as_str(), info["size_bytes"].as_u64()), (Some("named"), Some(12 << 20)));
}
