//! Measurements of the engine beside the kernel's ext4: one binary, one run, alternating, medians with their spread.
//!
//! Images stand on /dev/shm, so that the disk is not what is measured. The kernel's side needs root and loop devices;
//! without them it is named as missing.

mod kernel;
mod load;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Measures the engine beside the kernel's ext4")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Creates and unlinks empty files: one thread beside the kernel, two threads beside two processes.
    CreateUnlink {
        /// Rounds of each side.
        #[arg(long, default_value_t = 7)]
        rounds: usize,
        /// Milliseconds of each measurement.
        #[arg(long, default_value_t = 1000)]
        milliseconds: u64,
        /// Where the images are made.
        #[arg(long, default_value = "/dev/shm")]
        dir: PathBuf,
    },
    /// One process of the share-nothing ceiling; started by the other measurements.
    #[command(hide = true)]
    Worker {
        /// The image.
        image: PathBuf,
        /// How long.
        milliseconds: u64,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().what {
        What::CreateUnlink { rounds, milliseconds, dir } => {
            load::create_unlink(rounds.max(1), Duration::from_millis(milliseconds), &dir)
        }
        What::Worker { image, milliseconds } => load::worker(&image, Duration::from_millis(milliseconds)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("extant-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
