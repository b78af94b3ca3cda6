//! The command `extant`: see `extant --help`.

mod address;
mod container_image;
mod disks;
mod failure;
mod foreign;
mod id_maps;
mod json;
mod metadata;
mod mode;
mod mounts;
mod output;
mod owner;
mod progress;
mod servers;
mod size;
mod tree;
mod verbs;

use std::process::ExitCode;

fn main() -> ExitCode {
    verbs::run(std::env::args_os())
}
