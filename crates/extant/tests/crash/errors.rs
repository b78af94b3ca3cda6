//! A device that fails at one request of a sequence: each in turn, until the sequence needs no more.
//!
//! Each read, write and flush between mounting and unmounting fails once, or it and all later ones of its kind; a write
//! also reaches the disk in part. Of each run:
//!
//! - nothing panics or hangs, and the operation that failed returns an error, which names a block that could not be read;
//! - what was acknowledged is on the disk, by content: after an fsync or sync that succeeded before, as after a crash;
//!   after a sync that succeeds afterwards, all that is seen; after an unmount that succeeds, on a disk that e2fsck finds
//!   clean as it is;
//! - once a write or a flush of the journal failed, nothing changes and nothing can be made durable;
//! - mounted on a healthy device the disk recovers, can be written to, and is clean by `e2fsck -fn`, whether everything
//!   reached it that the device took, or only what it had to keep.

mod background;
mod failing;

use std::env;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use extant::Error;
use extant_block::{FaultDevice, MemoryDevice, Operation, Recorder, Request, Tearing};
use extant_rt::{Arc, HAS_THREADS};
use extant_testing::{crash_scale, has_e2fsprogs};

use crate::disk::{Checker, KINDS};
use crate::explore::{Base, History, Scenario, quietly, recover, tree_as_is};
use crate::fault::Fault;
use crate::generate::{alphabet, random_sequence};
use crate::op::Op;
use crate::random::hash;
use crate::sequences::pages;
use crate::session::{Pages, Session};
use crate::tree;

/// How often it is looked whether a run hangs, and how many such looks one may last: a minute. Looks are counted instead of time, which
/// passes for a process that is stopped too.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS_MAX: u64 = 600;
/// One in so many runs is checked by e2fsck too.
const CHECKED_ONE_IN: u64 = 8;

/// The kind of request to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Read,
    Write,
    Flush,
}

impl Access {
    fn of(operation: Operation) -> Option<Self> {
        match operation {
            Operation::Read => Some(Self::Read),
            Operation::Write | Operation::WriteFua | Operation::WriteZeroes => Some(Self::Write),
            Operation::Flush => Some(Self::Flush),
            // No operation relies on discards.
            Operation::Discard => None,
        }
    }
}

/// How the device fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Once,
    FromThenOn,
    /// Once, and half of the sectors are written.
    InPart,
    /// Once, and the device does not say so.
    Unsaid,
}

#[derive(Clone, Copy, Debug)]
struct Failure {
    access: Access,
    index: u64,
    manner: Manner,
}

const MANNERS: [(Access, Manner); 7] = [
    (Access::Read, Manner::Once),
    (Access::Read, Manner::FromThenOn),
    (Access::Write, Manner::Once),
    (Access::Write, Manner::FromThenOn),
    (Access::Write, Manner::InPart),
    (Access::Flush, Manner::Once),
    (Access::Flush, Manner::FromThenOn),
];

type Device = Recorder<FaultDevice<MemoryDevice>>;

/// Requests that failed.
#[derive(Debug, Default)]
struct Hits(Mutex<Vec<Request>>);

impl Hits {
    fn count(&self) -> usize {
        self.0.lock().expect("hits").len()
    }
}

impl Failure {
    fn device(self, base: &Base) -> (Arc<Device>, std::sync::Arc<Hits>) {
        let hits = std::sync::Arc::new(Hits::default());
        let seen = hits.clone();
        let mut count = 0;
        let below = FaultDevice::new(base.image.snapshot(), move |request| {
            if Access::of(request.operation) != Some(self.access) {
                return extant_block::Fault::None;
            }
            count += 1;
            let at = count - 1;
            let is_hit = at == self.index || at > self.index && self.manner == Manner::FromThenOn;
            if !is_hit {
                return extant_block::Fault::None;
            }
            seen.0.lock().expect("hits").push(*request);
            match self.manner {
                // No mount can use half of a superblock.
                Manner::InPart if request.offset + request.bytes != 2048 => {
                    extant_block::Fault::Short(request.bytes / 1024 * 512, std::io::ErrorKind::Other)
                }
                Manner::Unsaid => extant_block::Fault::Dropped,
                _ => extant_block::Fault::Error(std::io::ErrorKind::Other),
            }
        });
        (Arc::new(Recorder::with_base(base.image.snapshot(), below)), hits)
    }
}

/// A sequence and how its device fails.
struct Case<'s, 'b> {
    scenario: &'s Scenario<'b>,
    failure: Failure,
}

/// The results of a run that its caller saw.
struct Run {
    history: History,
    /// Operations acknowledged before the first failure.
    done: usize,
    /// The model knows all operations.
    is_followed: bool,
    /// An operation, the last sync or the unmount gave an error.
    is_told: bool,
    is_unmounted: bool,
    /// The tree that the last sync made durable.
    synced: Option<tree::Entry>,
}

fn promises(op: Op) -> bool {
    matches!(op, Op::Sync | Op::Fsync(_) | Op::Fdatasync(_) | Op::Remount)
}

impl Case<'_, '_> {
    /// Checks that an error is one of a failed device, or of a file system that no longer writes.
    fn is_of_device(&self, error: &Error, hits: &Hits) -> Result<(), String> {
        let block_size = self.scenario.base.kind.block_size;
        match error {
            Error::Io { location, .. } if self.failure.access == Access::Read => {
                let is_named = |hit: &Request| match location.block {
                    Some(block) => {
                        let at = block.0 * block_size;
                        at < hit.offset + hit.bytes && hit.offset < at + block_size
                    }
                    // There is one superblock; data may be lost in many places.
                    None => {
                        let words = error.to_string();
                        hit.offset == 1024
                            || words.ends_with("was lost")
                            || words.contains("could not be read before")
                    }
                };
                let hits = hits.0.lock().expect("hits");
                if hits.iter().any(is_named) {
                    Ok(())
                } else {
                    Err(format!("{error}, but what failed is {hits:?}"))
                }
            }
            Error::Io { .. } | Error::Journal(_) | Error::ReadOnly => Ok(()),
            // Groups that cannot be read have nothing to give.
            Error::NoSpace | Error::NoInodes if self.failure.access == Access::Read => Ok(()),
            other => Err(format!("a failing device shows as {other:?}")),
        }
    }

    fn run(&self, device: &Arc<Device>, hits: &Hits) -> Result<Run, String> {
        let Self { scenario, failure } = *self;
        let model = scenario.base.model.clone();
        let history = History { dir: None, model, mark: 0, is_delayed: scenario.pages.bytes > 0 };
        let mut run =
            Run { history, done: 0, is_followed: true, is_told: false, is_unmounted: false, synced: None };
        let mut session = match Session::mount(device.clone(), scenario.pages) {
            Ok(session) => session,
            Err(error) => {
                run.is_told = true;
                return self.is_of_device(&error, hits).map(|()| run);
            }
        };
        for op in &scenario.ops {
            let had_failed = hits.count() > 0;
            self.step(&mut run, &mut session, *op, hits, had_failed)?;
            if !session.is_mounted() {
                return Ok(run);
            }
            let is_first = !had_failed && hits.count() > 0;
            let goes_on = || failure.access == Access::Read && failure.manner == Manner::Once;
            if is_first && (!goes_on() || session.fs().sync().is_err()) {
                break;
            }
        }
        self.end(&mut run, session, hits)?;
        Ok(run)
    }

    /// One operation. The first that meets the failure may have been done or not, whatever it returns.
    fn step(
        &self,
        run: &mut Run,
        session: &mut Session,
        op: Op,
        hits: &Hits,
        had_failed: bool,
    ) -> Result<(), String> {
        let model = &mut run.history.model;
        let did = session.run(op, model);
        let is_hit = hits.count() > 0;
        if had_failed {
            run.is_followed = false;
            run.is_told |= matches!(did, Err(Error::Io { .. } | Error::Journal(_)));
            return Ok(());
        }
        let mut after = model.clone();
        let expected = after.apply(did.as_ref().copied().unwrap_or(op));
        match did {
            Ok(_) if expected.is_err() => return Err(format!("{op:?} succeeds, but not in the model")),
            Err(error) if expected.is_ok() => {
                run.is_told = true;
                self.is_of_device(&error, hits).map_err(|what| format!("{op:?}: {what}"))?;
                if !is_hit {
                    return Err(format!("{op:?}: {error} without a failure"));
                }
                if !promises(op) {
                    *model = after;
                }
            }
            _ => {
                *model = after;
                run.done += usize::from(!is_hit || promises(op));
            }
        }
        Ok(())
    }

    /// A last sync, and the unmount.
    fn end(&self, run: &mut Run, session: Session, hits: &Hits) -> Result<(), String> {
        let mut tell = |error: &Error, what: &str| {
            run.is_told = true;
            self.is_of_device(error, hits).map_err(|said| format!("{what}: {said}"))
        };
        let fs = session.fs();
        let was_stopped = fs.is_read_only();
        match fs.sync() {
            Ok(()) if was_stopped => {
                return Err("a sync succeeds when nothing is written any more".to_owned());
            }
            // A run that cannot read compares no tree, and neither does one that has not yet met the failure.
            Ok(()) if self.failure.manner == Manner::FromThenOn && self.failure.access == Access::Read => {}
            Ok(()) if hits.count() == 0 => {}
            Ok(()) => run.synced = Some(tree::read(fs)?),
            Err(error) => tell(&error, "sync")?,
        }
        let is_stopped = fs.is_read_only();
        if is_stopped {
            let (made, synced) = (fs.create_dir("more"), fs.sync());
            if made.is_ok() || synced.is_ok() {
                return Err(format!("writing has stopped, but mkdir: {made:?}, sync: {synced:?}"));
            }
        }
        match session.unmount() {
            Ok(()) if is_stopped => return Err("what writes no more is unmounted cleanly".to_owned()),
            Ok(()) => run.is_unmounted = true,
            Err(error) => tell(&error, "unmount")?,
        }
        Ok(())
    }

    /// Runs the sequence and looks at the disk that it leaves: whether there was a failure.
    fn judge(&self, checker: &mut Checker, tally: &Tally) -> Result<bool, String> {
        let (device, hits) = self.failure.device(self.scenario.base);
        let run = self.run(&device, &hits)?;
        if hits.count() == 0 {
            return Ok(false);
        }
        tally.runs.fetch_add(1, Ordering::Relaxed);
        if run.is_told {
            tally.told.fetch_add(1, Ordering::Relaxed);
        } else if self.failure.access != Access::Read && self.failure.manner != Manner::Unsaid {
            return Err("nobody was told".to_owned());
        }
        let log = device.log();
        let events = log.events().len();
        let lost = log.crash_image(events, Tearing::Requests, |_| false).expect("a recorded range");
        let mut images = vec![("all that was taken", device.inner().inner().snapshot())];
        // The recording has no parts of writes that failed.
        if self.failure.manner != Manner::InPart {
            images.push(("what had to stay", lost));
        }
        for (what, image) in images {
            let is_checked = hash(&[self.scenario.seed, self.failure.index]).is_multiple_of(CHECKED_ONE_IN);
            self.judge_image(&run, &image, is_checked.then_some(&mut *checker), tally)
                .map_err(|said| format!("with {what} on the disk: {said}"))?;
        }
        Ok(true)
    }

    fn judge_image(
        &self,
        run: &Run,
        image: &MemoryDevice,
        checker: Option<&mut Checker>,
        tally: &Tally,
    ) -> Result<(), String> {
        let tree = tree_as_is(image)?;
        match &run.synced {
            Some(synced) => {
                if let Some(what) = synced.difference(&tree) {
                    return Err(format!("not as the last sync left it: {what}"));
                }
            }
            None if run.is_followed => run.history.check(&tree, run.done, run.history.is_delayed)?,
            None => {}
        }
        let recovered = recover(image, &tree)?;
        if let Some(checker) = checker {
            tally.checked.fetch_add(1, Ordering::Relaxed);
            // With orphans left for the next mount it has something to do.
            if run.is_unmounted && recovered.orphans == 0 {
                checker.check(image).map_err(|what| format!("unmounted: {what}"))?;
            }
            checker.check(recovered.device.inner()).map_err(|what| format!("recovered: {what}"))?;
        }
        Ok(())
    }
}

/// How much was looked at.
#[derive(Debug, Default)]
struct Tally {
    sequences: AtomicUsize,
    runs: AtomicUsize,
    /// Runs in which an error was reported; the others did not need what they could not read.
    told: AtomicUsize,
    checked: AtomicUsize,
}

/// The current run, and how often the thread that looks for hangs has seen it.
type Watch = Mutex<Option<(String, u64)>>;

/// Each failure of one sequence.
fn fail_everywhere(
    scenario: &Scenario<'_>,
    number: usize,
    checker: &mut Checker,
    watch: &Watch,
    tally: &Tally,
) -> Result<(), String> {
    for (access, manner) in MANNERS {
        for index in 0.. {
            let case = Case { scenario, failure: Failure { access, index, manner } };
            let name = format!("{number}:{access:?}:{manner:?}:{index}");
            *watch.lock().expect("a watch") = Some((name.clone(), 0));
            let judged = quietly(|| case.judge(checker, tally));
            *watch.lock().expect("a watch") = None;
            if !judged.map_err(|what| format!("EXTANT_FAILURE={name}: {what}\n{scenario}"))? {
                break;
            }
        }
    }
    tally.sequences.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Every operation alone, each two of a sample, and random longer ones; on which disk follows from the number.
fn scenarios(bases: &[Base]) -> Vec<Scenario<'_>> {
    let count = alphabet(1024).len();
    let delayed =
        |number: usize| if number.is_multiple_of(2) { Pages::default() } else { pages(number as u64 / 2) };
    let base = |number: usize| &bases[hash(&[number as u64]) as usize % bases.len()];
    let scenario = |number: usize, ops: Vec<Op>| Scenario {
        base: base(number),
        ops,
        fault: Fault::None,
        commits: 0,
        seed: number as u64,
        pages: delayed(number),
    };
    let alone = (0..2 * count)
        .map(|number| scenario(number, vec![alphabet(base(number).kind.block_size)[number / 2], Op::Sync]));
    let longer = (2 * count..6 * count).map(|number| {
        let ops = random_sequence(&base(number).model, 2 + number % 5, hash(&[number as u64, 1]));
        scenario(number, ops)
    });
    alone.chain(longer).collect()
}

/// Whether a run takes too long: then everything ends, or the test would wait for ever.
fn look_for_hangs(watches: &[Watch]) {
    for watch in watches {
        if let Some((name, looks)) = &mut *watch.lock().expect("a watch") {
            *looks += 1;
            if *looks > LOOKS_MAX {
                eprintln!("EXTANT_FAILURE={name} hangs");
                std::process::exit(1);
            }
        }
    }
}

/// `EXTANT_FAILURE=NUMBER:...`, as a failing test prints it, runs that sequence alone.
fn wanted() -> Option<usize> {
    let case = env::var("EXTANT_FAILURE").ok()?;
    case.split(':').next()?.parse().ok()
}

#[test]
fn a_failing_device_is_reported_and_loses_nothing_that_was_acknowledged() {
    if !has_e2fsprogs() {
        return;
    }
    let bases: Vec<Base> = KINDS.into_iter().map(Base::new).collect();
    let scenarios = scenarios(&bases);
    let stride = if crash_scale() > 1 { 1 } else { 7 };
    let chosen: Vec<usize> = match wanted() {
        Some(number) => vec![number],
        None => (0..scenarios.len()).step_by(stride).collect(),
    };
    let (next, tally) = (AtomicUsize::new(0), Tally::default());
    let bad = Mutex::new(Vec::new());
    let watches = [Watch::default(), Watch::default()];
    let work = |watch: &Watch| {
        let mut checker = Checker::new();
        while let Some(number) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
            let scenario = &scenarios[*number];
            if let Err(what) = fail_everywhere(scenario, *number, &mut checker, watch, &tally) {
                bad.lock().expect("findings").push(what);
            }
        }
    };
    if HAS_THREADS {
        thread::scope(|scope| {
            let workers: Vec<_> = watches.iter().map(|watch| scope.spawn(|| work(watch))).collect();
            while workers.iter().any(|worker| !worker.is_finished()) {
                thread::sleep(LOOK);
                look_for_hangs(&watches);
            }
        });
    } else {
        work(&watches[0]);
    }
    let bad = bad.into_inner().expect("findings");
    bad.iter().for_each(|what| println!("\n{what}"));
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    println!(
        "failing devices: {} sequences, {} failures, {} of them told, {} images checked by e2fsck, {} bad",
        count(&tally.sequences),
        count(&tally.runs),
        count(&tally.told),
        count(&tally.checked),
        bad.len()
    );
    assert!(bad.is_empty(), "{} sequences went wrong", bad.len());
}

/// A write that fails without any error reported is found by the tests.
#[test]
fn a_write_that_is_lost_without_a_word_is_found() {
    if !has_e2fsprogs() {
        return;
    }
    let base = Base::new(KINDS[0]);
    let ops = vec![Op::Write { file: "a", at: 0, bytes: 2048 }, Op::Fsync("a"), Op::Mkdir("c"), Op::Sync];
    for pages in [Pages::default(), pages(0)] {
        let scenario =
            Scenario { base: &base, ops: ops.clone(), fault: Fault::None, commits: 0, seed: 1, pages };
        let found = (0..20).filter(|index| {
            let failure = Failure { access: Access::Write, index: *index, manner: Manner::Unsaid };
            let case = Case { scenario: &scenario, failure };
            quietly(|| case.judge(&mut Checker::new(), &Tally::default())).is_err()
        });
        assert!(found.count() > 3, "{pages:?}");
    }
}
