//! `extant lab`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use super::Outcome;
use crate::failure::Failure;

/// Where it is from the directory of this program: installed, and where `make lab` puts it.
const PLACES: [&str; 2] = ["extant-lab", "../virtual/release/extant-lab"];

/// Run the engine on virtual CPUs: loads over CPUs, the cache lines that two operations share, published figures beside
/// simulated ones. It is a program of its own, `extant-lab`, that stands beside this one or where `make lab` builds it.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Lab {
    /// What `extant-lab` is told; `--help` lists it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Lab {
    /// Becomes the other program.
    pub fn run(self) -> Outcome {
        let own = std::env::current_exe().map_err(|error| Failure::host(&PathBuf::from("extant"), &error))?;
        let programs = PLACES.iter().filter_map(|place| Some(own.parent()?.join(place)));
        let Some(program) = programs.into_iter().find(|program| program.is_file()) else {
            let message = "not found beside this program; `make lab` in its source builds it";
            return Err(Failure::new("not_found", "extant-lab", message));
        };
        let error = Command::new(&program).args(&self.arguments).exec();
        Err(Failure::host(&program, &error))
    }
}
