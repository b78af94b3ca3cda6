//! What `extant-bench` measured on this host, from the JSON that it writes.

use std::path::Path;

use clap::ValueEnum as _;
use extant_loads::Load;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// An object of `extant-bench run --json`.
#[derive(Debug, Deserialize)]
pub struct Measured {
    load: String,
    target: String,
    pub threads: usize,
    /// Operations per second of all threads.
    pub median: f64,
    /// Of one round, the least.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// The version of the kernel that it was measured on.
    pub kernel: Option<String>,
}

/// An object of `extant-bench ladder --json`.
#[derive(Debug, Deserialize)]
pub struct MeasuredStep {
    /// By which a policy is asked for.
    pub step: String,
    pub threads: usize,
    pub directories: usize,
    /// Operations per second of all threads.
    pub median: f64,
    /// Of a line's way between two CPUs meanwhile, if it was measured.
    pub line_ns: Option<f64>,
}

impl Measured {
    /// Whether it is of that load, target and number of threads, and not of a policy besides.
    pub fn is(&self, load: Load, target: &str, threads: usize) -> bool {
        let load = load.to_possible_value();
        load.is_some_and(|load| load.get_name() == self.load)
            && self.target == target
            && self.threads == threads
    }
}

/// All rows of a file.
///
/// # Errors
/// If it cannot be read, or is not of that kind.
pub fn read<T: DeserializeOwned>(file: &Path) -> Result<Vec<T>, String> {
    let of = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| of(&error))?;
    serde_json::from_str(&text).map_err(|error| of(&error))
}
