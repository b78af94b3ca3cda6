//! Orders of visiting groups, compared on a disk of 600 TB whose groups are made from a seed on demand.
//!
//! A group has one of [`SAMPLES`] bitmaps, chosen by its number, so that the allocator of the whole disk fits into memory
//! and only the groups that it touches have bitmaps there. What a read costs is added to the time measured.
//! Leaves out: threads, the journal, the writing of what is stored. docs/linear-or-ordered.md has the question and the answer.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use extant_alloc::{
    Allocator, BoxError, GroupStore, Purpose, Request, Reservation, Run, Sample, Scan, Setup, StreamGoals,
    Tuning,
};
use extant_ondisk::{
    FsBlock, Geometry, GroupDescriptor, GroupNumber, IncompatFeatures, InodeNumber, RoCompatFeatures,
    Superblock, bitmap,
};

use crate::Result;
use crate::random::mix;

mod plot;

/// 600 TB in groups of 32768 blocks of 4 KiB.
const GROUPS: u32 = 4_900_000;
const GROUP_BLOCKS: u32 = 32_768;
/// Blocks at the start of a group that are the file system's own.
const SYSTEM_BLOCKS: u32 = 32;
/// Of these, what a superblock and descriptors may take.
const SUPER_BLOCKS: u32 = 2;
/// Inodes of the table in the rest.
const INODES: u32 = (SYSTEM_BLOCKS - SUPER_BLOCKS - 2) * 16;
const SAMPLES: usize = 1024;
const FULL: [u32; 7] = [0, 60, 80, 90, 95, 98, 99];
/// Blocks of a run of free ones on average.
const RUNS: [u32; 3] = [2, 16, 256];
/// Blocks of a request: 8 KiB, 64 KiB, 1 MiB.
const LENS: [u32; 3] = [2, 16, 256];
const SCANS: [(Scan, &str); 5] = [
    (Scan::Linear, "linear"),
    (Scan::ListHead, "list head"),
    (Scan::Ordered, "ordered"),
    (Scan::Nearest, "nearest"),
    (Scan::Auto, "auto"),
];
/// Requests of a measurement, and how many of them a stream makes.
const REQUESTS: usize = 256;
const STREAM_REQUESTS: usize = 64;
/// A measurement ends early after so many bitmaps or so long.
const READS_MAX: usize = 1024;
const TIME_MAX: Duration = Duration::from_millis(150);

/// Which sample a group is.
fn sample_of(group: GroupNumber) -> usize {
    mix(u64::from(group.0)) as usize % SAMPLES
}

/// The bitmap of a group with about so many free blocks in runs of about `run`.
fn bits(free: u32, run: u32, seed: u64) -> Box<[u8]> {
    let usable = GROUP_BLOCKS - SYSTEM_BLOCKS;
    let mut bits = vec![0; GROUP_BLOCKS as usize / 8].into_boxed_slice();
    if free >= usable {
        bitmap::set_range(&mut bits, 0..SYSTEM_BLOCKS);
        return bits;
    }
    bitmap::set_range(&mut bits, 0..GROUP_BLOCKS);
    let (mut at, mut left, mut step) = (SYSTEM_BLOCKS, free, seed);
    let mut below = |end: u32| {
        step += 1;
        (mix(step) % u64::from(end.max(1))) as u32
    };
    while left > 0 && at < GROUP_BLOCKS {
        let len = (1 + below(2 * run - 1)).min(left);
        // What is in use is dealt out evenly over the runs to come; one block at least lies between two.
        let used = GROUP_BLOCKS - at - left.min(GROUP_BLOCKS - at);
        let gap = (f64::from(used) * f64::from(run) / f64::from(left.max(run))) as u32;
        at += 1 + below(2 * gap);
        let end = (at + len).min(GROUP_BLOCKS);
        if at < end {
            bitmap::clear_range(&mut bits, at..end);
        }
        left -= len;
        at = end;
    }
    bits
}

/// The bitmaps of a disk so full. A group's free share is a power of a uniform number: most groups of a full disk are
/// full, some half, few empty.
fn samples(full: u32, run: u32) -> Vec<Box<[u8]>> {
    let exponent = f64::from(full) / f64::from(100 - full);
    let sample = |index: usize| {
        let share = ((index as f64 + 0.5) / SAMPLES as f64).powf(exponent);
        bits((share * f64::from(GROUP_BLOCKS - SYSTEM_BLOCKS)) as u32, run, mix(index as u64) >> 1)
    };
    (0..SAMPLES).map(sample).collect()
}

/// The groups' bitmaps, and which were asked for since the last measurement.
#[derive(Default)]
struct Groups {
    samples: Vec<Box<[u8]>>,
    read: Vec<GroupNumber>,
}

#[derive(Clone, Default)]
struct Store(Arc<Mutex<Groups>>);

impl Store {
    fn with<T>(&self, act: impl FnOnce(&mut Groups) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a search is broken off with that would read without end.
struct TooManyReads;

impl GroupStore for Store {
    fn load_descriptors(&self, first: GroupNumber, count: u32) -> Result<Vec<GroupDescriptor>, BoxError> {
        let free = |group| {
            self.with(|groups| bitmap::count_zeros(&groups.samples[sample_of(group)], 0..GROUP_BLOCKS))
        };
        (first.0..first.0 + count).map(GroupNumber).map(|group| descriptor(group, free(group))).collect()
    }

    fn load_block_bitmap(&self, group: GroupNumber, _: &GroupDescriptor) -> Result<Box<[u8]>, BoxError> {
        let bits = self.with(|groups| {
            groups.read.push(group);
            (groups.read.len() <= READS_MAX).then(|| groups.samples[sample_of(group)].clone())
        });
        Ok(bits.unwrap_or_else(|| std::panic::resume_unwind(Box::new(TooManyReads))))
    }

    fn load_inode_bitmap(&self, _: GroupNumber, _: &GroupDescriptor) -> Result<Box<[u8]>, BoxError> {
        Err("no inodes here".into())
    }
}

fn allocator(store: &Store) -> Result<Allocator> {
    let mut superblock = Superblock::new_zeroed();
    superblock.set_s_rev_level(1);
    superblock.set_s_log_block_size(2);
    superblock.set_s_inode_size(256);
    superblock.set_s_first_ino(11);
    superblock.set_s_blocks_per_group(GROUP_BLOCKS);
    superblock.set_s_clusters_per_group(GROUP_BLOCKS);
    superblock.set_s_log_cluster_size(2);
    superblock.set_s_inodes_per_group(INODES);
    superblock.set_s_log_groups_per_flex(4);
    superblock.set_s_desc_size(64);
    superblock.set_incompat(IncompatFeatures::FLEX_BG | IncompatFeatures::META_BG | IncompatFeatures::BIT64);
    superblock.set_ro_compat(RoCompatFeatures::SPARSE_SUPER);
    superblock.set_blocks_count(u64::from(GROUPS) * u64::from(GROUP_BLOCKS));
    superblock.set_s_inodes_count(GROUPS.saturating_mul(INODES));
    let geometry = Geometry::new(&superblock)?;
    let tuning = Tuning { stream_goals: StreamGoals::Off, ..Tuning::default() };
    let free_blocks = u64::from(GROUPS) * u64::from(GROUP_BLOCKS - SYSTEM_BLOCKS);
    let setup = Setup { free_blocks, tuning, ..Setup::default() };
    Ok(Allocator::new(geometry, &setup, Box::new(store.clone())))
}

/// Of a group whose own blocks are its first ones.
fn descriptor(group: GroupNumber, free_blocks: u32) -> Result<GroupDescriptor> {
    let own = |place: u32| FsBlock(u64::from(group.0) * u64::from(GROUP_BLOCKS) + u64::from(place));
    let mut descriptor = GroupDescriptor::new(64)?;
    descriptor.set_block_bitmap(own(SUPER_BLOCKS));
    descriptor.set_inode_bitmap(own(SUPER_BLOCKS + 1));
    descriptor.set_inode_table(own(SUPER_BLOCKS + 2));
    descriptor.set_free_blocks_count(free_blocks);
    Ok(descriptor)
}

/// Where requests want to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    /// Each at the start of some group.
    Random,
    /// Streams that begin at some group; each request goes on where the one before ended.
    Stream,
}

/// What a measurement gave.
#[derive(Clone, Default)]
struct Figures {
    runs: Vec<Run>,
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

struct Study {
    alloc: Allocator,
    store: Store,
    samples: Vec<Sample>,
}

impl Study {
    fn set_state(&mut self, is_known: bool) -> Result<()> {
        for group in (0..GROUPS).map(GroupNumber) {
            self.alloc.assume(group, &self.samples[sample_of(group)], is_known)?;
        }
        Ok(())
    }

    /// Makes the requests, then puts everything back. `replay` are the runs to be asked for instead.
    fn measure(
        &mut self,
        scan: Scan,
        load: Load,
        len: u32,
        replay: &[Run],
        is_known: bool,
    ) -> Result<Figures> {
        self.alloc.set_scan(scan);
        let requests = if replay.is_empty() { REQUESTS } else { replay.len() };
        let figures = {
            let mut reservation = self.alloc.reserve(u64::from(len) * REQUESTS as u64 * 8, true)?;
            let before = self.alloc.statistics();
            let mut figures = self.pass(&mut reservation, (load, len, replay), requests, true);
            let after = self.alloc.statistics();
            let considered = |of: &extant_alloc::MballocStatistics| of.considered.iter().sum::<u64>();
            figures.considered = (considered(&after) - considered(&before)) as f64;
            figures.reads = self.store.with(|groups| groups.read.len()) as f64;
            if is_known {
                // Again with the bitmaps in memory, the quickest of a few.
                figures.reads = 0.0;
                for _ in 0..3 {
                    figures.runs.iter().for_each(|run| self.alloc.give_back(*run));
                    let again = self.pass(&mut reservation, (load, len, replay), figures.runs.len(), false);
                    figures.nanoseconds = figures.nanoseconds.min(again.nanoseconds);
                    figures.runs = again.runs;
                }
            }
            figures.runs.iter().for_each(|run| self.alloc.give_back(*run));
            figures
        };
        for group in self.store.with(|groups| std::mem::take(&mut groups.read)) {
            self.alloc.assume(group, &self.samples[sample_of(group)], is_known)?;
        }
        Ok(figures)
    }

    /// Makes so many requests; those of a first pass, whose number is not known to be bearable, until the time is up.
    fn pass(
        &self,
        reservation: &mut Reservation<'_>,
        (load, len, replay): (Load, u32, &[Run]),
        requests: usize,
        is_first: bool,
    ) -> Figures {
        let mut figures = Figures { runs: Vec::with_capacity(requests), ..Figures::default() };
        let purpose = match load {
            Load::Random => Purpose::Data,
            Load::Stream => Purpose::Stream(InodeNumber(12)),
        };
        let start = Instant::now();
        for index in 0..requests {
            let (goal, len, purpose) = match (replay.get(index), figures.runs.last()) {
                (Some(run), _) => (run.start, run.len, Purpose::Data),
                (None, Some(last)) if load == Load::Stream && index % STREAM_REQUESTS != 0 => {
                    (FsBlock(last.start.0 + u64::from(last.len)), len, purpose)
                }
                _ => {
                    let group = mix(index as u64) % u64::from(GROUPS);
                    (FsBlock(group * u64::from(GROUP_BLOCKS)), len, purpose)
                }
            };
            let request = Request { goal, len, least: 1, purpose };
            let take = std::panic::AssertUnwindSafe(|| self.alloc.take(reservation, &request));
            match std::panic::catch_unwind(take) {
                Ok(Ok(run)) => figures.runs.push(run),
                _ => {
                    figures.endless = true;
                    break;
                }
            }
            if is_first && start.elapsed() > TIME_MAX {
                break;
            }
        }
        figures.nanoseconds = start.elapsed().as_nanos() as f64;
        figures
    }
}

/// One policy at one point.
struct Row {
    full: u32,
    run: u32,
    len: u32,
    load: Load,
    is_known: bool,
    policy: &'static str,
    figures: Figures,
    /// Throughput beside the oracle's, by [`COSTS`].
    of_oracle: [f64; COSTS.len()],
}

/// What a block and a read cost, in nanoseconds: allocation alone; with data written at 5 GB/s; with bitmaps read from an
/// array of flash, and from disks.
const COSTS: [(f64, f64); 4] = [(0.0, 0.0), (4096.0 / 5.0, 0.0), (0.0, 100e3), (0.0, 5e6)];
/// The costs that matter when bitmaps are in memory, and when none is.
const WARM: [usize; 2] = [0, 1];
const COLD: [usize; 2] = [2, 3];

/// See [`crate::What::ScanPolicies`].
pub fn compare(csv: &Path, plot: Option<&Path>) -> Result<()> {
    let store = Store::default();
    let mut study = Study { alloc: allocator(&store)?, store, samples: Vec::new() };
    let mut rows = Vec::new();
    for full in FULL {
        // An empty disk has no fragments.
        let runs = if full == 0 { &RUNS[..1] } else { &RUNS };
        for run in runs {
            study.state(full, *run, &mut rows)?;
        }
    }
    write_csv(csv, &rows)?;
    print_table(&rows);
    match plot {
        Some(plot) => plot::draw(plot, &rows),
        None => Ok(()),
    }
}

impl Study {
    /// All loads and policies on a disk so full, with free space in such runs.
    fn state(&mut self, full: u32, run: u32, rows: &mut Vec<Row>) -> Result<()> {
        let samples = samples(full, run);
        self.samples = samples.iter().map(|bits| Sample::new(self.alloc.geometry(), bits)).collect();
        self.store.with(|groups| groups.samples = samples);
        let points: Vec<_> =
            LENS.iter().flat_map(|len| [(*len, Load::Random), (*len, Load::Stream)]).collect();
        let mut right = Vec::new();
        for is_known in [true, false] {
            self.set_state(is_known)?;
            for (point, &(len, load)) in points.iter().enumerate() {
                if is_known {
                    right.push(self.measure(Scan::Nearest, load, len, &[], true)?.runs);
                }
                let oracle = self.measure(Scan::Nearest, load, len, &right[point], is_known)?;
                let mut row = |policy, figures: Figures| {
                    let of_oracle = COSTS.map(|cost| figures.rate(cost) / oracle.rate(cost));
                    rows.push(Row { full, run, len, load, is_known, policy, figures, of_oracle });
                };
                row("oracle", oracle.clone());
                for (scan, name) in SCANS {
                    row(name, self.measure(scan, load, len, &[], is_known)?);
                }
            }
        }
        Ok(())
    }
}

fn write_csv(path: &Path, rows: &[Row]) -> Result<()> {
    let mut out = String::from(
        "full_percent,run_blocks,len_blocks,load,bitmaps,policy,requests,broken_off,considered,reads,cpu_ns,blocks,\
         of_oracle,of_oracle_with_data,of_oracle_100us,of_oracle_5ms\n",
    );
    for Row {
        full,
        run,
        len,
        load,
        is_known,
        policy,
        figures,
        of_oracle: [alone, with_data, flash, disks],
    } in rows
    {
        let load = if *load == Load::Random { "random" } else { "stream" };
        let bitmaps = if *is_known { "memory" } else { "cold" };
        let [considered, reads, cpu, blocks] =
            [figures.considered, figures.reads, figures.nanoseconds, figures.blocks()]
                .map(|sum| figures.per_run(sum));
        writeln!(
            out,
            "{full},{run},{len},{load},{bitmaps},{policy},{},{},{considered:.2},{reads:.3},{cpu:.0},{blocks:.1},\
             {alone:.3},{with_data:.3},{flash:.3},{disks:.3}",
            figures.runs.len(),
            figures.endless
        )?;
    }
    Ok(std::fs::write(path, out)?)
}

/// The middle and the least of some figures.
fn middle_and_least(mut figures: Vec<f64>) -> (f64, f64) {
    figures.sort_by(f64::total_cmp);
    let at = |index: usize| figures.get(index).copied().unwrap_or(f64::NAN);
    (at(figures.len() / 2), at(0))
}

fn print_table(rows: &[Row]) {
    println!(
        "{:>5} {:<7} {:<10} {:>10} {:>12} {:>7} {:>7} | throughput of the oracle's: median, least",
        "full", "bitmaps", "policy", "broken off", "considered", "reads", "ns"
    );
    for (is_known, costs, names) in [(true, WARM, ["alone", "5 GB/s"]), (false, COLD, ["100 us", "5 ms"])] {
        for full in FULL {
            for (_, policy) in SCANS {
                let of: Vec<&Row> = rows
                    .iter()
                    .filter(|row| row.full == full && row.is_known == is_known && row.policy == policy)
                    .collect();
                let done = of.iter().filter(|row| !row.figures.endless);
                let median = |figure: fn(&Figures) -> f64| {
                    middle_and_least(
                        done.clone().map(|row| row.figures.per_run(figure(&row.figures))).collect(),
                    )
                    .0
                };
                print!(
                    "{full:>4}% {:<7} {policy:<10} {:>7}/{:<2} {:>12.2} {:>7.3} {:>7.0} |",
                    if is_known { "memory" } else { "cold" },
                    of.len() - done.clone().count(),
                    of.len(),
                    median(|figures| figures.considered),
                    median(|figures| figures.reads),
                    median(|figures| figures.nanoseconds),
                );
                for (cost, name) in costs.into_iter().zip(names) {
                    let (middle, least) =
                        middle_and_least(of.iter().map(|row| row.of_oracle[cost]).collect());
                    print!(" {name} {middle:.2} {least:.2}");
                }
                println!();
            }
        }
    }
    verdict(rows);
}

/// Whether the default is what was wanted of it.
fn verdict(rows: &[Row]) {
    let auto = |row: &&Row| row.policy == "auto";
    for (name, is_known, cost) in [
        ("in memory, allocation alone", true, 0),
        ("in memory, data at 5 GB/s", true, 1),
        ("cold, 100 us", false, 2),
        ("cold, 5 ms", false, 3),
    ] {
        let all: Vec<&Row> = rows.iter().filter(auto).filter(|row| row.is_known == is_known).collect();
        let is_near_best = |row: &&&Row| {
            let rivals = rows.iter().filter(|other| {
                (other.full, other.run, other.len, other.load, other.is_known)
                    == (row.full, row.run, row.len, row.load, is_known)
                    && other.policy != "oracle"
            });
            let best = rivals.map(|other| other.of_oracle[cost]).fold(0.0, f64::max);
            row.of_oracle[cost] >= 0.95 * best
        };
        let at_95: Vec<&&Row> = all.iter().filter(|row| row.full == 95).collect();
        println!(
            "auto, {name}: within 5% of the best policy at {} of {} points; at 95% full at least 95% of the oracle at {} of {}",
            all.iter().filter(is_near_best).count(),
            all.len(),
            at_95.iter().filter(|row| row.of_oracle[cost] >= 0.95).count(),
            at_95.len()
        );
    }
    let at_99 = rows.iter().filter(auto).filter(|row| row.full == 99);
    let most = at_99.map(|row| row.figures.per_run(row.figures.considered)).fold(0.0, f64::max);
    println!("auto, 99% full: at most {most:.2} groups considered per allocation at any point");
}
