//! Where on an image the file system is: what an option names, or the only one there is.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use extant_block::{BlockDevice, Container, Partition};
use extant_rt::Arc;

use crate::failure::Failure;
use crate::foreign::{Content, format_of, has_superblock, parts};
use crate::output;
use crate::size;

/// Where on the image the file system is.
#[derive(Args, Clone, Copy, Debug)]
pub struct ImageLocation {
    /// The file system begins this far into the image
    #[arg(long, value_name = "BYTES", value_parser = size::parse_bytes, conflicts_with = "partition")]
    pub offset: Option<u64>,
    /// The file system is on this partition of the image, counted as the kernel counts
    #[arg(long, value_name = "N")]
    pub partition: Option<u32>,
    /// How long to wait for another command that uses the image
    #[arg(long, value_name = "SECONDS", default_value_t = LOCK_WAIT_SECONDS)]
    pub wait: u64,
}

/// How long a command waits for another one by default.
const LOCK_WAIT_SECONDS: u64 = 10;

impl Default for ImageLocation {
    fn default() -> Self {
        Self { offset: None, partition: None, wait: LOCK_WAIT_SECONDS }
    }
}

impl ImageLocation {
    /// How long to wait for another command.
    pub fn wait(self) -> Duration {
        Duration::from_secs(self.wait)
    }

    /// Whether it is the whole image.
    pub fn is_whole(self) -> bool {
        self.offset.is_none() && self.partition.is_none()
    }

    /// Where the file system is on `device`: here; or, if this is the whole image and that has partitions, on the only one of them that
    /// has an ext4 file system, which a note says. Without any it remains here, where nothing is found.
    ///
    /// # Errors
    /// `ambiguous` if several have one.
    pub fn choose(self, image: &Path, device: &dyn BlockDevice) -> Result<Self, Failure> {
        if !self.is_whole() || has_superblock(device) {
            return Ok(self);
        }
        let container = Container::recognise(device).map_err(|error| Failure::host(image, &error))?;
        let Some(Container::PartitionTable(partitions)) = &container else { return Ok(self) };
        // What else is there may only look as if it had a table.
        if format_of(device, container.as_ref()).is_some_and(|found| !found.leaves_room_for_a_table()) {
            return Ok(self);
        }
        let mut parts = parts(device, partitions);
        parts.retain(|part| matches!(part.content, Content::Ext4(_)));
        match parts.as_slice() {
            [] => Ok(self),
            [only] => {
                let (number, count) = (only.entry.number, partitions.len());
                let among = if count == 1 {
                    "the only partition".to_owned()
                } else {
                    format!("the only ext4 file system on {count} partitions")
                };
                output::note(&format!("{}: partition {number} is {among}", image.display()));
                Ok(Self { partition: Some(number), ..self })
            }
            several => {
                let list: Vec<_> = several.iter().map(ToString::to_string).collect();
                let message = format!(
                    "{} partitions have ext4 file systems; choose one with --partition N (mount: -o partition=N): {}",
                    several.len(),
                    list.join(", ")
                );
                Err(Failure::new("ambiguous", image.display().to_string(), message))
            }
        }
    }

    /// That part of `device`.
    ///
    /// # Errors
    /// `no_partition`, and `out_of_range` for an offset past the end.
    pub fn locate(self, image: &Path, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>, Failure> {
        let failed = |error: extant_block::Error| {
            Failure::new("out_of_range", image.display().to_string(), error.to_string())
        };
        if let Some(offset) = self.offset {
            return Ok(Arc::new(Partition::from_offset(device, offset).map_err(failed)?));
        }
        let Some(number) = self.partition else { return Ok(device) };
        let container = Container::recognise(&device).map_err(|error| Failure::host(image, &error))?;
        let refused = |message: String| Failure::new("no_partition", image.display().to_string(), message);
        let Some(Container::PartitionTable(partitions)) = container else {
            return Err(refused("has no partition table".to_owned()));
        };
        let Some(found) = partitions.iter().find(|partition| partition.number == number) else {
            let numbers: Vec<_> = partitions.iter().map(|partition| partition.number.to_string()).collect();
            return Err(refused(format!("has no partition {number}; there are {}", numbers.join(", "))));
        };
        Ok(Arc::new(Partition::new(device, found.offset, found.bytes).map_err(failed)?))
    }
}
