//! What is compared, and mounting it.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Result;
use crate::kernel::KernelMount;
use crate::scratch::{Scratch, run};

/// How long a server may take until its mount can be used.
const START_MAX: Duration = Duration::from_secs(10);

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The command `extant` of the same build.
    Extant,
    /// The empty server, content in memory.
    Empty,
    /// The empty server, content in an image file.
    EmptyOnImage,
    /// That of e2fsprogs.
    Fuse2fs,
    /// The kernel's ext4 on a loop device.
    Kernel,
}

impl Side {
    /// All, in the order of the report.
    pub const ALL: [Self; 5] = [Self::Extant, Self::Empty, Self::EmptyOnImage, Self::Fuse2fs, Self::Kernel];

    /// What the report calls it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Extant => "extant",
            Self::Empty => "empty server",
            Self::EmptyOnImage => "empty server, image",
            Self::Fuse2fs => "fuse2fs",
            Self::Kernel => "kernel ext4",
        }
    }

    /// Whether a run can do without it.
    pub const fn may_be_missing(self) -> bool {
        matches!(self, Self::Fuse2fs | Self::Kernel)
    }

    /// Mounts a fresh file system of it.
    pub fn mount(self, scratch: &Scratch) -> Result<Mounted> {
        let (point, own) = (scratch.path("mount"), std::env::current_exe()?);
        let path = scratch.path("disk.img");
        // The last run's, if there was one.
        let _ = std::fs::remove_file(&path);
        std::fs::create_dir_all(&point)?;
        let serve = |program: &Path, arguments: &[&OsStr]| {
            Served::start(Command::new(program).args(arguments), &point).map(Mounted::Served)
        };
        match self {
            Self::Extant => {
                let image = scratch.image("disk.img")?;
                let program = own.with_file_name("extant");
                serve(&program, &["mount".as_ref(), "-f".as_ref(), image.as_ref(), point.as_ref()])
            }
            Self::Empty => serve(&own, &["empty".as_ref(), point.as_ref()]),
            Self::EmptyOnImage => serve(&own, &["empty".as_ref(), point.as_ref(), path.as_ref()]),
            Self::Fuse2fs => {
                let image = scratch.image("disk.img")?;
                serve(Path::new("fuse2fs"), &["-f".as_ref(), image.as_ref(), point.as_ref()])
            }
            Self::Kernel => Ok(Mounted::Kernel(KernelMount::new(&scratch.image("disk.img")?, &point)?)),
        }
    }
}

/// A mount of either kind; unmounted on drop.
pub enum Mounted {
    /// The kernel's.
    Kernel(KernelMount),
    /// A server's.
    Served(Served),
}

impl Mounted {
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
