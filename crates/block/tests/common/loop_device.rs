//! Loop devices.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device, detached on drop.
pub struct Loop(pub PathBuf);

impl Loop {
    /// Attaches a file; `None` where the host or the user cannot.
    pub fn attach(file: &Path, options: &[&str]) -> Option<Self> {
        let output =
            Command::new("losetup").args(["--find", "--show"]).args(options).arg(file).output().ok()?;
        let device = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| Self(PathBuf::from(device.trim())))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}
