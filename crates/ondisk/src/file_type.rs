//! The types of files, as mode bits and as the byte of a directory entry.

/// The type of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileType {
    /// Not said by a directory entry, or no type by an inode's mode.
    Unknown,
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A symbolic link.
    Symlink,
}

impl FileType {
    /// The bits of a mode that hold the type.
    pub const MODE_MASK: u16 = 0o170_000;

    /// Whether it is a directory.
    #[must_use]
    pub const fn is_dir(self) -> bool {
        matches!(self, Self::Directory)
    }

    /// Whether it is a regular file.
    #[must_use]
    pub const fn is_file(self) -> bool {
        matches!(self, Self::Regular)
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub const fn is_symlink(self) -> bool {
        matches!(self, Self::Symlink)
    }

    /// The type in the mode of an inode.
    #[must_use]
    pub const fn from_mode(mode: u16) -> Self {
        match mode & Self::MODE_MASK {
            0o010_000 => Self::Fifo,
            0o020_000 => Self::CharDevice,
            0o040_000 => Self::Directory,
            0o060_000 => Self::BlockDevice,
            0o100_000 => Self::Regular,
            0o120_000 => Self::Symlink,
            0o140_000 => Self::Socket,
            _ => Self::Unknown,
        }
    }

    /// The type's bits of a mode.
    #[must_use]
    pub const fn mode_bits(self) -> u16 {
        match self {
            Self::Unknown => 0,
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::Regular => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
        }
    }

    /// The type by the byte of a directory entry.
    #[must_use]
    pub const fn from_dirent(byte: u8) -> Self {
        match byte {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            _ => Self::Unknown,
        }
    }

    /// The byte of a directory entry.
    #[must_use]
    pub const fn dirent_byte(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::Regular => 1,
            Self::Directory => 2,
            Self::CharDevice => 3,
            Self::BlockDevice => 4,
            Self::Fifo => 5,
            Self::Socket => 6,
            Self::Symlink => 7,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_survive_both_forms() {
        for byte in 0..=7 {
            let file_type = FileType::from_dirent(byte);
            assert_eq!(file_type.dirent_byte(), byte);
            assert_eq!(FileType::from_mode(file_type.mode_bits() | 0o7777), file_type);
        }
        assert_eq!(FileType::from_dirent(0xDE), FileType::Unknown);
    }
}
