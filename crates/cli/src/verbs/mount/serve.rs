//! A server in this process: the disk, the mount and the threads.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use extant::Filesystem;
use extant_block::{BlockDevice, DeviceAccess, FileDevice};
use extant_fuse::{
    DeviceTimes, MountError, MountOptions, Owners, Server, ServerOptions, Session, TimedDevice,
};
use extant_rt::{Arc, JoinHandle, LockClass, Monotonic, Mutex};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use super::Options;
use crate::devices::{self, OpenImage};
use crate::disks;
use crate::failure::Failure;
use crate::mounts::{self, Mounted};
use crate::output;
use crate::servers::Record;
use crate::stats;
use crate::verbs::Outcome;

/// How long a mount waits for the server of the one before to end, which may have a lot to write.
const LEAVING_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long it waits for a lock or claim that has no holder to name: the kernel lets go of them a moment after their process has
/// left the list of processes.
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long to wait between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A mounted disk that this process serves.
pub struct Serving {
    image: PathBuf,
    mounted: Mounted,
    server: Arc<Server>,
    record: Arc<Record>,
    threads: JoinHandle<()>,
    /// What the threads ended with.
    ended: Arc<Mutex<io::Result<()>>>,
}

/// Waits for signals until it is dropped.
pub struct Watch(Handle);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Serving {
    /// Opens the disk, mounts it and begins to serve.
    pub fn start(image: &Path, dir: &Path, options: &Options) -> Result<Self, Failure> {
        let is_root = rustix::process::geteuid().is_root();
        let mut options = options.clone();
        if !is_root && (options.suid || options.dev) {
            return Err(Failure::new("not_permitted", "", "only root can mount with suid or dev"));
        }
        options.allow_other = Some(options.allow_other.unwrap_or(is_root));
        let Opened { fs, device, claimed } = open(image, dir, &options, is_root)?;
        options.read_only |= fs.is_read_only();
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let owners = owners(image, &fs, &mut options, uid, gid)?;
        let how = ServerOptions {
            owners,
            access_times: options.access_times,
            no_dir_access_times: options.nodiratime,
            no_control: options.nocontrol,
            uid,
            gid,
            pid: std::process::id(),
            description: options.describe(),
            device: Some(device),
        };
        let server = Server::new(fs.clone(), how).map_err(|error| Failure::disk(image.display(), &error))?;
        let mount = options.of_mount(image);
        let session = match claimed {
            Some(device) => mount_claiming(&server, &fs, &device, dir, &mount)?,
            None => Session::mount(server.clone(), dir, &mount).map_err(mount_failure)?,
        };
        let mounted = mounts::ours_at(dir)?.ok_or_else(|| mounts::not_ours(dir))?;
        let record = Arc::new(Record::new(&mounted)?);
        let ended = Arc::new(Mutex::new(LockClass::PIPE, Ok(())));
        let result = ended.clone();
        let threads = extant_rt::spawn("extant-serve", move || {
            let end = session.run();
            *result.lock() = end;
        });
        let threads = threads.map_err(|error| Failure::new("failed", "", format!("no thread: {error}")))?;
        Ok(Self { image: image.to_owned(), mounted, server, record, threads, ended })
    }

    /// Unmounts, wherever it is mounted, when SIGINT, SIGTERM or SIGHUP comes. A mount in use is detached, and the process ends
    /// once the disk is consistent.
    pub fn unmount_on_signals(&self) -> Result<Watch, Failure> {
        let no_signals = |error: io::Error| Failure::new("failed", "", format!("no signals: {error}"));
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(no_signals)?;
        let watch = Watch(signals.handle());
        let (mounted, server) = (self.mounted.clone(), self.server.clone());
        let (image, record) = (self.image.clone(), self.record.clone());
        let wait = move || {
            if signals.forever().next().is_none() {
                return;
            }
            if unmount_everywhere(&mounted).is_ok_and(|ends| ends) {
                return;
            }
            // The mount point is gone, or the mount is still in use: its users get errors from now on.
            let finished = finish(&server, &image, &record);
            if let Err(failure) = &finished {
                output::report(failure, false);
            }
            std::process::exit(i32::from(finished.is_err()));
        };
        extant_rt::spawn("extant-signals", wait).map_err(no_signals)?;
        Ok(watch)
    }

    /// Waits until it is unmounted, and makes the disk consistent.
    pub fn wait(self) -> Outcome {
        // The panic hook has reported a panic of the serving thread; the disk is to be made consistent all the same.
        let _ = self.threads.join();
        let served = std::mem::replace(&mut *self.ended.lock(), Ok(())).map_err(|error| {
            let message = format!("serving ended with an error: {error}");
            Failure::new("failed", self.image.display().to_string(), message)
        });
        finish_served(served, &self.server, &self.image, &self.record).map(|()| 0)
    }

    /// Unmounts, wherever it is mounted, and waits; not for what still uses it.
    pub fn unmount(self) -> Outcome {
        if unmount_everywhere(&self.mounted)? {
            return self.wait();
        }
        finish(&self.server, &self.image, &self.record).map(|()| 0)
    }
}

/// Makes the disk consistent, and reports the result to the process that waits for it.
fn finish(server: &Server, image: &Path, record: &Record) -> Result<(), Failure> {
    finish_served(Ok(()), server, image, record)
}

/// [`finish`] after serving ended so.
fn finish_served(
    served: Result<(), Failure>,
    server: &Server,
    image: &Path,
    record: &Record,
) -> Result<(), Failure> {
    let finished = server.finish().map_err(|error| Failure::disk(image.display(), &error)).and(served);
    record.tell(&finished);
    finished
}

/// Unmounts it wherever it is mounted, lazily where something uses it: whether its server will come to its end thereby.
fn unmount_everywhere(mounted: &Mounted) -> Result<bool, Failure> {
    let points = mounted.points()?;
    let mut ends = !points.is_empty();
    // One may be within another.
    for point in points.iter().rev() {
        let unmounted = match mounts::unmount(point, false) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                ends = false;
                mounts::unmount(point, true)
            }
            // It went with another: the directory that it is in is shared with that one's.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            unmounted => unmounted,
        };
        unmounted.map_err(|error| Failure::host(point, &error))?;
    }
    Ok(ends)
}

/// Has the kernel claim the device, so that `sync` reaches us, or mounts without if it does not.
fn mount_claiming(
    server: &Arc<Server>,
    fs: &Filesystem,
    device: &FileDevice,
    dir: &Path,
    mount: &MountOptions,
) -> Result<Session<Arc<Server>>, Failure> {
    // A page at most.
    let claiming = MountOptions { claims: Some(fs.statistics().block_size.min(4096)), ..mount.clone() };
    device.yield_claim();
    if let Ok(session) = Session::mount(server.clone(), dir, &claiming) {
        return Ok(session);
    }
    if let Err(error) = device.claim_again() {
        // Another process has claimed the device: nothing more may be written.
        let _ = fs.force_shutdown(false);
        return Err(devices::device_failure(device.path(), error));
    }
    Session::mount(server.clone(), dir, mount).map_err(mount_failure)
}

/// Opens the disk and locks it; after an unmount of it that is under way, as the kernel's own mounts do.
fn open_file(image: &Path, access: DeviceAccess) -> Result<FileDevice, Failure> {
    use extant_block::Error;
    let start = Monotonic::now();
    let mut server_seen = start;
    let mut user = None;
    loop {
        match FileDevice::open(image, access) {
            Err(Error::Locked { holder: Some(holder), .. }) if start.elapsed() < LEAVING_WAIT_MAX => {
                if mounts::is_leaving(holder.pid, image) {
                    server_seen = Monotonic::now();
                } else if user.replace(holder.pid) == Some(holder.pid) {
                    // At the first look it may have released the lock between the refusal and the question whether it would.
                    return Err(devices::device_failure(
                        image,
                        Error::Locked { path: image.to_owned(), holder: Some(holder) },
                    ));
                }
            }
            Err(Error::Locked { holder: None, .. } | Error::Busy { .. })
                if server_seen.elapsed() < RELEASE_WAIT_MAX => {}
            opened => return opened.map_err(|error| devices::device_failure(image, error)),
        }
        extant_rt::sleep(LOOK_INTERVAL);
    }
}

/// A file system that is to be served.
struct Opened {
    fs: Filesystem,
    device: DeviceTimes,
    /// Its device if that is a block device that the kernel can claim for the mount.
    claimed: Option<Arc<FileDevice>>,
}

fn open(image: &Path, dir: &Path, options: &Options, is_root: bool) -> Result<Opened, Failure> {
    use std::os::unix::ffi::OsStrExt;
    let access = if options.read_only { DeviceAccess::read_only() } else { DeviceAccess::read_write() };
    let open = |access| OpenImage::open_by(image, access, |access| open_file(image, access));
    let opened = match open(access) {
        // As mount(8) does.
        Err(failure) if [devices::WRITE_PROTECTED, devices::READ_ONLY_FORMAT].contains(&failure.kind) => {
            open(DeviceAccess::read_only())
        }
        opened => opened,
    }?;
    let (device, file) = opened.share();
    let location = options.location().choose(image, &*device)?;
    let device = location.locate(image, device)?;
    let read_only = device.is_read_only();
    if options.norecovery && !read_only {
        return Err(Failure::usage("norecovery needs ro"));
    }
    let claimed = file.filter(|file| is_root && location.is_whole() && file.is_block_special() && !read_only);
    let how = extant::Mount::new()
        .read_only(read_only)
        .no_recovery(options.norecovery)
        .discard(options.discard)
        .stop_on_damage(options.stop_on_damage)
        .enforce_quotas(&options.quotas.iter().copied().collect::<Vec<_>>())
        // What is on the disk stays in the kernel's page cache, not in this one too.
        .keep_clean_pages(false)
        .last_mounted(dir.as_os_str().as_bytes());
    let how = match options.page_cache {
        Some(bytes) => how.page_cache_bytes(bytes),
        None => how,
    };
    let device = TimedDevice::new(device);
    let times = device.times();
    stats::add(image, times.clone());
    let fs = disks::mount(image, Arc::new(device), how)?;
    if read_only && !options.read_only {
        tell_of_protection(image, &fs)?;
    }
    disks::tell_of_opening(image, &fs);
    Ok(Opened { fs, device: times, claimed })
}

/// That a device is mounted for reading though that was not asked for; where writing would have begun by a replay, it is to be
/// asked for.
fn tell_of_protection(image: &Path, fs: &Filesystem) -> Result<(), Failure> {
    let image = image.display();
    if fs.mounted().replayed_blocks > 0 {
        let message = "write-protected, and its journal is to be replayed; -o ro shows what that makes of it";
        return Err(Failure::new(devices::WRITE_PROTECTED, image.to_string(), message));
    }
    output::note(&format!("{image}: write-protected, mounting read-only"));
    Ok(())
}

/// Whose files they are: for an ordinary user, on a disk whose root directory is root's, the user's own.
fn owners(
    image: &Path,
    fs: &Filesystem,
    options: &mut Options,
    uid: u32,
    gid: u32,
) -> Result<Owners, Failure> {
    if options.idmap {
        return Ok(Owners::Swap { uid, gid });
    }
    let root = fs.root().map_err(|error| Failure::disk(image.display(), &error))?.metadata();
    let is_roots = root.uid == 0 && root.gid == 0;
    let fakeroot = options.fakeroot.unwrap_or(uid != 0 && is_roots);
    options.fakeroot = Some(fakeroot);
    Ok(if fakeroot { Owners::Own { uid, gid } } else { Owners::AsStored })
}

fn mount_failure(error: MountError) -> Failure {
    match error {
        MountError::NoDevice(source) => {
            let message = format!(
                "{source}; nothing can be mounted here. `extant cp`, `extant import` and `extant export` do without"
            );
            Failure::new("no_fuse", "/dev/fuse", message)
        }
        MountError::Directory { path, source } => Failure::host(&path, &source),
        error => Failure::new("failed", "", error.to_string()),
    }
}
