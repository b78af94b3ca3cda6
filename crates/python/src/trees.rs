//! Trees in and out: directories of the host and tar archives.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use extant::Filesystem;
use extant_archive::{
    CopyOptions, DiskWalk, Extent, Extract, Import, Input, Manner, Source, TarReader, TarWriter, Walk,
    pour_concurrently,
};

use crate::error::Failure;

/// Unpacks a directory of the host, or a tar, into the directory `target` of the disk; gives the number of entries.
pub(crate) fn import(fs: &Filesystem, source: &Path, target: &Path) -> Result<u64, Failure> {
    let tree: Box<dyn Source + Send> = if source.is_dir() {
        Box::new(Walk::new(source))
    } else {
        Box::new(TarReader::new(Input::file(File::open(source)?)?))
    };
    let mut sink = Import::new(fs, target, Manner::Unpack, None)?;
    pour_concurrently(tree, &mut sink, Extent::Everything)?;
    Ok(sink.imported().entries)
}

/// Writes the tree at `source` as a tar into the new file `archive`.
pub(crate) fn export_tar(fs: &Filesystem, source: &Path, archive: &Path) -> Result<(), Failure> {
    let mut sink = TarWriter::new(BufWriter::new(File::create(archive)?));
    pour_concurrently(DiskWalk::new(fs, source), &mut sink, Extent::Everything)?;
    Ok(sink.into_inner()?.flush()?)
}

/// Copies the tree at `source` into the directory `target` of the host, which exists; `preserve` as `cp -a`.
pub(crate) fn extract(fs: &Filesystem, source: &Path, target: &Path, preserve: bool) -> Result<(), Failure> {
    let options = if preserve { CopyOptions::archive() } else { CopyOptions::default() };
    let mut sink = Extract::new(target, options)?;
    Ok(pour_concurrently(DiskWalk::new(fs, source).follow_root(true), &mut sink, Extent::Everything)?)
}
