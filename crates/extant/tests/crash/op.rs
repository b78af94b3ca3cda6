//! Operations as values, which print as what a test may be written with.

/// A path without its first slash. Parents are directories of the root.
pub type Name = &'static str;

/// In place of a path, of any operation on content or attributes: the file that was last held or made without a name.
pub const HELD: Name = "(held)";

/// The files that sequences work on.
pub const FILES: [Name; 7] = ["a", "b", "c", "d/a", "d/b", "e/a", "e/d/b"];
/// The directories.
pub const DIRECTORIES: [Name; 3] = ["d", "e", "e/d"];

/// An operation on a mounted file system. Offsets and lengths are in bytes, of ranges in blocks where they must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Create(Name),
    Write {
        file: Name,
        at: u64,
        bytes: u64,
    },
    Append {
        file: Name,
        bytes: u64,
    },
    Truncate {
        file: Name,
        bytes: u64,
    },
    Allocate {
        file: Name,
        at: u64,
        bytes: u64,
        keep_size: bool,
    },
    Zero {
        file: Name,
        at: u64,
        bytes: u64,
        keep_size: bool,
    },
    Punch {
        file: Name,
        at: u64,
        bytes: u64,
    },
    Collapse {
        file: Name,
        block: u64,
        len: u64,
    },
    Insert {
        file: Name,
        block: u64,
        len: u64,
    },
    /// Every second block from `block` on, so that the extent tree grows by `count` extents.
    Sparse {
        file: Name,
        block: u64,
        count: u32,
    },
    Unlink(Name),
    Rename {
        from: Name,
        to: Name,
    },
    Exchange {
        from: Name,
        to: Name,
    },
    Link {
        from: Name,
        to: Name,
    },
    /// A target of that length, which does not exist.
    Symlink {
        link: Name,
        bytes: usize,
    },
    Mkdir(Name),
    Rmdir(Name),
    /// Empty files of long names, each in an update of its own; every third is a symbolic link with a block.
    Fill {
        dir: Name,
        count: u32,
    },
    /// Removes some of those again.
    Drain {
        dir: Name,
        count: u32,
    },
    SetXattr {
        path: Name,
        key: u8,
        bytes: usize,
    },
    RemoveXattr {
        path: Name,
        key: u8,
    },
    Chmod {
        path: Name,
        mode: u16,
    },
    Fsync(Name),
    Fdatasync(Name),
    Sync,
    /// Opens a file and keeps it open, so that it outlives its names.
    Hold(Name),
    /// A file without a name, held open.
    Tmpfile {
        bytes: u64,
    },
    /// Names the last file that was made without a name.
    LinkTmp(Name),
    /// Closes the file that was last held or made without a name.
    Close,
    /// Closes all files held open.
    Release,
    /// Unmounts and mounts again: a checkpoint.
    Remount,
}

impl Op {
    /// The operation on clusters of `ratio` blocks, if it is one that moves whole clusters only.
    pub fn in_clusters(self, ratio: u64) -> Self {
        match self {
            Self::Collapse { file, block, len } => {
                Self::Collapse { file, block: block * ratio, len: len * ratio }
            }
            Self::Insert { file, block, len } => {
                Self::Insert { file, block: block * ratio, len: len * ratio }
            }
            other => other,
        }
    }

    /// Whether it makes, writes or attributes one of these.
    pub fn is_on(self, names: &[Name]) -> bool {
        match self {
            Self::Create(name) | Self::Write { file: name, .. } | Self::SetXattr { path: name, .. } => {
                names.contains(&name)
            }
            _ => false,
        }
    }

    /// Whether it may take several updates, between which a crash shows a part of it.
    pub fn is_in_steps(self) -> bool {
        matches!(
            self,
            Self::Write { .. }
                | Self::Append { .. }
                | Self::Truncate { .. }
                | Self::Allocate { .. }
                | Self::Zero { .. }
                | Self::Punch { .. }
                | Self::Collapse { .. }
                | Self::Insert { .. }
        )
    }
}

/// The byte that write number `tag` puts at `offset`: neither zero nor what poisons free blocks.
pub fn pattern(tag: usize, offset: u64) -> u8 {
    1 + ((tag as u64 * 53 + offset / 97 + offset % 13) % 200) as u8
}

/// Bytes of [`pattern`] for a range.
pub fn pattern_of(tag: usize, at: u64, bytes: u64) -> Vec<u8> {
    (at..at + bytes).map(|offset| pattern(tag, offset)).collect()
}

/// The name of file `serial` of [`Op::Fill`].
pub fn fill_name(serial: u32) -> String {
    format!("n{serial:05}-{}", "long".repeat(20 + serial as usize % 7))
}

/// The target of the symbolic link of that serial of [`Op::Fill`], if it is one.
pub fn fill_target(serial: u32) -> Option<String> {
    (serial % 3 == 1).then(|| target_of(80))
}

/// The target of a symbolic link of that length.
pub fn target_of(bytes: usize) -> String {
    "missing/".chars().cycle().take(bytes).collect()
}

/// The full name of an extended attribute.
pub fn xattr_name(key: u8) -> Vec<u8> {
    format!("user.key{key}").into_bytes()
}
