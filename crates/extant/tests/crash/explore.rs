//! Crashes of a sequence of operations, and what is wrong after them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use extant::{Filesystem, InodeFlags};
use extant_block::{BlockDevice, Cursor, Event, Log, MemoryDevice, Recorder, Tearing};
use extant_ondisk::IncompatFeatures;
use extant_rt::Arc;
use extant_testing::Random;

use crate::disk::{Checker, DiskKind, INLINE, POISON, QUOTAS, journal_blocks, make_by_debugfs};
use crate::fault::{Fault, FaultyDevice};
use crate::generate::preparation;
use crate::model::Model;
use crate::op::{DIRECTORIES, Op, pattern_of};
use crate::random::hash;
use crate::session::{Pages, Session, mount, mount_in_background, set_limits};
use crate::tree::{self, Allowed, Entry};

/// A disk with files on it, cleanly unmounted, and the model of them.
pub struct Base {
    pub kind: DiskKind,
    pub image: MemoryDevice,
    pub model: Model,
    pub journal: Vec<u64>,
    /// Few blocks are free: operations may fail with `NoSpace`.
    pub is_full: bool,
}

impl Base {
    pub fn new(kind: DiskKind) -> Self {
        Self::with_free_blocks(kind, None)
    }

    /// A disk of which only so many blocks are free beside the reserved pool, which root's files do not get either.
    pub fn with_free_blocks(kind: DiskKind, free_blocks: Option<u64>) -> Self {
        let image = Arc::new(kind.make());
        let mut model = Model::new(kind.block_size, kind.has_extents());
        let mut session = Session::mount(image.clone(), Pages::default()).expect("mount a new disk");
        if kind.name == QUOTAS.name {
            set_limits(session.fs());
        }
        let blocks = (kind.size_mib << 20) / kind.block_size;
        let pool = if kind.has_extents() { blocks / 50 } else { 0 };
        let mut prepare = |op| {
            step(&mut session, &mut model, op, false).unwrap_or_else(|what| panic!("{what}"));
            session.fs().sync().expect("sync");
            session.fs().statistics().free_blocks.saturating_sub(pool)
        };
        let mut free = 0;
        for op in preparation(kind.block_size).into_iter().chain(free_blocks.map(|_| Op::Create("full"))) {
            free = prepare(op);
        }
        while let Some(blocks) =
            free_blocks.and_then(|wanted| free.checked_sub(wanted)).filter(|more| *more > 0)
        {
            // A file without extents takes some more blocks than it has content.
            free = prepare(Op::Append { file: "full", bytes: blocks.div_ceil(2) * kind.block_size });
        }
        Self::finish(kind, session, image, model, free_blocks.is_some())
    }

    /// A disk on which directories and small files are inline.
    pub fn with_inline_content() -> Self {
        let kind = INLINE;
        let image = Arc::new(kind.make());
        let mut model = Model::new(kind.block_size, kind.has_extents());
        let sizes = [("d/a", 100), ("d/b", 60), ("e/a", 120), ("e/d/b", 7)];
        let mut made = Vec::new();
        for dir in DIRECTORIES {
            model.apply(Op::Mkdir(dir)).expect("a new directory");
            made.push((dir, None));
        }
        for (file, bytes) in sizes {
            model.apply(Op::Create(file)).expect("a new file");
            made.push((file, Some(pattern_of(model.tag(), 0, bytes))));
            model.apply(Op::Write { file, at: 0, bytes }).expect("a file");
        }
        make_by_debugfs(&image, &made);
        let mut session = Session::mount(image.clone(), Pages::default()).expect("mount a new disk");
        for op in preparation(kind.block_size).into_iter().filter(|op| op.is_on(&["a", "b"])) {
            step(&mut session, &mut model, op, false).unwrap_or_else(|what| panic!("{what}"));
        }
        for path in DIRECTORIES.into_iter().chain(sizes.map(|(file, _)| file)) {
            let flags = session.fs().lookup(format!("/{path}")).expect("what was made").metadata().flags;
            assert!(flags.contains(InodeFlags::INLINE_DATA), "{path} does not stand in its inode");
        }
        Self::finish(kind, session, image, model, false)
    }

    /// Unmounts it and poisons what is behind the ends of files.
    pub fn finish(
        kind: DiskKind,
        session: Session,
        image: Arc<MemoryDevice>,
        model: Model,
        is_full: bool,
    ) -> Self {
        let tails = ["a", "b"].map(|file| session.tail_of(file).expect("the end of a file"));
        session.unmount().expect("unmount");
        // Nothing guarantees that it is zero: a program that maps the file may write there.
        for (offset, bytes) in tails {
            image.write_at(offset, &vec![POISON; bytes as usize]).expect("poison");
        }
        Checker::new().check(&image).expect("a clean disk to start from");
        let journal = journal_blocks(&image);
        Self { kind, journal, image: image.snapshot(), model: model.restart(), is_full }
    }
}

/// A sequence on a disk.
#[derive(Clone)]
pub struct Scenario<'b> {
    pub base: &'b Base,
    pub ops: Vec<Op>,
    pub fault: Fault,
    /// Commits before the sequence begins, which move the head of the log.
    pub commits: u32,
    /// The seed of the choice of crashes.
    pub seed: u64,
    pub pages: Pages,
}

impl fmt::Display for Scenario<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (disk, seed, commits) = (self.base.kind.name, self.seed, self.commits);
        let (fault, pages) = (self.fault, self.pages);
        writeln!(f, "disk {disk}, seed {seed}, {commits} commits before, fault {fault:?}, {pages:?}")?;
        self.ops.iter().try_for_each(|op| writeln!(f, "    Op::{op:?},"))
    }
}

/// The recorded writes of a sequence.
pub struct Recording {
    pub log: Log,
    /// Where the sequence begins in the log.
    pub start: usize,
    pub histories: Vec<History>,
    pub tears_superblock: bool,
    /// Operations that failed because blocks or inodes had run out.
    pub failed_for_space: usize,
}

/// The operations of one thread, in the whole disk or in a directory of its own.
pub struct History {
    pub dir: Option<&'static str>,
    pub model: Model,
    /// Its marks in the log, one after each operation.
    pub mark: u64,
    /// Written data may have no blocks yet.
    pub is_delayed: bool,
}

impl History {
    /// Checks that the tree is one that a crash after so many operations may leave.
    pub fn check(&self, tree: &Entry, done: usize, is_delayed: bool) -> Result<(), String> {
        let tree = match self.dir {
            Some(dir) => tree.child(dir).ok_or(format!("directory {dir} is missing"))?,
            None => tree,
        };
        let model = &self.model;
        let last = model.ends[(done + 1).min(model.ends.len() - 1)];
        let allowed = Allowed {
            model,
            promise: &model.promises[done],
            last,
            is_whole_disk: self.dir.is_none(),
            is_delayed,
        };
        allowed.check(tree).map(drop).map_err(|what| format!("after {done} operations: {what}"))
    }

    /// Checks that the tree is the last one.
    pub fn check_end(&self, tree: &Entry) -> Result<(), String> {
        self.check(tree, self.model.ends.len() - 1, false).map_err(|what| format!("without a crash: {what}"))
    }
}

/// The result of one operation.
pub enum Did {
    /// It is in the model.
    Applied,
    /// The disk was full, and nothing changed.
    Nothing,
    /// The disk was full, and a part may be done.
    Part,
}

/// Carries out an operation, and does the same to the model.
pub fn step(session: &mut Session, model: &mut Model, op: Op, may_be_full: bool) -> Result<Did, String> {
    match session.run(op, model) {
        Err(extant::Error::NoSpace | extant::Error::NoInodes) if may_be_full => {
            let is_whole = !op.is_in_steps() || matches!(op, Op::Write { .. } | Op::Append { .. });
            Ok(if is_whole { Did::Nothing } else { Did::Part })
        }
        answer => {
            let expected = model.apply(answer.as_ref().copied().unwrap_or(op));
            if answer.is_ok() == expected.is_ok() {
                Ok(Did::Applied)
            } else {
                Err(format!("{op:?}: {answer:?}, but the model says {expected:?}"))
            }
        }
    }
}

impl Scenario<'_> {
    /// Carries the sequence out and compares the tree at its end.
    ///
    /// # Errors
    /// An operation that does not do what the model does.
    pub fn record(&self) -> Result<Recording, String> {
        let recorder = Recorder::over(self.base.image.snapshot());
        let device =
            FaultyDevice::new(recorder, self.fault, self.base.kind.block_size, self.base.journal.clone());
        let mut model = self.base.model.clone();
        let mut session =
            Session::mount(device.clone(), self.pages).map_err(|error| format!("mount: {error}"))?;
        for _ in 0..self.commits {
            for op in [Op::Chmod { path: "d", mode: 0o755 }, Op::Sync] {
                session.run(op, &model).map_err(|error| error.to_string())?;
            }
        }
        device.arm();
        let start = device.recorder.event_count();
        let mut is_whole = true;
        let mut failed_for_space = 0;
        for (index, op) in self.ops.iter().enumerate() {
            let did = step(&mut session, &mut model, *op, self.base.is_full);
            match did.map_err(|what| format!("operation {index}, {what}"))? {
                Did::Applied => device.recorder.mark(0),
                Did::Nothing => failed_for_space += 1,
                Did::Part => {
                    failed_for_space += 1;
                    // As if the crash came within it.
                    let _ = model.apply(*op);
                    is_whole = false;
                    break;
                }
            }
        }
        let log = device.recorder.log();
        let is_delayed = self.pages.bytes > 0;
        let history = History { dir: None, model, mark: 0, is_delayed };
        if is_whole {
            history.check_end(&tree::read(session.fs())?)?;
        }
        let tears_superblock = self.base.kind.may_tear_superblock();
        Ok(Recording { log, start, histories: vec![history], tears_superblock, failed_for_space })
    }
}

/// Records threads that work at once on a disk, each with operations of its own in a directory of its own.
///
/// # Errors
/// An operation that does not do what the model does.
pub fn record_threads(
    base: &Base,
    pages: Pages,
    sequences: &[(&'static str, Vec<Op>)],
) -> Result<Recording, String> {
    /// After so many commits the log is about half full, from where on it is checkpointed in the background.
    const COMMITS: u32 = 80;
    let device = Arc::new(Recorder::over(base.image.snapshot()));
    let fs = mount_in_background(device.clone(), pages).map_err(|error| format!("mount: {error}"))?;
    for (dir, _) in sequences {
        fs.create_dir(dir).map_err(|error| error.to_string())?;
    }
    for _ in 0..COMMITS {
        fs.set_mode("/d", 0o755).and_then(|()| fs.sync()).map_err(|error| error.to_string())?;
    }
    let start = device.event_count();
    let results: Vec<Result<History, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(sequences)
            .map(|(mark, (dir, ops))| {
                let mut session = Session::within(device.clone(), fs.clone(), dir);
                let mut model = Model::new(base.kind.block_size, base.kind.has_extents());
                let device = &device;
                scope.spawn(move || {
                    for (index, op) in ops.iter().enumerate() {
                        step(&mut session, &mut model, *op, false)
                            .map_err(|what| format!("{dir}, operation {index}, {what}"))?;
                        device.mark(mark);
                    }
                    Ok(History { dir: Some(dir), model, mark, is_delayed: pages.bytes > 0 })
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(Err("a thread panicked".to_owned())))
            .collect()
    });
    let histories = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let log = device.log();
    let tree = tree::read(&fs)?;
    histories.iter().try_for_each(|history| history.check_end(&tree))?;
    let tears_superblock = base.kind.may_tear_superblock();
    Ok(Recording { log, start, histories, tears_superblock, failed_for_space: 0 })
}

/// Which unflushed writes a crash leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    All,
    None,
    /// The crashes that the seed chooses, in `odds` of 4.
    Some {
        seed: u64,
        odds: u64,
        tearing: Tearing,
    },
}

/// A crash after the first `events` events.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    pub events: usize,
    pub survival: Survival,
}

impl Crash {
    /// Every prefix of the recording, with all, none and some of what was not flushed.
    pub fn all_of(recording: &Recording, seed: u64) -> Vec<Self> {
        let mut crashes = Vec::new();
        let events = recording.log.events();
        let mut has_unflushed = false;
        for count in recording.start..=events.len() {
            match count.checked_sub(1).map(|last| &events[last]) {
                Some(Event::Flush) => has_unflushed = false,
                Some(Event::Write { fua: false, .. } | Event::Discard { .. } | Event::WriteZeroes { .. }) => {
                    has_unflushed = true;
                }
                _ => {}
            }
            crashes.push(Self { events: count, survival: Survival::All });
            if !has_unflushed {
                continue;
            }
            crashes.push(Self { events: count, survival: Survival::None });
            for (index, tearing) in
                [Tearing::Requests, Tearing::Sectors, Tearing::Requests].into_iter().enumerate()
            {
                let seed = hash(&[seed, count as u64, index as u64]);
                let odds = 1 + seed % 3;
                crashes.push(Self { events: count, survival: Survival::Some { seed, odds, tearing } });
            }
        }
        crashes
    }

    /// `tears_superblock`, which is written in place.
    pub fn image(self, cursor: &mut Cursor<'_>, tears_superblock: bool) -> MemoryDevice {
        cursor.advance_to(self.events).expect("a recorded range");
        let image = match self.survival {
            Survival::All => cursor.crash_image(Tearing::Requests, |_| true),
            Survival::None => cursor.crash_image(Tearing::Requests, |_| false),
            Survival::Some { seed, odds, tearing } => cursor.crash_image(tearing, |part| {
                let is_joined = !tears_superblock && (1024..2048).contains(&part.offset);
                let offset = if is_joined { 1024 } else { part.offset };
                hash(&[seed, part.event as u64, offset]) % 4 < odds
            }),
        };
        image.expect("a recorded range")
    }
}

/// How many crashes of a sequence are looked at, and how closely.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The tree only.
    pub trees: usize,
    /// Also by e2fsck, and what a crash of the recovery leaves.
    pub checked: usize,
    /// Images also recovered by e2fsck and compared.
    pub compared: usize,
}

/// How closely one image is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Depth {
    Tree,
    Checked,
    Compared,
}

/// The counts of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    pub sequences: usize,
    pub images: usize,
    pub checked: usize,
    pub compared: usize,
    pub failed_for_space: usize,
    pub flushes: usize,
    pub bad: Vec<Finding>,
}

/// A bad image; without a crash, the sequence itself went wrong.
#[derive(Clone, Debug)]
pub struct Finding {
    pub crash: Option<Crash>,
    pub what: String,
}

impl Outcome {
    pub fn add(&mut self, other: Self) {
        self.sequences += other.sequences;
        self.images += other.images;
        self.checked += other.checked;
        self.compared += other.compared;
        self.failed_for_space += other.failed_for_space;
        self.flushes += other.flushes;
        self.bad.extend(other.bad);
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequences, images, checked, compared, bad, .. } = self;
        let bad = bad.len();
        write!(
            f,
            "{sequences} sequences, {images} crash images, {checked} checked by e2fsck, {compared} compared with its own recovery, {bad} bad"
        )
    }
}

/// Records a sequence and looks at some of its crashes.
pub fn explore(scenario: &Scenario<'_>, plan: Plan, checker: &mut Checker) -> Outcome {
    explore_recording(quietly(|| scenario.record()), scenario.seed, plan, checker)
}

/// Looks at some of the crashes of a recording.
pub fn explore_recording(
    recording: Result<Recording, String>,
    seed: u64,
    plan: Plan,
    checker: &mut Checker,
) -> Outcome {
    let mut outcome = Outcome { sequences: 1, ..Outcome::default() };
    let recording = match recording {
        Ok(recording) => recording,
        Err(what) => {
            outcome.bad.push(Finding { crash: None, what });
            return outcome;
        }
    };
    outcome.failed_for_space = recording.failed_for_space;
    let events = &recording.log.events()[recording.start..];
    outcome.flushes = events.iter().filter(|event| **event == Event::Flush).count();
    let mut crashes = Crash::all_of(&recording, seed);
    Random::new(seed).shuffle(&mut crashes);
    crashes.truncate(plan.trees + plan.checked);
    let depth = |index: usize| match index {
        _ if index < plan.compared => Depth::Compared,
        _ if index < plan.checked => Depth::Checked,
        _ => Depth::Tree,
    };
    let mut crashes: Vec<(Crash, Depth)> =
        crashes.into_iter().enumerate().map(|(index, crash)| (crash, depth(index))).collect();
    crashes.sort_by_key(|(crash, _)| crash.events);
    let mut cursor = recording.log.cursor();
    for (crash, depth) in crashes {
        let image = crash.image(&mut cursor, recording.tears_superblock);
        outcome.images += 1;
        outcome.checked += usize::from(depth >= Depth::Checked);
        match quietly(|| judge(&image, &recording, crash, depth, checker)) {
            Ok(reached) => outcome.compared += usize::from(reached == Depth::Compared),
            Err(what) => outcome.bad.push(Finding { crash: Some(crash), what }),
        }
    }
    outcome
}

/// A panic of the engine is a finding like any other.
pub fn quietly<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        Err(format!(
            "panic: {}",
            said.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
        ))
    })
}

/// Mounts a crashed disk for reading: its tree. Nothing may be written.
pub fn tree_as_is(image: &MemoryDevice) -> Result<Entry, String> {
    let device = Arc::new(Recorder::over(image.snapshot()));
    let fs = mount(device.clone(), true).map_err(|error| format!("mount for reading: {error}"))?;
    let tree = tree::read(&fs)?;
    drop(fs);
    if device.event_count() > 0 { Err("a mount for reading wrote".to_owned()) } else { Ok(tree) }
}

/// How deep it came: to the comparison only if e2fsck can recover the image.
fn judge(
    image: &MemoryDevice,
    recording: &Recording,
    crash: Crash,
    depth: Depth,
    checker: &mut Checker,
) -> Result<Depth, String> {
    let events = &recording.log.events()[recording.start..crash.events];
    let tree = tree_as_is(image)?;
    for history in &recording.histories {
        let done = events.iter().filter(|event| **event == Event::Mark(history.mark)).count();
        history.check(&tree, done, history.is_delayed)?;
    }

    let recovered = recover(image, &tree)?;
    if depth >= Depth::Checked {
        checker.check(recovered.device.inner()).map_err(|what| format!("recovered: {what}"))?;
        let again = Recovery { tears_superblock: recording.tears_superblock, tree: &tree };
        again.crash(&recovered.device.log(), recovered.events, hash(&[crash.events as u64]), RECOVERIES)?;
    }
    // e2fsck takes the copy of a superblock that is torn, with what stood there when the disk was made.
    let is_torn = || is_superblock_torn(image);
    if depth == Depth::Compared && !is_torn() {
        let Some(theirs) = checker.recover(image)? else { return Ok(Depth::Checked) };
        let theirs = tree_as_is(&theirs)?.without_found();
        // When e2fsck finishes a truncation that a crash interrupted, it takes the file's attribute block away as if
        // the file were deleted (seen in 1.47.0). Linux does not.
        let difference = match recovered.orphans {
            0 => tree.difference(&theirs),
            _ => tree.without_xattrs().difference(&theirs.without_xattrs()),
        };
        if let Some(what) = difference {
            return Err(format!("recovered by e2fsck, the tree is another: {what}"));
        }
    }
    Ok(depth)
}

/// A disk that was recovered, written to and unmounted.
pub struct Recovered {
    pub device: Arc<Recorder<MemoryDevice>>,
    /// The events of the recovery itself.
    events: usize,
    pub orphans: usize,
}

/// Mounts a disk for writing: it has this tree, and life goes on.
pub fn recover(image: &MemoryDevice, tree: &Entry) -> Result<Recovered, String> {
    let device = Arc::new(Recorder::over(image.snapshot()));
    let fs = mount(device.clone(), false).map_err(|error| format!("mount for writing: {error}"))?;
    let (events, orphans) = (device.event_count(), fs.mounted().orphans);
    if tree::read(&fs)? != *tree {
        return Err("mounted for writing, the tree is another than mounted for reading".to_owned());
    }
    no_inode_is_lost(&fs, tree)?;
    go_on(&fs).map_err(|error| format!("writing after the recovery: {error}"))?;
    fs.unmount().map_err(|error| format!("unmount after the recovery: {error}"))?;
    Ok(Recovered { device, events, orphans })
}

/// Every inode in use has a name in the tree, or is the file system's own: what was deleted by then was given back. Not
/// on disks where values of attributes have inodes.
fn no_inode_is_lost(fs: &Filesystem, tree: &Entry) -> Result<(), String> {
    let superblock = fs.superblock();
    if superblock.incompat().contains(IncompatFeatures::EA_INODE) {
        return Ok(());
    }
    // `lost+found` is not in the tree.
    let hidden = [superblock.s_orphan_file_inum(), superblock.s_prj_quota_inum()];
    let own = superblock.first_ino() + hidden.iter().filter(|number| **number != 0).count() as u32;
    let named = tree.numbers().range(superblock.first_ino()..).count() as u32;
    let statistics = fs.statistics();
    let used = statistics.inodes - statistics.free_inodes;
    if used == own + named {
        Ok(())
    } else {
        Err(format!("{used} inodes are in use, but {named} have names and {own} are the file system's own"))
    }
}

/// Life goes on after the recovery, if there is room for it.
fn go_on(fs: &Filesystem) -> extant::Result<()> {
    match fs.write("/after the crash", vec![0x5A; 5000]).map_err(extant::Error::into_cause) {
        Err(extant::Error::NoSpace | extant::Error::NoInodes) => {}
        other => other?,
    }
    fs.sync()
}

/// Recoveries, one after the other, that crash.
const RECOVERIES: usize = 2;

fn is_superblock_torn(image: &MemoryDevice) -> bool {
    let mut bytes = [0; 1024];
    image.read_at(1024, &mut bytes).expect("a superblock");
    extant_ondisk::Superblock::parse(&bytes).is_err()
}

/// The state that a recovery must give, however often it crashes.
struct Recovery<'t> {
    tears_superblock: bool,
    tree: &'t Entry,
}

impl Recovery<'_> {
    /// A crash within the first `events` events of a recovery, and of `depth - 1` more recoveries that follow: each next one gives the
    /// same tree.
    fn crash(&self, log: &Log, events: usize, seed: u64, depth: usize) -> Result<(), String> {
        let seed = hash(&[seed, events as u64]);
        let again = Crash {
            events: seed as usize / 5 % (events + 1),
            survival: Survival::Some { seed, odds: seed % 5, tearing: Tearing::Sectors },
        };
        let image = again.image(&mut log.cursor(), self.tears_superblock);
        let within =
            |what: String| format!("a recovery crashed after {} of {events} events: {what}", again.events);
        let found = tree_as_is(&image).map_err(within)?;
        if found != *self.tree {
            return Err(within("another tree".to_owned()));
        }
        if depth == 1 {
            return Ok(());
        }
        let device = Arc::new(Recorder::over(image));
        let fs = mount(device.clone(), false).map_err(|error| within(error.to_string()))?;
        let (log, events) = (device.log(), device.event_count());
        drop(fs);
        self.crash(&log, events, seed, depth - 1)
    }
}

/// The shortest sequence, by leaving operations out, that still goes wrong.
pub fn shrink<'b>(
    scenario: &Scenario<'b>,
    plan: Plan,
    checker: &mut Checker,
) -> (Scenario<'b>, Option<Finding>) {
    let mut best = scenario.clone();
    let mut finding = None;
    let mut attempts = 0;
    let mut at = best.ops.len();
    while at > 0 && attempts < 150 {
        at -= 1;
        attempts += 1;
        let mut shorter = best.clone();
        shorter.ops.remove(at);
        if let Some(found) = explore(&shorter, plan, checker).bad.into_iter().next() {
            best = shorter;
            finding = Some(found);
            at = best.ops.len().min(at + 1);
        }
    }
    (best, finding)
}
