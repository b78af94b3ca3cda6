//! The tree of a mounted disk, and whether it is one that a crash may leave.

use std::collections::{BTreeMap, BTreeSet};

use extant::{Dir, File, Filesystem};
use extant_ondisk::FileType;

use crate::model::{Block, Body, Id, Inode, Model, Promise, ROOT, State, hash_names};

/// The fields and content of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    number: u32,
    mode: u16,
    links: u16,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    File(Vec<u8>),
    Directory(BTreeMap<String, Entry>),
    Symlink(Vec<u8>),
}

impl Entry {
    /// As the model hashes the names of a tree.
    fn names(&self) -> u64 {
        match &self.content {
            Content::Directory(entries) => {
                entries.values().fold(hash_names(entries.keys()), |sum, entry| sum ^ entry.names())
            }
            _ => 0,
        }
    }

    /// Where another tree differs first, if it does: the one that another program recovered.
    pub fn difference(&self, other: &Self) -> Option<String> {
        self.difference_at(other, "")
    }

    fn difference_at(&self, other: &Self, path: &str) -> Option<String> {
        if let (Content::Directory(ours), Content::Directory(theirs)) = (&self.content, &other.content) {
            let names = ours.keys().chain(theirs.keys());
            let found = names.into_iter().find_map(|name| match (ours.get(name), theirs.get(name)) {
                (Some(one), Some(other)) => one.difference_at(other, &format!("{path}/{name}")),
                (one, _) => Some(format!(
                    "{path}/{name} is there only {}",
                    if one.is_some() { "first" } else { "then" }
                )),
            });
            if found.is_some() {
                return found;
            }
        }
        let fields = |entry: &Self| (entry.number, entry.mode, entry.links, entry.xattrs.clone());
        if fields(self) != fields(other) {
            return Some(format!("{path}: {:?}, then {:?}", fields(self), fields(other)));
        }
        match (&self.content, &other.content) {
            (Content::File(one), Content::File(other)) if one != other => {
                let at = one.iter().zip(other).position(|(one, other)| one != other);
                let byte = |bytes: &[u8]| at.and_then(|at| bytes.get(at).copied());
                let (one, other) = ((one.len(), byte(one)), (other.len(), byte(other)));
                Some(format!("{path}: byte {at:?}: size and byte {one:x?}, then {other:x?}"))
            }
            (one, other) if one != other => Some(format!("{path}: another kind or target")),
            _ => None,
        }
    }

    /// The tree without extended attributes.
    pub fn without_xattrs(&self) -> Self {
        let content = match &self.content {
            Content::Directory(entries) => Content::Directory(
                entries.iter().map(|(name, entry)| (name.clone(), entry.without_xattrs())).collect(),
            ),
            other => other.clone(),
        };
        Self { xattrs: BTreeMap::new(), content, ..*self }
    }

    /// The tree without the files that e2fsck found without a name.
    pub fn without_found(mut self) -> Self {
        if let Content::Directory(entries) = &mut self.content
            && let Some(Content::Directory(found)) =
                entries.get_mut("lost+found").map(|entry| &mut entry.content)
        {
            found.clear();
        }
        self
    }

    /// The inode numbers of all that is in the tree.
    pub fn numbers(&self) -> BTreeSet<u32> {
        let mut numbers = BTreeSet::from([self.number]);
        if let Content::Directory(entries) = &self.content {
            numbers.extend(entries.values().flat_map(Self::numbers));
        }
        numbers
    }

    /// The entry of a directory under a name.
    pub fn child(&self, name: &str) -> Option<&Self> {
        match &self.content {
            Content::Directory(entries) => entries.get(name),
            _ => None,
        }
    }
}

/// Reads the whole tree.
pub fn read(fs: &Filesystem) -> Result<Entry, String> {
    let root = fs.root().map_err(|error| format!("the root directory: {error}"))?;
    read_directory(&root, "")
}

fn read_directory(dir: &Dir, path: &str) -> Result<Entry, String> {
    let at = |error: extant::Error| format!("directory /{path}: {error}");
    let mut entries = BTreeMap::new();
    for item in dir.entries().map_err(at)? {
        let name = String::from_utf8_lossy(&item.name).into_owned();
        if path.is_empty() && name == "lost+found" {
            continue;
        }
        let path = format!("{path}/{name}");
        let file = dir.lookup(&item.name).map_err(|error| format!("{path}: {error}"))?;
        if file.number() != item.inode {
            return Err(format!(
                "{path}: the directory is read as inode {} and looked up as {}",
                item.inode,
                file.number()
            ));
        }
        let kind = file.metadata().file_type;
        if item.file_type.is_some_and(|told| told != kind) {
            return Err(format!("{path}: the entry says {:?}, the inode {kind:?}", item.file_type));
        }
        let entry = match kind {
            FileType::Directory => {
                let dir = dir.dir(&item.name).map_err(|error| format!("{path}: {error}"))?;
                read_directory(&dir, &path)?
            }
            _ => read_file(&file, kind).map_err(|error| format!("{path}: {error}"))?,
        };
        if entries.insert(name, entry).is_some() {
            return Err(format!("{path}: stands in its directory twice"));
        }
    }
    entry_of(dir, Content::Directory(entries)).map_err(at)
}

fn read_file(file: &File, kind: FileType) -> extant::Result<Entry> {
    let content = match kind {
        FileType::Symlink => Content::Symlink(file.read_link()?),
        _ => {
            let mut bytes = vec![0; file.metadata().size as usize];
            let read = file.read_at(&mut bytes, 0)?;
            bytes.truncate(read);
            Content::File(bytes)
        }
    };
    entry_of(file, content)
}

fn entry_of(file: &File, content: Content) -> extant::Result<Entry> {
    let metadata = file.metadata();
    let mut xattrs = BTreeMap::new();
    for name in file.list_xattrs()? {
        let value = file.xattr(&name)?;
        xattrs.insert(name, value);
    }
    Ok(Entry {
        number: metadata.inode.0,
        mode: metadata.mode & 0o7777,
        links: metadata.links,
        xattrs,
        content,
    })
}

/// Which trees of a history a crash may leave, and what of their content.
pub struct Allowed<'m> {
    pub model: &'m Model,
    pub promise: &'m Promise,
    /// The last step that may have begun.
    pub last: usize,
    /// The root of the model is that of the disk, in which there is `lost+found` too.
    pub is_whole_disk: bool,
    /// Written data may have no blocks yet, in files that the model has as written back before.
    pub is_delayed: bool,
}

impl Allowed<'_> {
    /// The step that the tree shows.
    ///
    /// # Errors
    /// What is wrong with it, if it shows none: compared with the step that fits best.
    pub fn check(&self, tree: &Entry) -> Result<usize, String> {
        let names = tree.names();
        let has_names = |step: &usize| self.model.names[*step] == names;
        let mut steps = (self.promise.step..=self.last).rev().filter(has_names);
        if let Some(step) = steps.find(|step| self.matches(tree, *step, None).is_ok()) {
            return Ok(step);
        }
        for step in (self.promise.step..self.last).filter(has_names) {
            if let Some(target) = self.model.in_steps[step + 1]
                && self.matches(tree, step, Some(target)).is_ok()
            {
                return Ok(step);
            }
        }
        Err(self.complaint(tree))
    }

    /// What is wrong with a tree that no step has, compared with the one that fits best.
    fn complaint(&self, tree: &Entry) -> String {
        let complaints = (self.promise.step..=self.last).filter_map(|step| {
            self.matches(tree, step, None).err().map(|complaint| (complaint.depth, step, complaint.what))
        });
        let best = complaints.max_by_key(|(depth, step, _)| (*depth, *step));
        let (_, step, what) = best.unwrap_or_default();
        format!("no tree of the steps {}..={}; at step {step}: {what}", self.promise.step, self.last)
    }

    fn matches(&self, tree: &Entry, step: usize, partial: Option<Id>) -> Result<(), Complaint> {
        let mut comparison = Comparison { allowed: self, step, partial, seen: BTreeMap::new(), depth: 0 };
        comparison.inode(tree, ROOT, "").map_err(|what| Complaint { depth: comparison.depth, what })
    }
}

/// What is wrong, and how much was right before it.
struct Complaint {
    depth: usize,
    what: String,
}

struct Comparison<'a> {
    allowed: &'a Allowed<'a>,
    step: usize,
    /// An inode that may be between this step and the next.
    partial: Option<Id>,
    /// Inode numbers by identity in the model.
    seen: BTreeMap<Id, u32>,
    depth: usize,
}

impl Comparison<'_> {
    fn state(&self, step: usize) -> &State {
        &self.allowed.model.steps[step]
    }

    fn inode(&mut self, found: &Entry, id: Id, path: &str) -> Result<(), String> {
        let wanted = self.state(self.step).get(&id).ok_or("the model lost an inode")?.clone();
        let same = |what: &str, found: &dyn std::fmt::Debug, wanted: &dyn std::fmt::Debug| {
            let (found, wanted) = (format!("{found:?}"), format!("{wanted:?}"));
            if found == wanted { Ok(()) } else { Err(format!("/{path}: {what} is {found}, not {wanted}")) }
        };
        if let Some(number) = self.seen.insert(id, found.number)
            && number != found.number
        {
            return Err(format!("/{path}: names of one file are inodes {number} and {}", found.number));
        }
        same("mode", &found.mode, &wanted.mode)?;
        if found.xattrs != wanted.xattrs {
            return Err(format!("/{path}: other extended attributes"));
        }
        match (&found.content, &wanted.body) {
            (Content::Directory(found), Body::Directory(wanted)) => self.directory(found, wanted, path)?,
            (Content::Symlink(found), Body::Symlink(wanted)) => {
                same("target", &String::from_utf8_lossy(found), wanted)?;
            }
            (Content::File(bytes), Body::File { size, blocks }) => {
                if self.allowed.is_delayed {
                    self.delayed_content(bytes, id, path)?;
                } else if self.partial == Some(id) {
                    self.partial_content(bytes, id, path)?;
                } else {
                    same("size", &bytes.len(), size)?;
                    self.content(bytes, blocks, id, path)?;
                }
            }
            (_, wanted) => return Err(format!("/{path}: is no {wanted:?}")),
        }
        let links = self.links(&wanted, id);
        same("count of links", &u32::from(found.links), &links)?;
        self.depth += 1;
        Ok(())
    }

    fn links(&self, inode: &Inode, id: Id) -> u32 {
        match &inode.body {
            Body::Directory(entries) => {
                let is_directory =
                    |child: &&Id| matches!(self.state(self.step)[child].body, Body::Directory(_));
                let has_lost_and_found = u32::from(id == ROOT && self.allowed.is_whole_disk);
                2 + has_lost_and_found + entries.values().filter(is_directory).count() as u32
            }
            _ => inode.names,
        }
    }

    fn directory(
        &mut self,
        found: &BTreeMap<String, Entry>,
        wanted: &BTreeMap<String, Id>,
        path: &str,
    ) -> Result<(), String> {
        if let Some(name) = wanted.keys().find(|name| !found.contains_key(*name)) {
            return Err(format!("{path}/{name} is missing"));
        }
        if let Some(name) = found.keys().find(|name| !wanted.contains_key(*name)) {
            return Err(format!("{path}/{name} should not be there"));
        }
        found
            .iter()
            .zip(wanted.values())
            .try_for_each(|((name, entry), id)| self.inode(entry, *id, &format!("{path}/{name}")))
    }

    /// The blocks of that identity which later steps have, and what they hold there. What of them the caller was
    /// promised is counted from that step on.
    fn versions(&self, id: Id, identity: u64) -> Vec<&Block> {
        self.versions_from(self.step, id, identity)
    }

    fn versions_from(&self, step: usize, id: Id, identity: u64) -> Vec<&Block> {
        let promised = self.allowed.promise.content.get(&id).copied().unwrap_or(0);
        let at = |step: usize| match &self.state(step).get(&id)?.body {
            Body::File { blocks, .. } => blocks.values().find(|block| block.identity == identity),
            _ => None,
        };
        let mut versions: Vec<&Block> = (step.max(promised)..=self.allowed.last).filter_map(at).collect();
        if versions.is_empty() {
            versions.extend(at(step));
        }
        versions.dedup_by(|a, b| std::sync::Arc::ptr_eq(&a.bytes, &b.bytes));
        versions
    }

    fn content(&self, found: &[u8], blocks: &BTreeMap<u64, Block>, id: Id, path: &str) -> Result<(), String> {
        let block_size = self.allowed.model.block_size() as usize;
        for (index, bytes) in found.chunks(block_size).enumerate() {
            let block = blocks.get(&(index as u64)).filter(|block| block.is_written);
            let versions = match block {
                // The history is searched step by step only if an earlier state differs from the current one.
                Some(block)
                    if self.allowed.promise.content.contains_key(&id)
                        || block.bytes[..bytes.len()] != *bytes =>
                {
                    self.versions(id, block.identity)
                }
                Some(_) => continue,
                None => Vec::new(),
            };
            let start = index * block_size;
            for (at, byte) in bytes.iter().enumerate() {
                let fits = if versions.is_empty() {
                    *byte == 0
                } else {
                    versions.iter().any(|version| version.bytes[at] == *byte)
                };
                if !fits {
                    let allowed: Vec<u8> = versions.iter().map(|version| version.bytes[at]).collect();
                    return Err(format!(
                        "/{path}: byte {} is {byte:#x}, not one of {allowed:x?}",
                        start + at
                    ));
                }
            }
        }
        Ok(())
    }

    /// A file of which not all may be written: its size is as it was when that was written back or later, and each block as it was when it was
    /// written back or later, or zero if it was not there then.
    fn delayed_content(&self, found: &[u8], id: Id, path: &str) -> Result<(), String> {
        let block_size = self.allowed.model.block_size() as usize;
        let promise = self.allowed.promise;
        let promised = promise.content.get(&id).copied().unwrap_or(0).max(promise.all_content);
        let since = |written: usize| written.max(promised).min(self.step);
        let is_partial = self.partial == Some(id);
        let maps_from = |from: usize| {
            (from..=self.step + usize::from(is_partial)).filter_map(|step| {
                match &self.state(step).get(&id)?.body {
                    Body::File { size, blocks } => Some((*size, blocks)),
                    _ => None,
                }
            })
        };
        let maps: Vec<_> = maps_from(since(self.allowed.model.size_written_back(id, self.step))).collect();
        let sizes = || maps.iter().map(|(size, _)| *size);
        let (least, most) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
        let size = found.len() as u64;
        if size < least || size > most {
            return Err(format!("/{path}: size {size} is not between {least} and {most}"));
        }
        let moved = if is_partial { maps[maps.len() - 2].0.abs_diff(maps[maps.len() - 1].0) } else { 0 };
        let moved = moved / block_size as u64;
        for (index, bytes) in found.chunks(block_size).enumerate() {
            let index = index as u64;
            let from = since(self.allowed.model.written_back(id, index, self.step));
            let maps: Vec<_> = maps_from(from).collect();
            let was_there = maps[0].1.get(&index).is_some_and(|block| block.is_written);
            let may_be_zero = is_partial || !was_there;
            // Nearly always one whole version, as it was in one of the steps.
            let is_whole = |(_, blocks): &(u64, &BTreeMap<u64, Block>)| {
                let block = blocks.get(&index).filter(|block| block.is_written);
                promised <= self.step && block.is_some_and(|block| block.bytes[..bytes.len()] == *bytes)
            };
            if may_be_zero && bytes.iter().all(|byte| *byte == 0) || maps.iter().rev().any(is_whole) {
                continue;
            }
            let near = [Some(index), index.checked_sub(moved), index.checked_add(moved)];
            let mut identities: Vec<u64> = (near.iter().flatten())
                .flat_map(|at| maps.iter().filter_map(|(_, blocks)| blocks.get(at)))
                .map(|block| block.identity)
                .collect();
            identities.sort_unstable();
            identities.dedup();
            let versions: Vec<&Block> = identities
                .iter()
                .flat_map(|identity| self.versions_from(from, id, *identity))
                .filter(|block| block.is_written)
                .collect();
            for (at, byte) in bytes.iter().enumerate() {
                if !(*byte == 0 && may_be_zero || versions.iter().any(|version| version.bytes[at] == *byte)) {
                    let (at, step) = (index as usize * block_size + at, self.step);
                    return Err(format!(
                        "/{path}: byte {at} is {byte:#x}, of no version of the steps {from}..={step} or later"
                    ));
                }
            }
        }
        Ok(())
    }

    /// A file between this step and the next: each byte is zero, or of a block that either has near there.
    fn partial_content(&self, found: &[u8], id: Id, path: &str) -> Result<(), String> {
        let block_size = self.allowed.model.block_size() as usize;
        let map = |step: usize| match self.state(step).get(&id).map(|inode| &inode.body) {
            Some(Body::File { size, blocks }) => Ok((*size, blocks)),
            _ => Err(format!("/{path}: no file to be changed in steps")),
        };
        let ((size, before), (size_after, after)) = (map(self.step)?, map(self.step + 1)?);
        let size_found = found.len() as u64;
        if size_found < size.min(size_after) || size_found > size.max(size_after) {
            return Err(format!("/{path}: size {size_found} is not between {size} and {size_after}"));
        }
        let moved = size.abs_diff(size_after) / block_size as u64;
        for (index, bytes) in found.chunks(block_size).enumerate() {
            let index = index as u64;
            let near = [Some(index), index.checked_sub(moved), index.checked_add(moved)];
            let blocks =
                near.into_iter().flatten().flat_map(|at| [before.get(&at), after.get(&at)]).flatten();
            let versions: Vec<&Block> = blocks.flat_map(|block| self.versions(id, block.identity)).collect();
            for (at, byte) in bytes.iter().enumerate() {
                if *byte != 0 && versions.iter().all(|version| version.bytes[at] != *byte) {
                    let at = index as usize * block_size + at;
                    return Err(format!("/{path}: byte {at} is {byte:#x}, neither old nor new"));
                }
            }
        }
        Ok(())
    }
}
