//! Block devices: the kernel claims them for the mount, and `sync` reaches the server.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use extant_testing::run_while_busy;
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat, open};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Disk, assert_clean, can_mount, extant, is_root, path, trim_until, umount};
use crate::unmounting::{self, disk_in_small_host, said};

/// A loop device over an image; detached on drop.
pub struct Loop(PathBuf);

impl Loop {
    fn new(image: &Path) -> Option<Self> {
        let output =
            Command::new("losetup").args(["--find", "--show"]).arg(image).env("PATH", path()).output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(Self(String::from_utf8_lossy(&output.stdout).trim().into()))
    }

    /// Whether a process holds it exclusively.
    fn is_claimed(&self) -> bool {
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        open(&self.0, flags, Mode::empty()).is_err_and(|error| error == Errno::BUSY)
    }

    /// Waits until no process holds it exclusively. A mount namespace that another process created meanwhile may hold the mount
    /// for a while.
    fn wait_unclaimed(&self) {
        let start = Instant::now();
        while self.is_claimed() {
            assert!(start.elapsed() < Duration::from_secs(30), "still claimed");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).env("PATH", path()).status();
        // While another program looks at the device, Linux puts it off.
        let name = self.0.file_name().expect("a name");
        let attached = Path::new("/sys/block").join(name).join("loop");
        let start = Instant::now();
        while attached.exists() && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A disk whose image is a loop device over another image; the device is to outlive the disk.
pub fn disk_on_loop() -> Option<(Disk, Loop, Disk)> {
    if !can_mount() {
        return None;
    }
    let backing = Disk::new("64M");
    let device = if is_root() { Loop::new(&backing.image) } else { None };
    let Some(device) = device else {
        println!("skipped: no loop device");
        return None;
    };
    let mut disk = Disk::new("64M");
    disk.image = device.0.clone();
    Some((disk, device, backing))
}

pub fn kind(point: &Path) -> String {
    let table = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let at = |line: &&str| line.split(' ').nth(1) == point.to_str();
    table.lines().rfind(at).and_then(|line| line.split(' ').nth(2)).unwrap_or_default().to_owned()
}

#[test]
fn what_was_there_at_a_sync_of_the_file_system_survives_a_kill() {
    let Some((mut disk, device, _backing)) = disk_on_loop() else { return };
    disk.serve();
    assert_eq!(kind(&disk.point), "fuseblk.extant");
    assert!(device.is_claimed());
    fs::create_dir(disk.point.join("dir")).expect("directory");
    fs::write(disk.point.join("dir/file"), "what was written").expect("write");
    let status = Command::new("sync").arg("--file-system").arg(&disk.point).status().expect("sync");
    assert!(status.success(), "{status}");
    disk.kill();
    // The claim is the mount's, not the server's: no other process can claim the device before the dead mount is gone.
    assert!(device.is_claimed());
    disk.umount();
    device.wait_unclaimed();
    disk.serve();
    let found = fs::read_to_string(disk.point.join("dir/file")).expect("the file");
    assert_eq!(found, "what was written");
    disk.finish();
}

#[test]
fn a_device_is_clean_as_soon_as_others_can_claim_it() {
    let Some((mut disk, device, _backing)) = disk_on_loop() else { return };
    for round in 0..20 {
        disk.serve();
        assert_eq!(kind(&disk.point), "fuseblk.extant");
        for number in 0..50 {
            fs::write(disk.point.join(format!("{round}-{number}")), vec![1; 5000]).expect("write");
        }
        // util-linux's `umount`, not Extant's: it waits for the kernel only.
        let unmounted = run_while_busy(Command::new("umount").arg("-i").arg(&disk.point).env("PATH", path()));
        assert!(unmounted.status.success(), "{}", String::from_utf8_lossy(&unmounted.stderr));
        device.wait_unclaimed();
        assert_clean(&disk.image);
        disk.wait();
    }
}

#[test]
fn a_block_device_has_a_page_cache_and_an_image_file_has_none() {
    let Some((disk, device, backing)) = disk_on_loop() else { return };
    let contexts = |disk: &Disk, options: &str| {
        disk.mount(options);
        let count = fs::read_to_string(disk.point.join(".extant/nwritebacks")).expect("a count");
        disk.umount();
        count.trim().parse::<u32>().expect("a number")
    };
    assert!(contexts(&disk, "rw") > 0);
    assert_eq!(contexts(&disk, "page_cache=0"), 0);
    drop((disk, device));
    assert_eq!(contexts(&backing, "rw"), 0);
}

#[test]
fn a_claimed_device_is_trimmed() {
    let Some((disk, _device, backing)) = disk_on_loop() else { return };
    let taken = || fs::metadata(&backing.image).expect("image").blocks() * 512;
    disk.mount("rw");
    for round in 0..5 {
        let file = disk.point.join("file");
        fs::write(&file, vec![1; 20 << 20]).expect("write");
        fs::remove_file(&file).expect("unlink");
        if !trim_until(&disk.point, || taken() < 20 << 20) {
            return;
        }
        assert!(taken() < 20 << 20, "{round}: {} bytes", taken());
    }
    disk.finish();
}

fn protect(device: &Loop, how: &str) {
    let status = Command::new("blockdev").arg(how).arg(&device.0).env("PATH", path()).status();
    assert!(status.expect("blockdev").success());
}

#[test]
fn a_write_protected_device_is_mounted_for_reading_and_named_to_others() {
    let Some((disk, device, backing)) = disk_on_loop() else { return };
    let protect = |how| protect(&device, how);
    protect("--setro");
    let before = fs::read(&backing.image).expect("image");
    let mounted = extant(&["mount".as_ref(), disk.image.as_os_str(), disk.point.as_os_str()]);
    let said = String::from_utf8_lossy(&mounted.stderr).into_owned();
    assert!(mounted.status.success() && said.contains("write-protected, mounting read-only"), "{said}");
    let written = fs::write(disk.point.join("file"), "x").expect_err("read-only");
    assert_eq!(written.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    disk.umount();
    let refused = extant(&["mkdir", &format!("{}:/dir", disk.image.display())]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        refused.status.code() == Some(1) && said.contains("write-protected; it can only be read"),
        "{said}"
    );
    assert!(fs::read(&backing.image).expect("image") == before, "written");
    protect("--setrw");
    disk.mount("rw");
    disk.finish();
}

/// As Linux does, where `-o ro` replays in memory.
#[test]
fn a_write_protected_device_to_be_replayed_is_mounted_for_reading_only_if_that_is_asked_for() {
    let Some((mut disk, device, backing)) = disk_on_loop() else { return };
    let protect = |how| protect(&device, how);
    disk.serve();
    let file = fs::File::create(disk.point.join("file")).expect("file");
    file.sync_all().expect("sync");
    drop(file);
    disk.kill();
    disk.umount();
    let mount = |options: &str| {
        let words = ["mount".as_ref(), "-o".as_ref(), options.as_ref(), disk.image.as_os_str()];
        let mounted = extant(&[&words[..], &[disk.point.as_os_str()]].concat());
        let seen = mounted.status.success().then(|| disk.point.join("file").exists());
        if seen.is_some() {
            disk.umount();
        }
        (seen, String::from_utf8_lossy(&mounted.stderr).into_owned())
    };
    protect("--setro");
    let before = fs::read(&backing.image).expect("image");
    let (seen, said) = mount("rw");
    assert!(seen.is_none() && said.contains("its journal is to be replayed; -o ro shows"), "{said}");
    assert_eq!(mount("ro").0, Some(true));
    assert_eq!(mount("norecovery").0, Some(false));
    assert!(fs::read(&backing.image).expect("image") == before, "written");
    protect("--setrw");
    assert!(mount("norecovery").1.contains("norecovery needs ro"));
    assert_eq!(mount("ro").0, Some(true));
    disk.mount("rw");
    disk.finish();
}

#[test]
fn a_device_that_only_reads_is_not_claimed() {
    let Some((disk, device, _backing)) = disk_on_loop() else { return };
    disk.mount("ro");
    assert_eq!(kind(&disk.point), "fuse.extant");
    assert!(!device.is_claimed());
    let second = extant(&["ls".as_ref(), disk.image.as_os_str()]);
    assert!(second.status.success(), "{}", String::from_utf8_lossy(&second.stderr));
    disk.finish();
}

/// Another directory to mount a disk at; unmounted on drop.
struct Further(PathBuf);

impl Further {
    fn new(disk: &Disk) -> Self {
        let dir = disk.point.with_file_name("further");
        fs::create_dir(&dir).expect("directory");
        Self(dir)
    }

    /// Mounts the disk here: what was said if that was refused.
    fn mount(&self, disk: &Disk, options: &str) -> Result<(), String> {
        self.mount_by(&disk.image, options)
    }

    fn mount_by(&self, image: &Path, options: &str) -> Result<(), String> {
        let words =
            ["mount".as_ref(), "-o".as_ref(), options.as_ref(), image.as_os_str(), self.0.as_os_str()];
        let output = extant(&words);
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}

impl Drop for Further {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

pub fn server(point: &Path) -> Pid {
    let pid = fs::read_to_string(point.join(".extant/pid")).expect("pid");
    Pid::from_raw(pid.trim().parse().expect("number")).expect("pid")
}

#[test]
fn a_device_is_mounted_at_further_places_and_served_until_the_last() {
    let Some((mut disk, _device, _backing)) = disk_on_loop() else { return };
    disk.serve();
    let further = Further::new(&disk);
    let refused = further.mount(&disk, "ro").expect_err("the first can be written");
    assert!(refused.contains("mounted rw at") && kind(&further.0).is_empty(), "{refused}");
    further.mount(&disk, "noexec").expect("mounted");
    assert_eq!(kind(&further.0), "fuseblk.extant");
    assert_eq!(server(&further.0), server(&disk.point));
    fs::write(further.0.join("file"), "content").expect("write");
    assert_eq!(fs::read_to_string(disk.point.join("file")).expect("read"), "content");
    let refused = further.mount(&disk, "rw").expect_err("there already");
    assert!(refused.contains("is mounted there already"), "{refused}");

    // It does not wait for the server.
    disk.umount();
    fs::rename(further.0.join("file"), further.0.join("renamed")).expect("rename");
    disk.mount("rw");
    assert_eq!(fs::read_to_string(disk.point.join("renamed")).expect("read"), "content");
    umount(&further.0);
    assert_eq!(fs::read_to_string(disk.point.join("renamed")).expect("read"), "content");
    disk.finish();
}

#[test]
fn a_loss_is_told_where_the_device_is_unmounted_last_by_another_name() {
    if !can_mount() || !is_root() {
        return;
    }
    let (mut disk, _host) = disk_in_small_host();
    let Some(device) = Loop::new(&disk.image) else {
        return println!("skipped: no loop device");
    };
    disk.image = device.0.clone();
    disk.mount("rw");
    let name = disk.point.with_file_name("name");
    let number = fs::metadata(&device.0).expect("a device").rdev();
    mknodat(CWD, &name, FileType::BlockDevice, Mode::RUSR | Mode::WUSR, number).expect("a node");
    let further = Further::new(&disk);
    further.mount_by(&name, "rw").expect("mounted");
    fs::write(further.0.join("file"), vec![1; 30 << 20]).expect("write");
    disk.umount();
    let output = unmounting::umount(&[], &further.0);
    assert_eq!(output.status.code(), Some(1), "a loss that nobody is told of");
    assert!(said(&output).contains("data lost") || said(&output).contains("journal"), "{}", said(&output));
}

#[test]
fn signal_unmounts_a_device_everywhere() {
    for in_use in [false, true] {
        let Some((mut disk, device, _backing)) = disk_on_loop() else { return };
        disk.serve();
        let further = Further::new(&disk);
        further.mount(&disk, "rw").expect("mounted");
        let file = fs::File::create(further.0.join("file")).expect("create");
        let held = in_use.then_some(file);
        kill_process(server(&disk.point), Signal::TERM).expect("signal");
        disk.wait();
        assert_eq!([&disk.point, &further.0].map(|point| kind(point)), ["", ""]);
        drop(held);
        device.wait_unclaimed();
        assert_clean(&disk.image);
    }
}

#[test]
fn a_device_whose_server_is_gone_is_not_mounted_at_further_places() {
    let Some((mut disk, _device, _backing)) = disk_on_loop() else { return };
    disk.serve();
    disk.kill();
    let further = Further::new(&disk);
    let refused = further.mount(&disk, "rw").expect_err("nobody serves it");
    assert!(refused.contains("server is gone") && kind(&further.0).is_empty(), "{refused}");
    disk.umount();
    disk.mount("rw");
    disk.finish();
}
