//! Errors of making a file system.

use std::{fmt, io};

/// Why no file system was made, or planned.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    Io {
        /// What was written.
        what: &'static str,
        /// The device's own error.
        source: io::Error,
    },
    /// The device or the number of blocks is too small for this layout.
    TooSmall(&'static str),
    /// The size, or another request, exceeds what the format can express.
    TooLarge(&'static str),
    /// No feature of this name is known.
    UnknownFeature(String),
    /// The feature is known but cannot be made here.
    UnsupportedFeature(String),
    /// No extended option of this name is known or supported.
    UnknownOption(String),
    /// A value is out of range or malformed.
    Invalid {
        /// Which value.
        what: &'static str,
        /// As it was given.
        value: String,
    },
    /// Two options exclude each other.
    Conflict(&'static str),
    /// A structure could not be written; a defect of the layout.
    Ondisk(extant_ondisk::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { what, source } => write!(f, "{what}: {source}"),
            Self::TooSmall(what) => write!(f, "too small: {what}"),
            Self::TooLarge(what) => write!(f, "too large: {what}"),
            Self::UnknownFeature(name) => write!(f, "unknown feature '{name}'"),
            Self::UnsupportedFeature(name) => write!(f, "feature '{name}' is not supported"),
            Self::UnknownOption(name) => write!(f, "unknown or unsupported extended option '{name}'"),
            Self::Invalid { what, value } => write!(f, "invalid {what}: '{value}'"),
            Self::Conflict(what) => f.write_str(what),
            Self::Ondisk(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            Self::Ondisk(error) => error.source(),
            _ => None,
        }
    }
}

impl From<extant_ondisk::Error> for Error {
    fn from(error: extant_ondisk::Error) -> Self {
        Self::Ondisk(error)
    }
}

/// The result of making or planning a file system.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(super) fn invalid(what: &'static str, value: impl ToString) -> Self {
        Self::Invalid { what, value: value.to_string() }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Io { source, .. } => source.kind(),
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}
