//! Crashes of `trim` of an image: between any two requests, with any part of what was not flushed lost. Files are removed just before, so
//! that their release is in the log, and inode tables that were never initialised hold what the device held before.

use extant::{Filesystem, Mount};
use extant_block::{BlockDevice, Event, Log, MemoryDevice, Mutation, Recorder, Tearing};
use extant_ondisk::{Geometry, GroupDescriptor, GroupFlags, GroupNumber, Superblock};
use extant_rt::Arc;
use extant_testing::{Command, Random, crash_scale, is_zero};

use crate::disk::{Image, MIB, Plan, survives, text};
use crate::order::{self, BLOCK_BYTES, Requests};
use crate::tree::{Census, census, difference, small};

/// Arguments of mke2fs, and what is done before the disk is trimmed.
const CASES: &[(&[&str], Before)] = &[
    (&["-b1024", "-g2048", "-N4096", "-Jsize=1"], Before::Removed),
    (&["-b1024", "-g2048", "-N4096", "-Jsize=1"], Before::RemovedAndDiscarded),
    (&["-b1024", "-g2048", "-N4096", "-Jsize=1", "-O^metadata_csum,uninit_bg,^64bit"], Before::Removed),
    (&["-b1024", "-g2048", "-N4096", "-O^has_journal"], Before::Unmounted),
    (&["-b1024", "-N4096", "-Jsize=1", "-Obigalloc", "-C8192"], Before::Removed),
    (&["-b1024", "-g1024", "-N4096", "-Jsize=1", "-Ometa_bg,^resize_inode,^flex_bg"], Before::Removed),
    (&["-b1024", "-g2048", "-N4096", "-Jsize=1", "-Ofast_commit,orphan_file"], Before::Removed),
    (&["-b1024", "-g2048", "-N4096", "-Jsize=1", "-O^extents,^64bit"], Before::Removed),
];
/// The case of a mount that discards what a commit freed.
const DISCARDED: usize = 1;
/// The case without a journal.
const NO_JOURNAL: usize = 3;
const DISK_BYTES: u64 = 15 * MIB;
/// What the tables hold that were never initialised.
const JUNK: u8 = 0xDB;

/// What is done to a disk before it is trimmed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// It is unmounted.
    Unmounted,
    /// Files are removed, and it is not unmounted.
    Removed,
    /// Likewise, on a mount with `discard`.
    RemovedAndDiscarded,
}

fn mount(device: Arc<dyn BlockDevice>) -> extant::Result<Filesystem> {
    Mount::new().background(false).cache_bytes(1 << 20).open_device(device)
}

/// What `extant trim` does to an image: how many bytes of tables it zeroed.
fn trim(device: Arc<dyn BlockDevice>) -> extant::Result<u64> {
    let fs = mount(device)?;
    let zeroed = fs.zero_unused_tables()?;
    fs.sync()?;
    fs.trim(0..u64::MAX, 0)?;
    fs.unmount()?;
    Ok(zeroed)
}

fn superblock(device: &MemoryDevice) -> Superblock {
    let mut bytes = [0; 1024];
    device.read_at(1024, &mut bytes).expect("read");
    Superblock::parse(&bytes).expect("a superblock")
}

/// The unused part of each group's inode table, in bytes of the disk; and whether its descriptor says that it is zeroed.
fn unused_tables(device: &MemoryDevice) -> Vec<(u64, u64, bool)> {
    let superblock = superblock(device);
    let geometry = Geometry::new(&superblock).expect("a geometry");
    let size = superblock.desc_size();
    let mut tables = Vec::new();
    for group in (0..geometry.group_count).map(GroupNumber) {
        let (block, offset) = geometry.descriptor_location(group);
        let mut bytes = vec![0; usize::from(size)];
        device.read_at(block.0 * BLOCK_BYTES + u64::from(offset), &mut bytes).expect("read");
        let descriptor = GroupDescriptor::parse(&bytes, size).expect("a descriptor");
        let table = descriptor.inode_table().0 * BLOCK_BYTES;
        let inode_bytes = u64::from(geometry.inode_size);
        let used = u64::from(geometry.inodes_per_group - descriptor.itable_unused()) * inode_bytes;
        let end = table + u64::from(geometry.inode_table_blocks_per_group) * BLOCK_BYTES;
        let is_zeroed = descriptor.flags().contains(GroupFlags::INODE_ZEROED);
        tables.push((table + used.next_multiple_of(BLOCK_BYTES), end, is_zeroed));
    }
    tables
}

/// A run of trimming.
struct Recorded {
    image: Image,
    arguments: &'static [&'static str],
    /// The tree before files are removed, and after it.
    trees: [Census; 2],
    /// The disk before that.
    base: MemoryDevice,
    log: Log,
}

/// Records one case; nothing without mke2fs.
fn record(case: usize, mutation: Mutation) -> Option<Recorded> {
    let (arguments, before) = CASES[case];
    let image = Image::made(DISK_BYTES, &[arguments, &["-Elazy_itable_init=1"]].concat())?;
    let base = Arc::new(image.load(DISK_BYTES));
    for (start, end, is_zeroed) in unused_tables(&base) {
        if !is_zeroed {
            base.write_at(start, &vec![JUNK; (end - start) as usize]).expect("write");
        }
    }
    let fs = mount(base.clone()).expect("mount");
    small(&fs, 5);
    fs.sync().expect("sync");
    let tree = census(&fs).expect("a census");
    let base = if before == Before::Unmounted {
        fs.unmount().expect("unmount");
        base.snapshot()
    } else {
        base.snapshot()
    };
    let recorder = Arc::new(Recorder::over(base.snapshot()));
    recorder.set_mutation(mutation);
    let mut trees = [tree.clone(), tree];
    if before != Before::Unmounted {
        let discards = before == Before::RemovedAndDiscarded;
        let mount = Mount::new().background(false).cache_bytes(1 << 20).discard(discards);
        let fs = mount.open_device(recorder.clone()).expect("mount");
        for folder in 0..8 {
            fs.remove_file(format!("/d{folder}/sub/f2")).expect("the file");
        }
        fs.sync().expect("sync");
        trees[1] = census(&fs).expect("a census");
        // Its log is to be replayed.
        fs.force_shutdown(false).expect("shutdown");
    }
    trim(recorder.clone()).expect("trim");
    image.store(&base);
    Some(Recorded { image, arguments, trees, base, log: recorder.log() })
}

/// How a test explores.
#[derive(Default)]
struct Explorer {
    images: usize,
    judged: usize,
    bad: Vec<String>,
}

impl Explorer {
    /// Explores the crashes of a run whose requests were those of `log`; stops at the first bad image.
    fn explore(&mut self, recorded: &Recorded, log: &Log, Plan { rounds, judged_of, from }: Plan) {
        let mut random = Random::new(log.events().len() as u64);
        let mut cursor = log.cursor();
        for events in (from..=log.events().len()).step_by(if rounds == 0 { 3 } else { 1 }) {
            cursor.advance_to(events).expect("advance");
            let unflushed = cursor.unflushed(Tearing::Requests).count();
            for survival in 0..2 + rounds {
                if survival > 0 && unflushed == 0 || survival > 1 && unflushed == 1 {
                    continue;
                }
                let cut = cursor
                    .crash_image(Tearing::Requests, |_| survives(&mut random, survival))
                    .expect("an image");
                self.images += 1;
                let is_judged = random.below(judged_of) == 0;
                self.judged += usize::from(is_judged);
                if let Err(what) = look(cut, recorded, is_judged) {
                    let (arguments, requests) = (recorded.arguments, log.events().len());
                    let place = format!("{events} of {requests}, survival {survival}");
                    self.bad.push(format!("{arguments:?}, {place}: {what}"));
                    return;
                }
            }
        }
    }
}

/// The tree is whole, tables are zero where descriptors say so, and trimming again completes.
fn look(cut: MemoryDevice, recorded: &Recorded, is_judged: bool) -> Result<(), String> {
    let image = &recorded.image;
    if is_judged {
        image.store(&cut);
        replay_by_e2fsck(image)?;
        image.faults().map_or(Ok(()), Err)?;
        tables_are_as_said(&image.load(DISK_BYTES), false)?;
    }
    let cut = Arc::new(cut);
    let fs = mount(cut.clone()).map_err(|e| format!("mounting: {e}"))?;
    let tree = census(&fs).map_err(|e| e.to_string())?;
    fs.unmount().map_err(|e| format!("unmounting: {e}"))?;
    let [before, after] = recorded.trees.each_ref().map(|expected| difference(expected, &tree));
    if let (Some(before), Some(after)) = (before, after) {
        return Err(format!("neither the tree before, {before}, nor after, {after}"));
    }
    tables_are_as_said(&cut, false)?;
    trim(cut.clone()).map_err(|e| format!("again: {e}"))?;
    tables_are_as_said(&cut, true)?;
    let fs = mount(cut.clone()).map_err(|e| format!("mounting: {e}"))?;
    let again = census(&fs).map_err(|e| e.to_string())?;
    if let Some(other) = difference(&tree, &again) {
        return Err(format!("again: {other}"));
    }
    fs.unmount().map_err(|e| format!("unmounting: {e}"))?;
    if is_judged {
        image.store(&cut);
        image.faults().map_or(Ok(()), |faults| Err(format!("again: {faults}")))?;
    }
    Ok(())
}

/// Has e2fsck replay the log of an image.
fn replay_by_e2fsck(image: &Image) -> Result<(), String> {
    let output =
        Command::new("e2fsck").args(["-p", text(&image.path)]).output().map_err(|e| e.to_string())?;
    let said = String::from_utf8_lossy(&output.stdout);
    // 1: it changed something.
    if output.status.code() <= Some(1) { Ok(()) } else { Err(format!("e2fsck -p: {said}")) }
}

/// Of a disk without a log to be replayed.
fn tables_are_as_said(device: &MemoryDevice, is_all: bool) -> Result<(), String> {
    for (group, (start, end, is_zeroed)) in unused_tables(device).into_iter().enumerate() {
        let mut bytes = vec![0; (end - start) as usize];
        device.read_at(start, &mut bytes).map_err(|e| e.to_string())?;
        if is_zeroed && !is_zero(&bytes) {
            return Err(format!("group {group} says that its table is zeroed"));
        }
        if is_all && !is_zeroed {
            return Err(format!("group {group} does not say that its table is zeroed"));
        }
    }
    Ok(())
}

/// Asserts that crashes find what `break_rule` does to the requests of a case.
fn assert_found(case: usize, break_rule: impl FnOnce(&mut Requests) -> usize) {
    let Some(recorded) = record(case, Mutation::None) else { return };
    let run = (&recorded.image, &recorded.base, &recorded.log);
    order::assert_found(run, break_rule, |log, from| {
        let mut explorer = Explorer::default();
        explorer.explore(&recorded, log, Plan { rounds: 3, judged_of: 400, from });
        (explorer.images, explorer.bad.pop())
    });
}

/// Moves the discards before the commit of the removal.
fn discard_early(requests: &mut Requests) -> usize {
    let commit = (0..requests.count()).find(|at| requests.is_commit(*at)).expect("a commit");
    let discards: Vec<usize> = (commit..requests.count()).filter(|at| requests.is_discard(*at)).collect();
    let last = *discards.last().expect("a discard");
    requests
        .delay(|requests, at| (commit..last).contains(&at) && !requests.is_discard(at), |_, at| at == last)
}

#[test]
fn every_crash_while_trimming_leaves_the_tree_whole_and_trimming_again_completes() {
    let scale = crash_scale();
    let mut explorer = Explorer::default();
    for case in 0..CASES.len() {
        let Some(recorded) = record(case, Mutation::None) else { return };
        let before = explorer.images;
        let plan = Plan { rounds: scale.pow(2) - 1, judged_of: 8, from: 0 };
        explorer.explore(&recorded, &recorded.log, plan);
        let discards = recorded.log.events().iter().filter(|event| matches!(event, Event::Discard { .. }));
        let (discards, requests) = (discards.count(), recorded.log.events().len());
        assert!(discards > 0, "{:?}: nothing is discarded", recorded.arguments);
        let images = explorer.images - before;
        println!(
            "{:?}: {requests} requests, {discards} of them discards, {images} images",
            recorded.arguments
        );
    }
    let Explorer { images, judged, bad } = explorer;
    println!("explored: {images} crash images of trimming, {judged} judged by e2fsck too");
    assert!(bad.is_empty(), "{bad:#?}");
}

/// F1.
#[test]
fn blocks_that_are_discarded_before_their_release_is_durable_are_found() {
    assert_found(0, discard_early);
    assert_found(DISCARDED, discard_early);
}

/// F2.
#[test]
fn a_table_that_is_zeroed_after_its_descriptor_says_so_is_found() {
    // The last commit that follows zeroes has the flags.
    assert_found(0, |requests| requests.delay(Requests::is_zeroes, Requests::is_commit));
    assert_found(NO_JOURNAL, |requests| {
        let last = (0..requests.count()).rev().find(|at| requests.is_zeroes(*at)).expect("zeroes");
        let flush = (last..requests.count()).find(|at| requests.is_flush(*at)).expect("a flush");
        requests.drop(|_, at| at == flush)
    });
}
