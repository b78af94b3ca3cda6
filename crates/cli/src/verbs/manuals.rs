//! `extant manuals`.

use std::fs;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_mangen::Man;

use super::{Command, Outcome};
use crate::failure::Failure;

/// Write the manual pages of the command and of each verb into a directory: extant.1, extant-mkfs.1 and so on.
///
/// `make install` puts them where man(1) looks for them.
#[derive(Args)]
#[command(after_help = "Examples:
  mkdir -p ~/.local/share/man/man1
  extant manuals ~/.local/share/man/man1
  man extant-mkfs")]
pub struct Manuals {
    /// The directory, which exists
    dir: PathBuf,
}

impl Manuals {
    /// Writes them.
    pub fn run(self) -> Outcome {
        // `help` would have a page for each verb too.
        let mut command = Command::command().disable_help_subcommand(true);
        command.build();
        for page in std::iter::once(&command).chain(command.get_subcommands()) {
            let name = page.get_display_name().unwrap_or("extant");
            let path = self.dir.join(format!("{name}.1"));
            fs::write(&path, manual(page)).map_err(|error| Failure::host(&path, &error))?;
        }
        Ok(0)
    }
}

/// The manual page of a command or verb, as troff.
fn manual(page: &clap::Command) -> String {
    let mut troff = Vec::new();
    let man = Man::new(page.clone()).manual("Extant").source(concat!("extant ", env!("CARGO_PKG_VERSION")));
    // Memory takes every byte.
    let _ = man.render(&mut troff);
    // What the help ends with; clap_mangen has no better name for it.
    String::from_utf8_lossy(&troff).replace(".SH EXTRA\n", ".SH NOTES\n")
}
