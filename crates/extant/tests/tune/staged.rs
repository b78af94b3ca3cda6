//! Changes of a disk's own files and of its layout: what they leave, and that every crash leaves the disk as it was or as it is to be.

use std::sync::Arc;

use extant::{Error, Mount, Tune};
use extant_block::{Event, FaultDevice, Log, MemoryDevice, Mutation, Operation, Recorder, Tearing};
use extant_ondisk::{CompatFeatures, IncompatFeatures, RoCompatFeatures, Superblock};
use extant_rt::HAS_THREADS;
use extant_testing::{Command, has_e2fsprogs};

use super::disk::{
    ImageFile, Tree, assert_whole, disk, new_features, superblock, try_tree, without_noted_errors,
};
use super::explore::{Judge, is_thorough, places, survivors};

/// A change: the features of the disk, what changes first, then what is looked at, and the program that does the like.
pub struct Case {
    made: &'static str,
    pub before: &'static str,
    pub change: &'static str,
    like: &'static [&'static str],
}

const fn case(
    made: &'static str,
    before: &'static str,
    change: &'static str,
    like: &'static [&'static str],
) -> Case {
    Case { made, before, change, like }
}

/// Words of `-O`; one with `=` is one of `-J`.
pub const CASES: &[Case] = &[
    case("^has_journal", "", "has_journal", &["tune2fs", "-j"]),
    case("^has_journal,^metadata_csum", "", "has_journal", &["tune2fs", "-j"]),
    case("^has_journal,^extent,^64bit", "", "size=2", &["tune2fs", "-J", "size=2"]),
    case("", "", "^has_journal", &["tune2fs", "-O", "^has_journal"]),
    case("", "", "size=4", &[]),
    case("", "size=4", "size=1", &[]),
    case("^has_journal", "", "has_journal,fast_commit,orphan_file", &[]),
    case("", "", "orphan_file", &["tune2fs", "-O", "orphan_file"]),
    case("orphan_file", "", "^orphan_file", &["tune2fs", "-O", "^orphan_file"]),
    case("^64bit", "", "64bit", &["resize2fs", "-b"]),
    case("", "", "^64bit", &["resize2fs", "-s"]),
    case("^metadata_csum,uninit_bg,^64bit,^has_journal", "", "64bit", &["resize2fs", "-b"]),
    case("^resize_inode,^sparse_super", "", "sparse_super", &["tune2fs", "-O", "sparse_super"]),
    case("", "", "^dir_index", &[]),
    case("^metadata_csum,^has_journal", "", "^dir_index", &[]),
    case("", "", "mmp", &["tune2fs", "-O", "mmp"]),
    case("", "mmp", "^mmp", &["tune2fs", "-O", "^mmp"]),
];

/// Those that this host can do: a thread renews the block of a disk's protection.
fn cases() -> impl Iterator<Item = &'static Case> {
    CASES.iter().filter(|case| HAS_THREADS || !case.sleeps())
}

fn tune(words: &str) -> Tune {
    match words {
        "" => Tune::new(),
        words if words.contains('=') => Tune::new().journal(words).expect("journal options"),
        words => new_features(words),
    }
}

fn features(superblock: &Superblock) -> (CompatFeatures, IncompatFeatures, RoCompatFeatures) {
    (superblock.compat(), superblock.incompat(), superblock.ro_compat())
}

impl Case {
    pub fn disk(&self) -> (Arc<MemoryDevice>, Tree) {
        let (device, tree) = disk(self.made);
        if !self.before.is_empty() {
            tune(self.before).apply(device.clone()).expect("tune");
        }
        (device, tree)
    }

    pub fn tune(&self) -> Tune {
        tune(self.change)
    }

    /// Whether e2fsck sleeps before it replays the log of its disks.
    fn sleeps(&self) -> bool {
        [self.before, self.change].iter().any(|words| words.ends_with("mmp"))
    }

    /// Crashes at three places of the change, or at each; how many images that were.
    fn crash(&self) -> usize {
        let (base, tree) = self.disk();
        let before = superblock(&*base);
        let log = recorded(&base, &self.tune(), Mutation::None);
        let LogName { event, last } = LogName::of(&log);
        let places = match is_thorough() {
            true => places(&log, 1),
            false => vec![(event, 2), (event.midpoint(last), 3), (last, 2)],
        };
        let judge = Judge {
            tree: &tree,
            tune: &self.tune(),
            is_done: &|after| self.is_done(&before, after),
            // Most of the time is e2fsck's.
            judges_again: &|(events, _)| is_thorough() || events == last,
            sleeps: self.sleeps(),
        };
        let images = judge.explore(&log, &places);
        println!("{} on {:?}: {images} images", self.change, self.made);
        images
    }

    /// Whether the change was made.
    fn is_done(&self, before: &Superblock, after: &Superblock) -> bool {
        let has = |name: &str| {
            CompatFeatures::by_name(name).is_some_and(|it| after.compat().contains(it))
                || IncompatFeatures::by_name(name).is_some_and(|it| after.incompat().contains(it))
                || RoCompatFeatures::by_name(name).is_some_and(|it| after.ro_compat().contains(it))
        };
        let is_as_said = match self.change.strip_prefix("size=") {
            // The size in the copy of the journal's inode.
            Some(megabytes) => Ok(after.s_jnl_blocks()[16] >> 20) == megabytes.parse(),
            None => {
                self.change.split(',').all(|word| has(word.trim_start_matches('^')) != word.starts_with('^'))
            }
        };
        // Nothing is left of the log that had the change.
        is_as_said && after.s_journal_inum() != 9 && before.s_uuid() == after.s_uuid()
    }
}

/// The lines of `dumpe2fs -h` that say what this disk has.
fn dump(image: &ImageFile) -> Vec<String> {
    let output =
        Command::new("dumpe2fs").arg("-h").arg(&image.0).env("LC_ALL", "C").output().expect("dumpe2fs");
    let kept = [
        "Filesystem features:",
        "Journal inode:",
        "Total journal blocks:",
        "Group descriptor size:",
        "MMP update",
        "Inode count",
    ];
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter(|line| kept.iter().any(|start| line.starts_with(start)))
        .map(str::to_owned)
        .collect()
}

#[test]
fn changes_leave_what_e2fsprogs_leave() {
    if !has_e2fsprogs() {
        return;
    }
    for case in cases() {
        let (device, tree) = case.disk();
        let before = superblock(&*device);
        let like = ImageFile::of(&device);
        case.tune().apply(device.clone()).unwrap_or_else(|e| panic!("{}: {e}", case.change));
        assert!(case.is_done(&before, &superblock(&*device)), "{}", case.change);
        assert_whole(&device, &tree, case.change);
        let [program, arguments @ ..] = case.like else { continue };
        let output = Command::new(program).args(arguments).arg(&like.0).output().expect("e2fsprogs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {said}");
        assert_eq!(dump(&ImageFile::of(&device)), dump(&like), "{} on {:?}", case.change, case.made);
    }
}

/// The first event after the superblock names the log, and the flushes before and behind.
pub struct LogName {
    pub event: usize,
    /// The superblock's own write that comes last.
    pub last: usize,
}

impl LogName {
    pub fn of(log: &Log) -> Self {
        let inums: Vec<(usize, u32)> = log
            .events()
            .iter()
            .enumerate()
            .filter_map(|(at, event)| match event {
                Event::Write { offset, bytes, .. }
                    if (*offset..offset + bytes.len() as u64).contains(&1024) =>
                {
                    let superblock = bytes.get(1024 - *offset as usize..)?;
                    Some((at, u32::from_le_bytes(*superblock.get(0xE0..)?.first_chunk()?)))
                }
                _ => None,
            })
            .collect();
        let event = inums.iter().find(|(_, inum)| *inum == 9).expect("a log that is named").0;
        let last = inums.iter().find(|(at, inum)| *at > event && *inum != 9).expect("a superblock").0;
        Self { event, last }
    }
}

pub fn recorded(base: &MemoryDevice, tune: &Tune, mutation: Mutation) -> Log {
    let recorder = Arc::new(Recorder::over(base.snapshot()));
    recorder.set_mutation(mutation);
    tune.apply(recorder.clone()).expect("tune");
    recorder.log()
}

pub fn crashed(log: &Log, events: usize, choice: usize) -> MemoryDevice {
    let mut cursor = log.cursor();
    cursor.advance_to(events).expect("a log");
    cursor.crash_image(Tearing::Requests, survivors(choice)).expect("an image")
}

#[test]
fn crash_at_any_request_leaves_the_disk_as_it_was_or_as_it_is_to_be() {
    if !has_e2fsprogs() {
        return;
    }
    if !HAS_THREADS {
        println!("{} images", cases().map(Case::crash).sum::<usize>());
        return;
    }
    let images = std::thread::scope(|scope| {
        // What sleeps does so beside the others.
        let (sleeping, others): (Vec<&Case>, Vec<&Case>) = cases().partition(|case| case.sleeps());
        let sleeping: Vec<_> = sleeping.into_iter().map(|case| scope.spawn(|| case.crash())).collect();
        let images: usize = others.into_iter().map(Case::crash).sum();
        images + sleeping.into_iter().map(|it| it.join().expect("no panic")).sum::<usize>()
    });
    println!("{images} images");
}

/// Whether an image of a crash of a mutated recording is bad: it cannot be mounted, or has another tree.
fn is_found(base: &MemoryDevice, expected: &Tree, change: &Tune, mutation: Mutation, from: usize) -> bool {
    let log = recorded(base, change, mutation);
    (from..=log.events().len()).any(|events| {
        (0..4).any(|choice| !is_sound(Arc::new(crashed(&log, events, choice)), expected).unwrap_or(false))
    })
}

fn is_sound(image: Arc<MemoryDevice>, expected: &Tree) -> Result<bool, Error> {
    let fs = Mount::new().background(false).open_device(image.clone())?;
    if try_tree(&fs)? != *expected {
        return Ok(false);
    }
    fs.unmount()?;
    let found = Mount::new().read_only(true).open_device(image)?.check(&mut |_| ())?;
    Ok(found.iter().all(|found| {
        found.location.group.is_some() && found.location.structure == extant_ondisk::Structure::Superblock
    }))
}

#[test]
fn each_rule_of_the_order_has_a_mutation_that_is_found() {
    let (base, tree) = disk("");
    let change = new_features("^has_journal,^64bit");
    let log = recorded(&base, &change, Mutation::None);
    let LogName { event, last } = LogName::of(&log);
    let flushes = |events: &[Event]| events.iter().filter(|event| **event == Event::Flush).count() as u64;
    assert!(!is_found(&base, &tree, &change, Mutation::None, event), "a sound recording");
    // The log is durable before the superblock names it.
    assert!(is_found(&base, &tree, &change, Mutation::DropFua, event), "the log's commit block");
    // The superblock names it before anything is overwritten.
    let named = flushes(&log.events()[..event]);
    assert!(is_found(&base, &tree, &change, Mutation::DropFlush(named), event), "the name");
    // All of it is in place before the superblock names it no more.
    let placed = flushes(&log.events()[..last]) - 1;
    assert!(is_found(&base, &tree, &change, Mutation::DropFlush(placed), event), "the places");
}

/// The disk as `e2fsck -p` leaves it, if it has a log to replay.
pub fn replayed(device: &MemoryDevice, when: &str) -> MemoryDevice {
    let file = ImageFile::of(device);
    if superblock(device).incompat().contains(IncompatFeatures::RECOVER) {
        let output = Command::new("e2fsck").arg("-p").arg(&file.0).output().expect("e2fsck");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.code() <= Some(1), "{when}: {said}");
    }
    file.device()
}

#[test]
fn failure_of_any_request_leaves_the_disk_as_it_was_or_as_it_is_to_be() {
    if !has_e2fsprogs() {
        return;
    }
    let scale: usize = if is_thorough() { 1 } else { 11 };
    for words in ["^has_journal", "^64bit,^dir_index"] {
        let (base, tree) = disk("");
        let before = features(&superblock(&*base));
        let strides = [
            (Operation::Read, 37 * scale),
            (Operation::Write, scale),
            (Operation::Flush, scale.div_ceil(4)),
            (Operation::WriteZeroes, 1),
        ];
        for (operation, stride) in strides {
            for index in (0..).step_by(stride) {
                let device = Arc::new(FaultDevice::failing_once(base.snapshot(), operation, index));
                let done = new_features(words).apply(device.clone());
                if device.count(operation) <= index {
                    done.expect("tune");
                    break;
                }
                let when = format!("{words}: {operation:?} {index} failed");
                let left = replayed(&device.inner().snapshot(), &when);
                let left = Arc::new(without_noted_errors(&left, &when));
                assert_whole(&left, &tree, &when);
                new_features(words).apply(left.clone()).unwrap_or_else(|e| panic!("{when}: {e}"));
                assert_ne!(features(&superblock(&*left)), before, "{when}");
                assert_whole(&left, &tree, &when);
            }
        }
    }
}

#[test]
fn what_has_no_room_is_refused_and_changes_nothing() {
    let (device, tree) = disk("^has_journal");
    let fs = Mount::new().background(false).open_device(device.clone()).expect("mount");
    let mut file = 0;
    while fs.write(format!("/fill {file}"), vec![1; 1 << 20]).is_ok() {
        file += 1;
    }
    fs.unmount().expect("unmount");
    let before = superblock(&*device);
    for words in ["has_journal", "64bit", "^64bit", "^dir_index"] {
        match new_features(words).apply(device.clone()) {
            Err(Error::NoSpace) => {}
            // It has that already.
            Ok(_) if words == "64bit" => {}
            other => panic!("{words}: {other:?}"),
        }
    }
    assert_eq!(features(&superblock(&*device)), features(&before));
    let fs = Mount::new().read_only(true).open_device(device).expect("mount");
    assert!(super::disk::tree(&fs).len() > tree.len());
}

#[test]
fn features_that_are_in_use_are_not_turned_off() {
    let (device, _) = disk("dir_nlink,huge_file,large_file,large_dir,extra_isize");
    let fs = Mount::new().background(false).open_device(device.clone()).expect("mount");
    let file = fs.options().write(true).create(true).open("/large").expect("create");
    file.write_at(b"x", 3 << 30).expect("write");
    drop(file);
    fs.unmount().expect("unmount");
    let refused = new_features("^large_file").apply(device.clone());
    assert!(matches!(refused, Err(Error::Unsupported(why)) if why.contains("2 GiB")), "{refused:?}");
    new_features("^huge_file,^dir_nlink,^large_dir,^extra_isize").apply(device.clone()).expect("tune");
    let fs = Mount::new().background(false).open_device(device.clone()).expect("mount");
    fs.remove_file("/large").expect("remove");
    fs.unmount().expect("unmount");
    new_features("^large_file").apply(device.clone()).expect("tune");
    assert!(!superblock(&*device).ro_compat().contains(RoCompatFeatures::LARGE_FILE));
}
