//! Disks with fast commits.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use extant_testing::{run, text};

/// One test at a time: they share loop devices.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new disk with fast commits.
pub fn make(path: &Path, block_size: u32, features: &str) -> Option<()> {
    let (size, features) = (block_size.to_string(), format!("fast_commit,{features}"));
    let arguments = ["-q", "-F", "-t", "ext4", "-b", &size, "-O", &features, text(path), "48M"];
    match run("mke2fs", &arguments) {
        Ok(_) => Some(()),
        Err(what) => {
            println!("skipped: {what}");
            None
        }
    }
}
