//! The place that an argument names: a file of the host or a place on a disk.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use extant_block::{identity, os_string};

use crate::failure::Failure;

/// A place on a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskPath {
    /// The image file or block special.
    pub image: PathBuf,
    /// The path on it, from its root.
    pub path: PathBuf,
}

impl std::fmt::Display for DiskPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.image.display(), self.path.display())
    }
}

/// The place that an argument names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A file of the host.
    Local(PathBuf),
    /// A place on a disk.
    Disk(DiskPath),
}

impl Address {
    /// An argument that exists on the host names that file; else the argument is split at the first `:/` that
    /// is not `://`.
    pub fn parse(argument: &OsStr) -> Self {
        match split(argument) {
            Some(place) if !exists(argument) => Self::Disk(place),
            _ => Self::Local(PathBuf::from(argument)),
        }
    }
}

impl DiskPath {
    /// The place that `argument` names; an image alone means its root directory.
    pub fn parse(argument: &OsStr) -> Self {
        match Address::parse(argument) {
            Address::Disk(place) => place,
            Address::Local(image) => Self { image, path: PathBuf::from("/") },
        }
    }

    /// As [`DiskPath::parse_below_root`], for several.
    pub fn parse_all_below_root(arguments: &[OsString]) -> Result<Vec<Self>, Failure> {
        arguments.iter().map(|argument| Self::parse_below_root(argument)).collect()
    }

    /// As [`DiskPath::parse`], for what can't be the root.
    pub fn parse_below_root(argument: &OsStr) -> Result<Self, Failure> {
        let place = Self::parse(argument);
        if place.path.file_name().is_none() {
            let image = place.image.display();
            return Err(Failure::usage(format!(
                "'{image}' names a whole disk; name a place on it as {image}:/PATH"
            )));
        }
        Ok(place)
    }
}

/// Whether two paths name one image. Opened twice, it would be locked against itself.
pub fn is_same_image(left: &Path, right: &Path) -> bool {
    left == right || identity(left).is_ok_and(|left| identity(right).is_ok_and(|right| left == right))
}

fn exists(argument: &OsStr) -> bool {
    Path::new(argument).symlink_metadata().is_ok()
}

fn split(argument: &OsStr) -> Option<DiskPath> {
    let bytes = argument.as_encoded_bytes();
    // The colon behind the letter of a drive belongs to the path of the image.
    let first = if cfg!(windows) && bytes.first().is_some_and(u8::is_ascii_alphabetic) { 2 } else { 1 };
    let at = (first..bytes.len())
        .find(|at| bytes[*at..].starts_with(b":/") && !bytes[*at..].starts_with(b"://"))?;
    let path = |bytes: &[u8]| PathBuf::from(os_string(bytes.to_vec()));
    Some(DiskPath { image: path(&bytes[..at]), path: path(&bytes[at + 1..]) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_colon_slash_splits_and_urls_stay_whole() {
        let parse = |text: &str| Address::parse(OsStr::new(text));
        let disk =
            |image: &str, path: &str| Address::Disk(DiskPath { image: image.into(), path: path.into() });
        assert_eq!(parse("a.img:/etc/x"), disk("a.img", "/etc/x"));
        assert_eq!(parse("a.img:/etc:/x"), disk("a.img", "/etc:/x"));
        assert_eq!(parse("a.img:/"), disk("a.img", "/"));
        assert_eq!(parse("nbd://host/x"), Address::Local("nbd://host/x".into()));
        assert_eq!(parse("nbd://host:10809/x"), Address::Local("nbd://host:10809/x".into()));
        assert_eq!(parse("nbd://host/x:/etc/passwd"), disk("nbd://host/x", "/etc/passwd"));
        assert_eq!(parse("nbd://host:10809/x:/etc"), disk("nbd://host:10809/x", "/etc"));
        assert_eq!(parse("nbds://[::1]:10809/:/"), disk("nbds://[::1]:10809/", "/"));
        assert_eq!(
            parse("nbd+unix:///x?socket=/run/no-such/s:/etc"),
            disk("nbd+unix:///x?socket=/run/no-such/s", "/etc")
        );
        assert_eq!(parse(":/x"), Address::Local(":/x".into()));
        assert_eq!(parse("no-such-file"), Address::Local("no-such-file".into()));
    }

    #[test]
    fn what_exists_is_local() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a:")).unwrap();
        std::fs::write(dir.path().join("a:/b"), "").unwrap();
        let path = dir.path().join("a:/b");
        assert_eq!(Address::parse(path.as_os_str()), Address::Local(path.clone()));
        assert!(DiskPath::parse_below_root(path.as_os_str()).is_err());
    }
}
