//! A disk, its mount and the judges.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use extant_testing::run_while_busy;
use tempfile::TempDir;

pub const EXTANT: &str = env!("CARGO_BIN_EXE_extant");

/// Whether mounts work here; says so if not.
pub fn can_mount() -> bool {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &device {
        println!("skipped: /dev/fuse: {error}");
    }
    device.is_ok()
}

/// Whether this is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs `extant`.
pub fn extant<A: AsRef<std::ffi::OsStr>>(arguments: &[A]) -> Output {
    Command::new(EXTANT).args(arguments).stdin(Stdio::null()).output().expect("extant")
}

/// Runs `extant`, which must do well.
pub fn run<A: AsRef<std::ffi::OsStr>>(arguments: &[A]) -> String {
    let output = extant(arguments);
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Unmounts, which must do well.
pub fn umount(point: &Path) {
    let output = run_while_busy(Command::new(EXTANT).arg("umount").arg(point).stdin(Stdio::null()));
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}

/// Whether it is an image of qcow2.
pub fn is_qcow2(image: &Path) -> bool {
    let mut magic = [0; 4];
    std::fs::File::open(image).is_ok_and(|mut file| file.read_exact(&mut magic).is_ok())
        && magic == *b"QFI\xfb"
}

/// Asserts that `e2fsck` finds nothing at all; in an image of qcow2 neither does `qemu-img check`, but for clusters that a crash leaked.
pub fn assert_clean(image: &Path) {
    if is_qcow2(image) {
        let qemu_img = |arguments: &[&std::ffi::OsStr]| {
            Command::new("qemu-img").args(arguments).output().expect("qemu-img")
        };
        let checked = qemu_img(&["check".as_ref(), "-f".as_ref(), "qcow2".as_ref(), image.as_os_str()]);
        assert!(matches!(checked.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&checked.stdout));
        let disk = image.with_extension("taken");
        let words = ["convert", "-f", "qcow2", "-O", "raw"].map(std::ffi::OsStr::new);
        let taken = qemu_img(&[&words[..], &[image.as_os_str(), disk.as_os_str()]].concat());
        assert!(taken.status.success(), "{}", String::from_utf8_lossy(&taken.stderr));
        assert_clean(&disk);
        std::fs::remove_file(disk).expect("removed");
        return;
    }
    let output = Command::new("e2fsck").arg("-fn").arg(image).env("PATH", path()).output();
    let Ok(output) = output else {
        println!("skipped: e2fsck");
        return;
    };
    let words = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let is_clean = output.status.success() && !words.contains("Fix?") && !words.contains("WARNING");
    assert!(is_clean, "{}: {words}", output.status);
}

/// Has `fstrim` trim a mount until `is_done`, or for five seconds: the kernel may hold what was unlinked for a while. False if
/// there is no such program.
pub fn trim_until(point: &Path, is_done: impl Fn() -> bool) -> bool {
    for _ in 0..100 {
        // Freed blocks count as free once the freeing is durable.
        std::fs::File::open(point).and_then(|root| root.sync_all()).expect("sync");
        let Ok(output) = Command::new("fstrim").arg(point).env("PATH", path()).output() else {
            println!("skipped: no fstrim");
            return false;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        if is_done() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    true
}

/// The search path with the administrator's programs.
pub fn path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// A disk in a directory of its own, on memory where there is such a place.
pub struct Disk {
    _dir: TempDir,
    pub image: PathBuf,
    pub point: PathBuf,
    server: Option<Child>,
}

impl Disk {
    /// In the format that `EXTANT_TEST_FORMAT` names, raw by default.
    pub fn new(size: &str) -> Self {
        let format = std::env::var("EXTANT_TEST_FORMAT").unwrap_or_else(|_| "raw".to_owned());
        Self::with_format(&format, size)
    }

    pub fn with_format(format: &str, size: &str) -> Self {
        let base =
            ["/dev/shm", "/tmp"].map(Path::new).into_iter().find(|base| base.is_dir()).expect("a place");
        let dir = tempfile::Builder::new().prefix("extant-mount-").tempdir_in(base).expect("directory");
        let (image, point) = (dir.path().join("disk.img"), dir.path().join("point"));
        std::fs::create_dir(&point).expect("mount point");
        let words = ["mkfs", "-q", "--format", format].map(std::ffi::OsStr::new);
        run(&[&words[..], &[image.as_os_str(), size.as_ref()]].concat());
        Self { _dir: dir, image, point, server: None }
    }

    /// Mounts it in the background.
    pub fn mount(&self, options: &str) {
        run(&[
            "mount".as_ref(),
            "-o".as_ref(),
            options.as_ref(),
            self.image.as_os_str(),
            self.point.as_os_str(),
        ]);
    }

    /// Mounts it with a server that can be killed.
    pub fn serve(&mut self) {
        self.serve_with("rw");
    }

    /// [`Disk::serve`], with options.
    pub fn serve_with(&mut self, options: &str) {
        let mut command = Command::new(EXTANT);
        command.args(["mount", "--foreground", "--ready", "-o", options]).arg(&self.image).arg(&self.point);
        let mut server = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("server");
        let mut line = [0];
        let read = server.stdout.as_mut().expect("its output").read(&mut line).expect("a line");
        assert_eq!(read, 1, "the server failed: {:?}", server.wait());
        self.server = Some(server);
    }

    /// Kills the server as a loss of power would. The dead mount stays, so that processes in it get errors instead of going on
    /// in the directory below it.
    pub fn kill(&mut self) {
        let mut server = self.server.take().expect("a server");
        server.kill().expect("kill");
        server.wait().expect("its end");
    }

    /// Waits for the end of the server.
    pub fn wait(&mut self) {
        let status = self.server.take().expect("a server").wait().expect("its end");
        assert!(status.success(), "{status}");
    }

    pub fn umount(&self) {
        umount(&self.point);
    }

    /// Unmounts it and asks `e2fsck`.
    pub fn finish(mut self) {
        self.umount();
        if let Some(mut server) = self.server.take() {
            server.wait().expect("its end");
        }
        assert_clean(&self.image);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // After a failed test: nothing may stay mounted.
        let _ = extant(&["umount".as_ref(), "--lazy".as_ref(), self.point.as_os_str()]);
        if let Some(mut server) = self.server.take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// A seed from the environment, or from the clock; printed, for a failed test shows it.
pub fn seed() -> u64 {
    let given = std::env::var("EXTANT_SEED").ok().and_then(|seed| seed.parse().ok());
    let clock = || std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.as_nanos() as u64);
    let seed = given.unwrap_or_else(clock);
    println!("EXTANT_SEED={seed}");
    seed
}
