//! A tree with what device tables say of it: owners and modes of what it has, and the files that it has not.
//!
//! Test: `tests/command/ownership.rs` of the command.

use std::collections::HashMap;

use extant_rt::Arc;

use crate::capability::{CAPABILITY, CapabilityChange, FileCapabilities};
use crate::device_table::{DeviceTable, Rule, RuleKind, ancestors};
use crate::entry::{Attributes, DIRECTORY_MODE, Entry, EntryKind};
use crate::error::{Error, Result};
use crate::flow::{Extent, Sink, Source};
use crate::host_file::HostFile;
use crate::path::{PathWriter, TreePath};

/// A source whose entries device tables change. It pours the files that only they have at the end.
#[derive(Debug)]
pub struct Tabled<S> {
    source: S,
    table: Arc<DeviceTable>,
}

impl<S: Source> Tabled<S> {
    /// Pours what `source` pours, as the tables have it.
    pub fn new(source: S, table: Arc<DeviceTable>) -> Self {
        Self { source, table }
    }
}

impl<S: Source> Source for Tabled<S> {
    fn pour(&mut self, sink: &mut dyn Sink, extent: Extent) -> Result<()> {
        self.source.pour(&mut Placing::new(sink, &self.table), extent)
    }
}

/// What is known of a directory that the tables put something into.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    Absent,
    Directory,
    /// A file or a link, in which nothing can be put.
    Other,
}

struct Placing<'a> {
    sink: &'a mut dyn Sink,
    table: &'a DeviceTable,
    /// Whether each rule met a file.
    met: Vec<bool>,
    /// The directories above the rules' files.
    above: HashMap<Vec<u8>, Presence>,
    paths: PathWriter,
    parent: TreePath,
}

impl<'a> Placing<'a> {
    fn new(sink: &'a mut dyn Sink, table: &'a DeviceTable) -> Self {
        let mut above = HashMap::from([(Vec::new(), Presence::Directory)]);
        for path in table.exact.keys() {
            for directory in std::iter::once(&path[..]).chain(ancestors(path)) {
                above.entry(directory.to_vec()).or_insert(Presence::Absent);
            }
        }
        let met = vec![false; table.rules.len()];
        Self { sink, table, met, above, paths: PathWriter::default(), parent: TreePath::root() }
    }

    fn note(&mut self, path: &[u8], presence: Presence) {
        if let Some(known) = self.above.get_mut(path) {
            *known = presence;
        }
    }

    /// Applies rules to an entry, in their order.
    fn apply(&mut self, entry: &mut Entry, rules: &[usize]) -> Result<()> {
        for at in rules {
            self.met[*at] = true;
            self.table.rules[*at].apply(entry)?;
        }
        Ok(())
    }

    /// A further name of a file is to get what its first name gets.
    fn check_link(&mut self, entry: &Entry, original: &TreePath, rules: &[usize]) -> Result<()> {
        let of_original = self.table.rules_for(&original.to_bytes());
        let rule = |at: &usize| &self.table.rules[*at];
        if Effect::of(rules.iter().map(rule)) != Effect::of(of_original.iter().map(rule))
            && let Some(last) = rules.iter().chain(&of_original).max()
        {
            let Entry { path, .. } = entry;
            let reason =
                format!("{path} and {original} are names of one file; what is for one is to be for both");
            return Err(rule(last).place.error(reason));
        }
        rules.iter().for_each(|at| self.met[*at] = true);
        Ok(())
    }

    /// Makes the file of a rule, to which that and later ones apply.
    fn make(&mut self, at: usize) -> Result<()> {
        let rule = &self.table.rules[at];
        let kind = match rule.kind {
            RuleKind::Directory => EntryKind::Directory,
            RuleKind::CharDevice(major, minor) => EntryKind::CharDevice(major, minor),
            RuleKind::BlockDevice(major, minor) => EntryKind::BlockDevice(major, minor),
            RuleKind::Fifo => EntryKind::Fifo,
            RuleKind::File { is_optional: true } => return Ok(()),
            RuleKind::File { is_optional: false } | RuleKind::Recursive => {
                return Err(rule.place.error(format!("there is no {}", rule.path)));
            }
        };
        let path = rule.path.to_bytes();
        let parents: Vec<Vec<u8>> = ancestors(&path).map(<[u8]>::to_vec).collect();
        for (depth, parent) in (0..).zip(parents.iter().rev()) {
            match self.above.get(parent) {
                Some(Presence::Directory) => {}
                Some(Presence::Other) => {
                    let parent = rule.path.above(depth);
                    let reason =
                        format!("{parent} is no directory; name the one that it leads to, if it is a link");
                    return Err(rule.place.error(reason));
                }
                _ if rule.kind == RuleKind::Directory => {
                    self.emit(rule.path.above(depth), parent, EntryKind::Directory, DIRECTORY_MODE, at)?;
                }
                _ => {
                    let parent = rule.path.above(depth);
                    let reason =
                        format!("there is no directory {parent}; add a line of type d for it before");
                    return Err(rule.place.error(reason));
                }
            }
        }
        self.emit(rule.path.clone(), &path, kind, DIRECTORY_MODE, at)
    }

    /// Pours a new file. Rules from `first` on apply to it.
    fn emit(&mut self, path: TreePath, bytes: &[u8], kind: EntryKind, mode: u16, first: usize) -> Result<()> {
        let presence = if kind == EntryKind::Directory { Presence::Directory } else { Presence::Other };
        self.note(bytes, presence);
        let attributes = Attributes { mode, mtime: self.table.rules[first].mtime, ..Attributes::default() };
        let mut entry = Entry { path, kind, attributes };
        let mut rules = self.table.rules_for(bytes);
        rules.retain(|at| *at >= first);
        self.apply(&mut entry, &rules)?;
        self.sink.entry(entry)
    }
}

impl Sink for Placing<'_> {
    fn entry(&mut self, mut entry: Entry) -> Result<()> {
        let path = self.paths.spell(&entry.path).to_vec();
        if let Some((parent, _)) = entry.path.split_last()
            && *parent != self.parent
        {
            self.parent = parent.clone();
            // An archive need not list them.
            ancestors(&path).for_each(|path| self.note(path, Presence::Directory));
        }
        let is_directory = entry.kind == EntryKind::Directory;
        self.note(&path, if is_directory { Presence::Directory } else { Presence::Other });
        let rules = self.table.rules_for(&path);
        match entry.kind.clone() {
            EntryKind::HardLink(original) => self.check_link(&entry, &original, &rules)?,
            _ => self.apply(&mut entry, &rules)?,
        }
        self.sink.entry(entry)
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.sink.content(offset, bytes)
    }

    fn host_file(&mut self, file: HostFile) -> Result<Option<HostFile>> {
        self.sink.host_file(file)
    }

    fn is_skipping(&self) -> bool {
        self.sink.is_skipping()
    }

    fn finish(&mut self) -> Result<()> {
        for at in 0..self.table.rules.len() {
            if !self.met[at] {
                self.make(at)?;
            }
        }
        self.sink.finish()
    }
}

/// What rules do to a file together.
#[derive(Default, PartialEq, Eq)]
struct Effect<'a> {
    /// The type that they demand, if it is not that of a regular file.
    kind: Option<RuleKind>,
    owner: Option<(u32, u32)>,
    mode: Option<u16>,
    capabilities: Vec<&'a CapabilityChange>,
}

impl<'a> Effect<'a> {
    fn of(rules: impl Iterator<Item = &'a Rule>) -> Self {
        rules.fold(Self::default(), |mut effect, rule| {
            let has_kind = !matches!(rule.kind, RuleKind::File { .. } | RuleKind::Recursive);
            effect.kind = has_kind.then_some(rule.kind).or(effect.kind);
            effect.owner = Some((rule.uid, rule.gid));
            effect.mode = rule.mode.or(effect.mode);
            effect.capabilities.extend(&rule.capabilities);
            effect
        })
    }
}

impl Rule {
    /// Changes an entry that it is for.
    fn apply(&self, entry: &mut Entry) -> Result<()> {
        let is_as_told = match (self.kind, &entry.kind) {
            (RuleKind::Recursive, _)
            | (RuleKind::File { .. }, EntryKind::File(_))
            | (RuleKind::Directory, EntryKind::Directory)
            | (RuleKind::Fifo, EntryKind::Fifo) => true,
            (RuleKind::CharDevice(major, minor), kind) => *kind == EntryKind::CharDevice(major, minor),
            (RuleKind::BlockDevice(major, minor), kind) => *kind == EntryKind::BlockDevice(major, minor),
            _ => false,
        };
        let path = &entry.path;
        if !is_as_told {
            let reason = format!("{path} exists as {}", kind_words(&entry.kind));
            return Err(self.place.error(reason));
        }
        let attributes = &mut entry.attributes;
        (attributes.uid, attributes.gid) = (self.uid, self.gid);
        let has_mode = !matches!(entry.kind, EntryKind::Symlink(_));
        attributes.mode = self.mode.filter(|_| has_mode).unwrap_or(attributes.mode);
        if self.capabilities.is_empty() {
            return Ok(());
        }
        if !matches!(entry.kind, EntryKind::File(_)) {
            return Err(self.place.error(format!("{path} is no regular file; only those have capabilities")));
        }
        let xattrs = &mut attributes.xattrs;
        let at = xattrs.binary_search_by(|(name, _)| name[..].cmp(CAPABILITY));
        let old = match at {
            Ok(at) => FileCapabilities::parse(&xattrs[at].1)
                .ok_or_else(|| Error::Refused { path: path.clone(), reason: "malformed capabilities" })?,
            Err(_) => FileCapabilities::default(),
        };
        let new = self.capabilities.iter().try_fold(old, |old, change| change.apply(old));
        let value = new.map_err(|reason| self.place.error(reason))?.to_bytes();
        match at {
            Ok(at) => xattrs[at].1 = value,
            Err(at) => xattrs.insert(at, (CAPABILITY.to_vec(), value)),
        }
        Ok(())
    }
}

fn kind_words(kind: &EntryKind) -> String {
    match kind {
        EntryKind::Directory => "a directory".to_owned(),
        EntryKind::File(_) | EntryKind::HardLink(_) => "a regular file".to_owned(),
        EntryKind::Symlink(_) => "a symbolic link".to_owned(),
        EntryKind::Fifo => "a named pipe".to_owned(),
        EntryKind::Socket => "a socket".to_owned(),
        EntryKind::CharDevice(major, minor) => format!("the character device {major}:{minor}"),
        EntryKind::BlockDevice(major, minor) => format!("the block device {major}:{minor}"),
    }
}
