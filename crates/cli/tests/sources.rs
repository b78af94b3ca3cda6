//! The libraries' sources keep the rules that the compiler does not: locks, threads and clocks only from `rt`, and
//! no printing, exiting or environment.
//!
//! The check reads tokens: comments and literals are cut out and the trees of `use` written out as whole paths, so
//! that neither a grouped import nor a word in a comment deceives it. Modules of tests are left out.

mod tokens;

use std::path::{Path, PathBuf};

use tokens::{rust_files, tokens, without_tests};

/// The interfaces that `rt` replaces. The name of `SystemTime` alone reads no clock.
const RUNTIME: [&str; 7] = [
    "std::sync",
    "core::sync",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime::now",
    "SystemTime::now",
    "std::time::*",
];

/// Interfaces that a library does not use.
const PROGRAM: [&str; 9] = [
    "std::env",
    "print!",
    "println!",
    "eprint!",
    "eprintln!",
    "dbg!",
    "std::io::stdout",
    "std::io::stderr",
    "std::io::stdin",
];

/// Crates that start programs do nothing else with processes: `fuse` calls `fusermount3`.
const PROCESSES: [&str; 1] = ["std::process"];
const OWN_PROCESS: [&str; 3] = ["std::process::exit", "std::process::abort", "std::process::id"];

/// Interfaces that a library which works on bytes alone does not use.
const OUTSIDE_WORLD: [&str; 6] = ["extant_rt", "extant_block", "std::fs", "std::io", "std::net", "std::os"];

/// Each library with what it must not name. `rt` and `block` name the host's own interfaces.
const LIBRARIES: [(&str, &[&[&str]]); 13] = [
    ("ondisk", &[&RUNTIME, &PROGRAM, &PROCESSES, &OUTSIDE_WORLD]),
    ("alloc", &[&RUNTIME, &PROGRAM, &PROCESSES]),
    ("journal", &[&RUNTIME, &PROGRAM, &PROCESSES]),
    ("writeback", &[&RUNTIME, &PROGRAM, &PROCESSES]),
    ("extant", &[&RUNTIME, &PROGRAM, &PROCESSES]),
    ("archive", &[&RUNTIME, &PROGRAM, &PROCESSES]),
    ("diskimage", &[&RUNTIME, &PROGRAM, &PROCESSES]),
    ("capi", &[&RUNTIME, &PROGRAM, &PROCESSES]),
    ("http", &[&RUNTIME, &PROGRAM, &PROCESSES]),
    ("nbd", &[&RUNTIME, &PROGRAM, &PROCESSES]),
    ("fuse", &[&RUNTIME, &PROGRAM, &OWN_PROCESS]),
    ("block", &[&RUNTIME, &PROGRAM, &PROCESSES]),
    ("rt", &[&PROGRAM, &PROCESSES]),
];

/// Files that name what their library must not: a lock that the caller made.
const EXEMPT: [(&str, &str); 1] = [("block/src/vec.rs", "std::sync")];

/// Every path that the source names, those of `use` trees written out.
fn paths(source: &str) -> Vec<String> {
    let tokens = tokens(source);
    let mut paths = Vec::new();
    // The whole prefix before each brace that is open in a `use`.
    let mut prefixes: Vec<String> = Vec::new();
    let mut in_use = false;
    let mut last = String::new();
    for token in without_tests(&tokens) {
        match token {
            "use" => in_use = true,
            ";" => (in_use, last) = (false, String::new()),
            "{" if in_use => prefixes.push(std::mem::take(&mut last)),
            "}" if in_use => {
                prefixes.pop();
            }
            "," => last.clear(),
            _ => {
                last = prefixes.last().cloned().unwrap_or_default() + token;
                paths.push(last.trim_start_matches("::").to_owned());
            }
        }
        if !in_use {
            prefixes.clear();
        }
    }
    paths
}

fn is_below(path: &str, root: &str) -> bool {
    path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with("::"))
}

/// The paths of a source that are a forbidden one or lie below it, as `std::sync::Arc` below `std::sync`.
fn breaches(source: &str, forbidden: &[&[&str]]) -> Vec<String> {
    let forbidden = || forbidden.iter().copied().flatten();
    paths(source).into_iter().filter(|path| forbidden().any(|root| is_below(path, root))).collect()
}

#[test]
fn libraries_take_locks_and_clocks_from_rt_and_are_no_programs() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for (library, forbidden) in LIBRARIES {
        let files = rust_files(&crates.join(library).join("src"));
        assert!(!files.is_empty(), "{library}: no sources: the check saw nothing");
        for file in files {
            let source = std::fs::read_to_string(&file).expect("source");
            let is_exempt = |path: &String| {
                EXEMPT.iter().any(|(exempt, root)| file.ends_with(exempt) && is_below(path, root))
            };
            found.extend(
                breaches(&source, forbidden)
                    .into_iter()
                    .filter(|path| !is_exempt(path))
                    .map(|path| format!("{}: {path}", file.display())),
            );
        }
    }
    assert_eq!(found, [""; 0]);
}

/// The files of the engine that flush without the journal: before there is a journal, when the disk is not mounted, and the device that all writes go
/// through once there is multiple-mount protection. A flush of its own block that fails fences that device for ever.
const FLUSHING_FILES: [&str; 7] = [
    "mkfs/write.rs",
    "mount/mmp.rs",
    "resize/shrink/log.rs",
    "tune/backups.rs",
    "tune/groups.rs",
    "tune/staged.rs",
    "tune/switch.rs",
];

/// How often a source makes a device durable without the journal.
fn flushes(source: &str) -> usize {
    let tokens = tokens(source);
    let kept = without_tests(&tokens);
    let fua = kept.iter().filter(|token| **token == "write_fua").count();
    fua + kept.windows(3).filter(|three| three[0].ends_with("device") && three[1..] == [".", "flush"]).count()
}

/// A device reports lost writes once. So the journal alone flushes, and is aborted by a flush that fails.
#[test]
fn nobody_but_the_journal_flushes_a_mounted_disk() {
    let engine = Path::new(env!("CARGO_MANIFEST_DIR")).join("../extant/src");
    let flushing = |file: &PathBuf| flushes(&std::fs::read_to_string(file).expect("source")) > 0;
    let mut found: Vec<PathBuf> = rust_files(&engine).into_iter().filter(flushing).collect();
    found.sort();
    assert_eq!(found, FLUSHING_FILES.map(|file| engine.join(file)));
    assert_eq!(flushes("fn f(&self) { self.device.flush()?; device.write_fua(0, b) }"), 2);
    assert_eq!(flushes("fn f(&self) { journal.flush()?; node.flush(); /* device.flush() */ }"), 0);
}

#[test]
fn check_finds_breaches_in_a_bad_sample() {
    let found = |source: &str| breaches(source, &[&RUNTIME, &PROGRAM, &PROCESSES]);
    for (source, path) in [
        ("use std::sync::Arc;", "std::sync::Arc"),
        ("use std::{fmt, sync::{atomic::AtomicU64, Arc}};", "std::sync::Arc"),
        ("use std :: { io, time::{Duration, Instant} };", "std::time::Instant"),
        ("use std::time::*;", "std::time::*"),
        ("use std::thread;", "std::thread"),
        ("fn f() { let now = ::std::time::SystemTime::now(); }", "std::time::SystemTime::now"),
        ("use std::time::SystemTime; fn f() { SystemTime::now() }", "SystemTime::now"),
        ("fn f() { std::process::exit(1) }", "std::process::exit"),
        ("fn f() { println!(\"x\"); }", "println!"),
        ("fn f<'a>(x: &'a str) { let c = '\"'; eprintln!(\"\"); }", "eprintln!"),
        ("const A: &str = r#\"quote \" in raw\"#; use std::env;", "std::env"),
        ("#[cfg(test)] mod tests { fn f() { { } } } use std::env;", "std::env"),
    ] {
        assert!(found(source).iter().any(|found| found == path), "{source}: {:?}", found(source));
    }
    let ondisk = breaches("use extant_rt::Mutex; use std::io::Read;", &[&OUTSIDE_WORLD]);
    assert_eq!(ondisk, ["extant_rt::Mutex", "std::io::Read"]);
}

#[test]
fn check_accepts_a_good_sample() {
    let source = r##"
        //! Nothing here uses std::sync or println!.
        use std::{fmt, time::{Duration, SystemTime}};
        use extant_rt::{Arc, Mutex};
        /* std::thread */
        fn f(env: u8) { let text = "std::sync::Arc \" println!()"; let raw = r#"std::env"#; let sync = env != 1; }
        #[cfg(test)]
        mod tests { use std::sync::Mutex; #[test] fn t() { println!("{}", 1); } }
        #[cfg(all(test, debug_assertions))]
        mod more_tests { use std::thread; }
        #[cfg(test)]
        mod tests_in_a_file;
        fn g() {}
    "##;
    assert_eq!(breaches(source, &[&RUNTIME, &PROGRAM, &PROCESSES]), [""; 0]);
}
