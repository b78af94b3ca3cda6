//! Threads of the host on a real image, for seconds or for as long as the environment says.
//!
//! `make test-threads` runs the long forms: `EXTANT_THREADS_SECONDS` for each load, `EXTANT_FILL_SEEDS` disks to be filled.

#[path = "../mkfs/tools.rs"]
#[expect(dead_code, reason = "shared with the tests of mkfs")]
mod tools;

mod fill;
mod load;
mod random;
mod usage;
