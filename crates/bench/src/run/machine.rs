//! Loads on this machine's CPUs through the library, beside what the lab predicts of them: one file with all of it, to compare machines by.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::Args;
use extant_loads::Load;
use serde::Serialize;

use super::report::{self, Object};
use super::topology::Topology;
use super::{Job, Policy, Target, measure};
use crate::Result;
use crate::scratch::{Scratch, output};

/// Loads by which the lab is calibrated.
const CALIBRATED: [Load; 4] = [Load::CreateUnlink, Load::Stat, Load::Fallocate2, Load::Overwrite];

/// See [`crate::What::Machine`].
#[derive(Args)]
pub struct Arguments {
    /// What each thread does; without any, those by which the lab is calibrated, FxMark's, mdtest, varmail and dbench
    loads: Vec<Load>,
    /// Numbers of threads, 1 among them; without any, the powers of two up to the CPUs, and these
    #[arg(long, value_delimiter = ',')]
    threads: Vec<usize>,
    /// Rounds of each
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds of each measurement
    #[arg(long, default_value_t = 500)]
    milliseconds: u64,
    /// Where the image is made
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// The lab, as `make lab` builds it
    #[arg(long, default_value = "target/virtual/release/extant-lab")]
    lab: PathBuf,
    /// The file with all of it, as JSON
    #[arg(long, default_value = "machine.json")]
    json: PathBuf,
}

/// What the file contains.
#[derive(Serialize)]
struct Document {
    topology: Topology,
    /// What `extant-bench run` says of each load and number of threads.
    rows: Vec<Object>,
    /// The machine that the lab measured, as its file.
    machine: String,
    /// What the lab says of each.
    predicted: serde_json::Value,
}

/// See [`crate::What::Machine`].
pub fn compare(arguments: &Arguments) -> Result<()> {
    let Arguments { loads, threads, rounds, milliseconds, dir, lab, json } = arguments;
    if !lab.exists() {
        return Err(format!("{}: no such program; `make lab` builds it", lab.display()).into());
    }
    let topology = Topology::of_host();
    println!("{topology}\n");
    let threads = if threads.is_empty() { topology.threads() } else { threads.clone() };
    if threads.contains(&0) || !threads.contains(&1) {
        return Err("--threads: 1 is to be among them, and 0 is not".into());
    }
    let job = Job {
        targets: &[Target::Library(Policy::DEFAULT)],
        threads: &threads,
        page_cache_bytes: 0,
        rounds: (*rounds).max(1),
        time: Duration::from_millis(*milliseconds),
        dir,
    };
    let suites =
        <Load as clap::ValueEnum>::value_variants().iter().copied().filter(|load| load.is_of_suite());
    let loads: Vec<Load> = if loads.is_empty() { suites.collect() } else { loads.clone() };
    let mut rows = Vec::new();
    for load in CALIBRATED.into_iter().chain(loads.into_iter().filter(|load| !CALIBRATED.contains(load))) {
        eprintln!("extant-bench: {}", load.title());
        rows.extend(measure(load, &job)?);
    }
    let scratch = Scratch::new(dir)?;
    let (measured, machine) = (scratch.path("measured.json"), scratch.path("machine.toml"));
    std::fs::write(&measured, report::json(&rows)?)?;
    let with_measured = |verb: &str| {
        let mut command = Command::new(lab);
        command.arg(verb).arg("--measured").arg(&measured);
        command
    };
    std::fs::write(&machine, output(&mut with_measured("calibrate"))?)?;
    let mut predict = with_measured("predict");
    predict.arg("--machine").arg(&machine);
    print!("{}", output(&mut predict)?);
    let document = Document {
        topology,
        rows: report::objects(&rows),
        machine: std::fs::read_to_string(&machine)?,
        predicted: serde_json::from_str(&output(predict.arg("--json"))?)?,
    };
    std::fs::write(json, serde_json::to_string_pretty(&document)? + "\n")?;
    println!("\n{}: all of it, to compare machines by", json.display());
    Ok(())
}
