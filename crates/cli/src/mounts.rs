//! The mount table, and unmounting.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Dev, FileType, Stat};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::address::is_same_image;
use crate::failure::Failure;

/// A mount of this namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Where.
    pub point: PathBuf,
    /// The type: one of Extant's, or another file system's.
    pub kind: String,
    /// The source of the mount.
    pub source: PathBuf,
    /// Major and minor number, as `0:52`.
    device: String,
    /// The user who mounted, of a mount of FUSE.
    user: Option<u32>,
}

/// The type of our mounts of block devices that the kernel claims; that of others.
const CLAIMED: &str = "fuseblk.extant";
const UNCLAIMED: &str = "fuse.extant";

impl Mounted {
    fn is_ours(&self) -> bool {
        self.kind == CLAIMED || self.kind == UNCLAIMED
    }

    /// What names the file system in the mount table, on one line: anonymous device numbers are reused, and so the source is part
    /// of the name; a claimed device has a number of its own, and may have another source at each place.
    pub fn file_system(&self) -> String {
        match self.kind == CLAIMED {
            true => format!("{} {}", self.device, self.kind),
            false => format!("{} {} {:?}", self.device, self.kind, self.source),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        self.file_system() == other.file_system()
    }

    /// Both numbers in one, as the kernel has it (`MKDEV`).
    pub fn kernel_device(&self) -> Option<u32> {
        let (major, minor) = self.device.split_once(':')?;
        Some(major.parse::<u32>().ok()? << 20 | minor.parse::<u32>().ok()?)
    }

    /// The user who mounted it.
    pub const fn user(&self) -> Option<u32> {
        self.user
    }

    /// Where its file system is mounted, in the order of mounting.
    pub fn points(&self) -> Result<Vec<PathBuf>, Failure> {
        Ok(table()?
            .into_iter()
            .filter(|mounted| self.is_same(mounted))
            .map(|mounted| mounted.point)
            .collect())
    }
}

/// Undoes the escapes of the mount table: a backslash and three octal digits.
fn unescape(field: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let code = behind.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// One line of `/proc/self/mountinfo`.
fn parse(line: &str) -> Option<Mounted> {
    let (before, behind) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(2);
    let device = before.next()?.to_owned();
    let point = unescape(before.nth(1)?);
    let mut behind = behind.split(' ');
    let (kind, source) = (behind.next()?.to_owned(), unescape(behind.next()?));
    // The options of the file system: of those of FUSE, the kernel writes them itself.
    let user = behind.next().and_then(|options| {
        options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok())
    });
    Some(Mounted { point, kind, source, device, user })
}

fn table() -> Result<Vec<Mounted>, Failure> {
    let path = Path::new("/proc/self/mountinfo");
    read_table(path).map_err(|error| Failure::host(path, &error))
}

fn read_table(path: &Path) -> io::Result<Vec<Mounted>> {
    let text = std::fs::read(path)?;
    Ok(String::from_utf8_lossy(&text).lines().filter_map(parse).collect())
}

/// Whether a process that had `image` locked is about to release it: it has ended, or it was the image's server and has no
/// mount of it any more. It has FUSE's device open, as servers have to their end, and where it lives the disk is not mounted;
/// so it will end soon, unless the mount was detached while in use. False if it may not be looked into.
pub fn is_leaving(pid: u32, image: &Path) -> bool {
    let place = Path::new("/proc").join(pid.to_string());
    let descriptors: Vec<_> = match std::fs::read_dir(place.join("fd")) {
        Ok(all) => all.flatten().map(|descriptor| std::fs::read_link(descriptor.path())).collect(),
        Err(error) => return error.kind() == io::ErrorKind::NotFound,
    };
    // A process at its end lists none, while the kernel closes them one after another.
    if descriptors.is_empty() {
        return true;
    }
    let is_fuse =
        |target: &io::Result<PathBuf>| target.as_deref().is_ok_and(|target| target == Path::new("/dev/fuse"));
    let is_of_image = |mounted: &Mounted| mounted.is_ours() && is_same_image(&mounted.source, image);
    descriptors.iter().any(is_fuse)
        && read_table(&place.join("mountinfo")).is_ok_and(|table| !table.iter().any(is_of_image))
}

/// A process in another mount namespace in which a file system is mounted, if there is one that may be looked into.
pub fn namespace_of(mounted: &Mounted) -> Option<u32> {
    let namespace = |process: &Path| std::fs::read_link(process.join("ns/mnt")).ok();
    let own = namespace(Path::new("/proc/self"));
    let mut seen = vec![own];
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).find(|pid| {
        let process = Path::new("/proc").join(pid.to_string());
        let of = namespace(&process);
        if of.is_none() || seen.contains(&of) {
            return false;
        }
        seen.push(of);
        read_table(&process.join("mountinfo"))
            .is_ok_and(|table| table.iter().any(|other| mounted.is_same(other)))
    })
}

/// Whether a process is stopped, by a signal or by its tracer.
pub fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    // The state is behind the name, which may have any bytes.
    let state = stat.ok().and_then(|stat| stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()));
    matches!(state, Some('T' | 't'))
}

/// Where the process has `image` mounted; none if it does not serve it, or may not be looked into.
pub fn served_by(pid: u32, image: &Path) -> Option<PathBuf> {
    let table = read_table(&Path::new("/proc").join(pid.to_string()).join("mountinfo")).ok()?;
    let is_of_image = |mounted: &Mounted| mounted.is_ours() && is_same_image(&mounted.source, image);
    let found = table.into_iter().rfind(is_of_image)?;
    // Others of its namespace see the same table; the server has FUSE's device open.
    is_fuse_server(pid).then_some(found.point)
}

fn is_fuse_server(pid: u32) -> bool {
    let descriptors = std::fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd"));
    descriptors.is_ok_and(|all| {
        all.flatten().any(|descriptor| {
            std::fs::read_link(descriptor.path()).is_ok_and(|target| target == Path::new("/dev/fuse"))
        })
    })
}

/// The command line of a process, cut where it gets long.
pub fn command_of(pid: u32) -> Option<String> {
    const LETTERS_MAX: usize = 80;
    let words = std::fs::read(Path::new("/proc").join(pid.to_string()).join("cmdline")).ok()?;
    let words = String::from_utf8_lossy(words.strip_suffix(b"\0").unwrap_or(&words)).replace('\0', " ");
    let cut: String = words.chars().take(LETTERS_MAX).collect();
    let end = if cut.len() < words.len() { "..." } else { "" };
    (!cut.is_empty()).then(|| format!("{cut}{end}"))
}

/// The whole path of a directory that may be a mount whose server is gone.
pub fn whole_path(dir: &Path) -> io::Result<PathBuf> {
    match dir.canonicalize() {
        Err(error) if Errno::from_io_error(&error).is_some_and(is_gone) => {
            let Some(name) = dir.file_name() else { return Err(error) };
            let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
            Ok(parent.unwrap_or(Path::new(".")).canonicalize()?.join(name))
        }
        other => other,
    }
}

/// Whether it is a mount whose server is gone.
pub fn is_stale(dir: &Path) -> bool {
    // The kernel remembers attributes; how full it is it always asks.
    rustix::fs::statfs(dir).is_err_and(is_gone)
}

/// Whether an error says that a mount's server is gone: before, or while the request was under way.
fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::NOTCONN | Errno::CONNABORTED)
}

/// Our mount at `dir`, the topmost.
pub fn ours_at(dir: &Path) -> Result<Option<Mounted>, Failure> {
    let at = table()?.into_iter().rfind(|mounted| mounted.point == dir);
    Ok(at.filter(Mounted::is_ours))
}

/// Our mount that `path` is in.
pub fn ours_around(path: &Path) -> Result<Option<Mounted>, Failure> {
    let device = device_name(stat(path)?.st_dev);
    Ok(table()?.into_iter().rfind(|mounted| mounted.device == device && mounted.is_ours()))
}

/// Our mount of a block device that the kernel claims for it.
pub fn claiming(image: &Path) -> Result<Option<Mounted>, Failure> {
    let stat = stat(image)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
        return Ok(None);
    }
    let device = device_name(stat.st_rdev);
    Ok(table()?.into_iter().rfind(|mounted| mounted.device == device && mounted.kind == CLAIMED))
}

fn stat(path: &Path) -> Result<Stat, Failure> {
    rustix::fs::stat(path).map_err(|error| Failure::host(path, &error.into()))
}

/// A device's number as the mount table has it.
fn device_name(device: Dev) -> String {
    format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
}

/// The failure that no mount of Extant is at or around `dir`.
pub fn not_ours(dir: &Path) -> Failure {
    Failure::new("not_mounted", dir.display().to_string(), "no disk of extant is mounted there")
}

/// The failure that the server of a mount is gone.
pub fn server_gone(dir: &Path) -> Failure {
    let place = dir.display().to_string();
    let message = format!("a mount whose server is gone; `extant umount {place}` removes it");
    Failure::new("stale_mount", place, message)
}

/// Unmounts; `lazily` even if it is in use.
///
/// # Errors
/// `EBUSY`; what the host or `fusermount3` says.
pub fn unmount(dir: &Path, lazily: bool) -> io::Result<()> {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(dir, flags | UnmountFlags::NOFOLLOW) {
        Err(Errno::PERM) => {}
        other => return Ok(other?),
    }
    let mut command = Command::new("fusermount3");
    command.arg("-u");
    if lazily {
        command.arg("-z");
    }
    let output = command.arg("--").arg(dir).output()?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let kind = if words.contains("busy") { io::ErrorKind::ResourceBusy } else { io::ErrorKind::Other };
    Err(io::Error::new(kind, words))
}

/// Whether a path can be written into the mount table and the options of `fusermount3`.
pub fn is_plain(path: &Path) -> bool {
    !path.as_os_str().as_bytes().contains(&b'\n')
}

#[cfg(test)]
mod tests {
    use super::{Mounted, parse};

    #[test]
    fn line_of_the_mount_table_is_read() {
        let line =
            r"40 25 0:37 / /mnt/a\040b rw,nosuid - fuse.extant /img/x\134y.img rw,user_id=1000,group_id=0";
        let mounted = Mounted {
            point: "/mnt/a b".into(),
            kind: "fuse.extant".to_owned(),
            source: r"/img/x\y.img".into(),
            device: "0:37".to_owned(),
            user: Some(1000),
        };
        assert_eq!(parse(line), Some(mounted));
    }
}
