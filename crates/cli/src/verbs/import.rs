//! `extant import`.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use extant_archive::oci::Image;
use extant_archive::{Adjust, Entry, Extent, Input, Manner, Source, TarReader, pour_concurrently};
use extant_rt::Arc;
use serde_json::json;

use super::Outcome;
use crate::address::DiskPath;
use crate::container_image::{ImageOptions, Opened, named, spool_directory};
use crate::disks::{ImageLocation, clock, fixed_times, open_for_writing, unmount};
use crate::failure::Failure;
use crate::id_maps::IdMapOptions;
use crate::output::Output;
use crate::owner::{names_on, names_on_host};
use crate::progress::{Progress, ProgressForm};

/// Unpack a tar archive, a layer or a container image into a disk
///
/// Owners, modes, times, hard links, devices, extended attributes, capabilities, access control lists and sparse files
/// are kept, for root and others alike: nothing of it is done on the host. What gzip, Zstandard, xz or bzip2 packed is
/// unpacked. What is in the way of a file is replaced; nothing leads out of the directory. Owners go by number; names,
/// which only access control lists have, are the disk's, else the host's.
///
/// A whiteout in the archive, a file .wh.NAME as layers of container images have it, removes NAME from the disk; one that
/// is called .wh..wh..opq removes everything in its directory but what the archive has there. A container image, as
/// mkfs -d takes it, is merged first.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  extant import disk.img rootfs.tar.gz\n  docker export web | extant import disk.img -\n  extant import disk.img:/srv site.tar\n  extant import disk.img layer.tar.zst"
)]
pub struct Import {
    #[command(flatten)]
    location: ImageLocation,
    /// The disk, or a directory on it
    #[arg(value_name = "IMAGE[:/DIR]")]
    target: OsString,
    #[command(flatten)]
    id_maps: IdMapOptions,
    #[command(flatten)]
    image_options: ImageOptions,
    /// Write events of progress as JSON to standard error, and what was unpacked to standard output
    #[arg(long)]
    json: bool,
    /// The archive, or the container image; `-` is standard input
    #[arg(value_name = "TAR|IMAGE|-")]
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
    input.map_err(|error| named(archive, Failure::tree(archive, error)))
}

enum ImportSource {
    Image(Arc<Image>),
    /// An archive of files, or one that is read once and not looked at so far.
    Archive(Input),
}

impl Import {
    fn form(&self) -> ProgressForm {
        ProgressForm::new(self.json, false)
    }

    /// What is in the archive, as far as it can be read again.
    fn source(&self, disk: &Path) -> Result<ImportSource, Failure> {
        let path = &self.archive;
        if path.is_dir() {
            let Some(image) = self.image_options.in_directory(path, disk, None, self.form())? else {
                let message = format!("{} is a directory and no container image; use cp -a", path.display());
                return Err(Failure::usage(message));
            };
            return self.in_image(image);
        }
        let archive = input(path)?;
        if !archive.is_plain_file() {
            return Ok(ImportSource::Archive(archive));
        }
        self.in_file(File::open(path).map_err(|error| Failure::host(path, &error))?, disk)
    }

    /// What is in an archive that is read once, which may have to be spooled for that.
    fn in_stream(&self, mut archive: Input, disk: &Path) -> Result<ImportSource, Failure> {
        let failed = |error| named(&self.archive, Failure::tree(&self.archive, error));
        if Image::may_be_in(&mut archive).map_err(failed)? {
            return self.in_file(archive.spool(&spool_directory(disk)).map_err(failed)?, disk);
        }
        self.image_options.refuse_without_image(&self.archive)?;
        Ok(ImportSource::Archive(archive))
    }

    fn in_file(&self, file: File, disk: &Path) -> Result<ImportSource, Failure> {
        let path = &self.archive;
        match self.image_options.in_archive(path, file, disk, None, self.form())? {
            Opened::Image(found) => self.in_image(found),
            Opened::File(file) => {
                self.image_options.refuse_without_image(path)?;
                let input = Input::file(file);
                Ok(ImportSource::Archive(input.map_err(|error| named(path, Failure::tree(path, error)))?))
            }
        }
    }

    fn in_image(&self, image: Arc<Image>) -> Result<ImportSource, Failure> {
        self.image_options.write_config(&image)?;
        Ok(ImportSource::Image(image))
    }

    /// Unpacks.
    pub fn run(self) -> Outcome {
        let target = DiskPath::parse(&self.target);
        let id_maps = self.id_maps.read()?;
        // An image is read before the disk is touched; a stream only when the disk is locked, for it may last.
        let source = self.source(&target.image)?;
        let times = fixed_times(clock()?);
        let fs = open_for_writing(&target.image, self.location)?;
        let unpack = || {
            let failed = |error| Failure::tree_below(&target.image, &target.path, "", error);
            let source = match source {
                ImportSource::Archive(input) if !input.is_plain_file() => {
                    self.in_stream(input, &target.image)?
                }
                source => source,
            };
            let reader: Box<dyn Source + Send> = match source {
                ImportSource::Image(image) => Box::new(image),
                ImportSource::Archive(input) => {
                    Box::new(TarReader::new(input).names(names_on(&fs).or(names_on_host())))
                }
            };
            let mut import =
                extant_archive::Import::new(&fs, &target.path, Manner::Layer, times).map_err(failed)?;
            let mut progress = Progress::new(&mut import, None, self.form());
            let reader = Adjust::new(reader, move |entry: &mut Entry| id_maps.apply(entry));
            pour_concurrently(reader, &mut progress, Extent::Everything)
                .map_err(|error| named(&self.archive, failed(error)))?;
            Ok(progress.counted())
        };
        let unpacked = unpack();
        // What was unpacked before a failure stays, and stays consistent.
        unmount(&target.image, fs)?;
        let (entries, content_bytes) = unpacked?;
        if self.json {
            let mut output = Output::new();
            output.json(&json!({ "entries": entries, "content_bytes": content_bytes }))?;
            output.finish()?;
        }
        Ok(0)
    }
}
