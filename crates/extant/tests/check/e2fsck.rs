//! The findings of `e2fsck` for a disk.

use std::path::Path;

use extant_testing::Command;

/// Whether `e2fsck` finds a disk clean, and what it printed.
pub fn e2fsck(image: &Path) -> (bool, String) {
    let output =
        Command::new("e2fsck").arg("-fn").arg(image).env("LC_ALL", "C").output().expect("e2fsck runs");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    // Only for speed does it ask to optimise a tree.
    let asked = said.lines().any(|line| line.contains("? no") && !line.contains("Optimize?"));
    (output.status.code() == Some(0) && !asked && !said.contains("WARNING"), said)
}

/// Has it replay the journal, and no more.
pub fn replay(image: &Path) {
    let output = Command::new("e2fsck").args(["-fy", "-E", "journal_only"]).arg(image).output();
    output.expect("e2fsck runs");
}
