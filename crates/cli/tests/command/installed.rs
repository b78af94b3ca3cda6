//! What `make install` puts beside the command: completions of shells and manual pages.

use std::fs;

use super::bench::Bench;
use super::reference::verbs;

#[test]
fn bash_completes_verbs_and_options() {
    let bench = Bench::empty();
    let script = bench.path("completions");
    fs::write(&script, bench.ok(&["completions", "bash"]).out).expect("the script");
    let complete = |words: &str, index: usize, word: &str, before: &str| {
        let line = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD={index}; _extant extant {word} {before}; echo ${{COMPREPLY[@]}}",
            script.display()
        );
        bench.program("bash", &["-c", &line]).out
    };
    assert_eq!(complete("extant mk", 1, "mk", "extant"), "mkfs mkdir\n");
    assert_eq!(complete("extant resize --dry", 2, "--dry", "resize"), "--dry-run\n");
}

#[test]
fn zsh_completes_verbs_at_a_terminal() {
    let bench = Bench::empty();
    fs::write(bench.path("_extant"), bench.ok(&["completions", "zsh"]).out).expect("the script");
    let driver = "
        zmodload zsh/zpty
        zpty shell zsh -f -i
        zpty -w shell \"PS1=; fpath=($PWD \\$fpath); autoload -U compinit; compinit -u -D; echo is\\_ready\"
        zpty -r -m shell output '*is_ready*'
        zpty -w -n shell $'extant umo\\t'
        zpty -r -m shell output '*extant umount*'
        print -r -- ${output##*extant umo}
        zpty -d shell";
    assert_eq!(bench.program("zsh", &["-f", "-c", driver]).out.trim_end(), "unt");
}

#[test]
fn each_verb_has_a_manual_page() {
    let bench = Bench::empty();
    let pages = bench.path("man1");
    fs::create_dir(&pages).expect("a directory");
    bench.ok(&["manuals", "man1"]);
    for verb in verbs(&bench.ok(&["--help"]).out) {
        assert!(pages.join(format!("extant-{verb}.1")).exists(), "{verb}");
    }
    let page = bench.program("man", &["--warnings", "-l", "man1/extant-resize.1"]);
    assert_eq!(page.err, "", "warnings");
    for text in ["extant-resize", "SYNOPSIS", "--dry-run", "NOTES", "extant resize disk.img min"] {
        assert!(page.out.contains(text), "{text}: {}", page.out);
    }
    bench.fails(1, &["manuals", "missing"]);
}
