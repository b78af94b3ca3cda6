//! Every command of README.md and docs/guides runs, and prints what the page says (`scripts/run-guides`).

use std::path::Path;
use std::process::{Command, Output};

fn run_guides(pages: &[&Path]) -> (Output, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/run-guides");
    let output =
        Command::new(script).arg(env!("CARGO_BIN_EXE_extant")).args(pages).output().expect("the script");
    let text = String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned();
    (output, text)
}

#[test]
fn every_command_of_the_guides_runs_and_prints_what_the_page_says() {
    let (output, text) = run_guides(&[]);
    println!("{text}");
    assert!(output.status.success(), "{text}");
    let ran = text.lines().last().and_then(|line| line.split(' ').next()?.parse::<u32>().ok());
    assert!(ran.is_some_and(|ran| ran >= 10), "{text}");
}

#[test]
fn a_page_that_says_something_else_fails() {
    let dir = tempfile::tempdir().expect("a directory");
    let page = dir.path().join("page.md");
    let block = |said: &str| format!("```sh\nprintf 'one\\ntwo 2\\nthree\\n'\n```\n```text\n{said}```\n");
    for (said, is_right) in [
        ("one\ntwo ...\nthree\n", true),
        ("...\nthree\n", true),
        ("one\n...\n", true),
        ("one\ntwo 3\nthree\n", false),
        ("one\ntwo 2\n", false),
        ("one\ntwo 2\nthree\nfour\n", false),
        ("...\nfour\n", false),
        ("one\n[a-z]* 2\nthree\n", false),
    ] {
        std::fs::write(&page, block(said)).expect("a page");
        let (output, text) = run_guides(&[&page]);
        assert_eq!(output.status.success(), is_right, "{said}{text}");
    }
    for (words, is_right) in [
        ("```sh\nfalse\n```\n", false),
        ("<!-- needs: no-such-command -->\n```sh\nfalse\n```\n", true),
        ("<!-- run by: make demo -->\n```sh\nfalse\n```\n", true),
        ("<!-- run by: make no-such-target -->\n```sh\nfalse\n```\n", false),
        ("```diff\n--- a/Makefile\n+++ b/Makefile\n@@ -1 +1 @@\n-no such line\n+another\n```\n", false),
    ] {
        std::fs::write(&page, words).expect("a page");
        let (output, text) = run_guides(&[&page]);
        assert_eq!(output.status.success(), is_right, "{words}{text}");
    }
}
