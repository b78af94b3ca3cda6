//! `extant trim`.

use std::fs::Metadata;
use std::path::{Path, PathBuf};

use clap::Args;
use extant_block::fitrim;
use serde_json::json;

use super::Outcome;
use crate::disks::{ImageLocation, Reading, open_for_reading, open_for_writing, unmount};
use crate::failure::Failure;
use crate::host;
use crate::output::Output;
use crate::size;

/// Give the free space of a disk back to the host
///
/// Of an image file, free blocks and inode tables that were not initialised yet become holes; of a block device, free blocks are
/// discarded. A dirty journal is replayed first. DIR is where a disk is mounted, by Extant or by the kernel, and is
/// trimmed by its server (FITRIM), which is for root or who mounted it.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  extant trim disk.img\n  extant trim --dry-run disk.img\n  extant trim --minimum 1M dir"
)]
pub struct Trim {
    #[command(flatten)]
    location: ImageLocation,
    /// Leave free runs alone that are shorter
    #[arg(long, value_name = "BYTES", value_parser = size::parse_bytes, default_value = "0")]
    minimum: u64,
    /// Only say how much would be trimmed; of an image
    #[arg(long)]
    dry_run: bool,
    /// Write one JSON document
    #[arg(long)]
    json: bool,
    /// The image, or where a disk is mounted
    #[arg(value_name = "IMAGE|DIR")]
    image: PathBuf,
}

/// What was trimmed.
struct Trimmed {
    free_bytes: u64,
    /// None where only free space is trimmed.
    table_bytes: Option<u64>,
    /// The bytes that the host has for the image, before and after.
    host_bytes: Option<(u64, u64)>,
}

impl Trim {
    /// Trims.
    pub fn run(self) -> Outcome {
        let trimmed = match (self.image.is_dir(), self.dry_run) {
            (true, true) => {
                return Err(Failure::usage(
                    "--dry-run is for images; of a mounted disk `df` says what is free",
                ));
            }
            (true, false) => self.trim_mount()?,
            (false, true) => self.plan()?,
            (false, false) => self.trim_image()?,
        };
        self.tell(&trimmed)
    }

    fn trim_mount(&self) -> Result<Trimmed, Failure> {
        let free_bytes = fitrim(&self.image, self.minimum).map_err(|error| match error.kind() {
            std::io::ErrorKind::Unsupported => Failure::new(
                "unsupported",
                self.image.display().to_string(),
                "what is mounted there cannot be trimmed",
            ),
            _ => Failure::host(&self.image, &error),
        })?;
        Ok(Trimmed { free_bytes, table_bytes: None, host_bytes: None })
    }

    fn plan(&self) -> Result<Trimmed, Failure> {
        let fs = open_for_reading(&self.image, Reading { location: self.location, ..Reading::default() })?;
        let block_bytes = u64::from(fs.statistics().block_size);
        let least = self.minimum / block_bytes;
        let mut blocks = 0;
        fs.free_runs(|_, len| {
            if u64::from(len) >= least {
                blocks += u64::from(len);
            }
        })
        .map_err(|error| Failure::disk(self.image.display(), &error))?;
        Ok(Trimmed { free_bytes: blocks * block_bytes, table_bytes: None, host_bytes: None })
    }

    fn trim_image(&self) -> Result<Trimmed, Failure> {
        let failed = |error: extant::Error| Failure::disk(self.image.display(), &error);
        let before = host_bytes(&self.image);
        let fs = open_for_writing(&self.image, self.location)?;
        let table_bytes = fs.zero_unused_tables().map_err(failed)?;
        // What a commit has yet to make free is left out.
        fs.sync().map_err(failed)?;
        let free_bytes = fs.trim(0..u64::MAX, self.minimum).map_err(failed)?;
        unmount(&self.image, fs)?;
        let host_bytes = before.zip(host_bytes(&self.image));
        Ok(Trimmed { free_bytes, table_bytes: Some(table_bytes), host_bytes })
    }

    fn tell(&self, trimmed: &Trimmed) -> Outcome {
        let place = self.image.display().to_string();
        let mut output = Output::new();
        if self.json {
            output.json(&json!({
                "image": place,
                "is_dry_run": self.dry_run,
                "trimmed_bytes": trimmed.free_bytes,
                "zeroed_table_bytes": trimmed.table_bytes,
                "host_bytes_before": trimmed.host_bytes.map(|bytes| bytes.0),
                "host_bytes_after": trimmed.host_bytes.map(|bytes| bytes.1),
            }))?;
        } else {
            let bytes = trimmed.free_bytes;
            let prefix = if self.dry_run { "would trim " } else { "" };
            let mut line = format!("{prefix}{place}: {} ({bytes} bytes) of free space", size::show(bytes));
            if !self.dry_run {
                line += " trimmed";
            }
            if let Some((before, after)) = trimmed.host_bytes {
                line +=
                    &format!("; the host has {} for it, before {}", size::show(after), size::show(before));
            }
            output.line(line)?;
        }
        output.finish()?;
        Ok(0)
    }
}

/// The bytes that the host has allocated for an image file; none of a device.
fn host_bytes(image: &Path) -> Option<u64> {
    let found = image.metadata().ok().filter(Metadata::is_file)?;
    host::allocated_bytes(&found)
}
