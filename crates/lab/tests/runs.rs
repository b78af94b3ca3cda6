//! The lab gives the same figures each time, and the engine scales on its CPUs.
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

fn run(load: &str, cpus: &str) -> String {
    lab(&["run", load, "--cpus", cpus, "--microseconds", "200", "--json"])
}

#[test]
fn two_runs_give_the_same_bytes() {
    for load in ["fallocate2", "create-unlink", "stat"] {
        let first = run(load, "1,8");
        assert!((0..5).all(|_| run(load, "1,8") == first), "{load}");
    }
    let tables = lab(&["run", "fallocate2", "--cpus", "1,8", "--microseconds", "200"]);
    assert!(tables.contains("\n| 8 | "), "{tables}");
}

/// The runs of a load on one CPU and on 32, in directories of their own: these are as fast as that one alone.
fn scales(load: &str, microseconds: &str) -> Value {
    // Time enough for the first passes, on which names and lines come to their CPUs, not to count.
    let document = lab(&["run", load, "--cpus", "1,32", "--microseconds", microseconds, "--json"]);
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let rate = |run: usize| document["runs"][run]["per_second"].as_f64().expect("a rate");
    assert!(rate(1) >= 0.95 * rate(0), "{load}: {} of {}", rate(1), rate(0));
    document
}

#[test]
fn appends_scale_and_move_no_line_of_another_but_for_refills() {
    let document = scales("fallocate2", "1500");
    let lines = document["runs"][1]["lines"].as_object().expect("lines");
    let moved: f64 = lines.values().map(|line| line["shared"].as_f64().expect("a share")).sum();
    assert!(moved <= 1.0 / 16.0, "{moved} lines per operation: {lines:#?}");
}

#[test]
fn older_forms_do_not_scale() {
    let document = lab(&[
        "run",
        "fallocate2",
        "--cpus",
        "1,16",
        "--microseconds",
        "200",
        "--policy",
        "oldest",
        "--json",
    ]);
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let rate = |run: usize| document["runs"][run]["per_second"].as_f64().expect("a rate");
    assert!(rate(1) < 0.5 * rate(0), "{} of {}", rate(1), rate(0));
}

#[test]
fn what_holds_a_load_up_is_what_brings_most_if_it_is_halved() {
    let causal =
        ["run", "fallocate2", "--cpus", "16", "--microseconds", "200", "--policy", "oldest", "--causal"];
    let document: Value = serde_json::from_str(&lab(&[&causal[..], &["--json"]].concat())).expect("JSON");
    let causes = document["causes"].as_array().expect("causes");
    let gain = |cause: &Value| cause["gain"].as_f64().expect("a gain");
    // The groups' locks, and the lines that whoever has one moves.
    let most = causes.iter().filter(|cause| gain(cause) > 0.1);
    let mut most: Vec<_> = most.filter_map(|cause| cause["class"].as_str()).collect();
    most.sort_unstable();
    assert_eq!(most, ["GROUP", "GROUPS"], "{causes:#?}");
    assert!(lab(&causal).contains("\nOn 16 CPUs, if a class took half of its time\n"));
}

#[test]
fn the_part_of_linear_lies_between_those_by_each_cost() {
    let run = ["run", "fallocate2", "--cpus", "1,8", "--microseconds", "100", "--policy", "oldest"];
    let document = lab(&[&run[..], &["--sensitivity", "--json"]].concat());
    let document: Value = serde_json::from_str(&document).expect("JSON");
    let number = |value: &Value| value.as_f64().expect("a number");
    let rate = |run: usize| number(&document["runs"][run]["per_second"]);
    let span = &document["of_linear"][0];
    let (least, largest) = (number(&span["least"]), number(&span["largest"]));
    assert_eq!(span["cpus"].as_u64(), Some(8));
    let plain = rate(1) / rate(0);
    assert!(least < 0.95 * plain && plain < 0.95 * largest, "{least} {plain} {largest}");
}

#[test]
fn policies_are_steps_of_the_ladder_or_files_whose_mistakes_are_named() {
    let file = std::env::temp_dir().join(format!("extant-lab-policy-{}.toml", std::process::id()));
    let path = file.to_str().expect("a path");
    let run = |policy: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_extant-lab"));
        let run = ["run", "fallocate2", "--cpus", "2", "--microseconds", "50", "--policy", policy];
        let output = command.args(run).output().expect("the lab");
        let said = if output.status.success() { output.stdout } else { output.stderr };
        String::from_utf8(said).expect("text")
    };
    std::fs::write(&file, "").expect("a file");
    assert_eq!(run(path), run("default"));
    std::fs::write(&file, "skip_bussy = true\n").expect("a file");
    assert!(run(path).contains("unknown field `skip_bussy`"), "{}", run(path));
    std::fs::remove_file(&file).expect("the file");
    let wrong = run("patch-99");
    let (_, names) = wrong.split_once("policies by name: ").expect("the names");
    for name in ["round-robin", "oldest", "patch-9", "default"] {
        assert!(names.trim_end().split(", ").any(|known| known == name), "{wrong}");
    }
}

#[test]
fn creates_and_unlinks_scale() {
    scales("create-unlink", "2500");
}

#[test]
fn stats_scale() {
    scales("stat", "300");
}

#[test]
fn machines_are_listed_and_serve_as_files() {
    assert_eq!(
        lab(&["list"]),
        "kunpeng920\nkunpeng920-kernel\namd9654-kernel\nxeon2690v3-kernel\nxeon2630v3-kernel\nxeon2670v3-kernel\nunnamed-kernel\n"
    );
    let file = std::env::temp_dir().join(format!("extant-lab-{}.toml", std::process::id()));
    std::fs::write(&file, lab(&["machine", "kunpeng920"])).expect("a file");
    let by_file = ["run", "fallocate2", "--cpus", "2", "--microseconds", "50", "--machine"];
    let by_file = lab(&[&by_file[..], &[file.to_str().expect("a path")]].concat());
    std::fs::remove_file(&file).expect("the file");
    let by_name = lab(&["run", "fallocate2", "--cpus", "2", "--microseconds", "50"]);
    assert_eq!(by_file, by_name);
}

#[test]
fn lines_that_all_handles_write_keep_a_load_from_scaling() {
    let file = std::env::temp_dir().join(format!("extant-lab-handles-{}.toml", std::process::id()));
    let at_8 = |lines: &str| {
        let machine =
            format!("handle = {{ start = {lines}, stop = {lines} }}\n{}", lab(&["machine", "kunpeng920"]));
        std::fs::write(&file, machine).expect("a file");
        let run = ["run", "fallocate2", "--cpus", "1,8", "--microseconds", "100", "--json", "--machine"];
        let document = lab(&[&run[..], &[file.to_str().expect("a path")]].concat());
        let document: Value = serde_json::from_str(&document).expect("JSON");
        let rate = |run: usize| document["runs"][run]["per_second"].as_f64().expect("a rate");
        rate(1) / rate(0)
    };
    let (apart, together) = (at_8("[]"), at_8("[0, 1, 0, 1]"));
    std::fs::remove_file(&file).expect("the file");
    assert!(apart > 0.95 && together < 0.5, "{apart} {together}");
}

#[test]
fn loads_of_suites_scale_in_directories_of_their_own_and_as_far_as_they_work_side_by_side_in_one() {
    let rate_of = |load: &str, cpus: &str, microseconds: &str| {
        let run =
            ["run", load, "--cpus", cpus, "--microseconds", microseconds, "--steps-max", "1500", "--json"];
        let document = lab(&run);
        let document: Value = serde_json::from_str(&document).expect("JSON");
        let rate = |run: usize| document["runs"][run]["per_second"].as_f64().expect("a rate");
        rate(1) / rate(0)
    };
    let own = ["mwcl", "mwrl", "drbl", "dwol", "mrpl"].map(|load| (load, 0.85..1.1));
    // Creates, unlinks and renames hold a leaf of the one directory each. A look at a name holds nothing that others write.
    let shared = [("mwcm", 0.5..1.0), ("mwum", 0.5..1.0), ("mwrm", 0.4..1.0), ("mrph", 0.85..1.1)];
    for (load, wanted) in own.into_iter().chain(shared) {
        let rate = rate_of(load, "1,8", "500");
        assert!(wanted.contains(&rate), "{load}: {rate}");
    }
    // Directories are made side by side once the one above is shared, which takes a while.
    let (links, directories) = (rate_of("link-shared", "1,8", "3000"), rate_of("mdtest-dirs", "1,2", "3000"));
    // A lock that checks its order, as in this build, makes a buffer's state two lines; without, links have 0.85.
    assert!(links > 0.7 && directories > 0.8, "{links} {directories}");
}
