//! Crashes and failing devices while a file system becomes smaller: between any two requests, with any part of what was not flushed
//! lost.

use std::io::ErrorKind;

use extant::{Filesystem, Mount, ShrinkTo};
use extant_block::{
    BlockDevice, Fault, FaultDevice, Log, MemoryDevice, Mutation, Operation, Partition, Recorder, Tearing,
};
use extant_ondisk::Superblock;
use extant_rt::Arc;
use extant_testing::{Random, crash_scale};

use crate::disk::{GIB, Image, MIB, Plan, run, survives, text};
use crate::tree::{Census, census, difference, small};

/// A disk that becomes smaller, and what is on it.
#[derive(Clone, Copy)]
struct Case {
    /// Of mke2fs.
    arguments: &'static [&'static str],
    /// Sizes in MiB.
    before: u64,
    after: u64,
    fill: Fill,
}

/// What is on a disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fill {
    Small,
    /// Also many owners, whose usage lies in the end.
    Owners,
    /// Also attributes whose values are inodes.
    Values,
    /// Also a journal in the end, which lies by its map of block numbers.
    LateJournal,
    /// On a disk that `resize2fs` made much larger, and moved bitmaps for that.
    Grown,
}

/// The case in which the journal moves.
pub const JOURNAL: usize = 1;
/// The case in which the journal has a tree, and moves.
pub const JOURNAL_IN_PARTS: usize = 4;
/// The case whose log has no checksums.
pub const PLAIN_LOG: usize = 3;
/// The case with tables in the end.
pub const SPREAD_TABLES: usize = 2;
/// The case with bitmaps that move.
pub const BITMAPS: usize = 8;
/// The case with quota files that move.
pub const QUOTAS: usize = 5;

const CASES: &[Case] = &[
    // Inodes and blocks move; tables of groups that go are in groups that stay; the resize inode's map changes.
    Case { arguments: &["-b1024", "-g2048", "-N2048", "-Jsize=1"], before: 15, after: 7, fill: Fill::Small },
    // The journal lies in the end, and moves.
    Case {
        arguments: &["-b1024", "-g2048", "-N2048", "-Jsize=1,location=11M"],
        before: 15,
        after: 7,
        fill: Fill::Small,
    },
    // No tables are left of groups that go; descriptors are in their groups.
    Case {
        arguments: &["-b1024", "-g1024", "-N2048", "-Jsize=1", "-Ometa_bg,^resize_inode,^flex_bg"],
        before: 15,
        after: 7,
        fill: Fill::Small,
    },
    // Block maps.
    Case {
        arguments: &["-b1024", "-g2048", "-N2048", "-Jsize=1", "-O^extents,^64bit,^metadata_csum,^uninit_bg"],
        before: 15,
        after: 9,
        fill: Fill::Small,
    },
    // The journal is in more parts than its inode has room for, and moves.
    Case {
        arguments: &["-b1024", "-g512", "-N2048", "-Jsize=2,location=10M", "-O^flex_bg,^resize_inode"],
        before: 15,
        after: 9,
        fill: Fill::Small,
    },
    // Quota files.
    Case {
        arguments: &["-b1024", "-g2048", "-N2048", "-Jsize=1", "-I256", "-Oquota,project,^metadata_csum"],
        before: 15,
        after: 5,
        fill: Fill::Owners,
    },
    // Values in inodes, directories in inodes, an orphan file.
    Case {
        arguments: &["-b1024", "-g2048", "-N2048", "-Jsize=1", "-I512", "-Oea_inode,inline_data,orphan_file"],
        before: 15,
        after: 5,
        fill: Fill::Values,
    },
    // The journal lies in the end, and moves; its map is block numbers.
    Case {
        arguments: &[
            "-b1024",
            "-g2048",
            "-N2048",
            "-O^has_journal,^extents,^64bit,^metadata_csum,^uninit_bg",
        ],
        before: 15,
        after: 5,
        fill: Fill::LateJournal,
    },
    // Bitmaps of groups that stay lie in the end.
    Case {
        arguments: &["-b1024", "-N16400", "-Jsize=1", "-O^resize_inode"],
        before: 15,
        after: 4,
        fill: Fill::Grown,
    },
    // Records of fast commits are to be replayed.
    Case {
        arguments: &["-b1024", "-g2048", "-N2048", "-Jsize=1", "-Ofast_commit"],
        before: 15,
        after: 7,
        fill: Fill::Small,
    },
];

fn mount(device: Arc<dyn BlockDevice>, read_only: bool) -> extant::Result<Filesystem> {
    Mount::new().read_only(read_only).background(false).cache_bytes(1 << 20).open_device(device)
}

fn shrink(device: &Arc<dyn BlockDevice>, mib: u64) -> extant::Result<u64> {
    let small = Mount::new().cache_bytes(1 << 20);
    Ok(small.shrink_device(device, ShrinkTo::Bytes(mib * MIB), &mut |_| true)?.to_bytes)
}

/// A disk with a tree, and a journal that is to be replayed.
fn crashed_disk(image: &Image, mib: u64, fill: Fill) -> (MemoryDevice, Census) {
    match fill {
        Fill::Small => {}
        Fill::Owners | Fill::Values => prepare(image, mib, fill),
        Fill::LateJournal => add_journal_behind(image),
        Fill::Grown => {
            grow_by_resize2fs(image);
            image.cut(&image.shrink(ShrinkTo::Bytes(mib * MIB)).expect("shrink"));
        }
    }
    let device = Arc::new(image.load(mib * MIB));
    let fs = mount(device.clone(), false).expect("mount");
    small(&fs, 5);
    fs.sync().expect("sync");
    let crashed = device.snapshot();
    let tree = census(&fs).expect("a census");
    fs.unmount().expect("unmount");
    (crashed, tree)
}

/// Makes what [`small`] does not.
fn prepare(image: &Image, mib: u64, fill: Fill) {
    let fs = image.mount();
    // What is made after it lies behind it.
    fs.write("/large", vec![1; (mib - 6) as usize * MIB as usize]).expect("a file");
    // Directories at the top lie in different groups.
    (0..6).for_each(|number| fs.create_dir(format!("/own{number}")).expect("a directory"));
    for id in 1..40 {
        let path = format!("/own{}/f{id}", id % 6);
        fs.write(&path, b"x").expect("a file");
        if fill == Fill::Owners {
            fs.set_owner(&path, id * 70, id * 300).expect("an owner");
        }
    }
    fs.unmount().expect("unmount");
    if fill == Fill::Values {
        let value = image.path.with_extension("value");
        std::fs::write(&value, vec![9; 3000]).expect("a value");
        for number in 1..12 {
            let request = format!("ea_set -f {} /own{}/f{number} user.large", text(&value), number % 6);
            run("debugfs", &["-w", "-R", &request, text(&image.path)]).expect("debugfs");
        }
        // debugfs counts no block for them.
        let _ = run("e2fsck", &["-fy", text(&image.path)]);
    }
    let fs = image.mount();
    fs.remove_file("/large").expect("the file");
    fs.unmount().expect("unmount");
    image.assert_clean("prepared");
}

/// Gives a disk of 1 KiB blocks without one a journal of 1 MiB, behind everything else.
pub fn add_journal_behind(image: &Image) {
    let fs = image.mount();
    let mut files = Vec::new();
    while fs.statistics().free_blocks > 2500 {
        let path = format!("/fill{}", files.len());
        fs.write(&path, vec![1; 60_000]).expect("a file");
        files.push(path);
    }
    fs.unmount().expect("unmount");
    run("tune2fs", &["-Jsize=1", text(&image.path)]).expect("tune2fs");
    let fs = image.mount();
    files.iter().for_each(|path| fs.remove_file(path).expect("the file"));
    fs.unmount().expect("unmount");
}

/// Makes a disk of 1 KiB blocks and without reserved ones so large that its descriptors take the place of bitmaps.
pub fn grow_by_resize2fs(image: &Image) {
    let file = std::fs::OpenOptions::new().write(true).open(&image.path).expect("the image");
    file.set_len(GIB).expect("a length");
    run("resize2fs", &["-f", text(&image.path)]).expect("resize2fs");
}

/// How large the superblock at its place says that the file system is.
fn bytes_of(device: &MemoryDevice) -> Option<u64> {
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).ok()?;
    let superblock = Superblock::parse(&bytes).ok()?;
    Some(superblock.blocks_count() * u64::from(superblock.block_size()))
}

/// A run of shrinking.
pub struct Recorded {
    pub image: Image,
    arguments: &'static [&'static str],
    tree: Census,
    /// The disk before it.
    pub base: MemoryDevice,
    pub log: Log,
    pub to_bytes: u64,
    /// What was asked for, in MiB.
    after: u64,
}

/// Records one case; nothing without mke2fs.
pub fn record(case: usize, mutation: Mutation) -> Option<Recorded> {
    let Case { arguments, before, after, fill } = CASES[case];
    let image = Image::made(before * MIB, arguments)?;
    let (base, tree) = crashed_disk(&image, before, fill);
    let recorder = Arc::new(Recorder::over(base.snapshot()));
    recorder.set_mutation(mutation);
    let device: Arc<dyn BlockDevice> = recorder.clone();
    let to_bytes = shrink(&device, after).expect("shrink");
    image.store(&base);
    Some(Recorded { image, arguments, tree, base, log: recorder.log(), to_bytes, after })
}

fn plan(rounds: u64) -> Plan {
    Plan { rounds, judged_of: 24 * (1 + rounds).min(5), from: 0 }
}

/// How a test explores.
#[derive(Default)]
pub struct Explorer {
    pub images: usize,
    again: usize,
    judged: usize,
    pub bad: Vec<String>,
}

impl Explorer {
    /// Explores the crashes of a run whose requests were those of `log`; stops at the first bad image.
    pub fn explore(&mut self, recorded: &Recorded, log: &Log, Plan { rounds, judged_of, from }: Plan) {
        let mut random = Random::new(recorded.to_bytes);
        let mut cursor = log.cursor();
        for events in (from..=log.events().len()).step_by(if rounds == 1 { 3 } else { 1 }) {
            cursor.advance_to(events).expect("advance");
            for survival in 0..rounds {
                let odds = if rounds == 1 { random.below(3) } else { survival };
                let cut =
                    cursor.crash_image(Tearing::Sectors, |_| survives(&mut random, odds)).expect("an image");
                self.images += 1;
                let is_judged = random.below(judged_of) == 0;
                let is_again = is_judged || random.below(2 + 2 * rounds) == 0;
                if let Err(what) = self.look(&cut, recorded, is_judged, is_again) {
                    let (arguments, requests) = (recorded.arguments, log.events().len());
                    self.bad.push(format!("{arguments:?}, {events} of {requests}, survival {odds}: {what}"));
                    return;
                }
            }
        }
    }

    /// The tree is whole; the disk has its old size or a new one; becoming smaller again completes.
    fn look(
        &mut self,
        cut: &MemoryDevice,
        recorded: &Recorded,
        is_judged: bool,
        is_again: bool,
    ) -> Result<(), String> {
        let Recorded { image, tree, to_bytes, after, .. } = recorded;
        let whole = |device: Arc<dyn BlockDevice>, what: &str| {
            let fs = mount(device, true).map_err(|e| format!("{what}: reading: {e}"))?;
            let superblock = fs.superblock();
            let bytes = superblock.blocks_count() * u64::from(superblock.block_size());
            match difference(tree, &census(&fs).map_err(|e| format!("{what}: {e}"))?) {
                _ if !(*to_bytes..=cut.size()).contains(&bytes) => Err(format!("{what}: {bytes} bytes")),
                None => Ok(()),
                Some(difference) => Err(format!("{what}: {difference}")),
            }
        };
        whole(Arc::new(cut.snapshot()), "crashed")?;
        // What lies behind a new end belongs to another.
        if bytes_of(cut) == Some(*to_bytes) {
            let kept = Partition::new(cut.snapshot(), 0, *to_bytes).map_err(|e| e.to_string())?;
            whole(Arc::new(kept), "cut off")?;
        }
        let damage = |device: &MemoryDevice, what: &str| {
            image.store(device);
            image.faults().map_or(Ok(()), |faults| Err(format!("{what}: {faults}")))
        };
        if is_judged {
            self.judged += 1;
            let replayed = Arc::new(cut.snapshot());
            let fs = mount(replayed.clone(), false).map_err(|e| format!("mounting: {e}"))?;
            fs.unmount().map_err(|e| format!("unmounting: {e}"))?;
            damage(&replayed, "replayed")?;
        }
        if is_again {
            self.again += 1;
            let again = Arc::new(cut.snapshot());
            let device: Arc<dyn BlockDevice> = again.clone();
            let bytes = shrink(&device, *after).map_err(|e| format!("again: {e}"))?;
            if bytes != *to_bytes {
                return Err(format!("again to {bytes} bytes"));
            }
            whole(device, "again")?;
            if is_judged {
                damage(&again, "again")?;
            }
        }
        Ok(())
    }
}

#[test]
fn every_crash_leaves_the_tree_whole_and_shrinking_again_completes() {
    let scale = crash_scale();
    let mut explorer = Explorer::default();
    for case in 0..CASES.len() {
        let Some(recorded) = record(case, Mutation::None) else { return };
        let before = explorer.images;
        explorer.explore(&recorded, &recorded.log, plan(scale.pow(4)));
        let requests = recorded.log.events().len();
        println!("{:?}: {requests} requests, {} images", recorded.arguments, explorer.images - before);
    }
    let Explorer { images, again, judged, bad } = explorer;
    println!(
        "explored: {images} crash images, {again} of them made smaller again, {judged} judged by e2fsck too"
    );
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn a_flush_that_makes_nothing_durable_is_found_while_shrinking() {
    for mutation in [Mutation::DropAllFlushes, Mutation::DropFua] {
        let Some(recorded) = record(0, mutation) else { return };
        let mut explorer = Explorer::default();
        explorer.explore(&recorded, &recorded.log, plan(4));
        assert!(!explorer.bad.is_empty(), "{mutation:?} is not found in {} images", explorer.images);
    }
}

#[test]
fn a_request_that_fails_while_shrinking_is_reported_and_loses_nothing() {
    let Case { arguments, before, after, .. } = CASES[1];
    let Some(image) = Image::made(before * MIB, arguments) else { return };
    let fs = image.mount();
    small(&fs, 9);
    let tree = census(&fs).expect("a census");
    fs.unmount().expect("unmount");
    let start = image.load(before * MIB);
    let operations =
        [Operation::Read, Operation::Write, Operation::WriteFua, Operation::Flush, Operation::WriteZeroes];
    let mut failures = 0;
    for operation in operations {
        // Reads of the scan are alike; a prime steps over them.
        let step = if operation == Operation::Read { 7 } else { 1 };
        for index in (0..).step_by(step) {
            let device = Arc::new(FaultDevice::new(start.snapshot(), move |request| {
                let is_it = request.operation == operation && request.index == index;
                if is_it { Fault::Error(ErrorKind::Other) } else { Fault::None }
            }));
            let faulty: Arc<dyn BlockDevice> = device.clone();
            let result = shrink(&faulty, after);
            if device.count(operation) <= index {
                break;
            }
            let case = format!("{operation:?} {index}");
            assert!(result.is_err(), "{case}: no error, but {result:?}");
            failures += 1;
            let left: Arc<dyn BlockDevice> = Arc::new(device.inner().snapshot());
            let bytes = shrink(&left, after).unwrap_or_else(|e| panic!("{case}: {e}"));
            assert!(bytes <= after * MIB, "{case}: {bytes}");
            let fs = mount(left, true).expect("mount");
            let other = difference(&tree, &census(&fs).expect("a census"));
            assert!(other.is_none(), "{case}: {other:?}");
        }
    }
    println!("failed: {failures} requests");
    assert!(failures > 50, "{failures}");
}

#[test]
fn shrinking_that_is_cancelled_leaves_the_tree_whole_and_can_be_taken_up_again() {
    let Case { arguments, before, after, .. } = CASES[1];
    let Some(image) = Image::made(before * MIB, arguments) else { return };
    let fs = image.mount();
    small(&fs, 3);
    let tree = census(&fs).expect("a census");
    fs.unmount().expect("unmount");
    let device: Arc<dyn BlockDevice> = Arc::new(image.load(before * MIB));
    let mut cancelled = 0;
    for allowed in (0..).step_by(5) {
        let mut left = allowed;
        let shrunk = Mount::new().shrink_device(&device, ShrinkTo::Bytes(after * MIB), &mut |_| {
            left -= 1;
            left > 0
        });
        let fs = mount(device.clone(), true).expect("mount");
        let other = difference(&tree, &census(&fs).expect("a census"));
        assert!(other.is_none(), "{allowed}: {other:?}");
        match shrunk {
            Ok(_) => break,
            Err(error) => assert!(matches!(error, extant::Error::Interrupted), "{error}"),
        }
        cancelled += 1;
    }
    assert!(cancelled > 3, "{cancelled}");
}
