//! Mounts of the kernel and of servers.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::kernel::KernelMount;
use crate::scratch::run;

/// How long a server may take until its mount can be used.
const START_MAX: Duration = Duration::from_secs(10);

/// A mount of either kind; unmounted on drop.
pub enum Mounted {
    /// The kernel's.
    Kernel(KernelMount),
    /// A server's.
    Served(Served),
}

impl Mounted {
    /// By the kernel.
    pub fn kernel(image: &Path, point: &Path) -> Result<Self> {
        Ok(Self::Kernel(KernelMount::new(image, point)?))
    }

    /// By the command `extant` of the same build.
    pub fn extant(image: &Path, point: &Path) -> Result<Self> {
        let program = std::env::current_exe()?.with_file_name("extant");
        Self::served(&program, &["mount".as_ref(), "-f".as_ref(), image.as_ref(), point.as_ref()], point)
    }

    /// By the server of e2fsprogs.
    pub fn fuse2fs(image: &Path, point: &Path) -> Result<Self> {
        Self::served(Path::new("fuse2fs"), &["-f".as_ref(), image.as_ref(), point.as_ref()], point)
    }

    /// By a server that stays in the foreground, at `point`, which is made.
    pub fn served(program: &Path, arguments: &[&OsStr], point: &Path) -> Result<Self> {
        std::fs::create_dir_all(point)?;
        Served::start(Command::new(program).args(arguments), point).map(Self::Served)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        match self {
            Self::Kernel(mount) => mount.path(),
            Self::Served(served) => &served.point,
        }
    }

    /// Unmounts and waits until the server has ended.
    pub fn end(self) -> Result<()> {
        match self {
            Self::Kernel(mount) => drop(mount),
            Self::Served(mut served) => {
                run(Command::new("umount").arg(&served.point))?;
                let status = served.child.wait()?;
                if !status.success() {
                    return Err(format!("the server ended with {status}").into());
                }
            }
        }
        Ok(())
    }
}

/// A mount and the process that serves it.
pub struct Served {
    child: Child,
    point: PathBuf,
}

impl Served {
    /// Starts a server that stays in the foreground, and waits until the mount can be used.
    fn start(command: &mut Command, point: &Path) -> Result<Self> {
        let program = command.get_program().display().to_string();
        let device = |path: &Path| std::fs::metadata(path).map(|metadata| metadata.dev());
        let unmounted = device(point)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| format!("{program}: {error}"))?;
        let mut served = Self { child, point: point.to_owned() };
        let start = Instant::now();
        while device(point)? == unmounted {
            if served.child.try_wait()?.is_some() {
                let mut words = String::new();
                if let Some(mut stderr) = served.child.stderr.take() {
                    stderr.read_to_string(&mut words)?;
                }
                return Err(format!("{program}: {}", words.trim()).into());
            }
            if start.elapsed() > START_MAX {
                return Err(format!("{program}: not mounted after {} s", START_MAX.as_secs()).into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(served)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Nothing to do after a proper end; after a failure nobody is to be left behind.
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = run(Command::new("umount").arg("-l").arg(&self.point));
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
