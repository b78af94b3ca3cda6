//! e2fsprogs as judges of images.

use std::path::Path;

use crate::Command;

/// Whether the programs of e2fsprogs are there that tests run; else says that the test is skipped.
#[must_use]
pub fn has_e2fsprogs() -> bool {
    let has_all = ["mke2fs", "e2fsck", "debugfs", "dumpe2fs", "tune2fs"]
        .iter()
        .all(|program| Command::new(program).arg("-V").output().is_ok());
    if !has_all {
        println!("skipped: no e2fsprogs");
    }
    has_all
}

/// Runs a program; its output.
///
/// # Errors
/// Its output likewise, if it fails, or that there is no such program.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).env("LC_ALL", "C").output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if output.status.success() { Ok(said) } else { Err(format!("{program} {arguments:?}: {said}")) }
}

/// What `e2fsck -fn` finds wrong with an image, if anything: a question and a warning count, whatever its exit status.
#[must_use]
pub fn faults(image: &Path) -> Option<String> {
    match run("e2fsck", &["-fn", text(image)]) {
        Ok(said) => (said.contains("Fix?") || said.contains("WARNING")).then_some(said),
        Err(said) => Some(said),
    }
}

/// Asserts that `e2fsck -fn` finds nothing wrong with an image.
///
/// # Panics
/// If it does; `case` says when.
pub fn assert_clean(image: &Path, case: &str) {
    if let Some(faults) = faults(image) {
        panic!("{case}: {faults}");
    }
}

/// A path as an argument.
///
/// # Panics
/// If it is not UTF-8.
#[must_use]
pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}
