//! Opens what an image argument names as a device, and locks it.
//!
//! A scheme (`nbd://`) chooses how it is opened; without one it is a file or block special.

use std::path::{Path, PathBuf};
use std::time::Duration;

use extant_block::{BlockDevice, DeviceAccess, FileDevice};
use extant_rt::{Arc, Monotonic};

use crate::failure::Failure;
use crate::mounts;
use crate::output;

/// How long to wait between two looks at a lock.
const LOCK_LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// A longer wait is reported on standard error.
const LOCK_TELL_AFTER: Duration = Duration::from_secs(1);

/// An open image: the device that it shows, with offsets, partitions and file systems on it.
pub enum OpenImage {
    /// A file or block special that holds the device byte by byte.
    Raw(Box<FileDevice>),
    /// A device that is no file of this host, or that lies in a file of another format.
    #[allow(dead_code, reason = "the formats and schemes follow")]
    Other(Arc<dyn BlockDevice>),
}

impl OpenImage {
    /// Opens and locks what `image` names. Waits at most `wait` for another command that uses it.
    pub fn open(image: &Path, access: DeviceAccess, wait: Duration) -> Result<Self, Failure> {
        Self::open_by(image, access, |access| open_file(image, access, wait))
    }

    /// As [`OpenImage::open`], where `open_file` opens and locks the file or block special.
    pub fn open_by(
        image: &Path,
        access: DeviceAccess,
        open_file: impl FnOnce(DeviceAccess) -> Result<FileDevice, Failure>,
    ) -> Result<Self, Failure> {
        match scheme(image) {
            Some(unknown) => Err(Failure::usage(format!(
                "'{}': images of the scheme {unknown}:// cannot be opened",
                image.display()
            ))),
            None => Ok(Self::Raw(Box::new(open_file(access)?))),
        }
    }

    /// The device.
    pub fn into_device(self) -> Arc<dyn BlockDevice> {
        self.share().0
    }

    /// The device, and the file or block special again if it is one.
    pub fn share(self) -> (Arc<dyn BlockDevice>, Option<Arc<FileDevice>>) {
        match self {
            Self::Raw(file) => {
                let file = Arc::new(*file);
                (file.clone(), Some(file))
            }
            Self::Other(device) => (device, None),
        }
    }

    /// The file or block special, for what changes its length; `what` names that in the refusal of other images.
    pub fn into_file(self, image: &Path, what: &str) -> Result<FileDevice, Failure> {
        match self {
            Self::Raw(file) => Ok(*file),
            Self::Other(_) => {
                let message = format!("{what} takes raw image files and block devices only");
                Err(Failure::new("unsupported", image.display().to_string(), message))
            }
        }
    }
}

/// The whole path of an image file, for another process; an address as it is.
pub fn absolute(image: &Path) -> Result<PathBuf, Failure> {
    match scheme(image) {
        Some(_) => Ok(image.to_owned()),
        None => image.canonicalize().map_err(|error| Failure::host(image, &error)),
    }
}

/// The scheme of an image argument that is an address, as `nbd` of `nbd://host/name`. What exists on the host is a file.
pub fn scheme(image: &Path) -> Option<&str> {
    let (scheme, _) = image.to_str()?.split_once("://")?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_lowercase())
        && scheme
            .chars()
            .all(|char| char.is_ascii_lowercase() || char.is_ascii_digit() || "+-.".contains(char));
    (is_scheme && image.symlink_metadata().is_err()).then_some(scheme)
}

/// Opens and locks an image file or block special. Waits at most `wait` for another command that uses it, and not at all for a mount of it.
pub fn open_file(image: &Path, access: DeviceAccess, wait: Duration) -> Result<FileDevice, Failure> {
    let start = Monotonic::now();
    let mut is_told = false;
    loop {
        let error = match FileDevice::open(image, access) {
            Ok(device) => return Ok(device),
            Err(error) => error,
        };
        let is_passing = match &error {
            extant_block::Error::Locked { holder: Some(holder), .. } => {
                holder.pid != std::process::id() && mounts::served_by(holder.pid, image).is_none()
            }
            extant_block::Error::Locked { holder: None, .. } => true,
            _ => false,
        };
        if !is_passing || start.elapsed() >= wait {
            return Err(device_failure(image, error));
        }
        if !is_told && start.elapsed() >= LOCK_TELL_AFTER {
            is_told = true;
            let by = locked_by(image, &error).unwrap_or_else(|| "in use".to_owned());
            output::note(&format!("{}: {by}; waiting up to {} s for it", image.display(), wait.as_secs()));
        }
        std::thread::sleep(LOCK_LOOK_INTERVAL);
    }
}

/// The holder of an image's lock, and what it does.
fn locked_by(image: &Path, error: &extant_block::Error) -> Option<String> {
    let extant_block::Error::Locked { holder: Some(holder), .. } = error else { return None };
    if let Some(point) = mounts::served_by(holder.pid, image) {
        return Some(format!("in use by {holder}, which has it mounted on {}", point.display()));
    }
    let command = mounts::command_of(holder.pid).map(|command| format!(": `{command}`"));
    Some(format!("in use by {holder}{}", command.unwrap_or_default()))
}

/// The word for a device that takes no writes.
pub const WRITE_PROTECTED: &str = "write_protected";

/// The words for an image that cannot be opened.
pub fn device_failure(image: &Path, error: extant_block::Error) -> Failure {
    use extant_block::Error;
    let kind = match &error {
        Error::Io { source, .. } => return Failure::host(image, source),
        Error::Locked { .. } | Error::Mounted { .. } | Error::Busy { .. } | Error::LoopAttached { .. } => {
            "busy"
        }
        Error::WriteProtected { .. } => WRITE_PROTECTED,
        _ => "not_a_device",
    };
    // The library names the path as well.
    let place = image.display().to_string();
    let text = error.to_string();
    let mut message = text.strip_prefix(&format!("{place}: ")).unwrap_or(&text).to_owned();
    if let Some(by) = locked_by(image, &error) {
        let advice = if by.contains(", which has it mounted on ") {
            "work in that directory, or `extant umount` it"
        } else {
            "wait for it to end, or longer with --wait SECONDS"
        };
        message = format!("{by}; {advice}");
    }
    Failure::new(kind, place, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_schemes_and_files_have_none() {
        for (image, found) in [
            ("nbd://host/x", Some("nbd")),
            ("nbd+unix:///x", Some("nbd+unix")),
            ("a.img", None),
            ("://x", None),
            ("./a://b", None),
        ] {
            assert_eq!(scheme(Path::new(image)), found, "{image}");
        }
    }
}
