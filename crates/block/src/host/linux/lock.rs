//! The lock on a whole file or block special, shared to read and exclusive to write.
//!
//! An open-file-description lock: it belongs to the open file, not to the process, so two devices of one process
//! exclude each other as well, and it goes with the last descriptor of that file. Programs that lock ranges of an image, such
//! as QEMU, are excluded too.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::Error;
use crate::error::Holder;

use super::of_metadata;

/// Locks the file, or names the holder of the lock.
pub fn acquire(path: &Path, file: &File, shared: bool) -> Result<(), Error> {
    let kind = if shared { libc::F_RDLCK } else { libc::F_WRLCK };
    match control(file, libc::F_OFD_SETLK, kind) {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            // An ordinary lock names its process; an open-file-description lock says -1.
            let told = control(file, libc::F_OFD_GETLK, kind).ok().map_or(-1, |lock| lock.l_pid);
            let holder = match u32::try_from(told) {
                Ok(pid) if pid > 0 => Some(Holder { pid, name: command_name(pid) }),
                _ => holder_of(path),
            };
            Err(Error::Locked { path: path.to_owned(), holder })
        }
        Err(source) => Err(Error::Io { path: path.to_owned(), source }),
    }
}

/// Unlocks the file. Closing it would not yet, while a child that another thread starts has its descriptors: it closes them at exec.
pub fn release(file: &File) {
    // An unlock fails for no reason but a descriptor that is not a file's.
    let _ = control(file, libc::F_OFD_SETLK, libc::F_UNLCK);
}

#[expect(unsafe_code, reason = "open-file-description locks have no safe wrapper")]
fn control(file: &File, command: libc::c_int, kind: libc::c_int) -> io::Result<libc::flock> {
    let mut lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    loop {
        // SAFETY: the descriptor is open, and both commands read and write one `flock` at the address.
        if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } != -1 {
            return Ok(lock);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// The first process found that has the file open and locked. Sees only processes that the caller may look into.
pub fn holder_of(path: &Path) -> Option<Holder> {
    let target = std::fs::metadata(path).ok()?;
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let pid = pids.find(|pid| holds(*pid, &target))?;
    Some(Holder { pid, name: command_name(pid) })
}

fn holds(pid: u32, target: &std::fs::Metadata) -> bool {
    let Ok(descriptors) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    descriptors.flatten().any(|descriptor| {
        let same = std::fs::metadata(descriptor.path())
            .is_ok_and(|found| of_metadata(&found) == of_metadata(target) && found.rdev() == target.rdev());
        same && std::fs::read_to_string(format!("/proc/{pid}/fdinfo/{}", descriptor.file_name().display()))
            .is_ok_and(|text| text.lines().any(|line| line.starts_with("lock:")))
    })
}

fn command_name(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm"))
        .map_or_else(|_| "a process".to_owned(), |s| s.trim_end().to_owned())
}
