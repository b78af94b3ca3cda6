//! Uses of a device by the kernel itself: mounts of a block special, loop devices over an image file.

use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::Error;

use super::of_metadata;

/// Refuses a block special that the kernel writes nothing to (`blockdev --setro`, a switch on the medium).
pub fn refuse_write_protected(path: &Path) -> Result<(), Error> {
    let says = std::fs::read_to_string(format!("/sys/dev/block/{}/ro", number(path)?));
    if says.is_ok_and(|text| text.trim() == "1") {
        return Err(Error::WriteProtected { path: path.to_owned() });
    }
    Ok(())
}

/// The number of a block special, as `major:minor`.
fn number(path: &Path) -> Result<String, Error> {
    let failed = |source| Error::Io { path: path.to_owned(), source };
    let device = std::fs::metadata(path).map_err(failed)?.rdev();
    Ok(format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device)))
}

/// Refuses a block special that is mounted, or of which a partition is.
pub fn refuse_mounted(path: &Path) -> Result<(), Error> {
    let failed = |source| Error::Io { path: path.to_owned(), source };
    let mut numbers = vec![number(path)?];
    numbers.extend(partitions(&numbers[0]));
    let mounts = std::fs::read("/proc/self/mountinfo").map_err(failed)?;
    match numbers.iter().find_map(|number| mount_point(&mounts, number)) {
        Some(mount_point) => Err(Error::Mounted { path: path.to_owned(), mount_point }),
        None => Ok(()),
    }
}

/// The device numbers of a disk's partitions, as `major:minor`.
fn partitions(disk: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(format!("/sys/dev/block/{disk}")) else { return Vec::new() };
    let dev_files =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.join("partition").exists());
    dev_files
        .filter_map(|path| Some(std::fs::read_to_string(path.join("dev")).ok()?.trim().to_owned()))
        .collect()
}

/// Where the device `major:minor` is mounted. Fields of a line: id, parent, device, root, mount point, …
fn mount_point(mounts: &[u8], number: &str) -> Option<PathBuf> {
    mounts.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b' ').skip(2);
        let is_device = fields.next()? == number.as_bytes();
        let point = fields.nth(1)?;
        is_device.then(|| PathBuf::from(unescape(point)))
    })
}

/// Undoes the octal escapes (`\040` for a space) of a mount point.
fn unescape(text: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let octal = text
            .get(at + 1..at + 4)
            .filter(|digits| byte == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match octal {
            Some(digits) => {
                out.push(
                    digits.iter().fold(0_u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')),
                );
                at += 4;
            }
            None => {
                out.push(byte);
                at += 1;
            }
        }
    }
    OsString::from_vec(out)
}

/// Refuses an image file that a loop device shows.
pub fn refuse_loop_attached(path: &Path, file: &Metadata) -> Result<(), Error> {
    let Ok(devices) = std::fs::read_dir("/sys/block") else { return Ok(()) };
    for entry in devices.flatten() {
        let Ok(text) = std::fs::read(entry.path().join("loop/backing_file")) else { continue };
        let backing = Path::new(OsStr::from_bytes(text.strip_suffix(b"\n").unwrap_or(&text)));
        if std::fs::metadata(backing).is_ok_and(|found| of_metadata(&found) == of_metadata(file)) {
            let device = Path::new("/dev").join(entry.file_name());
            return Err(Error::LoopAttached { path: path.to_owned(), device });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_point_is_found_by_device_and_unescaped() {
        let mounts = b"22 27 0:21 / /proc rw - proc proc rw\n40 27 7:1 /sub /mnt/a\\040b\\134c rw - ext4 /dev/loop1 rw\n";
        assert_eq!(mount_point(mounts, "7:1"), Some(PathBuf::from("/mnt/a b\\c")));
        assert_eq!(mount_point(mounts, "7:10"), None);
        assert_eq!(mount_point(b"garbage\n\n1 2", "7:1"), None);
    }
}
