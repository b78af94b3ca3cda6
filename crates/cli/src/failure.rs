//! Failures of commands: one line for people, a document for programs, a number for the shell.

use std::fmt;
use std::io;
use std::path::Path;

use extant_ondisk::Structure;

/// Exit status: something failed.
pub const EXIT_FAILED: u8 = 1;
/// Exit status: the command line was wrong.
pub const EXIT_USAGE: u8 = 2;
/// Exit status of fsck: damage is left on the disk.
pub const EXIT_FSCK_ERRORS: u8 = 4;
/// Exit status of fsck: it could not be found out.
pub const EXIT_FSCK_OPERATIONAL: u8 = 8;
/// Exit status of fsck: a wrong command line, or something that is not served.
pub const EXIT_FSCK_USAGE: u8 = 16;

const BROKEN_PIPE: &str = "broken_pipe";

/// Why a verb failed.
#[derive(Debug)]
pub struct Failure {
    /// A word that programs can compare.
    pub kind: &'static str,
    /// Where: a file, or an image and a path on it.
    pub place: String,
    /// What happened, in one line.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() {
            return f.write_str(&self.message);
        }
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl Failure {
    /// Something failed at `place`.
    pub fn new(kind: &'static str, place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, place: place.into(), message: message.into() }
    }

    /// The command line was wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new("usage", "", message)
    }

    /// The exit status that corresponds to it.
    pub fn exit(&self) -> u8 {
        if self.kind == "usage" { EXIT_USAGE } else { EXIT_FAILED }
    }

    /// The host refused `path`.
    pub fn host(path: &Path, error: &io::Error) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => "not_found",
            io::ErrorKind::PermissionDenied => "permission_denied",
            io::ErrorKind::AlreadyExists => "exists",
            io::ErrorKind::StorageFull => "no_space",
            _ => "io",
        };
        Self::new(kind, path.display().to_string(), plain(error))
    }

    /// A disk refused.
    pub fn disk(place: impl fmt::Display, error: &extant::Error) -> Self {
        // The place names the path.
        let error = error.cause();
        Self::new(kind_of(error), place.to_string(), without_number(&error.to_string()))
    }

    /// The file system of `image` cannot be opened: why, and what can be done.
    pub fn opening(image: &Path, error: &extant::Error) -> Self {
        let mut failure = Self::disk(image.display(), error);
        if let Some(advice) = advice(error) {
            failure.message = format!("{}; {advice}", failure.message);
        }
        failure
    }

    /// A tree could not be moved between the host or an archive and `image`.
    pub fn tree(image: &Path, error: extant_archive::Error) -> Self {
        Self::tree_below(image, Path::new(""), "", error)
    }

    /// As [`Failure::tree`]; places on the disk, which the error names as `at` and below, are at `base` and below.
    pub fn tree_below(image: &Path, base: &Path, at: &str, error: extant_archive::Error) -> Self {
        use extant_archive::Error;
        let place = |path: &str| {
            let base = base.display().to_string();
            // What is wrong with the base itself is reported with its own path.
            let below = if path == base { "" } else { path.strip_prefix(at).unwrap_or(path) };
            let slash = if below.is_empty() || below.starts_with('/') { "" } else { "/" };
            format!("{}:{}{slash}{below}", image.display(), base.strip_suffix('/').unwrap_or(&base))
        };
        match error {
            Error::Disk { path, source } | Error::Base { path, source } => Self::disk(place(&path), &source),
            Error::Host { path, source } => Self::host(&path, &source),
            Error::Refused { path, reason } => Self::new("refused", place(&path.to_string()), reason),
            Error::Unmapped { path, reason } => Self::new("unmapped", place(&path.to_string()), reason),
            Error::Line { file, line, reason } => {
                Self::new("bad_line", format!("{}:{line}", file.display()), reason)
            }
            Error::Damaged { path, reason } => Self::new("corrupt", place(&path.to_string()), reason),
            Error::Limit { path, what } => Self::new("too_large", place(&path.to_string()), what),
            Error::Stream(source) => Self::output_to("archive", &source),
            error @ (Error::Format { .. } | Error::Member { .. }) => {
                Self::new("bad_archive", "", error.to_string())
            }
            error @ Error::Image { .. } => Self::new("bad_image", "", error.to_string()),
            Error::Choice(choice) => Self::usage(choice),
            error @ Error::UnsafeName(_) => Self::new("unsafe_name", "", error.to_string()),
            error @ Error::Changed { .. } => Self::new("changed", "", error.to_string()),
            error => Self::new("failed", image.display().to_string(), error.to_string()),
        }
    }

    /// As [`Failure::tree_below`] where `image` is compared with `base_image`.
    pub fn comparing(base_image: &Path, image: &Path, base: &Path, error: extant_archive::Error) -> Self {
        let is_base = matches!(error, extant_archive::Error::Base { .. });
        Self::tree_below(if is_base { base_image } else { image }, base, "", error)
    }

    /// Writing results failed.
    pub fn output(error: &io::Error) -> Self {
        Self::output_to("standard output", error)
    }

    fn output_to(place: &str, error: &io::Error) -> Self {
        let kind = if error.kind() == io::ErrorKind::BrokenPipe { BROKEN_PIPE } else { "io" };
        Self::new(kind, place, plain(error))
    }

    /// Whether the failure need not be reported: the reader of a pipe has closed it.
    pub fn is_silent(&self) -> bool {
        self.kind == BROKEN_PIPE
    }
}

/// The host's words without the number that Rust adds.
fn plain(error: &io::Error) -> String {
    without_number(&error.to_string())
}

/// An error's words without the number that Rust adds to those of the host.
pub fn without_number(text: &str) -> String {
    match text.split_once(" (os error ").and_then(|(before, rest)| Some((before, rest.split_once(')')?.1))) {
        Some((before, after)) => format!("{before}{after}"),
        None => text.to_owned(),
    }
}

/// Advice for a file system that cannot be opened.
fn advice(error: &extant::Error) -> Option<&'static str> {
    use extant::Error;
    Some(match error {
        Error::Corrupt { location, .. } if location.structure == Structure::Superblock => {
            "e2fsck takes a copy of it from another group, if there is one"
        }
        Error::Corrupt { .. } => "e2fsck repairs what can be repaired",
        Error::Truncated { .. } => "the image was cut off, or not copied whole",
        Error::Log { source: extant::JournalError::Incompatible(_), .. } => {
            "a Linux or e2fsck that knows them replays it; --norecovery (mount: -o ro,norecovery) shows the disk without it"
        }
        Error::Log { .. } => {
            "e2fsck mends or empties it; --norecovery (mount: -o ro,norecovery) shows the disk without it"
        }
        Error::Incompatible(_) => "such a disk can be neither read nor written here",
        Error::InUse(_) => "if that is no longer so, `tune2fs -f -E clear_mmp` ends it",
        Error::ReadOnlyFeatures(_) => "mount it with -o ro",
        _ => return None,
    })
}

/// The word for an error of a disk.
fn kind_of(error: &extant::Error) -> &'static str {
    use extant::Error;
    match error {
        Error::Io { .. } => "io",
        Error::Log { source: extant::JournalError::Incompatible(_), .. } => "incompatible",
        Error::Corrupt { .. } | Error::Log { .. } | Error::Truncated { .. } => "corrupt",
        Error::Journal(_) => "journal",
        Error::Incompatible(_) | Error::ReadOnlyFeatures(_) => "incompatible",
        Error::InUse(_) => "busy",
        Error::ReadOnly => "read_only",
        Error::NoSpace => "no_space",
        Error::NoInodes => "no_inodes",
        Error::QuotaExceeded => "quota_exceeded",
        Error::CrossProject => "cross_project",
        Error::NotFound => "not_found",
        Error::Exists => "exists",
        Error::NotADirectory => "not_a_directory",
        Error::IsADirectory => "is_a_directory",
        Error::NotEmpty => "not_empty",
        Error::PermissionDenied => "permission_denied",
        Error::NotPermitted => "not_permitted",
        Error::NoKey => "no_key",
        Error::TooManyLinks => "too_many_links",
        Error::NameTooLong => "name_too_long",
        Error::Loop => "loop",
        Error::FileTooLarge => "file_too_large",
        Error::InvalidArgument(_) | Error::OutOfRange { .. } => "invalid_argument",
        Error::NoAttribute => "no_attribute",
        Error::Unsupported(_) => "unsupported",
        _ => "failed",
    }
}
