//! `extant lab` becomes the program beside it.

use std::path::Path;
use std::process::Command;

use super::bench::Run;

fn lab(extant: &Path) -> Run {
    let arguments = ["lab", "run", "fallocate2", "--cpus", "1,64", "--help"];
    Command::new(extant).args(arguments).output().expect("the command").into()
}

/// By a process of its own: what this one had open for writing, children of other tests might have too, and it would be busy.
fn shell(script: &str, dir: &Path) {
    let mut command = Command::new("sh");
    let command = command.args(["-ec", script, "sh", env!("CARGO_BIN_EXE_extant")]).current_dir(dir);
    assert!(command.status().expect("a shell").success(), "{script}");
}

#[test]
fn lab_is_given_all_arguments_or_said_how_to_be_built() {
    let dir = tempfile::tempdir().expect("a directory");
    let extant = dir.path().join("extant");
    shell("cp \"$1\" extant", dir.path());
    let run = lab(&extant);
    assert_eq!(run.status, 1, "{}", run.err);
    assert_eq!(
        run.err,
        "extant: extant-lab: not found beside this program; `make lab` in its source builds it\n"
    );

    let program = "printf '#!/bin/sh\\necho \"$@\"\\nexit 7\\n' > extant-lab; chmod +x extant-lab";
    shell(program, dir.path());
    let run = lab(&extant);
    assert_eq!((run.status, run.out.as_str()), (7, "run fallocate2 --cpus 1,64 --help\n"), "{}", run.err);
}
