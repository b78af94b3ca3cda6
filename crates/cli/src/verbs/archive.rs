//! `extant import`.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use extant_archive::{Extent, Input, Manner, TarReader, pour_concurrently};

use super::Outcome;
use crate::address::DiskPath;
use crate::disks::{ImageLocation, clock, open_for_writing, unmount};
use crate::failure::Failure;
use crate::owner::{names_on, names_on_host};
use crate::progress::Progress;

/// Unpack a tar archive into a disk
///
/// Owners, modes, times, hard links, devices, extended attributes, capabilities, access control lists and sparse files
/// are kept, for root and others alike: nothing of it is done on the host. gzip and Zstandard are unpacked. What is
/// in the way of a file is replaced; nothing leads out of the directory. Owners go by number; names, which only
/// access control lists have, are the disk's, else the host's.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  extant import disk.img rootfs.tar.gz\n  docker export web | extant import disk.img -\n  extant import disk.img:/srv site.tar"
)]
pub struct Import {
    #[command(flatten)]
    location: ImageLocation,
    /// The disk, or a directory on it
    #[arg(value_name = "IMAGE[:/DIR]")]
    target: OsString,
    /// The archive; `-` is standard input
    #[arg(value_name = "TAR|-")]
    archive: PathBuf,
}

/// Opens an archive, or standard input.
pub fn input(archive: &Path) -> Result<Input, Failure> {
    let input = if archive == Path::new("-") {
        if io::IsTerminal::is_terminal(&io::stdin()) {
            return Err(Failure::usage("an archive is not read from a terminal; name a file or use a pipe"));
        }
        Input::stream(io::stdin())
    } else {
        let failed = |error| Failure::host(archive, &error);
        let file = File::open(archive).map_err(failed)?;
        // A named pipe is read once.
        if file.metadata().map_err(failed)?.is_file() { Input::file(file) } else { Input::stream(file) }
    };
    input.map_err(|error| bad_archive(archive, Failure::tree(archive, error)))
}

/// Names the archive in a failure of reading it.
pub fn bad_archive(archive: &Path, failure: Failure) -> Failure {
    match failure.kind {
        "bad_archive" | "unsafe_name" | "io" if failure.place.is_empty() || failure.place == "archive" => {
            Failure { place: archive.display().to_string(), ..failure }
        }
        _ => failure,
    }
}

impl Import {
    /// Unpacks.
    pub fn run(self) -> Outcome {
        let target = DiskPath::parse(&self.target);
        let input = input(&self.archive)?;
        let fs = open_for_writing(&target.image, self.location)?;
        let unpack = || {
            let reader = TarReader::new(input).names(names_on(&fs).or(names_on_host()));
            let failed = |error| Failure::tree_below(&target.image, &target.path, "", error);
            let mut import =
                extant_archive::Import::new(&fs, &target.path, Manner::Unpack, times()?).map_err(failed)?;
            let mut progress = Progress::new(&mut import, None, false);
            pour_concurrently(reader, &mut progress, Extent::Everything)
                .map_err(|error| bad_archive(&self.archive, failed(error)))
        };
        let unpacked = unpack();
        // What was unpacked before a failure stays, and stays consistent.
        unmount(&target.image, fs)?;
        unpacked?;
        Ok(0)
    }
}

/// The times of directories that no entry describes, if the clock is fixed.
pub fn times() -> Result<Option<extant::Times>, Failure> {
    Ok(match clock()? {
        extant_rt::WallClock::Fixed(seconds, nanoseconds) => {
            let moment = extant::Timestamp { seconds, nanoseconds };
            Some(extant::Times { atime: moment, mtime: moment })
        }
        extant_rt::WallClock::System => None,
    })
}
