//! Container images as what a disk is filled from.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use clap::Args;
use extant_archive::oci::{Image, ImageChoice, Platform, ReadLayers};
use extant_rt::Arc;

use crate::devices::scheme;
use crate::failure::Failure;
use crate::host;
use crate::owner::names_on_host;
use crate::progress::{Display, ProgressForm};

/// A layer takes more as an archive than on the disk if its files are small: at most so many times as much.
const ARCHIVE_TO_DISK_MAX: u64 = 4;
/// Any layer may have so many bytes.
const LAYER_BYTES_MIN: u64 = 16 << 20;

/// Which image, of those in a layout or in what `docker save` wrote.
#[derive(Args, Default)]
pub struct ImageOptions {
    /// Of a container image that holds several, the one of this name
    #[arg(long = "image", value_name = "NAME[:TAG]")]
    name: Option<String>,
    /// Of a container image for several platforms, the one for this; that of the host if not given
    #[arg(long, value_name = "OS/ARCH[/VARIANT]")]
    platform: Option<Platform>,
    /// Write the container image's configuration, as JSON, to this file
    #[arg(long, value_name = "FILE")]
    config_to: Option<PathBuf>,
}

/// What is in an archive that can be read again.
pub enum Opened {
    /// An image, whose layers are read.
    Image(Arc<Image>),
    /// Files.
    File(File),
}

impl ImageOptions {
    /// The image in the directory `path`, if it is one; `path/.` is the directory itself. Layers are unpacked to the
    /// directory of `disk`, each to no more than fits into `disk_bytes`, or on what there is room for there.
    pub fn in_directory(
        &self,
        path: &Path,
        disk: &Path,
        disk_bytes: Option<u64>,
        form: ProgressForm,
    ) -> Result<Option<Arc<Image>>, Failure> {
        if path.as_os_str().as_encoded_bytes().ends_with(b"/.") {
            return Ok(None);
        }
        let progress = Display::new(form);
        let image = self
            .read(disk, disk_bytes, &progress, |choice, options| Image::in_directory(path, choice, options));
        image.map_err(|mut failure| {
            if ["oci-layout", "index.json"].iter().any(|name| failure.message.starts_with(name)) {
                failure.message += &format!("; {}/. means the directory itself", path.display());
            }
            named(path, failure)
        })
    }

    /// What is in an archive that is not packed, the image as by [`ImageOptions::in_directory`].
    pub fn in_archive(
        &self,
        path: &Path,
        file: File,
        disk: &Path,
        disk_bytes: Option<u64>,
        form: ProgressForm,
    ) -> Result<Opened, Failure> {
        let archive = host::second_handle(&file, path).map_err(|error| Failure::host(path, &error))?;
        let progress = Display::new(form);
        let image = self
            .read(disk, disk_bytes, &progress, |choice, options| Image::in_archive(archive, choice, options));
        let image = image.map_err(|failure| named(path, failure))?;
        Ok(image.map_or(Opened::File(file), Opened::Image))
    }

    fn read(
        &self,
        disk: &Path,
        disk_bytes: Option<u64>,
        progress: &Display,
        read: impl FnOnce(&ImageChoice, &ReadLayers<'_>) -> extant_archive::Result<Option<Image>>,
    ) -> Result<Option<Arc<Image>>, Failure> {
        let directory = spool_directory(disk);
        let room = disk_bytes.map_or_else(|| available_bytes(&directory), Ok)?;
        let options = ReadLayers {
            directory: &directory,
            layer_bytes_max: room.saturating_mul(ARCHIVE_TO_DISK_MAX).max(LAYER_BYTES_MIN),
            progress: &|reading| progress.show(&reading),
        };
        let choice = ImageChoice { name: self.name.clone(), platform: self.platform.clone() };
        let image = read(&choice, &options).map_err(|error| Failure::tree(disk, error))?;
        Ok(image.map(|image| Arc::new(image.names(names_on_host()))))
    }

    /// Refuses options that mean nothing for what is no image.
    pub fn refuse_without_image(&self, path: &Path) -> Result<(), Failure> {
        let options = [
            (self.name.is_some(), "--image"),
            (self.platform.is_some(), "--platform"),
            (self.config_to.is_some(), "--config-to"),
        ];
        match options.iter().find(|(is_given, _)| *is_given) {
            Some((_, option)) => Err(Failure::usage(format!(
                "{option} is for container images, and {} is none",
                path.display()
            ))),
            None => Ok(()),
        }
    }

    /// Writes the image's configuration, if that is wanted.
    pub fn write_config(&self, image: &Image) -> Result<(), Failure> {
        let Some(path) = &self.config_to else { return Ok(()) };
        fs::write(path, image.config()).map_err(|error| Failure::host(path, &error))
    }
}

/// Names the image or the archive in a failure of reading it.
pub fn named(path: &Path, failure: Failure) -> Failure {
    match failure.kind {
        "bad_archive" | "bad_image" | "unsafe_name" | "io" | "usage"
            if failure.place.is_empty() || failure.place == "archive" =>
        {
            Failure { place: path.display().to_string(), ..failure }
        }
        _ => failure,
    }
}

/// Where files without a name are made: beside the image file, or with other temporary files.
pub fn spool_directory(disk: &Path) -> PathBuf {
    let is_device = scheme(disk).is_some() || fs::metadata(disk).is_ok_and(|found| !found.is_file());
    match disk.parent() {
        _ if is_device => host::temporary_directory(),
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn available_bytes(directory: &Path) -> Result<u64, Failure> {
    host::available_bytes(directory).map_err(|error| Failure::host(directory, &error))
}
