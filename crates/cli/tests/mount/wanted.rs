//! Requests get on while others want the CPUs: the server's idle reader yields to all other threads, and must not while
//! it has a request.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::common::{Disk, EXTANT, assert_clean, can_mount, is_root, run};

/// The longest time of any operation, however many threads want the CPUs.
const LATENCY_MAX: Duration = Duration::from_millis(50);
/// Times that the CPUs are wanted, and for how long; as long again they are not.
const ROUNDS: u32 = 12;
const ROUND: Duration = Duration::from_millis(250);
/// Threads on each CPU that do nothing but run.
const HOGS: usize = 2;

/// Measurements while the CPUs were contended, or while they were free.
#[derive(Default)]
struct Seen {
    operations: u32,
    worst: Duration,
}

/// Creates, writes and unlinks files until it is stopped; what was measured with the CPUs free, and with the CPUs
/// contended.
fn work(dir: &Path, wanted: &AtomicBool, ends: &AtomicBool) -> [Seen; 2] {
    let mut seen = [Seen::default(), Seen::default()];
    let timed = |seen: &mut [Seen; 2], operation: &mut dyn FnMut()| {
        let (start, is_wanted) = (Instant::now(), wanted.load(Ordering::Relaxed));
        operation();
        let seen = &mut seen[usize::from(is_wanted || wanted.load(Ordering::Relaxed))];
        seen.operations += 1;
        seen.worst = seen.worst.max(start.elapsed());
    };
    for number in 0_u32.. {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        let path = dir.join((number % 1000).to_string());
        let mut file = None;
        timed(&mut seen, &mut || file = Some(File::create(&path).expect("create")));
        let file = file.as_mut().expect("a file");
        timed(&mut seen, &mut || file.write_all(&[1; 2048]).expect("write"));
        if number % 3 == 0 {
            timed(&mut seen, &mut || fs::remove_file(&path).expect("unlink"));
        }
    }
    seen
}

/// Spins on one CPU, repeatedly, as long as `wanted` is set.
fn hog(cpu: usize, wanted: &AtomicBool, ends: &AtomicBool) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).expect("affinity");
    while !ends.load(Ordering::Relaxed) {
        if !wanted.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Times all on a mount of a server that is started by `before`.
fn measure(before: &[&str]) -> [Seen; 2] {
    let disk = Disk::new("1G");
    let (image, point) = (disk.image.to_str().expect("path"), disk.point.to_str().expect("path"));
    let words = [before, &[EXTANT, "mount", image, point]].concat();
    assert!(Command::new(words[0]).args(&words[1..]).status().expect("mount").success(), "{words:?}");
    let (wanted, ends) = (AtomicBool::new(false), AtomicBool::new(false));
    let (wanted, ends) = (&wanted, &ends);
    let cpus = sched_getaffinity(None).expect("affinity");
    let seen = std::thread::scope(|scope| {
        for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| cpus.is_set(*cpu)) {
            for _ in 0..HOGS {
                scope.spawn(move || hog(cpu, wanted, ends));
            }
        }
        let client = scope.spawn(|| work(&disk.point, wanted, ends));
        for _ in 0..ROUNDS {
            for is_wanted in [false, true] {
                wanted.store(is_wanted, Ordering::Relaxed);
                std::thread::sleep(ROUND);
            }
        }
        ends.store(true, Ordering::Relaxed);
        client.join().expect("client")
    });
    run(&["umount", point]);
    assert_clean(&disk.image);
    seen
}

#[test]
#[ignore = "needs a machine with nothing else to do; make test-scale"]
fn no_operation_waits_long_when_cpus_are_wanted() {
    if !can_mount() {
        return;
    }
    let mut servers: Vec<&[&str]> = vec![&[]];
    if is_root() {
        // Without this capability a thread that lowered its priority cannot raise it again, as with an ordinary user.
        servers.push(&["setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice"]);
    }
    for before in servers {
        let [free, wanted] = measure(before);
        for (what, seen) in [("free", &free), ("wanted", &wanted)] {
            let rate = f64::from(seen.operations) / (ROUND * ROUNDS).as_secs_f64();
            println!("{before:?}, CPUs {what}: {rate:.0} operations/s, at most {:?}", seen.worst);
        }
        assert!(wanted.worst <= LATENCY_MAX, "{:?}", wanted.worst);
    }
}
