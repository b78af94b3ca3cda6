//! Mounts a descriptor of `/dev/fuse`.
//!
//! Root mounts by itself. Others go through `fusermount3`, by the protocol of its `_FUSE_COMMFD`.

use std::ffi::{CStr, CString, OsString};
use std::fs::OpenOptions;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::{Errno, retry_on_intr};
use rustix::mount::MountFlags;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};

/// Where requests come from.
pub(super) const DEVICE: &str = "/dev/fuse";

/// The type of mounts whose device the kernel claims.
const CLAIMED: &CStr = c"fuseblk.extant";

/// How to mount.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// The source that `mount` shows.
    pub source: PathBuf,
    /// Only for reading.
    pub read_only: bool,
    /// Set-id bits count.
    pub suid: bool,
    /// Devices can be opened.
    pub dev: bool,
    /// Nothing can be executed.
    pub noexec: bool,
    /// Others than the mounter may use it.
    pub allow_other: bool,
    /// The kernel asks for the target of a symbolic link each time.
    pub asks_for_links: bool,
    /// The source is a block device that the kernel is to claim, as it claims those of its own file systems, and to use in
    /// blocks of so many bytes. Only root can.
    pub claims: Option<u32>,
}

/// Why it could not be mounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The host has no FUSE, or keeps it from this user.
    #[error("cannot open {DEVICE}: {0}")]
    NoDevice(#[source] io::Error),
    /// The directory is no place to mount at.
    #[error("{path}: {source}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The host's error.
        source: io::Error,
    },
    /// The kernel or `fusermount3` refused.
    #[error("cannot mount: {0}")]
    Refused(#[source] io::Error),
}

impl MountOptions {
    /// Mounts at a further place a block device that a server has had the kernel claim: the same file system, with that
    /// server. Of the options, only those count that each mount has for itself.
    ///
    /// # Errors
    /// `EBUSY` if one is to be read-only and the other not; `EINVAL` if there is no such mount; what else the host says.
    pub fn mount_again(&self, dir: &Path) -> io::Result<()> {
        // Without a descriptor the kernel begins no file system of its own.
        Ok(rustix::mount::mount(&self.source, dir, CLAIMED, self.flags(), None)?)
    }

    fn flags(&self) -> MountFlags {
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::RDONLY, self.read_only);
        flags.set(MountFlags::NOSUID, !self.suid);
        flags.set(MountFlags::NODEV, !self.dev);
        flags.set(MountFlags::NOEXEC, self.noexec);
        flags
    }

    /// The same for `fusermount3`.
    fn words(&self) -> OsString {
        let mut words = OsString::from("subtype=extant,default_permissions");
        let choices = [
            (self.read_only, "ro", "rw"),
            (self.suid, "suid", "nosuid"),
            (self.dev, "dev", "nodev"),
            (self.noexec, "noexec", "exec"),
        ];
        for (holds, word, opposite) in choices {
            words.push(",");
            words.push(if holds { word } else { opposite });
        }
        if self.allow_other {
            words.push(",allow_other");
        }
        words.push(",fsname=");
        // A comma would end the option.
        let source = self.source.as_os_str().as_bytes().iter();
        let escaped =
            source.flat_map(|byte| matches!(byte, b',' | b'\\').then_some(b'\\').into_iter().chain([*byte]));
        words.push(OsString::from_vec(escaped.collect()));
        words
    }
}

/// Mounts by the system call, or by `fusermount3` if this user may not.
///
/// # Errors
/// [`MountError`].
pub(super) fn mount(dir: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    match mount_by_call(dir, options)? {
        Some(device) => Ok(device),
        None => mount_by_program(dir, options).map_err(MountError::Refused),
    }
}

fn mount_by_call(dir: &Path, options: &MountOptions) -> Result<Option<OwnedFd>, MountError> {
    // `O_CLOEXEC` is the standard library's own.
    let device = OpenOptions::new().read(true).write(true).open(DEVICE).map_err(MountError::NoDevice)?;
    let at_directory = |source| MountError::Directory { path: dir.to_owned(), source };
    let root_mode = std::fs::metadata(dir).map_err(at_directory)?.mode();
    let mut settings = format!(
        "fd={},rootmode={root_mode:o},user_id={},group_id={},default_permissions",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    if options.allow_other {
        settings.push_str(",allow_other");
    }
    if let Some(block_bytes) = options.claims {
        settings.push_str(&format!(",blksize={block_bytes}"));
    }
    let settings = CString::new(settings).map_err(|error| MountError::Refused(error.into()))?;
    let source = CString::new(options.source.as_os_str().as_bytes());
    let source = source.map_err(|error| MountError::Refused(error.into()))?;
    let kind = if options.claims.is_some() { CLAIMED } else { c"fuse.extant" };
    match rustix::mount::mount(&*source, dir, kind, options.flags(), &*settings) {
        Ok(()) => Ok(Some(device.into())),
        Err(Errno::PERM) if options.claims.is_none() => Ok(None),
        Err(error) => Err(MountError::Refused(error.into())),
    }
}

/// Has `fusermount3` mount; it sends the descriptor through a socket, which is its standard input.
fn mount_by_program(dir: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(io::Error::from)?;
    let mut command = Command::new("fusermount3");
    command.arg("-o").arg(options.words()).arg("--").arg(dir).env("_FUSE_COMMFD", "0");
    let program = command.stdin(theirs).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    // Its end of the socket is closed here, so that its silence is an end.
    drop(command);
    let device = receive_descriptor(&ours);
    let output = program.wait_with_output()?;
    if let Some(device) = device.filter(|_| output.status.success()) {
        return Ok(device);
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(if words.is_empty() { output.status.to_string() } else { words }))
}

fn receive_descriptor(socket: &OwnedFd) -> Option<OwnedFd> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut byte)];
    retry_on_intr(|| recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)).ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    })
}
