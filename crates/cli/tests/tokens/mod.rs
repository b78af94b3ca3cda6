//! Rust sources as tokens, for the tests that read them: without comments, literals and modules of tests.

use std::path::{Path, PathBuf};

/// The sources below `dir`; not `tests.rs` and what is in `tests/`, which are modules of tests.
pub fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let paths = entries.map(|entry| entry.expect("entry").path());
    let paths = paths.filter(|path| path.file_stem().is_none_or(|stem| stem != "tests"));
    let found = paths.flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] });
    found.filter(|path| path.extension().is_some_and(|extension| extension == "rs")).collect()
}

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
pub fn tokens(source: &str) -> Vec<String> {
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
pub fn without_tests(tokens: &[String]) -> Vec<&str> {
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
