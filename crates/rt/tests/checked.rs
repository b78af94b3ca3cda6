//! The runtime of shuttle's schedules: that it finds what it is for.
//!
//! Run by `RUSTFLAGS='--cfg extant_rt="shuttle"' cargo test -p extant-rt --test checked --target-dir target/shuttle`.
#![cfg(extant_rt = "shuttle")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use extant_rt::{
    Arc, AtomicU64, Biased, Condvar, Exploration, Inner, LockClass, Mutex, OnceLock, Ordering, Rank, RwLock,
    explore, parallel, spawn, thread_slot, yield_now,
};

/// The schedules that fail go to one directory for the process.
fn plan() -> Exploration {
    let failures = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("checked.{}", std::process::id()));
    std::fs::create_dir_all(&failures).expect("a directory");
    Exploration { schedules: 300, seed: 1, failures, replay: None }
}

/// The message of the failure that the exploration finds.
fn failure(exploration: &Exploration, body: impl Fn(u64) + Send + Sync + 'static) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(|| explore(exploration, body))).err()?;
    Some(match panic.downcast_ref::<String>() {
        Some(text) => text.clone(),
        None => (*panic.downcast_ref::<&str>().expect("text")).to_owned(),
    })
}

fn lost_update(seed: u64) {
    let number = AtomicU64::new(0);
    parallel(2, |_| {
        let found = number.load(Ordering::SeqCst);
        number.store(found + 1, Ordering::SeqCst);
    });
    assert_eq!(number.load(Ordering::SeqCst), 2, "an update is lost, random number {seed}");
}

#[test]
fn a_lost_update_is_found_and_its_schedule_replayed() {
    let plan = plan();
    let found = failure(&plan, lost_update).expect("a race");
    assert!(found.contains("an update is lost"), "{found}");
    let schedules: Vec<_> = std::fs::read_dir(&plan.failures).expect("a directory").collect();
    // Other tests fail there too; the random number is in the text.
    let same = schedules.into_iter().filter_map(Result::ok).filter(|schedule| {
        let replay = Exploration { replay: Some(schedule.path()), ..plan.clone() };
        failure(&replay, lost_update).is_some_and(|again| again == found)
    });
    assert!(same.count() > 0, "the race is not found again");
}

#[test]
fn what_is_right_passes() {
    explore(&plan(), |_| {
        let (number, slots) = (AtomicU64::new(0), Mutex::new(LockClass::GROUP, Vec::new()));
        parallel(3, |_| {
            number.fetch_add(1, Ordering::Relaxed);
            slots.lock().push(thread_slot());
        });
        assert_eq!(number.into_inner(), 3);
        let mut slots = slots.into_inner();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), 3, "threads have slots of their own");
    });
}

#[test]
fn a_value_is_made_once() {
    explore(&plan(), |_| {
        let (made, once) = (AtomicU64::new(0), OnceLock::new());
        let got = parallel(3, |_| *once.get_or_init(|| made.fetch_add(1, Ordering::Relaxed)));
        assert_eq!((got, once.set(9)), (vec![0; 3], Err(9)));
    });
}

#[test]
fn a_missed_notification_is_a_deadlock() {
    let body = |_| {
        let both = Arc::new((Mutex::new(LockClass::JOURNAL, false), Condvar::new()));
        let other = Arc::clone(&both);
        let thread = spawn("waker", move || {
            *other.0.lock() = true;
            other.1.notify_all();
        });
        // Looked at before the lock is taken to wait.
        if !*both.0.lock() {
            drop(both.1.wait(both.0.lock()));
        }
        thread.expect("a thread").join().expect("its end");
    };
    let found = failure(&plan(), body).expect("a deadlock");
    assert!(found.starts_with("deadlock!"), "{found}");
}

#[test]
fn the_order_of_locks_is_each_threads_own() {
    explore(&plan(), |_| {
        let (outer, inner) = (RwLock::new(LockClass::INODE, 0), Mutex::new(LockClass::GROUP, 0));
        parallel(3, |index| match index {
            0 => *outer.write() += 1,
            1 => *inner.lock() += 1,
            _ => {
                let _handle = Rank::enter(LockClass::HANDLE, 0);
                drop(inner.lock());
            }
        });
        assert_eq!((outer.into_inner(), inner.into_inner()), (1, 1));
    });
    if cfg!(debug_assertions) {
        let found = failure(&plan(), |_| {
            let (outer, inner) = (Mutex::new(LockClass::INODE, ()), Mutex::new(LockClass::GROUP, ()));
            let _inner = inner.lock();
            drop(outer.lock());
        });
        assert_eq!(found.as_deref(), Some("lock order: INODE 0 taken while GROUP 0 is held"));
    }
}

#[test]
fn a_biased_lock_keeps_writers_from_readers() {
    explore(&plan(), |_| readers_beside_writers::<RwLock<()>>());
    explore(&plan(), |_| readers_beside_writers::<Mutex<()>>());
}

fn readers_beside_writers<L: Inner + Send + Sync>() {
    fn change(both: &mut [u32; 2]) {
        both[0] += 1;
        yield_now();
        both[1] += 1;
    }
    let lock: Biased<_, L> = Biased::new(LockClass::INODE, [0; 2]);
    parallel(4, |index| {
        for _ in 0..4 {
            match index {
                0 => change(&mut lock.write()),
                1 => {
                    if let Some(mut both) = lock.try_write() {
                        change(&mut both);
                    }
                }
                _ => {
                    let both = lock.read();
                    let before = *both;
                    (0..3).for_each(|_| yield_now());
                    assert!(before[0] == before[1] && *both == before, "a reader beside a writer");
                }
            }
        }
    });
    let [first, second] = lock.into_inner();
    assert_eq!(first, second);
}
