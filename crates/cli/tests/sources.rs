//! The libraries' sources keep the rules that the compiler does not: locks, threads and clocks only from `rt`, and
//! no printing, exiting or environment.
//!
//! The check reads tokens: comments and literals are cut out and the trees of `use` written out as whole paths, so
//! that neither a grouped import nor a word in a comment deceives it. Modules of tests are left out.

use std::path::{Path, PathBuf};

/// The interfaces that `rt` replaces.
const RUNTIME: [&str; 7] = [
    "std::sync",
    "core::sync",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
    "std::time::UNIX_EPOCH",
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
const LIBRARIES: [(&str, &[&[&str]]); 9] = [
    ("ondisk", &[&RUNTIME, &PROGRAM, &PROCESSES, &OUTSIDE_WORLD]),
    ("alloc", &[&RUNTIME, &PROGRAM, &PROCESSES]),
    ("journal", &[&RUNTIME, &PROGRAM, &PROCESSES]),
    ("writeback", &[&RUNTIME, &PROGRAM, &PROCESSES]),
    ("extant", &[&RUNTIME, &PROGRAM, &PROCESSES]),
    ("archive", &[&RUNTIME, &PROGRAM, &PROCESSES]),
    ("fuse", &[&RUNTIME, &PROGRAM, &OWN_PROCESS]),
    ("block", &[&RUNTIME, &PROGRAM, &PROCESSES]),
    ("rt", &[&PROGRAM, &PROCESSES]),
];

/// Cuts the quoted literal that begins `rest`; `'` may be a lifetime, which is left alone.
fn literal_bytes(rest: &str) -> Option<usize> {
    let bytes = rest.as_bytes();
    if let Some(raw) = rest.strip_prefix('r') {
        let hashes = raw.bytes().take_while(|byte| *byte == b'#').count();
        raw[hashes..].starts_with('"').then_some(())?;
        let end = format!("\"{}", "#".repeat(hashes));
        let body = hashes + 2;
        return Some(rest[body..].find(&end).map_or(rest.len(), |at| body + at + end.len()));
    }
    let quote = *bytes.first()?;
    let is_char = quote == b'\'' && (bytes.get(1) == Some(&b'\\') || rest.chars().nth(2) == Some('\''));
    if quote != b'"' && !is_char {
        return None;
    }
    let mut at = 1;
    while at < bytes.len() && bytes[at] != quote {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    Some((at + 1).min(bytes.len()))
}

/// The tokens without comments and literals: words with `!` for macros and `::` joined into paths, and other
/// characters alone.
fn tokens(source: &str) -> Vec<String> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut tokens: Vec<String> = Vec::new();
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let joins = tokens.last().is_some_and(|last| last.ends_with("::"));
        let word_bytes = if joins && c == '*' { 1 } else { rest.find(|c| !is_word(c)).unwrap_or(rest.len()) };
        let word = &rest[..word_bytes];
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |at| at + 2)
        } else if let Some(len) = literal_bytes(rest) {
            len
        } else if !word.is_empty() {
            match tokens.last_mut().filter(|_| joins) {
                Some(path) => path.push_str(word),
                None => tokens.push(word.to_owned()),
            }
            word.len()
        } else if rest.starts_with("::") && tokens.last().is_some_and(|last| last.ends_with(is_word)) {
            tokens.last_mut().expect("last").push_str("::");
            2
        } else if rest.starts_with('!')
            && !rest.starts_with("!=")
            && tokens.last().is_some_and(|last| last.ends_with(is_word))
        {
            tokens.last_mut().expect("last").push('!');
            1
        } else if c.is_whitespace() {
            c.len_utf8()
        } else {
            tokens.push(c.to_string());
            c.len_utf8()
        };
        rest = &rest[len..];
    }
    tokens
}

/// The tokens with modules of tests cut out: `#[cfg(test)]` or `#[cfg(all(test, …))]` before `mod name { … }`.
fn without_tests(tokens: &[String]) -> Vec<&str> {
    let mut kept: Vec<&str> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let starts = |words: &[&str]| {
            tokens[at..].iter().zip(words).filter(|(token, word)| token == word).count() == words.len()
        };
        if starts(&["#", "[", "cfg", "(", "test"]) || starts(&["#", "[", "cfg", "(", "all", "(", "test"]) {
            let attribute = at + tokens[at..].iter().position(|token| token == "]").unwrap_or(0) + 1;
            if tokens.get(attribute).is_some_and(|token| token == "mod") {
                at = end_of_module(tokens, attribute);
                continue;
            }
        }
        kept.push(&tokens[at]);
        at += 1;
    }
    kept
}

/// The index after the module that begins at `start`: after its `;` or its closing brace.
fn end_of_module(tokens: &[String], start: usize) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(start) {
        match token.as_str() {
            ";" if depth == 0 => return index + 1,
            "{" => depth += 1,
            "}" if depth <= 1 => return index + 1,
            "}" => depth -= 1,
            _ => {}
        }
    }
    tokens.len()
}

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

/// The paths of a source that are a forbidden one or lie below it, as `std::sync::Arc` below `std::sync`.
fn breaches(source: &str, forbidden: &[&[&str]]) -> Vec<String> {
    let is_below = |path: &str, root: &str| {
        path == root || path.strip_prefix(root).is_some_and(|rest| rest.starts_with("::"))
    };
    let forbidden = || forbidden.iter().copied().flatten();
    paths(source).into_iter().filter(|path| forbidden().any(|root| is_below(path, root))).collect()
}

/// The sources below `dir`; not `tests.rs` and what is in `tests/`, which are modules of tests.
fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let paths = entries.map(|entry| entry.expect("entry").path());
    let paths = paths.filter(|path| path.file_stem().is_none_or(|stem| stem != "tests"));
    let found = paths.flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] });
    found.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
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
            found.extend(
                breaches(&source, forbidden).into_iter().map(|path| format!("{}: {path}", file.display())),
            );
        }
    }
    assert_eq!(found, [""; 0]);
}

/// The files of the engine that flush without the journal: before there is a journal, and the device that all writes go
/// through once there is multiple-mount protection. A flush of its own block that fails fences that device for ever.
const FLUSHING_FILES: [&str; 2] = ["mkfs/write.rs", "mmp.rs"];

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
        use std::{fmt, time::Duration};
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
