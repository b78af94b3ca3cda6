//! How other processes find servers and learn the result of their unmount.
//!
//! A server keeps a file in memory open, its record: which mount it serves, and at its end how that went. `umount` looks for the
//! record among the descriptors of the processes of the user who mounted, and reads it to the end. So the disk is not accessed, and
//! no file is left behind on the host.
//!
//! The record's content is not trusted: the kernel reports the mount's user, a process's user, and, from Linux 6.16 on, that the
//! process serves the mount. But it reuses a mount's device number as soon as nothing is mounted there, while the server still
//! works: so a record names the file system as the mount table does, and one with a result is of no mount.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use extant_rt::{LockClass, Mutex};
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::failure::Failure;
use crate::mounts::{self, Mounted};

const NAME: &str = "extant-server";
/// The maximum size of a record.
const RECORD_BYTES_MAX: u64 = 64 << 10;
/// The end of a record that reports no failure.
const CLEAN: &str = "clean";

/// The record in which a server reports its result to `umount`.
#[derive(Debug)]
pub struct Record(Mutex<File>);

impl Record {
    /// Creates the record of a mount's server.
    pub fn new(mounted: &Mounted) -> Result<Self, Failure> {
        let failed = |error| Failure::host(Path::new(NAME), &error);
        let memory = memfd_create(NAME, MemfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let mut file = File::from(memory);
        file.write_all(format!("{}\n", mounted.file_system()).as_bytes()).map_err(failed)?;
        Ok(Self(Mutex::new(LockClass::PIPE, file)))
    }

    /// Records how it ended; only the first call counts.
    pub fn tell(&self, ended: &Result<(), Failure>) {
        let words = match ended {
            Ok(()) => CLEAN.to_owned(),
            Err(failure) => failure.message.replace('\n', " "),
        };
        // If the write fails, the process that waits finds a record without an end.
        let _ = self.0.lock().write_all(format!("{words}\n").as_bytes());
    }
}

/// A server, seen from outside.
#[derive(Debug)]
pub struct ServerProcess {
    pid: u32,
    process: OwnedFd,
    record: File,
}

impl ServerProcess {
    /// The process that serves a mount. None if there is none, or if this user may not look into it.
    pub fn of(mounted: &Mounted) -> Option<Self> {
        let processes = std::fs::read_dir("/proc").ok()?.flatten();
        processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find_map(|pid| {
            let place = PathBuf::from(format!("/proc/{pid}"));
            let is_mounters =
                std::fs::metadata(&place).is_ok_and(|found| Some(found.uid()) == mounted.user());
            if is_mounters { Self::open(pid, &place, mounted) } else { None }
        })
    }

    fn open(pid: u32, place: &Path, mounted: &Mounted) -> Option<Self> {
        // While the descriptor says that it lives, the number is this process's.
        let process = pidfd_open(Pid::from_raw(pid.try_into().ok()?)?, PidfdFlags::empty()).ok()?;
        let (mut record, mut serves) = (None, false);
        for descriptor in std::fs::read_dir(place.join("fd")).ok()?.flatten() {
            let Ok(target) = std::fs::read_link(descriptor.path()) else { continue };
            if target == Path::new("/dev/fuse") {
                serves |= is_of(&place.join("fdinfo").join(descriptor.file_name()), mounted);
            } else if target.to_str().is_some_and(|target| target.starts_with(&format!("/memfd:{NAME}"))) {
                record = open_record(&descriptor.path()).or(record);
            }
        }
        let record = record.filter(|_| serves)?;
        let server = Self { pid, process, record };
        (server.lines() == [mounted.file_system()]).then_some(server)
    }

    /// Readable once it has ended.
    pub fn process(&self) -> BorrowedFd<'_> {
        self.process.as_fd()
    }

    fn lines(&self) -> Vec<String> {
        let mut bytes = vec![0; RECORD_BYTES_MAX as usize];
        let count = rustix::io::pread(&self.record, &mut bytes, 0).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..count]).lines().map(str::to_owned).collect()
    }

    /// The result that it recorded, once it has ended.
    ///
    /// # Errors
    /// The failure to write data; or that the server was killed.
    pub fn outcome(&self, image: &Path) -> Result<(), Failure> {
        let place = image.display().to_string();
        match self.lines().get(1).map(String::as_str) {
            Some(CLEAN) => Ok(()),
            Some(words) => Err(Failure::new("io", place, words)),
            None => {
                let message =
                    "the server ended before the disk was consistent; the next mount replays the journal";
                Err(Failure::new("server_gone", place, message))
            }
        }
    }

    /// Why it is still there, as far as can be seen.
    pub fn hindrance(&self, mounted: &Mounted) -> String {
        let pid = self.pid;
        if mounts::is_stopped(pid) {
            return format!("its server, process {pid}, is stopped; SIGCONT has it go on");
        }
        match mounts::namespace_of(mounted) {
            Some(other) => format!("it is still mounted in the mount namespace of process {other}"),
            None => format!("its server, process {pid}, has not ended yet"),
        }
    }
}

/// Opens what may be a record: a process can show anything under that name.
fn open_record(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    file.metadata().is_ok_and(|found| found.is_file()).then_some(file)
}

/// Whether a descriptor of FUSE's device is of a mount. Older kernels do not say, and then it may be.
fn is_of(info: &Path, mounted: &Mounted) -> bool {
    let mut text = String::new();
    let read = File::open(info).and_then(|file| file.take(RECORD_BYTES_MAX).read_to_string(&mut text));
    let told = text.lines().find_map(|line| line.strip_prefix("fuse_connection:")).map(str::trim);
    read.is_ok() && told.is_none_or(|device| device.parse().ok() == mounted.kernel_device())
}
