//! Errors, with the place on the disk where they occurred.

use std::path::{Path, PathBuf};
use std::{fmt, io};

#[cfg(target_os = "linux")]
use rustix::io::Errno;

use extant_ondisk::{FsBlock, GroupNumber, InodeNumber, Structure};

/// The result of an operation on a file system.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The errors of the engine. Each operation lists those that matter to it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    Io {
        /// The location that was read or written.
        location: Location,
        /// The device's own error.
        source: io::Error,
    },
    /// Bytes on the disk that no ext4 writes.
    Corrupt {
        /// Where.
        location: Location,
        /// What is wrong.
        reason: &'static str,
    },
    /// The device could not be opened, or is in use.
    Device(extant_block::Error),
    /// The journal could not be read, written or replayed.
    Journal(extant_journal::Error),
    /// The journal's own blocks cannot be used: they are damaged, or of an unknown kind.
    Log {
        /// The journal's inode and its first block.
        location: Location,
        /// What is wrong.
        source: extant_journal::Error,
    },
    /// The file system's end is missing.
    Truncated {
        /// Bytes that the file system has.
        needed: u64,
        /// Bytes of the device.
        found: u64,
    },
    /// Another host uses the disk, by its multiple-mount protection.
    InUse(MmpHolder),
    /// The disk uses features that are not known or not supported.
    Incompatible(String),
    /// The disk uses features that allow reading only.
    ReadOnlyFeatures(String),
    /// Opened for reading, or read-only after an error.
    ReadOnly,
    /// Too few free blocks.
    NoSpace,
    /// A limit of a user, group or project would be exceeded, or a soft one was exceeded for longer than its grace time.
    QuotaExceeded,
    /// A directory whose entries inherit its project, and an inode of another project.
    CrossProject,
    /// No free inode.
    NoInodes,
    /// No entry of that name.
    NotFound,
    /// An entry of that name exists.
    Exists,
    /// A directory was needed.
    NotADirectory,
    /// A directory was not allowed.
    IsADirectory,
    /// The directory has entries.
    NotEmpty,
    /// The user may not.
    PermissionDenied,
    /// No user may, for the file is immutable, append-only or verity.
    NotPermitted,
    /// It is encrypted, and keys are not used here.
    NoKey,
    /// The inode cannot have more names.
    TooManyLinks,
    /// A name of more than 255 bytes, or a path or link target that is too long.
    NameTooLong,
    /// More symbolic links than a path may follow.
    Loop,
    /// The file would be larger than the format allows.
    FileTooLarge,
    /// An argument that makes no sense here.
    InvalidArgument(&'static str),
    /// A number that is too small or too large.
    OutOfRange {
        /// The number, in words.
        what: &'static str,
        /// The least that is accepted.
        min: u64,
        /// The most.
        max: u64,
    },
    /// No extended attribute of that name.
    NoAttribute,
    /// The value is larger than the format or the buffer allows.
    ValueTooLarge,
    /// No data or hole at or after the offset.
    NoSuchOffset,
    /// The inode is gone.
    Stale,
    /// The caller was interrupted and no longer waits for the result.
    Interrupted,
    /// In use.
    Busy(&'static str),
    /// Not supported on this disk.
    Unsupported(&'static str),
    /// The content of a file that was to be text is none.
    NotUtf8,
    /// An operation on a path failed; [`Error::cause`] is why.
    Path {
        /// The path as the caller gave it.
        path: PathBuf,
        /// The error, which is none with a path.
        source: Box<Error>,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { location, source } => write!(f, "{location}: {source}"),
            Self::Corrupt { location, reason } => write!(f, "{location}: {reason}"),
            Self::Device(error) => error.fmt(f),
            Self::Journal(error) => write!(f, "journal: {error}"),
            Self::Log { location, source } => write!(f, "{location}: {source}"),
            Self::Truncated { needed, found } => {
                write!(f, "superblock: the file system has {needed} bytes, its device {found}")
            }
            Self::InUse(error) => error.fmt(f),
            Self::Incompatible(names) => write!(f, "unsupported features: {names}"),
            Self::ReadOnlyFeatures(names) => write!(f, "can only be read, for it has the features {names}"),
            Self::ReadOnly => f.write_str("read-only file system"),
            Self::NoSpace => f.write_str("no space left"),
            Self::QuotaExceeded => f.write_str("disk quota exceeded"),
            Self::CrossProject => f.write_str("a link across projects"),
            Self::NoInodes => f.write_str("no inode left"),
            Self::NotFound => f.write_str("no such file or directory"),
            Self::Exists => f.write_str("file exists"),
            Self::NotADirectory => f.write_str("not a directory"),
            Self::IsADirectory => f.write_str("is a directory"),
            Self::NotEmpty => f.write_str("directory not empty"),
            Self::PermissionDenied => f.write_str("permission denied"),
            Self::NotPermitted => f.write_str("operation not permitted"),
            Self::NoKey => f.write_str("required key not available"),
            Self::TooManyLinks => f.write_str("too many links"),
            Self::NameTooLong => f.write_str("name too long"),
            Self::Loop => f.write_str("too many levels of symbolic links"),
            Self::FileTooLarge => f.write_str("file too large"),
            Self::InvalidArgument(what) => write!(f, "invalid argument: {what}"),
            Self::OutOfRange { what, min, max } => {
                write!(f, "invalid argument: {what} is from {min} to {max}")
            }
            Self::NoAttribute => f.write_str("no such attribute"),
            Self::ValueTooLarge => f.write_str("value too large"),
            Self::NoSuchOffset => f.write_str("no such offset"),
            Self::Stale => f.write_str("stale inode"),
            Self::Interrupted => f.write_str("interrupted"),
            Self::Busy(what) => write!(f, "busy: {what}"),
            Self::Unsupported(what) => write!(f, "not supported: {what}"),
            Self::NotUtf8 => f.write_str("the content is not UTF-8"),
            Self::Path { path, source } => write!(f, "{}: {source}", path.display()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Device(error) => error.source(),
            Self::Journal(error) => Some(error),
            Self::Log { source, .. } => Some(source),
            Self::InUse(error) => error.source(),
            Self::Path { source, .. } => Some(&**source),
            _ => None,
        }
    }
}

impl From<extant_block::Error> for Error {
    fn from(error: extant_block::Error) -> Self {
        Self::Device(error)
    }
}

impl From<extant_journal::Error> for Error {
    fn from(error: extant_journal::Error) -> Self {
        Self::Journal(error)
    }
}

impl From<MmpHolder> for Error {
    fn from(error: MmpHolder) -> Self {
        Self::InUse(error)
    }
}

impl Error {
    /// The path that the caller gave, if the operation took one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Path { path, .. } => Some(path),
            _ => None,
        }
    }

    /// The error without the path, to match on.
    #[must_use]
    pub fn cause(&self) -> &Self {
        match self {
            Self::Path { source, .. } => source,
            other => other,
        }
    }

    /// [`Error::cause`], by value.
    #[must_use]
    pub fn into_cause(self) -> Self {
        match self {
            Self::Path { source, .. } => *source,
            other => other,
        }
    }

    /// Adds the path that the caller gave, unless there is one.
    pub(crate) fn at(self, path: &Path) -> Self {
        match self {
            Self::Path { .. } => self,
            source => Self::Path { path: path.to_owned(), source: Box::new(source) },
        }
    }

    /// The kind of `std::io::Error` that it becomes.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        use io::ErrorKind as Kind;
        match self {
            Self::Path { source, .. } => source.kind(),
            Self::Io { source, .. } => source.kind(),
            Self::Device(error) => error.kind(),
            Self::Loop => Kind::Other,
            Self::Corrupt { .. }
            | Self::Journal(_)
            | Self::Log { .. }
            | Self::Truncated { .. }
            | Self::NotUtf8 => Kind::InvalidData,
            Self::Incompatible(_) | Self::ReadOnlyFeatures(_) | Self::Unsupported(_) => Kind::Unsupported,
            Self::ReadOnly => Kind::ReadOnlyFilesystem,
            Self::NoSpace | Self::NoInodes => Kind::StorageFull,
            Self::QuotaExceeded => Kind::QuotaExceeded,
            Self::CrossProject => Kind::CrossesDevices,
            Self::NotFound | Self::NoAttribute | Self::NoSuchOffset => Kind::NotFound,
            Self::Exists => Kind::AlreadyExists,
            Self::NotADirectory => Kind::NotADirectory,
            Self::IsADirectory => Kind::IsADirectory,
            Self::NotEmpty => Kind::DirectoryNotEmpty,
            Self::PermissionDenied | Self::NotPermitted | Self::NoKey => Kind::PermissionDenied,
            Self::TooManyLinks => Kind::TooManyLinks,
            Self::NameTooLong | Self::ValueTooLarge => Kind::InvalidFilename,
            Self::FileTooLarge => Kind::FileTooLarge,
            Self::InvalidArgument(_) | Self::OutOfRange { .. } => Kind::InvalidInput,
            Self::Stale => Kind::StaleNetworkFileHandle,
            Self::Busy(_) | Self::InUse(_) => Kind::ResourceBusy,
            Self::Interrupted => Kind::Interrupted,
        }
    }

    /// The `errno` that a system call gives in the same case. The values are those of ext4; `EUCLEAN` is its `EFSCORRUPTED`.
    #[cfg(target_os = "linux")]
    #[must_use]
    pub fn raw_os_error(&self) -> i32 {
        let errno = match self {
            Self::Path { source, .. } => return source.raw_os_error(),
            Self::Device(error) => return error.raw_os_error(),
            Self::Io { source, .. } => Errno::from_io_error(source).unwrap_or(Errno::IO),
            Self::Corrupt { .. } | Self::Log { .. } | Self::Truncated { .. } => Errno::UCLEAN,
            Self::ReadOnly | Self::ReadOnlyFeatures(_) => Errno::ROFS,
            Self::NoSpace | Self::NoInodes => Errno::NOSPC,
            Self::QuotaExceeded => Errno::DQUOT,
            Self::CrossProject => Errno::XDEV,
            Self::NotFound => Errno::NOENT,
            Self::Exists => Errno::EXIST,
            Self::NotADirectory => Errno::NOTDIR,
            Self::IsADirectory => Errno::ISDIR,
            Self::NotEmpty => Errno::NOTEMPTY,
            Self::PermissionDenied => Errno::ACCESS,
            Self::NotPermitted => Errno::PERM,
            Self::NoKey => Errno::NOKEY,
            Self::TooManyLinks => Errno::MLINK,
            Self::NameTooLong => Errno::NAMETOOLONG,
            Self::Loop => Errno::LOOP,
            Self::FileTooLarge => Errno::FBIG,
            Self::InvalidArgument(_) | Self::OutOfRange { .. } => Errno::INVAL,
            Self::NoAttribute => Errno::NODATA,
            Self::ValueTooLarge => Errno::TOOBIG,
            Self::NoSuchOffset => Errno::NXIO,
            Self::NotUtf8 => Errno::ILSEQ,
            Self::Interrupted => Errno::INTR,
            Self::Stale => Errno::STALE,
            Self::Busy(_) | Self::InUse(_) => Errno::BUSY,
            Self::Unsupported(_) | Self::Incompatible(_) => Errno::OPNOTSUPP,
            Self::Journal(_) => Errno::IO,
        };
        errno.raw_os_error()
    }
}

/// A location on a disk, as a person would name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The structure.
    pub structure: Structure,
    /// The group it belongs to.
    pub group: Option<GroupNumber>,
    /// The inode it belongs to.
    pub inode: Option<InodeNumber>,
    /// The block that it is in.
    pub block: Option<FsBlock>,
}

impl Location {
    /// A structure of which there is one.
    #[must_use]
    pub const fn of(structure: Structure) -> Self {
        Self { structure, group: None, inode: None, block: None }
    }

    /// In this group.
    #[must_use]
    pub const fn group(mut self, group: GroupNumber) -> Self {
        self.group = Some(group);
        self
    }

    /// Adds the inode to the location.
    #[must_use]
    pub const fn inode(mut self, inode: InodeNumber) -> Self {
        self.inode = Some(inode);
        self
    }

    /// In this block.
    #[must_use]
    pub const fn block(mut self, block: FsBlock) -> Self {
        self.block = Some(block);
        self
    }

    /// The error that this location is damaged.
    #[must_use]
    pub const fn corrupt(self, reason: &'static str) -> Error {
        Error::Corrupt { location: self, reason }
    }

    /// The error of reading or writing here.
    #[must_use]
    pub fn io(self, source: io::Error) -> Error {
        Error::Io { location: self, source }
    }

    /// An error of the format, found here.
    pub(crate) fn format(self, error: extant_ondisk::Error) -> Error {
        match error {
            extant_ondisk::Error::Corrupt(corrupt) => {
                Self { structure: corrupt.structure, ..self }.corrupt(corrupt.reason)
            }
            extant_ondisk::Error::Incompatible(flags) => Error::Incompatible(flags.to_string()),
            _ => self.corrupt("unreadable"),
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(group) = self.group {
            write!(f, "group {group}, ")?;
        }
        if let Some(inode) = self.inode {
            write!(f, "inode {inode}, ")?;
        }
        write!(f, "{}", self.structure)?;
        if let Some(block) = self.block {
            write!(f, " (block {block})")?;
        }
        Ok(())
    }
}

impl From<extant_alloc::Error> for Error {
    fn from(error: extant_alloc::Error) -> Self {
        match error {
            extant_alloc::Error::NoSpace => Self::NoSpace,
            extant_alloc::Error::NoInodes => Self::NoInodes,
            extant_alloc::Error::Corrupt { group, what } => {
                Location::of(Structure::BlockBitmap).group(group).corrupt(what)
            }
            extant_alloc::Error::Store { group, source } => match source.downcast::<Self>() {
                Ok(own) => *own,
                Err(other) => Location::of(Structure::BlockBitmap).group(group).io(io::Error::other(other)),
            },
            _ => Self::Unsupported("allocation"),
        }
    }
}

/// The `io::Error` holds this error, which `get_ref` and `downcast_ref` give back: with it [`Error::raw_os_error`], which an `io::Error` with a
/// text cannot have itself.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}

/// The host that uses a disk, in the words of its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MmpHolder {
    /// The host.
    pub node: String,
    /// That host's name of the device.
    pub device: String,
    /// When it said so last, in seconds after 1970, by its own clock.
    pub time_s: u64,
    /// It is `e2fsck`.
    pub is_fsck: bool,
}

impl std::error::Error for MmpHolder {}

impl fmt::Display for MmpHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, device, time_s, is_fsck } = self;
        let by = if *is_fsck { "by e2fsck on" } else { "on" };
        write!(f, "in use {by} host {node}, as {device}, which said so last {time_s} s after 1970")
    }
}
