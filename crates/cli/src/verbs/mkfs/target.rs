//! The file or device that a file system is made on.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use extant_block::{BlockDevice, Create, DeviceAccess, FileCopy, FileDevice, Partition};
use extant_rt::Arc;

use crate::devices::{OpenImage, device_failure, is_raw_target, new_qcow2, open_file, scheme};
use crate::disks::ImageLocation;
use crate::failure::Failure;
use crate::foreign::{has_superblock, recognise};
use crate::host;
use crate::stats;

/// An open image file or block device. Dropped before [`Target::keep`], an image file that was made is removed again.
pub struct Target {
    /// What the file system is made on.
    device: Arc<dyn BlockDevice>,
    /// All of the file or device, or of its partition.
    whole: Arc<dyn BlockDevice>,
    unmade: Unmade,
}

/// The format of an image that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DiskFormat {
    /// The disk byte by byte
    Raw,
    /// QEMU's
    Qcow2,
}

/// Where a file system is to be made.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The image file or block device.
    pub image: &'a Path,
    /// The part of it.
    pub location: ImageLocation,
    /// The format of a new image, whatever is there; without it what is there is kept.
    pub format: Option<DiskFormat>,
}

impl Place<'_> {
    /// Whether the size of what is there is ours to choose.
    pub fn may_resize(self) -> bool {
        !is_block_device(self.image)
            && self.location.is_whole()
            && match self.format {
                Some(_) => scheme(self.image).is_none(),
                None => is_raw_target(self.image),
            }
    }

    /// The size of what is there.
    pub fn existing_bytes(self) -> Option<u64> {
        let opened = self.open_as_is(DeviceAccess::read_only(), Duration::ZERO).ok()?;
        Some(self.location.locate(self.image, opened.into_device(self.image)).ok()?.size())
    }

    fn open_as_is(self, access: DeviceAccess, wait: Duration) -> Result<OpenImage, Failure> {
        if self.format == Some(DiskFormat::Raw) {
            return Ok(OpenImage::Raw(Box::new(open_file(self.image, access, wait)?)));
        }
        OpenImage::open_to_overwrite(self.image, access, wait)
    }

    /// Opens and locks it, makes it if it does not exist. With a format it is the file, whatever it holds.
    fn open(self) -> Result<(OpenImage, Unmade), Failure> {
        let was_made = is_missing(self.image);
        let access = DeviceAccess { create: Create::IfMissing, ..DeviceAccess::read_write() };
        let opened = match self.format {
            Some(_) => OpenImage::Raw(Box::new(open_file(self.image, access, self.location.wait())?)),
            None => self.open_as_is(access, self.location.wait())?,
        };
        Ok((opened, Unmade(was_made.then(|| self.image.to_owned()))))
    }
}

/// Whether it is a file that is still to be made.
fn is_missing(image: &Path) -> bool {
    scheme(image).is_none() && !image.exists()
}

fn is_block_device(image: &Path) -> bool {
    fs::metadata(image).is_ok_and(|found| host::is_block_device(found.file_type()))
}

impl Target {
    /// Opens and locks it, makes it `bytes` long if that is ours to choose, and sees that it holds nothing dear.
    pub fn open(place: Place<'_>, bytes: Option<u64>, force: bool) -> Result<Self, Failure> {
        let image = place.image;
        if is_missing(image) && bytes.is_none() {
            let message = format!("{} does not exist; say how large it is to be", image.display());
            return Err(Failure::usage(message));
        }
        let is_qcow2 = place.format == Some(DiskFormat::Qcow2);
        if is_qcow2 && !place.may_resize() {
            return Err(Failure::usage("--format qcow2 makes whole image files"));
        }
        let new_bytes = bytes.or_else(|| place.existing_bytes());
        let (opened, unmade) = place.open()?;
        let refuse = |device: &dyn BlockDevice| refuse_dear(image, device, force);
        let device = match opened {
            OpenImage::Raw(mut file) if place.may_resize() => {
                refuse(&file)?;
                let new_bytes = new_bytes.unwrap_or(file.size());
                // Emptied, it reads as zero wherever nothing is written, and takes no more space than it needs.
                file.set_len(0).map_err(|error| device_failure(image, error))?;
                if is_qcow2 {
                    stats::counted(image, new_qcow2(image, *file, new_bytes)?)
                } else {
                    file.set_len(new_bytes).map_err(|error| device_failure(image, error))?;
                    stats::counted(image, Arc::new(*file))
                }
            }
            opened => {
                let part = place.location.locate(image, opened.into_device(image))?;
                refuse(&*part)?;
                part
            }
        };
        if let Some(bytes) = bytes
            && bytes > device.size()
        {
            let message = format!("has only {} bytes", device.size());
            return Err(Failure::new("too_small", image.display().to_string(), message));
        }
        Ok(Self { whole: device.clone(), device, unmade })
    }

    /// Opens and locks an image file, sees that it holds nothing dear, and begins to make it a copy of `base`. The location is that of
    /// the file system in both.
    pub fn copy(
        image: &Path,
        base: Arc<FileDevice>,
        location: ImageLocation,
        force: bool,
    ) -> Result<(Self, Arc<FileCopy>), Failure> {
        if is_block_device(image) {
            return Err(Failure::usage("--from makes image files; dd writes one to a device"));
        }
        let (opened, unmade) = Place { image, location, format: Some(DiskFormat::Raw) }.open()?;
        let mut device = opened.into_file(image, "--from")?;
        refuse_dear(image, &device, force)?;
        let copy = device.set_len(0).and_then(|()| FileCopy::begin(base, device));
        let copy = Arc::new(copy.map_err(|error| device_failure(image, error))?);
        let device = location.locate(image, copy.clone())?;
        Ok((Self { whole: device.clone(), device, unmade }, copy))
    }

    /// With the file system on a part of it.
    pub fn narrow(mut self, image: &Path, offset: u64, bytes: u64) -> Result<Self, Failure> {
        let part = Partition::new(self.whole.clone(), offset, bytes);
        self.device = Arc::new(part.map_err(|error| device_failure(image, error))?);
        Ok(self)
    }

    /// All of it, where a partition table is.
    pub fn whole(&self) -> &dyn BlockDevice {
        &*self.whole
    }

    /// The device of the file system.
    pub fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    /// The device, for a mount.
    pub fn shared(&self) -> Arc<dyn BlockDevice> {
        self.device.clone()
    }

    /// It is complete.
    pub fn keep(mut self) {
        self.unmade.0 = None;
    }
}

/// Removes a file that was made, unless it is to be kept.
struct Unmade(Option<PathBuf>);

impl Drop for Unmade {
    fn drop(&mut self) {
        if let Some(image) = &self.0 {
            let _ = fs::remove_file(image);
        }
    }
}

fn refuse_dear(image: &Path, device: &dyn BlockDevice, force: bool) -> Result<(), Failure> {
    match dear(device) {
        Some(what) if !force => {
            let message = format!("contains {what}; use -F to overwrite it");
            Err(Failure::new("exists", image.display().to_string(), message))
        }
        _ => Ok(()),
    }
}

/// What is recognised on a device that one might not want to lose.
fn dear(device: &dyn BlockDevice) -> Option<String> {
    if has_superblock(device) {
        return Some("an ext4 file system".to_owned());
    }
    recognise(device).map(|found| found.what)
}
