//! Errors of disks behind HTTP servers.

use std::fmt;
use std::io;

/// Errors of disks behind HTTP servers. Each names the file by its URL.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The text is no URL of a file.
    Url {
        /// The text.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The server cannot be reached, or does not answer.
    Unreachable {
        /// The file.
        url: String,
        /// What happened.
        reason: String,
    },
    /// The server has no such file.
    NotFound {
        /// The file.
        url: String,
        /// The server's answer.
        answer: String,
    },
    /// The server refuses.
    Refused {
        /// The file.
        url: String,
        /// The server's answer, and what can be done.
        answer: String,
    },
    /// The server sends whole files only.
    NoRanges {
        /// The file.
        url: String,
    },
    /// The file is another one than at the beginning.
    Changed {
        /// The file.
        url: String,
        /// What differs.
        what: String,
    },
    /// The server breaks the protocol.
    Protocol {
        /// The file.
        url: String,
        /// How.
        reason: String,
    },
    /// A certificate is not trusted, or those of the authorities cannot be read.
    Tls {
        /// The file.
        url: String,
        /// What is wrong.
        reason: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url { text, reason } => write!(f, "{text}: {reason}"),
            Self::Unreachable { url, reason } => write!(f, "{url}: {reason}"),
            Self::NotFound { url, answer } => write!(f, "{url}: no such file: {answer}"),
            Self::Refused { url, answer } => write!(f, "{url}: the server refuses: {answer}"),
            Self::NoRanges { url } => write!(
                f,
                "{url}: the server does not serve ranges of bytes (Accept-Ranges); download the file and use the copy, or serve \
                 it by a server that does"
            ),
            Self::Changed { url, what } => {
                write!(f, "{url}: the file changed while it was read: {what}; start again")
            }
            Self::Protocol { url, reason } => write!(f, "{url}: breach of protocol: {reason}"),
            Self::Tls { url, reason } => write!(f, "{url}: TLS: {reason}"),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// The kind of `std::io::Error` that it becomes.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Url { .. } => io::ErrorKind::InvalidInput,
            Self::Unreachable { .. } => io::ErrorKind::NotConnected,
            Self::NotFound { .. } => io::ErrorKind::NotFound,
            Self::Refused { .. } => io::ErrorKind::PermissionDenied,
            Self::NoRanges { .. } => io::ErrorKind::Unsupported,
            Self::Changed { .. } => io::ErrorKind::StaleNetworkFileHandle,
            Self::Protocol { .. } | Self::Tls { .. } => io::ErrorKind::InvalidData,
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        Self::new(error.kind(), error)
    }
}
