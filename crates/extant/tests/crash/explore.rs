//! Crashes of a sequence of operations, and what is wrong after them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use extant_block::{Cursor, Event, Log, MemoryDevice, Recorder, Tearing};
use extant_rt::Arc;

use crate::disk::{Checker, DiskKind, journal_blocks};
use crate::fault::{Fault, FaultyDevice};
use crate::generate::preparation;
use crate::model::Model;
use crate::op::Op;
use crate::random::{Random, hash};
use crate::session::{Session, mount};
use crate::tree::{self, Allowed, Entry};

/// A disk with files on it, cleanly unmounted, and the model of them.
pub struct Base {
    pub kind: DiskKind,
    pub image: MemoryDevice,
    pub model: Model,
    pub journal: Vec<u64>,
}

impl Base {
    pub fn new(kind: DiskKind) -> Self {
        let image = Arc::new(kind.make());
        let mut model = Model::new(kind.block_size);
        let mut session = Session::mount(image.clone()).expect("mount a new disk");
        for op in preparation(kind.block_size) {
            session.run(op, &model).unwrap_or_else(|error| panic!("{op:?}: {error}"));
            model.apply(op).unwrap_or_else(|_| panic!("the model refuses {op:?}"));
        }
        session.unmount().expect("unmount");
        Checker::new().check(&image).expect("a clean disk to start from");
        Self { kind, journal: journal_blocks(&image), image: image.snapshot(), model: model.restart() }
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
    /// Of the choice of crashes.
    pub seed: u64,
}

impl fmt::Display for Scenario<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (disk, seed, commits) = (self.base.kind.name, self.seed, self.commits);
        writeln!(f, "disk {disk}, seed {seed}, {commits} commits before, fault {:?}", self.fault)?;
        self.ops.iter().try_for_each(|op| writeln!(f, "    Op::{op:?},"))
    }
}

/// What a sequence wrote.
pub struct Recording {
    pub log: Log,
    /// Where the sequence begins in the log.
    pub start: usize,
    pub model: Model,
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
        let mut session = Session::mount(device.clone()).map_err(|error| format!("mount: {error}"))?;
        for _ in 0..self.commits {
            let same = Op::Chmod { path: "d", mode: 0o755 };
            [same, Op::Sync]
                .into_iter()
                .try_for_each(|op| session.run(op, &model))
                .map_err(|error| error.to_string())?;
        }
        device.arm();
        let start = device.recorder.event_count();
        for (index, op) in self.ops.iter().enumerate() {
            let answer = session.run(*op, &model);
            let expected = model.apply(*op);
            if answer.is_ok() != expected.is_ok() {
                return Err(format!(
                    "operation {index}, {op:?}: {answer:?}, but the model says {expected:?}"
                ));
            }
            device.recorder.mark(index as u64);
        }
        let log = device.recorder.log();
        let tree = tree::read(session.fs())?;
        let last = model.steps.len() - 1;
        let promise = crate::model::Promise { step: last, ..Default::default() };
        Allowed { model: &model, promise: &promise, last }
            .check(&tree)
            .map_err(|what| format!("without a crash: {what}"))?;
        Ok(Recording { log, start, model })
    }
}

/// Which unflushed writes a crash leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    All,
    None,
    /// Those that the seed chooses, in `odds` of 4.
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
    fn all_of(recording: &Recording, seed: u64) -> Vec<Self> {
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

    fn image(self, cursor: &mut Cursor<'_>) -> MemoryDevice {
        cursor.advance_to(self.events).expect("a recorded range");
        let image = match self.survival {
            Survival::All => cursor.crash_image(Tearing::Requests, |_| true),
            Survival::None => cursor.crash_image(Tearing::Requests, |_| false),
            Survival::Some { seed, odds, tearing } => cursor.crash_image(tearing, |part| {
                // The superblock survives whole: its checksum covers both its sectors, and it is written in place.
                let offset = if (1024..2048).contains(&part.offset) { 1024 } else { part.offset };
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
    /// Of those, also recovered by e2fsck and compared.
    pub compared: usize,
}

/// How closely one image is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
enum Depth {
    Tree,
    Checked,
    Compared,
}

/// What came out.
#[derive(Debug, Default)]
pub struct Outcome {
    pub sequences: usize,
    pub images: usize,
    pub checked: usize,
    pub compared: usize,
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
        self.bad.extend(other.bad);
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sequences, images, checked, compared, bad } = self;
        let bad = bad.len();
        write!(
            f,
            "{sequences} sequences, {images} crash images, {checked} checked by e2fsck, {compared} compared with its own recovery, {bad} bad"
        )
    }
}

/// Records a sequence and looks at some of its crashes.
pub fn explore(scenario: &Scenario<'_>, plan: Plan, checker: &mut Checker) -> Outcome {
    let mut outcome = Outcome { sequences: 1, ..Outcome::default() };
    let recording = match quietly(|| scenario.record()) {
        Ok(recording) => recording,
        Err(what) => {
            outcome.bad.push(Finding { crash: None, what });
            return outcome;
        }
    };
    let mut crashes = Crash::all_of(&recording, scenario.seed);
    Random::new(scenario.seed).shuffle(&mut crashes);
    crashes.truncate(plan.trees + plan.checked);
    let mut crashes: Vec<(Crash, Depth)> = crashes
        .into_iter()
        .enumerate()
        .map(|(index, crash)| match index {
            _ if index < plan.compared => (crash, Depth::Compared),
            _ if index < plan.checked => (crash, Depth::Checked),
            _ => (crash, Depth::Tree),
        })
        .collect();
    crashes.sort_by_key(|(crash, _)| crash.events);
    let mut cursor = recording.log.cursor();
    for (crash, depth) in crashes {
        let image = crash.image(&mut cursor);
        outcome.images += 1;
        outcome.checked += usize::from(depth >= Depth::Checked);
        outcome.compared += usize::from(depth == Depth::Compared);
        if let Err(what) = quietly(|| judge(&image, &recording, crash, depth, checker)) {
            outcome.bad.push(Finding { crash: Some(crash), what });
        }
    }
    outcome
}

/// A panic of the engine is a finding like any other.
fn quietly<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().cloned();
        Err(format!(
            "panic: {}",
            said.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned())).unwrap_or_default()
        ))
    })
}

/// Mounts a crashed disk for reading: its tree. Nothing may be written.
fn tree_as_is(image: &MemoryDevice) -> Result<Entry, String> {
    let device = Arc::new(Recorder::over(image.snapshot()));
    let fs = mount(device.clone(), true).map_err(|error| format!("mount for reading: {error}"))?;
    let tree = tree::read(&fs)?;
    drop(fs);
    if device.event_count() > 0 { Err("a mount for reading wrote".to_owned()) } else { Ok(tree) }
}

fn judge(
    image: &MemoryDevice,
    recording: &Recording,
    crash: Crash,
    depth: Depth,
    checker: &mut Checker,
) -> Result<(), String> {
    let events = &recording.log.events()[recording.start..crash.events];
    let done = events.iter().filter(|event| matches!(event, Event::Mark(_))).count();
    let model = &recording.model;
    let last = model.ends[(done + 1).min(model.ends.len() - 1)];
    let allowed = Allowed { model, promise: &model.promises[done], last };
    let tree = tree_as_is(image)?;
    allowed.check(&tree).map_err(|what| format!("after {done} operations: {what}"))?;

    let device = Arc::new(Recorder::over(image.snapshot()));
    let fs = mount(device.clone(), false).map_err(|error| format!("mount for writing: {error}"))?;
    let recovery_events = device.event_count();
    if tree::read(&fs)? != tree {
        return Err("mounted for writing, the tree is another than mounted for reading".to_owned());
    }
    // Life goes on.
    let go_on = || {
        fs.write("/after the crash", vec![0x5A; 5000])?;
        fs.sync()
    };
    go_on().map_err(|error| format!("writing after the recovery: {error}"))?;
    fs.unmount().map_err(|error| format!("unmount after the recovery: {error}"))?;
    if depth >= Depth::Checked {
        checker
            .check(device.inner())
            .map_err(|what| format!("after {done} operations, recovered: {what}"))?;
        crash_recovery(&device.log(), recovery_events, &tree, crash)?;
    }
    if depth == Depth::Compared {
        let recovered = checker.recover(image)?;
        if tree_as_is(&recovered)? != tree {
            return Err("recovered by e2fsck, the tree is another".to_owned());
        }
    }
    Ok(())
}

/// A crash in the midst of a recovery: the next one gives the same tree.
fn crash_recovery(log: &Log, events: usize, tree: &Entry, crash: Crash) -> Result<(), String> {
    let seed = hash(&[crash.events as u64, events as u64]);
    let odds = seed % 5;
    let again = Crash {
        events: seed as usize / 5 % (events + 1),
        survival: Survival::Some { seed, odds, tearing: Tearing::Sectors },
    };
    let image = again.image(&mut log.cursor());
    let within =
        |what: String| format!("the recovery crashed after {} of {events} events: {what}", again.events);
    let found = tree_as_is(&image).map_err(within)?;
    if found == *tree { Ok(()) } else { Err(within("another tree".to_owned())) }
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
