//! Labels of SELinux by the rules of `file_contexts`, as `setfiles -F -r ROOT` sets them.
//!
//! The last rule that matches decides, and those without meta characters come after all others. A rule's pattern is one
//! of PCRE2, matched against the whole path: here by a crate that has no look-around and no references to groups, and so
//! needs no stack and no more than linear time. Patterns with those are refused by their line; none of Debian's, Fedora's
//! or Android's policy has them.
//!
//! Source: libselinux, `src/label_file.{c,h}`, `process_line`, `sort_specs`, `lookup_common`; file_contexts(5). Test:
//! `tests/command/labels.rs` of the command, against `setfiles`.

mod pattern;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use extant_rt::Arc;

use crate::device_table::LinePlace;
use crate::entry::{Entry, EntryKind};
use crate::error::{Error, Result};
use pattern::Pattern;

/// The extended attribute that holds the label.
const SELINUX: &[u8] = b"security.selinux";
/// The first bytes of a file that `sefcontext_compile` made.
const COMPILED: [u8; 4] = 0xf97c_ff8a_u32.to_le_bytes();
/// The context of files that keep the label which they have.
const NONE: &[u8] = b"<<none>>";

/// The rules that give files their labels.
#[derive(Debug)]
pub struct FileContexts {
    /// Those without meta characters are last.
    rules: Vec<Rule>,
    /// Directories whose files have labels as if they were elsewhere: `.subs`, then `.subs_dist`.
    substitutions: [Vec<(Vec<u8>, Vec<u8>)>; 2],
}

#[derive(Debug)]
struct Rule {
    pattern: Pattern,
    /// The letter of the type that it is for: `-d`.
    kind: Option<u8>,
    context: Vec<u8>,
}

impl FileContexts {
    /// Reads a `file_contexts`, and beside it `.homedirs`, `.local`, `.subs` and `.subs_dist`, if there are.
    ///
    /// # Errors
    /// [`Error::Host`]; [`Error::Line`] for a line that is malformed, or whose pattern cannot be matched here.
    pub fn open(path: &Path) -> Result<Self> {
        let mut rules = Vec::new();
        read_rules(path, &fs::read(path).map_err(Error::host(path))?, &mut rules)?;
        for suffix in [".homedirs", ".local"] {
            if let Some((path, text)) = beside(path, suffix)? {
                read_rules(&path, &text, &mut rules)?;
            }
        }
        rules.sort_by_key(|rule| !rule.pattern.has_meta);
        let mut substitutions = [Vec::new(), Vec::new()];
        for (suffix, pairs) in [".subs", ".subs_dist"].into_iter().zip(&mut substitutions) {
            if let Some((_, text)) = beside(path, suffix)? {
                *pairs = read_substitutions(&text);
            }
        }
        Ok(Self { rules, substitutions })
    }

    /// The label of the file at an absolute path. None if no rule is for it, or one that says so.
    #[must_use]
    pub fn label(&self, path: &[u8], kind: &EntryKind) -> Option<&[u8]> {
        let substituted = self.substitute(path);
        let path = substituted.as_deref().unwrap_or(path);
        // A file at the root has no stem.
        let slash = path.iter().skip(1).position(|byte| *byte == b'/').map(|at| at + 1);
        let (stem, rest) = path.split_at(slash.unwrap_or(0));
        let letter = letter(kind);
        let matches = |rule: &&Rule| {
            let text = match &rule.pattern.stem {
                Some(of_rule) if of_rule == stem => rest,
                Some(_) => return false,
                None => path,
            };
            rule.kind.is_none_or(|kind| kind == letter)
                && text.starts_with(&rule.pattern.prefix)
                && rule.pattern.regex.is_match(text)
        };
        let rule = self.rules.iter().rfind(matches)?;
        (rule.context != NONE).then_some(&rule.context)
    }

    /// Sets the label of an entry. A further name of a file keeps the label of the first one.
    pub fn apply(&self, entry: &mut Entry) {
        if let EntryKind::HardLink(_) = entry.kind {
            return;
        }
        let path = [&b"/"[..], &entry.path.to_bytes()].concat();
        let Some(label) = self.label(&path, &entry.kind) else { return };
        // The kernel keeps its end.
        let value = [label, b"\0"].concat();
        let xattrs = &mut entry.attributes.xattrs;
        match xattrs.binary_search_by(|(name, _)| name[..].cmp(SELINUX)) {
            Ok(at) => xattrs[at].1 = value,
            Err(at) => xattrs.insert(at, (SELINUX.to_vec(), value)),
        }
    }

    /// The path whose rules are for this one, if it is another.
    fn substitute(&self, path: &[u8]) -> Option<Vec<u8>> {
        let [local, distribution] = &self.substitutions;
        let first = substitute(local, path);
        substitute(distribution, first.as_deref().unwrap_or(path)).or(first)
    }
}

/// The path with another directory at its start. Of several lines the last counts.
fn substitute(pairs: &[(Vec<u8>, Vec<u8>)], path: &[u8]) -> Option<Vec<u8>> {
    pairs.iter().rev().find_map(|(from, to)| {
        let rest = path.strip_prefix(&from[..]).filter(|rest| matches!(rest, [] | [b'/', ..]))?;
        let rest = if to == b"/" { rest.strip_prefix(b"/").unwrap_or(rest) } else { rest };
        Some([to, rest].concat())
    })
}

fn letter(kind: &EntryKind) -> u8 {
    match kind {
        EntryKind::Directory => b'd',
        EntryKind::File(_) | EntryKind::HardLink(_) => b'-',
        EntryKind::Symlink(_) => b'l',
        EntryKind::Fifo => b'p',
        EntryKind::Socket => b's',
        EntryKind::CharDevice(..) => b'c',
        EntryKind::BlockDevice(..) => b'b',
    }
}

/// A file whose name is longer, if it is there.
fn beside(path: &Path, suffix: &str) -> Result<Option<(PathBuf, Vec<u8>)>> {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    let path = PathBuf::from(name);
    match fs::read(&path) {
        Ok(text) => Ok(Some((path, text))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::Host { path, source: error }),
    }
}

/// The fields of a line.
fn fields(line: &[u8]) -> Vec<&[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty()).collect()
}

fn read_rules(path: &Path, text: &[u8], rules: &mut Vec<Rule>) -> Result<()> {
    let file = Arc::new(path.to_owned());
    let place = |at| LinePlace { file: file.clone(), line: at + 1 };
    if text.starts_with(&COMPILED) {
        return Err(place(0).error("compiled rules; name the text that they were made from"));
    }
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let fields = fields(line);
        let (pattern, kind, context) = match fields[..] {
            [] => continue,
            [first, ..] if first.starts_with(b"#") => continue,
            [pattern, context] => (pattern, None, context),
            [pattern, kind, context, ..] => (pattern, Some(kind), context),
            [_] => return Err(place(at).error("a pattern without a label")),
        };
        let kind = match kind {
            None => None,
            Some([b'-', letter @ (b'-' | b'b' | b'c' | b'd' | b'l' | b'p' | b's')]) => Some(*letter),
            Some(_) => return Err(place(at).error("the type is none of --, -b, -c, -d, -l, -p and -s")),
        };
        let text = std::str::from_utf8(pattern).ok().filter(|text| text.is_ascii());
        let text = text.ok_or_else(|| place(at).error("the pattern is not ASCII"))?;
        let pattern = Pattern::compile(text).map_err(|reason| place(at).error(reason))?;
        rules.push(Rule { pattern, kind, context: context.to_vec() });
    }
    Ok(())
}

fn read_substitutions(text: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let lines = text.split(|byte| *byte == b'\n').map(fields);
    let pair = |line: Vec<&[u8]>| match line[..] {
        [from, to, ..] if !from.starts_with(b"#") => Some((from.to_vec(), to.to_vec())),
        _ => None,
    };
    lines.filter_map(pair).collect()
}
