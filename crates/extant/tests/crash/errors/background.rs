//! A device that fails under the background threads, which commit, checkpoint, write files back, zero inode tables and discard.
//!
//! Two threads carry out random operations, each in its own directory, on a disk with uninitialised inode tables. A request fails
//! once, or it and all later ones of its target, or it writes half of its sectors; its error may come late. After a failure each thread
//! syncs every file of its own and then the file system. Of each run:
//!
//! - nothing panics or hangs;
//! - the content that a thread's syncs acknowledged, before the failure and after it, is on the disk;
//! - after a failed flush or a failed write of the log no sync succeeds, and the unmount fails;
//! - after a successful sync at the end the disk has the tree that the mount shows;
//! - on a healthy device the disk recovers, can be written to, and is clean by `e2fsck -fn`, with all writes that reached the device and
//!   with the durable ones only.

use std::collections::BTreeSet;
use std::env;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use extant::{Error, Filesystem};
use extant_block::{MemoryDevice, Operation, Request};
use extant_rt::Arc;

use super::failing::{Answer, Area, Failure, Front, Kind, Map, Seen, TARGETS, Target, Who};
use super::{LOOK, Manner, Watch, look_for_hangs, promises};
use extant_testing::{crash_scale, has_e2fsprogs};

use crate::disk::{Checker, LAZY_BANDS};
use crate::explore::{Base, History, quietly, recover, tree_as_is};
use crate::model::Model;
use crate::op::{FILES, Op};
use crate::random::hash;
use crate::sequences::pages;
use crate::session::{Pages, Session, mount_restless};
use crate::threads::sequence_within;
use crate::tree;

/// Blocks of the log that are used before the threads begin. At 512, half of it, the background thread checkpoints.
const LOG_BLOCKS: u64 = 480;

const DIRECTORIES: [&str; 2] = ["one", "two"];

/// A run.
struct Case<'b> {
    base: &'b Base,
    map: &'b std::sync::Arc<Map>,
    failure: Failure,
    pages: Pages,
    /// Whether the log is nearly half full before the threads begin. Most inode tables are zeroed by then.
    fills_log: bool,
    seed: u64,
}

impl Case<'_> {
    /// Runs both threads and checks the disk that they leave.
    fn judge(&self, checker: &mut Checker) -> Result<std::sync::Arc<Seen>, String> {
        let (device, seen) = Front::new(self.base, self.map, self.failure);
        let fs = mount_restless(device.clone(), self.pages).map_err(|error| format!("mount: {error}"))?;
        for dir in DIRECTORIES {
            fs.create_dir(dir).map_err(|error| error.to_string())?;
        }
        fs.sync().map_err(|error| error.to_string())?;
        let is_log_short = || fs.journal_statistics().is_some_and(|journal| journal.log_blocks < LOG_BLOCKS);
        while self.fills_log && is_log_short() {
            fs.set_mode("/one", 0o755).and_then(|()| fs.sync()).map_err(|error| error.to_string())?;
        }
        seen.arm();
        let whole = Mutex::new(false);
        let work = |number: usize| {
            let mut worker = Worker::new(self, &device, &fs, DIRECTORIES[number], &seen, &whole);
            let ops = sequence_within(self.base, hash(&[self.seed, number as u64]));
            worker.run(&ops).map(|()| worker.end())
        };
        let worked: Vec<Result<Worked, String>> = thread::scope(|scope| {
            let spawn = |number| scope.spawn(move || quietly(|| work(number)));
            let threads: Vec<_> = (0..DIRECTORIES.len()).map(spawn).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join();
            threads
                .into_iter()
                .map(|thread| join(thread).unwrap_or(Err("a thread panicked".to_owned())))
                .collect()
        });
        let worked = worked.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut end = End::of(fs, || self.has_stopped(&seen))?;
        end.is_told |= worked.iter().any(|worked| worked.is_told);
        if seen.failures() > 0 {
            self.judge_end(&end, &device, &seen, &worked, checker)?;
        }
        Ok(seen)
    }

    /// Whether a request failed after which all writing stops.
    fn has_stopped(&self, seen: &Seen) -> bool {
        seen.has_failed(|request| match request.operation {
            Operation::Flush => true,
            Operation::Write | Operation::WriteFua => self.map.touches(request, Area::Journal),
            _ => false,
        })
    }

    fn judge_end(
        &self,
        end: &End,
        device: &Front,
        seen: &Seen,
        worked: &[Worked],
        checker: &mut Checker,
    ) -> Result<(), String> {
        let is_change = |request: &Request| {
            matches!(request.operation, Operation::Write | Operation::WriteFua | Operation::Flush)
        };
        if !end.is_told && seen.has_failed(is_change) && self.failure.is_reported() {
            return Err("no caller got an error".to_owned());
        }
        for (what, image) in device.images() {
            judge_image(end, worked, &image, checker)
                .map_err(|said| format!("with {what} on the disk: {said}"))?;
        }
        if end.is_synced_falsely && self.failure.is_reported() {
            return Err("a sync succeeds after a flush or a write of the log that failed".to_owned());
        }
        Ok(())
    }
}

fn judge_image(
    end: &End,
    worked: &[Worked],
    image: &MemoryDevice,
    checker: &mut Checker,
) -> Result<(), String> {
    let tree = tree_as_is(image)?;
    for Worked { history, log, done, .. } in worked {
        let dir = history.dir.unwrap_or_default();
        history.check(&tree, *done, history.is_delayed).map_err(|what| format!("{dir}: {what}\n{log}"))?;
    }
    if let Some(what) = end.synced.as_ref().and_then(|synced| synced.difference(&tree)) {
        return Err(format!("not as the last sync left it: {what}"));
    }
    let recovered = recover(image, &tree)?;
    // With orphans left for the next mount it has something to do.
    if end.is_unmounted && recovered.orphans == 0 {
        checker.check(image).map_err(|what| format!("unmounted: {what}"))?;
    }
    checker.check(recovered.device.inner()).map_err(|what| format!("recovered: {what}"))
}

/// A thread at work.
struct Worker<'w> {
    session: Session,
    history: History,
    seen: &'w Seen,
    /// Held over syncs of the file system: whether one reported lost data, as only one does.
    whole: &'w Mutex<bool>,
    done: usize,
    /// Failures after which all syncs of this thread succeeded.
    known: usize,
    /// Steps of the model up to the last such sync, or to the last operation before a failure.
    sure: usize,
    is_told: bool,
    /// Each operation, its answer, and the failures by then.
    log: String,
}

/// The result of a thread.
struct Worked {
    history: History,
    log: String,
    /// Operations that were acknowledged.
    done: usize,
    is_told: bool,
}

impl<'w> Worker<'w> {
    fn new(
        case: &Case<'_>,
        device: &Arc<Front>,
        fs: &Filesystem,
        dir: &'static str,
        seen: &'w Seen,
        whole: &'w Mutex<bool>,
    ) -> Self {
        let model = Model::new(case.base.kind.block_size, case.base.kind.has_extents());
        let sure = model.steps.len();
        let history = History { dir: Some(dir), model, mark: 0, is_delayed: case.pages.bytes > 0 };
        let session = Session::within(device.clone(), fs.clone(), dir);
        Self { session, history, seen, whole, done: 0, known: 0, sure, is_told: false, log: String::new() }
    }

    fn run(&mut self, ops: &[Op]) -> Result<(), String> {
        for op in ops {
            self.step(self.placed(*op))?;
            self.make_sure()?;
            if self.is_told {
                break;
            }
            self.sure = self.history.model.steps.len();
        }
        Ok(())
    }

    /// An append through a page cache as a write at the end that the model knows. A loss that no caller was told of leaves the file as
    /// long as its inode on the disk says, and an append goes to that end.
    fn placed(&self, op: Op) -> Op {
        match op {
            Op::Append { file, bytes } if self.history.is_delayed => {
                Op::Write { file, at: self.history.model.size_of(file), bytes }
            }
            op => op,
        }
    }

    /// After a failure: syncs every file, and then the file system.
    fn make_sure(&mut self) -> Result<(), String> {
        while !self.is_told && self.seen.failures() > self.known {
            self.known = self.seen.failures();
            let files = FILES.into_iter().filter(|path| self.history.model.is_file(path)).map(Op::Fsync);
            for op in files.collect::<Vec<_>>().into_iter().chain([Op::Sync]) {
                if !self.is_told {
                    self.step(op)?;
                }
            }
        }
        Ok(())
    }

    /// One operation. During a failure it may or may not take effect.
    fn step(&mut self, op: Op) -> Result<(), String> {
        let mut whole = (op == Op::Sync).then(|| self.whole.lock().expect("whether all were told"));
        if whole.as_deref() == Some(&true) {
            self.is_told = true;
            return Ok(());
        }
        let model = &mut self.history.model;
        let did = self.session.run(op, model);
        let failures = self.seen.failures();
        let _ = writeln!(self.log, "{op:?}: {did:?}, {failures} failures");
        let mut after = model.clone();
        let expected = after.apply(did.as_ref().copied().unwrap_or(op));
        match did {
            Ok(_) if expected.is_err() => return Err(format!("{op:?} succeeds, but not in the model")),
            Err(error) if expected.is_ok() => {
                if failures == 0 || !matches!(error, Error::Io { .. } | Error::Journal(_) | Error::ReadOnly) {
                    return Err(format!("{op:?}: {error:?} after {failures} failures"));
                }
                whole.iter_mut().for_each(|is_told| **is_told = true);
                self.is_told = true;
                if !promises(op) {
                    *model = after;
                }
            }
            _ => {
                *model = after;
                if failures == self.known || promises(op) {
                    self.done = model.ends.len() - 1;
                }
            }
        }
        Ok(())
    }

    fn end(self) -> Worked {
        let Self { mut history, done, sure, is_told, log, .. } = self;
        if is_told {
            // The last operation may have written a file back after the loss.
            history.model.forget_writeback(sure);
        }
        Worked { history, log, done, is_told }
    }
}

/// The result of the last sync and of the unmount.
#[derive(Default)]
struct End {
    is_told: bool,
    is_unmounted: bool,
    /// The last sync succeeded after a failure that stops all writing.
    is_synced_falsely: bool,
    /// The tree that the last sync made durable.
    synced: Option<tree::Entry>,
}

impl End {
    /// A last sync, and the unmount.
    fn of(fs: Filesystem, has_stopped: impl Fn() -> bool) -> Result<Self, String> {
        let mut end = Self::default();
        let was_stopped = fs.is_read_only();
        let has_stopped = has_stopped();
        match fs.sync() {
            Ok(()) if was_stopped => {
                return Err("a sync succeeds when nothing is written any more".to_owned());
            }
            Ok(()) => {
                end.is_synced_falsely = has_stopped;
                end.synced = Some(tree::read(&fs)?);
            }
            Err(_) => end.is_told = true,
        }
        let is_stopped = fs.is_read_only();
        if is_stopped {
            let (made, synced) = (fs.create_dir("more"), fs.sync());
            if made.is_ok() || synced.is_ok() {
                return Err(format!("writing has stopped, but mkdir: {made:?}, sync: {synced:?}"));
            }
        }
        match fs.unmount() {
            Ok(()) if is_stopped => return Err("what writes no more is unmounted cleanly".to_owned()),
            Ok(()) => end.is_unmounted = true,
            Err(_) => end.is_told = true,
        }
        Ok(end)
    }
}

const MANNERS: [Manner; 3] = [Manner::Once, Manner::FromThenOn, Manner::InPart];

/// No page cache, and every kind.
fn caches() -> [Pages; 4] {
    [Pages::default(), pages(0), pages(1), pages(2)]
}

/// A disk, and the count of requests of each target without a failure: by `fills_log`, then by page cache.
struct Ground {
    base: Base,
    map: std::sync::Arc<Map>,
    counts: [[Vec<u64>; 4]; 2],
}

impl Ground {
    fn new() -> Self {
        let base = Base::new(LAZY_BANDS);
        let map = std::sync::Arc::new(Map::of(&base));
        let failure =
            Failure { target: TARGETS[0], index: None, manner: Manner::Once, answer: Answer::AtOnce };
        let count = |pages, fills_log| {
            let case = Case { base: &base, map: &map, failure, pages, fills_log, seed: 0 };
            case.judge(&mut Checker::new()).expect("a run without failures").counts()
        };
        let counts = [false, true].map(|fills_log| caches().map(|pages| count(pages, fills_log)));
        Self { base, map, counts }
    }

    /// The case of a number.
    fn case(&self, number: u64) -> Case<'_> {
        let chance = |what: u64| hash(&[number, what]) as usize;
        let (at, cache) = (number as usize % TARGETS.len(), chance(1) % 4);
        let fills_log = match TARGETS[at] {
            Target { by: Some(Who::Tables), .. } => false,
            Target { by: Some(Who::Journal), kind: Kind::Write, .. } => true,
            _ => chance(5).is_multiple_of(2),
        };
        let count = self.counts[usize::from(fills_log)][cache][at];
        let failure = Failure {
            target: TARGETS[at],
            // Mostly early ones: on a busy machine the background threads make fewer requests.
            index: Some((chance(2) as u64 % count.max(1)) >> (chance(6) % 4)),
            manner: MANNERS[chance(3) % MANNERS.len()],
            answer: [Answer::AtOnce, Answer::Late][chance(4) % 2],
        };
        Case { fills_log, ..self.planted(failure, caches()[cache], number) }
    }

    fn planted(&self, failure: Failure, pages: Pages, seed: u64) -> Case<'_> {
        let fills_log = failure.target.by == Some(Who::Journal);
        Case { base: &self.base, map: &self.map, failure, pages, fills_log, seed }
    }
}

/// `EXTANT_BACKGROUND=NUMBER`, as a failing test prints it, runs that case again and again.
fn wanted() -> Option<u64> {
    env::var("EXTANT_BACKGROUND").ok()?.parse().ok()
}

/// Runs of that case.
const REPEATS: usize = 200;

#[test]
fn a_failing_device_is_reported_while_threads_work_in_the_background() {
    if !extant_testing::has_threads() {
        return;
    }
    if !has_e2fsprogs() {
        return;
    }
    let ground = Ground::new();
    let cases: Vec<u64> = match wanted() {
        Some(number) => vec![number; REPEATS],
        None => (0..if crash_scale() > 1 { 4000 } else { 128 }).collect(),
    };
    let (next, failed) = (AtomicUsize::new(0), Mutex::new([0_usize; TARGETS.len()]));
    let bad = Mutex::new(BTreeSet::new());
    let watches = [Watch::default(), Watch::default()];
    let work = |watch: &Watch| {
        let mut checker = Checker::new();
        while let Some(number) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let case = ground.case(*number);
            let name = format!("EXTANT_BACKGROUND={number}: {:?}, {:?}", case.failure, case.pages);
            *watch.lock().expect("a watch") = Some((name.clone(), 0));
            let judged = quietly(|| case.judge(&mut checker));
            *watch.lock().expect("a watch") = None;
            match judged {
                Ok(seen) => {
                    let target = *number as usize % TARGETS.len();
                    failed.lock().expect("failures")[target] += usize::from(seen.failures() > 0);
                }
                Err(what) => drop(bad.lock().expect("findings").insert(format!("{name}: {what}"))),
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = watches.iter().map(|watch| scope.spawn(|| work(watch))).collect();
        while workers.iter().any(|worker| !worker.is_finished()) {
            thread::sleep(LOOK);
            look_for_hangs(&watches);
        }
    });
    let (bad, failed) = (bad.into_inner().expect("findings"), failed.into_inner().expect("failures"));
    bad.iter().for_each(|what| println!("\n{what}"));
    println!(
        "failing devices in the background: {} runs, {} with a failure, {} bad",
        cases.len(),
        failed.iter().sum::<usize>(),
        bad.len()
    );
    assert!(bad.is_empty(), "{} cases went wrong", bad.len());
    if wanted().is_some() {
        return;
    }
    assert!(failed.iter().sum::<usize>() > cases.len() / 2, "{failed:?}");
    let without = TARGETS.iter().zip(failed).filter(|(_, failed)| *failed == 0);
    let without: Vec<&Target> = without.map(|(target, _)| target).collect();
    assert!(without.is_empty() || crash_scale() == 1, "no failure of {without:?}");
}

/// Runs in which each planted fault is found.
const ATTEMPTS: u64 = 200;

/// Planted faults: a failed flush that only the thread of the inode tables knows of, as if it flushed past the journal; lost writes of
/// the writeback threads and of the journal's that no thread knows of.
#[test]
fn a_loss_in_the_background_that_is_not_reported_is_found() {
    if !extant_testing::has_threads() {
        return;
    }
    if !has_e2fsprogs() {
        return;
    }
    let ground = Ground::new();
    let mut checker = Checker::new();
    for (by, kind, manner, answer) in [
        (Who::Tables, Kind::Flush, Manner::Once, Answer::HiddenFrom(Who::Tables)),
        (Who::Writeback, Kind::Write, Manner::Unsaid, Answer::AtOnce),
        (Who::Journal, Kind::Write, Manner::Unsaid, Answer::AtOnce),
    ] {
        let is_such = |target: &&Target| target.by == Some(by) && target.kind == kind;
        let target = *TARGETS.iter().find(is_such).expect("a target");
        let found = (0..ATTEMPTS).find_map(|seed| {
            let failure = Failure { target, index: Some(seed % 8), manner, answer };
            let case = ground.planted(failure, caches()[1 + seed as usize % 3], seed);
            quietly(|| case.judge(&mut checker)).err().map(|what| (seed, what))
        });
        println!("{target:?}: {found:?}");
        assert!(found.is_some(), "{target:?}, {manner:?}: not found in {ATTEMPTS} runs");
    }
}
