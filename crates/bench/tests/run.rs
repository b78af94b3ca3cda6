//! `extant-bench run`: what it prints, not how quick anything is.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_extant-bench"));
    let output = command.arg("run").args(arguments).output().expect("the program");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn each_load_target_and_number_of_threads_is_an_object_with_its_counts() {
    let plot = tempfile::NamedTempFile::new().expect("a file");
    let path = plot.path().to_str().expect("a path");
    let loads = ["create-unlink", "fallocate2"];
    let options =
        ["--threads", "1,2", "--against", "tmpfs", "--policy", "nearest-fit,linear", "--rounds", "2"];
    let rest = ["--milliseconds", "20", "--json", "--plot", path];
    let (code, out, err) = run(&[&loads[..], &options, &rest].concat());
    assert_eq!(code, Some(0), "{err}");
    let rows: Vec<Value> = serde_json::from_str(&out).expect("an array");
    let name = |row: &Value, key: &str| row[key].as_str().unwrap_or("-").to_owned();
    let seen: BTreeSet<_> = rows
        .iter()
        .map(|row| (name(row, "load"), name(row, "target"), name(row, "policy"), row["threads"].as_u64()))
        .collect();
    assert_eq!((rows.len(), seen.len()), (2 * 4 * 2, 2 * 4 * 2), "{seen:?}");
    for row in &rows {
        let [median, min, max] = ["median", "min", "max"].map(|key| row[key].as_f64().expect("a figure"));
        assert!(0.0 < min && min <= median && median <= max, "{row}");
        assert_eq!((&row["unit"], &row["rounds"]), (&"operations/s".into(), &2.into()), "{row}");
        let locks = row["counts"]["group_locks"].as_f64();
        match row["target"].as_str() {
            // An inode's and, when a file first needs any, blocks'.
            Some("extant") => assert!(locks.is_some_and(|locks| (0.9..3.0).contains(&locks)), "{row}"),
            _ => assert_eq!(locks, None, "{row}"),
        }
    }
    let drawn = std::fs::read_to_string(plot.path()).expect("a plot");
    assert!(drawn.contains("create + unlink of empty files") && drawn.contains("extant linear"));
}

#[test]
fn what_is_missing_is_named() {
    let arguments = ["stat", "--threads", "1", "--against", "tmpfs", "--rounds", "1", "--milliseconds", "5"];
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let dir = dir.path().to_str().expect("a path");
    let (code, out, err) = run(&[&arguments[..], &["--dir", dir]].concat());
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("tmpfs: not measured (the images' directory is not on a tmpfs)"), "{err}");
    assert!(out.contains("| extant | 1 |") && !out.contains("tmpfs"), "{out}");
    let (code, _, err) = run(&["stat", "--threads", "0"]);
    assert_eq!(
        (code, err.as_str()),
        (Some(1), "extant-bench: --threads: a load needs at least one thread\n")
    );
}

#[test]
fn loads_of_suites_run_through_the_library_and_as_system_calls() {
    let loads = "drbl drbm drbh dwol dwom dwal dwtl dwsl mrpl mrpm mrph mrdl mrdm mwcl mwcm mwul mwum mwrl mwrm mdtest-shared \
                 mdtest-dirs link-shared varmail dbench ior-shared";
    let options = "--threads 2 --against tmpfs --rounds 1 --milliseconds 50 --json";
    let arguments: Vec<_> = loads.split_whitespace().chain(options.split_whitespace()).collect();
    let (code, out, err) = run(&arguments);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let rows: Vec<Value> = serde_json::from_str(&out).expect("an array");
    assert_eq!(rows.len(), 25 * 3, "{out}");
    assert!(rows.iter().all(|row| row["median"].as_f64() > Some(0.0)), "{out}");
    let (code, _, err) = run(&["stat", "--policy", "best-guess"]);
    assert!(code == Some(2) && err.contains("one of nearest-fit") && err.contains("worst-fit"), "{err}");
}

#[test]
fn a_machine_is_compared_only_where_there_is_a_lab() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_extant-bench"));
    let output = command.args(["machine", "--lab", "/no-such-lab"]).output().expect("the program");
    let text = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("/no-such-lab: no such program; `make lab` builds it"), "{text}");
}
