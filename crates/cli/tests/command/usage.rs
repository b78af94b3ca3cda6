//! Wrong usage, help, exit statuses, errors for programs.

use serde_json::Value;

use super::bench::{Bench, DISK, tool};

const VERBS: [&str; 18] = [
    "mkfs", "import", "export", "cp", "ls", "cat", "stat", "rm", "mkdir", "mv", "ln", "chmod", "chown",
    "info", "check", "replay", "top", "",
];

#[test]
fn every_verb_explains_itself_with_examples() {
    let bench = Bench::empty();
    for verb in VERBS {
        let arguments: Vec<&str> = [verb, "--help"].into_iter().filter(|word| !word.is_empty()).collect();
        let help = bench.ok(&arguments).out;
        assert!(help.contains("Usage:"), "{verb}: {help}");
        assert!(help.contains("Example"), "{verb}: {help}");
        for line in help.lines() {
            assert!(line.chars().count() <= 110, "{verb}: {line}");
        }
    }
    // The long form says more than the table of options.
    assert!(bench.ok(&["mkfs", "--help"]).out.contains("SOURCE_DATE_EPOCH"));
    assert!(bench.ok(&["check", "--help"]).out.contains("16 if"));
}

#[test]
fn wrong_usage_exits_with_2_and_of_check_with_16() {
    let bench = Bench::empty();
    for arguments in [
        &[][..],
        &["no-such-verb"],
        &["ls"],
        &["ls", "--no-such-option", DISK],
        &["ls", "--offset", "1X", DISK],
        &["ls", "--offset", "1", "--partition", "1", DISK],
        &["chmod", "u+q", "disk.img:/x"],
        &["mv", "disk.img:/x"],
        &["mv", "a.img:/x", "b.img:/x"],
        &["cp", "a", "b"],
        &["ln", "disk.img:/x", "other.img:/y"],
        &["mkdir", "disk.img:/"],
        &["replay"],
        &["top"],
        &["top", "-d", "0", "."],
        &["top", "-d", "NaN", "."],
        &["top", "-n", "0", "."],
    ] {
        bench.fails(2, arguments);
    }
    bench.fails(16, &["check"]);
    bench.fails(16, &["check", "--no-such-option", DISK]);
}

#[test]
fn missing_disk_is_a_failure_that_names_it() {
    let bench = Bench::empty();
    for verb in ["ls", "cat", "stat", "rm", "mkdir"] {
        let said = bench.fails(1, &[verb, "missing.img:/x"]);
        assert!(said.starts_with("extant: missing.img: "), "{verb}: {said}");
    }
    bench.fails(8, &["check", "missing.img"]);
    assert!(!bench.path("missing.img").exists());
}

#[test]
fn errors_are_documents_where_results_are() {
    let Some(bench) = Bench::new() else { return };
    let error = |status, arguments: &[&str]| {
        let said = bench.fails(status, arguments);
        let document: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
        let text =
            |key: &str| document["error"][key].as_str().unwrap_or_else(|| panic!("{key}: {said}")).to_owned();
        (text("kind"), text("where"), text("message"))
    };
    let (kind, place, message) = error(1, &["cat", "--json", "disk.img:/missing"]);
    assert_eq!((kind.as_str(), place.as_str()), ("not_found", "disk.img:/missing"));
    assert!(message.contains("no such file"), "{message}");
    assert_eq!(error(1, &["info", "--json", "missing.img"]).0, "not_found");
    assert_eq!(error(2, &["ls", "--json"]).0, "usage");
    assert_eq!(error(16, &["check", "--json"]).0, "usage");
    assert_eq!(error(8, &["check", "--json", "missing.img"]).0, "not_found");
}

#[test]
fn what_exists_on_the_host_is_meant_before_a_disk() {
    let Some(bench) = Bench::new() else { return };
    std::fs::create_dir(bench.path("disk.img:")).expect("directory");
    std::fs::write(bench.path("disk.img:/hostname"), "of the host\n").expect("file");
    bench.ok(&["cp", "disk.img:/hostname", "disk.img:/etc/copy"]);
    assert_eq!(bench.content(DISK, "/etc/copy"), b"of the host\n");
    let said = bench.fails(1, &["ls", "nbd://host/disk"]);
    assert!(said.contains("nbd://host/disk"), "{said}");
}

/// A crate that is built outside of a checkout has the version alone.
#[test]
fn version_names_the_commit_that_was_built() {
    let bench = Bench::empty();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let has_checkout = std::path::Path::new(root).join(".git").exists() && tool("git").is_some();
    let commit = match has_checkout {
        true => bench.shell(&format!(
            "git -C {root} show -s --abbrev=9 --date=short --format=' (%h %cd)' 2>/dev/null || echo"
        )),
        false => "\n".to_owned(),
    };
    assert_eq!(bench.ok(&["--version"]).out, format!("extant {}{commit}", env!("CARGO_PKG_VERSION")));
}
