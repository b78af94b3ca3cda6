//! The crates keep to the layers of ARCHITECTURE.md, and bring no locks or caches of other people's.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Crates that another runtime could not take the place of.
const FOREIGN_RUNTIMES: [&str; 22] = [
    "arc-swap",
    "async-std",
    "crossbeam",
    "crossbeam-channel",
    "crossbeam-epoch",
    "crossbeam-utils",
    "dashmap",
    "flume",
    "flurry",
    "foyer",
    "lock_api",
    "loom",
    "lru",
    "moka",
    "once_cell",
    "papaya",
    "parking_lot",
    "quick_cache",
    "rayon",
    "scc",
    "spin",
    "tokio",
];

/// A package that uses another.
struct Edge {
    from: String,
    to: String,
    is_member: bool,
}

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The short name of a member: `alloc` for `extant-alloc`. The engine is `extant` itself.
fn short(package: &str) -> &str {
    package.strip_prefix("extant-").unwrap_or(package)
}

/// The members' short names, and the dependencies among them outside tests.
fn members_and_edges() -> (Vec<String>, Vec<Edge>) {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(workspace())
        .output()
        .expect("cargo metadata");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let packages = metadata["packages"].as_array().expect("packages");
    let members = packages.iter().map(|package| short(&text(&package["name"])).to_owned()).collect();
    let edges = packages.iter().flat_map(|package| {
        let dependencies = package["dependencies"].as_array().expect("dependencies");
        dependencies.iter().filter(|dependency| dependency["kind"] != "dev").map(|dependency| Edge {
            from: short(&text(&package["name"])).to_owned(),
            to: short(&text(&dependency["name"])).to_owned(),
            is_member: !dependency["path"].is_null(),
        })
    });
    (members, edges.collect())
}

/// The lines of the layer table, top first: the first fenced block below the heading, each line's leading words
/// that name a member.
fn layers(architecture: &str, members: &[String]) -> Vec<Vec<String>> {
    let table =
        architecture.split("## Layers").nth(1).and_then(|rest| rest.split("```").nth(1)).unwrap_or("");
    let is_member = |word: &&str| members.iter().any(|member| member == word);
    let line = |line: &str| line.split_whitespace().take_while(is_member).map(str::to_owned).collect();
    table.lines().map(line).filter(|names: &Vec<String>| !names.is_empty()).collect()
}

/// What breaks the table: a member that it lists not once, a use of a crate that is not on a line below.
fn layer_breaches(layers: &[Vec<String>], members: &[String], edges: &[Edge]) -> Vec<String> {
    let line_of = |name: &str| layers.iter().position(|line| line.iter().any(|listed| listed == name));
    let listed = |name: &String| layers.iter().flatten().filter(|listed| *listed == name).count();
    let unlisted = members.iter().filter(|member| listed(member) != 1);
    let upward = edges.iter().filter(|edge| edge.is_member && line_of(&edge.to) <= line_of(&edge.from));
    unlisted
        .map(|member| format!("{member} stands {} times in the table", listed(member)))
        .chain(upward.map(|edge| format!("{} uses {}, which is not below it", edge.from, edge.to)))
        .collect()
}

fn foreign_runtimes(edges: &[Edge]) -> Vec<String> {
    let foreign = edges.iter().filter(|edge| !edge.is_member && FOREIGN_RUNTIMES.contains(&edge.to.as_str()));
    foreign.map(|edge| format!("{} uses {}", edge.from, edge.to)).collect()
}

#[test]
fn crates_use_only_crates_of_lines_below_their_own() {
    let (members, edges) = members_and_edges();
    let architecture = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    assert!(edges.iter().any(|edge| edge.is_member), "no member uses another: the check saw nothing");
    assert_eq!(layer_breaches(&layers(&architecture, &members), &members, &edges), [""; 0]);
}

#[test]
fn no_crate_brings_locks_or_caches_of_other_people() {
    let (_, edges) = members_and_edges();
    assert!(edges.iter().any(|edge| !edge.is_member), "no dependencies: the check saw nothing");
    assert_eq!(foreign_runtimes(&edges), [""; 0]);
}

#[test]
fn checks_find_breaches_in_a_bad_sample() {
    let edge = |from: &str, to: &str, is_member| Edge { from: from.to_owned(), to: to.to_owned(), is_member };
    let members = ["cli", "alloc", "journal", "rt", "lost"].map(str::to_owned);
    let table = "# A\n## Layers\nwords\n```\ncli        the command\nalloc   journal   they never meet\nrt     locks\n```\n";
    let layers = layers(table, &members);
    assert_eq!(layers, [vec!["cli"], vec!["alloc", "journal"], vec!["rt"]]);
    let edges = [
        edge("cli", "rt", true),
        edge("alloc", "rt", true),
        edge("alloc", "journal", true),
        edge("rt", "alloc", true),
        edge("alloc", "thiserror", false),
        edge("journal", "parking_lot", false),
    ];
    assert_eq!(
        layer_breaches(&layers, &members, &edges),
        [
            "lost stands 0 times in the table",
            "alloc uses journal, which is not below it",
            "rt uses alloc, which is not below it",
        ]
    );
    assert_eq!(foreign_runtimes(&edges), ["journal uses parking_lot"]);
}
