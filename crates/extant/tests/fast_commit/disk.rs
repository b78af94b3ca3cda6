//! Disks with fast commits.

use std::path::Path;

use extant_testing::{run, text};

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
