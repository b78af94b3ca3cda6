//! `extant umount`.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use extant_block::{Access, FileDevice};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::Outcome;
use crate::failure::Failure;
use crate::mounts::{self, Mounted};

/// How long to wait between two looks at what is in use.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// How often a mount that is in use is tried, an interval apart. A child that was just forked holds what its parent has
/// open until it executes its program.
const TRIES: u32 = 50;

/// Unmount a disk. Returns when it is consistent and its server gone; of a disk that is mounted elsewhere too, at once.
#[derive(Args)]
#[command(after_help = "Examples:\n  extant umount dir")]
pub struct Umount {
    /// Detach it even if it is in use, without waiting
    #[arg(short, long)]
    pub lazy: bool,
    /// Where it is mounted
    pub dir: PathBuf,
}

impl Umount {
    /// Unmounts.
    pub fn run(self) -> Outcome {
        let dir = mounts::whole_path(&self.dir).map_err(|error| Failure::host(&self.dir, &error))?;
        let place = || self.dir.display().to_string();
        let Some(mounted) = mounts::ours_at(&dir)? else {
            return Err(mounts::not_ours(&self.dir));
        };
        let is_stale = mounts::is_stale(&dir);
        let server = if is_stale { None } else { server_of(&dir) };
        unmount(&dir, self.lazy || is_stale).map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy => {
                Failure::new("busy", place(), "in use; end what uses it, or detach it with --lazy")
            }
            _ => Failure::host(&dir, &error),
        })?;
        // Who serves it goes on while it is mounted elsewhere.
        if !self.lazy && !is_stale && mounted.points()?.is_empty() {
            wait(server, &mounted)?;
        }
        Ok(0)
    }
}

/// Unmounts, and does not take the first refusal for the last.
fn unmount(dir: &Path, lazy: bool) -> std::io::Result<()> {
    for _ in 1..TRIES {
        match mounts::unmount(dir, lazy) {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => extant_rt::sleep(LOOK_INTERVAL),
            done => return done,
        }
    }
    mounts::unmount(dir, lazy)
}

/// The process that serves a mount, if it can be known.
fn server_of(dir: &Path) -> Option<OwnedFd> {
    let text = std::fs::read_to_string(dir.join(".extant/pid")).ok()?;
    let pid = Pid::from_raw(text.trim().parse().ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Waits until the server has ended; or, if it is not known, until it has let go of the image.
fn wait(server: Option<OwnedFd>, mounted: &Mounted) -> Result<(), Failure> {
    let Some(server) = server else {
        while let Err(extant_block::Error::Locked { .. } | extant_block::Error::Busy { .. }) =
            FileDevice::open(&mounted.source, Access::read_only())
        {
            extant_rt::sleep(LOOK_INTERVAL);
        }
        return Ok(());
    };
    loop {
        match poll(&mut [PollFd::new(&server, PollFlags::IN)], None) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::host(&mounted.point, &error.into())),
        }
    }
}
