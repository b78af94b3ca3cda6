//! One file of a tree on its way into or out of a disk, whatever it comes from and goes to.

use std::fmt;

use extant_ondisk::Timestamp;

use crate::error::{Error, Result};

/// A place below the root of a tree, as its components. None of them is empty, `.`, `..` or has a slash or NUL.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreePath {
    components: Vec<Vec<u8>>,
}

impl TreePath {
    /// The root itself.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// The path that `bytes` spell. A leading slash, empty components and `.` mean nothing.
    ///
    /// # Errors
    /// [`Error::UnsafeName`] for `..`, which would lead out of the tree, and for a NUL.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut components = Vec::new();
        for component in bytes.split(|byte| *byte == b'/') {
            match component {
                b"" | b"." => {}
                b".." => return Err(Error::UnsafeName(bytes.to_vec())),
                _ if component.contains(&0) => return Err(Error::UnsafeName(bytes.to_vec())),
                _ => components.push(component.to_vec()),
            }
        }
        Ok(Self { components })
    }

    /// The path of components that were checked before.
    pub(crate) fn of_components(components: &[Vec<u8>]) -> Self {
        Self { components: components.to_vec() }
    }

    /// The components, outermost first.
    #[must_use]
    pub fn components(&self) -> &[Vec<u8>] {
        &self.components
    }

    /// Whether it is the root itself.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.components.is_empty()
    }

    /// The directory and the name in it; none for the root.
    #[must_use]
    pub fn split_last(&self) -> Option<(&[Vec<u8>], &[u8])> {
        self.components.split_last().map(|(name, parent)| (parent, name.as_slice()))
    }

    /// The path of `name` in this directory.
    ///
    /// # Errors
    /// [`Error::UnsafeName`] if `name` is not a component.
    pub fn join(&self, name: &[u8]) -> Result<Self> {
        if matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
            return Err(Error::UnsafeName(name.to_vec()));
        }
        let mut components = self.components.clone();
        components.push(name.to_vec());
        Ok(Self { components })
    }

    /// The path of `below` under this directory.
    #[must_use]
    pub fn concat(&self, below: &Self) -> Self {
        Self { components: [self.components.as_slice(), below.components.as_slice()].concat() }
    }

    /// The components with slashes between them; empty for the root.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.components.join(&b'/')
    }
}

impl fmt::Display for TreePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.to_bytes().escape_ascii())
    }
}

/// A range of a file that holds data, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRange {
    /// Where it begins.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

/// The shape of a regular file's content: what is not in a range is a hole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// The file's size in bytes.
    pub size: u64,
    /// The ranges, ascending, apart from each other, none empty, none past the size.
    pub ranges: Vec<DataRange>,
}

impl Shape {
    /// A file without holes.
    #[must_use]
    pub fn dense(size: u64) -> Self {
        let ranges = if size == 0 { Vec::new() } else { vec![DataRange { offset: 0, bytes: size }] };
        Self { size, ranges }
    }

    /// A file with these ranges; neighbours become one, and empty ones go.
    ///
    /// # Errors
    /// A reason, if they overlap, descend or reach past the size.
    pub fn sparse(size: u64, ranges: impl IntoIterator<Item = DataRange>) -> Result<Self, &'static str> {
        let mut shape = Self { size, ranges: Vec::new() };
        let mut end = 0;
        for range in ranges {
            let range_end = range.offset.checked_add(range.bytes).filter(|end| *end <= size);
            let range_end = range_end.ok_or("a range of a sparse file reaches past its end")?;
            if range.offset < end {
                return Err("ranges of a sparse file overlap");
            }
            match shape.ranges.last_mut() {
                _ if range.bytes == 0 => {}
                Some(last) if end == range.offset => last.bytes += range.bytes,
                _ => shape.ranges.push(range),
            }
            end = range_end;
        }
        Ok(shape)
    }

    /// Bytes in all ranges.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.bytes).sum()
    }

    /// Whether there is a hole.
    #[must_use]
    pub fn has_holes(&self) -> bool {
        self.data_bytes() != self.size
    }
}

/// What kind of file it is, with what only that kind has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A regular file, whose content follows.
    File(Shape),
    /// A further name of an earlier entry.
    HardLink(TreePath),
    /// A symbolic link and what it says.
    Symlink(Vec<u8>),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device: major and minor number.
    CharDevice(u32, u32),
    /// A block device: major and minor number.
    BlockDevice(u32, u32),
}

/// An extended attribute: its full name, and its value as `getxattr` gives it.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// Permissions, owner, times and attributes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// The permission bits with setuid, setgid and sticky; no type bits.
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The time of the last change of the content.
    pub mtime: Timestamp,
    /// The time of the last access, if it is told.
    pub atime: Option<Timestamp>,
    /// Extended attributes, ordered by name, access control lists among them.
    pub xattrs: Vec<Xattr>,
}

/// One file of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands.
    pub path: TreePath,
    /// What it is.
    pub kind: Kind,
    /// Permissions, owner, times and attributes. A hard link's mean nothing.
    pub attributes: Attributes,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_root() {
        assert_eq!(TreePath::parse(b"/a//./b/").unwrap().components(), [b"a".to_vec(), b"b".to_vec()]);
        assert!(TreePath::parse(b"./").unwrap().is_root());
        for bytes in [&b".."[..], b"a/../b", b"/..", b"a\0b"] {
            assert!(TreePath::parse(bytes).is_err(), "{bytes:?}");
        }
        assert_eq!(TreePath::parse(b"...").unwrap().to_bytes(), b"...");
    }

    #[test]
    fn overlapping_and_overlong_ranges_are_refused() {
        let range = |offset, bytes| DataRange { offset, bytes };
        assert!(Shape::sparse(10, [range(0, 5), range(4, 2)]).is_err());
        assert!(Shape::sparse(10, [range(5, 6)]).is_err());
        assert!(Shape::sparse(10, [range(u64::MAX, 2)]).is_err());
        let shape = Shape::sparse(10, [range(0, 2), range(2, 2), range(5, 0), range(8, 2)]).unwrap();
        assert_eq!(shape.ranges, [range(0, 4), range(8, 2)]);
    }
}
