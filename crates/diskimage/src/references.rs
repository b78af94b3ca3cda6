//! Files that images refer to: found, checked and opened.
//!
//! An image may come from anywhere, and what it refers to is read into a disk that its maker may see. So it reaches regular files below
//! its own directory, and below those that the caller allows. Symbolic links count as what they lead to.

use std::path::{Path, PathBuf};

use extant_block::{BlockDevice, DeviceAccess, FileDevice, Identity, canonicalize, identity};
use extant_rt::Arc;

use crate::error::{Error, Result};

/// Files of all images of a chain at most.
const FILES_MAX: usize = 256;

/// Images that are open already, and where the next may be.
pub(crate) struct References<'a> {
    /// Directories below which files may be, beside each image's own.
    allowed: &'a [PathBuf],
    /// Each file of the chain.
    open: Vec<Identity>,
}

impl<'a> References<'a> {
    /// None but the image at `path`, if it is a file.
    pub(crate) fn new(path: &Path, allowed: &'a [PathBuf]) -> Self {
        let open = identity(path).into_iter().collect();
        Self { allowed, open }
    }

    /// Opens for reading the file that the image at `image` calls `name`.
    pub(crate) fn open(&mut self, image: &Path, name: &str) -> Result<(PathBuf, Arc<dyn BlockDevice>)> {
        let refused = |reason: String| Error::Reference { name: name.to_owned(), reason };
        let is_path =
            !name.is_empty() && !name.contains('\0') && !name.starts_with("json:") && !name.contains("://");
        if !is_path {
            return Err(refused("which is no path of a file".to_owned()));
        }
        let directory =
            image.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let missing = |error: std::io::Error| refused(format!("which cannot be opened: {error}"));
        let path =
            canonicalize(directory.join(name.strip_prefix("file:").unwrap_or(name))).map_err(missing)?;
        let own = canonicalize(directory).map_err(missing)?;
        let allowed = self.allowed.iter().filter_map(|allowed| canonicalize(allowed).ok());
        if !std::iter::once(own).chain(allowed).any(|allowed| path.starts_with(allowed)) {
            let reason = "which is not below its own directory; EXTANT_BACKING_DIRS=DIR:DIR allows others";
            return Err(refused(reason.to_owned()));
        }
        if !path.metadata().map_err(missing)?.is_file() {
            return Err(refused("which is no regular file".to_owned()));
        }
        let identity = identity(&path).map_err(missing)?;
        if self.open.contains(&identity) {
            return Err(refused("which lies above it: the chain is a loop".to_owned()));
        }
        if self.open.len() >= FILES_MAX {
            return Err(refused(format!("the last of more than {FILES_MAX} files")));
        }
        self.open.push(identity);
        let file = FileDevice::open(&path, DeviceAccess::read_only());
        let file = file.map_err(|error| refused(format!("which cannot be opened: {error}")))?;
        Ok((path, Arc::new(file)))
    }
}
