//! `extant bench` and `extant lab` become the programs beside it.

use std::path::Path;
use std::process::Command;

use super::bench::Run;

const ARGUMENTS: [&str; 4] = ["fallocate2", "--cpus", "1,64", "--help"];

fn extant(program: &Path, verb: &str) -> Run {
    Command::new(program).arg(verb).args(ARGUMENTS).output().expect("the command").into()
}

/// Written by a separate process: children of other tests might inherit this process's descriptor for writing, and the
/// program would be busy.
fn shell(script: &str, dir: &Path) {
    let mut command = Command::new("sh");
    let command = command.args(["-ec", script, "sh", env!("CARGO_BIN_EXE_extant")]).current_dir(dir);
    assert!(command.status().expect("a shell").success(), "{script}");
}

#[test]
fn programs_beside_it_are_given_all_arguments_or_said_how_to_be_built() {
    let dir = tempfile::tempdir().expect("a directory");
    let program = dir.path().join("extant");
    shell("cp \"$1\" extant", dir.path());
    let verbs = [
        ("bench", "extant-bench", "cargo build --release -p extant-bench", "run "),
        ("lab", "extant-lab", "make lab", ""),
    ];
    for (verb, name, built_by, first) in verbs {
        let run = extant(&program, verb);
        assert_eq!(run.status, 1, "{}", run.err);
        let expected =
            format!("extant: {name}: not found beside this program; `{built_by}` in its source builds it\n");
        assert_eq!(run.err, expected);

        shell(&format!("printf '#!/bin/sh\\necho \"$@\"\\nexit 7\\n' > {name}; chmod +x {name}"), dir.path());
        let run = extant(&program, verb);
        let given = format!("{first}{}\n", ARGUMENTS.join(" "));
        assert_eq!((run.status, run.out), (7, given), "{}", run.err);
    }
}

#[test]
fn a_lab_for_the_host_does_not_take_the_place_of_the_one_for_virtual_cpus() {
    let dir = tempfile::tempdir().expect("a directory");
    shell("mkdir -p release virtual/release; cp \"$1\" release/extant", dir.path());
    let program = dir.path().join("release/extant");
    shell("printf '#!/bin/sh\nexit 2\n' > release/extant-lab; chmod +x release/extant-lab", dir.path());
    assert_eq!(extant(&program, "lab").status, 2);
    shell(
        "printf '#!/bin/sh\necho virtual\n' > virtual/release/extant-lab; chmod +x virtual/release/extant-lab",
        dir.path(),
    );
    let run = extant(&program, "lab");
    assert_eq!((run.status, run.out.as_str()), (0, "virtual\n"), "{}", run.err);
}
