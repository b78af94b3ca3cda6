//! `extant umount`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use extant_block::{DeviceAccess, FileDevice};
use extant_rt::{Arc, Condvar, LockClass, Monotonic, Mutex};
use rustix::event::{PollFd, PollFlags, poll};

use super::Outcome;
use crate::failure::Failure;
use crate::mounts::{self, Mounted};
use crate::output;
use crate::servers::ServerProcess;

/// How long to wait between two looks at what is in use.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// How often a mount that is in use is tried, an interval apart. A child that was just forked holds what its parent has
/// open until it executes its program.
const TRIES: u32 = 50;

/// How long it takes until it is said what it waits for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Unmount a disk. Returns when it is consistent and its server gone; of a disk that is mounted elsewhere too, at once.
#[derive(Args)]
#[command(
    after_help = "Exit status: 0 if the disk is consistent; 1 if it could not be unmounted, if its server could not write \
    all that it had to, or if it has not ended within the timeout. Then it goes on by itself; what it waits for is \
    named: a mount namespace in which the disk is still mounted, or a server that is stopped.\n\n\
    Examples:\n  extant umount dir"
)]
pub struct Umount {
    /// Detach it even if it is in use, without waiting
    #[arg(short, long)]
    pub lazy: bool,
    /// How long to wait for the server, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = Umount::TIMEOUT)]
    pub timeout: u64,
    /// Where it is mounted
    pub dir: PathBuf,
}

/// What the thread that unmounts reports to the one that watches the timeout.
#[derive(Default)]
struct Progress {
    mounted: Option<Mounted>,
    server: Option<Arc<ServerProcess>>,
    is_unmounted: bool,
    outcome: Option<Result<(), Failure>>,
}

struct Shared {
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl Umount {
    /// Seconds, unless others are asked for.
    pub const TIMEOUT: u64 = 60;

    /// Unmounts. A thread asks the kernel about the mount, for a server that does not answer blocks the caller; the thread ends
    /// with the process.
    pub fn run(self) -> Outcome {
        let progress = Mutex::new(LockClass::PIPE, Progress::default());
        let shared = Arc::new(Shared { progress, changed: Condvar::new() });
        let (thread, dir, lazy) = (shared.clone(), self.dir.clone(), self.lazy);
        let work = move || {
            let outcome = thread.unmount(&dir, lazy);
            thread.progress.lock().outcome = Some(outcome);
            thread.changed.notify_all();
        };
        extant_rt::spawn("extant-umount", work)
            .map_err(|error| Failure::new("failed", "", format!("no thread: {error}")))?;
        let timeout = Duration::from_secs(self.timeout);
        let mut outcome = shared.wait(timeout.min(PATIENCE));
        if outcome.is_none() && timeout > PATIENCE {
            output::note(&format!("{}: waiting: {}", self.dir.display(), shared.hindrance()));
            outcome = shared.wait(timeout.saturating_sub(PATIENCE));
        }
        match outcome {
            Some(outcome) => outcome.map(|()| 0),
            None => {
                let done = if shared.progress.lock().is_unmounted {
                    "unmounted, but the disk is in use"
                } else {
                    "not unmounted"
                };
                let message = format!("{done} after {} s: {}", self.timeout, shared.hindrance());
                Err(Failure::new("timeout", self.dir.display().to_string(), message))
            }
        }
    }
}

impl Shared {
    /// Waits for the outcome.
    fn wait(&self, time: Duration) -> Option<Result<(), Failure>> {
        let start = Monotonic::now();
        let mut progress = self.progress.lock();
        while progress.outcome.is_none() && start.elapsed() < time {
            progress = self.changed.wait_timeout(progress, time.saturating_sub(start.elapsed()));
        }
        progress.outcome.take()
    }

    /// What it waits for.
    fn hindrance(&self) -> String {
        let (mounted, server) = {
            let progress = self.progress.lock();
            (progress.mounted.clone(), progress.server.clone())
        };
        match (mounted, server) {
            (Some(mounted), Some(server)) => server.hindrance(&mounted),
            (Some(mounted), None) => format!("{} is still in use by its server", mounted.source.display()),
            (None, _) => "the mount does not answer".to_owned(),
        }
    }

    fn unmount(&self, given: &Path, lazy: bool) -> Result<(), Failure> {
        // A server that is stopped is asked nothing: a thread that waits for it cannot even be killed.
        let absolute = std::path::absolute(given).map_err(|error| Failure::host(given, &error))?;
        let (dir, mounted) = match mounts::ours_at(&absolute)? {
            Some(mounted) => (absolute, Some(mounted)),
            None => {
                let dir = mounts::whole_path(given).map_err(|error| Failure::host(given, &error))?;
                let mounted = mounts::ours_at(&dir)?;
                (dir, mounted)
            }
        };
        let Some(mounted) = mounted else {
            return Err(mounts::not_ours(given));
        };
        let server = ServerProcess::of(&mounted).map(Arc::new);
        {
            let mut progress = self.progress.lock();
            progress.mounted = Some(mounted.clone());
            progress.server.clone_from(&server);
        }
        let is_stale = server.is_none() && mounts::is_stale(&dir);
        unmount(&dir, lazy || is_stale).map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy => {
                let place = given.display().to_string();
                Failure::new("busy", place, "in use; end what uses it, or detach it with --lazy")
            }
            _ => Failure::host(&dir, &error),
        })?;
        self.progress.lock().is_unmounted = true;
        // The server goes on while it is mounted elsewhere.
        if lazy || is_stale || !mounted.points()?.is_empty() {
            return Ok(());
        }
        wait(server.as_deref(), &mounted)
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

/// Waits until the server has ended, and returns how; or, if the server is not known, until it has released the image.
fn wait(server: Option<&ServerProcess>, mounted: &Mounted) -> Result<(), Failure> {
    let Some(server) = server else {
        while let Err(extant_block::Error::Locked { .. } | extant_block::Error::Busy { .. }) =
            FileDevice::open(&mounted.source, DeviceAccess::read_only())
        {
            extant_rt::sleep(LOOK_INTERVAL);
        }
        return Ok(());
    };
    loop {
        match poll(&mut [PollFd::from_borrowed_fd(server.process(), PollFlags::IN)], None) {
            Ok(_) => return server.outcome(&mounted.source),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::host(&mounted.point, &error.into())),
        }
    }
}
