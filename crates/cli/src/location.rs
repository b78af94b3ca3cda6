//! Where on an image the file system is: what an option names, or the only one there is.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use extant_block::{BlockDevice, Container, Partition};
use extant_rt::Arc;

use crate::failure::Failure;
use crate::foreign::{Division, has_superblock};
use crate::output;
use crate::size;
use crate::volume_name::VolumeName;

/// Where on the image the file system is.
#[derive(Args, Clone, Copy, Debug)]
pub struct ImageLocation {
    /// The file system begins this far into the image
    #[arg(long, value_name = "BYTES", value_parser = size::parse_bytes, conflicts_with = "partition")]
    pub offset: Option<u64>,
    /// The file system is on this partition of the image, counted as the kernel counts
    #[arg(long, value_name = "N")]
    pub partition: Option<u32>,
    /// The file system is on this logical volume of LVM, whose disks or partitions are in the image
    #[arg(long, value_name = "VG/LV", conflicts_with_all = ["offset", "partition"])]
    pub volume: Option<VolumeName>,
    /// How long to wait for another command that uses the image
    #[arg(long, value_name = "SECONDS", default_value_t = LOCK_WAIT_SECONDS)]
    pub wait: u64,
    /// Report at the end, on standard error, what was read from the image's device and written to it, and how long that took
    #[arg(long)]
    pub stats: bool,
}

/// How long a command waits for another one by default.
const LOCK_WAIT_SECONDS: u64 = 10;

impl Default for ImageLocation {
    fn default() -> Self {
        Self { offset: None, partition: None, volume: None, wait: LOCK_WAIT_SECONDS, stats: false }
    }
}

impl ImageLocation {
    /// How long to wait for another command.
    pub fn wait(self) -> Duration {
        Duration::from_secs(self.wait)
    }

    /// Whether it is the whole image.
    pub fn is_whole(self) -> bool {
        self.offset.is_none() && self.partition.is_none() && self.volume.is_none()
    }

    /// Whether it ends where the image ends.
    pub fn reaches_the_end(self) -> bool {
        self.partition.is_none() && self.volume.is_none()
    }

    /// Where the file system is on `device`: here; or, if this is the whole image and that has partitions or logical volumes, on the only
    /// one of them that has an ext4 file system, which a note says. Without any it remains here, where nothing is found.
    ///
    /// # Errors
    /// `ambiguous` if several have one.
    pub fn choose(self, image: &Path, device: &dyn BlockDevice) -> Result<Self, Failure> {
        if !self.is_whole() || has_superblock(device) {
            return Ok(self);
        }
        let Division { parts, volumes } = Division::of(device);
        let counts = counted(&[(parts.len(), "partition"), (volumes.len(), "logical volume")]);
        let parts: Vec<_> = parts.iter().filter(|part| part.is_ext4()).collect();
        let volumes: Vec<_> = volumes.iter().filter(|volume| volume.is_ext4()).collect();
        let (chosen, what) = match (parts.as_slice(), volumes.as_slice()) {
            ([], []) => return Ok(self),
            ([part], []) => {
                let number = part.entry.number;
                (Self { partition: Some(number), ..self }, format!("partition {number}"))
            }
            ([], [volume]) => {
                let name = volume.name();
                (Self { volume: Some(name), ..self }, format!("logical volume {name}"))
            }
            _ => {
                let counts = counted(&[(parts.len(), "partition"), (volumes.len(), "logical volume")]);
                let partition = (!parts.is_empty()).then_some(["--partition N", "-o partition=N"]);
                let volume = (!volumes.is_empty()).then_some(["--volume VG/LV", "-o volume=VG/LV"]);
                let options = |form: usize| {
                    let words: Vec<_> = partition.iter().chain(&volume).map(|words| words[form]).collect();
                    words.join(" or ")
                };
                let list = parts.iter().map(ToString::to_string);
                let list: Vec<_> = list.chain(volumes.iter().map(ToString::to_string)).collect();
                let message = format!(
                    "{counts} have ext4 file systems; choose one with {} (mount: {}): {}",
                    options(0),
                    options(1),
                    list.join(", ")
                );
                return Err(Failure::new("ambiguous", image.display().to_string(), message));
            }
        };
        output::note(&format!("{}: {what} is the only ext4 file system on {counts}", image.display()));
        Ok(chosen)
    }

    /// That part of `device`.
    ///
    /// # Errors
    /// `no_partition`, `no_volume`, `unsupported` for a volume that cannot be read, and `out_of_range` for an offset past the end.
    pub fn locate(self, image: &Path, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>, Failure> {
        let failed = |error: extant_block::Error| {
            Failure::new("out_of_range", image.display().to_string(), error.to_string())
        };
        if let Some(offset) = self.offset {
            return Ok(Arc::new(Partition::from_offset(device, offset).map_err(failed)?));
        }
        if let Some(name) = self.volume {
            return open_volume(image, device, name);
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

/// A logical volume of `device`.
fn open_volume(
    image: &Path,
    device: Arc<dyn BlockDevice>,
    name: VolumeName,
) -> Result<Arc<dyn BlockDevice>, Failure> {
    let refused = |kind, message: String| Err(Failure::new(kind, image.display().to_string(), message));
    let volumes = Division::of(&*device).volumes;
    let Some(found) = volumes.iter().find(|found| name.is(&found.volume.group, &found.volume.name)) else {
        let names: Vec<_> = volumes.iter().map(|volume| volume.name().to_string()).collect();
        return refused(
            "no_volume",
            match names.is_empty() {
                true => "has no logical volumes".to_owned(),
                false => format!("has no logical volume {name}; there are {}", names.join(", ")),
            },
        );
    };
    match found.volume.open(device) {
        Some(Ok(opened)) => Ok(Arc::new(opened)),
        Some(Err(error)) => refused("out_of_range", error.to_string()),
        None => {
            let obstacle = found.obstacle().unwrap_or_default();
            refused("unsupported", format!("logical volume {name} is {obstacle}"))
        }
    }
}

/// `3 partitions and 1 logical volume`, without those of which there are none.
fn counted(counts: &[(usize, &str)]) -> String {
    let words = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    });
    words.collect::<Vec<_>>().join(" and ")
}
