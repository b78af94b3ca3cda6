//! Opens what an image argument names as a device, and locks it.
//!
//! A scheme (`nbd://`, `https://`) chooses how it is opened; without one it is a file or block special. The content of a file, of the
//! host or of a server, says whether it is the disk byte by byte, an image of another format, or a packed disk. `-` and `/dev/stdin` are a
//! disk on standard input.

#[cfg(target_os = "linux")]
mod http;
#[cfg(target_os = "linux")]
mod nbd;

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use extant_archive::packing_of;
use extant_block::{BlockDevice, DeviceAccess, FileDevice, FileExtDevice};
use extant_diskimage::{DiskImage, Format, Layer, SCRATCH_BYTES_MAX, spool};
use extant_rt::{Arc, Monotonic};

use crate::failure::{Failure, without_number};
use crate::foreign::has_superblock;
use crate::host;
use crate::mounts;
use crate::output;
use crate::size;
use crate::stats;

/// How long to wait between two looks at a lock.
const LOCK_LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// A longer wait is reported on standard error.
const LOCK_TELL_AFTER: Duration = Duration::from_secs(1);

/// Bytes of a packed file that are read at a time.
const STREAM_BYTES: usize = 4 << 20;

/// The image arguments that mean standard input, be it a pipe.
const STANDARD_INPUT: [&str; 2] = ["-", "/dev/stdin"];
/// The word for images that refer to what cannot be opened.
const BAD_REFERENCE: &str = "bad_reference";
/// The word for images that are read and not written.
pub const READ_ONLY_FORMAT: &str = "read_only_format";

/// An open image: the device that it shows, with offsets, partitions and file systems on it.
pub enum OpenImage {
    /// A file or block special that holds the device byte by byte.
    Raw(Box<FileDevice>),
    /// A device that lies in files of other formats, or that was unpacked.
    Container(Container),
    /// A device at a server.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "only on Linux disks are opened over the network")
    )]
    Network(Arc<dyn BlockDevice>),
}

/// A device in files of other formats.
pub struct Container {
    device: Arc<dyn BlockDevice>,
    /// Its file, then what that lies over.
    pub layers: Vec<Layer>,
    /// The program that packed it.
    pub packing: Option<&'static str>,
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
            #[cfg(target_os = "linux")]
            Some("nbd" | "nbds" | "nbd+unix" | "nbds+unix") => {
                Ok(Self::Network(Arc::new(nbd::open(image, access)?)))
            }
            #[cfg(target_os = "linux")]
            Some("http" | "https" | "s3") => {
                let device: Arc<dyn BlockDevice> = Arc::new(http::open(image, access)?);
                Self::recognised(image, device, Self::Network)
            }
            Some(unknown) => {
                let message = format!("images of the scheme {unknown}:// cannot be opened");
                Err(Failure::new("unsupported", image.display().to_string(), message))
            }
            None if STANDARD_INPUT.iter().any(|name| image.as_os_str() == *name) => {
                Self::standard_input(image, access)
            }
            None => Self::recognised(image, open_file(access)?, |file| Self::Raw(Box::new(file))),
        }
    }

    /// As [`OpenImage::open`], for what is to be overwritten: a file of a format that is only read counts as raw, and so does an image
    /// that cannot be opened.
    pub fn open_to_overwrite(image: &Path, access: DeviceAccess, wait: Duration) -> Result<Self, Failure> {
        if !is_raw_target(image) {
            match Self::open(image, access, wait) {
                Err(failure) if ["corrupt", "unsupported", BAD_REFERENCE].contains(&failure.kind) => {}
                opened => return opened,
            }
        }
        Ok(Self::Raw(Box::new(open_file(image, access, wait)?)))
    }

    /// The disk in `file`, by its content; one that has it byte by byte is opened by `raw`.
    fn recognised<D: BlockDevice + 'static>(
        image: &Path,
        file: D,
        raw: impl FnOnce(D) -> Self,
    ) -> Result<Self, Failure> {
        // What cannot be read is reported where it is needed.
        if Format::recognise(&file).unwrap_or(Format::Raw) != Format::Raw {
            return container(image, Arc::new(file), None);
        }
        let Some(packing) = packing(&file) else { return Ok(raw(file)) };
        if !file.is_read_only() {
            let message = format!("packed by {packing}, and read here, not written; unpack it first");
            return Err(Failure::new(READ_ONLY_FORMAT, image.display().to_string(), message));
        }
        Self::unpacked(image, BufReader::with_capacity(STREAM_BYTES, Stream { device: file, at: 0 }))
    }

    fn standard_input(image: &Path, access: DeviceAccess) -> Result<Self, Failure> {
        if !access.read_only {
            return Err(Failure::usage("a disk on standard input can only be read"));
        }
        Self::unpacked(image, io::stdin())
    }

    /// The disk that `stream` gives, packed or not, in a file without a name.
    fn unpacked(image: &Path, stream: impl Read + Send + 'static) -> Result<Self, Failure> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::FileTooLarge => {
                Failure::new("too_large", image.display().to_string(), error.to_string())
            }
            io::ErrorKind::InvalidData => {
                Failure::new("corrupt", image.display().to_string(), error.to_string())
            }
            _ => Failure::host(image, &error),
        };
        let (packing, mut stream) = extant_archive::unpacked(stream).map_err(failed)?;
        let failed = |error: io::Error| {
            let mut failure = failed(error);
            if let Some(packing) = packing {
                failure.message = format!("packed by {packing}: {}", failure.message);
            }
            failure
        };
        let max = match std::env::var("EXTANT_SCRATCH_BYTES") {
            Ok(text) => size::parse_bytes(&text)
                .map_err(|error| Failure::usage(format!("EXTANT_SCRATCH_BYTES: {error}")))?,
            Err(_) => SCRATCH_BYTES_MAX,
        };
        let device = spool(&mut stream, &host::temporary_directory(), max).map_err(failed)?;
        container(image, Arc::new(device), packing)
    }

    /// The device, which is that of `image`; its requests are counted where that is wanted.
    pub fn into_device(self, image: &Path) -> Arc<dyn BlockDevice> {
        stats::counted(image, self.share().0)
    }

    /// The device, and the file or block special again if it is one.
    pub fn share(self) -> (Arc<dyn BlockDevice>, Option<Arc<FileDevice>>) {
        match self {
            Self::Raw(file) => {
                let file = Arc::new(*file);
                (file.clone(), Some(file))
            }
            Self::Container(container) => (container.device, None),
            Self::Network(device) => (device, None),
        }
    }

    /// The file or block special, for what changes its length; `what` names that in the refusal of other images.
    pub fn into_file(self, image: &Path, what: &str) -> Result<FileDevice, Failure> {
        match self {
            Self::Raw(file) => Ok(*file),
            Self::Container(_) | Self::Network(_) => {
                let message = format!("{what} takes raw image files and block devices only");
                Err(Failure::new("unsupported", image.display().to_string(), message))
            }
        }
    }
}

/// The disk in `file`, which was unpacked if a program is named that packed it.
fn container(
    image: &Path,
    file: Arc<dyn BlockDevice>,
    packing: Option<&'static str>,
) -> Result<OpenImage, Failure> {
    let allowed = std::env::var_os("EXTANT_BACKING_DIRS").unwrap_or_default();
    let allowed: Vec<PathBuf> =
        std::env::split_paths(&allowed).filter(|path| !path.as_os_str().is_empty()).collect();
    let DiskImage { device, layers } = extant_diskimage::open(image, file, &allowed).map_err(|error| {
        use extant_diskimage::Error;
        let kind = match &error {
            Error::Io(error) => return Failure::host(image, error),
            Error::Damaged { .. } => "corrupt",
            Error::Unsupported { .. } => "unsupported",
            Error::ReadOnly { .. } => READ_ONLY_FORMAT,
            Error::Reference { .. } | Error::Backing { .. } => BAD_REFERENCE,
            _ => "failed",
        };
        Failure::new(kind, image.display().to_string(), without_number(&error.to_string()))
    })?;
    Ok(OpenImage::Container(Container { device, layers, packing }))
}

/// Makes a file, which is empty, a qcow2 image of a disk of `bytes` bytes: the disk.
pub fn new_qcow2(image: &Path, file: FileDevice, bytes: u64) -> Result<Arc<dyn BlockDevice>, Failure> {
    let made = extant_diskimage::create_qcow2(&file, bytes);
    made.map_err(|error| Failure::new("failed", image.display().to_string(), error.to_string()))?;
    Ok(container(image, Arc::new(file), None)?.share().0)
}

/// The program that packed the content of a file, unless a file system or a partition table is on it.
fn packing(file: &dyn BlockDevice) -> Option<&'static str> {
    let mut magic = [0; 6];
    if has_superblock(file) || file.read_at(0, &mut magic).is_err() {
        return None;
    }
    packing_of(&magic)
}

/// A device as a stream from its begin.
struct Stream<D> {
    device: D,
    at: u64,
}

impl<D: BlockDevice> Read for Stream<D> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = (self.device.size() - self.at).min(buf.len() as u64) as usize;
        self.device.read_at(self.at, &mut buf[..len])?;
        self.at += len as u64;
        Ok(len)
    }
}

/// Whether a disk that is made at `image` begins with the file's first byte, whatever the file holds now: it has no scheme and holds no
/// image of a format that is written.
pub fn is_raw_target(image: &Path) -> bool {
    let Ok(found) = image.metadata() else { return scheme(image).is_none() };
    let Ok(file) = File::open(image)
        .and_then(|file| if found.is_file() { Ok(file) } else { Err(io::ErrorKind::Unsupported.into()) })
    else {
        return true;
    };
    let file = FileExtDevice::new(file, found.len(), |_| Ok(()));
    !extant_diskimage::is_written(&file).unwrap_or(false)
}

/// The whole path of an image file, for another process; an address as it is.
#[cfg(target_os = "linux")]
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
            ("s3://bucket/x", Some("s3")),
            ("a.img", None),
            ("://x", None),
            ("./a://b", None),
        ] {
            assert_eq!(scheme(Path::new(image)), found, "{image}");
        }
    }
}
