//! The commands: their arguments, and the dispatch to their modules.

mod attributes;
mod cat;
mod check;
mod completions;
mod cp;
mod defrag;
mod df;
mod diff;
mod du;
#[cfg(target_os = "linux")]
mod exec;
#[cfg(target_os = "linux")]
mod exec_sibling;
mod export;
mod find;
mod frag;
mod import;
mod info;
mod ls;
mod manuals;
mod mkfs;
#[cfg(target_os = "linux")]
mod mount;
mod names;
mod quota;
mod replay;
mod resize;
mod rm;
#[cfg(target_os = "linux")]
mod serve;
mod stat;
#[cfg(target_os = "linux")]
mod sync;
#[cfg(target_os = "linux")]
mod top;
mod touch;
mod trim;
mod tune;
#[cfg(target_os = "linux")]
mod umount;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::failure::{EXIT_FSCK_USAGE, EXIT_USAGE, Failure};
use crate::output;
use crate::stats;
#[cfg(target_os = "linux")]
pub use info::uuid_text;
#[cfg(target_os = "linux")]
pub use mkfs::{Content, DiskFormat, Place, Target};

/// What a verb gives back: its exit status, or why it failed.
pub type Outcome = Result<u8, Failure>;

/// Reads and writes ext4 disks and images without mounting them, as root or not.
///
/// IMAGE is an image file, a block device or the URI of a disk over the network (`nbd://HOST/EXPORT`; only read:
/// `https://HOST/FILE`, `s3://BUCKET/KEY`); IMAGE:/PATH is a place on it. An argument that exists on the host is of the host. Images may be raw or of qcow2, and are also read in
/// VHDX, VHD, VMDK and Android's sparse format, packed by gzip, zstd, xz or bzip2, and on standard input (`-`, or
/// `/dev/stdin:/PATH`). On a disk with partitions each verb but mkfs finds the only ext4 file system by itself, and says so.
#[derive(Parser)]
#[command(name = "extant", version = env!("EXTANT_VERSION"), max_term_width = 100, arg_required_else_help = true, after_help = AFTER_HELP)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

const AFTER_HELP: &str = "\
Examples:
  extant mkfs -d rootfs.tar --free 64M rootfs.img   a disk of the right size from a tar
  extant cp agent rootfs.img:/usr/local/bin/        a file into it
  extant ls -l rootfs.img:/usr/local/bin            what is in it
  extant mount rootfs.img dir                       work in it, root or not; extant umount dir
  extant check rootfs.img                           whether it is sound

Exit status: 0 done, 1 something failed, 2 wrong usage; of check 0, 4, 8 and 16, as of fsck; of diff 0, 1 and 2, as of diff.";

#[derive(Subcommand)]
enum Verb {
    Mkfs(Box<mkfs::Mkfs>),
    Import(import::Import),
    Export(export::Export),
    Cp(cp::Cp),
    Ls(ls::Ls),
    Cat(cat::Cat),
    Stat(stat::Stat),
    Find(find::Find),
    Du(du::Du),
    Df(df::Df),
    Diff(diff::Diff),
    Touch(touch::Touch),
    Rm(rm::Rm),
    Mkdir(names::Mkdir),
    Mv(names::Mv),
    Ln(names::Ln),
    Chmod(attributes::Chmod),
    Chown(attributes::Chown),
    #[cfg(target_os = "linux")]
    Mount(mount::Mount),
    #[cfg(target_os = "linux")]
    Umount(umount::Umount),
    #[cfg(target_os = "linux")]
    Exec(exec::Exec),
    #[cfg(target_os = "linux")]
    Sync(sync::SyncArguments),
    #[cfg(target_os = "linux")]
    Top(top::Top),
    Info(info::Info),
    Check(check::Check),
    Replay(replay::Replay),
    Resize(resize::Resize),
    Frag(frag::Frag),
    Defrag(defrag::Defrag),
    Tune(Box<tune::Tune>),
    Trim(trim::Trim),
    Quota(quota::Quota),
    #[cfg(target_os = "linux")]
    Serve(serve::Serve),
    #[cfg(target_os = "linux")]
    Bench(exec_sibling::Bench),
    #[cfg(target_os = "linux")]
    Lab(exec_sibling::Lab),
    Completions(completions::Completions),
    Manuals(manuals::Manuals),
}

/// Does what the command line says.
pub fn run(arguments: Vec<OsString>) -> ExitCode {
    let arguments = find::with_two_dashes(arguments);
    #[cfg(target_os = "linux")]
    if let Some(exit) = mount::called_by_mount(&arguments) {
        return ExitCode::from(exit);
    }
    let as_json = arguments.iter().any(|argument| argument == "--json");
    let is_check = arguments.get(1).is_some_and(|verb| verb == "check");
    let matches = Command::command().try_get_matches_from(&arguments);
    if matches.as_ref().is_ok_and(wants_stats) {
        stats::begin();
    }
    let command = match matches.and_then(|matches| Command::from_arg_matches(&matches)) {
        Ok(command) => command,
        Err(error) => {
            let is_help = !error.use_stderr();
            if as_json && !is_help {
                output::report(&Failure::usage(first_line(&error)), true);
            } else {
                // A closed terminal cannot show the error.
                let _ = error.print();
            }
            return ExitCode::from(match (is_help, is_check) {
                (true, _) => 0,
                (false, true) => EXIT_FSCK_USAGE,
                (false, false) => EXIT_USAGE,
            });
        }
    };
    let exit = match command.verb.run() {
        Ok(exit) => exit,
        Err(failure) => {
            output::report(&failure, as_json);
            failure.exit()
        }
    };
    stats::report(as_json);
    ExitCode::from(exit)
}

/// Whether the verb has `--stats` and was given it.
fn wants_stats(matches: &ArgMatches) -> bool {
    let of_verb = matches.subcommand().map(|(_, of_verb)| of_verb.try_get_one::<bool>("stats"));
    matches!(of_verb, Some(Ok(Some(true))))
}

/// Does what a verb and its arguments say.
///
/// # Errors
/// `usage` for a wrong command line, and the verb's own failure.
#[cfg(target_os = "linux")]
pub fn outcome(words: impl IntoIterator<Item = OsString>) -> Outcome {
    let words = std::iter::once(OsString::from("extant")).chain(words);
    let command = Command::try_parse_from(words).map_err(|error| Failure::usage(first_line(&error)))?;
    command.verb.run()
}

fn first_line(error: &clap::Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

impl Verb {
    fn run(self) -> Outcome {
        match self {
            Self::Mkfs(verb) => verb.run(),
            Self::Import(verb) => verb.run(),
            Self::Export(verb) => verb.run(),
            Self::Cp(verb) => verb.run(),
            Self::Ls(verb) => verb.run(),
            Self::Cat(verb) => verb.run(),
            Self::Stat(verb) => verb.run(),
            Self::Find(verb) => verb.run(),
            Self::Du(verb) => verb.run(),
            Self::Df(verb) => verb.run(),
            Self::Diff(verb) => verb.run(),
            Self::Touch(verb) => verb.run(),
            Self::Rm(verb) => verb.run(),
            Self::Mkdir(verb) => verb.run(),
            Self::Mv(verb) => verb.run(),
            Self::Ln(verb) => verb.run(),
            Self::Chmod(verb) => verb.run(),
            Self::Chown(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Self::Mount(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Self::Umount(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Self::Exec(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Self::Sync(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Self::Top(verb) => verb.run(),
            Self::Info(verb) => verb.run(),
            Self::Check(verb) => verb.run(),
            Self::Replay(verb) => verb.run(),
            Self::Resize(verb) => verb.run(),
            Self::Frag(verb) => verb.run(),
            Self::Defrag(verb) => verb.run(),
            Self::Tune(verb) => verb.run(),
            Self::Trim(verb) => verb.run(),
            Self::Quota(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Self::Serve(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Self::Bench(verb) => verb.run(),
            #[cfg(target_os = "linux")]
            Self::Lab(verb) => verb.run(),
            Self::Completions(verb) => verb.run(),
            Self::Manuals(verb) => verb.run(),
        }
    }
}

/// Failures that do not keep the rest from being done, reported as they happen.
struct Report {
    as_json: bool,
    exit: u8,
}

impl Report {
    /// None yet; `as_json` if they are for programs.
    fn new(as_json: bool) -> Self {
        Self { as_json, exit: 0 }
    }

    /// Reports a failure.
    fn tell(&mut self, failure: &Failure) {
        self.exit = self.exit.max(failure.exit());
        output::report(failure, self.as_json);
    }

    /// The value, or none after telling of the failure.
    fn unless_failed<T>(&mut self, result: Result<T, Failure>) -> Option<T> {
        result.map_err(|failure| self.tell(&failure)).ok()
    }

    /// The exit status that says whether there was one.
    fn exit(&self) -> u8 {
        self.exit
    }
}

/// Does `each` for every one of `items`, reporting each failure as it happens; the exit status says whether there
/// was one.
fn for_each<T>(
    items: impl IntoIterator<Item = T>,
    as_json: bool,
    mut each: impl FnMut(T) -> Result<(), Failure>,
) -> u8 {
    let mut report = Report::new(as_json);
    for item in items {
        report.unless_failed(each(item));
    }
    report.exit()
}

#[cfg(test)]
mod tests {
    use super::CommandFactory;

    #[test]
    fn options_do_not_contradict_each_other() {
        super::Command::command().debug_assert();
    }
}
