//! One file of a tree that is copied into or out of a disk, independent of source and sink.

use extant_ondisk::Timestamp;

use crate::path::TreePath;

/// The extended attribute that holds the access control list of a file.
pub(crate) const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The extended attribute of a directory that holds the list which new files inherit.
pub(crate) const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// Permissions of a directory of which nothing says them: one that is made because something lies in it.
pub(crate) const DIRECTORY_MODE: u16 = 0o755;

/// A range of a file that holds data, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRange {
    /// The offset of its start.
    pub offset: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

impl DataRange {
    /// Where it ends.
    pub(crate) const fn end(self) -> u64 {
        self.offset + self.bytes
    }
}

/// Pieces that a file may have: 16 MiB of them, which a few copies of stay below any limit. A file of 8 GiB of which every
/// other block is a hole has as many.
pub(crate) const RANGES_MAX: usize = 1 << 20;
pub(crate) const TOO_MANY_RANGES: &str = "more than 1048576 pieces between holes";

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

    /// Bytes of memory that the ranges take.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(self.ranges.as_slice())
    }

    /// Whether there is a hole.
    #[must_use]
    pub fn has_holes(&self) -> bool {
        self.data_bytes() != self.size
    }
}

/// The type of a file, with the fields that only that type has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
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
    /// The time of the last access, if the source records it.
    pub atime: Option<Timestamp>,
    /// Extended attributes, ordered by name, access control lists among them.
    pub xattrs: Vec<Xattr>,
}

impl Entry {
    /// Bytes of memory that it takes of its own, without the names above it, which it shares.
    pub(crate) fn memory_bytes(&self) -> usize {
        let kind = match &self.kind {
            EntryKind::File(shape) => shape.memory_bytes(),
            EntryKind::Symlink(says) => says.len(),
            _ => 0,
        };
        size_of::<Self>() + kind + self.attributes.memory_bytes()
    }
}

impl Attributes {
    /// Bytes of memory that its extended attributes take.
    pub(crate) fn memory_bytes(&self) -> usize {
        let xattr = |(name, value): &Xattr| size_of::<Xattr>() + name.len() + value.len();
        self.xattrs.iter().map(xattr).sum()
    }
}

/// One file of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path in the tree.
    pub path: TreePath,
    /// Its type.
    pub kind: EntryKind,
    /// Permissions, owner, times and attributes. A hard link's mean nothing.
    pub attributes: Attributes,
}

#[cfg(test)]
mod tests {
    use super::*;

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
