//! Device tables: owners, modes and special files of a tree, line by line.
//!
//! ```text
//! # name        type mode uid gid major minor start inc count
//! /dev          d    755  0   0   -     -     -     -   -
//! /dev/null     c    666  0   0   1     3     -     -   -
//! /dev/ttyS     c    660  0   20  4     64    0     1   4
//! /bin/ping     f    755  0   0
//!  |xattr cap_net_raw+ep
//! ```
//!
//! The form of genext2fs and makedevs; where they differ, that of Buildroot's makedevs: `count` is a number of nodes, and
//! one node has no number in its name. Lines take effect in their order.
//!
//! Source: Buildroot, "Makedev syntax documentation" and `package/makedevs/makedevs.c`; genext2fs(8). Test:
//! `tests/command/ownership.rs` of the command, against genext2fs.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use extant_ondisk::Timestamp;
use extant_ondisk::mode::S_IALLUGO;
use extant_rt::Arc;

use crate::capability::CapabilityChange;
use crate::error::{Error, Result};
use crate::path::TreePath;
use crate::user_database::UserDatabase;

/// Rules that all tables may have together: a line of a million nodes is as many.
const RULES_MAX: usize = 1 << 20;
/// The last numbers that an ext4 inode holds.
const MAJOR_MAX: u32 = 0xfff;
const MINOR_MAX: u32 = 0xf_ffff;

/// A line of a file, for messages.
#[derive(Clone, Debug)]
pub(crate) struct LinePlace {
    pub file: Arc<PathBuf>,
    pub line: usize,
}

impl LinePlace {
    /// What is wrong there.
    pub fn error(&self, reason: impl Into<String>) -> Error {
        Error::Line { file: (*self.file).clone(), line: self.line, reason: reason.into() }
    }
}

/// The type that a line gives its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleKind {
    /// A regular file, which exists, unless it is optional.
    File {
        is_optional: bool,
    },
    Directory,
    /// What exists with all below it.
    Recursive,
    CharDevice(u32, u32),
    BlockDevice(u32, u32),
    Fifo,
}

/// What a line says of one file.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub place: LinePlace,
    pub path: TreePath,
    pub kind: RuleKind,
    /// None leaves it.
    pub mode: Option<u16>,
    pub uid: u32,
    pub gid: u32,
    pub capabilities: Vec<CapabilityChange>,
    /// The time that a new file gets: the table's own.
    pub mtime: Timestamp,
}

/// The lines of device tables.
#[derive(Debug, Default)]
pub struct DeviceTable {
    pub(crate) rules: Vec<Rule>,
    /// The rules for each path.
    pub(crate) exact: HashMap<Vec<u8>, Vec<usize>>,
    /// The rules for each path and all below it.
    pub(crate) recursive: HashMap<Vec<u8>, Vec<usize>>,
}

impl DeviceTable {
    /// Whether a table has users or groups by name.
    #[must_use]
    pub fn has_names(text: &[u8]) -> bool {
        let is_name =
            |field: Option<&&[u8]>| field.is_some_and(|name| UserDatabase::default().user(name).is_none());
        text.split(|byte| *byte == b'\n').any(|line| {
            let fields: Vec<&[u8]> = fields(line).collect();
            is_name(fields.get(3)) || is_name(fields.get(4))
        })
    }

    /// Adds the lines of a table. New files get `mtime`. `names` has the users and groups that lines have by name.
    ///
    /// # Errors
    /// [`Error::Line`].
    pub fn read(&mut self, file: &Path, text: &[u8], mtime: Timestamp, names: &UserDatabase) -> Result<()> {
        let file = Arc::new(file.to_owned());
        let mut last = self.rules.len()..self.rules.len();
        for (at, text) in text.split(|byte| *byte == b'\n').enumerate() {
            let place = LinePlace { file: file.clone(), line: at + 1 };
            let texts = fields(text).map(std::str::from_utf8).collect::<Result<Vec<_>, _>>();
            let fields = texts.map_err(|_| place.error("not UTF-8"))?;
            match *fields {
                [] => {}
                ["|xattr", capabilities] => {
                    if last.is_empty() {
                        return Err(place.error("|xattr follows the line of its file"));
                    }
                    let change =
                        CapabilityChange::parse(capabilities).map_err(|reason| place.error(reason))?;
                    for rule in &mut self.rules[last.clone()] {
                        rule.capabilities.push(change.clone());
                    }
                }
                _ => {
                    let first = self.rules.len();
                    self.line(place, &fields, mtime, names)?;
                    last = first..self.rules.len();
                }
            }
        }
        Ok(())
    }

    fn line(
        &mut self,
        place: LinePlace,
        fields: &[&str],
        mtime: Timestamp,
        names: &UserDatabase,
    ) -> Result<()> {
        let [name, kind, mode, user, group, numbers @ ..] = fields else {
            return Err(
                place.error("fewer than 5 fields: name type mode uid gid major minor start inc count")
            );
        };
        let wrong = |field: &str, value: &str, what: &str| place.error(format!("{field} '{value}' {what}"));
        let number = |at: usize, field: &str| match numbers.get(at) {
            None | Some(&"-") => Ok(None),
            Some(digits) => digits
                .parse::<u32>()
                .ok()
                .filter(|number| *number <= MINOR_MAX)
                .map(Some)
                .ok_or_else(|| wrong(field, digits, "is neither a number up to 1048575 nor -")),
        };
        let [major, minor, start, inc, count] =
            [(0, "major"), (1, "minor"), (2, "start"), (3, "inc"), (4, "count")]
                .map(|(at, field)| number(at, field));
        let (major, minor, start, inc, count) = (major?, minor?, start?, inc?, count?.unwrap_or(0));
        if let Some(more) = numbers.get(5) {
            return Err(wrong("field", more, "comes after the 10 of a line"));
        }
        let device = || match (major, minor) {
            (Some(major), Some(minor)) if major <= MAJOR_MAX => Ok((major, minor)),
            (Some(_), Some(_)) => Err(place.error(format!("major is above {MAJOR_MAX}"))),
            _ => Err(place.error("a device without a major and a minor number")),
        };
        let kind = match *kind {
            "f" => RuleKind::File { is_optional: false },
            "F" => RuleKind::File { is_optional: true },
            "d" => RuleKind::Directory,
            "r" => RuleKind::Recursive,
            "p" => RuleKind::Fifo,
            "c" => device().map(|(major, minor)| RuleKind::CharDevice(major, minor))?,
            "b" => device().map(|(major, minor)| RuleKind::BlockDevice(major, minor))?,
            kind => return Err(wrong("type", kind, "is none of f, F, d, r, c, b and p")),
        };
        let octal = |digits: &str| u16::from_str_radix(digits, 8).ok().filter(|mode| *mode <= S_IALLUGO);
        let may_keep = matches!(kind, RuleKind::File { .. } | RuleKind::Directory | RuleKind::Recursive);
        let mode = match *mode {
            "-1" if may_keep => None,
            digits => Some(octal(digits).ok_or_else(|| wrong("mode", digits, "is not octal"))?),
        };
        let id = |field, name: &str, id: Option<u32>| {
            let id = id.filter(|id| *id != u32::MAX);
            id.ok_or_else(|| wrong(field, name, "is neither a number nor a name in the tree's own files"))
        };
        let (uid, gid) = (names.user(user.as_bytes()), names.group(group.as_bytes()));
        let (uid, gid) = (id("uid", user, uid)?, id("gid", group, gid)?);
        let rule = |name: &str, kind| {
            let path = TreePath::parse(name.as_bytes()).map_err(|error| place.error(error.to_string()))?;
            let (place, capabilities) = (place.clone(), Vec::new());
            Ok(Rule { place, path, kind, mode, uid, gid, capabilities, mtime })
        };
        if count > 0 && may_keep {
            return Err(place.error("count is for devices and pipes"));
        }
        if count <= 1 {
            return self.add(rule(name, kind)?);
        }
        let inc = inc.ok_or_else(|| place.error("count without inc, what the minor number grows by"))?;
        for at in 0..count {
            let start = start.unwrap_or(0);
            let grown = |minor: u32| {
                let minor = at.checked_mul(inc).and_then(|more| minor.checked_add(more));
                minor
                    .filter(|minor| *minor <= MINOR_MAX)
                    .ok_or_else(|| place.error("minor grows above 1048575"))
            };
            let kind = match kind {
                RuleKind::CharDevice(major, minor) => RuleKind::CharDevice(major, grown(minor)?),
                RuleKind::BlockDevice(major, minor) => RuleKind::BlockDevice(major, grown(minor)?),
                kind => kind,
            };
            self.add(rule(&format!("{name}{}", start + at), kind)?)?;
        }
        Ok(())
    }

    fn add(&mut self, rule: Rule) -> Result<()> {
        if self.rules.len() >= RULES_MAX {
            return Err(rule.place.error("more than 1048576 files in device tables"));
        }
        let by_path = match rule.kind {
            RuleKind::Recursive => &mut self.recursive,
            _ => &mut self.exact,
        };
        by_path.entry(rule.path.to_bytes()).or_default().push(self.rules.len());
        self.rules.push(rule);
        Ok(())
    }

    /// The rules for a path, in their order.
    pub(crate) fn rules_for(&self, path: &[u8]) -> Vec<usize> {
        let mut rules = self.exact.get(path).cloned().unwrap_or_default();
        if !self.recursive.is_empty() {
            let above = std::iter::once(path).chain(ancestors(path));
            rules.extend(above.filter_map(|path| self.recursive.get(path)).flatten());
            rules.sort_unstable();
        }
        rules
    }
}

/// The fields of a line before a comment.
fn fields(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
    fields.take_while(|field| !field.starts_with(b"#"))
}

/// The directories above a path, up to the root.
pub(crate) fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(directory(path), |path| directory(path))
}

/// The directory that a path is in; none for the root.
fn directory(path: &[u8]) -> Option<&[u8]> {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => Some(&path[..slash]),
        None => (!path.is_empty()).then_some(&path[..0]),
    }
}
