//! The place of a file in a tree.
//!
//! A path shares the names above it with its directory, so that a tree of any depth costs one name for each level, not
//! one path. Nothing here recurses: a path may be deeper than a thread's stack.

pub(crate) mod parse;

use std::fmt;
use std::hash::{Hash, Hasher};

use extant_rt::Arc;

/// A place below the root of a tree, as its components. None of them is empty, `.`, `..` or has a slash or NUL.
#[derive(Clone, Default)]
pub struct TreePath {
    last: Option<Arc<Component>>,
}

struct Component {
    parent: TreePath,
    name: Box<[u8]>,
    /// Components from the root to this one, itself included.
    depth: usize,
}

impl TreePath {
    /// The root itself.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// The path of a name that was checked.
    pub(crate) fn below(self, name: &[u8]) -> Self {
        let depth = self.depth() + 1;
        Self { last: Some(Arc::new(Component { parent: self, name: name.into(), depth })) }
    }

    /// How many components it has.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.last.as_ref().map_or(0, |last| last.depth)
    }

    /// The components, outermost first.
    #[must_use]
    pub fn components(&self) -> Vec<&[u8]> {
        self.components_from(0)
    }

    /// The components behind the first `depth`, outermost first.
    pub(crate) fn components_from(&self, depth: usize) -> Vec<&[u8]> {
        let mut names = Vec::new();
        let mut here = &self.last;
        while let Some(last) = here.as_ref().filter(|last| last.depth > depth) {
            names.push(&*last.name);
            here = &last.parent.last;
        }
        names.reverse();
        names
    }

    /// The path of the first `depth` components.
    pub(crate) fn above(&self, depth: usize) -> Self {
        let mut here = self;
        while let Some(last) = here.last.as_ref().filter(|last| last.depth > depth) {
            here = &last.parent;
        }
        here.clone()
    }

    /// How many components both paths begin with. Of paths made from one another this costs what is between them.
    pub(crate) fn shared_depth(&self, other: &Self) -> usize {
        let (mut left, mut right) = (&self.last, &other.last);
        let mut shared = self.depth().min(other.depth());
        while let (Some(a), Some(b)) = (left, right) {
            if a.depth > b.depth {
                left = &a.parent.last;
            } else if b.depth > a.depth {
                right = &b.parent.last;
            } else if Arc::ptr_eq(a, b) {
                break;
            } else {
                if a.name != b.name {
                    shared = a.depth - 1;
                }
                (left, right) = (&a.parent.last, &b.parent.last);
            }
        }
        shared
    }

    /// Whether it is the root itself.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.last.is_none()
    }

    /// The directory and the name in it; none for the root.
    #[must_use]
    pub fn split_last(&self) -> Option<(&Self, &[u8])> {
        self.last.as_ref().map(|last| (&last.parent, &*last.name))
    }

    /// The path of `below` under this directory.
    #[must_use]
    pub fn concat(&self, below: &Self) -> Self {
        below.components().into_iter().fold(self.clone(), Self::below)
    }

    /// The components with slashes between them; empty for the root.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.components().join(&b'/')
    }
}

/// Spells paths one after the other, and what two begin with once.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathWriter {
    last: TreePath,
    bytes: Vec<u8>,
    /// Where each component of `last` ends in `bytes`.
    ends: Vec<usize>,
}

impl PathWriter {
    /// As [`TreePath::to_bytes`].
    pub fn spell(&mut self, path: &TreePath) -> &[u8] {
        let shared = self.last.shared_depth(path);
        self.ends.truncate(shared);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
        for name in path.components_from(shared) {
            if !self.ends.is_empty() {
                self.bytes.push(b'/');
            }
            self.bytes.extend(name);
            self.ends.push(self.bytes.len());
        }
        self.last = path.clone();
        &self.bytes
    }
}

impl Drop for TreePath {
    fn drop(&mut self) {
        let mut last = self.last.take();
        while let Some(component) = last {
            // The last user of a component goes on to its directory here; to drop it would recurse.
            last = Arc::into_inner(component).and_then(|mut component| component.parent.last.take());
        }
    }
}

impl PartialEq for TreePath {
    fn eq(&self, other: &Self) -> bool {
        self.depth() == other.depth() && self.shared_depth(other) == self.depth()
    }
}

impl Eq for TreePath {}

impl Hash for TreePath {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.components().hash(state);
    }
}

impl fmt::Debug for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TreePath({self})")
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.to_bytes().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::parse::PathReader;
    use super::*;

    #[test]
    fn paths_stay_below_the_root() {
        assert_eq!(TreePath::parse(b"/a//./b/").unwrap().components(), [b"a", b"b"]);
        assert!(TreePath::parse(b"./").unwrap().is_root());
        for bytes in [&b".."[..], b"a/../b", b"/..", b"a\0b"] {
            assert!(TreePath::parse(bytes).is_err(), "{bytes:?}");
        }
        assert_eq!(TreePath::parse(b"...").unwrap().to_bytes(), b"...");
    }

    #[test]
    fn paths_that_share_names_or_spell_them_are_equal() {
        let parse = |text: &str| TreePath::parse(text.as_bytes()).unwrap();
        let path = parse("a/b/c");
        for (text, shared) in
            [("", 0), ("a", 1), ("a/b/c", 3), ("a/b/c/d", 3), ("a/b/x/d", 2), ("x/b/c", 0), ("a/x/c", 1)]
        {
            assert_eq!(path.shared_depth(&parse(text)), shared, "{text}");
            assert_eq!(parse(text).shared_depth(&path), shared, "{text}");
        }
        assert_eq!(path.join(b"d").unwrap(), parse("a/b/c/d"));
        assert_eq!(parse("a").concat(&parse("b/c")), path);
        assert_ne!(parse("a/b"), parse("a/c"));
        assert_eq!(path.components_from(1), [b"b", b"c"]);
    }

    #[test]
    fn paths_read_and_spelt_one_after_the_other_are_as_if_alone() {
        let texts = [
            "a",
            "a/b",
            "a/bc",
            "./a//b/c",
            "./a//b/c/d/",
            "./a//bb",
            "",
            "/a/b",
            "/a/b/",
            "a/b/c",
            "a",
            "a/./c",
        ];
        let (mut reader, mut writer) = (PathReader::default(), PathWriter::default());
        for text in texts {
            let path = reader.read(text.as_bytes()).unwrap();
            assert_eq!(path, TreePath::parse(text.as_bytes()).unwrap(), "{text}");
            assert_eq!(writer.spell(&path), path.to_bytes(), "{text}");
        }
        for (unsafe_name, next) in [("a/./c/..", "a/./c/"), ("a/x/../y", "a/x/z"), ("..", "a")] {
            assert!(reader.read(unsafe_name.as_bytes()).is_err());
            assert_eq!(reader.read(next.as_bytes()).unwrap(), TreePath::parse(next.as_bytes()).unwrap());
        }
    }

    #[test]
    fn a_path_deeper_than_the_stack_is_dropped_and_compared() {
        let deep = |levels| (0..levels).fold(TreePath::root(), |path, _| path.join(b"d").unwrap());
        let (left, right) = (deep(1_000_000), deep(1_000_000));
        assert_eq!(left, right);
        assert_ne!(left, deep(999_999));
    }
}
