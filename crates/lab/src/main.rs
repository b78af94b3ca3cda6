//! The engine on virtual CPUs in virtual time: what its locks and cache lines cost on machines with more of them.
//!
//! It is the same source as everywhere, built for the virtual runtime (`make lab`). A run gives the same rates each time.
//! Leaves out: the costs of memory that no lock or atomic stands for, and devices, which take no time.

#[cfg(extant_rt = "virtual")]
mod machine;
#[cfg(extant_rt = "virtual")]
mod report;
#[cfg(extant_rt = "virtual")]
mod run;

use std::process::ExitCode;

#[cfg(not(extant_rt = "virtual"))]
fn main() -> ExitCode {
    eprintln!("extant-lab: built for the CPUs of the host: `make lab` builds it for virtual ones");
    ExitCode::from(2)
}

#[cfg(extant_rt = "virtual")]
fn main() -> ExitCode {
    match commands::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("extant-lab: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(extant_rt = "virtual")]
mod commands {
    use std::error::Error;
    use std::path::PathBuf;
    use std::rc::Rc;
    use std::time::Duration;

    use clap::{Parser, Subcommand};
    use extant::Tuning;
    use extant_loads::Load;

    use crate::machine::Model;
    use crate::{report, run};

    #[derive(Parser)]
    #[command(about = "Runs the engine on virtual CPUs in virtual time")]
    struct Arguments {
        #[command(subcommand)]
        what: What,
    }

    #[derive(Subcommand)]
    enum What {
        /// Runs a load, each CPU in a directory of its own.
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
            /// The oldest forms of the allocators' mechanisms instead of the default.
            #[arg(long)]
            oldest: bool,
            /// One JSON document instead of tables.
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

    pub fn run() -> Result<(), Box<dyn Error>> {
        match Arguments::parse().what {
            What::Run { load, cpus, machine, microseconds, oldest, json } => {
                let (model, time) = (Rc::new(Model::load(&machine)?), Duration::from_micros(microseconds));
                let tuning = if oldest { Tuning::oldest() } else { Tuning::default() };
                let runs = cpus
                    .iter()
                    .map(|cpus| run::run(load, *cpus, &model, tuning, time))
                    .collect::<Result<Vec<_>, _>>()?;
                let text = if json { report::json(load, &runs)? } else { report::tables(load, &runs) };
                print!("{text}");
            }
            What::List => Model::built_in().for_each(|(name, _)| println!("{name}")),
            What::Machine { name } => print!("{}", Model::source(&name)?),
        }
        Ok(())
    }
}
