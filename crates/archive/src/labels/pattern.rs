//! Patterns of `file_contexts`, which are of PCRE2, for another crate.

use std::iter::Peekable;
use std::str::Chars;

use regex::bytes::{Regex, RegexBuilder};

/// Characters that make a pattern more than a path, as libselinux counts them.
const META: &str = ".^$?*+|[({";

/// A pattern, and what is known of it without matching.
#[derive(Debug)]
pub(super) struct Pattern {
    /// Whether it is for more than one path.
    pub has_meta: bool,
    /// The first directory of the paths that it is for. It is not matched again.
    pub stem: Option<Vec<u8>>,
    /// What the rest of such a path begins with.
    pub prefix: Vec<u8>,
    /// Matches the rest.
    pub regex: Regex,
}

impl Pattern {
    /// Compiles a pattern. The reason, if that cannot be done or would be for other paths than PCRE2's.
    pub fn compile(text: &str) -> Result<Self, String> {
        let failed = |reason: &str| format!("the pattern '{text}' cannot be matched: {reason}");
        let slash = text.bytes().skip(1).position(|byte| byte == b'/').map_or(0, |at| at + 1);
        let (stem, rest) = text.split_at(slash);
        // A stem with a backslash is no directory's name.
        let has_stem = !stem.is_empty() && !stem.contains(|letter| META.contains(letter) || letter == '\\');
        let rest = if has_stem { rest } else { text };
        let (translated, has_alternative) = translate(rest).map_err(failed)?;
        // Anchored as libselinux does that. To PCRE2 the end may be before a newline.
        let anchored = format!("^{translated}(?:\n?\\z)");
        let regex = RegexBuilder::new(&anchored).unicode(false).dot_matches_new_line(true).build();
        let regex = regex.map_err(|error| {
            let error = error.to_string();
            failed(error.lines().last().unwrap_or_default().trim_start_matches("error: "))
        })?;
        let prefix = if has_alternative { Vec::new() } else { prefix(rest) };
        let stem = has_stem.then(|| stem.as_bytes().to_vec());
        Ok(Self { has_meta: has_meta(text), stem, prefix, regex })
    }
}

fn has_meta(text: &str) -> bool {
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter == '\\' {
            letters.next();
        } else if META.contains(letter) {
            return true;
        }
    }
    false
}

/// What all paths begin with that a pattern without alternatives is for.
fn prefix(text: &str) -> Vec<u8> {
    let mut prefix = Vec::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next() {
                Some(escaped) if !escaped.is_ascii_alphanumeric() => prefix.push(escaped as u8),
                // A class of characters, or one by its number.
                _ => break,
            },
            '*' | '?' | '{' => {
                // The character before it may be missing.
                prefix.pop();
                break;
            }
            _ if META.contains(letter) => break,
            _ => prefix.push(letter as u8),
        }
    }
    prefix
}

/// The pattern as the crate spells it, and whether it has alternatives outside of groups. The reason, if there is no such
/// pattern.
fn translate(text: &str) -> Result<(String, bool), &'static str> {
    const TWICE: &str = "a quantifier of a quantifier";
    let mut out = String::new();
    let (mut depth, mut has_alternative) = (0_usize, false);
    // Quantifiers behind the last item: one, and another that makes it lazy.
    let mut quantifiers = 0;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let before = std::mem::take(&mut quantifiers);
        match letter {
            '\\' => escape(&mut letters, &mut out)?,
            '[' => class(&mut letters, &mut out)?,
            '(' => {
                depth += 1;
                out.push('(');
                out.extend(letters.next_if_eq(&'?'));
            }
            '*' | '+' | '?' => {
                if before > 1 || (before == 1 && letter != '?') {
                    return Err(TWICE);
                }
                quantifiers = before + 1;
                out.push(letter);
            }
            '{' => match count(&letters) {
                Some(_) if before > 0 => return Err(TWICE),
                Some(len) => {
                    quantifiers = 1;
                    out.push('{');
                    out.extend(letters.by_ref().take(len));
                }
                None => out.push_str("\\{"),
            },
            '}' => out.push_str("\\}"),
            _ => {
                depth -= usize::from(letter == ')' && depth > 0);
                has_alternative |= letter == '|' && depth == 0;
                out.push(letter);
            }
        }
    }
    Ok((out, has_alternative))
}

/// An escaped character.
fn escape(letters: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), &'static str> {
    let escaped = letters.next().ok_or("it ends with a backslash")?;
    // These would be the begin and the end of a word.
    if !matches!(escaped, '<' | '>') {
        out.push('\\');
    }
    out.push(escaped);
    Ok(())
}

/// Characters of `3}`, `3,}` or `3,5}`, which is a quantifier behind a brace.
fn count(letters: &Peekable<Chars<'_>>) -> Option<usize> {
    let inside: String = letters.clone().take_while(|letter| *letter != '}').collect();
    let (first, last) = inside.split_once(',').unwrap_or((&inside, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let has_end = letters.clone().nth(inside.len()) == Some('}');
    (has_end && !first.is_empty() && is_number(first) && is_number(last)).then_some(inside.len() + 1)
}

/// The rest of a class of characters, behind its bracket.
fn class(letters: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), &'static str> {
    out.push('[');
    out.extend(letters.next_if_eq(&'^'));
    if letters.next_if_eq(&']').is_some() {
        out.push_str("\\]");
    }
    while let Some(letter) = letters.next() {
        match letter {
            ']' => {
                out.push(']');
                return Ok(());
            }
            '\\' => escape(letters, out)?,
            '[' if letters.peek() == Some(&':') => {
                out.push('[');
                out.extend(letters.by_ref().take_while(|letter| *letter != ']'));
                out.push(']');
            }
            '-' if letters.peek() == Some(&'-') => return Err("a range that begins or ends with -"),
            // The crate has operators of these.
            '[' | '&' | '~' => out.extend(['\\', letter]),
            _ => out.push(letter),
        }
    }
    Err("a class of characters without its end")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        let pattern = Pattern::compile(pattern).unwrap();
        let path = path.as_bytes();
        let rest = match &pattern.stem {
            Some(stem) => path.strip_prefix(&stem[..]).expect("stem"),
            None => path,
        };
        let is_match = pattern.regex.is_match(rest);
        assert!(!is_match || rest.starts_with(&pattern.prefix), "{pattern:?}");
        is_match
    }

    #[test]
    fn patterns_match_what_pcre_matches() {
        for (pattern, path, expected) in [
            ("/usr/lib(/.*)?", "/usr/lib/x/y", true),
            ("/usr/lib(/.*)?", "/usr/libx", false),
            ("/usr/lib", "/usr/lib\n", true),
            ("/usr/x.y", "/usr/x\ny", true),
            ("/usr/ab?", "/usr/a", true),
            ("/usr/ab+c", "/usr/abbc", true),
            ("/usr/a{2}", "/usr/aa", true),
            ("/usr/a{x}", "/usr/a{x}", true),
            ("/usr/[^/]*\\.so", "/usr/a.so", true),
            ("/usr/[]x]", "/usr/]", true),
            ("/usr/[[&&~~]", "/usr/[", true),
            ("/usr/[a&&a]", "/usr/&", true),
            ("/usr/[[:digit:]]x", "/usr/7x", true),
            ("/usr/\\<a", "/usr/<a", true),
            ("/usr/\\d", "/usr/7", true),
            ("/usr/a|/b", "/usr/anything", true),
            ("/usr/(a|b)c|d", "/usr/bc", true),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn patterns_that_would_be_other_ones_are_refused() {
        for pattern in
            ["/a++", "/a*+", "/a??+", "/a{2}{3}", "/[a--]", "/a(?=b)", "/(a)\\1", "/[a", "/a\\", "/a)"]
        {
            assert!(Pattern::compile(pattern).is_err(), "{pattern}");
        }
    }

    #[test]
    fn literal_patterns_and_their_beginnings_are_known() {
        for (pattern, has_meta, prefix) in [
            ("/usr/bin/a\\.out", false, "/bin/a.out"),
            ("/usr/bin/ab?", true, "/bin/a"),
            ("/usr/bin/ab*c", true, "/bin/a"),
            ("/usr/bin/ab+", true, "/bin/ab"),
            ("/usr/bin/a|b", true, ""),
            ("/usr/bin/\\d", false, "/bin/"),
        ] {
            let pattern = Pattern::compile(pattern).unwrap();
            assert_eq!((pattern.has_meta, &pattern.prefix[..]), (has_meta, prefix.as_bytes()), "{pattern:?}");
        }
    }
}
