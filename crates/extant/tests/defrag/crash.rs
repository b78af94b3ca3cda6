//! Crashes and failing devices while a disk is defragmented: between any two requests, with any part of what was not flushed lost.

use std::io::ErrorKind;

use extant::{DefragOptions, Defragmented, Filesystem, Mount};
use extant_block::{BlockDevice, FaultDevice, Log, MemoryDevice, Mutation, Operation, Recorder, Tearing};
use extant_rt::Arc;
use extant_testing::{Random, crash_scale};

use crate::age::{Ageing, age};
use crate::aged::without_sizes;
use crate::disk::{Image, MIB, text};
use crate::fault::{Fault, FaultyDevice};
use crate::tree::{Census, census, difference};

/// Arguments of mke2fs.
const CASES: &[&[&str]] = &[
    &["-b1024", "-g1024", "-N512", "-Jsize=1"],
    &["-b1024", "-g2048", "-N512", "-Jsize=1", "-O^extents,^64bit,^metadata_csum,^uninit_bg"],
    &["-b1024", "-g2048", "-N512", "-Jsize=1", "-O^dir_index,fast_commit"],
];
const BYTES: u64 = 6 * MIB;

fn mount(device: Arc<dyn BlockDevice>, read_only: bool) -> extant::Result<Filesystem> {
    Mount::new().read_only(read_only).background(false).cache_bytes(1 << 20).open_device(device)
}

fn defrag(fs: &Filesystem) -> extant::Result<Defragmented> {
    fs.defrag("/", &DefragOptions::default(), &mut |_| true)
}

/// Opens a disk, defragments it and closes it.
fn run(device: &Arc<dyn BlockDevice>) -> extant::Result<Defragmented> {
    let fs = mount(device.clone(), false)?;
    let done = defrag(&fs)?;
    fs.unmount()?;
    Ok(done)
}

fn tree(fs: &Filesystem) -> Census {
    without_sizes(census(fs).expect("a census"))
}

fn aged(image: &Image) -> (MemoryDevice, Census) {
    let device = Arc::new(image.load(BYTES));
    let fs = mount(device.clone(), false).expect("mount");
    let ageing = Ageing { small: 400, small_bytes: 14_000, large: 12, large_bytes: 120_000, names: 300 };
    age(&fs, 11, &ageing);
    let tree = tree(&fs);
    fs.unmount().expect("unmount");
    (device.snapshot(), tree)
}

/// A run of defragmenting.
struct Recorded {
    image: Image,
    tree: Census,
    log: Log,
    /// The first request of it.
    from: usize,
}

/// Records one case; nothing without mke2fs.
fn record(case: usize, fault: Fault) -> Option<Recorded> {
    let image = Image::made(BYTES, CASES[case])?;
    let (start, tree) = aged(&image);
    let blocks = crate::disk::run("debugfs", &["-R", "blocks <8>", text(&image.path)]).expect("debugfs");
    let journal = blocks.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let faulty = FaultyDevice::new(Recorder::over(start), fault, 1024, journal);
    let fs = mount(faulty.clone(), false).expect("mount");
    change_nodes(&fs, &tree);
    let (tree, from) = (self::tree(&fs), faulty.recorder.event_count());
    faulty.arm();
    let done = defrag(&fs).expect("defragment");
    fs.unmount().expect("unmount");
    assert!(done.files > 4 && done.directories > 0 && done.joined_runs > 10, "{done:?}");
    Some(Recorded { image, tree, log: faulty.recorder.log(), from })
}

/// Changes nodes of maps and blocks of directories, so that the log has blocks that are freed.
fn change_nodes(fs: &Filesystem, tree: &Census) {
    for (path, told, content) in tree {
        if told.starts_with("Regular") && content.len() > 20_000 {
            let file = fs.options().write(true).open(path).expect("the file");
            file.write_at(b"more", content.len() as u64 + 3000).expect("write");
        }
        if told.starts_with("Directory") {
            fs.write(format!("{path}/new"), b"").expect("a file");
        }
    }
    fs.sync().expect("sync");
}

#[derive(Default)]
struct Explorer {
    images: usize,
    judged: usize,
    bad: Vec<String>,
}

impl Explorer {
    /// Explores the crashes of one case; stops at the first bad image.
    fn explore(&mut self, case: usize, fault: Fault, images: u64) {
        let Some(Recorded { image, tree, log, from }) = record(case, fault) else { return };
        let requests = log.events().len();
        let mut random = Random::new(case as u64);
        let mut cursor = log.cursor();
        // Images of each request, or of some of the requests.
        let step = (requests as u64 / images).max(1);
        let rounds = (images / requests as u64).max(1);
        println!("{:?}: {requests} requests", CASES[case]);
        for events in (from..=requests).step_by(step as usize) {
            cursor.advance_to(events).expect("advance");
            for round in 0..rounds {
                let odds = if rounds < 3 { random.below(3) } else { round };
                let cut = cursor
                    .crash_image(Tearing::Sectors, |_| match odds {
                        0 => true,
                        1 => false,
                        _ => random.below(2) == 0,
                    })
                    .expect("an image");
                self.images += 1;
                let is_judged = random.below(16) == 0;
                if let Err(what) = self.look(&cut, &image, &tree, is_judged) {
                    self.bad.push(format!("{:?}, {events} of {requests}, {odds}: {what}", CASES[case]));
                    return;
                }
            }
        }
    }

    /// The tree is whole; e2fsck finds nothing; the next run completes.
    fn look(
        &mut self,
        cut: &MemoryDevice,
        image: &Image,
        tree: &Census,
        is_judged: bool,
    ) -> Result<(), String> {
        let whole = |device: Arc<dyn BlockDevice>, what: &str| {
            let fs = mount(device, true).map_err(|e| format!("{what}: reading: {e}"))?;
            let found = without_sizes(census(&fs).map_err(|e| format!("{what}: {e}"))?);
            difference(tree, &found).map_or(Ok(()), |other| Err(format!("{what}: {other}")))
        };
        whole(Arc::new(cut.snapshot()), "crashed")?;
        if !is_judged {
            return Ok(());
        }
        self.judged += 1;
        let again = Arc::new(cut.snapshot());
        let fs = mount(again.clone(), false).map_err(|e| format!("mounting: {e}"))?;
        fs.unmount().map_err(|e| format!("unmounting: {e}"))?;
        image.store(&again);
        if let Some(faults) = image.faults() {
            return Err(format!("replayed: {faults}"));
        }
        let device: Arc<dyn BlockDevice> = again;
        run(&device).map_err(|e| format!("again: {e}"))?;
        whole(device, "again")
    }
}

#[test]
fn every_crash_leaves_each_content_in_the_old_place_or_the_new_one() {
    let scale = crash_scale();
    let mut explorer = Explorer::default();
    (0..CASES.len()).for_each(|case| explorer.explore(case, Fault::None, 100 * scale.pow(3)));
    let Explorer { images, judged, bad } = explorer;
    println!("explored: {images} crash images, {judged} of them judged by e2fsck and defragmented again");
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn a_device_that_loses_the_order_of_writes_is_found_while_defragmenting() {
    if Image::made(BYTES, CASES[0]).is_none() {
        return;
    }
    let recording = [Mutation::DropAllFlushes, Mutation::DropFua].map(Fault::Recording);
    for fault in recording.into_iter().chain([Fault::LateWrites]) {
        let mut explorer = Explorer::default();
        explorer.explore(0, fault, 2000);
        println!("{fault:?}: {} images until {:?}", explorer.images, explorer.bad);
        assert!(!explorer.bad.is_empty(), "{fault:?} is not found in {} images", explorer.images);
    }
}

/// D3, on a disk whose log has no checksums.
#[test]
fn revokes_that_are_missing_are_found_while_defragmenting() {
    if Image::made(BYTES, CASES[1]).is_none() {
        return;
    }
    let mut explorer = Explorer::default();
    explorer.explore(1, Fault::NoRevokes, 1000);
    println!("{} images until {:?}", explorer.images, explorer.bad);
    assert!(!explorer.bad.is_empty(), "not found in {} images", explorer.images);
}

#[test]
fn a_request_that_fails_while_defragmenting_is_reported_and_loses_nothing() {
    let Some(image) = Image::made(BYTES, CASES[0]) else { return };
    let (start, tree) = aged(&image);
    let mut failures = 0;
    for operation in [Operation::Read, Operation::Write, Operation::WriteFua, Operation::Flush] {
        let count = {
            let counted = Arc::new(FaultDevice::new(start.snapshot(), |_| extant_block::Fault::None));
            let device: Arc<dyn BlockDevice> = counted.clone();
            run(&device).expect("defragment");
            counted.count(operation)
        };
        // Some 12 of each kind.
        for index in (0..count).step_by((count / 12).max(1) as usize) {
            let device = Arc::new(FaultDevice::new(start.snapshot(), move |request| {
                use extant_block::Fault;
                let is_it = request.operation == operation && request.index == index;
                if is_it { Fault::Error(ErrorKind::Other) } else { Fault::None }
            }));
            let faulty: Arc<dyn BlockDevice> = device.clone();
            let result = run(&faulty);
            let case = format!("{operation:?} {index} of {count}");
            let is_told = result.as_ref().is_ok_and(|done| done.failed > 0) || result.is_err();
            assert!(is_told, "{case}: no error, but {result:?}");
            failures += 1;
            let left = device.inner().snapshot();
            let other =
                difference(&tree, &self::tree(&mount(Arc::new(left.snapshot()), true).expect("mount")));
            assert!(other.is_none(), "{case}: {other:?}");
            let left: Arc<dyn BlockDevice> = Arc::new(left);
            run(&left).unwrap_or_else(|e| panic!("{case}: {e}"));
            let other = difference(&tree, &self::tree(&mount(left, true).expect("mount")));
            assert!(other.is_none(), "{case}, again: {other:?}");
        }
    }
    println!("failed: {failures} requests");
    assert!(failures > 30, "{failures}");
}
