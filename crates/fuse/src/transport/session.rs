//! A mount and the threads that serve it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use extant_rt::Arc;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::device::{Device, Received};
use super::init::{InitRequest, Understanding};
use super::mount::{self, MountError, MountOptions};
use super::notify::Notifier;
use super::placement::Affinity;
use super::readers::Readers;
use super::rings::Rings;
use super::service::Service;
use super::wire::{InitOut, MAJOR, MINOR, init, opcode};
use crate::ops::{Ops, Transport};

/// Bytes of a write or read at most: what the kernel allows by default (256 pages).
const TRANSFER_BYTES_MAX: u32 = 1 << 20;

/// A mounted directory, usable as soon as it is served.
#[derive(Debug)]
pub struct Session<T: Ops> {
    service: Arc<Service<T>>,
    device: OwnedFd,
    asks_for_links: bool,
}

impl<T: Ops> Session<T> {
    /// Mounts `ops` at `dir`. Nothing is answered before [`Session::run`].
    ///
    /// # Errors
    /// [`MountError`].
    pub fn mount(ops: T, dir: &Path, options: &MountOptions) -> Result<Self, MountError> {
        let device = mount::mount(dir, options)?;
        Ok(Self { service: Arc::new(Service::new(ops)), device, asks_for_links: options.asks_for_links })
    }

    /// Answers requests until it is unmounted.
    ///
    /// # Errors
    /// The errors of reading requests; a kernel older than Linux 5.4.
    pub fn run(self) -> io::Result<()> {
        let affinity = Affinity::current();
        let device = Arc::new(Device::new(self.device, TRANSFER_BYTES_MAX as usize));
        let Some((mut request, init_request)) = negotiate(&device)? else { return Ok(()) };
        let rings = if init_request.has_rings() {
            Rings::make(&self.service, TRANSFER_BYTES_MAX as usize, affinity)
        } else {
            None
        };
        let mut more = if self.asks_for_links { 0 } else { init::CACHE_SYMLINKS };
        if rings.is_some() {
            more |= init::OVER_IO_URING;
        }
        let transport = if rings.is_some() { Transport::Rings } else { Transport::Device };
        self.service.ops().begin(transport, Notifier::new(&device));
        request.reply(init_request.answer(TRANSFER_BYTES_MAX, more).as_bytes());
        match rings {
            Some(rings) => rings.run(&self.service, &device),
            None => Readers::new(self.service, device, affinity).run(),
        }
    }
}

/// INIT, which is to be answered; none if it is unmounted before.
fn negotiate(device: &Arc<Device>) -> io::Result<Option<(Received, InitRequest)>> {
    while let Some(mut request) = device.receive()? {
        let init_request =
            InitRequest::read(request.body()).filter(|_| request.header.opcode == opcode::INIT);
        let Some(init_request) = init_request else {
            request.refuse(Errno::IO);
            continue;
        };
        match init_request.understanding() {
            Understanding::Again => {
                let ours = InitOut { major: MAJOR, minor: MINOR, ..InitOut::default() };
                request.reply(ours.as_bytes());
            }
            Understanding::TooOld => {
                request.refuse(Errno::PROTO);
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "the kernel's FUSE is older than 7.31",
                ));
            }
            Understanding::Agreed => return Ok(Some((request, init_request))),
        }
    }
    Ok(None)
}
