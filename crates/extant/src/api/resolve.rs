//! From a path to an inode, inside the disk.
//!
//! Symbolic links are followed within the disk, absolute ones from its root; nothing leads to the host.

use std::path::{Path, PathBuf};

use extant_block::os_string;
use extant_ondisk::{FileType, InodeNumber};
use extant_rt::Arc;

use super::filesystem::Filesystem;
use crate::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::incore::inode_cache::InodeRef;
use crate::inode::attributes::Metadata;
use crate::namespace::AccessMask;

/// The symbolic links that a path may lead through (`MAXSYMLINKS` of Linux).
pub const SYMLINKS_MAX: u32 = 40;

/// `PATH_MAX` of Linux, with room for the targets of links.
const PENDING_BYTES_MAX: usize = 64 << 10;

/// A step on the way from the root to an inode.
enum Step<'n> {
    /// Back to the root, by a symbolic link.
    Root,
    /// To the entry of this name, which is no symbolic link that is followed.
    Into(&'n [u8]),
}

impl Filesystem {
    /// The inode at `path`. The last component is followed if it is a symbolic link and `follow` says so.
    pub(super) fn resolve(&self, path: &Path, follow: bool) -> Result<InodeRef> {
        self.resolve_bytes(path.as_os_str().as_encoded_bytes(), follow)
    }

    fn resolve_bytes(&self, path: &[u8], follow: bool) -> Result<InodeRef> {
        match self.walk_in_memory(path, follow, |inode| self.volume().use_named(inode)) {
            Some(found) => found,
            None => self.resolve_tracing(path, follow, &mut |_| {}),
        }
    }

    /// What `stat` reports for what is at `path`, likewise.
    pub(super) fn attributes_at(&self, path: &Path, follow: bool) -> Result<Metadata> {
        let path = path.as_os_str().as_encoded_bytes();
        match self.walk_in_memory(path, follow, |inode| self.volume().attributes_of_named(inode)) {
            Some(found) => found,
            None => Ok(self.volume().attributes(&*self.resolve_tracing(path, follow, &mut |_| {})?)),
        }
    }

    /// What `last` makes of what is at `path`. `None` if the directories must be asked: not all names are in memory, or symbolic links, `.`,
    /// `..` or permissions are on the way.
    fn walk_in_memory<R>(
        &self,
        path: &[u8],
        follow: bool,
        last: impl FnOnce(&Arc<Inode>) -> Option<R>,
    ) -> Option<Result<R>> {
        if self.checks_access() || path.len() > PENDING_BYTES_MAX {
            return None;
        }
        let names = path.split(is_separator).filter(|name| !name.is_empty());
        let must_be_directory = path.last().is_some_and(is_separator);
        let is_it = |inode: &Inode| match inode.file_type() {
            FileType::Directory => true,
            FileType::Symlink => !follow && !must_be_directory,
            _ => !must_be_directory,
        };
        self.volume().walk_in_memory(names, |inode| if is_it(inode) { last(inode) } else { None })
    }

    /// The path of what is at `path`, from the root, through no symbolic link, `.` or `..`.
    pub(super) fn resolve_names(&self, path: &Path) -> Result<PathBuf> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        self.resolve_tracing(path.as_os_str().as_encoded_bytes(), true, &mut |step| match step {
            Step::Root => names.clear(),
            // Above the root is the root.
            Step::Into(b"..") => drop(names.pop()),
            Step::Into(name) => names.push(name.to_vec()),
        })?;
        let mut bytes = vec![b'/'];
        bytes.extend(names.join(&b'/'));
        Ok(os_string(bytes).into())
    }

    /// The directory that holds the last component of `path`, and that component.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no last component or it is `.` or `..`.
    pub(super) fn resolve_parent<'p>(&self, path: &'p Path) -> Result<(InodeRef, &'p [u8])> {
        let bytes = path.as_os_str().as_encoded_bytes();
        let end = bytes.iter().rposition(|b| !is_separator(b)).map_or(0, |last| last + 1);
        let bytes = &bytes[..end];
        let start = bytes.iter().rposition(is_separator).map_or(0, |slash| slash + 1);
        let (parent, name) = bytes.split_at(start);
        if matches!(name, b"" | b"." | b"..") {
            return Err(Error::InvalidArgument("the path has no last name"));
        }
        let parent = self.resolve_bytes(parent, true)?;
        if !parent.is_directory() {
            return Err(Error::NotADirectory);
        }
        Ok((parent, name))
    }

    fn resolve_tracing(
        &self,
        path: &[u8],
        follow: bool,
        trace: &mut dyn FnMut(Step<'_>),
    ) -> Result<InodeRef> {
        let mut here = self.volume().inode(InodeNumber::ROOT)?;
        // Components still to go, the next one last.
        let mut pending: Vec<Vec<u8>> = Vec::new();
        push_components(&mut pending, path, is_separator)?;
        let mut links = 0;
        let must_be_directory = path.last().is_some_and(is_separator);
        while let Some(name) = pending.pop() {
            if !here.is_directory() {
                return Err(Error::NotADirectory);
            }
            self.check_access(&here, AccessMask::EXECUTE)?;
            if name == b"." {
                continue;
            }
            let next = self.volume().lookup(&here, &name)?;
            let last = pending.is_empty();
            if next.file_type() == FileType::Symlink && (!last || follow || must_be_directory) {
                links += 1;
                if links > SYMLINKS_MAX {
                    return Err(Error::Loop);
                }
                let target = self.volume().read_link(&next)?;
                if target.starts_with(b"/") {
                    trace(Step::Root);
                    here = self.volume().inode(InodeNumber::ROOT)?;
                }
                push_components(&mut pending, &target, |byte| *byte == b'/')?;
                continue;
            }
            trace(Step::Into(&name));
            here = next;
        }
        if must_be_directory && !here.is_directory() {
            return Err(Error::NotADirectory);
        }
        Ok(here)
    }
}

/// Whether a byte of a path as the host writes it separates names: on Windows `\` does, too.
fn is_separator(byte: &u8) -> bool {
    std::path::is_separator(char::from(*byte))
}

fn push_components(
    pending: &mut Vec<Vec<u8>>,
    path: &[u8],
    is_separator: impl Fn(&u8) -> bool,
) -> Result<()> {
    let held: usize = pending.iter().map(Vec::len).sum();
    if held + path.len() > PENDING_BYTES_MAX {
        return Err(Error::NameTooLong);
    }
    pending.extend(path.split(is_separator).rev().filter(|name| !name.is_empty()).map(<[u8]>::to_vec));
    Ok(())
}
