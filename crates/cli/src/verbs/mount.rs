//! `extant mount`, and the program `mount.extant` that mount(8) calls.

mod daemon;
mod options;
mod program;
mod serve;
mod transport;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Args;

use super::Outcome;
use crate::devices::{absolute, scheme};
use crate::disks::ImageLocation;
use crate::failure::Failure;
use crate::mounts;

pub use options::{Options, words_of};
pub use program::called_by_mount;
pub use serve::Serving;

/// Mount a disk through FUSE. Returns when it can be used.
#[derive(Args)]
#[command(after_help = "Options of -o: ro, rw, suid, dev, noexec, allow_other, noallow_other, idmap, \
    fakeroot, nofakeroot, noatime, relatime, strictatime, nodiratime, nocontrol, norecovery, discard, nodiscard, \
    errors=remount-ro, page_cache=BYTES (memory for written data that waits for the disk; 256M on block devices \
    and disks over the network, else 0), offset=BYTES, partition=N, volume=VG/LV. Those of \
    fstab and of the kernel's ext4 are accepted where what is done is at least as strong, and refused by name otherwise.\n\n\
    As root, others may use the mount too (noallow_other keeps it for root); nosuid and nodev hold unless suid or \
    dev is asked for. As an ordinary user, a disk whose root directory is root's appears as the user's own, and new \
    files are stored as root's (fakeroot).\n\n\
    Where the kernel has FUSE over io_uring (Linux 6.14) and it is off, a note on a terminal says how root turns it \
    on: then several clients are served at once.\n\n\
    Root can mount a block device at further places; suid, dev and noexec are each mount's own, ro must be as at the \
    first, and the other options are ignored.\n\n\
    Examples:\n  extant mount disk.img dir\n  extant mount -o ro,partition=2 /dev/sdb dir\n  \
    extant umount dir")]
pub struct Mount {
    /// Stay in the foreground
    #[arg(short, long)]
    foreground: bool,
    /// Options, separated by commas
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<String>,
    #[command(flatten)]
    location: ImageLocation,
    /// Write an empty line to standard output when it can be used, and let go of the terminal
    #[arg(long, hide = true)]
    ready: bool,
    /// The image
    image: PathBuf,
    /// The directory
    dir: PathBuf,
}

impl Mount {
    /// Mounts.
    pub fn run(mut self) -> Outcome {
        if self.location.stats && !self.foreground {
            return Err(Failure::usage(
                "--stats needs --foreground; `extant top DIR` shows requests while it is mounted",
            ));
        }
        self.options.extend(options::words_of(self.location));
        let options = Options::parse(&self.options)?;
        let image = absolute(&self.image)?;
        let dir = mounts::whole_path(&self.dir).map_err(|error| Failure::host(&self.dir, &error))?;
        check_directory(&dir)?;
        // A server that was started for it is to say how it went.
        if !self.ready && mount_again(&image, &dir, &options)? {
            return Ok(0);
        }
        if !self.foreground {
            let exit = daemon::start(&image, &dir, &self.options)?;
            if exit == 0 {
                transport::hint();
            }
            return Ok(exit);
        }
        let serving = Serving::start(&image, &dir, &options)?;
        let watch = serving.unmount_on_signals()?;
        if self.ready {
            daemon::let_go()?;
        }
        let exit = serving.wait();
        drop(watch);
        exit
    }
}

/// Mounts a block device at a further place, if the kernel holds it for a server of ours that serves the whole of it: false if not.
fn mount_again(image: &Path, dir: &Path, options: &Options) -> Result<bool, Failure> {
    if !options.location().is_whole() || scheme(image).is_some() {
        return Ok(false);
    }
    let Some(mounted) = mounts::claiming(image)? else { return Ok(false) };
    match options.of_mount(image).mount_again(dir) {
        Ok(()) if mounts::is_stale(dir) => {
            mounts::unmount(dir, true).map_err(|error| Failure::host(dir, &error))?;
            Err(mounts::server_gone(&mounted.point))
        }
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::ResourceBusy => {
            let (there, here) = if options.read_only { ("rw", "ro") } else { ("ro", "rw") };
            let message = format!(
                "mounted {there} at {}; a further mount cannot be {here}, but for a bind mount",
                mounted.point.display()
            );
            Err(Failure::new("busy", image.display().to_string(), message))
        }
        // Unmounted meanwhile, or not ours to mount: a later open reports what is wrong.
        Err(_) => Ok(false),
    }
}

/// That nothing of ours is mounted there.
fn check_directory(dir: &Path) -> Result<(), Failure> {
    let place = || dir.display().to_string();
    if mounts::is_stale(dir) {
        return Err(mounts::server_gone(dir));
    }
    if !mounts::is_plain(dir) {
        return Err(Failure::new("not_a_directory", place(), "a line feed in the path"));
    }
    if !dir.is_dir() {
        return Err(Failure::new("not_a_directory", place(), "not a directory"));
    }
    match mounts::ours_at(dir)? {
        Some(mounted) => {
            let message = format!("{} is mounted there already", mounted.source.display());
            Err(Failure::new("busy", place(), message))
        }
        None => Ok(()),
    }
}
