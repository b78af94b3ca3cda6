//! The files of a crate import one another in no circle, and the modules of the engine only from those below them in the table of
//! ARCHITECTURE.md.
//!
//! A module and the modules inside it may import each other: they are one unit. A name that a module re-exports counts as an import of
//! the file that defines it; names of a glob re-export count as the root's. Modules of tests are left out.

mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tokens::{rust_files, tokens, without_tests};

/// The path of a module below the root, or of an item, by its names.
type ModulePath = Vec<String>;

/// Which file imports from which, both by their paths below `src`.
type Imports = BTreeSet<(String, String)>;

fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The paths of a source, absolute from the root of its crate.
#[derive(Default)]
struct Paths {
    /// What the source names of its crate.
    named: Vec<ModulePath>,
    /// Names that a module makes visible to others, with the paths of the items.
    exported: BTreeMap<ModulePath, ModulePath>,
}

/// Reads the paths of a source of `module`.
struct PathReader {
    module: ModulePath,
    /// The braces that are open.
    depth: usize,
    /// The braces that are open around each module that is inside the source.
    inner: Vec<usize>,
    paths: Paths,
}

impl PathReader {
    fn read(module: ModulePath, source: &str) -> Paths {
        let tokens = tokens(source);
        let tokens = without_tests(&tokens);
        let mut reader = Self { module, depth: 0, inner: Vec::new(), paths: Paths::default() };
        let mut at = 0;
        while at < tokens.len() {
            match tokens[at] {
                "use" => {
                    let end = at + tokens[at..].iter().position(|token| *token == ";").unwrap_or(0);
                    let is_public = at > 0 && matches!(tokens[at - 1], "pub" | ")");
                    reader.read_tree(&[], &tokens[at + 1..end.max(at + 1)], is_public);
                    at = end.max(at);
                }
                "mod" if tokens.get(at + 2) == Some(&"{") => {
                    reader.module.push(tokens[at + 1].to_owned());
                    reader.inner.push(reader.depth);
                }
                "{" => reader.depth += 1,
                "}" => {
                    reader.depth = reader.depth.saturating_sub(1);
                    if reader.inner.pop_if(|depth| *depth == reader.depth).is_some() {
                        reader.module.pop();
                    }
                }
                path => reader.name(path),
            }
            at += 1;
        }
        reader.paths
    }

    /// The path from the root, for one that begins with `crate`, `self` or `super`.
    fn absolute(&self, path: &str) -> Option<ModulePath> {
        let mut names = path.split("::").filter(|name| !name.is_empty()).peekable();
        let mut base = match names.next()? {
            "crate" => Vec::new(),
            "self" => self.module.clone(),
            "super" => self.module[..self.module.len().checked_sub(1)?].to_vec(),
            _ => return None,
        };
        while names.next_if_eq(&"super").is_some() {
            base.pop();
        }
        base.extend(names.map(str::to_owned));
        Some(base)
    }

    fn name(&mut self, path: &str) {
        self.paths.named.extend(self.absolute(path).filter(|path| !path.is_empty()));
    }

    /// Reads the tree of a `use`, or of a brace in one, below `prefix`.
    fn read_tree(&mut self, prefix: &[&str], tree: &[&str], is_public: bool) {
        let mut depth = 0_usize;
        let branches = tree.split(|token| {
            match *token {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            *token == "," && depth == 0
        });
        for branch in branches {
            let Some(first) = branch.first() else { continue };
            if *first == "{" {
                self.read_tree(prefix, &branch[1..branch.len() - 1], is_public);
                continue;
            }
            let whole: Vec<&str> = prefix.iter().copied().chain(first.split("::")).collect();
            if branch.get(1) == Some(&"{") {
                self.read_tree(&whole, &branch[2..branch.len() - 1], is_public);
                continue;
            }
            let names: Vec<&str> = whole.into_iter().filter(|name| !name.is_empty()).collect();
            let path =
                names.strip_suffix(&["self"]).filter(|rest| !rest.is_empty()).unwrap_or(&names).join("::");
            self.name(&path);
            if is_public {
                let alias = branch.iter().rposition(|token| *token == "as").and_then(|at| branch.get(at + 1));
                let shown = alias.copied().unwrap_or(path.rsplit("::").next().unwrap_or_default());
                // A path without a keyword begins with a module inside this one.
                let item = self.absolute(&path).or_else(|| self.absolute(&format!("self::{path}")));
                let place = [&self.module[..], &[shown.to_owned()]].concat();
                self.paths.exported.extend(item.filter(|item| *item != place).map(|item| (place, item)));
            }
        }
    }
}

/// The module of a file: `["a", "b"]` for `a/b.rs` and `a/b/mod.rs`, none for the root.
fn module_of(file: &str) -> ModulePath {
    let path = file.strip_suffix(".rs").unwrap_or(file);
    let path = path.strip_suffix("/mod").unwrap_or(path);
    let is_root = matches!(path, "lib" | "main");
    path.split('/').filter(|_| !is_root).map(str::to_owned).collect()
}

/// Who imports from whom among the files of a crate, which `sources` has by their paths below `src`.
fn imports(sources: &BTreeMap<String, String>) -> Imports {
    let files: BTreeMap<ModulePath, &String> = sources.keys().map(|file| (module_of(file), file)).collect();
    let read = |(file, source): (&String, &String)| (file.clone(), PathReader::read(module_of(file), source));
    let paths: BTreeMap<String, Paths> = sources.iter().map(read).collect();
    let exported: BTreeMap<&ModulePath, &ModulePath> = paths.values().flat_map(|of| &of.exported).collect();
    let mut imports = Imports::new();
    for (file, of) in &paths {
        for path in &of.named {
            let defined_in = file_of(path, &files, &exported);
            imports.extend(defined_in.filter(|to| *to != file).map(|to| (file.clone(), to.clone())));
        }
    }
    imports
}

/// The file of the module that defines the item at `path`.
fn file_of<'f>(
    path: &[String],
    files: &BTreeMap<ModulePath, &'f String>,
    exported: &BTreeMap<&ModulePath, &ModulePath>,
) -> Option<&'f String> {
    const RE_EXPORTS_MAX: usize = 8;
    let mut path = path.to_vec();
    for _ in 0..RE_EXPORTS_MAX {
        let Some(len) = (1..=path.len()).find(|len| exported.contains_key(&path[..*len].to_vec())) else {
            break;
        };
        path = [&exported[&path[..len].to_vec()][..], &path[len..]].concat();
    }
    (0..=path.len()).rev().find_map(|len| files.get(&path[..len]).copied())
}

/// Whether one of two files is the module that the other is inside of.
fn is_one_unit(left: &str, right: &str) -> bool {
    let (left, right) = (module_of(left), module_of(right));
    left.starts_with(&right) || right.starts_with(&left)
}

/// The files of each circle.
fn circles(imports: &Imports) -> Vec<String> {
    let mut next: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (from, to) in imports.iter().filter(|(from, to)| !is_one_unit(from, to)) {
        next.entry(from).or_default().push(to);
    }
    let reached = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(file) = open.pop() {
            let fresh = next.get(file).into_iter().flatten().copied().filter(|file| seen.insert(*file));
            open.extend(fresh.collect::<Vec<_>>());
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> = next.keys().map(|file| (*file, reached(file))).collect();
    let circle = |file: &&str| {
        let returns = |other: &&&str| reached.get(**other).is_some_and(|back| back.contains(file));
        let all: Vec<&str> = reached[file].iter().filter(returns).copied().collect();
        (!all.is_empty()).then(|| all.join(", "))
    };
    let circles: BTreeSet<String> = reached.keys().filter_map(circle).collect();
    circles.into_iter().collect()
}

/// The top-level module of a file; none for the root.
fn layer_of(file: &str) -> Option<String> {
    module_of(file).into_iter().next()
}

/// The lines of the table of layers, top first: the first fenced block below the heading, each line's leading words that name a
/// module.
fn layers(architecture: &str, modules: &BTreeSet<String>) -> Vec<Vec<String>> {
    let section = architecture.split("## Layers of the engine").nth(1);
    let table = section.and_then(|rest| rest.split("```").nth(1)).unwrap_or_default();
    let names = |line: &str| {
        line.split_whitespace().map(str::to_owned).take_while(|word| modules.contains(word)).collect()
    };
    table.lines().map(names).filter(|names: &Vec<String>| !names.is_empty()).collect()
}

/// What breaks the table: a module that it lists not once, an import from a module that is not on a line below.
fn layer_breaches(layers: &[Vec<String>], modules: &BTreeSet<String>, imports: &Imports) -> Vec<String> {
    let line_of = |name: &str| layers.iter().position(|line| line.iter().any(|listed| listed == name));
    let listed = |name: &String| layers.iter().flatten().filter(|listed| *listed == name).count();
    let unlisted = modules.iter().filter(|module| listed(module) != 1);
    let upward = imports.iter().filter(|(from, to)| match (layer_of(from), layer_of(to)) {
        (Some(from), Some(to)) => from != to && line_of(&to) <= line_of(&from),
        _ => false,
    });
    unlisted
        .map(|module| format!("{module} is listed {} times in the table", listed(module)))
        .chain(upward.map(|(from, to)| format!("{from} imports from {to}, which is not below it")))
        .collect()
}

/// The sources of a crate by their paths below `src`.
fn sources(name: &str) -> BTreeMap<String, String> {
    let src = workspace().join("crates").join(name).join("src");
    let read = |file: &Path| {
        let path = file.strip_prefix(&src).expect("below src").to_str().expect("UTF-8").to_owned();
        (path, std::fs::read_to_string(file).expect("source"))
    };
    rust_files(&src).iter().map(|file| read(file)).collect()
}

/// The crates by the names of their directories.
fn crates() -> Vec<String> {
    let entries = std::fs::read_dir(workspace().join("crates")).expect("crates");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("entry").file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

#[test]
fn no_circle_of_imports_among_the_files_of_a_crate() {
    let mut found = Vec::new();
    for name in crates() {
        let sources = sources(&name);
        let imports = imports(&sources);
        // A root and its only module need no imports from each other, and neither do the parts of `testing` and `policies`.
        let is_apart = sources.len() <= 2 || ["testing", "policies"].contains(&&*name);
        assert!(is_apart || !imports.is_empty(), "{name}: no imports: the check saw nothing");
        let circles = circles(&imports);
        found.extend(circles.into_iter().map(|circle| format!("{name}: {circle}")));
    }
    assert_eq!(found, [""; 0]);
}

#[test]
fn modules_of_the_engine_import_only_from_lines_below_their_own() {
    let sources = sources("extant");
    let modules: BTreeSet<String> = sources.keys().filter_map(|file| layer_of(file)).collect();
    let architecture = std::fs::read_to_string(workspace().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let layers = layers(&architecture, &modules);
    assert_eq!(layer_breaches(&layers, &modules, &imports(&sources)), [""; 0]);
}

fn sample(files: &[(&str, &str)]) -> BTreeMap<String, String> {
    files.iter().map(|(file, source)| ((*file).to_owned(), (*source).to_owned())).collect()
}

#[test]
fn checks_find_breaches_in_a_bad_sample() {
    let sources = sample(&[
        (
            "lib.rs",
            "mod top; mod low; mod cache; pub use low::{index::{Index as Named}, Low}; use crate::top::Top;",
        ),
        ("top.rs", "use crate::{Low, cache::{self, Cache}}; fn f() { crate::low::index::f() }"),
        ("low/mod.rs", "pub(crate) mod index; pub(crate) use self::index::Node; use super::top::Top;"),
        ("low/index.rs", "use super::Low; use super::super::cache::Cache;"),
        ("cache/mod.rs", "mod slots; mod inner { use super::slots::Slots; use super::super::Named; }"),
        ("cache/slots.rs", "fn f(node: crate::low::Node) {} mod more { use super::super::slots::X; }"),
    ]);
    let imports = imports(&sources);
    let named = |from: &str| -> Vec<&str> {
        imports.iter().filter(|(file, _)| file == from).map(|(_, to)| to.as_str()).collect()
    };
    assert_eq!(named("top.rs"), ["cache/mod.rs", "low/index.rs", "low/mod.rs"]);
    assert_eq!(named("low/index.rs"), ["cache/mod.rs", "low/mod.rs"]);
    assert_eq!(named("cache/mod.rs"), ["cache/slots.rs", "low/index.rs"]);
    assert_eq!(named("cache/slots.rs"), ["low/index.rs"]);
    assert_eq!(circles(&imports), ["cache/mod.rs, low/index.rs", "low/mod.rs, top.rs"]);

    let modules: BTreeSet<String> = ["top", "low", "cache", "lost"].map(str::to_owned).into();
    let table =
        "# A\n## Layers\n```\nlow\n```\n## Layers of the engine\n```\ntop    paths\nlow cache    maps\n```\n";
    let layers = layers(table, &modules);
    assert_eq!(layers, [vec!["top"], vec!["low", "cache"]]);
    assert_eq!(
        layer_breaches(&layers, &modules, &imports),
        [
            "lost is listed 0 times in the table",
            "cache/mod.rs imports from low/index.rs, which is not below it",
            "cache/slots.rs imports from low/index.rs, which is not below it",
            "low/index.rs imports from cache/mod.rs, which is not below it",
            "low/mod.rs imports from top.rs, which is not below it",
        ]
    );
}

#[test]
fn checks_accept_a_good_sample() {
    let sources = sample(&[
        ("main.rs", "mod a; mod b;"),
        (
            "a.rs",
            "/// As [`crate::b::B`], see `crate::b`.\nuse crate::c::C; const S: &str = \"crate::b\"; // crate::b",
        ),
        ("b.rs", "use crate::a::A; use std::{fmt, io}; impl crate::a::A {}"),
        ("c/mod.rs", "pub mod d; use d::D; #[cfg(test)] mod tests { use crate::b::B; }"),
        ("c/d.rs", "use super::C; use self::inner::X; mod inner { use super::Y; }"),
    ]);
    let imports = imports(&sources);
    let modules: BTreeSet<String> = sources.keys().filter_map(|file| layer_of(file)).collect();
    assert_eq!(circles(&imports), [""; 0]);
    let layers = layers("## Layers of the engine\n```\nb   names\na   words\nc\n```\n", &modules);
    assert_eq!(layer_breaches(&layers, &modules, &imports), [""; 0]);
}
