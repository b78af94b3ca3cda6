//! Loads through the library, as system calls on a mount of ours and on the neighbours, and by processes that share nothing:
//! all in turns.

pub mod machine;
mod plot;
mod report;
mod topology;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use extant::{Filesystem, Mount, Scan, Tuning};
use extant_loads::{Load, ladder};

use self::report::Row;
use crate::Result;
use crate::load::{self, Measured, Threads};
use crate::mounted::Mounted;
use crate::report::Series;
use crate::scratch::Scratch;
use crate::worker::Worker;

/// What `statfs` says of tmpfs.
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// See [`crate::What::Run`].
#[derive(Args)]
pub struct Arguments {
    /// What each thread does
    #[arg(required = true)]
    loads: Vec<Load>,
    /// Numbers of threads, each of which has a directory of its own
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    threads: Vec<usize>,
    /// Neighbours that do the same as system calls; tmpfs stands for what these cost
    #[arg(long, value_delimiter = ',', default_value = "ext4,tmpfs")]
    against: Vec<Neighbour>,
    /// Also through `extant mount`
    #[arg(long)]
    mount: bool,
    /// Also through the library on a disk with the feature fast_commit
    #[arg(long)]
    fast_commits: bool,
    /// Mebibytes of the library's page cache
    #[arg(long, default_value_t = 0)]
    page_cache: u64,
    /// How the library's allocator visits groups: nearest-fit, linear, list-head, ordered, nearest, or a policy of crates/policies;
    /// each is measured
    #[arg(long, value_delimiter = ',', default_value = "nearest-fit", value_parser = Policy::of)]
    policy: Vec<Policy>,
    /// Rounds of each target
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Milliseconds of each measurement
    #[arg(long, default_value_t = 1000)]
    milliseconds: u64,
    /// Where the images are made
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Prints an array of objects
    #[arg(long)]
    json: bool,
    /// Draws throughput over threads, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Neighbour {
    Ext4,
    Xfs,
    Fuse2fs,
    Tmpfs,
}

/// An order in which groups are visited, or a policy of crates/policies, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Policy(&'static str);

impl Policy {
    const DEFAULT: Self = Self("nearest-fit");
    const SCANS: [&str; 5] = ["nearest-fit", "linear", "list-head", "ordered", "nearest"];

    fn of(name: &str) -> std::result::Result<Self, String> {
        let mut names = Self::SCANS.into_iter().chain(extant_policies::ALL.iter().map(|(name, _)| *name));
        let all = names.clone().collect::<Vec<_>>().join(", ");
        names.find(|known| *known == name).map(Self).ok_or_else(|| format!("one of {all}"))
    }

    fn tuning(self) -> Result<Tuning> {
        let of = |scan| Tuning { scan, ..Tuning::default() };
        Ok(match self.0 {
            "nearest-fit" => Tuning::default(),
            "linear" => of(Scan::Linear),
            "list-head" => ladder::with_list_head(Tuning::default())?,
            "ordered" => of(Scan::Ordered),
            "nearest" => of(Scan::Nearest),
            own => extant_policies::tuning(own).ok_or("no such policy")?,
        })
    }
}

/// A value's name on the command line.
fn name_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Who does a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Library(Policy),
    /// The library on a disk with fast commits.
    FastCommits,
    /// A process and an image for each thread.
    Apart,
    Mount,
    Neighbour(Neighbour),
}

impl Target {
    fn name(self) -> String {
        match self {
            Self::Library(_) => "extant".to_owned(),
            Self::FastCommits => "extant-fast-commits".to_owned(),
            Self::Apart => "extant-apart".to_owned(),
            Self::Mount => "extant-mount".to_owned(),
            Self::Neighbour(neighbour) => name_of(neighbour),
        }
    }

    fn policy(self) -> Option<String> {
        match self {
            Self::Library(policy) => Some(policy.0.to_owned()),
            _ => None,
        }
    }

    /// The name, and a policy other than the default.
    fn title(self) -> String {
        match self {
            Self::Library(policy) if policy != Policy::DEFAULT => format!("{} {}", self.name(), policy.0),
            _ => self.name(),
        }
    }
}

/// Where a target works.
enum Workspace {
    Library(Filesystem),
    Apart(Vec<Worker>),
    Host(Mounted),
    Tmpfs(PathBuf),
}

impl Workspace {
    fn new(
        target: Target,
        load: Load,
        scratch: &Scratch,
        threads_max: usize,
        page_cache_bytes: u64,
    ) -> Result<Self> {
        let name = target.title();
        let (image, point) = (|| scratch.journalled_image(&format!("{name}.img")), scratch.path(&name));
        Ok(match target {
            Target::Library(policy) => {
                let mount = Mount::new().tuning(policy.tuning()?).page_cache_bytes(page_cache_bytes);
                Self::Library(mount.open(image()?)?)
            }
            Target::FastCommits => {
                let image =
                    scratch.image_with(&format!("{name}.img"), &["-O", "fast_commit", "-J", "size=1024"])?;
                Self::Library(Mount::new().page_cache_bytes(page_cache_bytes).open(image)?)
            }
            Target::Apart => {
                let start = |thread| {
                    let image = scratch.journalled_image(&format!("{name}-{thread}.img"))?;
                    load::start_worker(load, &image, page_cache_bytes)
                };
                Self::Apart((0..threads_max).map(start).collect::<Result<_>>()?)
            }
            Target::Mount => Self::Host(Mounted::extant(&image()?, &point)?),
            Target::Neighbour(Neighbour::Ext4) => Self::Host(Mounted::kernel(&image()?, &point)?),
            Target::Neighbour(Neighbour::Xfs) => {
                Self::Host(Mounted::kernel(&scratch.xfs_image(&format!("{name}.img"))?, &point)?)
            }
            Target::Neighbour(Neighbour::Fuse2fs) => Self::Host(Mounted::fuse2fs(&image()?, &point)?),
            Target::Neighbour(Neighbour::Tmpfs) => {
                std::fs::create_dir_all(&point)?;
                if rustix::fs::statfs(&point)?.f_type != TMPFS_MAGIC {
                    return Err("the images' directory is not on a tmpfs".into());
                }
                Self::Tmpfs(point)
            }
        })
    }

    fn run(&mut self, load: Load, threads: usize, time: Duration) -> Result<Measured> {
        match self {
            Self::Library(fs) => load::engine(load, fs, Threads::apart(threads), time, || Ok(fs.sync()?)),
            // Their CPU time is not this process's.
            Self::Apart(workers) => {
                let workers = workers.get_mut(..threads).ok_or("too few processes")?;
                let per_second = load::ceiling(workers, time)?;
                Ok(Measured { operations: 0, per_second, cpu_seconds: f64::NAN })
            }
            Self::Host(mounted) => load::host(load, mounted.path(), threads, time),
            Self::Tmpfs(path) => load::host(load, path, threads, time),
        }
    }

    /// What is counted in the engine, where it is in this process.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        let Self::Library(fs) = self else { return Vec::new() };
        let blocks = fs.mballoc_statistics();
        let log = fs.journal_statistics();
        vec![
            ("group_locks", blocks.locks + blocks.other_locks),
            ("groups_waited_for", blocks.waited),
            ("groups_skipped", blocks.skipped),
            ("groups_considered", blocks.considered.iter().sum()),
            ("bitmaps_read", blocks.bitmaps_read),
            ("preallocations_visited", fs.prealloc_statistics().visits),
            ("journal_blocks", log.map_or(0, |log| log.log_blocks)),
            ("home_blocks", log.map_or(0, |log| log.checkpoint_blocks)),
        ]
    }

    fn end(self) -> Result<()> {
        match self {
            Self::Library(fs) => Ok(fs.unmount()?),
            Self::Host(mounted) => mounted.end(),
            Self::Apart(_) | Self::Tmpfs(_) => Ok(()),
        }
    }
}

impl Arguments {
    fn targets(&self) -> Vec<Target> {
        let libraries = self.policy.iter().map(|policy| Target::Library(*policy));
        let neighbours = self.against.iter().map(|neighbour| Target::Neighbour(*neighbour));
        let fast = self.fast_commits.then_some(Target::FastCommits);
        let mount = self.mount.then_some(Target::Mount);
        libraries.chain(fast).chain([Target::Apart]).chain(mount).chain(neighbours).collect()
    }
}

/// See [`crate::What::Run`].
pub fn compare(arguments: &Arguments) -> Result<()> {
    let Arguments { loads, threads, rounds, milliseconds, .. } = arguments;
    if threads.contains(&0) {
        return Err("--threads: a load needs at least one thread".into());
    }
    let rounds = (*rounds).max(1);
    let job = Job {
        targets: &arguments.targets(),
        threads,
        page_cache_bytes: arguments.page_cache.checked_mul(1 << 20).ok_or("--page-cache: too many")?,
        rounds,
        time: Duration::from_millis(*milliseconds),
        dir: &arguments.dir,
    };
    let mut rows = Vec::new();
    for load in loads {
        let found = measure(*load, &job)?;
        if !arguments.json {
            println!("{}, {rounds} rounds of {milliseconds} ms, alternating", load.title());
            report::print(&found);
        }
        rows.extend(found);
    }
    if arguments.json {
        println!("{}", report::json(&rows)?);
    }
    match &arguments.plot {
        Some(path) => plot::draw(path, loads, &rows),
        None => Ok(()),
    }
}

/// What is measured of each load.
struct Job<'a> {
    targets: &'a [Target],
    threads: &'a [usize],
    page_cache_bytes: u64,
    rounds: usize,
    time: Duration,
    dir: &'a Path,
}

/// One load by all targets that there are.
fn measure(load: Load, job: &Job<'_>) -> Result<Vec<Row>> {
    let Job { targets, threads, page_cache_bytes, rounds, time, dir } = *job;
    let scratch = Scratch::new(dir)?;
    let threads_max = threads.iter().copied().max().unwrap_or(1);
    let mut places = Vec::new();
    for target in targets.iter().copied() {
        match Workspace::new(target, load, &scratch, threads_max, page_cache_bytes) {
            Ok(place) => places.push((target, place)),
            Err(error) if matches!(target, Target::Library(_) | Target::Apart) => return Err(error),
            Err(error) => eprintln!("extant-bench: {}: not measured ({error})", target.name()),
        }
    }
    let new_row = |target: Target, threads| Row {
        load,
        target,
        threads,
        per_second: Series::default(),
        cpu_seconds: Series::default(),
        operations: 0,
        counts: Vec::new(),
    };
    let mut rows: Vec<Vec<Row>> = places
        .iter()
        .map(|(target, _)| threads.iter().map(|threads| new_row(*target, *threads)).collect())
        .collect();
    for round in 0..=rounds {
        for index in 0..threads.len() {
            for ((_, place), rows) in places.iter_mut().zip(&mut rows) {
                let row = &mut rows[index];
                let before = place.counts();
                let measured = place.run(load, row.threads, time)?;
                // The first round warms caches.
                if round > 0 {
                    row.add(&measured, &before, &place.counts());
                }
            }
        }
    }
    places.into_iter().try_for_each(|(_, place)| place.end())?;
    Ok(rows.into_iter().flatten().collect())
}
