//! The files of a container image: in a directory of the host, or in an archive that is not packed.
//!
//! Recognised by their names: an OCI image layout has `oci-layout` and `index.json`, what `docker save` writes has
//! `manifest.json`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::entry::EntryKind;
use crate::error::{Error, Result};
use crate::path::TreePath;
use crate::tar::{Input, TarReader};
use crate::window::Window;

/// Bytes of a document: what registries take of one.
const DOCUMENT_BYTES_MAX: u64 = 4 << 20;

/// Files of an archive that may be an image: layers and documents are some hundred.
const MEMBERS_MAX: usize = 1 << 16;

/// Digits of a SHA-256 digest.
const SHA256_DIGITS: usize = 64;

/// How the files of an image belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// An OCI image layout, which a newer `docker save` writes too.
    Layout,
    /// What an older `docker save` writes.
    DockerArchive,
}

/// Where the files of an image are.
#[derive(Debug)]
pub(super) enum Store {
    Directory(PathBuf),
    Archive(BTreeMap<Vec<u8>, Member>),
}

/// A file of an archive.
#[derive(Debug)]
pub(super) enum Member {
    Content(Window),
    /// Older archives have a layer once, and symbolic links to it.
    Link(Vec<u8>),
}

impl Store {
    /// The image in this directory, if it is one.
    pub fn directory(path: &Path) -> Option<(Self, Form)> {
        let is_file = |name: &str| path.join(name).is_file();
        let form = form(&is_file)?;
        Some((Self::Directory(path.to_owned()), form))
    }

    /// The image in this archive, if it is one. Reading ends at the first name that no image has.
    pub fn archive(archive: &Window) -> Result<Option<(Self, Form)>> {
        let mut reader = TarReader::new(Input::window(archive.clone()));
        let mut members = BTreeMap::new();
        loop {
            let entry = match reader.next_member() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                // It is read again as an archive of files, which says what is wrong.
                Err(_) if form(&|name| members.contains_key(name.as_bytes())).is_none() => return Ok(None),
                Err(error) => return Err(error),
            };
            if !is_name_of_image(&entry.path.components()) {
                return Ok(None);
            }
            let member = match entry.kind {
                EntryKind::File(shape) if !shape.has_holes() => {
                    archive.part(reader.content_offset(), shape.size).map(Member::Content)
                }
                EntryKind::Symlink(says) => Some(Member::Link(says)),
                EntryKind::HardLink(original) => {
                    Some(Member::Link([b"/", &original.to_bytes()[..]].concat()))
                }
                _ => None,
            };
            members.extend(member.map(|member| (entry.path.to_bytes(), member)));
            if members.len() > MEMBERS_MAX {
                return Ok(None);
            }
        }
        let form = form(&|name| members.contains_key(name.as_bytes()));
        Ok(form.map(|form| (Self::Archive(members), form)))
    }

    /// Whether an archive that begins with these bytes may be an image.
    pub fn may_begin(prefix: Vec<u8>) -> bool {
        let Ok(input) = Input::stream(std::io::Cursor::new(prefix)) else { return false };
        let mut reader = TarReader::new(input);
        let mut any = false;
        while let Ok(Some(entry)) = reader.next_member() {
            if !is_name_of_image(&entry.path.components()) {
                return false;
            }
            any = true;
        }
        any
    }

    /// The file at `path`.
    pub fn open(&self, path: &TreePath) -> Result<Window> {
        let name = || String::from_utf8_lossy(&path.to_bytes()).into_owned();
        let missing = || Error::image(name(), "missing; copy or save the image again, whole");
        match self {
            Self::Directory(root) => {
                let host = root.join(extant_block::os_string(path.to_bytes()));
                // To open a named pipe would wait for its writer.
                match std::fs::metadata(&host) {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(missing()),
                    found if found.as_ref().is_ok_and(|found| !found.is_file()) => {
                        return Err(Error::image(name(), "not a regular file"));
                    }
                    _ => {}
                }
                let file = File::open(&host).map_err(Error::host(&host))?;
                Window::whole(file).map_err(Error::host(&host))
            }
            Self::Archive(members) => match members.get(&path.to_bytes()).ok_or_else(missing)? {
                Member::Content(window) => Ok(window.clone()),
                Member::Link(says) => {
                    let original = target(path, says).and_then(|original| members.get(&original));
                    match original.ok_or_else(missing)? {
                        Member::Content(window) => Ok(window.clone()),
                        Member::Link(_) => Err(missing()),
                    }
                }
            },
        }
    }

    /// The whole of a small file.
    pub fn document(&self, path: &TreePath) -> Result<Vec<u8>> {
        let window = self.open(path)?;
        let name = String::from_utf8_lossy(&path.to_bytes()).into_owned();
        if window.size() > DOCUMENT_BYTES_MAX {
            return Err(Error::image(name, "a document of more than 4 MiB"));
        }
        let mut bytes = Vec::new();
        window.rewound().read_to_end(&mut bytes).map_err(Error::Stream)?;
        Ok(bytes)
    }
}

fn form(has: &dyn Fn(&str) -> bool) -> Option<Form> {
    if has("oci-layout") && has("index.json") {
        return Some(Form::Layout);
    }
    has("manifest.json").then_some(Form::DockerArchive)
}

/// The place that a link in an archive leads to.
fn target(link: &TreePath, says: &[u8]) -> Option<Vec<u8>> {
    let mut at: Vec<&[u8]> =
        if says.starts_with(b"/") { Vec::new() } else { link.split_last()?.0.components() };
    for name in says.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(at.pop()?),
            _ => at.push(name),
        }
    }
    Some(at.join(&b'/'))
}

/// Whether the files of an image have such names.
fn is_name_of_image(path: &[&[u8]]) -> bool {
    let is_hex = |name: &[u8]| {
        name.len() == SHA256_DIGITS && name.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_suffixed =
        |name: &[u8]| [&b".json"[..], b".tar", b".tar.gz"].iter().any(|suffix| name.ends_with(suffix));
    match path {
        [] => true,
        [name] => {
            let digits = name.strip_prefix(b"sha256:").unwrap_or(name);
            is_suffixed(name) || is_hex(digits) || matches!(*name, b"oci-layout" | b"repositories" | b"blobs")
        }
        [first, ..] if *first == b"blobs" => path.len() <= 3,
        [id, name] => is_hex(id) && matches!(*name, b"layer.tar" | b"json" | b"VERSION"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images_are_told_from_those_of_trees() {
        let id = "0123456789abcdef".repeat(4);
        let layer = format!("{id}/layer.tar");
        for name in
            [".", "oci-layout", "blobs/sha256", &format!("blobs/sha256/{id}"), &layer, &format!("{id}.json")]
        {
            assert!(is_name_of_image(&TreePath::parse(name.as_bytes()).unwrap().components()), "{name}");
        }
        for name in ["bin", "etc/os-release", "a/layer.tar", "blobs/a/b/c", "manifest.json/x"] {
            assert!(!is_name_of_image(&TreePath::parse(name.as_bytes()).unwrap().components()), "{name}");
        }
    }

    #[test]
    fn links_lead_inside_the_archive_or_nowhere() {
        let link = TreePath::parse(b"a/layer.tar").unwrap();
        assert_eq!(target(&link, b"../b/layer.tar"), Some(b"b/layer.tar".to_vec()));
        assert_eq!(target(&link, b"/c"), Some(b"c".to_vec()));
        assert_eq!(target(&link, b"../../c"), None);
    }
}
