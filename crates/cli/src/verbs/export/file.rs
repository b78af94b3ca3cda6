//! An archive in a file, which gets its name when it is complete.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::failure::Failure;
use crate::host;

/// Gives `write` the file at `path`. If it fails, what was there is as it was; but of a device or a pipe.
pub fn write<T>(
    path: &Path,
    write: impl FnOnce(&mut dyn io::Write) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let failed = |error| Failure::host(path, &error);
    let named = |failure: Failure| match failure.place.as_str() {
        "archive" => Failure { place: path.display().to_string(), ..failure },
        _ => failure,
    };
    // A symbolic link stays, and what it names is replaced.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if target.metadata().is_ok_and(|found| !found.is_file()) {
        let mut file = File::options().write(true).open(&target).map_err(failed)?;
        return write(&mut file).map_err(named);
    }
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    builder.prefix(".extant-");
    let mut pending = host::new_file(&mut builder).tempfile_in(parent).map_err(failed)?;
    let written = write(&mut pending).map_err(named)?;
    pending.persist(&target).map_err(|error| failed(error.error))?;
    Ok(written)
}
