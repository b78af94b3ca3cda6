//! The file or device that a file system is made on.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use extant_block::{BlockDevice, Copied, Create, DeviceAccess, FileDevice};
use extant_rt::Arc;

use crate::devices::{OpenImage, device_failure, scheme};
use crate::disks::{ImageLocation, locate, open_located};
use crate::failure::Failure;
use crate::foreign::{has_superblock, recognise};

/// An open image file or block device. Dropped before [`Target::keep`], an image file that was made is removed again.
pub struct Target {
    device: Arc<dyn BlockDevice>,
    unmade: Unmade,
}

/// Whether the size of what is there is ours to choose.
pub fn may_resize(image: &Path, location: ImageLocation) -> bool {
    !is_block_device(image)
        && scheme(image).is_none()
        && location.offset.is_none()
        && location.partition.is_none()
}

/// Whether it is a file that is still to be made.
fn is_missing(image: &Path) -> bool {
    scheme(image).is_none() && !image.exists()
}

fn is_block_device(image: &Path) -> bool {
    fs::metadata(image).is_ok_and(|found| found.file_type().is_block_device())
}

/// The size of what is there.
pub fn existing_bytes(image: &Path, location: ImageLocation) -> Option<u64> {
    let location = ImageLocation { wait: 0, ..location };
    Some(open_located(image, DeviceAccess::read_only(), location).ok()?.size())
}

impl Target {
    /// Opens and locks it, makes it `bytes` long if that is ours to choose, and sees that it holds nothing dear.
    pub fn open(
        image: &Path,
        location: ImageLocation,
        bytes: Option<u64>,
        force: bool,
    ) -> Result<Self, Failure> {
        if is_missing(image) && bytes.is_none() {
            let message = format!("{} does not exist; say how large it is to be", image.display());
            return Err(Failure::usage(message));
        }
        let (opened, unmade) = open(image, location)?;
        let refuse = |device: &dyn BlockDevice| refuse_dear(image, device, force);
        let device = match opened {
            OpenImage::Raw(mut file) if may_resize(image, location) => {
                refuse(&file)?;
                let bytes = bytes.unwrap_or(file.size());
                // Emptied, it reads as zero wherever nothing is written, and takes no more space than it needs.
                let resized = file.set_len(0).and_then(|()| file.set_len(bytes));
                resized.map_err(|error| device_failure(image, error))?;
                Arc::new(*file)
            }
            opened => {
                let part = locate(image, opened.into_device(), location)?;
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
        Ok(Self { device, unmade })
    }

    /// Opens and locks an image file, sees that it holds nothing dear, and makes it a copy of `base`. The location is that of the
    /// file system in both.
    pub fn copy(
        image: &Path,
        base: &FileDevice,
        location: ImageLocation,
        force: bool,
    ) -> Result<(Self, Copied), Failure> {
        if is_block_device(image) {
            return Err(Failure::usage("--from makes image files; dd writes one to a device"));
        }
        let (opened, unmade) = open(image, location)?;
        let mut device = opened.into_file(image, "--from")?;
        refuse_dear(image, &device, force)?;
        let copied = device.set_len(0).and_then(|()| device.copy_from(base));
        let copied = copied.map_err(|error| device_failure(image, error))?;
        Ok((Self { device: locate(image, Arc::new(device), location)?, unmade }, copied))
    }

    /// The device.
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

/// Opens and locks it, makes it if it does not exist.
fn open(image: &Path, location: ImageLocation) -> Result<(OpenImage, Unmade), Failure> {
    let was_made = is_missing(image);
    let access = DeviceAccess { create: Create::IfMissing, ..DeviceAccess::read_write() };
    let opened = OpenImage::open(image, access, location.wait())?;
    Ok((opened, Unmade(was_made.then(|| image.to_owned()))))
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
