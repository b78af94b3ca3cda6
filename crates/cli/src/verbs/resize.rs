//! `extant resize`.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use extant::{Grown, Mount};
use extant_block::{BlockDevice, DeviceAccess, resize_mounted};
use extant_rt::Arc;
use serde_json::json;

use super::Outcome;
use crate::disks::{ImageLocation, Reading, clock, device_failure, locate, open_device, open_for_reading};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::size;

/// Make the file system of a disk larger
///
/// The journal of an image is replayed first. One transaction adds the new groups: a crash leaves the disk as it was, or
/// grown. An image file becomes as long as its file system; what is added to it takes no space. DIR is where a disk is
/// mounted, by Extant or by the kernel, and becomes larger while it is in use, which is for root or who mounted it.
#[derive(Args)]
#[command(after_help = "\
SIZE is in bytes, or has a unit. Without it the file system fills its device or partition. A last block group that is too
short for its own metadata is left out. A mounted disk has to be told how large it is to be.

Examples:
  extant resize disk.img 30G
  extant resize disk.img +512M
  extant resize --partition 2 disk.img
  extant resize mounted-disk 30G")]
pub struct Resize {
    #[command(flatten)]
    location: ImageLocation,
    /// Write one JSON document
    #[arg(long)]
    json: bool,
    /// The image, or where a disk is mounted
    #[arg(value_name = "IMAGE|DIR")]
    image: PathBuf,
    /// How large, or with a + by how much larger
    size: Option<Size>,
}

/// A size, absolute or relative.
#[derive(Clone, Copy, Debug)]
enum Size {
    Bytes(u64),
    More(u64),
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix('+') {
            Some(more) => size::parse_bytes(more).map(Self::More),
            None => size::parse_bytes(text).map(Self::Bytes),
        }
    }
}

impl Resize {
    /// Resizes.
    pub fn run(self) -> Outcome {
        if self.image.is_dir() {
            return self.resize_mounted();
        }
        let wanted = self.wanted_bytes()?;
        let device = self.open(wanted)?;
        let grown = Mount::new()
            .clock(clock()?)
            .grow_device(&device, wanted.unwrap_or(device.size()))
            .map_err(|error| Failure::opening(&self.image, &error))?;
        let blocks = grown.mounted.replayed_blocks;
        if blocks > 0 {
            output::note(&format!("{}: replayed the journal: {blocks} blocks", self.image.display()));
        }
        self.show(&grown)?;
        Ok(0)
    }

    /// The size that was asked for in bytes, if any. Looks at the disk before its file becomes longer.
    fn wanted_bytes(&self) -> Result<Option<u64>, Failure> {
        let place = self.image.display().to_string();
        let reading = Reading { location: self.location, ..Reading::default() };
        let superblock = open_for_reading(&self.image, reading)?.superblock();
        let bytes = superblock.blocks_count().saturating_mul(u64::from(superblock.block_size()));
        let wanted = match self.size {
            None => return Ok(None),
            Some(Size::Bytes(wanted)) => wanted,
            Some(Size::More(more)) => bytes.saturating_add(more),
        };
        // Whole blocks: what is less than a block short of it has the size already.
        if wanted.saturating_add(u64::from(superblock.block_size())) <= bytes {
            let message = format!(
                "the file system has {}, and cannot be made smaller here; `resize2fs` does it on an unmounted disk",
                size::show(bytes)
            );
            return Err(Failure::new("unsupported", place, message));
        }
        Ok(Some(wanted.max(bytes)))
    }

    fn resize_mounted(&self) -> Outcome {
        let Some(Size::Bytes(bytes)) = self.size else {
            return Err(Failure::usage(
                "of a mounted disk say how large it is to be, as in `extant resize DIR 30G`",
            ));
        };
        let found = rustix::fs::statvfs(&self.image).map_err(|e| Failure::host(&self.image, &e.into()))?;
        let (place, bytes) = (self.image.display().to_string(), bytes - bytes % found.f_frsize.max(1));
        resize_mounted(&self.image, bytes / found.f_frsize.max(1)).map_err(|error| match error.kind() {
            ErrorKind::Unsupported => {
                Failure::new("unsupported", place.clone(), "what is mounted there cannot be made larger")
            }
            ErrorKind::InvalidInput => {
                let message =
                    "too large for its device, or smaller than it is, which a mounted disk cannot be made";
                Failure::new("unsupported", place.clone(), message)
            }
            _ => Failure::host(&self.image, &error),
        })?;
        let mut output = Output::new();
        match self.json {
            true => output.json(&json!({ "image": place, "to_bytes": bytes }))?,
            false => output.line(format!("{place}: has {}", size::show(bytes)))?,
        }
        output.finish()?;
        Ok(0)
    }

    /// Opens the disk; a file is made long enough.
    fn open(&self, wanted: Option<u64>) -> Result<Arc<dyn BlockDevice>, Failure> {
        let mut device = open_device(&self.image, DeviceAccess::read_write(), self.location.wait())?;
        let is_file = !device.is_block_special() && self.location.partition.is_none();
        if let Some(bytes) = wanted.filter(|_| is_file) {
            let end = self.location.offset.unwrap_or(0).saturating_add(bytes);
            if end > device.size() {
                device.set_len(end).map_err(|error| device_failure(&self.image, error))?;
            }
        }
        locate(&self.image, device, self.location)
    }

    fn show(&self, grown: &Grown) -> Result<(), Failure> {
        let image = self.image.display().to_string();
        let (from, to) = (size::show(grown.from_bytes), size::show(grown.to_bytes));
        let mut output = Output::new();
        if self.json {
            output.json(&json!({
                "image": image,
                "from_bytes": grown.from_bytes,
                "to_bytes": grown.to_bytes,
                "groups": grown.groups,
                "inodes": grown.inodes,
                "transactions": grown.steps,
            }))?;
        } else if grown.steps == 0 {
            output.line(format!("{image}: has {to} already"))?;
        } else {
            output.line(format!("{image}: grew from {from} to {to}; {} inodes", grown.inodes))?;
        }
        output.finish()
    }
}
