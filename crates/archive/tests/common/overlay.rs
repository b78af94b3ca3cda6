//! Trees in memory, and a layer applied to one as the specification says: the judge of layers.

use std::collections::BTreeMap;

use extant_archive::{Attributes, EntryKind};

use crate::collect::Collect;

/// A file under one of its names.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Without a shape: layers have no holes.
    pub kind: EntryKind,
    pub attributes: Attributes,
    pub content: Vec<u8>,
    /// Names of one file have one.
    file: usize,
}

#[derive(Clone, Default)]
pub struct Tree {
    pub nodes: BTreeMap<Vec<u8>, Node>,
    files: usize,
}

impl Tree {
    pub fn of(collect: &Collect) -> Self {
        let mut tree = Self::default();
        tree.add(collect, |_, _| {});
        tree
    }

    /// Applies a layer. A hard link whose file is not in the layer is a mistake: its file might be in another directory of the host.
    pub fn apply(&mut self, layer: &Collect) {
        let before = self.files;
        self.add(layer, |path, file| {
            assert!(file > before, "{}: a hard link out of the layer", path.escape_ascii());
        });
    }

    fn add(&mut self, collect: &Collect, check_link: impl Fn(&[u8], usize)) {
        for entry in &collect.entries {
            let path = entry.path.to_bytes();
            let name = entry.path.split_last().map_or(&b""[..], |(_, name)| name);
            if let Some(hidden) = name.strip_prefix(b".wh.") {
                let parent = &path[..path.len() - name.len()];
                self.remove(&[parent, hidden].concat());
                continue;
            }
            let is_directory = |node: &Node| node.kind == EntryKind::Directory;
            if !(entry.kind == EntryKind::Directory && self.nodes.get(&path).is_some_and(is_directory)) {
                self.remove(&path);
            }
            let parents =
                path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at]);
            for parent in parents {
                assert!(
                    self.nodes.get(parent).is_some_and(is_directory),
                    "{}: no parent",
                    path.escape_ascii()
                );
            }
            self.files += 1;
            let node = match &entry.kind {
                EntryKind::HardLink(first) => {
                    let first = self.nodes[&first.to_bytes()].clone();
                    check_link(&path, first.file);
                    first
                }
                kind => Node {
                    kind: if matches!(kind, EntryKind::File(_)) {
                        EntryKind::File(<_>::default())
                    } else {
                        kind.clone()
                    },
                    attributes: Attributes { atime: None, ..entry.attributes.clone() },
                    content: collect.contents.get(&path).cloned().unwrap_or_default(),
                    file: self.files,
                },
            };
            self.nodes.insert(path, node);
        }
    }

    fn remove(&mut self, path: &[u8]) {
        let below = [path, b"/"].concat();
        self.nodes.retain(|other, _| other != path && !other.starts_with(&below));
    }

    /// Its files by name, each with the first of its names; without sockets, which no layer has.
    pub fn comparable(&self) -> BTreeMap<String, (Vec<u8>, Node)> {
        let mut firsts = BTreeMap::new();
        let nodes = self.nodes.iter().filter(|(_, node)| node.kind != EntryKind::Socket);
        nodes
            .map(|(path, node)| {
                let first: &Vec<u8> = firsts.entry(node.file).or_insert_with(|| path.clone());
                (path.escape_ascii().to_string(), (first.clone(), Node { file: 0, ..node.clone() }))
            })
            .collect()
    }
}

/// Asserts that two trees are equal, file by file.
pub fn assert_equal(left: &Tree, right: &Tree, what: &str) {
    let (left, right) = (left.comparable(), right.comparable());
    let names = |tree: &BTreeMap<String, (Vec<u8>, Node)>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&left), names(&right), "{what}");
    for (path, (first, node)) in &left {
        let (other_first, other) = &right[path];
        assert_eq!(
            first.escape_ascii().to_string(),
            other_first.escape_ascii().to_string(),
            "{what}: {path}: names"
        );
        assert_eq!((&node.kind, &node.attributes), (&other.kind, &other.attributes), "{what}: {path}");
        assert!(node.content == other.content, "{what}: {path}: content");
    }
}
