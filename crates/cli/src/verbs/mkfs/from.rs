//! Disks that begin as copies of others.

use std::path::Path;

use extant_block::{Copied, DeviceAccess};
use extant_rt::{Arc, WallClock};
use serde_json::json;

use super::target::Target;
use super::{Mkfs, Outcome};
use crate::devices::{OpenImage, device_failure};
use crate::failure::Failure;
use crate::foreign::{explain, has_superblock};
use crate::output::Output;
use crate::size;

impl Mkfs {
    /// Copies `base`, and makes the copy equal to the content, if there is any.
    pub(super) fn copy(&self, base: &Path, clock: WallClock) -> Outcome {
        let wait = self.location.wait();
        let opened = OpenImage::open(base, DeviceAccess::read_only(), wait)?;
        let source = Arc::new(opened.into_file(base, "--from")?);
        let file_system = self.location.locate(base, source.clone())?;
        if !has_superblock(&*file_system) {
            let message = explain(&*file_system);
            return Err(Failure::new("no_file_system", base.display().to_string(), message));
        }
        self.ownership.check_content(self.content.is_some())?;
        if self.content.is_none() && self.ownership.has_files() {
            return Err(Failure::usage("--device-table and --selinux change content; with --from, add -d"));
        }
        let content =
            self.content.as_ref().map(|_| self.open_content(Some(file_system.size()), clock)).transpose()?;
        let (target, copy) = Target::copy(&self.image, source, self.location, self.force > 0)?;
        if let Some(content) = content {
            let device = (target.shared(), !copy.is_shared());
            let mirrored = content.mirror(&self.image, device, clock, self.form());
            mirrored.map_err(|mut failure| {
                if failure.kind == "no_space" {
                    failure.message += "; the base has no more room: make it with --free";
                }
                failure
            })?;
            content.image().map_or(Ok(()), |image| self.image_options.write_config(image))?;
        }
        let copied = copy.finish().map_err(|error| device_failure(&self.image, error))?;
        let bytes = target.device().size();
        target.keep();
        let mut output = Output::new();
        if self.json {
            let copied_bytes = if let Copied::Bytes(bytes) = copied { bytes } else { 0 };
            output.json(&json!({
                "image": self.image.display().to_string(),
                "base": base.display().to_string(),
                "size_bytes": bytes,
                "is_shared": matches!(copied, Copied::Shared),
                "copied_bytes": copied_bytes,
            }))?;
        } else if !self.quiet {
            let copied = match copied {
                Copied::Shared => format!("shares its blocks with {}", base.display()),
                Copied::Bytes(bytes) => format!("{} copied from {}", size::show(bytes), base.display()),
            };
            output.line(format!("{}: {}, {copied}", self.image.display(), size::show(bytes)))?;
        }
        output.finish()?;
        Ok(0)
    }
}
