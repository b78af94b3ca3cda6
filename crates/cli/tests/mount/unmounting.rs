//! Unmounting: what it waits for, how long, and what it reports.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::claimed::server;
use crate::common::{Disk, EXTANT, assert_clean, can_mount, extant, is_root, path, run};

/// An operation that takes so long does not end.
const HANGS: Duration = Duration::from_secs(40);

/// Runs a program that must end; none if it does not.
fn ends(command: &mut Command) -> Option<Output> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("a program");
    let start = Instant::now();
    while child.try_wait().expect("its state").is_none() {
        if start.elapsed() > HANGS {
            child.kill().expect("kill");
            child.wait().expect("its end");
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Some(child.wait_with_output().expect("what it said"))
}

pub fn umount(words: &[&str], point: &Path) -> Output {
    let mut command = Command::new(EXTANT);
    command.arg("umount").args(words).arg(point);
    ended(&mut command, point)
}

/// Runs a program that must end; if it does not, nothing stays mounted that would hold up others.
fn ended(command: &mut Command, point: &Path) -> Output {
    ends(command).unwrap_or_else(|| {
        let _ = rustix::mount::unmount(point, rustix::mount::UnmountFlags::DETACH);
        panic!("it hangs")
    })
}

pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Puts something into the place of a control file.
type MakeFile = fn(&Path);

#[test]
fn a_disk_with_a_control_directory_of_its_own_is_believed_nothing() {
    if !can_mount() {
        return;
    }
    let makers: [(&str, MakeFile); 5] = [
        ("a pipe", |pid| {
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            let (kind, device) = (rustix::fs::FileType::Fifo, 0);
            rustix::fs::mknodat(rustix::fs::CWD, pid, kind, mode, device).expect("a pipe");
        }),
        ("a link to what has no end", |pid| symlink("/dev/zero", pid).expect("a link")),
        ("another process", |pid| fs::write(pid, "1\n").expect("a file")),
        ("no process", |pid| fs::write(pid, "-1\n").expect("a file")),
        ("a directory", |pid| fs::create_dir(pid).expect("a directory")),
    ];
    for (what, make) in makers {
        let mut disk = Disk::new("64M");
        disk.mount("nocontrol");
        fs::create_dir(disk.point.join(".extant")).expect("directory");
        make(&disk.point.join(".extant/pid"));
        assert!(umount(&[], &disk.point).status.success(), "{what}");
        disk.serve();
        fs::write(disk.point.join("file"), what).expect("write");
        // Without memory of its own to be filled.
        let mut command = Command::new("sh");
        let words = format!("ulimit -v 4000000; exec {EXTANT} umount {}", disk.point.display());
        let output = ended(command.args(["-c", &words]), &disk.point);
        assert!(output.status.success(), "{what}: {}", said(&output));
        // It has waited for the server.
        assert_clean(&disk.image);
        disk.wait();
        assert_eq!(run(&["cat", &format!("{}:/file", disk.image.display())]), what);
    }
}

/// A disk loses what it should keep, in a host that has no room for it. What unmounting says, and the next mount.
fn lose(allocated_bytes: u64) -> [String; 2] {
    let (disk, _host) = disk_in_small_host();
    if allocated_bytes > 0 {
        let image = File::options().write(true).open(&disk.image).expect("image");
        let flags = rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&image, flags, 0, allocated_bytes).expect("allocated");
    }
    disk.mount("page_cache=64M");
    fs::write(disk.point.join("file"), vec![1; 30 << 20]).expect("write");
    let output = umount(&[], &disk.point);
    assert_eq!(output.status.code(), Some(1), "a loss that nobody is told of");
    let next = extant(&["mount".as_ref(), disk.image.as_os_str(), disk.point.as_os_str()]);
    assert!(next.status.success(), "{}", said(&next));
    disk.umount();
    // After the advised step, the next mount does not report it again.
    let copy = disk.point.with_file_name("copy.img");
    let copied = Command::new("cp").arg("--sparse=always").args([&disk.image, &copy]).status();
    assert!(copied.expect("cp").success());
    let checked = Command::new("e2fsck").arg("-fy").arg(&copy).env("PATH", path()).output();
    if checked.is_ok_and(|checked| checked.status.success()) {
        assert_clean(&copy);
        let words =
            ["mount".as_ref(), "-o".as_ref(), "ro".as_ref(), copy.as_os_str(), disk.point.as_os_str()];
        assert_eq!(said(&extant(&words)), "");
        disk.umount();
    }
    [said(&output), said(&next)]
}

#[test]
fn what_unmounting_could_not_write_is_told_and_the_next_mount_tells_it_too() {
    if !can_mount() || !is_root() {
        return;
    }
    // The log has no room either; and it has, but the data has not.
    for (allocated_bytes, words) in [
        (0, ["journal was aborted", "the journal was given up"]),
        (20 << 20, ["No space left on device", "data lost at unmounting, inode 12"]),
    ] {
        let told = lose(allocated_bytes);
        assert!(told[0].contains(words[0]) && told[1].contains(words[1]), "{told:?}");
    }
}

/// A disk of 64 MiB in a host that has 24 MiB.
pub fn disk_in_small_host() -> (Disk, Host) {
    let mut disk = Disk::new("64M");
    let host = disk.image.with_file_name("host");
    fs::create_dir(&host).expect("directory");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=24M", "none"]).arg(&host).status();
    assert!(mounted.expect("mount").success());
    let guard = Host(host.clone());
    disk.image = host.join("disk.img");
    run(&["mkfs".as_ref(), "-q".as_ref(), disk.image.as_os_str(), "64M".as_ref()]);
    (disk, guard)
}

/// A file system of the host; unmounted on drop.
pub struct Host(std::path::PathBuf);

impl Drop for Host {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// A process with a mount namespace of its own; killed on drop.
struct Namespace(Child);

impl Namespace {
    fn new() -> Option<Self> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", "echo; exec sleep 1000"]);
        let mut child = command.env("PATH", path()).stdout(Stdio::piped()).spawn().ok()?;
        let mut line = [0];
        let read = std::io::Read::read(child.stdout.as_mut()?, &mut line);
        read.is_ok_and(|bytes| bytes == 1).then_some(Self(child))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn umount_names_who_has_the_disk_mounted_elsewhere_and_does_not_wait_for_ever() {
    if !can_mount() || !is_root() {
        return;
    }
    let mut disk = Disk::new("64M");
    disk.serve();
    let Some(namespace) = Namespace::new() else {
        println!("skipped: no unshare");
        disk.umount();
        disk.wait();
        return;
    };
    let output = umount(&["--timeout", "1"], &disk.point);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let words = format!("still mounted in the mount namespace of process {}", namespace.0.id());
    assert!(said(&output).contains(&words), "{}", said(&output));
    drop(namespace);
    disk.wait();
    assert_clean(&disk.image);
}

/// Stops the server of a mount, with all its threads: one that takes a request before it stops blocks the caller.
fn stop_server(point: &Path) -> Pid {
    let pid = server(point);
    kill_process(pid, Signal::STOP).expect("stop");
    let threads = format!("/proc/{pid}/task");
    let is_stopped = |thread: &Path| {
        let stat = fs::read_to_string(thread.join("stat")).expect("state");
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    };
    while !fs::read_dir(&threads).expect("threads").flatten().all(|thread| is_stopped(&thread.path())) {
        std::thread::sleep(Duration::from_millis(1));
    }
    pid
}

fn is_stopped(server: Pid) -> String {
    format!("process {server}, is stopped")
}

#[test]
fn umount_waits_for_the_server_of_its_mount_and_not_for_one_that_had_its_number() {
    if !can_mount() {
        return;
    }
    // Until both have one anonymous device number: another test may take it in between.
    for _ in 0..20 {
        let (mut before, mut after) = (Disk::new("64M"), Disk::new("64M"));
        before.serve();
        let number = fs::metadata(&before.point).expect("a mount").dev();
        let left = stop_server(&before.point);
        rustix::mount::unmount(&before.point, rustix::mount::UnmountFlags::DETACH).expect("unmounted");
        after.serve();
        let is_reused = fs::metadata(&after.point).expect("a mount").dev() == number;
        let serving = stop_server(&after.point);
        let output = umount(&["--timeout", "1"], &after.point);
        for (server, disk) in [(left, &mut before), (serving, &mut after)] {
            kill_process(server, Signal::CONT).expect("continue");
            disk.wait();
            assert_clean(&disk.image);
        }
        if is_reused {
            assert_eq!(output.status.code(), Some(1), "{}", said(&output));
            return assert!(said(&output).contains(&is_stopped(serving)), "{}", said(&output));
        }
    }
    panic!("the kernel reused no number");
}

#[test]
fn umount_names_a_server_that_is_stopped_and_does_not_wait_for_ever() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new("64M");
    disk.serve();
    let pid = stop_server(&disk.point);
    let output = umount(&["--timeout", "1"], &disk.point);
    kill_process(pid, Signal::CONT).expect("continue");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains(&is_stopped(pid)), "{}", said(&output));
    // As far as it had come, or not at all.
    let again = umount(&[], &disk.point);
    assert!(again.status.success() || said(&again).contains("no disk of extant"), "{}", said(&again));
    disk.wait();
    assert_clean(&disk.image);
}

#[test]
fn umount_has_waited_for_the_server_also_without_a_control_directory() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    for _ in 0..3 {
        disk.mount("nocontrol,page_cache=32M");
        fs::write(disk.point.join("file"), vec![1; 20 << 20]).expect("write");
        assert!(umount(&[], &disk.point).status.success());
        let image = File::options().read(true).write(true).open(&disk.image).expect("image");
        assert_clean(&disk.image);
        drop(image);
    }
}
