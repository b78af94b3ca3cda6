//! The tree that layers make on top of each other: its names, and which member of which layer describes each file.
//!
//! A layer's whiteouts come before its files ([`Tree::hide`], [`Tree::hide_children`], then [`Tree::place`]), so they
//! affect lower layers only, wherever they are in their own. A directory that is described again keeps what is in it;
//! anything else that has the name is removed first, whatever it is. A hard link is a name of a file that a lower layer
//! may have, and which keeps its content when the other name is removed. Symbolic links above a name lead where they
//! lead in the tree, and `..` does not lead above it.
//!
//! Memory is bounded by that of the [`Names`]. Test: `tests/oci`; a million files: `tests/command/memory.rs` of the command.
//!
//! Source: OCI image specification 1.1, `layer.md`, "Applying Changesets".

use extant::SYMLINKS_MAX;

use super::names::{FileRef, Kind, MemberId, NONE, NameIndex, Names, Node, ROOT};
use super::plan::Plan;
use crate::entry::{Entry, EntryKind};
use crate::path::TreePath;

/// The names of an image.
#[derive(Debug)]
pub(super) struct Tree {
    names: Names,
    index: NameIndex,
    /// The member that describes the root, if one does.
    root: Option<MemberId>,
    /// The last directory that was looked up.
    recent: Option<(TreePath, u32)>,
}

impl Tree {
    /// A root and nothing in it.
    pub fn new() -> Self {
        Self { names: Names::new(), index: NameIndex::default(), root: None, recent: None }
    }

    /// Removes the file `name` of the directory at `path`, and what is below it, if it is there.
    pub fn hide(&mut self, path: &TreePath, name: &[u8]) -> Result<(), &'static str> {
        if let Some(directory) = self.directory(path, None)?
            && let Some(name) = self.find(directory, name)
        {
            self.remove(name);
        }
        Ok(())
    }

    /// Removes everything in the directory at `path`, if it is there.
    pub fn hide_children(&mut self, path: &TreePath) -> Result<(), &'static str> {
        if let Some(directory) = self.directory(path, None)? {
            let children: Vec<_> = self.names.children(directory).collect();
            children.into_iter().for_each(|child| self.remove(child));
        }
        Ok(())
    }

    /// Takes the entry that `member` describes.
    pub fn place(&mut self, member: MemberId, entry: &Entry) -> Result<(), &'static str> {
        let Some((parent, name)) = entry.path.split_last() else {
            if entry.kind != EntryKind::Directory {
                return Err("the root is not a directory");
            }
            self.root = Some(member);
            return Ok(());
        };
        let directory = self.directory(parent, Some(member))?.ok_or("no directory to be in")?;
        let existing = self.find(directory, name);
        if let EntryKind::HardLink(original) = &entry.kind {
            return self.link(directory, name, existing, original);
        }
        if let Some(existing) = existing {
            if entry.kind == EntryKind::Directory
                && let FileRef::Node(number) = self.names.name(existing).file
                && let node = self.names.node_mut(number)
                && let Kind::Directory { is_implied, .. } = &mut node.kind
            {
                (node.member, *is_implied) = (member, false);
                return Ok(());
            }
            self.remove(existing);
        }
        match &entry.kind {
            EntryKind::Directory => self.create_directory(directory, name, member, false).map(drop),
            EntryKind::Symlink(says) => {
                let kind = Kind::Symlink(self.names.add_target(says)?);
                let node = self.names.add_node(Node { member, kind, links: 1 })?;
                self.name(directory, name, FileRef::Node(node)).map(drop)
            }
            _ => {
                let MemberId { layer, number } = member;
                self.name(directory, name, FileRef::Single { layer, number }).map(drop)
            }
        }
    }

    fn link(
        &mut self,
        directory: u32,
        text: &[u8],
        existing: Option<u32>,
        original: &TreePath,
    ) -> Result<(), &'static str> {
        const MISSING: &str = "a hard link to what is in no layer";
        let (parent, name) = original.split_last().ok_or("a hard link to the root")?;
        let parent = self.directory(parent, None)?.ok_or(MISSING)?;
        let original = self.find(parent, name).ok_or(MISSING)?;
        let file = |name: u32| self.names.name(name).file;
        if existing.is_some_and(|existing| existing == original || file(existing) == file(original)) {
            return Ok(());
        }
        let number = match file(original) {
            FileRef::Node(number) => number,
            FileRef::Single { layer, number } => {
                let node = Node { member: MemberId { layer, number }, kind: Kind::Other, links: 1 };
                let number = self.names.add_node(node)?;
                self.names.set_file(original, FileRef::Node(number));
                number
            }
            FileRef::None => return Err(MISSING),
        };
        let node = self.names.node_mut(number);
        if let Kind::Directory { .. } = node.kind {
            return Err("a hard link to a directory");
        }
        // It stays, though it be in the way of its own link.
        node.links += 1;
        if let Some(existing) = existing {
            self.remove(existing);
        }
        self.name(directory, text, FileRef::Node(number)).map(drop)
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
        let no_directory = member.map_or(Ok(None), |_| Err("what is above it is not a directory"));
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
            let file = match (self.find(here, &name), member) {
                (Some(found), _) => self.names.name(found).file,
                (None, None) => return Ok(None),
                (None, Some(member)) => self.create_directory(here, &name, member, true)?,
            };
            let FileRef::Node(number) = file else { return no_directory };
            match &self.names.node(number).kind {
                Kind::Directory { .. } => way.push(number),
                Kind::Symlink(says) => {
                    let says = self.names.target(*says);
                    links += 1;
                    if links > SYMLINKS_MAX {
                        return Err("too many symbolic links above it");
                    }
                    if says.starts_with(b"/") {
                        way.truncate(1);
                    }
                    pending.extend::<Vec<_>>(names(says));
                }
                Kind::Other => return no_directory,
            }
        }
        let number = way.last().copied().unwrap_or(ROOT);
        self.recent = Some((path.clone(), number));
        Ok(Some(number))
    }

    fn find(&self, directory: u32, text: &[u8]) -> Option<u32> {
        self.index.find(&self.names, directory, text)
    }

    fn name(&mut self, directory: u32, text: &[u8], file: FileRef) -> Result<u32, &'static str> {
        self.names.add_name(&mut self.index, directory, text, file)
    }

    fn create_directory(
        &mut self,
        directory: u32,
        text: &[u8],
        member: MemberId,
        is_implied: bool,
    ) -> Result<FileRef, &'static str> {
        let kind = Kind::Directory { is_implied, name: NONE, first: NONE };
        let number = self.names.add_node(Node { member, kind, links: 1 })?;
        let named = self.name(directory, text, FileRef::Node(number))?;
        if let Kind::Directory { name, .. } = &mut self.names.node_mut(number).kind {
            *name = named;
        }
        Ok(FileRef::Node(number))
    }

    /// Removes a name and what is below it.
    fn remove(&mut self, name: u32) {
        self.recent = None;
        self.names.unlink(name);
        let mut pending = vec![name];
        while let Some(name) = pending.pop() {
            if let FileRef::Node(number) = self.names.name(name).file {
                pending.extend(self.names.children(number));
                let node = self.names.node_mut(number);
                node.links -= 1;
                if node.links == 0 {
                    self.names.free_node(number);
                }
            }
            self.names.free_name(&mut self.index, name);
        }
    }

    /// What is to be poured.
    pub fn into_plan(self) -> Plan {
        Plan::new(self.names, self.root)
    }
}
