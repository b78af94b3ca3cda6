//! Errors of network block devices.

use std::fmt;
use std::io;

/// Errors of network block devices. Each names the export and its host.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The text is not the URI of an export.
    Uri {
        /// The text.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The server cannot be reached, or does not answer.
    Unreachable {
        /// The export.
        export: String,
        /// The host's error.
        source: io::Error,
    },
    /// The server refuses the export.
    Refused {
        /// The export.
        export: String,
        /// Why, in words.
        reason: String,
    },
    /// The server breaks the protocol, or speaks one that is not served.
    Protocol {
        /// The export.
        export: String,
        /// How.
        reason: String,
    },
    /// A certificate cannot be read or is not trusted, or no encryption was agreed on.
    Tls {
        /// The export, or the file.
        export: String,
        /// What is wrong.
        reason: String,
    },
    /// The server failed a request.
    Request {
        /// The export.
        export: String,
        /// The request, in words.
        request: String,
        /// The number of the protocol, which is an `errno` of Linux.
        errno: u32,
        /// What the server says about it, or nothing.
        message: String,
    },
    /// The connection was lost and could not be made again in time. Every later request fails.
    Lost {
        /// The export.
        export: String,
        /// What happened.
        reason: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uri { text, reason } => write!(f, "{text}: {reason}"),
            Self::Unreachable { export, source } => write!(f, "{export}: {source}"),
            Self::Refused { export, reason } => write!(f, "{export}: the server refuses: {reason}"),
            Self::Protocol { export, reason } => write!(f, "{export}: breach of protocol: {reason}"),
            Self::Tls { export, reason } => write!(f, "{export}: TLS: {reason}"),
            Self::Request { export, request, errno, message } => {
                let error = io::Error::from_raw_os_error(errno.cast_signed());
                write!(f, "{export}: {request}: {error}")?;
                if message.is_empty() { Ok(()) } else { write!(f, ": {message}") }
            }
            Self::Lost { export, reason } => write!(f, "{export}: connection lost: {reason}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreachable { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Error {
    /// The kind of `std::io::Error` that it becomes.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Unreachable { source, .. } => source.kind(),
            Self::Refused { .. } => io::ErrorKind::PermissionDenied,
            Self::Protocol { .. } | Self::Tls { .. } => io::ErrorKind::InvalidData,
            Self::Request { errno, .. } => io::Error::from_raw_os_error(errno.cast_signed()).kind(),
            Self::Uri { .. } => io::ErrorKind::InvalidInput,
            Self::Lost { .. } => io::ErrorKind::NotConnected,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}
