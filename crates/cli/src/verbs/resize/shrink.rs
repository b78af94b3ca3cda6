//! `extant resize` to a smaller size.

use std::time::Duration;

use extant::{Mount, ShrinkPlan, ShrinkProgress, ShrinkTo, Shrunk};
use extant_block::DeviceAccess;
use extant_rt::Arc;
use serde_json::{Map, Value, json};

use super::{RESIZE_PARTITION, Resize};
use crate::devices::{OpenImage, device_failure};
use crate::disks::{clock, open_located};
use crate::failure::Failure;
use crate::output::{self, Output};
use crate::progress::{Display, ProgressForm, Stage, object, rate};
use crate::size;
use crate::stats;
use crate::verbs::Outcome;

impl Resize {
    /// Makes the disk smaller, or says what that would move.
    pub(super) fn shrink(&self, to: ShrinkTo) -> Outcome {
        let refused = |error: &extant::Error| match error {
            extant::Error::OutOfRange { min, .. } => Failure::new(
                "out_of_range",
                self.image.display().to_string(),
                format!(
                    "what is on it needs {} ({min} bytes) at least; `min` makes it that small",
                    size::show(*min)
                ),
            ),
            error => Failure::opening(&self.image, error),
        };
        let mount = Mount::new().clock(clock()?);
        if self.dry_run {
            let (device, _) = open_located(&self.image, DeviceAccess::read_only(), self.location)?;
            let plan = mount.plan_shrink(&device, to).map_err(|error| refused(&error))?;
            self.show_plan(&plan)?;
            return Ok(0);
        }
        let display = Display::new(ProgressForm::new(self.json, false));
        let mut report = |progress| {
            display.show(&Moved(progress));
            true
        };
        let mut image = OpenImage::open(&self.image, DeviceAccess::read_write(), self.location.wait())?;
        if self.resize_partition {
            let file = image.into_file(&self.image, RESIZE_PARTITION)?;
            self.check_partition(&file)?;
            image = OpenImage::Raw(Box::new(file));
        }
        let is_container = matches!(image, OpenImage::Container(_));
        let (device, mut file) = image.share();
        let device = self.location.locate(&self.image, stats::counted(&self.image, device))?;
        let shrunk = mount.shrink_device(&device, to, &mut report).map_err(|error| refused(&error))?;
        drop(device);
        // The lock is held until the file or the partition is as long as its file system.
        if let Some(file) = file.as_mut().and_then(Arc::get_mut) {
            if self.resize_partition {
                self.shrink_partition(file, shrunk.to_bytes)?;
            } else if self.location.is_whole() && !file.is_block_special() {
                file.set_len(shrunk.to_bytes).map_err(|error| device_failure(&self.image, error))?;
            }
        }
        drop(display);
        if is_container && self.location.is_whole() {
            let image = self.image.display();
            output::note(&format!(
                "{image}: the disk in it stays as long as it was; `qemu-img resize --shrink` cuts it off"
            ));
        }
        let blocks = shrunk.mounted.replayed_blocks;
        if blocks > 0 {
            output::note(&format!("{}: replayed the journal: {blocks} blocks", self.image.display()));
        }
        self.show_shrunk(&shrunk)?;
        Ok(0)
    }

    fn show_plan(&self, plan: &ShrinkPlan) -> Result<(), Failure> {
        let image = self.image.display().to_string();
        let mut output = Output::new();
        if self.json {
            output.json(&json!({
                "image": image,
                "is_dry_run": true,
                "from_bytes": plan.from_bytes,
                "to_bytes": plan.to_bytes,
                "min_bytes": plan.min_bytes,
                "moved_bytes": plan.moved_bytes,
                "moved_inodes": plan.moved_inodes,
            }))?;
        } else {
            let [from, to, min, moved] =
                [plan.from_bytes, plan.to_bytes, plan.min_bytes, plan.moved_bytes].map(size::show);
            output.line(format!(
                "{image}: would shrink from {from} to {to}, and move {moved} and {} inodes",
                plan.moved_inodes
            ))?;
            output.line(format!("{image}: the minimum is {min} ({} bytes)", plan.min_bytes))?;
        }
        output.finish()
    }

    fn show_shrunk(&self, shrunk: &Shrunk) -> Result<(), Failure> {
        let image = self.image.display().to_string();
        let [from, to, moved] = [shrunk.from_bytes, shrunk.to_bytes, shrunk.moved_bytes].map(size::show);
        let mut output = Output::new();
        if self.json {
            output.json(&json!({
                "image": image,
                "is_dry_run": false,
                "from_bytes": shrunk.from_bytes,
                "to_bytes": shrunk.to_bytes,
                "groups": shrunk.groups,
                "inodes": shrunk.inodes,
                "moved_bytes": shrunk.moved_bytes,
                "moved_inodes": shrunk.moved_inodes,
            }))?;
        } else if shrunk.from_bytes == shrunk.to_bytes {
            output.line(format!("{image}: has {to} already"))?;
        } else {
            let inodes = shrunk.moved_inodes;
            output.line(format!("{image}: shrank from {from} to {to}; {moved} and {inodes} inodes moved"))?;
        }
        output.finish()
    }
}

/// What was moved.
struct Moved(ShrinkProgress);

impl Stage for Moved {
    fn line(&self, elapsed: Duration) -> String {
        let ShrinkProgress { moved_bytes, total_bytes, .. } = self.0;
        format!(
            "{} of {} moved, {}",
            size::show(moved_bytes),
            size::show(total_bytes),
            rate(moved_bytes, elapsed)
        )
    }

    fn event(&self) -> Map<String, Value> {
        object([
            ("step", "move".into()),
            ("done_bytes", self.0.moved_bytes.into()),
            ("total_bytes", self.0.total_bytes.into()),
        ])
    }
}
