//! The engine on virtual CPUs in virtual time: what its locks and cache lines cost on machines with more of them.
//!
//! It is the same source as everywhere, built for the virtual runtime (`make lab`). A run gives the same rates each time.
//! Leaves out: the costs of memory that no lock or atomic stands for; and devices, which take no time but in
//! `writeback`.

#[cfg(extant_rt = "virtual")]
mod calibrate;
#[cfg(extant_rt = "virtual")]
mod causal;
#[cfg(extant_rt = "virtual")]
mod commands;
#[cfg(extant_rt = "virtual")]
mod conflict;
#[cfg(extant_rt = "virtual")]
mod kernel;
#[cfg(extant_rt = "virtual")]
mod ladder;
#[cfg(extant_rt = "virtual")]
mod machine;
#[cfg(extant_rt = "virtual")]
mod measured;
#[cfg(extant_rt = "virtual")]
mod policy;
#[cfg(extant_rt = "virtual")]
mod predict;
#[cfg(extant_rt = "virtual")]
mod published;
#[cfg(extant_rt = "virtual")]
mod report;
#[cfg(extant_rt = "virtual")]
mod reproduce;
#[cfg(extant_rt = "virtual")]
mod run;
#[cfg(extant_rt = "virtual")]
mod scaling;
#[cfg(extant_rt = "virtual")]
mod sensitivity;
#[cfg(extant_rt = "virtual")]
mod to_sync;
#[cfg(extant_rt = "virtual")]
mod writeback;

use std::process::ExitCode;

#[cfg(not(extant_rt = "virtual"))]
fn main() -> ExitCode {
    eprintln!("extant-lab: built for the CPUs of the host: `make lab` builds it for virtual ones");
    ExitCode::from(2)
}

#[cfg(extant_rt = "virtual")]
fn main() -> ExitCode {
    match commands::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("extant-lab: {error}");
            ExitCode::FAILURE
        }
    }
}
