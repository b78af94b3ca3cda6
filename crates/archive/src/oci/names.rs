//! The names of a tree and the files that have them, in as little memory as a million of them allow.
//!
//! A name takes 24 bytes, its text and a slot of an index; a file 24 more if it is a directory, a symbolic link or has several names.
//! What is removed leaves room for what comes. The index is hashed with random keys: names of a hostile image meet no more often than
//! others.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

/// Memory for names, some 1,200,000 files.
const MEMORY_MAX: usize = 64 << 20;
/// What a slot of the index takes, two of which may be there for a name.
const SLOT_BYTES: usize = 5;
/// Texts of removed names that may stay.
const DEAD_BYTES_MIN: usize = 1 << 20;

/// The root: its directory and its name.
pub(super) const ROOT: u32 = 0;
/// No name.
pub(super) const NONE: u32 = u32::MAX;

/// A member of a layer, by the number of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MemberId {
    pub layer: u16,
    pub number: u32,
}

/// A range of the texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text {
    start: u32,
    bytes: u32,
}

/// A name in a directory.
#[derive(Debug)]
pub(super) struct Name {
    /// The directory's node.
    pub directory: u32,
    /// Where its text is, behind a byte that says how long it is.
    start: u32,
    /// Its neighbours among the names of the directory. A name that is free has the next free one.
    previous: u32,
    pub next: u32,
    pub file: FileRef,
}

/// The file that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileRef {
    /// A file with this name only, which leads nowhere, and the member that describes it.
    Single { layer: u16, number: u32 },
    /// By the number of its node.
    Node(u32),
    /// The name is free.
    None,
}

/// A directory, a symbolic link or a file with several names.
#[derive(Debug)]
pub(super) struct Node {
    /// The member that describes it, or by which it became known as a directory above.
    pub member: MemberId,
    pub kind: Kind,
    pub links: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A directory, whether no member describes it, its only name, and the first name in it.
    Directory { is_implied: bool, name: u32, first: u32 },
    /// What a symbolic link says.
    Symlink(Text),
    /// Anything else; also a node that is free.
    Other,
}

/// Names and nodes by number.
#[derive(Debug)]
pub(super) struct Names {
    names: Vec<Name>,
    nodes: Vec<Node>,
    texts: Vec<u8>,
    dead_text_bytes: usize,
    free_name: u32,
    free_nodes: Vec<u32>,
}

/// Finds names by directory and text.
#[derive(Debug, Default)]
pub(super) struct NameIndex {
    table: HashTable<u32>,
    hasher: RandomState,
}

impl Names {
    /// A root and nothing in it.
    pub fn new() -> Self {
        let kind = Kind::Directory { is_implied: false, name: ROOT, first: NONE };
        let file = FileRef::Node(ROOT);
        Self {
            names: vec![Name { directory: ROOT, start: 0, previous: NONE, next: NONE, file }],
            nodes: vec![Node { member: MemberId::default(), kind, links: 1 }],
            texts: vec![0],
            dead_text_bytes: 0,
            free_name: NONE,
            free_nodes: Vec::new(),
        }
    }

    pub fn name(&self, name: u32) -> &Name {
        &self.names[name as usize]
    }

    pub fn set_file(&mut self, name: u32, file: FileRef) {
        self.names[name as usize].file = file;
    }

    pub fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    pub fn node_mut(&mut self, node: u32) -> &mut Node {
        &mut self.nodes[node as usize]
    }

    /// How many nodes there are, free ones too.
    pub fn nodes_count(&self) -> usize {
        self.nodes.len()
    }

    /// The member that describes the file of a name.
    pub fn member(&self, name: u32) -> MemberId {
        match self.name(name).file {
            FileRef::Single { layer, number } => MemberId { layer, number },
            FileRef::Node(number) => self.node(number).member,
            FileRef::None => MemberId::default(),
        }
    }

    /// Whether it is a directory that no member describes; [`Names::member`] is then one below it.
    pub fn is_implied(&self, name: u32) -> bool {
        let FileRef::Node(number) = self.name(name).file else { return false };
        matches!(self.node(number).kind, Kind::Directory { is_implied: true, .. })
    }

    /// The numbers of all names.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        let is_used = |(_, name): &(u32, &Name)| name.file != FileRef::None;
        (0..).zip(&self.names).filter(is_used).map(|(number, _)| number)
    }

    /// The text of a name.
    pub fn text(&self, name: u32) -> &[u8] {
        let start = self.name(name).start as usize;
        let (bytes, text) = self.texts[start..].split_first().unwrap_or((&0, &[]));
        &text[..usize::from(*bytes)]
    }

    /// What a symbolic link says.
    pub fn target(&self, text: Text) -> &[u8] {
        &self.texts[text.start as usize..][..text.bytes as usize]
    }

    /// The names in a directory.
    pub fn children(&self, directory: u32) -> impl Iterator<Item = u32> {
        let first = match self.node(directory).kind {
            Kind::Directory { first, .. } => first,
            _ => NONE,
        };
        let some = |name: u32| (name != NONE).then_some(name);
        std::iter::successors(some(first), move |name| some(self.name(*name).next))
    }

    /// The first name in a directory.
    fn first_mut(&mut self, directory: u32) -> Option<&mut u32> {
        match &mut self.node_mut(directory).kind {
            Kind::Directory { first, .. } => Some(first),
            _ => None,
        }
    }

    /// Adds a name, which is not there so far.
    ///
    /// # Errors
    /// A reason, if it is too long, or there are too many.
    pub fn add_name(
        &mut self,
        index: &mut NameIndex,
        directory: u32,
        text: &[u8],
        file: FileRef,
    ) -> Result<u32, &'static str> {
        let bytes = u8::try_from(text.len()).map_err(|_| "a name of more than 255 bytes")?;
        self.check_memory(text.len())?;
        let start = self.texts.len() as u32;
        self.texts.push(bytes);
        self.texts.extend(text);
        let next = self.first_mut(directory).map_or(NONE, |first| *first);
        let name = Name { directory, start, previous: NONE, next, file };
        let number = self.free_name;
        let number = if number == NONE {
            self.names.push(name);
            self.names.len() as u32 - 1
        } else {
            self.free_name = std::mem::replace(&mut self.names[number as usize], name).next;
            number
        };
        if next != NONE {
            self.names[next as usize].previous = number;
        }
        if let Some(first) = self.first_mut(directory) {
            *first = number;
        }
        index.insert(self, number);
        Ok(number)
    }

    /// Takes a name out of the names of its directory.
    pub fn unlink(&mut self, number: u32) {
        let Name { directory, previous, next, .. } = self.names[number as usize];
        if next != NONE {
            self.names[next as usize].previous = previous;
        }
        if previous != NONE {
            self.names[previous as usize].next = next;
        } else if let Some(first) = self.first_mut(directory) {
            *first = next;
        }
    }

    /// Forgets a name that is in no directory any more.
    pub fn free_name(&mut self, index: &mut NameIndex, number: u32) {
        index.remove(self, number);
        self.dead_text_bytes += 1 + self.text(number).len();
        let name = &mut self.names[number as usize];
        (name.file, name.next) = (FileRef::None, self.free_name);
        self.free_name = number;
        if self.dead_text_bytes > (self.texts.len() / 2).max(DEAD_BYTES_MIN) {
            self.compact();
        }
    }

    pub fn add_node(&mut self, node: Node) -> Result<u32, &'static str> {
        self.check_memory(0)?;
        if let Some(number) = self.free_nodes.pop() {
            self.nodes[number as usize] = node;
            return Ok(number);
        }
        self.nodes.push(node);
        Ok(self.nodes.len() as u32 - 1)
    }

    pub fn free_node(&mut self, number: u32) {
        if let Kind::Symlink(says) = std::mem::replace(&mut self.nodes[number as usize].kind, Kind::Other) {
            self.dead_text_bytes += says.bytes as usize;
        }
        self.free_nodes.push(number);
    }

    /// Keeps what a symbolic link says.
    pub fn add_target(&mut self, says: &[u8]) -> Result<Text, &'static str> {
        self.check_memory(says.len())?;
        let text = Text { start: self.texts.len() as u32, bytes: says.len() as u32 };
        self.texts.extend(says);
        Ok(text)
    }

    fn check_memory(&self, more_text: usize) -> Result<(), &'static str> {
        let memory = self.names.len() * (size_of::<Name>() + 2 * SLOT_BYTES)
            + self.nodes.len() * size_of::<Node>()
            + self.free_nodes.len() * size_of::<u32>()
            + self.texts.len();
        if memory.saturating_add(more_text) > MEMORY_MAX {
            return Err("more files than 64 MiB of names describe");
        }
        Ok(())
    }

    /// Drops the texts of what was removed.
    fn compact(&mut self) {
        let mut texts = Vec::with_capacity(self.texts.len() - self.dead_text_bytes);
        let mut keep = |start: u32, bytes: usize| {
            let kept = texts.len() as u32;
            texts.extend(&self.texts[start as usize..][..bytes]);
            kept
        };
        for name in self.names.iter_mut().filter(|name| name.file != FileRef::None) {
            let bytes = usize::from(self.texts[name.start as usize]);
            name.start = keep(name.start, 1 + bytes);
        }
        for node in &mut self.nodes {
            if let Kind::Symlink(text) = &mut node.kind {
                text.start = keep(text.start, text.bytes as usize);
            }
        }
        (self.texts, self.dead_text_bytes) = (texts, 0);
    }
}

impl NameIndex {
    fn hash(&self, directory: u32, text: &[u8]) -> u64 {
        self.hasher.hash_one((directory, text))
    }

    fn hash_of(&self, names: &Names, name: u32) -> u64 {
        self.hash(names.name(name).directory, names.text(name))
    }

    /// The number of a name.
    pub fn find(&self, names: &Names, directory: u32, text: &[u8]) -> Option<u32> {
        let is_it = |name: &u32| names.name(*name).directory == directory && names.text(*name) == text;
        self.table.find(self.hash(directory, text), is_it).copied()
    }

    fn insert(&mut self, names: &Names, name: u32) {
        let hash = self.hash_of(names, name);
        let hasher = &self.hasher;
        let rehash = |name: &u32| hasher.hash_one((names.name(*name).directory, names.text(*name)));
        self.table.insert_unique(hash, name, rehash);
    }

    fn remove(&mut self, names: &Names, name: u32) {
        if let Ok(entry) = self.table.find_entry(self.hash_of(names, name), |other| *other == name) {
            entry.remove();
        }
    }
}
