//! The environment's settings of the schedules to try.

use std::env;
use std::path::PathBuf;

use extant_rt::Exploration;

/// `schedules` of each kind unless `EXTANT_SCHEDULES` says otherwise, from `EXTANT_SEED` on; or the one in the file
/// `EXTANT_REPLAY`.
pub fn exploration(schedules: usize) -> Exploration {
    let number = |name| env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let plan = Exploration {
        schedules: number("EXTANT_SCHEDULES").map_or(schedules, |number| number as usize),
        seed: number("EXTANT_SEED").unwrap_or(1),
        failures: env!("CARGO_TARGET_TMPDIR").into(),
        replay: env::var_os("EXTANT_REPLAY").map(PathBuf::from),
    };
    println!("{} schedules of each kind, seed {}", plan.schedules, plan.seed);
    plan
}
