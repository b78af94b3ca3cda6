//! Sources on the host: trees, and single files that are read as streams.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::mem;
use std::path::Path;

use extant::Timestamp;
use extant::mode::S_IRWXUGO;
use extant_archive::{Attributes, Source, StreamReader, TreePath, Walk};
use extant_block::identity;

use super::{Cp, STREAM, into_itself, is_a_directory};
use crate::address::{DiskPath, is_same_image};
use crate::failure::Failure;
use crate::host;

/// The permissions of a new file that is read from standard input.
const STREAM_MODE: u16 = 0o644;

/// What messages call it.
const STANDARD_INPUT: &str = "standard input";
/// What is piped stays in memory up to so many bytes, and is kept in a temporary file beyond.
const INPUT_MEMORY_BYTES_MAX: usize = 16 << 20;

/// A source on the host.
pub struct HostSource {
    pub is_directory: bool,
    input: HostInput,
}

enum HostInput {
    Tree(Walk),
    /// A device or a pipe, opened, or standard input, with its attributes.
    Stream(Box<dyn Read + Send>, std::path::PathBuf, Attributes),
}

impl HostSource {
    /// The source, poured as `path`.
    pub fn at(self, path: TreePath) -> Box<dyn Source + Send> {
        match self.input {
            HostInput::Tree(walk) => Box::new(walk.at(path)),
            HostInput::Stream(input, name, attributes) => {
                Box::new(StreamReader::new(input, name, path, attributes))
            }
        }
    }
}

impl Cp {
    /// What `path` is a source of, once it is known that it can be copied to `target`. Standard input is `input`, and empty
    /// when it is named again.
    pub(super) fn host_source(
        &self,
        argument: &OsStr,
        path: &Path,
        target: &DiskPath,
        input: &mut Box<dyn Read + Send>,
    ) -> Result<HostSource, Failure> {
        let failed = |error| Failure::host(path, &error);
        if argument == STREAM {
            let attributes = Attributes { mode: STREAM_MODE, mtime: now(), ..Attributes::default() };
            let input = mem::replace(input, Box::new(io::empty()));
            let input = HostInput::Stream(input, STANDARD_INPUT.into(), attributes);
            return Ok(HostSource { is_directory: false, input });
        }
        let found = if self.is_recursive() { path.symlink_metadata() } else { path.metadata() };
        let found = found.map_err(failed)?;
        if found.is_dir() && !self.is_recursive() {
            return Err(is_a_directory(path.display().to_string()));
        }
        if is_same_image(path, &target.image) {
            return Err(into_itself(path.display()));
        }
        if host::is_stream(found.file_type()) && !self.is_recursive() {
            let file = File::open(path).map_err(failed)?;
            let mtime = found.modified().map_err(failed)?.into();
            let (mode, uid, gid) = host::mode_and_owner(&found);
            let attributes = Attributes { mode: mode & S_IRWXUGO, uid, gid, mtime, ..Attributes::default() };
            let input = HostInput::Stream(Box::new(file), path.to_owned(), attributes);
            return Ok(HostSource { is_directory: false, input });
        }
        let links = self.options().preserve.links;
        let mut walk = Walk::new(path).follow_root(self.follows(argument)).hard_links(links);
        if let Ok(image) = identity(&target.image) {
            walk = walk.exclude(image);
        }
        Ok(HostSource { is_directory: found.is_dir(), input: HostInput::Tree(walk) })
    }
}

/// Standard input, and a pipe's whole content: its writer may end only when it has read the disk that is about to be locked.
pub fn standard_input() -> Result<Box<dyn Read + Send>, Failure> {
    let failed = |error| Failure::host(Path::new(STANDARD_INPUT), &error);
    let input = io::stdin();
    if !host::stdin_is_pipe().map_err(failed)? {
        return Ok(Box::new(input));
    }
    let mut content = tempfile::spooled_tempfile(INPUT_MEMORY_BYTES_MAX);
    let not_kept = |error| Failure::host(&host::temporary_directory(), &error);
    let mut piece = vec![0; 1 << 16];
    let mut input = input.lock();
    loop {
        match input.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => content.write_all(&piece[..len]).map_err(not_kept)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    content.rewind().map_err(not_kept)?;
    Ok(Box::new(content))
}

/// A stream is as new as its reading.
fn now() -> Timestamp {
    let (seconds, nanoseconds) = extant_rt::WallClock::System.now();
    Timestamp { seconds, nanoseconds }
}
