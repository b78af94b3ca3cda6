//! The program under the names of e2fsprogs: `mkfs.ext4`, `fsck.ext4`, `tune2fs` and so on, chosen by `argv[0]`.
//!
//! Letters, exit statuses and what callers parse are those of e2fsprogs 1.47.0. A letter that is not served is refused by name.
//!
//! Tests: `tests/command/e2fsprogs.rs`, beside e2fsprogs' own programs.

mod dumpe2fs;
mod e2fsck;
mod fuse2fs;
mod letters;
mod mke2fs;
mod place;
mod resize2fs;
mod superblock_lines;
mod tune2fs;
mod usage_types;

use std::ffi::OsString;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use crate::failure::Failure;
use place::Place;

/// The release whose letters, defaults and output these programs have.
const RELEASE: &str = "1.47.0";

/// Every name that is served.
const NAMES: [&str; 13] = [
    "mke2fs",
    "mkfs.ext2",
    "mkfs.ext3",
    "mkfs.ext4",
    "e2fsck",
    "fsck.ext2",
    "fsck.ext3",
    "fsck.ext4",
    "dumpe2fs",
    "e2label",
    "tune2fs",
    "resize2fs",
    "fuse2fs",
];

/// A program called by one of the names.
struct Call<'a> {
    name: &'a str,
    arguments: &'a [OsString],
}

/// Does what was asked for, if the program was called by a name of e2fsprogs.
pub fn called(arguments: &[OsString]) -> Option<ExitCode> {
    let name = Path::new(arguments.first()?).file_name()?.to_str()?;
    let name = NAMES.into_iter().find(|known| *known == name)?;
    let call = Call { name, arguments: &arguments[1..] };
    let result = match name {
        "dumpe2fs" => dumpe2fs::run(&call),
        "e2label" => tune2fs::e2label(&call),
        "tune2fs" => tune2fs::run(&call),
        "resize2fs" => resize2fs::run(&call),
        "fuse2fs" => fuse2fs::run(&call),
        _ if name.starts_with('m') => mke2fs::run(&call),
        _ => e2fsck::run(&call),
    };
    let status = result.unwrap_or_else(|failure| {
        call.say(&failure.to_string());
        if name.contains("fsck") { e2fsck::status_of(&failure) } else { crate::failure::EXIT_FAILED }
    });
    Some(ExitCode::from(status))
}

impl Call<'_> {
    /// A line of the program on standard error.
    fn say(&self, text: &str) {
        // If standard error cannot be written, the exit status still reports a failure.
        let _ = writeln!(std::io::stderr(), "{}: {text}", self.name);
    }

    /// The first line of every program: the release that it is like.
    fn banner(&self, program: &str) {
        let _ = writeln!(std::io::stderr(), "{}", version(program));
    }
}

fn version(program: &str) -> String {
    format!("{program} {RELEASE} (Extant {})", env!("CARGO_PKG_VERSION"))
}

/// The one device that a program works on.
fn only_device(places: &[OsString], usage: &str) -> Result<Place, Failure> {
    match places {
        [device] => Place::parse(device),
        _ => Err(Failure::usage(format!("usage: {usage}"))),
    }
}
