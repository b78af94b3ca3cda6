//! Crashes and failing devices while a file system becomes smaller: between any two requests, with any part of what was not flushed
//! lost.

use std::env;
use std::io::ErrorKind;

use extant::{Filesystem, Mount, ShrinkTo};
use extant_block::{BlockDevice, Fault, FaultDevice, MemoryDevice, Mutation, Operation, Recorder, Tearing};
use extant_rt::Arc;

use crate::disk::{Image, MIB, Random};
use crate::tree::{Census, census, difference, small};

/// Arguments of mke2fs, the size before and the size after in MiB.
const CASES: &[(&[&str], u64, u64)] = &[
    // Inodes and blocks move; tables of groups that go are in groups that stay; the resize inode's map changes.
    (&["-b1024", "-g2048", "-N2048", "-Jsize=1"], 15, 7),
    // The journal lies in the end, and moves.
    (&["-b1024", "-g2048", "-N2048", "-Jsize=1,location=11M"], 15, 7),
    // No tables are left of groups that go; descriptors are in their groups.
    (&["-b1024", "-g1024", "-N2048", "-Jsize=1", "-Ometa_bg,^resize_inode,^flex_bg"], 15, 7),
    // Block maps.
    (&["-b1024", "-g2048", "-N2048", "-Jsize=1", "-O^extents,^64bit,^metadata_csum,^uninit_bg"], 15, 9),
];

fn mount(device: Arc<dyn BlockDevice>, read_only: bool) -> extant::Result<Filesystem> {
    Mount::new().read_only(read_only).background(false).cache_bytes(1 << 20).open_device(device)
}

fn shrink(device: &Arc<dyn BlockDevice>, mib: u64) -> extant::Result<u64> {
    let small = Mount::new().cache_bytes(1 << 20);
    Ok(small.shrink_device(device, ShrinkTo::Bytes(mib * MIB), &mut |_| true)?.to_bytes)
}

/// A disk with a tree, and a journal that is to be replayed.
fn crashed_disk(image: &Image, mib: u64) -> (MemoryDevice, Census) {
    let device = Arc::new(image.load(mib * MIB));
    let fs = mount(device.clone(), false).expect("mount");
    small(&fs, 5);
    fs.sync().expect("sync");
    let crashed = device.snapshot();
    let tree = census(&fs).expect("a census");
    fs.unmount().expect("unmount");
    (crashed, tree)
}

/// How a test explores.
#[derive(Default)]
struct Explorer {
    images: usize,
    again: usize,
    judged: usize,
    bad: Vec<String>,
}

impl Explorer {
    /// Explores the crashes of one case; stops at the first bad image.
    fn explore(&mut self, case: usize, mutation: Mutation, rounds: u64) {
        let (arguments, before, after) = CASES[case];
        let Some(image) = Image::made(before * MIB, arguments) else { return };
        let (crashed, tree) = crashed_disk(&image, before);
        let recorder = Arc::new(Recorder::over(crashed));
        recorder.set_mutation(mutation);
        let device: Arc<dyn BlockDevice> = recorder.clone();
        let to_bytes = shrink(&device, after).expect("shrink");
        let log = recorder.log();
        let mut random = Random(case as u64);
        let mut cursor = log.cursor();
        // The quick run takes every other one.
        for events in (0..=log.events().len()).step_by(if rounds == 1 { 2 } else { 1 }) {
            cursor.advance_to(events).expect("advance");
            for survival in 0..rounds {
                let odds = if rounds == 1 { random.below(3) } else { survival };
                let cut = cursor
                    .crash_image(Tearing::Sectors, |_| match odds {
                        0 => true,
                        1 => false,
                        _ => random.below(2) == 0,
                    })
                    .expect("an image");
                self.images += 1;
                // e2fsck takes most of the time.
                let is_judged = random.below(24 * (1 + rounds)) == 0;
                let is_again = is_judged || random.below(2 + 2 * rounds) == 0;
                if let Err(what) = self.look(&cut, &image, (&tree, to_bytes, after), is_judged, is_again) {
                    let requests = log.events().len();
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
        image: &Image,
        (tree, to_bytes, after): (&Census, u64, u64),
        is_judged: bool,
        is_again: bool,
    ) -> Result<(), String> {
        let whole = |device: Arc<dyn BlockDevice>, what: &str| {
            let fs = mount(device, true).map_err(|e| format!("{what}: reading: {e}"))?;
            let superblock = fs.superblock();
            let bytes = superblock.blocks_count() * u64::from(superblock.block_size());
            match difference(tree, &census(&fs).map_err(|e| format!("{what}: {e}"))?) {
                _ if !(to_bytes..=cut.size()).contains(&bytes) => Err(format!("{what}: {bytes} bytes")),
                None => Ok(()),
                Some(difference) => Err(format!("{what}: {difference}")),
            }
        };
        whole(Arc::new(cut.snapshot()), "crashed")?;
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
            let bytes = shrink(&device, after).map_err(|e| format!("again: {e}"))?;
            if bytes != to_bytes {
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

fn explore(cases: &[usize], mutation: Mutation, rounds: u64) -> Explorer {
    let mut explorer = Explorer::default();
    cases.iter().for_each(|case| explorer.explore(*case, mutation, rounds));
    explorer
}

#[test]
fn every_crash_leaves_the_tree_whole_and_shrinking_again_completes() {
    let scale: u64 = env::var("EXTANT_CRASH_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1);
    let all: Vec<usize> = (0..CASES.len()).collect();
    let Explorer { images, again, judged, bad } = explore(&all, Mutation::None, scale.pow(4));
    println!(
        "explored: {images} crash images, {again} of them made smaller again, {judged} judged by e2fsck too"
    );
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn a_flush_that_makes_nothing_durable_is_found_while_shrinking() {
    if Image::made(15 * MIB, CASES[0].0).is_none() {
        return;
    }
    for mutation in [Mutation::DropAllFlushes, Mutation::DropFua] {
        let explorer = explore(&[0], mutation, 4);
        assert!(!explorer.bad.is_empty(), "{mutation:?} is not found in {} images", explorer.images);
    }
}

#[test]
fn a_request_that_fails_while_shrinking_is_reported_and_loses_nothing() {
    let (arguments, before, after) = CASES[1];
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
    let (arguments, before, after) = CASES[1];
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
