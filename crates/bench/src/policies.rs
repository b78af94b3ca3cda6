//! Orders of visiting groups, compared on a disk of 600 TB whose groups are made from a seed on demand.
//!
//! A group has one of some bitmaps, chosen by its number, so that the allocator of the whole disk fits into memory
//! and only the groups that it touches have bitmaps there. What a read costs is added to the time measured, which is the thread's
//! own on the CPU. At each point all contenders take turns, and the default takes part twice: what lies between these two is what
//! the measurement cannot tell apart.
//! Leaves out: threads, the journal, the writing of what is stored. docs/results/linear-or-ordered.md has the question and the answer.

use std::path::Path;

use extant_alloc::{
    Allocator, BitmapSummary, ClusterRun, MayUse, Purpose, Request, Reservation, Scan, Tuning,
};
use extant_ondisk::{Cluster, GroupNumber, InodeNumber};
use rustix::time::{ClockId, clock_gettime};

use crate::Result;
use extant_loads::{ladder, mix};

mod disk;
mod oracle;
mod plot;
mod report;

use self::disk::{GROUP_BLOCKS, GROUPS, Store, sample_of};
use self::oracle::Oracle;
use self::report::Row;

const FULL: [u32; 7] = [0, 60, 80, 90, 95, 98, 99];
/// Blocks of a run of free ones on average.
const RUNS: [u32; 3] = [2, 16, 256];
/// Blocks of a request: 8 KiB, 64 KiB, 1 MiB.
const LENS: [u32; 3] = [2, 16, 256];
const SCANS: [(Scan, &str); 5] = [
    (Scan::Linear, "linear"),
    (Scan::Ordered, LIST_HEAD),
    (Scan::Ordered, "ordered"),
    (Scan::Nearest, "nearest"),
    (Scan::NearestFit, "nearest-fit"),
];
const LIST_HEAD: &str = "list head";
/// Requests of a measurement, and how many of them a stream makes.
const REQUESTS: usize = 256;
const STREAM_REQUESTS: usize = 64;
/// Nanoseconds after which a contender makes no further requests, and after which it takes no further turns.
const FIRST_PASS_MAX: f64 = 150e6;
const TURNS_MAX: f64 = 60e6;
/// Turns of each contender, with bitmaps in memory and cold: an even number, half of them in each direction. The quickest counts.
const TURNS: [usize; 2] = [8, 4];

/// Where requests want to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Each at the start of some group.
    Random,
    /// Streams that begin at some group; each request goes on where the one before ended.
    Stream,
}

/// What a contender did.
#[derive(Clone, Default)]
struct Figures {
    runs: Vec<ClusterRun>,
    /// Broken off: reads and time are what one search had cost by then.
    endless: bool,
    considered: f64,
    reads: f64,
    nanoseconds: f64,
}

impl Figures {
    fn blocks(&self) -> f64 {
        self.runs.iter().map(|run| u64::from(run.len)).sum::<u64>() as f64
    }

    /// Blocks per nanosecond, with what blocks and reads cost.
    fn rate(&self, (block, read): (f64, f64)) -> f64 {
        self.blocks() / (self.nanoseconds + self.blocks() * block + self.reads * read)
    }

    fn per_run(&self, sum: f64) -> f64 {
        sum / self.runs.len().max(1) as f64
    }
}

/// What a block and a read cost, in nanoseconds: data written at 5 GB/s, and allocation alone; with bitmaps read from an
/// array of flash, and from disks.
const COSTS: [(f64, f64); 4] = [(4096.0 / 5.0, 0.0), (0.0, 0.0), (0.0, 100e3), (0.0, 5e6)];
/// The costs that matter when bitmaps are in memory, and when none is.
const WARM: [usize; 2] = [0, 1];
const COLD: [usize; 2] = [2, 3];

/// See [`crate::What::ScanPolicies`].
pub fn compare(seed: u64, csv: &Path, plot: Option<&Path>) -> Result<()> {
    // Before 3 GiB are filled.
    ladder::require(LIST_HEAD)?;
    let seed = if seed == 0 { 0 } else { mix(seed) };
    let store = Store::new(seed);
    let alloc = disk::allocator(&store)?;
    let mut study = Study { seed, tuning: *alloc.tuning(), alloc, store, samples: Vec::new() };
    let mut rows = Vec::new();
    for full in FULL {
        // An empty disk has no fragments.
        let runs = if full == 0 { &RUNS[..1] } else { &RUNS };
        for run in runs {
            study.state(full, *run, &mut rows)?;
        }
    }
    report::write_csv(csv, &rows)?;
    report::print_table(&rows);
    match plot {
        Some(plot) => plot::draw(plot, &rows),
        None => Ok(()),
    }
}

/// The requests of a point.
struct Requests<'a> {
    load: Load,
    len: u32,
    /// What the oracle named for each.
    named: &'a [ClusterRun],
}

/// Who answers the requests.
struct Contender {
    name: &'static str,
    tuning: Tuning,
    /// It asks for what the oracle named.
    is_oracle: bool,
    figures: Figures,
    turns: f64,
}

struct Study {
    seed: u64,
    tuning: Tuning,
    alloc: Allocator,
    store: Store,
    samples: Vec<BitmapSummary>,
}

impl Study {
    /// All loads and contenders on a disk so full, with free space in such runs.
    fn state(&mut self, full: u32, run: u32, rows: &mut Vec<Row>) -> Result<()> {
        let samples = disk::samples(self.seed, full, run);
        self.samples = samples.iter().map(|bits| BitmapSummary::new(self.alloc.geometry(), bits)).collect();
        let mut oracle = Oracle::new(self.seed, &samples);
        self.store.with(|groups| groups.samples = samples);
        for is_known in [true, false] {
            for group in (0..GROUPS).map(GroupNumber) {
                self.forget(group, is_known)?;
            }
            for len in LENS {
                for load in [Load::Random, Load::Stream] {
                    let named = self.named(&mut oracle, load, len)?;
                    let contenders = self.point(&Requests { load, len, named: &named }, is_known)?;
                    let oracle = contenders.iter().find(|contender| contender.is_oracle);
                    let best = COSTS.map(|cost| oracle.map_or(f64::NAN, |oracle| oracle.figures.rate(cost)));
                    rows.extend(contenders.into_iter().map(|Contender { name: policy, figures, .. }| {
                        let of_oracle = std::array::from_fn(|cost| figures.rate(COSTS[cost]) / best[cost]);
                        Row { full, run, len, load, is_known, policy, figures, of_oracle }
                    }));
                }
            }
        }
        Ok(())
    }

    /// What the oracle names for the requests of a point.
    fn named(&self, oracle: &mut Oracle, load: Load, len: u32) -> Result<Vec<ClusterRun>> {
        oracle.reset();
        let mut named = Vec::new();
        for index in 0..REQUESTS {
            let goal = self.goal(load, index, named.last());
            named.push(oracle.name(goal, len).ok_or("the oracle finds nothing")?);
        }
        Ok(named)
    }

    fn goal(&self, load: Load, index: usize, last: Option<&ClusterRun>) -> Cluster {
        match last {
            Some(last) if load == Load::Stream && !index.is_multiple_of(STREAM_REQUESTS) => {
                Cluster(last.start.0 + u64::from(last.len))
            }
            _ => {
                let group = mix(self.seed ^ index as u64) % u64::from(GROUPS);
                Cluster(group * u64::from(GROUP_BLOCKS))
            }
        }
    }

    /// All contenders, in turns.
    fn point(&mut self, requests: &Requests<'_>, is_known: bool) -> Result<Vec<Contender>> {
        let policies = SCANS.into_iter().chain([(Scan::NearestFit, report::AGAIN)]);
        let all = std::iter::once((Scan::Nearest, report::ORACLE)).chain(policies);
        let mut contenders: Vec<Contender> = all
            .map(|(scan, name)| {
                let is_oracle = name == report::ORACLE;
                let tuning = self.tuning_of(scan, name)?;
                Ok(Contender { name, tuning, is_oracle, figures: Figures::default(), turns: 0.0 })
            })
            .collect::<Result<_>>()?;
        for turn in 0..TURNS[usize::from(!is_known)] {
            // Forwards and backwards: whoever comes after its like finds its lines in the caches.
            if turn > 1 {
                contenders.reverse();
            }
            for contender in &mut contenders {
                if turn == 0 {
                    contender.figures = self.turn(contender, requests, is_known)?;
                    contender.turns = contender.figures.nanoseconds;
                    continue;
                }
                if contender.figures.endless || contender.turns > TURNS_MAX {
                    continue;
                }
                // The first turn read what it needs; the next are of bitmaps in memory, where they stay.
                let again = self.turn(contender, requests, is_known)?;
                let figures = &mut contender.figures;
                figures.nanoseconds = figures.nanoseconds.min(again.nanoseconds);
                contender.turns += again.nanoseconds;
            }
        }
        for contender in contenders.iter_mut().filter(|_| is_known) {
            contender.figures.reads = 0.0;
        }
        for group in self.store.with(|groups| std::mem::take(&mut groups.read)) {
            self.forget(group, is_known)?;
        }
        Ok(contenders)
    }

    fn tuning_of(&self, scan: Scan, name: &str) -> Result<Tuning> {
        let tuning = Tuning { scan, ..self.tuning };
        Ok(if name == LIST_HEAD { ladder::with_list_head(tuning)? } else { tuning })
    }

    /// Answers the requests, then puts everything back but bitmaps that are taken to be in memory.
    fn turn(&mut self, contender: &Contender, requests: &Requests<'_>, is_known: bool) -> Result<Figures> {
        self.alloc.set_tuning(contender.tuning);
        let before = self.alloc.statistics();
        let read = self.store.with(|groups| groups.read.len());
        let mut figures = {
            let mut reservation =
                self.alloc.reserve(u64::from(requests.len) * REQUESTS as u64 * 8, MayUse::RootBlocks)?;
            let mut figures = Figures::default();
            // Lines that the others drove out of the caches are not part of what is measured.
            let is_warm = is_known && contender.turns > 0.0;
            for _ in 0..1 + usize::from(is_warm) {
                figures.runs.iter().for_each(|run| self.alloc.free_unmarked(*run));
                figures = self.pass(&mut reservation, contender, requests)?;
            }
            figures.runs.iter().for_each(|run| self.alloc.free_unmarked(*run));
            figures
        };
        let after = self.alloc.statistics();
        figures.considered =
            (after.considered.iter().sum::<u64>() - before.considered.iter().sum::<u64>()) as f64;
        figures.reads = (self.store.with(|groups| groups.read.len()) - read) as f64;
        if !is_known {
            for group in self.store.with(|groups| std::mem::take(&mut groups.read)) {
                self.forget(group, false)?;
            }
        }
        Ok(figures)
    }

    fn pass(
        &self,
        reservation: &mut Reservation<'_>,
        contender: &Contender,
        requests: &Requests<'_>,
    ) -> Result<Figures> {
        let purpose = match requests.load {
            Load::Random => Purpose::Data,
            Load::Stream => Purpose::Stream(InodeNumber(12)),
        };
        let is_first = contender.turns == 0.0;
        let count = if is_first { REQUESTS } else { contender.figures.runs.len() };
        let mut figures = Figures { runs: Vec::with_capacity(count), ..Figures::default() };
        let start = cpu_ns();
        for index in 0..count {
            let request = if contender.is_oracle {
                let run = requests.named[index];
                Request { goal: run.start, len: run.len, least: run.len, ahead: 0, purpose: Purpose::Data }
            } else {
                let goal = self.goal(requests.load, index, figures.runs.last());
                Request { goal, len: requests.len, least: 1, ahead: 0, purpose }
            };
            let take = std::panic::AssertUnwindSafe(|| self.alloc.allocate(reservation, &request));
            match std::panic::catch_unwind(take) {
                Ok(Ok(run)) => figures.runs.push(run),
                _ => {
                    figures.endless = true;
                    break;
                }
            }
            if is_first && cpu_ns() - start > FIRST_PASS_MAX {
                break;
            }
        }
        figures.nanoseconds = cpu_ns() - start;
        let named = requests.named.get(..figures.runs.len());
        if contender.is_oracle && named != Some(&figures.runs) {
            return Err("the oracle named blocks that cannot be had".into());
        }
        Ok(figures)
    }

    /// Puts a group back to one whose bitmap is not in memory.
    fn forget(&mut self, group: GroupNumber, is_known: bool) -> Result<()> {
        Ok(self.alloc.assume(group, &self.samples[sample_of(self.seed, group)], is_known)?)
    }
}

/// Nanoseconds that this thread was on a CPU.
fn cpu_ns() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}
