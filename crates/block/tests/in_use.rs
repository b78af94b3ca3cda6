//! A device that is in use is refused, and the error names its user.
#![cfg(target_os = "linux")]

#[path = "common/loop_device.rs"]
mod loop_device;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use extant_block::{DeviceAccess, Error, FileDevice};
use loop_device::Loop;
use rustix::process::{PidfdFlags, PidfdGetfdFlags};

/// Set for a child that holds a device until its input ends: `r` or `w` and the path.
const CHILD: &str = "EXTANT_TEST_HOLD";

/// Another process that has the device open.
struct Other {
    process: Child,
    // The pipe stays open, or the child could not print what it prints at its end.
    _output: BufReader<ChildStdout>,
}

impl Other {
    fn holding(path: &Path, how: char) -> Self {
        let child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "writers_exclude_others_and_readers_only_writers", "--nocapture"])
            .env(CHILD, format!("{how}{}", path.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("child");
        Self::announcing(child, "holding")
    }

    /// A child that prints a line with `word` once it has the device, and ends with its input.
    fn announcing(mut process: Child, word: &str) -> Self {
        let mut output = BufReader::new(process.stdout.take().expect("output"));
        let has_it = output.by_ref().lines().map_while(Result::ok).any(|line| line.contains(word));
        assert!(has_it, "the child did not get the device");
        Self { process, _output: output }
    }

    fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        self.process.wait().expect("child");
    }
}

fn hold(order: &str) {
    let access = if order.starts_with('r') { DeviceAccess::read_only() } else { DeviceAccess::read_write() };
    let _device = FileDevice::open(&order[1..], access).expect("open");
    println!("\nholding");
    std::io::stdout().flush().expect("flush");
    std::io::stdin().lines().for_each(drop);
}

fn holder(result: Result<FileDevice, Error>) -> u32 {
    match result {
        Err(Error::Locked { holder: Some(holder), .. }) => {
            assert!(!holder.name.is_empty());
            holder.pid
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn writers_exclude_others_and_readers_only_writers() {
    if let Ok(order) = std::env::var(CHILD) {
        hold(&order);
        return;
    }
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("image");
    std::fs::write(&path, [0; 4096]).expect("file");
    let (read, write) = (
        || FileDevice::open(&path, DeviceAccess::read_only()),
        || FileDevice::open(&path, DeviceAccess::read_write()),
    );
    {
        let writer = Other::holding(&path, 'w');
        assert_eq!(holder(read()), writer.id());
        assert_eq!(holder(write()), writer.id());
        let text = write().expect_err("locked").to_string();
        assert!(text.contains("in use by in_use") && text.contains(&writer.id().to_string()), "{text}");
    }
    {
        let reader = Other::holding(&path, 'r');
        assert!(read().is_ok());
        assert_eq!(holder(write()), reader.id());
    }
    let _writer = write().expect("nobody is left");
    assert_eq!(holder(read()), std::process::id(), "two devices of one process exclude each other");
}

/// Another descriptor of what this process has open by that path, as a child has between fork and exec.
fn descriptor_of_a_child(path: &Path) -> OwnedFd {
    let mut open =
        std::fs::read_dir("/proc/self/fd").expect("descriptors").flatten().map(|entry| entry.path());
    let found =
        open.find(|fd| std::fs::read_link(fd).is_ok_and(|target| target == path)).expect("it is open");
    let number = found.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("a number");
    let process = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).expect("pidfd");
    rustix::process::pidfd_getfd(process, number, PidfdGetfdFlags::empty()).expect("its copy")
}

#[test]
fn lock_goes_with_the_device_though_a_child_has_its_descriptor() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().canonicalize().expect("dir").join("image");
    std::fs::write(&path, [7; 8192]).expect("image");

    let device = FileDevice::open(&path, DeviceAccess::read_write()).expect("open");
    let child = descriptor_of_a_child(&path);
    drop(device);

    FileDevice::open(&path, DeviceAccess::read_write()).expect("open again");
    drop(child);
}

#[test]
fn truncation_waits_for_the_lock() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("image");
    std::fs::write(&path, [0; 4096]).expect("file");
    let _reader = FileDevice::open(&path, DeviceAccess::read_only()).expect("open");
    assert!(FileDevice::open(&path, DeviceAccess { truncate: true, ..DeviceAccess::default() }).is_err());
    assert_eq!(std::fs::metadata(&path).expect("metadata").len(), 4096);
}

#[test]
fn ordinary_lock_of_another_program_is_respected() {
    let dir = tempfile::tempdir().expect("tempdir");
    let path = dir.path().join("image");
    std::fs::write(&path, [0; 4096]).expect("file");
    let script = "import fcntl,sys; f=open(sys.argv[1],'r+b'); fcntl.lockf(f,fcntl.LOCK_EX,1,100); print('held',flush=True); sys.stdin.read()";
    let child = Command::new("python3")
        .args(["-c", script])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(child) = child else {
        println!("skipped: no python3");
        return;
    };
    let other = Other::announcing(child, "held");
    assert_eq!(holder(FileDevice::open(&path, DeviceAccess::read_only())), other.id());
}

#[test]
fn file_below_a_loop_device_is_read_but_not_written() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("tempdir");
    let path = dir.path().join("image");
    std::fs::write(&path, vec![0; 1 << 20]).expect("file");
    let Some(device) = Loop::attach(&path, &[]) else {
        println!("skipped: no loop device");
        return;
    };
    // Under another name too: what counts is the inode.
    let link = dir.path().join("link");
    std::fs::hard_link(&path, &link).expect("link");
    for name in [&path, &link] {
        assert!(FileDevice::open(name, DeviceAccess::read_only()).is_ok());
        match FileDevice::open(name, DeviceAccess::read_write()) {
            Err(Error::LoopAttached { device: found, .. }) => assert_eq!(found, device.0),
            other => panic!("{other:?}"),
        }
    }
    drop(device);
    assert!(FileDevice::open(&path, DeviceAccess::read_write()).is_ok());
}

#[test]
fn block_special_excludes_other_writers_and_a_mounted_one_is_refused() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("tempdir");
    let path = dir.path().join("image");
    std::fs::write(&path, vec![0; 4 << 20]).expect("file");
    let made =
        Command::new("mke2fs").args(["-q", "-F"]).arg(&path).status().is_ok_and(|status| status.success());
    let device = if made { Loop::attach(&path, &[]) } else { None };
    let Some(device) = device else {
        println!("skipped: no mke2fs or no loop device");
        return;
    };
    {
        let _writer = FileDevice::open(&device.0, DeviceAccess::read_write()).expect("open");
        assert_eq!(holder(FileDevice::open(&device.0, DeviceAccess::read_write())), std::process::id());
        assert_eq!(holder(FileDevice::open(&device.0, DeviceAccess::read_only())), std::process::id());
    }
    let point = dir.path().join("mount point");
    std::fs::create_dir(&point).expect("mount point");
    let mount = Command::new("mount").args(["-t", "ext4", "-o", "ro"]).arg(&device.0).arg(&point).status();
    if !mount.is_ok_and(|status| status.success()) {
        println!("skipped: the kernel does not mount");
        return;
    }
    let results = [DeviceAccess::read_only(), DeviceAccess::read_write()]
        .map(|access| FileDevice::open(&device.0, access));
    extant_testing::unmount(&point);
    for result in results {
        match result {
            Err(Error::Mounted { mount_point, .. }) => assert_eq!(mount_point, point),
            other => panic!("{other:?}"),
        }
    }
}
