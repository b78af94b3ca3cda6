//! The file or device that mke2fs makes a file system on: a file stays as long as it is, or becomes long enough.

use std::io::IsTerminal as _;
use std::path::Path;

use extant_block::{BlockDevice as _, DeviceAccess};

use crate::devices::open_file;
use crate::disks::ImageLocation;
use crate::failure::Failure;
use crate::verbs::{DiskFormat, Place, Target};

/// The size of what is there, whose bytes are the disk, as mke2fs takes them.
pub(super) fn existing_bytes(image: &Path, location: ImageLocation) -> Option<u64> {
    place(image, location).existing_bytes()
}

fn place(image: &Path, location: ImageLocation) -> Place<'_> {
    Place { image, location, format: Some(DiskFormat::Raw) }
}

/// Opens it, long enough for `bytes`. What is there is overwritten with `force`, and where there is no terminal to ask at.
pub(super) fn open(
    image: &Path,
    mut location: ImageLocation,
    bytes: Option<u64>,
    force: bool,
) -> Result<Target, Failure> {
    let length = existing_bytes(image, ImageLocation::default());
    if let (Some(bytes), Some(length)) = (bytes, length) {
        let end = location.offset.unwrap_or(0).saturating_add(bytes);
        if end < length {
            // The rest of the file is left alone.
            location.offset.get_or_insert(0);
        } else if location.offset.is_some() && end > length {
            let device = open_file(image, DeviceAccess::read_write(), location.wait())?;
            if !device.is_block_special() {
                device.grow(end).map_err(|error| Failure::host(image, &error))?;
            }
        }
    }
    let can_ask = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    Target::open(place(image, location), bytes, force || !can_ask)
}
