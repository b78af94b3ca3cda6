//! The command `extant`: see `extant --help`. Under names of e2fsprogs it is their programs.

mod address;
mod colors;
mod container_image;
mod devices;
mod disks;
#[cfg(target_os = "linux")]
mod e2fsprogs;
mod failure;
mod foreign;
mod host;
mod id_maps;
mod json;
mod location;
mod metadata;
mod mode;
#[cfg_attr(not(target_os = "linux"), path = "mounts_absent.rs")]
mod mounts;
mod output;
mod owner;
mod partition_types;
mod progress;
#[cfg(target_os = "linux")]
mod servers;
mod size;
#[cfg_attr(not(target_os = "linux"), path = "stats_absent.rs")]
mod stats;
mod tree;
mod verbs;
mod volume_name;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    #[cfg(target_os = "linux")]
    if let Some(exit) = e2fsprogs::called(&arguments) {
        return exit;
    }
    verbs::run(arguments)
}
