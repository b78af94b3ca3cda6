//! The command line.

use std::error::Error;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand, ValueEnum as _};
use extant_loads::{Load, Step};

use crate::machine::Model;
use crate::policy::compare::Disk;
use crate::run::Setup;
use crate::{
    calibrate, causal, conflict, ladder, policy, predict, published, report, reproduce, run, scaling,
    sensitivity, writeback,
};

#[derive(Parser)]
#[command(about = "Runs the engine on virtual CPUs in virtual time")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Runs a load, each CPU in a directory of its own or all in one.
    Run {
        /// What each CPU does.
        load: Load,
        /// How many CPUs; one run for each number.
        #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64")]
        cpus: Vec<usize>,
        /// A built-in machine, or a file.
        #[arg(long, default_value = "kunpeng920")]
        machine: PathBuf,
        /// Virtual time of each run; as much before it warms caches.
        #[arg(long, default_value_t = 1000)]
        microseconds: u64,
        /// Steps of each CPU at most, of loads that come to an end.
        #[arg(long, default_value_t = 4000)]
        steps_max: u64,
        /// All CPUs in one directory.
        #[arg(long)]
        one_directory: bool,
        /// Mebibytes of the page cache.
        #[arg(long, default_value_t = 0)]
        page_cache: u32,
        /// KiB of a block.
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
        block_kib: u32,
        /// How the allocators work: a step of their ladder, from `oldest` to `default`, or a file as of `policy`.
        #[arg(long, default_value = "default")]
        policy: PathBuf,
        /// Also for the most CPUs: what it would bring if a class of locks or lines took half of its time.
        #[arg(long)]
        causal: bool,
        /// Also between what the part of linear lies when each of the machine's costs is halved and doubled.
        #[arg(long)]
        sensitivity: bool,
        /// One JSON document instead of tables.
        #[arg(long)]
        json: bool,
    },
    /// The cache lines that two operations share on files of their own; of each pair of loads without OPERATIONS.
    Conflict {
        /// Two, or one beside itself.
        #[arg(num_args = 0..=2)]
        operations: Vec<Load>,
        /// A built-in machine, or a file.
        #[arg(long, default_value = "kunpeng920")]
        machine: PathBuf,
        /// How the allocators work: a step of their ladder, from `oldest` to `default`, or a file as of `policy`.
        #[arg(long, default_value = "default")]
        policy: PathBuf,
        /// One JSON document instead of tables.
        #[arg(long)]
        json: bool,
        /// Where a picture of all pairs goes, as SVG.
        #[arg(long)]
        svg: Option<PathBuf>,
    },
    /// What the posts published, beside what the lab shows, as ratios to each table's base.
    Reproduce {
        /// Those of one post, A to F, or of fxmark-ramdisk, fxmark-nvme or orphans.
        post: Option<String>,
        /// Those of one table alone.
        #[arg(long)]
        table: Option<String>,
        /// A machine instead of the tables' own: a built-in one, or a file.
        #[arg(long)]
        machine: Option<PathBuf>,
        /// Runs of each row, whose CPUs begin in orders of their own; the middle one counts.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
        seeds: u64,
        /// Between what each ratio lies when each of the machine's costs is halved and doubled.
        #[arg(long)]
        sensitivity: bool,
        /// One JSON document instead of tables.
        #[arg(long)]
        json: bool,
    },
    /// Large files through the page cache onto a modelled device, by the number of writeback contexts.
    Writeback {
        /// A device of crates/block/models.
        #[arg(long, value_delimiter = ',', default_value = "bm1743,pm9a3,pmem,disk-7200")]
        device: Vec<String>,
        /// How many contexts; one run for each number.
        #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,12")]
        contexts: Vec<usize>,
        /// Each writes a file in a directory of its own.
        #[arg(long, default_value_t = 12)]
        writers: usize,
        /// Of each file.
        #[arg(long, default_value_t = 1024)]
        file_mib: u64,
        /// Bands of the disk, each of 8 GiB; contexts are 64 at most, and 16 for each band.
        #[arg(long, default_value_t = 12)]
        bands: u64,
        /// Of the page cache.
        #[arg(long, default_value_t = 1024)]
        cache_mib: u64,
        /// What a flusher computes for each block that it writes.
        #[arg(long, default_value_t = writeback::OWN_WORK_NS)]
        work_ns: u64,
        /// Blocks of 4 KiB in random order instead of pieces of 1 MiB in order.
        #[arg(long)]
        random: bool,
        /// A built-in machine, or a file.
        #[arg(long, default_value = "xeon2690v3-kernel")]
        machine: PathBuf,
    },
    /// Policies beside the default and the kernel's, on disks that files have aged; without FILE the default, as a file to
    /// begin one's own with.
    Policy {
        /// A file with those fields that differ from the default, a policy in code, or a step of the allocators' ladder.
        #[arg(value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Of the disk.
        #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(16..))]
        disk_gb: u64,
        /// How full files make it first, in percent.
        #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u64).range(..=95))]
        age: u64,
        /// Of the files' sizes and of who goes.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// KiB of a block.
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
        block_kib: u32,
        /// One JSON document instead of a table.
        #[arg(long)]
        json: bool,
        /// Where a picture of the figures goes, as SVG.
        #[arg(long, requires = "files")]
        svg: Option<PathBuf>,
    },
    /// Appends by fallocate over the number of CPUs: Linux as published, Linux and Extant simulated, and both as measured.
    Scaling {
        /// How many CPUs; Linux 6.16 at those of which it is published.
        #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64,128")]
        cpus: Vec<usize>,
        /// What `extant-bench run fallocate2 --json` wrote on this machine.
        #[arg(long)]
        measured: Option<PathBuf>,
        /// Where a picture goes, as SVG.
        #[arg(long)]
        svg: Option<PathBuf>,
        /// Bars of what all CPUs do together where Linux is published of most, instead of a table.
        #[arg(long)]
        bars: bool,
    },
    /// The steps of the allocators' ladder: what two CPUs do over one, beside what threads of this host did.
    Ladder {
        /// A built-in machine, or a file, as of `calibrate`.
        #[arg(long, default_value = "kunpeng920")]
        machine: PathBuf,
        /// What `extant-bench ladder --json` wrote on this host.
        #[arg(long)]
        measured: Option<PathBuf>,
    },
    /// A machine like this host, measured with its own threads; the host should be idle.
    Calibrate {
        /// What `extant-bench run create-unlink stat fallocate2 overwrite --json` wrote on this host: what steps compute.
        #[arg(long)]
        measured: Option<PathBuf>,
    },
    /// Each load and number of threads that was measured on this host, beside what as many virtual CPUs do.
    Predict {
        /// What `extant-bench run --json` or `extant-bench machine` wrote on this host, one thread among it.
        #[arg(long)]
        measured: PathBuf,
        /// A machine like the host, as of `calibrate`.
        #[arg(long)]
        machine: PathBuf,
        /// One JSON document instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// The built-in machines.
    List,
    /// A built-in machine as a file, to begin one's own with.
    Machine {
        /// Its name.
        name: String,
    },
}

/// The loads whose threads may share nothing: threads that sync share commits. Suites' loads do the same operations.
fn loads_apart() -> Vec<Load> {
    let all = Load::value_variants().iter().copied();
    all.filter(|load| !load.counts(Step::Sync) && !load.is_of_suite()).collect()
}

pub fn run() -> Result<(), Box<dyn Error>> {
    match Arguments::parse().what {
        What::Run {
            load,
            cpus,
            machine,
            microseconds,
            steps_max,
            one_directory,
            page_cache,
            block_kib,
            policy,
            causal,
            sensitivity,
            json,
        } => {
            let (model, tuning) = (Rc::new(Model::load(&machine)?), policy::load(&policy)?);
            let time = Duration::from_micros(microseconds);
            let page_cache_bytes = u64::from(page_cache) << 20;
            let setup = |cpus| Setup {
                one_directory,
                steps_max,
                page_cache_bytes,
                block_bytes: block_kib << 10,
                ..Setup::new(load, cpus, tuning, time)
            };
            let runs = cpus.iter().map(|cpus| run::run(setup(*cpus), &model));
            let runs = runs.collect::<Result<Vec<_>, _>>()?;
            let most = runs.iter().max_by_key(|run| run.cpus).filter(|_| causal);
            let causes = most.map(|run| causal::causes(setup(run.cpus), &model, run)).transpose()?;
            let of_linear = sensitivity.then(|| sensitivity::of_linear(setup, &model, &cpus)).transpose()?;
            if json {
                print!("{}", report::json(load, &runs, causes.as_deref(), of_linear.as_deref())?);
            } else {
                print!("{}", report::tables(load, &runs));
                if let (Some(run), Some(causes)) = (most, &causes) {
                    print!("{}", causal::table(run.cpus, causes));
                }
                of_linear.iter().for_each(|all| print!("{}", sensitivity::table(all)));
            }
        }
        What::Conflict { operations, machine, policy, json, svg } => {
            let (model, tuning) = (Rc::new(Model::load(&machine)?), policy::load(&policy)?);
            let conflicts = match operations[..] {
                [] => conflict::matrix(&loads_apart(), &model, tuning)?,
                [operation] => vec![conflict::conflict([operation; 2], &model, tuning)?],
                [first, second, ..] => vec![conflict::conflict([first, second], &model, tuning)?],
            };
            if let Some(file) = svg {
                std::fs::write(file, conflict::report::svg(&conflicts))?;
            }
            let text = match (json, &conflicts[..]) {
                (true, _) => conflict::report::json(&conflicts)?,
                (false, [pair]) => conflict::report::pair(pair),
                (false, _) => conflict::report::matrix(&conflicts),
            };
            print!("{text}");
        }
        What::Reproduce { post, table, machine, seeds, sensitivity, json } => {
            let mut posts = published::posts()?;
            posts.retain(|known| post.as_ref().is_none_or(|wanted| known.post.eq_ignore_ascii_case(wanted)));
            for post in &mut posts {
                post.table.retain(|known| table.as_ref().is_none_or(|wanted| known.name == *wanted));
            }
            if posts.iter().all(|post| post.table.is_empty()) {
                return Err(
                    "no such post or table; posts are A to F, fxmark-ramdisk, fxmark-nvme and orphans".into(),
                );
            }
            let begin = Instant::now();
            let options = reproduce::Options { machine: machine.as_deref(), seeds, sensitivity };
            let all = reproduce::compare(&posts, options)?;
            print!("{}", if json { reproduce::json(&all)? } else { reproduce::text(&posts, &all) });
            eprintln!("{:.0} s", begin.elapsed().as_secs_f64());
        }
        What::Writeback {
            device,
            contexts,
            writers,
            file_mib,
            bands,
            cache_mib,
            work_ns,
            random,
            machine,
        } => {
            let model = Model::load(&machine)?;
            for device in device {
                let setup = writeback::Setup {
                    device,
                    contexts: 1,
                    writers,
                    file_mib,
                    bands,
                    cache_mib,
                    work_ns,
                    random,
                };
                let run = |contexts: &usize| {
                    writeback::run(&writeback::Setup { contexts: *contexts, ..setup.clone() }, &model)
                };
                let runs = contexts.iter().map(run).collect::<Result<Vec<_>, _>>()?;
                print!("{}", writeback::table(&setup, &runs));
            }
        }
        What::Policy { files, .. } if files.is_empty() => print!("{}", policy::DEFAULT),
        What::Policy { files, disk_gb: gb, age, seed, block_kib, json, svg } => {
            let disk = Disk { gb, age, seed, block_kib };
            let all = policy::compare::compare(&files, disk)?;
            if let Some(picture) = svg {
                std::fs::write(picture, policy::plot::svg(disk, &all, files.len()))?;
            }
            let text = if json { policy::compare::json(&all)? } else { policy::compare::table(disk, &all) };
            print!("{text}");
        }
        What::Scaling { cpus, measured, svg, bars } => {
            let scaling = scaling::scaling(&cpus, measured.as_deref())?;
            if let Some(file) = svg {
                scaling.draw(&file)?;
            }
            print!("{}", if bars { scaling.bars() } else { scaling.table() });
        }
        What::Ladder { machine, measured } => {
            print!("{}", ladder::table(&ladder::climb(&Model::load(&machine)?, measured.as_deref())?));
        }
        What::Calibrate { measured } => print!("{}", calibrate::calibrate(measured.as_deref())?),
        What::Predict { measured, machine, json } => {
            let all = predict::predict(&measured, &machine)?;
            let text = if json { serde_json::to_string_pretty(&all)? + "\n" } else { predict::table(&all) };
            print!("{text}");
        }
        What::List => Model::built_in().for_each(|(name, _)| println!("{name}")),
        What::Machine { name } => print!("{}", Model::source(&name)?),
    }
    Ok(())
}
