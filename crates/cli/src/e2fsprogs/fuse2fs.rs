//! `fuse2fs IMAGE DIR [-o OPTIONS] [-f]`.

use std::ffi::OsString;

use super::Call;
use super::letters::Letters;
use crate::failure::Failure;
use crate::verbs::{Outcome, outcome};

/// Options of fuse2fs that change nothing here.
const IGNORED: [&str; 5] = ["minixdf", "no_default_opts", "fuse2fs_debug", "debug", "default_permissions"];

/// Mounts a disk.
pub(super) fn run(call: &Call) -> Outcome {
    let letters = Letters::read(call, "dfso:V", "")?;
    if letters.has('V') {
        call.banner("fuse2fs");
        return Ok(0);
    }
    let [image, dir] = letters.places.as_slice() else {
        return Err(Failure::usage("usage: fuse2fs device mountpoint [-o options] [-dfs]"));
    };
    let words: Vec<_> = letters.texts('o')?.into_iter().flat_map(|words| words.split(',')).collect();
    // Owners are the disk's own unless asked otherwise; as root, devices and set-id programs work.
    let mut options = vec!["nofakeroot"];
    if rustix::process::geteuid().is_root() && !words.contains(&"no_default_opts") {
        options.extend(["suid", "dev"]);
    }
    options.extend(words.into_iter().filter(|word| !IGNORED.contains(word)));
    let mut command: Vec<OsString> = vec!["mount".into(), "-o".into(), options.join(",").into()];
    if letters.has('f') || letters.has('d') {
        command.push("-f".into());
    }
    command.extend(["--".into(), image.clone(), dir.clone()]);
    outcome(command)
}
