//! Sources on the host: trees, and single files that are read as streams.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use extant::Timestamp;
use extant_archive::{Attributes, Source, StreamReader, TreePath, Walk};

use super::{Cp, STREAM, into_itself, is_a_directory};
use crate::address::DiskPath;
use crate::disks::is_same_image;
use crate::failure::Failure;

/// The permissions of a new file that is read from standard input.
const STREAM_MODE: u16 = 0o644;

/// A source on the host.
pub struct HostSource {
    pub is_directory: bool,
    from: From,
}

enum From {
    Tree(Walk),
    /// A device or a pipe, opened, or standard input, with its attributes.
    Stream(Box<dyn io::Read + Send>, std::path::PathBuf, Attributes),
}

impl HostSource {
    /// The source, poured as `path`.
    pub fn at(self, path: TreePath) -> Box<dyn Source + Send> {
        match self.from {
            From::Tree(walk) => Box::new(walk.at(path)),
            From::Stream(input, name, attributes) => {
                Box::new(StreamReader::new(input, name, path, attributes))
            }
        }
    }
}

impl Cp {
    /// What `path` is a source of, once it is known that it can be copied to `target`.
    pub(super) fn host_source(
        &self,
        argument: &OsStr,
        path: &Path,
        target: &DiskPath,
    ) -> Result<HostSource, Failure> {
        let failed = |error| Failure::host(path, &error);
        if argument == STREAM {
            let attributes = Attributes { mode: STREAM_MODE, mtime: now(), ..Attributes::default() };
            let from = From::Stream(Box::new(io::stdin()), "standard input".into(), attributes);
            return Ok(HostSource { is_directory: false, from });
        }
        let found = if self.is_recursive() { path.symlink_metadata() } else { path.metadata() };
        let found = found.map_err(failed)?;
        if found.is_dir() && !self.is_recursive() {
            return Err(is_a_directory(path.display().to_string()));
        }
        if is_same_image(path, &target.image) {
            return Err(into_itself(path.display()));
        }
        let kind = found.file_type();
        let is_stream = kind.is_fifo() || kind.is_char_device() || kind.is_block_device() || kind.is_socket();
        if is_stream && !self.is_recursive() {
            let file = File::open(path).map_err(failed)?;
            let mtime = Timestamp { seconds: found.mtime(), nanoseconds: found.mtime_nsec() as u32 };
            let mode = (found.mode() & 0o777) as u16;
            let attributes =
                Attributes { mode, uid: found.uid(), gid: found.gid(), mtime, ..Attributes::default() };
            let from = From::Stream(Box::new(file), path.to_owned(), attributes);
            return Ok(HostSource { is_directory: false, from });
        }
        let links = self.options().preserve.links;
        let mut walk = Walk::new(path).follow_root(self.follows(argument)).hard_links(links);
        if let Ok(image) = target.image.metadata() {
            walk = walk.exclude(&image);
        }
        Ok(HostSource { is_directory: found.is_dir(), from: From::Tree(walk) })
    }
}

/// A stream is as new as its reading.
fn now() -> Timestamp {
    let (seconds, nanoseconds) = extant_rt::WallClock::System.now();
    Timestamp { seconds, nanoseconds }
}
