//! The virtual runtime against times computed by hand.
//!
//! Run by `RUSTFLAGS='--cfg extant_rt="virtual"' cargo test -p extant-rt --target-dir target/virtual`.
#![cfg(extant_rt = "virtual")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc as Shared;
use std::time::Duration;

use extant_rt::{
    AtomicU64, Condvar, Costs, LockClass, Machine, Monotonic, Mutex, OnceLock, Ordering, Report, RwLock,
    WallClock, available_parallelism, parallel, sleep, spawn, work, yield_now,
};

const MACHINE: Machine = Machine { costs: Costs { lock_ns: 10, unlock_ns: 5, handoff_ns: 50, atomic_ns: 7 } };

fn ns(count: u64) -> Duration {
    Duration::from_nanos(count)
}

fn now() -> u64 {
    WallClock::System.now().1.into()
}

/// Runs the same task on each of `cpus` CPUs, with its number.
fn on(cpus: usize, task: impl Fn(usize) + 'static) -> Report {
    let task = Shared::new(task);
    let tasks = (0..cpus).map(|cpu| {
        let task = Shared::clone(&task);
        Box::new(move || task(cpu)) as Box<dyn FnOnce()>
    });
    MACHINE.run(tasks.collect())
}

/// Two CPUs do 100 ns of work, 1000 under one lock, and 100 again, twice. Returns the order of the holders with
/// the times at which they got the lock.
fn two_on_one_lock() -> (Report, Vec<(usize, u64)>) {
    let lock = Shared::new(Mutex::new(LockClass::GROUP, Vec::new()));
    let report = on(2, {
        let lock = Shared::clone(&lock);
        move |cpu| {
            for _ in 0..2 {
                work(ns(100));
                let mut order = lock.lock();
                order.push((cpu, now()));
                work(ns(1000));
                drop(order);
                work(ns(100));
            }
        }
    });
    let order = std::mem::take(&mut *lock.lock());
    (report, order)
}

#[test]
fn contended_lock_takes_the_time_computed_by_hand_in_the_order_of_arrival() {
    let (report, order) = two_on_one_lock();
    // CPU 0: work to 100, lock to 110, work to 1110, unlock to 1115, hand-off to CPU 1 at 1165.
    // CPU 0: work to 1215 and 1315, waits. CPU 1: work to 2165, unlock to 2170, hand-off to CPU 0 at 2220.
    // CPU 1: work to 2270 and 2370, waits. CPU 0: work to 3220, unlock to 3225, hand-off to CPU 1 at 3275; ends
    // at 3325. CPU 1: work to 4275, unlock to 4280; ends at 4380.
    assert_eq!(order, [(0, 110), (1, 1165), (0, 2220), (1, 3275)]);
    assert_eq!(report.cpus_ns, [3325, 4380]);
    assert_eq!(report.total_ns(), 4380);
    // Waits: CPU 1 from 100 to 1165, CPU 0 from 1315 to 2220, CPU 1 from 2370 to 3275.
    let group = report.locks["GROUP"];
    assert_eq!((group.acquired, group.contended, group.waited_ns), (4, 3, 1065 + 905 + 905));
}

#[test]
fn two_runs_are_the_same() {
    assert_eq!(two_on_one_lock(), two_on_one_lock());
}

#[test]
fn locks_apart_do_not_wait() {
    let locks = Shared::new([0, 1].map(|key| Mutex::with_key(LockClass::GROUP, key, ())));
    let report = on(2, move |cpu| {
        let _guard = locks[cpu].lock();
        work(ns(1000));
    });
    assert_eq!(report.cpus_ns, [1015, 1015]);
    assert_eq!(report.locks["GROUP"].contended, 0);
}

#[test]
fn three_waiters_get_the_lock_in_the_order_they_came() {
    let order = Shared::new(Mutex::new(LockClass::GROUP, Vec::new()));
    on(4, {
        let order = Shared::clone(&order);
        move |cpu| {
            // CPU 3 comes first, then 2, 1, 0.
            work(ns(100 * (4 - cpu as u64)));
            order.lock().push(cpu);
            let mut guard = order.lock();
            guard.push(10 + cpu);
            work(ns(10_000));
        }
    });
    let order = order.lock();
    let second: Vec<_> = order.iter().filter(|cpu| **cpu >= 10).collect();
    assert_eq!(second, [&13, &12, &11, &10], "{order:?}");
}

#[test]
fn readers_share_and_a_writer_waits_for_all_of_them() {
    let lock = Shared::new(RwLock::new(LockClass::INODE, ()));
    let report = on(3, move |cpu| {
        if cpu < 2 {
            let _shared = lock.read();
            work(ns(1000));
        } else {
            work(ns(100));
            let _alone = lock.write();
            work(ns(1000));
        }
    });
    // Both readers unlock from 1010 to 1015; the second lets the writer go on at 1065.
    assert_eq!(report.cpus_ns, [1015, 1015, 2070]);
    assert_eq!(report.locks["INODE"].waited_ns, 965);
}

#[test]
fn failed_try_lock_costs_one_access_and_does_not_wait() {
    let lock = Shared::new(Mutex::new(LockClass::GROUP, ()));
    let report = on(2, move |cpu| {
        if cpu == 0 {
            let _guard = lock.lock();
            work(ns(1000));
        } else {
            work(ns(500));
            assert!(lock.try_lock().is_none());
            work(ns(1000));
            assert!(lock.try_lock().is_some());
        }
    });
    assert_eq!(report.cpus_ns, [1015, 500 + 7 + 1000 + 7 + 5]);
    assert_eq!(report.locks["GROUP"].contended, 0);
}

#[test]
fn atomics_are_seen_in_the_order_of_time() {
    let counter = Shared::new(AtomicU64::new(0));
    let report = on(2, move |cpu| {
        // CPU 0 looks at 10 ns and at 30 ns, CPU 1 writes at 20 ns.
        if cpu == 0 {
            work(ns(10));
            assert_eq!(counter.load(Ordering::Relaxed), 0);
            work(ns(13));
            assert_eq!(counter.fetch_add(1, Ordering::Relaxed), 5);
        } else {
            work(ns(20));
            counter.store(5, Ordering::Relaxed);
        }
    });
    assert_eq!(report.cpus_ns, [37, 27]);
}

#[test]
fn notification_wakes_and_a_timeout_ends_a_wait() {
    let shared = Shared::new((Mutex::new(LockClass::JOURNAL, false), Condvar::new()));
    let report = on(2, move |cpu| {
        let (lock, changed) = &*shared;
        if cpu == 0 {
            let mut ready = lock.lock();
            while !*ready {
                ready = changed.wait(ready);
            }
            // Notified at 1022, woken at 1072, and the lock is free: 1082.
            assert_eq!(now(), 1082);
            let _ready = changed.wait_timeout(ready, ns(10_000));
            assert_eq!(now(), 1082 + 10_000 + 10);
        } else {
            work(ns(1000));
            *lock.lock() = true;
            changed.notify_one();
        }
    });
    // Lock to 1010, unlock to 1015, notification to 1022.
    assert_eq!(report.cpus_ns, [11_092 + 5, 1022]);
}

#[test]
fn spawned_threads_begin_when_they_are_spawned_and_can_be_waited_for() {
    let report = on(1, |_| {
        assert_eq!(available_parallelism(), 1);
        work(ns(500));
        let thread = spawn("worker", || work(ns(300))).expect("spawn");
        assert!(!thread.is_finished());
        thread.join().expect("join");
        assert!(Monotonic::now().elapsed().is_zero());
        let squares = parallel(3, |index| {
            sleep(ns(100));
            index * index
        });
        assert_eq!(squares, [0, 1, 4]);
    });
    assert_eq!(report.cpus_ns[1], 800);
    assert_eq!(report.cpus_ns.len(), 5);
}

#[test]
fn value_is_made_once_however_many_come() {
    let value = Shared::new(OnceLock::new());
    let lock = Shared::new(Mutex::new(LockClass::GROUP, ()));
    on(3, move |cpu| {
        let made = value.get_or_init(|| {
            // A scheduling point in the middle: the others come now.
            drop(lock.lock());
            work(ns(1000));
            cpu
        });
        assert_eq!(*made, 0);
    });
}

/// Runs CPUs of which some never end, and returns the panic's message.
fn failure(task: impl Fn(usize) + 'static) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| on(2, task))).expect_err("the simulation fails");
    panic
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
        .expect("text")
}

/// Waits for what never comes, with a lock held.
fn wait_for_ever() {
    let (held, given_up) = (Mutex::new(LockClass::INODE, ()), Mutex::new(LockClass::GROUP, ()));
    let _held = held.lock();
    let _guard = Condvar::new().wait(given_up.lock());
}

#[test]
fn deadlock_is_reported_and_a_panic_ends_the_simulation_alone() {
    let message = failure(|cpu| {
        if cpu == 1 {
            wait_for_ever()
        }
    });
    assert_eq!(message, "deadlock: the virtual CPUs [1] wait for each other");
    let message = failure(|cpu| {
        if cpu == 1 {
            wait_for_ever();
        }
        work(ns(1000));
        yield_now();
        panic!("on purpose");
    });
    assert_eq!(message, "on purpose");
    let (report, _) = two_on_one_lock();
    assert_eq!(report.total_ns(), 4380, "the next simulation is not touched");
}

#[test]
fn outside_a_simulation_the_types_work_on_threads_of_the_host() {
    let total = Mutex::new(LockClass::GROUP, 0);
    let sums = parallel(4, |index| {
        for _ in 0..1000 {
            *total.lock() += index;
        }
        index
    });
    assert_eq!(sums, [0, 1, 2, 3]);
    assert_eq!(*total.lock(), 6000);
}

#[cfg(debug_assertions)]
#[test]
fn order_of_locks_is_checked_for_each_cpu_by_itself() {
    let locks = Shared::new([Mutex::new(LockClass::GROUP, ()), Mutex::new(LockClass::INODE, ())]);
    // CPU 0 holds the inner lock while CPU 1 takes the outer one: no breach.
    let apart = Shared::clone(&locks);
    on(2, move |cpu| {
        let _guard = apart[cpu].lock();
        work(ns(100));
    });
    let result = catch_unwind(AssertUnwindSafe(|| {
        on(1, move |_| {
            let _inner = locks[0].lock();
            let _outer = locks[1].lock();
        })
    }));
    assert!(result.is_err());
}
