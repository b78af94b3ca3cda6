//! Crashes of growing, between any two requests, with any part of what was not flushed lost.

use extant::{Filesystem, Mount};
use extant_block::{BlockDevice, Event, Log, MemoryDevice, Mutation, Recorder, Tearing};
use extant_ondisk::jbd2::{BlockType, Header};
use extant_rt::Arc;
use extant_testing::{Random, crash_scale};

use crate::disk::{Image, MIB, Plan, contents, fill, run, survives, text};

/// Arguments of mke2fs, the size before and the size after.
const CASES: &[(&[&str], u64, u64)] = &[
    // A last group that is short; copies in new groups; the resize inode's map changes.
    (&["-b1024", "-g2048", "-N2048", "-Jsize=1"], 7 * MIB, 15 * MIB),
    // No block is left for descriptors: the rest are in their own groups.
    (&["-b1024", "-g1024", "-N2048", "-Jsize=1", "-Eresize=18000"], 12 * MIB, 40 * MIB),
    (&["-b1024", "-g1024", "-N2048", "-Jsize=1", "-Ometa_bg,^resize_inode"], 5 * MIB, 40 * MIB),
    // Tables and bitmaps have to be written.
    (&["-b1024", "-g2048", "-N2048", "-Jsize=1", "-O^metadata_csum,^uninit_bg"], 7 * MIB, 15 * MIB),
    // One group becomes two: it has no copy of the superblock before.
    (&["-b1024", "-N256", "-Jsize=1"], 7 * MIB, 20 * MIB),
];

/// The case whose log has no checksums.
pub const PLAIN_LOG: usize = 3;
/// The case of one group that becomes two.
pub const ONE_GROUP: usize = 4;

fn mount(device: Arc<dyn BlockDevice>, read_only: bool) -> extant::Result<Filesystem> {
    Mount::new().read_only(read_only).background(false).cache_bytes(1 << 20).open_device(device)
}

/// A disk with a tree, and a journal that is to be replayed.
fn crashed_disk(image: &Image, bytes: u64) -> (MemoryDevice, Vec<(String, Vec<u8>)>) {
    let device = Arc::new(image.load(bytes));
    let fs = mount(device.clone(), false).expect("mount");
    fill(&fs, 5, 12);
    fs.sync().expect("sync");
    let crashed = device.snapshot();
    let tree = contents(&fs);
    fs.unmount().expect("unmount");
    (crashed, tree)
}

/// What an image has to pass beside being mounted.
#[derive(Clone, Copy)]
struct Look {
    /// e2fsck looks at it.
    is_judged: bool,
    /// It grows again.
    is_grown: bool,
}

/// A run of growing.
pub struct Recorded {
    pub image: Image,
    arguments: &'static [&'static str],
    tree: Vec<(String, Vec<u8>)>,
    /// The disk before it.
    pub base: MemoryDevice,
    pub log: Log,
    pub before: u64,
    after: u64,
}

/// Records one case; nothing without mke2fs.
pub fn record(case: usize, mutation: Mutation) -> Option<Recorded> {
    let (arguments, before, after) = CASES[case];
    let image = Image::made(before, arguments)?;
    let (base, tree) = crashed_disk(&image, after);
    let recorder = Arc::new(Recorder::over(base.snapshot()));
    recorder.set_mutation(mutation);
    let device: Arc<dyn BlockDevice> = recorder.clone();
    let after = Mount::new().grow_device(&device, after).expect("grow").to_bytes;
    image.store(&base);
    Some(Recorded { image, arguments, tree, base, log: recorder.log(), before, after })
}

/// How a test explores.
#[derive(Default)]
pub struct Explorer {
    pub images: usize,
    grown: usize,
    judged: usize,
    pub bad: Vec<String>,
}

impl Explorer {
    /// Explores the crashes of a run whose requests were those of `log`; stops at the first bad image.
    pub fn explore(&mut self, recorded: &Recorded, log: &Log, Plan { rounds, judged_of, from }: Plan) {
        let Recorded { image, arguments, tree, .. } = recorded;
        let mut random = Random::new(recorded.after);
        let mut cursor = log.cursor();
        // On a disk of one group nothing can tell that a superblock is torn from one that is damaged, until it has two.
        let has_copy = |event| recorded.before > 8 * MIB || is_behind_commit(log, event);
        for events in from..=log.events().len() {
            cursor.advance_to(events).expect("advance");
            for survival in 0..2 + rounds {
                let is_whole = survives(&mut random, survival);
                let cut = cursor
                    .crash_image(Tearing::Sectors, |part| match log.events()[part.event] {
                        Event::Write { offset: 0..2048, .. } if !has_copy(part.event) => is_whole,
                        _ => survives(&mut random, survival),
                    })
                    .expect("an image");
                self.images += 1;
                // e2fsck takes most of the time.
                let is_judged = random.below(judged_of) == 0;
                let is_grown = is_judged || random.below(1 + rounds / 8) == 0;
                let looked = self.look(&cut, recorded, Look { is_judged, is_grown });
                // e2fsck takes no torn superblock.
                let theirs = if is_judged && survival < 2 {
                    by_e2fsck(&cut, image, tree)
                        .and_then(|()| recovery_crashes(&cut, image, tree, &mut random))
                } else {
                    Ok(())
                };
                if let Err(what) = looked.and(theirs) {
                    let requests = log.events().len();
                    self.bad
                        .push(format!("{arguments:?}, {events} of {requests}, survival {survival}: {what}"));
                    return;
                }
            }
        }
    }

    /// The tree is whole; the disk has its old size or a new one; growing again completes.
    fn look(
        &mut self,
        cut: &MemoryDevice,
        Recorded { image, tree, before, after, .. }: &Recorded,
        Look { is_judged, is_grown }: Look,
    ) -> Result<(), String> {
        let fs = mount(Arc::new(cut.snapshot()), true).map_err(|e| format!("reading: {e}"))?;
        let superblock = fs.superblock();
        let bytes = superblock.blocks_count() * u64::from(superblock.block_size());
        if contents(&fs) != *tree || !(before..=after).contains(&&bytes) {
            return Err(format!("another tree, or {bytes} bytes"));
        }
        let damage = |device: &MemoryDevice| {
            image.store(device);
            image.faults().map_or(Ok(()), Err)
        };
        if is_judged {
            self.judged += 1;
            let replayed = Arc::new(cut.snapshot());
            let fs = mount(replayed.clone(), false).map_err(|e| format!("mounting: {e}"))?;
            fs.unmount().map_err(|e| format!("unmounting: {e}"))?;
            damage(&replayed)?;
        }
        if !is_grown {
            return Ok(());
        }
        self.grown += 1;
        let again = Arc::new(cut.snapshot());
        let device: Arc<dyn BlockDevice> = again.clone();
        let grown = Mount::new().grow_device(&device, cut.size()).map_err(|e| format!("again: {e}"))?;
        let fs = mount(device, true).map_err(|e| format!("reading: {e}"))?;
        if contents(&fs) != *tree || grown.to_bytes != *after {
            return Err("another tree after growing again".to_owned());
        }
        if is_judged { damage(&again) } else { Ok(()) }
    }
}

/// e2fsck recovers the same tree.
fn by_e2fsck(cut: &MemoryDevice, image: &Image, tree: &Vec<(String, Vec<u8>)>) -> Result<(), String> {
    image.store(cut);
    // It reports with its status that it replayed the log.
    let said = run("e2fsck", &["-fy", text(&image.path)]).unwrap_or_else(|said| said);
    if let Some(faults) = image.faults() {
        return Err(format!("after e2fsck -fy: {faults}"));
    }
    let is_whole = contents(&image.mount()) == *tree;
    if is_whole { Ok(()) } else { Err(format!("e2fsck recovers another tree: {said}")) }
}

/// The recovery crashes too: e2fsck and Extant recover the same tree all the same.
fn recovery_crashes(
    cut: &MemoryDevice,
    image: &Image,
    tree: &Vec<(String, Vec<u8>)>,
    random: &mut Random,
) -> Result<(), String> {
    let recorder = Arc::new(Recorder::over(cut.snapshot()));
    let fs = mount(recorder.clone(), false).map_err(|e| format!("mounting: {e}"))?;
    drop(fs);
    let log = recorder.log();
    for _ in 0..3 {
        let events = random.below(log.events().len() as u64 + 1) as usize;
        let odds = random.below(3);
        let image_of = |random: &mut Random| {
            log.crash_image(events, Tearing::Requests, |_| match odds {
                0 => true,
                1 => false,
                _ => random.below(2) == 0,
            })
        };
        let cut = image_of(random).expect("an image");
        let what = |e: String| format!("crash of the recovery after {events} of {}: {e}", log.events().len());
        by_e2fsck(&cut, image, tree).map_err(what)?;
        let fs = mount(Arc::new(cut), true).map_err(|e| what(e.to_string()))?;
        if contents(&fs) != *tree {
            return Err(what("another tree".to_owned()));
        }
    }
    Ok(())
}

/// Whether a request comes behind the first commit.
fn is_behind_commit(log: &Log, event: usize) -> bool {
    let is_commit = |event: &Event| {
        let Event::Write { bytes, fua: true, .. } = event else { return false };
        Header::parse(bytes).is_some_and(|header| header.block_type == Some(BlockType::Commit))
    };
    log.events()[..event].iter().any(is_commit)
}

#[test]
fn every_crash_leaves_the_tree_whole_and_growing_again_completes() {
    let scale = crash_scale();
    let rounds = scale.pow(4);
    let mut explorer = Explorer::default();
    for case in 0..CASES.len() {
        let Some(recorded) = record(case, Mutation::None) else { return };
        explorer.explore(&recorded, &recorded.log, Plan { rounds, judged_of: 8 * (2 + rounds), from: 0 });
    }
    let Explorer { images, grown, judged, bad } = explorer;
    println!("explored: {images} crash images, {grown} of them grown again, {judged} judged by e2fsck too");
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn a_flush_that_makes_nothing_durable_is_found() {
    for mutation in [Mutation::DropAllFlushes, Mutation::DropFua] {
        let Some(recorded) = record(0, mutation) else { return };
        let mut explorer = Explorer::default();
        explorer.explore(&recorded, &recorded.log, Plan { rounds: 6, judged_of: 64, from: 0 });
        assert!(!explorer.bad.is_empty(), "{mutation:?} is not found in {} images", explorer.images);
    }
}
