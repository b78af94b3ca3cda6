//! `extant bench` and `extant lab`: separate programs in the same directory as this one.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

use super::Outcome;
use crate::failure::Failure;

/// Measure loads: through the library and through a mount, beside the kernel's ext4 and XFS and fuse2fs, alternating in one
/// run. It is `extant-bench run`, a program of its own that stands beside this one.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Bench {
    /// What `extant-bench run` is told; `--help` lists it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Run the engine on virtual CPUs: loads over CPUs, the cache lines that two operations share, published figures beside
/// simulated ones. It is a program of its own, `extant-lab`, that stands beside this one or where `make lab` builds it.
#[derive(Args)]
#[command(disable_help_flag = true)]
pub struct Lab {
    /// What `extant-lab` is told; `--help` lists it
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl Bench {
    /// Becomes the other program.
    pub fn run(self) -> Outcome {
        let run = std::iter::once("run".into()).chain(self.arguments);
        become_program("extant-bench", &["."], "cargo build --release -p extant-bench", run)
    }
}

impl Lab {
    /// Becomes the other program.
    pub fn run(self) -> Outcome {
        become_program("extant-lab", &[".", "../virtual/release"], "make lab", self.arguments)
    }
}

/// Whether a program can do its work: one that was built for another runtime than its own fails even at this question.
fn works(program: &Path) -> bool {
    let answer = Command::new(program).arg("--help").stdin(Stdio::null()).output();
    answer.is_ok_and(|answer| answer.status.success())
}

/// Becomes a program in one of some directories, as seen from this program's: the first that works, else the first, which
/// says why it does not.
fn become_program(
    name: &'static str,
    dirs: &[&str],
    built_by: &str,
    arguments: impl IntoIterator<Item = OsString>,
) -> Outcome {
    let own = std::env::current_exe().map_err(|error| Failure::host(Path::new("extant"), &error))?;
    let programs = dirs.iter().filter_map(|dir| Some(own.parent()?.join(dir).join(name)));
    let programs: Vec<PathBuf> = programs.filter(|program| program.is_file()).collect();
    let chosen = match programs.as_slice() {
        [] | [_] => programs.first(),
        several => several.iter().find(|program| works(program)).or(several.first()),
    };
    let Some(program) = chosen else {
        let message = format!("not found beside this program; `{built_by}` in its source builds it");
        return Err(Failure::new("not_found", name, message));
    };
    let error = Command::new(program).args(arguments).exec();
    Err(Failure::host(program, &error))
}
