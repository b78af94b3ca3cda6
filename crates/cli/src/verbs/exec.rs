//! `extant exec`.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;
use nix::sched::{CloneFlags, unshare};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Outcome;
use super::mount::{Options, Serving, words_of};
use crate::devices::absolute;
use crate::disks::ImageLocation;
use crate::failure::Failure;
use crate::output;

/// As the shell's: the command cannot be run, or is not there.
const EXIT_NOT_EXECUTABLE: u8 = 126;
const EXIT_NOT_FOUND: u8 = 127;
/// As the shell's: a signal ended the command; its number is added.
const EXIT_SIGNAL: i32 = 128;

/// Mount a disk for one command, run it there, and unmount. As root, nobody else sees the mount. The command's working
/// directory is the disk's root, which EXTANT_MOUNT names; its exit status is the exit status.
#[derive(Args)]
#[command(after_help = "Examples:\n  extant exec disk.img -- tar xf /tmp/rootfs.tar\n  \
    extant exec -o ro disk.img -- sh -c 'du -sh *'")]
pub struct Exec {
    /// Options as of `extant mount`
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<String>,
    #[command(flatten)]
    location: ImageLocation,
    /// The image
    image: PathBuf,
    /// The command and its arguments
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// An empty directory of our own, removed at the end.
struct Point(PathBuf);

impl Point {
    fn make() -> Result<Self, Failure> {
        let base = std::env::temp_dir();
        let base = base.canonicalize().map_err(|error| Failure::host(&base, &error))?;
        for attempt in 0..1000 {
            let path = base.join(format!("extant-{}-{attempt}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Failure::host(&path, &error)),
            }
        }
        Err(Failure::new("exists", base.display().to_string(), "no free name for a directory"))
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        // If the unmount failed it is still a mount, and the failure has been reported.
        let _ = std::fs::remove_dir(&self.0);
    }
}

impl Exec {
    /// Mounts, runs, unmounts.
    pub fn run(mut self) -> Outcome {
        self.options.extend(words_of(self.location));
        let options = Options::parse(&self.options)?;
        let image = absolute(&self.image)?;
        if rustix::process::geteuid().is_root() {
            own_namespace()?;
        }
        let point = Point::make()?;
        let serving = Serving::start(&image, &point.0, &options)?;
        let ran = run_in(&point.0, &self.command);
        serving.unmount()?;
        ran
    }
}

/// Mounts from now on are this process's and its children's alone. No other thread may run yet.
fn own_namespace() -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::new("failed", "", format!("no mount namespace: {error}"));
    unshare(CloneFlags::CLONE_NEWNS).map_err(|error| failed(error.into()))?;
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", private).map_err(|error| failed(error.into()))
}

fn run_in(dir: &Path, command: &[OsString]) -> Outcome {
    let Some((program, arguments)) = command.split_first() else {
        return Err(Failure::usage("no command"));
    };
    let no_signals = |error: std::io::Error| Failure::new("failed", "", format!("no signals: {error}"));
    // Before the command begins, so that none of them ends this process and leaves the disk behind.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(no_signals)?;
    let spawned = Command::new(program).args(arguments).current_dir(dir).env("EXTANT_MOUNT", dir).spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            output::report(&Failure::host(Path::new(program), &error), false);
            let is_missing = error.kind() == std::io::ErrorKind::NotFound;
            return Ok(if is_missing { EXIT_NOT_FOUND } else { EXIT_NOT_EXECUTABLE });
        }
    };
    let (handle, pid) = (signals.handle(), Pid::from_child(&child));
    let pass_on = move || {
        // The terminal sends SIGINT to the command as well.
        for signal in signals.forever().filter(|signal| *signal != SIGINT) {
            let signal = if signal == SIGHUP { Signal::HUP } else { Signal::TERM };
            // The command may have ended in the meantime; then there is no process to signal.
            let _ = kill_process(pid, signal);
        }
    };
    extant_rt::spawn("extant-signals", pass_on).map_err(no_signals)?;
    let status = child.wait().map_err(|error| Failure::host(Path::new(program), &error))?;
    handle.close();
    let signal = status.signal().map_or(0, |signal| EXIT_SIGNAL + signal);
    Ok(u8::try_from(status.code().unwrap_or(signal)).unwrap_or(u8::MAX))
}
