//! The virtual runtime against times computed by hand.
//!
//! Run by `RUSTFLAGS='--cfg extant_rt="virtual"' cargo test -p extant-rt --target-dir target/virtual`.
#![cfg(extant_rt = "virtual")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc as Shared;
use std::time::Duration;

use extant_rt::{
    AtomicU64, Behind, Condvar, Costs, Level, LockClass, Machine, Monotonic, Mutex, OnceLock, Ordering,
    Padded, Report, RwLock, Topology, WallClock, available_parallelism, checksummed, copied, count_anew,
    parallel, sleep, spawn, thread_slot, work, yield_now,
};

/// A transfer between any two CPUs takes 25 ns, a lock handed over two of them.
fn machine() -> Machine {
    let topology = Topology::new(&[Level { cpus: 1, transfer_ns: 25 }]);
    Machine {
        costs: Costs {
            read_ns: 3,
            write_ns: 10,
            wake_ns: 50,
            copy_bytes_per_us: 4000,
            checksum_ns_per_kib: 400,
            hand_over_transfers: 2,
        },
        topology,
        ..Machine::default()
    }
}

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
    machine().run(tasks.collect())
}

/// Two CPUs do 100 ns of work, 1000 under one lock, and 100 again, twice. Returns the order of the holders with
/// the times at which they got the lock.
fn two_on_one_lock() -> (Report, Vec<(usize, u64)>) {
    let lock = Mutex::new(LockClass::GROUP, ());
    let order = Shared::new(std::sync::Mutex::new(Vec::new()));
    let report = on(2, {
        let order = Shared::clone(&order);
        move |cpu| {
            for _ in 0..2 {
                work(ns(100));
                let held = lock.lock();
                order.lock().expect("not poisoned").push((cpu, now()));
                work(ns(1000));
                drop(held);
                work(ns(100));
            }
        }
    });
    let order = std::mem::take(&mut *order.lock().expect("not poisoned"));
    (report, order)
}

#[test]
fn contended_lock_takes_the_time_computed_by_hand_in_the_order_of_arrival() {
    let (report, order) = two_on_one_lock();
    // CPU 0: work to 100, lock to 110, work to 1110. CPU 1 comes at 100 and has the lock's line from 125 on, so that
    // CPU 0 unlocks to 1145; hand-over to CPU 1 at 1195. CPU 0: work to 1245 and 1345, waits.
    // CPU 1: work to 2195, unlock to 2230; hand-over at 2280. CPU 1: work to 2330 and 2430, waits.
    // CPU 0: work to 3280, unlock to 3315; hand-over at 3365; ends at 3415. CPU 1: work to 4365, unlock to 4400.
    assert_eq!(order, [(0, 110), (1, 1195), (0, 2280), (1, 3365)]);
    assert_eq!(report.cpus_ns, [3415, 4500]);
    assert_eq!(report.total_ns(), 4500);
    // Waits: CPU 1 from 100 to 1195, CPU 0 from 1345 to 2280, CPU 1 from 2430 to 3365.
    let group = report.locks["GROUP"];
    assert_eq!((group.acquired, group.contended, group.waited_ns), (4, 3, 1095 + 935 + 935));
}

#[test]
fn two_runs_are_the_same() {
    assert_eq!(two_on_one_lock(), two_on_one_lock());
}

#[test]
fn locks_apart_do_not_wait() {
    let locks = Shared::new([0, 1].map(|key| Padded(Mutex::with_key(LockClass::GROUP, key, ()))));
    let report = on(2, move |cpu| {
        let _guard = locks[cpu].lock();
        work(ns(1000));
    });
    assert_eq!(report.cpus_ns, [1020, 1020]);
    assert_eq!(report.locks["GROUP"].contended, 0);
}

#[test]
fn a_small_value_comes_with_the_line_of_its_lock() {
    let lock = Shared::new(Padded(Mutex::new(LockClass::GROUP, 7_u64)));
    let report = on(2, move |cpu| {
        work(ns(1000 * cpu as u64));
        assert_eq!(*lock.lock(), 7);
    });
    // CPU 1 waits for one transfer of 25 ns.
    assert_eq!(report.cpus_ns, [20, 1045]);
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
    // The readers change the lock's line one after the other, to 10 and to 35. The writer takes it at 100, the readers
    // take it back to unlock, to 1045 and to 1070; the second lets the writer go on at 1120.
    assert_eq!(report.cpus_ns, [1045, 1070, 2155]);
    assert_eq!(report.locks["INODE"].waited_ns, 1020);
}

#[test]
fn failed_try_lock_reads_the_line_and_does_not_wait() {
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
    // The CPU that tried the lock has the line too, and loses it when the holder unlocks.
    assert_eq!(report.cpus_ns, [1010 + 25 + 10, 500 + 25 + 3 + 1000 + 25 + 10 + 10]);
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
    // The line is CPU 0's until 20, in transfer to CPU 1 until 45, and then to CPU 0 until 70.
    assert_eq!(report.cpus_ns, [80, 55]);
}

#[test]
fn line_that_two_write_is_reported_by_its_place_also_if_they_write_different_words() {
    #[derive(Default)]
    #[repr(align(64))]
    struct OneLine([AtomicU64; 2]);

    let line = OneLine::default();
    let report = on(2, move |cpu| {
        for _ in 0..100 {
            line.0[cpu].fetch_add(1, Ordering::Relaxed);
            work(ns(1000));
        }
    });
    let (place, counts) = report.lines.first_key_value().expect("one place");
    assert_eq!(report.lines.len(), 1);
    assert!(place.file().ends_with("tests/virtual_rt.rs"), "{place}");
    // All but the first touch find the line with the other; the two touch it at the same time at first.
    assert_eq!((counts.accesses, counts.shared), (200, 199));
    assert!(counts.waited_ns >= 199 * 25, "{counts:?}");

    let padded = <[Padded<AtomicU64>; 2]>::default();
    let report = on(2, move |cpu| {
        padded[cpu].fetch_add(1, Ordering::Relaxed);
    });
    assert!(report.lines.values().all(|line| line.shared == 0));
}

#[test]
fn what_a_lock_guards_comes_with_it() {
    #[repr(align(64))]
    struct FourLines([u8; 256]);

    let guarded = Mutex::new(LockClass::GROUP, FourLines([0; 256]));
    let report = on(2, move |cpu| {
        work(ns(1000 * cpu as u64));
        let guard = guarded.lock();
        assert_eq!(guard.0[0], 0);
    });
    // Four transfers, two in the time of one, after that of the lock's own line.
    assert_eq!(report.cpus_ns, [20, 1000 + 25 + 10 + 50 + 10]);
}

#[test]
fn what_lies_behind_pointers_comes_from_who_held_the_lock_before() {
    // The value's own four lines do not count.
    let lock = Shared::new(Mutex::new(LockClass::GROUP, [0_u64; 32]));
    let other = Shared::new(Mutex::new(LockClass::BUFFER, ()));
    let tasks = (0..2).map(|cpu| {
        let (lock, other) = (Shared::clone(&lock), Shared::clone(&other));
        Box::new(move || {
            work(ns(1000 * cpu));
            drop(lock.lock());
            drop(other.lock());
            drop(lock.lock());
        }) as Box<dyn FnOnce()>
    });
    let behind = [("GROUP".to_owned(), Behind { work_ns: 100, lines: 4 })].into();
    let report = Machine { behind, ..machine() }.run(tasks.collect());
    // Each lock and unlock 10 ns; in each hold of the group's 100 ns; CPU 1 gets two locks' lines, and 4 lines two at a time.
    assert_eq!(report.cpus_ns, [60 + 200, 1000 + 60 + 200 + 2 * 25 + 4 * 25 / 2]);
}

#[test]
fn halved_classes_hand_over_and_move_lines_in_half_of_the_time() {
    let run = |halved: Option<&str>| {
        let (lock, word) =
            (Shared::new(Mutex::new(LockClass::GROUP, ())), Shared::new(Padded(AtomicU64::new(0))));
        let tasks = (0..2).map(|_| {
            let (lock, word) = (Shared::clone(&lock), Shared::clone(&word));
            Box::new(move || {
                let held = lock.lock();
                work(ns(1000));
                drop(held);
                word.fetch_add(1, Ordering::Relaxed);
            }) as Box<dyn FnOnce()>
        });
        let halved = halved.map(str::to_owned);
        Machine { halved, ..machine() }.run(tasks.collect()).total_ns()
    };
    // The first one gets the lock's line back from the waiting CPU, in a transfer of 25 ns or 12; hands it over in two; and the
    // second one gets the line back and then the word, each in one.
    let plain = run(None);
    assert_eq!(plain - run(Some("GROUP")), 13 + 25 + 13);
    assert_eq!(plain - run(Some(file!())), 13);
    assert_eq!(plain, run(Some("BUFFER")));
}

#[test]
fn counts_begin_anew_and_lines_of_locks_have_their_class() {
    let lock = Mutex::new(LockClass::GROUP, ());
    let word = AtomicU64::new(0);
    let report = on(2, move |cpu| {
        drop(lock.lock());
        word.fetch_add(1, Ordering::Relaxed);
        work(ns(1000));
        if cpu == 0 {
            // CPU 1 has done as much by then.
            count_anew();
        }
        drop(lock.lock());
    });
    assert_eq!(report.locks["GROUP"].acquired, 2);
    let [(_, of_lock)] = report.lines.iter().collect::<Vec<_>>()[..] else { panic!("{:?}", report.lines) };
    assert_eq!((of_lock.class, of_lock.accesses >= 4), (Some("GROUP"), true), "{of_lock:?}");
}

#[test]
fn copies_and_checksums_take_as_long_as_the_machine_says() {
    let report = on(1, |_| {
        copied(10_000);
        copied(2);
        checksummed(1536);
        checksummed(2);
    });
    // 4000 bytes in a microsecond and 1 KiB in 400 ns, each rounded down.
    assert_eq!(report.cpus_ns, [2500 + 600]);
}

#[test]
fn notification_wakes_and_a_timeout_ends_a_wait() {
    let lock = Padded(Mutex::new(LockClass::JOURNAL, ()));
    let (ready, changed) = (std::sync::atomic::AtomicBool::new(false), Padded(Condvar::new()));
    let report = on(2, move |cpu| {
        if cpu == 0 {
            let mut held = lock.lock();
            while !ready.load(Ordering::Relaxed) {
                held = changed.wait(held);
            }
            // Notified at 1055, woken at 1105, and the lock is free: 1140.
            assert_eq!(now(), 1140);
            let _held = changed.wait_timeout(held, ns(10_000));
            assert_eq!(now(), 1140 + 10_000 + 10);
        } else {
            work(ns(1000));
            let held = lock.lock();
            ready.store(true, Ordering::Relaxed);
            drop(held);
            changed.notify_one();
        }
    });
    // Lock to 1035, unlock to 1045, notification to 1055.
    assert_eq!(report.cpus_ns, [11_150 + 10, 1055]);
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
fn threads_have_the_cpus_of_those_that_have_ended() {
    on(1, |_| {
        for _ in 0..2 {
            assert_eq!(parallel(3, |_| thread_slot()), [1, 2, 3]);
        }
    });
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
    assert_eq!(report.total_ns(), 4500, "the next simulation is not touched");
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
