//! The command `extant`: see `extant --help`. Under names of e2fsprogs it is their programs.

mod address;
mod colors;
mod container_image;
mod devices;
mod disks;
mod e2fsprogs;
mod failure;
mod foreign;
mod id_maps;
mod json;
mod location;
mod metadata;
mod mode;
mod mounts;
mod output;
mod owner;
mod partition_types;
mod progress;
mod servers;
mod size;
mod stats;
mod tree;
mod verbs;
mod volume_name;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    e2fsprogs::called(&arguments).unwrap_or_else(|| verbs::run(arguments))
}
