//! Errors of making a file system.

use std::io;

/// Why no file system was made, or planned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error("{what}: {source}")]
    Io {
        /// What was written.
        what: &'static str,
        /// The device's own error.
        source: io::Error,
    },
    /// The device or the number of blocks is too small for this layout.
    #[error("too small: {0}")]
    TooSmall(&'static str),
    /// The size, or another request, exceeds what the format can express.
    #[error("too large: {0}")]
    TooLarge(&'static str),
    /// No feature of this name is known.
    #[error("unknown feature '{0}'")]
    UnknownFeature(String),
    /// The feature is known but cannot be made here.
    #[error("feature '{0}' is not supported")]
    UnsupportedFeature(String),
    /// No extended option of this name is known or supported.
    #[error("unknown or unsupported extended option '{0}'")]
    UnknownOption(String),
    /// A value is out of range or malformed.
    #[error("invalid {what}: '{value}'")]
    Invalid {
        /// Which value.
        what: &'static str,
        /// As it was given.
        value: String,
    },
    /// Two options exclude each other.
    #[error("{0}")]
    Conflict(&'static str),
    /// A structure could not be written; a defect of the layout.
    #[error(transparent)]
    Ondisk(#[from] extant_ondisk::Error),
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
