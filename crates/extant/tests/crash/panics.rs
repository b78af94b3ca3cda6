//! A panic where an operation takes a lock, at each lock in turn.
//!
//! The thread panics just before it takes the lock; the caller catches that. Of each run: what follows works or gives an error; a sync
//! that succeeds afterwards has made durable all that is seen, and an unmount that succeeds has left a clean disk; nothing hangs; the
//! disk recovers to the tree before the operation or after it, can be written to, and is clean by `e2fsck -fn`.
//!
//! Locks are counted in debug builds only. One in [`STRIDE`] by default, all with `EXTANT_CRASH_SCALE` above 1.

use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use extant_block::MemoryDevice;
use extant_rt::{Arc, lock_panics};
use extant_testing::{crash_scale, has_e2fsprogs};

use crate::disk::{Checker, KINDS};
use crate::explore::{Base, History, recover, tree_as_is};
use crate::generate::alphabet;
use crate::op::Op;
use crate::random::hash;
use crate::sequences::pages;
use crate::session::{Pages, Session};
use crate::tree;

/// One case takes less on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// By default one in so many locks of an operation.
const STRIDE: u64 = 23;
/// Disks that `e2fsck` looks at.
const CHECKED_ONE_IN: u64 = 8;
/// The name of the thread that panics.
const WORKER: &str = "panics";

/// The current run.
static AT: Mutex<String> = Mutex::new(String::new());

/// The last panic, and where.
static LAST: Mutex<String> = Mutex::new(String::new());

/// An operation on a disk, and the lock at which it panics.
#[derive(Clone, Copy)]
struct Case<'b> {
    base: &'b Base,
    op: Op,
    pages: Pages,
    lock: u64,
}

/// The result of a run.
enum Ran {
    /// The operation took fewer locks.
    ToItsEnd,
    Panicked,
}

impl Case<'_> {
    fn run(&self, checker: &mut Checker, is_checked: bool) -> Result<Ran, String> {
        let device = Arc::new(self.base.image.snapshot());
        let mut session = Session::mount(device.clone(), self.pages).map_err(|e| format!("mount: {e}"))?;
        let mut model = self.base.model.clone();
        let first = Op::Chmod { path: "d", mode: 0o751 };
        session.run(first, &model).map_err(|e| format!("{first:?}: {e}"))?;
        model.apply(first).map_err(|_| "the model refuses chmod")?;
        session.fs().sync().map_err(|e| format!("sync: {e}"))?;
        model.apply(Op::Sync).map_err(|_| "the model refuses a sync")?;
        let done = 2;

        lock_panics::arm(self.lock);
        let did = catch_unwind(AssertUnwindSafe(|| session.run(self.op, &model)));
        if !lock_panics::disarm() {
            return Ok(Ran::ToItsEnd);
        }
        // A panic that a drop has passed on after the work was done shows as one, or as none.
        let _ = did;
        let _ = model.apply(self.op);
        let mut synced = None;
        if session.is_mounted() {
            // Both may fail; neither may hang, or succeed after a half.
            let made = session.fs().create_dir("made afterwards");
            if session.fs().sync().is_ok() {
                synced = Some(tree::read(session.fs())?);
            } else if made.is_ok() && session.fs().create_dir("made after that").is_ok() {
                return Err("writing goes on after a sync that failed".to_owned());
            }
            let is_unmounted = session.unmount().is_ok();
            if is_unmounted && synced.is_none() {
                return Err("what writes no more is unmounted cleanly".to_owned());
            }
        }
        self.judge(&device, model, done, synced, is_checked.then_some(checker))?;
        Ok(Ran::Panicked)
    }

    fn judge(
        &self,
        image: &MemoryDevice,
        model: crate::model::Model,
        done: usize,
        synced: Option<tree::Entry>,
        checker: Option<&mut Checker>,
    ) -> Result<(), String> {
        let tree = tree_as_is(image)?;
        match synced {
            Some(synced) => {
                if let Some(what) = synced.difference(&tree) {
                    return Err(format!("not as the last sync left it: {what}"));
                }
            }
            None => {
                let is_delayed = self.pages.bytes > 0;
                History { dir: None, model, mark: 0, is_delayed }.check(&tree, done, is_delayed)?;
            }
        }
        let recovered = recover(image, &tree)?;
        if let Some(checker) = checker {
            checker.check(recovered.device.inner()).map_err(|what| format!("recovered: {what}"))?;
        }
        Ok(())
    }
}

/// Each operation of the alphabet twice, without a page cache and with one, on a disk that follows from the number.
fn panic_everywhere(stride: u64) -> Result<u64, String> {
    let bases: Vec<Base> = KINDS.into_iter().map(Base::new).collect();
    let mut checker = Checker::new();
    let mut panics = 0;
    let mut bad = Vec::new();
    let count = alphabet(1024).len() as u64;
    let wanted = wanted();
    for number in (0..2 * count).filter(|number| wanted.is_none_or(|wanted| wanted == *number)) {
        let base = &bases[hash(&[number]) as usize % bases.len()];
        let op = alphabet(base.kind.block_size)[(number / 2) as usize];
        let pages = if number.is_multiple_of(2) { Pages::default() } else { pages(number / 2) };
        for lock in (hash(&[number, 1]) % stride..).step_by(stride as usize) {
            let name =
                format!("EXTANT_PANIC={number}: disk {}, {pages:?}, {op:?}, lock {lock}", base.kind.name);
            (*AT.lock().expect("a case")).clone_from(&name);
            let case = Case { base, op, pages, lock };
            let is_checked = hash(&[number, lock]).is_multiple_of(CHECKED_ONE_IN);
            let ran = catch_unwind(AssertUnwindSafe(|| case.run(&mut checker, is_checked)));
            let ran = ran.unwrap_or_else(|_| {
                let _ = lock_panics::disarm();
                Err(format!("it panics afterwards: {}", LAST.lock().expect("a panic")))
            });
            match ran {
                Ok(Ran::ToItsEnd) => break,
                Ok(Ran::Panicked) => panics += 1,
                Err(what) => bad.push(format!("{name}: {what}")),
            }
        }
    }
    if bad.is_empty() { Ok(panics) } else { Err(bad.join("\n")) }
}

/// `EXTANT_PANIC=NUMBER`, as a failing test prints it, runs that operation alone, at each of its locks.
fn wanted() -> Option<u64> {
    env::var("EXTANT_PANIC").ok()?.parse().ok()
}

#[test]
fn a_panic_at_any_lock_leaves_no_half_operation_and_nothing_waits_for_it() {
    if !extant_testing::has_threads() {
        return;
    }
    if !has_e2fsprogs() {
        return;
    }
    let (sender, receiver) = mpsc::channel();
    let is_all = crash_scale() > 1 || wanted().is_some();
    let stride = if is_all { 1 } else { STRIDE };
    // The panics would fill the output.
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if thread::current().name() == Some(WORKER) {
            *LAST.lock().expect("a panic") = info.to_string();
        } else {
            before(info);
        }
    }));
    let worker = thread::Builder::new().name(WORKER.to_owned());
    worker.spawn(move || sender.send(panic_everywhere(stride))).expect("a thread");
    let panics = loop {
        let at = AT.lock().expect("a case").clone();
        match receiver.recv_timeout(PATIENCE) {
            Ok(done) => break done.unwrap_or_else(|bad| panic!("{bad}")),
            Err(RecvTimeoutError::Timeout) => {
                assert_ne!(at, *AT.lock().expect("a case"), "it hangs, or takes {PATIENCE:?}");
            }
            Err(RecvTimeoutError::Disconnected) => panic!("the thread ended"),
        }
    };
    println!("panics at locks: {panics}, none of which left a half");
    assert!(panics > if wanted().is_some() { 0 } else { 100 }, "{panics} panics");
}
