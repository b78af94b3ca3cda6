//! `extant resize`.

mod partition;
mod shrink;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use extant::{Grown, Mount, ShrinkTo};
use extant_block::{BlockDevice, DeviceAccess, resize_mounted};
use extant_rt::Arc;
use serde_json::json;

use super::Outcome;
use crate::devices::OpenImage;
use crate::disks::{ImageLocation, Reading, chosen_location, clock, open_for_reading};
use crate::failure::Failure;
use crate::host;
use crate::output::{self, Output};
use crate::size;

/// The option that changes the end of a partition.
const RESIZE_PARTITION: &str = "--resize-partition";

/// Make the file system of a disk larger or smaller
///
/// The journal of an image is replayed first. Growing adds new groups by one transaction. Shrinking moves blocks and
/// inodes out of the groups that go. A crash leaves the disk whole, with its old size or a new one; the same command again
/// completes it. An image file becomes as long as its file system; what is added to it takes no space. DIR is where a disk
/// is mounted, by Extant or by the kernel, and becomes larger while it is in use, which is for root or who mounted it.
#[derive(Args)]
#[command(after_help = "\
SIZE is in bytes, or has a unit; `min` is the smallest size that holds what is on the disk. Without it the file system
fills its device or partition, which with --resize-partition reaches to the next one or to the end. A last block group that is too short for its own metadata is left out. A mounted disk has
to be told how large it is to be, and only grows.

Examples:
  extant resize disk.img 30G
  extant resize disk.img +512M
  extant resize --dry-run disk.img min
  extant resize disk.img min
  extant resize --partition 2 disk.img
  extant resize --partition 2 --resize-partition disk.img 30G
  extant resize mounted-disk 30G")]
pub struct Resize {
    #[command(flatten)]
    location: ImageLocation,
    /// Write one JSON document
    #[arg(long)]
    json: bool,
    /// Say how small the disk would become and what would move, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Change the end of the partition in the partition table too; of an image file
    #[arg(long, requires = "partition", conflicts_with = "dry_run")]
    resize_partition: bool,
    /// The image, or where a disk is mounted
    #[arg(value_name = "IMAGE|DIR")]
    image: PathBuf,
    /// How large, with a + or - by how much larger or smaller, or `min`
    #[arg(allow_hyphen_values = true)]
    size: Option<Size>,
}

/// A size, absolute or relative.
#[derive(Clone, Copy, Debug)]
enum Size {
    Bytes(u64),
    More(u64),
    Less(u64),
    Minimum,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "min" {
            return Ok(Self::Minimum);
        }
        match (text.strip_prefix('+'), text.strip_prefix('-')) {
            (Some(more), _) => size::parse_bytes(more).map(Self::More),
            (_, Some(less)) => size::parse_bytes(less).map(Self::Less),
            (None, None) => size::parse_bytes(text).map(Self::Bytes),
        }
    }
}

/// What was asked for of a disk.
enum Wanted {
    /// So many bytes, which it has already or which are more; or all of its device.
    Larger(Option<u64>),
    Smaller(ShrinkTo),
}

impl Resize {
    /// Resizes.
    pub fn run(mut self) -> Outcome {
        let nothing_to_tell = "--dry-run says what shrinking would move; growing moves nothing";
        if self.image.is_dir() {
            return if self.dry_run { Err(Failure::usage(nothing_to_tell)) } else { self.resize_mounted() };
        }
        self.location = chosen_location(&self.image, self.location)?;
        let wanted = match self.wanted()? {
            Wanted::Smaller(to) => return self.shrink(to),
            Wanted::Larger(wanted) => wanted,
        };
        if self.dry_run {
            return Err(Failure::usage(nothing_to_tell));
        }
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

    /// The size that was asked for. Looks at the disk before its file becomes longer.
    fn wanted(&self) -> Result<Wanted, Failure> {
        let reading = Reading { location: self.location, ..Reading::default() };
        let superblock = open_for_reading(&self.image, reading)?.superblock();
        let bytes = superblock.blocks_count().saturating_mul(u64::from(superblock.block_size()));
        let wanted = match self.size {
            None => return Ok(Wanted::Larger(None)),
            Some(Size::Bytes(wanted)) => wanted,
            Some(Size::More(more)) => bytes.saturating_add(more),
            Some(Size::Less(less)) => bytes.saturating_sub(less),
            Some(Size::Minimum) => return Ok(Wanted::Smaller(ShrinkTo::Minimum)),
        };
        // Whole blocks: what is less than a block short of it has the size already.
        if wanted.saturating_add(u64::from(superblock.block_size())) <= bytes {
            return Ok(Wanted::Smaller(ShrinkTo::Bytes(wanted)));
        }
        Ok(Wanted::Larger(Some(wanted.max(bytes))))
    }

    fn resize_mounted(&self) -> Outcome {
        let Some(Size::Bytes(bytes)) = self.size else {
            return Err(Failure::usage(
                "of a mounted disk say how large it is to be, as in `extant resize DIR 30G`",
            ));
        };
        let block_bytes =
            host::mounted_block_size(&self.image).map_err(|e| Failure::host(&self.image, &e))?;
        let (place, bytes) = (self.image.display().to_string(), bytes - bytes % block_bytes.max(1));
        resize_mounted(&self.image, bytes / block_bytes.max(1)).map_err(|error| match error.kind() {
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
        let image = OpenImage::open(&self.image, DeviceAccess::read_write(), self.location.wait())?;
        if self.resize_partition {
            let file = image.into_file(&self.image, RESIZE_PARTITION)?;
            self.grow_partition(&file, wanted)?;
            return self.location.locate(&self.image, Arc::new(file));
        }
        let is_container = matches!(image, OpenImage::Container(_));
        let device = image.into_device(&self.image);
        if let Some(bytes) = wanted.filter(|_| self.location.reaches_the_end()) {
            let end = self.location.offset.unwrap_or(0).saturating_add(bytes);
            match device.grow(end) {
                // Then the file system finds no room.
                Err(error) if error.kind() == ErrorKind::Unsupported && !is_container => {}
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    let message =
                        "the disk in it cannot be made longer here; `qemu-img resize IMAGE SIZE` does";
                    return Err(Failure::new("unsupported", self.image.display().to_string(), message));
                }
                grown => grown.map_err(|error| Failure::host(&self.image, &error))?,
            }
        }
        self.location.locate(&self.image, device)
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
