//! `extant completions`.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Command, Outcome};
use crate::failure::Failure;

/// Print a script with which a shell completes the command's verbs, options and files.
///
/// `make install` puts those of bash, fish and zsh where the shells look for them.
#[derive(Args)]
#[command(after_help = "Examples:
  source <(extant completions bash)                                 for the shell that runs
  extant completions zsh >~/.zfunc/_extant                          with ~/.zfunc in $fpath
  extant completions fish >~/.config/fish/completions/extant.fish")]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Completions {
    /// Prints the script.
    pub fn run(self) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Command::command(), "extant", &mut script);
        std::io::stdout().lock().write_all(&script).map_err(|error| Failure::output(&error))?;
        Ok(0)
    }
}
