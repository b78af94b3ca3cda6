//! The messages that users see for disks in every state, through each command and the mount: `docs/reference/states.md` has the same
//! table.

use std::fs;
use std::path::Path;

use extant::{Filesystem, Mount};
use extant_block::{BlockDevice, Fault, FaultDevice, MemoryDevice, Operation};
use extant_rt::Arc;

use super::bench::{Bench, DISK};

/// How a disk is looked at.
const DOORS: [(&str, &[&str]); 4] = [
    ("check", &["check", DISK]),
    ("export", &["export", DISK, "-o", "out.tar"]),
    ("mount -o ro", &["mount", "-o", "ro", DISK, "point"]),
    ("mount", &["mount", DISK, "point"]),
];

/// The content of the disk, as far as it can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Nothing,
    /// The state before the crash, without the file that the journal holds.
    Home,
    /// That file too.
    Journal,
}

/// A state, how a disk comes to be in it, and what each of [`DOORS`] gives: the exit status, and the words. Numbers of blocks are N.
struct State {
    name: &'static str,
    cause: &'static str,
    make: fn(&Bench),
    seen: Seen,
    doors: [(i32, String); 4],
}

const MET: &str = "extant: disk.img: errors were met when the disk was last in use (the last: ext4_lookup, inode 12); \
                   e2fsck -f looks for damage and takes the mark away";
const SKIPPED: &str = "extant: disk.img: 1 transaction in the journal, which the superblock says to ignore (needs_recovery is clear); \
                       writing to the disk empties the journal; e2fsck -f offers to replay it";
const EMPTIED: &str = "extant: disk.img: emptied the journal without replaying 1 transaction, as the superblock says \
                       (needs_recovery is clear)";
const GIVEN_UP: &str = "extant: disk.img: the journal was given up with error -5 when the disk was last in use; \
                        e2fsck -f looks for damage and takes the mark away";
const UNKNOWN: &str = "extant: disk.img: inode 8, journal (block N): unknown features 0x100 of the journal; a Linux or e2fsck that \
                       knows them replays it; --norecovery (mount: -o ro,norecovery) shows the disk without it";
const FUTURE: &str =
    "extant: disk.img: unsupported features: FEATURE_I30; such a disk can be neither read nor written here";

/// Exits and words where nothing is refused; `export` has nothing to say.
fn served(check: &str, ro: &str, rw: &str) -> [(i32, String); 4] {
    [check, "", ro, rw].map(|words| (0, words.to_owned()))
}

/// Exits and words where all that is printed is why the disk cannot be opened: `check` has found damage and says so on its output.
fn refused(why: &'static str) -> [(i32, String); 4] {
    let said = format!("extant: {why}");
    [(4, why.to_owned()), (1, said.clone()), (1, said.clone()), (1, said)]
}

fn states() -> [State; 11] {
    [
        State {
            name: "clean",
            cause: "unmounted",
            make: |_| (),
            seen: Seen::Home,
            doors: served("disk.img: clean", "", ""),
        },
        State {
            name: "dirty journal",
            cause: "a crash",
            make: |bench| crash(bench, false),
            seen: Seen::Journal,
            doors: served(
                "disk.img: clean after replaying N blocks of its journal, in memory only",
                "",
                "extant: disk.img: replayed the journal: N blocks",
            ),
        },
        State {
            name: "journal of an unmounted disk",
            cause: "a crash, and the flag needs_recovery cleared",
            make: |bench| {
                crash(bench, false);
                drop(bench.program("debugfs", &["-w", "-R", "feature -needs_recovery", DISK]));
            },
            seen: Seen::Home,
            doors: served(&format!("disk.img: clean / {SKIPPED}"), SKIPPED, EMPTIED),
        },
        State {
            name: "error flag",
            cause: "Linux met damage while the disk was mounted",
            make: |bench| {
                let request = "ssv state 2\nssv error_count 1\nssv last_error_func ext4_lookup\nssv last_error_ino 12\n";
                bench.debugfs_write(DISK, request);
            },
            seen: Seen::Home,
            doors: served(&format!("disk.img: clean / {MET}"), MET, MET),
        },
        State {
            name: "aborted journal",
            cause: "a write to the journal failed, so that writing was given up",
            make: |bench| crash(bench, true),
            seen: Seen::Journal,
            doors: {
                let finding = "disk.img: inode 8, journal (block N): the log was given up with error -5";
                let replayed = "extant: disk.img: replayed the journal: N blocks";
                let [_, export, ro, rw] = served("", GIVEN_UP, &format!("{replayed} / {GIVEN_UP}"));
                [(4, format!("{finding} / {GIVEN_UP}")), export, ro, rw]
            },
        },
        State {
            name: "needs recovery, journal superblock broken",
            cause: "a crash, and the journal's first block overwritten",
            make: |bench| {
                crash(bench, false);
                poke(bench, journal_start(bench), &[0; 4]);
            },
            seen: Seen::Nothing,
            doors: refused(
                "disk.img: inode 8, journal (block N): no journal superblock; e2fsck mends or empties it; --norecovery (mount: -o \
                 ro,norecovery) shows the disk without it",
            ),
        },
        State {
            name: "unknown journal feature",
            cause: "a crash of a later Linux",
            make: |bench| {
                crash(bench, false);
                // s_feature_incompat, whose low byte has the known ones.
                poke(bench, journal_start(bench) + 0x2A, &[1]);
            },
            seen: Seen::Nothing,
            doors: [8, 1, 1, 1].map(|exit| (exit, UNKNOWN.to_owned())),
        },
        State {
            name: "future incompatible feature",
            cause: "made by a later mke2fs",
            make: |bench| drop(bench.program("debugfs", &["-w", "-R", "feature FEATURE_I30", DISK])),
            seen: Seen::Nothing,
            doors: [8, 1, 1, 1].map(|exit| (exit, FUTURE.to_owned())),
        },
        State {
            name: "future read-only-compatible feature",
            cause: "made by a later mke2fs",
            make: |bench| drop(bench.program("debugfs", &["-w", "-R", "feature FEATURE_R30", DISK])),
            seen: Seen::Home,
            doors: {
                let check = "extant: disk.img: unsupported features: FEATURE_R30; whether such a disk is sound cannot be told here";
                let mount = "extant: disk.img: can only be read, for it has the features FEATURE_R30; mount it with -o ro";
                [(8, check.to_owned()), (0, String::new()), (0, String::new()), (1, mount.to_owned())]
            },
        },
        State {
            name: "truncated image",
            cause: "copied in part",
            make: |bench| {
                let image = fs::OpenOptions::new().write(true).open(bench.path(DISK)).expect("image");
                image.set_len(10 << 20).expect("a shorter image");
            },
            seen: Seen::Nothing,
            doors: refused(
                "disk.img: superblock: the file system has 16777216 bytes, its device 10485760; the image was cut off, or not \
                 copied whole",
            ),
        },
        State {
            name: "wrong checksum of the superblock",
            cause: "a damaged block",
            // s_mkfs_time, which no mount changes.
            make: |bench| poke(bench, 1024 + 0x108, b"A"),
            seen: Seen::Nothing,
            doors: refused(
                "disk.img: superblock: bad checksum; e2fsck takes a copy of it from another group, if there is one",
            ),
        },
    ]
}

/// One with a copy of the superblock, at the place where e2fsck looks for it.
fn disk_of_two_groups() -> Option<Bench> {
    let bench = Bench::new()?;
    bench.mke2fs(DISK, "16M", &["-F", "-b", "1024", "-d", "tree"]);
    Some(bench)
}

/// A disk whose journal holds a file `/late`, as a crash leaves it; or as a journal leaves it that was aborted after a failed write.
fn crash(bench: &Bench, aborts: bool) {
    let bytes = bench.bytes(DISK);
    let memory = MemoryDevice::new(bytes.len() as u64);
    memory.write_at(0, &bytes).expect("a copy");
    let device = Arc::new(FaultDevice::new(memory, |_| Fault::None));
    let fs = Mount::new().background(false).open_device(device.clone()).expect("a mount");
    fs.write("/late", "in the journal\n").and_then(|()| fs.sync()).expect("a commit");
    if aborts {
        give_up(&fs, &device);
    }
    let (image, mut bytes) = (device.inner().snapshot(), bytes);
    image.read_at(0, &mut bytes).expect("its bytes");
    fs::write(bench.path(DISK), bytes).expect("image");
}

fn give_up(fs: &Filesystem, device: &FaultDevice<MemoryDevice>) {
    let failing = device.count(Operation::Write);
    device.set_plan(move |request| {
        let fails = request.operation == Operation::Write && request.index == failing;
        if fails { Fault::Error(std::io::ErrorKind::Other) } else { Fault::None }
    });
    fs.create_dir("/lost").expect("a directory");
    assert!(fs.sync().is_err(), "the write failed");
}

/// Where the journal begins, in bytes.
fn journal_start(bench: &Bench) -> u64 {
    let said = bench.program("debugfs", &["-R", "bmap <8> 0", DISK]).out;
    said.trim().parse::<u64>().expect("a block") * 1024
}

fn poke(bench: &Bench, at: u64, with: &[u8]) {
    let (mut bytes, at) = (bench.bytes(DISK), at as usize);
    bytes[at..at + with.len()].copy_from_slice(with);
    fs::write(bench.path(DISK), bytes).expect("image");
}

/// The output, with names of files as they were given and numbers of blocks as N.
fn words(bench: &Bench, run: &super::bench::Run) -> String {
    let text = format!("{}{}", run.out, run.err).replace(&format!("{}/", bench.dir().display()), "");
    let lines = text.trim_end().lines().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let is_number = |at: usize| words[at].bytes().next().is_some_and(|byte| byte.is_ascii_digit());
        let of_blocks = |at: usize| {
            words.get(at + 1).is_some_and(|next| *next == "blocks")
                || at > 0 && words[at - 1].ends_with("(block")
        };
        let shown = (0..words.len()).map(|at| match is_number(at) && of_blocks(at) {
            true => words[at]
                .replace(|letter: char| letter.is_ascii_digit(), "N")
                .replace("NN", "N")
                .replace("NN", "N"),
            false => words[at].to_owned(),
        });
        shown.collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join(" / ")
}

/// The tree that an archive or a mount has.
fn seen_at(has: impl Fn(&str) -> bool) -> Seen {
    assert!(has("etc/hostname"));
    if has("late") { Seen::Journal } else { Seen::Home }
}

fn can_mount() -> bool {
    fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok()
}

/// Goes through a door; what it gave, and what was seen behind it.
fn pass(bench: &Bench, door: usize) -> (i32, String, Seen) {
    let (name, arguments) = DOORS[door];
    let run = bench.run(arguments);
    let (status, said) = (run.status, words(bench, &run));
    let point = bench.path("point");
    let seen = match (name, status) {
        (_, 1) | ("check", _) => Seen::Nothing,
        ("export", _) => {
            let listed = bench.program("tar", &["-tf", "out.tar"]).out;
            seen_at(|path| listed.lines().any(|line| line.trim_start_matches("./") == path))
        }
        _ => {
            let seen = seen_at(|path| point.join(path).exists());
            let written = fs::write(point.join("new"), "new");
            assert_eq!(written.is_ok(), name == "mount", "{written:?}");
            bench.ok(&["umount", "point"]);
            seen
        }
    };
    (status, said, seen)
}

#[test]
fn each_state_gives_the_words_of_the_page_through_each_door() {
    let Some(bench) = disk_of_two_groups() else { return };
    fs::create_dir(bench.path("point")).expect("directory");
    let pristine = bench.bytes(DISK);
    let mut differences = Vec::new();
    for state in states() {
        fs::write(bench.path(DISK), &pristine).expect("image");
        (state.make)(&bench);
        let made = bench.bytes(DISK);
        for (door, expected) in state.doors.iter().enumerate() {
            let name = DOORS[door].0;
            if name.starts_with("mount") && !can_mount() {
                println!("skipped: {name}: no /dev/fuse");
                continue;
            }
            fs::write(bench.path(DISK), &made).expect("image");
            let (status, said, seen) = pass(&bench, door);
            if (status, &said) != (expected.0, &expected.1) {
                differences.push(format!("{}, {name}: {status} {said:?}", state.name));
            }
            if status == 0 && name != "check" {
                assert_eq!(seen, state.seen, "{}, {name}", state.name);
            }
            if name != "mount" {
                assert!(bench.bytes(DISK) == made, "{}: {name} has written", state.name);
            } else if status == 0 {
                bench.assert_clean(DISK);
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn what_the_words_advise_helps() {
    let Some(bench) = disk_of_two_groups() else { return };
    let pristine = bench.bytes(DISK);
    for state in states() {
        fs::write(bench.path(DISK), &pristine).expect("image");
        (state.make)(&bench);
        let advises = |what: &str| state.doors.iter().any(|(_, words)| words.contains(what));
        if advises("--norecovery") {
            bench.ok(&["export", "--norecovery", DISK, "-o", "out.tar"]);
            let listed = bench.program("tar", &["-tf", "out.tar"]).out;
            assert!(listed.contains("hostname") && !listed.contains("late"), "{}: {listed}", state.name);
        }
        if advises("; e2fsck") {
            let program = super::bench::tool("e2fsck").expect("e2fsck");
            let run = bench.finish(bench.command(program).args(["-fy", DISK]), b"");
            assert!(run.status <= 1, "{}: {}{}", state.name, run.out, run.err);
            assert_eq!(bench.words("check disk.img"), "disk.img: clean\n", "{}", state.name);
        }
    }
}

#[test]
fn info_and_replay_tell_of_a_journal_that_is_ignored() {
    let Some(bench) = disk_of_two_groups() else { return };
    crash(&bench, false);
    bench.program("debugfs", &["-w", "-R", "feature -needs_recovery", DISK]);
    let made = bench.bytes(DISK);
    let why = SKIPPED.trim_start_matches("extant: disk.img: ");
    assert!(
        bench.words("info disk.img").contains(&format!("clean; {why}")),
        "{}",
        bench.words("info disk.img")
    );
    assert_eq!(bench.document("info --json disk.img")["journal_skipped_transactions"], 1);
    let replay = bench.run(&["replay", DISK]);
    assert_eq!(
        (replay.status, words(&bench, &replay)),
        (0, format!("disk.img: nothing to replay / {SKIPPED}"))
    );
    assert!(bench.bytes(DISK) == made, "reading has written");
}

#[test]
fn the_page_has_the_same_table() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/states.md");
    let page = fs::read_to_string(page).expect("docs/reference/states.md");
    let mut table = String::from("| state | command | exit | message | content |\n|---|---|---|---|---|\n");
    for state in states() {
        for ((door, _), (exit, words)) in DOORS.iter().zip(state.doors) {
            let first = if *door == DOORS[0].0 {
                format!("**{}**: {}", state.name, state.cause)
            } else {
                String::new()
            };
            let words = if words.is_empty() { String::new() } else { format!("`{words}`") };
            let seen = match (state.seen, *door, exit) {
                (_, "check", _) | (_, _, 1..) => "",
                (Seen::Journal, ..) => "also what the journal holds",
                _ => "all",
            };
            table += &format!("| {first} | `{door}` | {exit} | {words} | {seen} |\n");
        }
    }
    assert!(page.contains(&table), "docs/reference/states.md is to have:\n{table}");
}
