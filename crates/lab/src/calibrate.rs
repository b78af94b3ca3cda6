//! A machine like this host: what a line's way between two of its CPUs takes, what atomics cost, and what steps of loads compute.
//!
//! Measured with the host's own threads and clock; the host should be idle. What steps compute comes from a file of
//! measurements, less what the lab charges for their atomics and lines.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;
use std::hint::black_box;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use extant::Tuning;
use extant_loads::{APPEND_BYTES, FILE_BYTES, Load, cacheline_latency};
use rustix::io::Errno;
use rustix::thread::CpuSet;

use crate::machine::Model;
use crate::measured::{self, Measured};
use crate::run::{self, Setup};

/// Changes, and wake-ups, of one measurement, and measurements, of which the quickest counts: others were disturbed.
const CHANGES: u64 = 20_000;
/// See [`CHANGES`].
const WAKES: u64 = 500;
const ROUNDS: usize = 15;
/// Where the kernel says which CPUs share what; a level for each, from near to far.
const SHARED: [&str; 3] =
    ["cache/index2/shared_cpu_list", "cache/index3/shared_cpu_list", "topology/package_cpus_list"];
/// What a file's truncation computes is not measured by itself.
const TRUNCATE_NS: f64 = 2000.0;
/// A load that counts one step, or two alike, and the steps.
const STEPS: [(Load, &[&str]); 4] = [
    (Load::CreateUnlink, &["create", "unlink"]),
    (Load::Stat, &["stat"]),
    (Load::Fallocate2, &["append"]),
    (Load::Overwrite, &["write"]),
];

/// CPUs that share something, as seen from the first one, and one of them that shares nothing nearer.
struct Level {
    cpus: usize,
    other: usize,
}

/// The machine as a file.
///
/// # Errors
/// If the host has one CPU; those of the file of measurements.
pub fn calibrate(measured: Option<&Path>) -> Result<String, Box<dyn Error>> {
    let allowed = cacheline_latency::cpus()?;
    let [first, _, ..] = allowed[..] else {
        return Err("one CPU may be used: a line has no way to measure".into());
    };
    let mut text = String::from(
        "# This host, measured. A line's way is half of a round between two CPUs, from the nearest to the farthest.\nlevel = [\n",
    );
    for level in levels(first, &allowed) {
        let ns = least(|| cacheline_latency::line([first, level.other]));
        let _ = writeln!(text, "    {{ cpus = {}, transfer_ns = {ns:.0} }},", level.cpus);
    }
    let (change, wake) = (least(|| Ok(change_own())), least(|| wake(first, allowed[1])));
    let _ = write!(
        text,
        "]\n\n# Of a line of one's own, and of a thread of another CPU. That a lock changes hands by two ways is assumed.\n\
         [costs]\nread_ns = 1\nwrite_ns = {:.0}\nwake_ns = {wake:.0}\nhand_over_transfers = 2\n",
        change.max(1.0)
    );
    let steps = |ns: &dyn Fn(&str) -> f64| {
        let all = ["create", "unlink", "stat", "append", "truncate", "write"];
        all.iter().fold("[steps]\n".to_owned(), |text, step| text + &format!("{step} = {:.0}\n", ns(step)))
    };
    let Some(measured) = measured else {
        let source = Model::source("kunpeng920")?;
        let steps = source.find("[steps]").map_or("", |at| &source[at..]);
        let _ = write!(text, "\n# Not measured: as the built-in machine has them. See --measured.\n{steps}");
        return Ok(text);
    };
    let rows: Vec<Measured> = measured::read(measured)?;
    let free = Rc::new(Model::parse(&format!("{text}\n{}", steps(&|_| 0.0)))?);
    let mut computed = Vec::new();
    for (load, names) in STEPS {
        let row = rows.iter().find(|row| row.is(load, "extant", 1));
        let row = row.ok_or_else(|| {
            format!("{}: {} with one thread was not measured", measured.display(), load.title())
        })?;
        let truncation =
            if load == Load::Fallocate2 { TRUNCATE_NS * appends_per_file().recip() } else { 0.0 };
        let ns = (1e9 / row.median - charge_ns(load, &free)? - truncation).max(0.0);
        computed.extend(names.iter().map(|name| (*name, ns)));
    }
    computed.push(("truncate", TRUNCATE_NS));
    let of = |step: &str| computed.iter().find(|(name, _)| *name == step).map_or(0.0, |(_, ns)| *ns);
    let _ = write!(
        text,
        "\n# One thread's time for each operation, less what the lab charges for its atomics and lines. Truncation is assumed.\n{}",
        steps(&of)
    );
    Ok(text)
}

fn appends_per_file() -> f64 {
    (FILE_BYTES / APPEND_BYTES) as f64
}

/// What the lab charges for the atomics and lines of an operation on one CPU.
fn charge_ns(load: Load, free: &Rc<Model>) -> Result<f64, Box<dyn Error>> {
    let setup = Setup::new(load, 1, Tuning::default(), Duration::from_millis(1));
    Ok(1e9 / run::run(setup, free)?.per_second)
}

fn levels(first: usize, allowed: &[usize]) -> Vec<Level> {
    let all: BTreeSet<usize> = allowed.iter().copied().collect();
    let shared = SHARED.iter().map(|what| {
        let list = std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{first}/{what}"));
        list.map(|list| cpus(&list)).unwrap_or_default()
    });
    let mut near = BTreeSet::from([first]);
    let mut levels = Vec::new();
    for group in shared.chain([all.clone()]) {
        let group: BTreeSet<usize> = group.intersection(&all).copied().chain(near.iter().copied()).collect();
        if let Some(other) = group.difference(&near).next() {
            levels.push(Level { cpus: group.len(), other: *other });
            near = group;
        }
    }
    levels
}

/// The numbers of a list as the kernel writes it, as `0-3,8`.
fn cpus(list: &str) -> BTreeSet<usize> {
    let ranges = list.trim().split(',').filter_map(|range| {
        let (from, to) = range.split_once('-').unwrap_or((range, range));
        Some(from.parse().ok()?..=to.parse::<usize>().ok()?.min(CpuSet::MAX_CPU))
    });
    ranges.flatten().collect()
}

/// The least of several measurements, in nanoseconds; what could not be measured takes none.
fn least(measure: impl Fn() -> Result<f64, Errno>) -> f64 {
    cacheline_latency::least(ROUNDS, measure).unwrap_or_default()
}

/// Nanoseconds of an atomic change of a line of one's own.
fn change_own() -> f64 {
    let line = AtomicU64::new(0);
    let begin = Instant::now();
    for _ in 0..CHANGES {
        black_box(&line).fetch_add(1, Ordering::Relaxed);
    }
    begin.elapsed().as_nanos() as f64 / CHANGES as f64
}

/// Nanoseconds until a thread goes on that waited for another, on another CPU.
fn wake(one: usize, other: usize) -> Result<f64, Errno> {
    let (turn, changed) = (Mutex::new(0), Condvar::new());
    cacheline_latency::one_way([one, other], WAKES, |numbers| {
        for number in numbers {
            let mut turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            while *turn != number {
                turn = changed.wait(turn).unwrap_or_else(PoisonError::into_inner);
            }
            *turn = number + 1;
            changed.notify_one();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read_as_the_kernel_writes_them() {
        assert_eq!(cpus("0-3,8\n"), BTreeSet::from([0, 1, 2, 3, 8]));
        assert_eq!(cpus("\n"), BTreeSet::new());
        assert_eq!(cpus("2-x,1,9999999-99999999999999999999"), BTreeSet::from([1]));
    }

    #[test]
    fn a_level_has_one_of_its_cpus_that_no_nearer_one_has() {
        for level in levels(0, &[0, 1]) {
            assert_eq!((level.cpus, level.other), (2, 1));
        }
    }
}
