//! `docs/reference/commands.md` ends with the help of every verb.

use std::fmt::Write;
use std::path::Path;

use super::bench::Bench;

/// The line after which the page is generated.
const MARK: &str = "<!-- extant VERB --help -->\n";

/// Verbs that start another program, whose help is not this program's, and clap's own.
const LEFT_OUT: [&str; 3] = ["bench", "lab", "help"];

/// The verbs that `extant --help` lists, in its order.
pub fn verbs(help: &str) -> Vec<&str> {
    let lines =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let verbs = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    verbs.filter_map(|line| line.split_whitespace().next()).filter(|verb| !LEFT_OUT.contains(verb)).collect()
}

#[test]
fn page_of_commands_has_the_help_of_every_verb() {
    let bench = Bench::empty();
    let help = |arguments: &[&str]| {
        let run = bench.finish(bench.extant().env_remove("COLUMNS").args(arguments), b"");
        assert_eq!(run.status, 0, "{arguments:?}: {}", run.err);
        run.out
    };
    let overview = help(&["--help"]);
    let verbs = verbs(&overview);
    assert!(verbs.len() > 20, "{verbs:?}");
    let mut expected = String::new();
    for verb in verbs {
        let help = help(&[verb, "--help"]);
        write!(expected, "\n## {verb}\n\n```text\n{help}```\n").expect("a string");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands.md");
    let page = std::fs::read_to_string(&path).expect("docs/reference/commands.md");
    let (head, shown) = page.split_once(MARK).expect("the mark of what is generated");
    if shown != expected && std::env::var_os("EXTANT_BLESS").is_some() {
        std::fs::write(&path, format!("{head}{MARK}{expected}")).expect("docs/reference/commands.md");
        return;
    }
    assert!(shown == expected, "docs/reference/commands.md is stale; EXTANT_BLESS=1 rewrites it");
}
