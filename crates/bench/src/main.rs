//! Measurements of the engine and of its mount beside the kernel's ext4 and other servers: one binary, one run,
//! alternating, medians with their spread.
//!
//! Images stand on /dev/shm, so that the disk is not what is measured. The kernel's side needs root and loop devices,
//! fuse2fs its package; without them they are named as missing.

mod commits;
mod conflicts;
mod disk_images;
mod freeze;
mod host;
mod instructions;
mod kernel;
mod ladder;
mod large_files;
mod layout;
mod load;
mod mdtest;
mod mount;
mod mounted;
mod nbd;
mod page_contexts;
mod pages;
mod policies;
mod preallocations;
mod read_ahead;
mod report;
mod run;
mod scale;
mod scratch;
mod worker;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use extant_loads::Load;

/// What a measurement ends with.
type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

#[derive(Parser)]
#[command(about = "Measures the engine and its mount beside the kernel's ext4 and other servers")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Loads through the library and through a mount, beside the kernel's file systems, fuse2fs and processes that share
    /// nothing.
    Run(run::Arguments),
    /// Loads on any number of this machine's CPUs, beside what the lab predicts of them; one file with all of it.
    Machine(run::machine::Arguments),
    /// Extents of files that grow beside each other, and of free space: extant beside the kernel on the same images.
    Layout {
        /// Seeds of ageing and sizes, from 1 on.
        #[arg(long, default_value_t = 5)]
        seeds: u64,
        /// Where the images are made.
        #[arg(long, default_value = "/dev/shm")]
        dir: PathBuf,
    },
    /// Empty files created, asked for and unlinked through the library, beside the kernel's ext4 and XFS.
    Mdtest {
        /// Rounds of each side.
        #[arg(long, default_value_t = 7)]
        rounds: usize,
        /// Files of each thread.
        #[arg(long, default_value_t = 30_000)]
        files: usize,
        /// Where the images are made.
        #[arg(long, default_value = "/dev/shm")]
        dir: PathBuf,
    },
    /// One process of mdtest's ceiling; started by `mdtest`.
    #[command(hide = true)]
    MdtestWorker {
        /// The image.
        image: PathBuf,
        /// Files.
        files: usize,
    },
    /// Sparse writes, random filling and small files with each form of preallocations, beside the kernel.
    Preallocations {
        /// Rounds of each side.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Writes, or files.
        #[arg(long, default_value_t = 50_000)]
        count: u64,
        /// Where the images are made.
        #[arg(long, default_value = "/dev/shm")]
        dir: PathBuf,
    },
    /// Random requests to an export of a server of network block devices, which loses its content.
    Nbd(nbd::Arguments),
    /// Small files and small writes with and without a page cache.
    Pages {
        /// Rounds of each side.
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Microseconds that each request to the device takes at least.
        #[arg(long, default_value_t = 0)]
        latency_us: u64,
        /// Where the images are made.
        #[arg(long, default_value = "/dev/shm")]
        dir: PathBuf,
    },
    /// A file that is read in order and not in memory, beside its device.
    ReadAhead {
        /// Rounds of each side.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// MiB of the file.
        #[arg(long, default_value_t = 512)]
        mib: u64,
        /// Devices of crates/block/models, whose latencies and rates are slept for; without one an image past the host's cache.
        #[arg(long, value_delimiter = ',')]
        device: Vec<String>,
        /// Where the image is made.
        #[arg(long, default_value = "/var/tmp")]
        dir: PathBuf,
    },
    /// The page cache with one writeback context beside all that there can be, four threads.
    PageContexts {
        /// Rounds of each.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Devices of crates/block/models, whose latencies and rates are slept for; without one the image by itself.
        #[arg(long, value_delimiter = ',')]
        device: Vec<String>,
        /// Where the images are made.
        #[arg(long, default_value = "/dev/shm")]
        dir: PathBuf,
    },
    /// What the time of a commit goes to while threads sync on a modelled device, which takes its time.
    Commits {
        /// Rounds of each.
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Numbers of threads, each with a directory of its own.
        #[arg(long, value_delimiter = ',', default_value = "1,4,16")]
        threads: Vec<usize>,
        /// A device of crates/block/models.
        #[arg(long, default_value = "pm9a3")]
        device: String,
        /// Of each round.
        #[arg(long, default_value_t = 500)]
        milliseconds: u64,
        /// Where the images are made.
        #[arg(long, default_value = "/dev/shm")]
        dir: PathBuf,
    },
    /// A qcow2 image beside a raw one: requests to the devices, and files through the engine.
    DiskImages {
        /// Rounds of each side.
        #[arg(long, default_value_t = 7)]
        rounds: usize,
        /// Where the images are made.
        #[arg(long, default_value = "/dev/shm")]
        dir: PathBuf,
    },
    /// Large files by one, two and four writers: the library beside the kernel's ext4 and XFS.
    LargeFiles {
        /// Rounds of each side.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Where the images are made.
        #[arg(long, default_value = "/dev/shm")]
        dir: PathBuf,
    },
    /// What a thread computes for each block that it writes into the page cache, and that it writes back.
    PageWork {
        /// Rounds.
        #[arg(long, default_value_t = 7)]
        rounds: usize,
    },
    /// The memory that a large file takes through a page cache.
    PageMemory {
        /// GiB of the file.
        #[arg(long, default_value_t = 10)]
        gib: u64,
        /// MiB of the page cache.
        #[arg(long, default_value_t = 256)]
        limit_mib: u64,
        /// Where the image is made.
        #[arg(long, default_value = "/tmp")]
        dir: PathBuf,
    },
    /// The memory of a process that changes more metadata than its cache holds, on a disk with a long log.
    LogMemory {
        /// MiB of the log.
        #[arg(long, default_value_t = 1024)]
        log_mib: u64,
        /// MiB of the cache.
        #[arg(long, default_value_t = 64)]
        cache_mib: u64,
        /// Where the image is made.
        #[arg(long, default_value = "/dev/shm")]
        dir: PathBuf,
    },
    /// The allocator's mechanisms from their oldest forms to the default, step by step, with one thread and with two.
    Ladder {
        /// Visit groups one by one until the last step, as `mb_optimize_scan=0`; else from the head of lists by order.
        #[arg(long)]
        linear: bool,
        /// Rounds of each step.
        #[arg(long, default_value_t = 7)]
        rounds: usize,
        /// Milliseconds of each measurement.
        #[arg(long, default_value_t = 150)]
        milliseconds: u64,
        /// Where the images are made.
        #[arg(long, default_value = "/dev/shm")]
        dir: PathBuf,
        /// An array of objects, of throughput alone.
        #[arg(long)]
        json: bool,
    },
    /// Files on a mount: extant beside an empty server, fuse2fs and the kernel.
    Mount {
        /// Runs of each side.
        #[arg(long, default_value_t = 5)]
        runs: usize,
        /// Where the images are made.
        #[arg(long, default_value = "/dev/shm")]
        dir: PathBuf,
    },
    /// Files created, small writes and fsyncs of several clients of a mount at once, beside servers and the kernel.
    MountClients {
        /// Rounds of each side.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// How many clients; ratios are to the first.
        #[arg(long, value_delimiter = ',', default_value = "1,2,4,16")]
        clients: Vec<usize>,
        /// Who answers.
        #[arg(long, value_delimiter = ',', default_value = "extant,empty,empty-on-image,fuse2fs,kernel")]
        sides: Vec<mount::Side>,
        /// Milliseconds of each measurement.
        #[arg(long, default_value_t = 400)]
        milliseconds: u64,
        /// Where the images are made.
        #[arg(long, default_value = "/dev/shm")]
        dir: PathBuf,
    },
    /// A client of a mount; started by `mount-clients`.
    #[command(hide = true)]
    TimedClient {
        /// Its directory, which it makes.
        dir: PathBuf,
    },
    /// The longest times of operations on a mount: while one request waits a second for a block, and while two programs keep the
    /// CPUs busy, beside an empty server and fuse2fs.
    MountLatency {
        /// Rounds of each side while programs keep the CPUs busy.
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Seconds of each measurement.
        #[arg(long, default_value_t = 5)]
        seconds: u64,
        /// Where the images are made.
        #[arg(long, default_value = "/dev/shm")]
        dir: PathBuf,
    },
    /// A server of a disk with a slow block; started by `mount-latency`.
    #[command(hide = true)]
    ServeSlow {
        /// The image.
        image: PathBuf,
        /// Where to mount it.
        point: PathBuf,
    },
    /// The empty server; started by `mount`.
    #[command(hide = true)]
    Empty {
        /// Where to mount it.
        point: PathBuf,
        /// The file for what is written; memory without.
        image: Option<PathBuf>,
    },
    /// A client of a mount; started by `mount`.
    #[command(hide = true)]
    Client {
        /// Its directory, which it makes.
        dir: PathBuf,
    },
    /// Orders of visiting groups on a disk of 600 TB, each by what it costs beside an oracle.
    ScanPolicies {
        /// From what disks and requests are made.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Where the figures go, as comma-separated values.
        #[arg(long, default_value = "scan-policies.csv")]
        csv: PathBuf,
        /// Where a plot goes, as SVG.
        #[arg(long)]
        plot: Option<PathBuf>,
    },
    /// A disk of 600 TiB: time and memory of mounting it, and the cost of an allocation by the number of groups.
    Scale {
        /// Runs of each figure.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Where the image is made: 2.2 GB.
        #[arg(long, default_value = "/dev/shm")]
        dir: PathBuf,
        /// Where a plot goes, as SVG.
        #[arg(long)]
        plot: Option<PathBuf>,
    },
    /// One mount of such a disk; started by `scale`.
    #[command(hide = true)]
    ScaleWorker {
        /// The image.
        image: PathBuf,
        /// Ends without unmounting.
        #[arg(long)]
        crash: bool,
        /// Waits until all groups are counted.
        #[arg(long)]
        count: bool,
    },
    /// How long a commit keeps new handles out, by the blocks and groups that its transaction changed.
    Freeze {
        /// Runs of each figure.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Where a plot goes, as SVG.
        #[arg(long)]
        plot: Option<PathBuf>,
    },
    /// Traces two threads with valgrind and prints the cache lines that one writes and the other touches.
    Conflicts {
        /// What each does in its own directory.
        operation: conflicts::Operation,
        /// Where the image is made.
        #[arg(long, default_value = "/dev/shm")]
        dir: PathBuf,
    },
    /// The traced process; started by `conflicts`.
    #[command(hide = true)]
    Traced {
        /// The image.
        image: PathBuf,
        /// What it does.
        operation: conflicts::Operation,
    },
    /// Counts the instructions of operations through the library with valgrind.
    Instructions {
        /// All if none is named.
        operations: Vec<instructions::Operation>,
        /// Where the image is made.
        #[arg(long, default_value = "/dev/shm")]
        dir: PathBuf,
    },
    /// The counted process; started by `instructions`.
    #[command(hide = true)]
    Counted {
        /// The image.
        image: PathBuf,
        /// What it does.
        operation: instructions::Operation,
        /// How often.
        count: u32,
    },
    /// One process of the share-nothing ceiling; started by the other measurements.
    #[command(hide = true)]
    Worker {
        /// What it does.
        load: Load,
        /// The image.
        image: PathBuf,
        /// Bytes of its page cache.
        page_cache_bytes: u64,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().what {
        What::Run(arguments) => run::compare(&arguments),
        What::Machine(arguments) => run::machine::compare(&arguments),
        What::Nbd(arguments) => nbd::measure(&arguments),
        What::Ladder { linear, rounds, milliseconds, dir, json } => {
            ladder::climb(linear, rounds.max(1), Duration::from_millis(milliseconds), &dir, json)
        }
        What::Worker { load, image, page_cache_bytes } => load::worker_main(load, &image, page_cache_bytes),
        What::Layout { seeds, dir } => layout::compare(seeds.max(1), &dir),
        What::Mdtest { rounds, files, dir } => mdtest::compare(rounds.max(1), files.max(1), &dir),
        What::MdtestWorker { image, files } => mdtest::worker_main(&image, files),
        What::Preallocations { rounds, count, dir } => {
            preallocations::compare(rounds.max(1), count.max(1), &dir)
        }
        What::Pages { rounds, latency_us, dir } => pages::compare(rounds.max(1), latency_us, &dir),
        What::ReadAhead { rounds, mib, device, dir } => {
            read_ahead::compare(rounds.max(1), mib.max(8), &device, &dir)
        }
        What::PageContexts { rounds, device, dir } => page_contexts::compare(rounds.max(1), &device, &dir),
        What::Commits { rounds, threads, device, milliseconds, dir } => {
            commits::measure(rounds.max(1), &threads, &device, Duration::from_millis(milliseconds), &dir)
        }
        What::LargeFiles { rounds, dir } => large_files::compare(rounds.max(1), &dir),
        What::DiskImages { rounds, dir } => disk_images::compare(rounds.max(1), &dir),
        What::PageWork { rounds } => pages::work(rounds.max(1)),
        What::PageMemory { gib, limit_mib, dir } => pages::memory(gib.max(1), limit_mib.max(1), &dir),
        What::LogMemory { log_mib, cache_mib, dir } => {
            pages::log_memory(log_mib.max(4), cache_mib.max(1), &dir)
        }
        What::Mount { runs, dir } => mount::compare(runs.max(1), &dir),
        What::MountClients { rounds, clients, sides, milliseconds, dir } => {
            mount::clients(rounds.max(1), &clients, &sides, Duration::from_millis(milliseconds), &dir)
        }
        What::TimedClient { dir } => mount::timed_client(&dir),
        What::MountLatency { rounds, seconds, dir } => {
            mount::latency(rounds.max(1), Duration::from_secs(seconds.max(1)), &dir)
        }
        What::ServeSlow { image, point } => mount::serve_slow(&image, &point),
        What::Empty { point, image } => mount::empty(&point, image.as_deref()),
        What::Client { dir } => mount::client(&dir),
        What::ScanPolicies { seed, csv, plot } => policies::compare(seed, &csv, plot.as_deref()),
        What::Scale { rounds, dir, plot } => scale::measure(&dir, rounds.max(1), plot.as_deref()),
        What::Freeze { rounds, plot } => freeze::measure(rounds.max(1), plot.as_deref()),
        What::ScaleWorker { image, crash, count } => scale::worker_main(&image, crash, count),
        What::Conflicts { operation, dir } => conflicts::conflicts(operation, &dir),
        What::Instructions { operations, dir } => instructions::instructions(&operations, &dir),
        What::Counted { image, operation, count } => instructions::counted(&image, operation, count),
        What::Traced { image, operation } => conflicts::traced(&image, operation),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("extant-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
