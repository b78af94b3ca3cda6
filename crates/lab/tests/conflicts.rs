//! What operations on disjoint files share: nothing but for refills, and with the allocators' oldest forms their locks.
//!
//! Run by `make test-virtual`.
#![cfg(extant_rt = "virtual")]

use std::process::Command;

use serde_json::Value;

fn lab(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_extant-lab")).args(arguments).output().expect("the lab");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// What a pair shares: lines per operation, and the classes of locks among them.
fn conflict(arguments: &[&str]) -> (f64, Vec<String>) {
    let document = lab(&[&["conflict", "--json"], arguments].concat());
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let lines = document[0]["lines"].as_array().expect("lines");
    let classes = lines.iter().filter_map(|line| line["class"].as_str().map(str::to_owned));
    (document[0]["shared"].as_f64().expect("a share"), classes.collect())
}

#[test]
fn operations_on_disjoint_files_share_lines_for_refills_alone() {
    for pair in [
        ["fallocate2", "fallocate2"],
        ["create-unlink", "append"],
        ["stat", "overwrite"],
        ["create", "create"],
        ["create", "unlink"],
        ["unlink", "unlink"],
        ["small-files", "small-files"],
        ["sparse-writes", "random-fill"],
        ["sparse-writes", "sparse-writes"],
        ["random-fill", "random-fill"],
    ] {
        let (shared, _) = conflict(&pair);
        assert!(shared <= 1.0 / 64.0, "{pair:?}: {shared}");
    }
}

#[test]
fn oldest_forms_share_locks_which_are_named() {
    let (shared, classes) = conflict(&["fallocate2", "--policy", "oldest"]);
    assert!(shared > 0.1, "{shared}");
    assert!(classes.iter().any(|class| class == "MD_LOCK"), "{classes:?}");
}

#[test]
fn a_pair_gives_the_same_bytes_each_time() {
    let pair = || lab(&["conflict", "create", "small-files"]);
    assert_eq!(pair(), pair());
}
