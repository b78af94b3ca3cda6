//! Disks from container images of many kinds, beside what other programs unpack (`scripts/container-images`): the small ones.

use std::path::Path;
use std::process::Command;

/// Those that take a second at most. `make test-images` makes all.
const KINDS: [&str; 10] = [
    "busybox",
    "deletions",
    "links",
    "attributes",
    "layer",
    "names",
    "index",
    "saved",
    "saved-layout",
    "zstd",
];

#[test]
fn disks_from_images_of_many_kinds_are_what_other_programs_unpack() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        println!("skipped: container images need root and loop devices");
        return;
    }
    if Command::new("umoci").arg("--version").output().is_err() {
        println!("skipped: umoci is missing");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/container-images");
    let mut command = Command::new(script);
    let output =
        command.arg(dir.path()).arg(env!("CARGO_BIN_EXE_extant")).args(KINDS).output().expect("the script");
    let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
    println!("{text}");
    assert!(output.status.success(), "{text}");
    let ran = text.lines().filter(|line| line.starts_with('|')).count();
    assert!(ran >= 4, "{text}");
}
