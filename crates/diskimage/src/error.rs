//! Errors of opening disk images.

use std::io;

use crate::Format;

/// The result of opening a disk image.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of opening a disk image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The host or the device refused.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The bytes contradict the format.
    #[error("damaged {format} image: {reason}")]
    Damaged {
        /// The format.
        format: Format,
        /// What is wrong.
        reason: String,
    },
    /// The image uses what is not served here.
    #[error("{format} image with {what}; {advice}")]
    Unsupported {
        /// The format.
        format: Format,
        /// What it uses.
        what: String,
        /// What to do.
        advice: String,
    },
    /// The format is read and not written.
    #[error("{format} images are read here, not written; {}", .format.conversion())]
    ReadOnly {
        /// The format.
        format: Format,
    },
    /// A file that the image refers to may not be opened or cannot be.
    #[error("refers to '{name}', {reason}")]
    Reference {
        /// The name in the image.
        name: String,
        /// Why.
        reason: String,
    },
    /// The image that another one lies over cannot be opened.
    #[error("backing file '{name}': {source}")]
    Backing {
        /// The name in the image above.
        name: String,
        /// Why.
        source: Box<Error>,
    },
}

impl Error {
    pub(crate) fn damaged(format: Format, reason: impl Into<String>) -> Self {
        Self::Damaged { format, reason: reason.into() }
    }

    pub(crate) fn unsupported(format: Format, what: impl Into<String>) -> Self {
        Self::Unsupported { format, what: what.into(), advice: format.conversion().to_owned() }
    }
}

/// Damage that is met after an image was opened.
pub(crate) fn damage(format: Format, reason: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("damaged {format} image: {reason}"))
}
