//! The schedules that a test of threads runs under.

use std::path::PathBuf;

/// The parameters of `explore`: the checked runtime tries schedules, the native one leaves them to
/// the host.
#[derive(Clone, Debug)]
pub struct Exploration {
    /// How many of each kind.
    pub schedules: usize,
    /// The seed of the schedules and of the work.
    pub seed: u64,
    /// A directory for schedules that failed: the first that is named in a process serves all.
    pub failures: PathBuf,
    /// The file of a schedule that failed, to be the only one.
    pub replay: Option<PathBuf>,
}
