//! The tree that layers make on top of each other: its names, and which member of which layer describes each file.
//!
//! A layer's whiteouts come before its files ([`Tree::hide`], [`Tree::hide_children`], then [`Tree::place`]), so they
//! affect lower layers only, wherever they are in their own. A directory that is described again keeps what is in it;
//! anything else that has the name is removed first, whatever it is. A hard link is a name of a file that a lower layer
//! may have, and which keeps its content when the other name is removed. Symbolic links above a name lead where they
//! lead in the tree, and `..` does not lead above it.
//!
//! Memory is bounded by [`MEMORY_MAX`]: a name takes some 120 bytes and its own.
//!
//! Source: OCI image specification 1.1, `layer.md`, "Applying Changesets".

use std::collections::BTreeMap;
use std::ops::Bound;

use extant::SYMLINKS_MAX;

use crate::entry::{Entry, EntryKind};
use crate::path::TreePath;

/// Memory for names, some 500,000 files.
const MEMORY_MAX: usize = 64 << 20;

/// What a name takes beside its bytes: its place in the map, its node, its place in the plan.
const NAME_MEMORY: usize = 120;

/// The number of the root's node.
const ROOT: u32 = 0;

/// A member of a layer, by the number of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MemberId {
    pub layer: u32,
    pub number: u32,
}

/// A file of the tree.
#[derive(Debug)]
struct Node {
    /// The member that describes it, or by which it became known as a directory above; none for a root that no layer
    /// describes.
    member: Option<MemberId>,
    kind: Kind,
    links: u32,
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// A directory, and whether no member describes it.
    Directory {
        is_implied: bool,
    },
    Symlink(Box<[u8]>),
    Other,
}

/// The names of an image.
#[derive(Debug)]
pub(super) struct Tree {
    /// Nodes by the number of their directory (big-endian) and their name.
    names: BTreeMap<Box<[u8]>, u32>,
    nodes: Vec<Node>,
    free: Vec<u32>,
    memory_bytes: usize,
    /// The last directory that was looked up.
    recent: Option<(TreePath, u32)>,
}

/// A name of the tree, and the member that describes its file.
#[derive(Debug)]
pub(super) struct Planned {
    pub member: MemberId,
    /// A directory that no member describes; `member` is one below it.
    pub is_implied: bool,
    directory: u32,
    name: Box<[u8]>,
}

/// What is to be poured, in the order of the members.
#[derive(Debug)]
pub(super) struct Plan {
    pub names: Vec<Planned>,
    /// Paths of directories, by number; empty for others.
    directories: Vec<TreePath>,
}

impl Plan {
    /// The path of a name.
    pub fn path(&self, planned: &Planned) -> TreePath {
        let directory = self.directories[planned.directory as usize].clone();
        if planned.name.is_empty() { directory } else { directory.below(&planned.name) }
    }
}

impl Tree {
    /// A root and nothing in it.
    pub fn new() -> Self {
        let root = Node { member: None, kind: Kind::Directory { is_implied: false }, links: 1 };
        Self { names: BTreeMap::new(), nodes: vec![root], free: Vec::new(), memory_bytes: 0, recent: None }
    }

    /// Removes the file `name` of the directory at `path`, and what is below it, if it is there.
    pub fn hide(&mut self, path: &TreePath, name: &[u8]) -> Result<(), &'static str> {
        if let Some(directory) = self.directory(path, None)? {
            self.remove(key(directory, name));
        }
        Ok(())
    }

    /// Removes everything in the directory at `path`, if it is there.
    pub fn hide_children(&mut self, path: &TreePath) -> Result<(), &'static str> {
        if let Some(directory) = self.directory(path, None)? {
            self.children(directory).into_iter().for_each(|child| self.remove(child));
        }
        Ok(())
    }

    /// Takes the entry that `member` describes.
    pub fn place(&mut self, member: MemberId, entry: &Entry) -> Result<(), &'static str> {
        let Some((parent, name)) = entry.path.split_last() else {
            if entry.kind != EntryKind::Directory {
                return Err("the root is not a directory");
            }
            self.nodes[ROOT as usize].member = Some(member);
            return Ok(());
        };
        let directory = self.directory(parent, Some(member))?.ok_or("no directory to be in")?;
        let key = key(directory, name);
        let existing = self.names.get(&key).copied();
        let kind = match &entry.kind {
            EntryKind::Directory => Kind::Directory { is_implied: false },
            EntryKind::Symlink(says) => Kind::Symlink(says.as_slice().into()),
            EntryKind::HardLink(original) => return self.link(key, existing, original),
            _ => Kind::Other,
        };
        if let Some(existing) = existing {
            let node = &mut self.nodes[existing as usize];
            if let (Kind::Directory { .. }, Kind::Directory { .. }) = (&node.kind, &kind) {
                (node.member, node.kind) = (Some(member), kind);
                return Ok(());
            }
            self.remove(key.clone());
        }
        self.create(key, Some(member), kind).map(drop)
    }

    fn link(
        &mut self,
        key: Box<[u8]>,
        existing: Option<u32>,
        original: &TreePath,
    ) -> Result<(), &'static str> {
        const MISSING: &str = "a hard link to what is in no layer";
        let (parent, name) = original.split_last().ok_or("a hard link to the root")?;
        let directory = self.directory(parent, None)?.ok_or(MISSING)?;
        let original = *self.names.get(&self::key(directory, name)).ok_or(MISSING)?;
        if existing == Some(original) {
            return Ok(());
        }
        let node = &mut self.nodes[original as usize];
        if let Kind::Directory { .. } = node.kind {
            return Err("a hard link to a directory");
        }
        // It stays, though it be in the way of its own link.
        node.links += 1;
        if existing.is_some() {
            self.remove(key.clone());
        }
        self.name(key, original)
    }

    /// The number of the directory at `path`. What is missing is created for `member`, or else there is none.
    fn directory(&mut self, path: &TreePath, member: Option<MemberId>) -> Result<Option<u32>, &'static str> {
        if let Some((recent, number)) = &self.recent
            && recent == path
        {
            return Ok(Some(*number));
        }
        let names = |path: &[u8]| path.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec).collect();
        let mut pending: Vec<Vec<u8>> = names(&path.to_bytes());
        let (mut way, mut links) = (vec![ROOT], 0);
        while let Some(name) = pending.pop() {
            let here = way.last().copied().unwrap_or(ROOT);
            match name.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    way.truncate(way.len().saturating_sub(1).max(1));
                    continue;
                }
                _ => {}
            }
            let key = key(here, &name);
            let number = match self.names.get(&key) {
                Some(number) => *number,
                None if member.is_none() => return Ok(None),
                None => self.create(key, member, Kind::Directory { is_implied: true })?,
            };
            match &self.nodes[number as usize].kind {
                Kind::Directory { .. } => way.push(number),
                Kind::Symlink(says) => {
                    links += 1;
                    if links > SYMLINKS_MAX {
                        return Err("too many symbolic links above it");
                    }
                    if says.starts_with(b"/") {
                        way.truncate(1);
                    }
                    pending.extend::<Vec<_>>(names(says));
                }
                Kind::Other if member.is_none() => return Ok(None),
                Kind::Other => return Err("what is above it is not a directory"),
            }
        }
        let number = way.last().copied().unwrap_or(ROOT);
        self.recent = Some((path.clone(), number));
        Ok(Some(number))
    }

    fn create(&mut self, key: Box<[u8]>, member: Option<MemberId>, kind: Kind) -> Result<u32, &'static str> {
        self.memory_bytes += symlink_bytes(&kind);
        let node = Node { member, kind, links: 1 };
        let number = match self.free.pop() {
            Some(number) => {
                self.nodes[number as usize] = node;
                number
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        };
        self.name(key, number)?;
        Ok(number)
    }

    fn name(&mut self, key: Box<[u8]>, number: u32) -> Result<(), &'static str> {
        self.memory_bytes += NAME_MEMORY + key.len();
        if self.memory_bytes > MEMORY_MAX {
            return Err("more files than 64 MiB of names describe");
        }
        self.names.insert(key, number);
        Ok(())
    }

    fn children(&self, directory: u32) -> Vec<Box<[u8]>> {
        self.entries(directory).map(|(key, _)| key.into()).collect()
    }

    fn entries(&self, directory: u32) -> impl Iterator<Item = (&[u8], u32)> {
        let (start, end) = (directory.to_be_bytes(), (directory + 1).to_be_bytes());
        let range = (Bound::Included(&start[..]), Bound::Excluded(&end[..]));
        self.names.range::<[u8], _>(range).map(|(key, number)| (&**key, *number))
    }

    /// Removes a name and what is below it.
    fn remove(&mut self, key: Box<[u8]>) {
        self.recent = None;
        let mut pending = vec![key];
        while let Some(key) = pending.pop() {
            let Some(number) = self.names.remove(&key) else { continue };
            self.memory_bytes -= NAME_MEMORY + key.len();
            if let Kind::Directory { .. } = self.nodes[number as usize].kind {
                pending.extend(self.children(number));
            }
            let node = &mut self.nodes[number as usize];
            node.links -= 1;
            if node.links == 0 {
                self.memory_bytes -= symlink_bytes(&node.kind);
                (node.kind, node.member) = (Kind::Other, None);
                self.free.push(number);
            }
        }
    }

    /// What is to be poured.
    pub fn into_plan(self) -> Plan {
        let mut directories = vec![TreePath::root(); self.nodes.len()];
        let mut pending = vec![ROOT];
        while let Some(directory) = pending.pop() {
            for (key, number) in self.entries(directory) {
                if let Kind::Directory { .. } = self.nodes[number as usize].kind {
                    directories[number as usize] = directories[directory as usize].clone().below(&key[4..]);
                    pending.push(number);
                }
            }
        }
        let nodes = &self.nodes;
        let root = nodes[ROOT as usize].member.map(|member| Planned {
            member,
            is_implied: false,
            directory: ROOT,
            name: Box::default(),
        });
        let planned = self.names.into_iter().filter_map(|(key, number)| {
            let node = &nodes[number as usize];
            let (directory, name) = key.split_first_chunk()?;
            let is_implied = node.kind == Kind::Directory { is_implied: true };
            let directory = u32::from_be_bytes(*directory);
            Some(Planned { member: node.member?, is_implied, directory, name: name.into() })
        });
        let mut names: Vec<Planned> = root.into_iter().chain(planned).collect();
        // Directories above a file come before it, the outermost first.
        names.sort_by_key(|planned| {
            (planned.member, !planned.is_implied, directories[planned.directory as usize].depth())
        });
        Plan { names, directories }
    }
}

/// What a symbolic link says takes memory, too.
fn symlink_bytes(kind: &Kind) -> usize {
    if let Kind::Symlink(says) = kind { says.len() } else { 0 }
}

/// The key of a name in a directory.
fn key(directory: u32, name: &[u8]) -> Box<[u8]> {
    [&directory.to_be_bytes(), name].concat().into()
}
