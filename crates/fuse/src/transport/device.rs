//! A descriptor of `/dev/fuse`, and requests read from it.

use std::fs::OpenOptions;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use extant_rt::{Arc, LockClass, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use super::mount::DEVICE;
use super::wire::{InHeader, OutHeader, WriteIn, opcode};

const HEADER_BYTES: usize = size_of::<InHeader>();
/// Buffers kept for later; each has the pages that requests filled.
const SPARES_MAX: usize = 4;

/// A descriptor; a reply must go to the one its request came from.
#[derive(Debug)]
pub(super) struct Device {
    fd: OwnedFd,
    buffer_bytes: usize,
    spares: Mutex<Vec<Box<[u8]>>>,
}

impl Device {
    /// For requests that carry up to `max_write` bytes.
    pub(super) fn new(fd: OwnedFd, max_write: usize) -> Self {
        let buffer_bytes = HEADER_BYTES + size_of::<WriteIn>() + max_write;
        Self { fd, buffer_bytes, spares: Mutex::new(LockClass::REQUESTS, Vec::new()) }
    }

    /// A further descriptor of the same mount, whose requests another thread reads without meeting this one's locks;
    /// with `flags` of `open(2)`.
    pub(super) fn duplicate(&self, flags: OFlags) -> Result<Self, Errno> {
        let flags = flags.bits().cast_signed();
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(DEVICE);
        let file = file.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        clone_into(&file, &self.fd)?;
        let spares = Mutex::new(LockClass::REQUESTS, Vec::new());
        Ok(Self { fd: file.into(), buffer_bytes: self.buffer_bytes, spares })
    }

    pub(super) const fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Waits for a request; none if it is unmounted.
    ///
    /// # Errors
    /// What the host has never said so far; `EAGAIN` of a descriptor that does not block, if none waits.
    pub(super) fn receive(self: &Arc<Self>) -> Result<Option<Received>, Errno> {
        let mut bytes = self.take();
        loop {
            match rustix::io::read(&self.fd, &mut *bytes) {
                Ok(0) | Err(Errno::NODEV) => return Ok(None),
                Ok(count) => {
                    let header = InHeader::read_from_prefix(&bytes[..count]);
                    // The kernel hands out whole requests.
                    let Ok((header, _)) = header else { continue };
                    if header.len as usize == count {
                        return Ok(Some(Received { device: self.clone(), header, bytes, count }));
                    }
                }
                // Interrupted, or its caller was before it was read.
                Err(Errno::INTR | Errno::NOENT) => {}
                Err(error) => {
                    self.give_back(bytes);
                    return Err(error);
                }
            }
        }
    }

    /// Replies with an error alone to a request that was read here; nothing if it was replied to.
    pub(super) fn refuse(&self, unique: u64, error: Errno) {
        let len = size_of::<OutHeader>() as u32;
        let header = OutHeader { len, error: -error.raw_os_error(), unique };
        // No caller waits any more.
        let _ = rustix::io::write(&self.fd, header.as_bytes());
    }

    /// Whether a request waits to be read, or does within `time`.
    pub(super) fn has_more(&self, time: Duration) -> bool {
        let mut wanted = [PollFd::new(&self.fd, PollFlags::IN)];
        // A few milliseconds at most.
        let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
        poll(&mut wanted, Some(&time)).is_ok_and(|ready| ready == 1)
    }

    fn take(&self) -> Box<[u8]> {
        // Tried, here and below: the idle reader may hold the lock while it gets no CPU.
        let spare = self.spares.try_lock().and_then(|mut spares| spares.pop());
        spare.unwrap_or_else(|| vec![0; self.buffer_bytes].into_boxed_slice())
    }

    fn give_back(&self, bytes: Box<[u8]>) {
        if let Some(mut spares) = self.spares.try_lock()
            && spares.len() < SPARES_MAX
        {
            spares.push(bytes);
        }
    }
}

/// Makes `file` another descriptor of the mount that `of` is one of.
#[expect(unsafe_code, reason = "FUSE_DEV_IOC_CLONE has no safe wrapper")]
fn clone_into(file: impl AsFd, of: &OwnedFd) -> Result<(), Errno> {
    const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);
    let mut fd = of.as_raw_fd().cast_unsigned();
    // SAFETY: the kernel reads a number of 32 bits there, whatever direction the opcode says.
    unsafe { rustix::ioctl::ioctl(file, rustix::ioctl::Updater::<CLONE, u32>::new(&mut fd)) }
}

/// A request as it was read.
#[derive(Debug)]
pub(super) struct Received {
    device: Arc<Device>,
    pub(super) header: InHeader,
    bytes: Box<[u8]>,
    count: usize,
}

impl Received {
    /// The descriptor that it was read from.
    pub(super) const fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Whether no caller waits for it.
    pub(super) const fn is_forget(&self) -> bool {
        matches!(self.header.opcode, opcode::FORGET | opcode::BATCH_FORGET)
    }

    /// The bytes behind the header.
    pub(super) fn body(&self) -> &[u8] {
        &self.bytes[HEADER_BYTES..self.count]
    }

    /// Replies with bytes that are not the request's own.
    pub(super) fn reply(&mut self, body: &[u8]) {
        self.bytes[HEADER_BYTES..HEADER_BYTES + body.len()].copy_from_slice(body);
        self.send(body.len());
    }

    /// Replies with an error alone.
    pub(super) fn refuse(&self, error: Errno) {
        self.device.refuse(self.header.unique, error);
    }

    /// The memory behind the header, and how much of it the request takes.
    pub(super) fn memory(&mut self) -> (&mut [u8], usize) {
        (&mut self.bytes[HEADER_BYTES..], self.count - HEADER_BYTES)
    }

    /// Returns the memory to the descriptor.
    pub(super) fn end(self) {
        self.device.give_back(self.bytes);
    }

    /// Sends the first bytes of the body, in one piece with the reply's header, which is shorter than the request's was.
    pub(super) fn send(&mut self, body_bytes: usize) {
        const START: usize = HEADER_BYTES - size_of::<OutHeader>();
        let end = HEADER_BYTES + body_bytes;
        // 16 bytes and at most a buffer's: far below 4 GiB.
        let header = OutHeader { len: (end - START) as u32, error: 0, unique: self.header.unique };
        self.bytes[START..HEADER_BYTES].copy_from_slice(header.as_bytes());
        // No caller waits any more: the caller was interrupted, or it is unmounted.
        let _ = rustix::io::write(&self.device.fd, &self.bytes[START..end]);
    }
}
