//! The semantics of a mount where FUSE leaves a choice, compared with the kernel's ext4 where possible.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use rustix::fs::{IFlags, StatVfs, ioctl_getflags, ioctl_setflags, statvfs};
use rustix::io::Errno;

use crate::common::{Disk, can_mount, is_root, path, run, trim_until};
use crate::kernel::Kernel;

const DAY: Duration = Duration::from_secs(24 * 3600);
const PERM: Option<i32> = Some(Errno::PERM.raw_os_error());

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// Reads a file after its times of access and change were set so long ago; whether the access was noted.
fn is_noted(file: &Path, accessed: Duration, modified: Duration) -> bool {
    let now = SystemTime::now();
    let times = fs::FileTimes::new().set_accessed(now - accessed).set_modified(now - modified);
    File::options().write(true).open(file).expect("open").set_times(times).expect("times");
    let before = fs::metadata(file).expect("stat").accessed().expect("atime");
    assert!(!fs::read(file).expect("read").is_empty());
    fs::metadata(file).expect("stat").accessed().expect("atime") > before
}

/// The cases of relatime: an old access, one before the last change, a fresh one.
fn noted(dir: &Path) -> [bool; 2] {
    let file = |name: &str| {
        let file = dir.join(name);
        fs::write(&file, b"content").expect("write");
        file
    };
    // The change of the times is itself a change (ctime), so only a future access is newer than it.
    let fresh = {
        let file = file("fresh");
        let future = SystemTime::now() + DAY;
        let times = fs::FileTimes::new().set_accessed(future).set_modified(future - DAY);
        File::options().write(true).open(&file).expect("open").set_times(times).expect("times");
        fs::read(&file).expect("read");
        fs::metadata(&file).expect("stat").accessed().expect("atime") != future
    };
    [is_noted(&file("old"), 2 * DAY, 3 * DAY), fresh]
}

#[test]
fn access_times_are_kept_as_relatime_keeps_them() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    disk.mount("rw");
    let ours = noted(&disk.point);
    assert_eq!(ours, [true, false]);
    disk.umount();
    disk.mount("noatime");
    assert_eq!(noted(&disk.point), [false, false]);
    disk.umount();
    if let Some(mounted) = Kernel::mount(&disk.image, &disk.point, "relatime") {
        assert_eq!(noted(&disk.point), ours, "as the kernel's ext4");
        drop(mounted);
    }
    disk.mount("rw");
    disk.finish();
}

/// Whether a second read is noted of a file, of a directory and of a symbolic link.
fn noted_again(dir: &Path) -> [bool; 3] {
    let (file, sub, link) = (dir.join("again"), dir.join("sub"), dir.join("link"));
    fs::write(&file, b"content").expect("write");
    fs::create_dir_all(&sub).expect("mkdir");
    if !link.is_symlink() {
        std::os::unix::fs::symlink("again", &link).expect("symlink");
    }
    let paths = [&file, &sub, &link];
    let read = || {
        // Longer than the kernel's clock takes for a step.
        std::thread::sleep(Duration::from_millis(20));
        fs::read(&file).expect("read");
        assert_eq!(fs::read_dir(&sub).expect("listing").count(), 0);
        fs::read_link(&link).expect("target");
        paths.map(|path| fs::symlink_metadata(path).expect("stat").accessed().expect("atime"))
    };
    let before = read();
    let after = read();
    std::array::from_fn(|index| after[index] > before[index])
}

#[test]
fn access_times_follow_the_options_as_in_linux() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    for (options, expected) in [
        ("relatime", [false, false, false]),
        ("strictatime", [true, true, true]),
        ("strictatime,nodiratime", [true, false, true]),
    ] {
        disk.mount(options);
        assert_eq!(noted_again(&disk.point), expected, "{options}");
        disk.umount();
        if let Some(mounted) = Kernel::mount(&disk.image, &disk.point, options) {
            assert_eq!(noted_again(&disk.point), expected, "{options}, as the kernel's ext4");
            drop(mounted);
        }
    }
    disk.mount("ro,strictatime");
    let file = disk.point.join("again");
    let accessed = || fs::metadata(&file).expect("stat").accessed().expect("atime");
    let before = accessed();
    fs::read(&file).expect("read");
    assert_eq!(accessed(), before);
    disk.finish();
}

/// Where each access is noted, and where open files are kept, the kernel asks before it opens.
#[test]
fn strictatime_and_page_cache_refuse_to_open_for_writing_what_is_immutable() {
    if !can_mount() {
        return;
    }
    for options in ["strictatime", "page_cache=16M", "strictatime,page_cache=16M"] {
        refuses_to_open_for_writing_what_is_immutable(options);
    }
}

fn refuses_to_open_for_writing_what_is_immutable(options: &str) {
    let disk = Disk::new("64M");
    disk.mount(options);
    let path = disk.point.join("file");
    fs::write(&path, b"content").expect("write");
    let open = |append| errno(File::options().append(append).write(true).open(&path));
    let file = File::open(&path).expect("open");
    let plain = ioctl_getflags(&file).expect("flags");
    for (flag, refused) in [(IFlags::IMMUTABLE, [PERM, PERM]), (IFlags::APPEND, [PERM, None])] {
        ioctl_setflags(&file, plain | flag).expect("flags");
        assert_eq!([open(false), open(true)], refused, "{options}, {flag:?}");
        assert_eq!(fs::read(&path).expect("to read"), b"content");
    }
    ioctl_setflags(&file, plain).expect("flags");
    drop(file);
    assert_eq!([open(false), open(true)], [None, None]);
    assert!(fs::read_to_string(disk.point.join(".extant/version")).is_ok_and(|version| !version.is_empty()));
    disk.finish();
}

#[test]
fn truncation_at_open_empties_the_file_and_moves_its_times() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    disk.mount("rw");
    let path = disk.point.join("file");
    for content in [&b"some content"[..], b""] {
        fs::write(&path, content).expect("write");
        let old = SystemTime::now() - DAY;
        File::options().write(true).open(&path).expect("open").set_modified(old).expect("times");
        // Read through the cache, so that stale pages would be seen.
        assert_eq!(fs::read(&path).expect("read"), content);
        let reader = File::open(&path).expect("open");
        let writer = File::options().write(true).truncate(true).open(&path).expect("open");
        let metadata = writer.metadata().expect("stat");
        assert_eq!((metadata.len(), metadata.blocks()), (0, 0));
        assert!(
            metadata.modified().expect("mtime") > old,
            "a truncation, even of an empty file, is a change"
        );
        let mut buffer = [0; 8];
        assert_eq!(reader.read_at(&mut buffer, 0).expect("read"), 0, "another reader sees it");
    }
    disk.umount();
    disk.mount("rw");
    assert_eq!(fs::metadata(&path).expect("stat").len(), 0);
    disk.finish();
}

fn statvfs_values(found: &StatVfs) -> [u64; 7] {
    [
        found.f_blocks,
        found.f_bfree,
        found.f_bavail,
        found.f_files,
        found.f_ffree,
        found.f_bsize,
        found.f_namemax,
    ]
}

#[test]
fn statfs_tells_what_the_kernels_ext4_tells() {
    if !can_mount() {
        return;
    }
    for (size, options) in [("64M", &[][..]), ("512M", &["-m", "1"]), ("96M", &["-b", "1024"])] {
        let disk = Disk::new("64M");
        let image = disk.image.to_str().expect("path");
        run(&[&["mkfs", "-q", "-F"], options, &[image, size]].concat());
        disk.mount("rw");
        fs::write(disk.point.join("file"), vec![1; 1 << 20]).expect("write");
        let ours = statvfs(&disk.point).expect("statvfs");
        disk.umount();
        if let Some(mounted) = Kernel::mount(&disk.image, &disk.point, "ro") {
            let kernels = statvfs(&disk.point).expect("statvfs");
            assert_eq!(statvfs_values(&ours), statvfs_values(&kernels), "{size} {options:?}");
            drop(mounted);
        }
        disk.mount("rw");
        disk.finish();
    }
}

#[test]
fn label_is_read_and_set_through_the_mount() {
    if !can_mount() {
        return;
    }
    let label = |what: &str, point: &Path, name: &str| {
        let mut command = Command::new("xfs_io");
        command.args(["-x", "-c", &format!("label{name}")]).arg(point).env("PATH", path());
        let output = command.output().ok()?;
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let disk = Disk::new("64M");
    run(&["mkfs", "-q", "-F", "-L", "first", disk.image.to_str().expect("path"), "64M"]);
    disk.mount("rw");
    let Some(found) = label("get", &disk.point, "") else {
        println!("skipped: no xfs_io");
        return;
    };
    assert_eq!(found, "label = \"first\"");
    // 16 bytes: as long as it can be.
    assert_eq!(
        label("set", &disk.point, " -s sixteen-letters.").as_deref(),
        Some("label = \"sixteen-letters.\"")
    );
    let on_disk = fs::read(&disk.image).expect("image");
    assert_eq!(&on_disk[1024 + 0x78..][..16], b"sixteen-letters.", "not seen by who looks at the disk");
    assert_eq!(label("get", &disk.point, "").as_deref(), Some("label = \"sixteen-letters.\""));
    disk.umount();
    let output = Command::new("dumpe2fs").arg("-h").arg(&disk.image).env("PATH", path()).output();
    if let Ok(output) = output {
        let header = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(header.lines().any(|line| line == "Filesystem volume name:   sixteen-letters."), "{header}");
    }
    disk.mount("rw");
    disk.finish();
}

#[test]
#[ignore = "long: make test-scale"]
fn link_limit_is_that_of_ext4_whatever_pathconf_says() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    disk.mount("rw");
    let link = |number: u32| disk.point.join(format!("link{number}"));
    File::create_new(link(1)).expect("create");
    for number in 2..=65_000 {
        fs::hard_link(link(1), link(number)).expect("link");
    }
    let too_many = fs::hard_link(link(1), link(65_001));
    assert_eq!(errno(too_many), Some(Errno::MLINK.raw_os_error()));
    assert_eq!(fs::metadata(link(1)).expect("stat").nlink(), 65_000);
    disk.finish();
}

#[test]
fn trimming_the_mount_gives_freed_space_back_to_the_host() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    let taken = || fs::metadata(&disk.image).expect("image").blocks() * 512;
    disk.mount("rw");
    let large = disk.point.join("large");
    fs::write(&large, vec![1; 20 << 20]).expect("write");
    File::open(&large).and_then(|file| file.sync_all()).expect("sync");
    let before = taken();
    fs::remove_file(&large).expect("unlink");
    // All but what the log took meanwhile.
    let is_given_back = || taken() + (19 << 20) <= before;
    if !trim_until(&disk.point, is_given_back) {
        return;
    }
    assert!(is_given_back(), "{before} bytes before, {} after", taken());
    let trimmed =
        Command::new(env!("CARGO_BIN_EXE_extant")).args(["trim", "--json"]).arg(&disk.point).output();
    let trimmed = trimmed.expect("extant runs");
    assert!(trimmed.status.success(), "{}", String::from_utf8_lossy(&trimmed.stderr));
    disk.finish();
}

#[test]
fn immutable_and_append_only_files_are_opened_and_refuse_what_they_must() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    disk.mount("rw");
    let path = disk.point.join("file");
    fs::write(&path, b"content").expect("write");
    let file = File::open(&path).expect("open");
    let plain = ioctl_getflags(&file).expect("flags");

    ioctl_setflags(&file, plain | IFlags::IMMUTABLE).expect("immutable");
    // The kernel's ext4 refuses the open already; here the first change is refused.
    let writer = File::options().write(true).open(&path).expect("an open asks nobody");
    assert_eq!(errno(writer.write_at(b"x", 0)), PERM);
    assert_eq!(errno(writer.set_len(0)), PERM);
    assert_eq!(errno(File::options().write(true).truncate(true).open(&path)), PERM);
    assert_eq!(errno(writer.set_modified(SystemTime::now() - DAY)), PERM);
    assert_eq!(errno(fs::hard_link(&path, disk.point.join("link"))), PERM);
    assert_eq!(errno(fs::rename(&path, disk.point.join("other"))), PERM);
    assert_eq!(errno(fs::remove_file(&path)), PERM);

    ioctl_setflags(&file, plain | IFlags::APPEND).expect("append-only");
    drop(writer);
    let writer = File::options().write(true).open(&path).expect("an open asks nobody");
    assert_eq!(errno(writer.write_at(b"x", 0)), PERM);
    assert_eq!(errno(writer.set_len(0)), PERM);
    assert_eq!(errno(File::options().write(true).truncate(true).open(&path)), PERM);
    assert_eq!(errno(fs::remove_file(&path)), PERM);
    let mut appender = File::options().append(true).open(&path).expect("append");
    io::Write::write_all(&mut appender, b" more").expect("append");
    // What a write changes, and no more.
    let now = [rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW }; 2];
    let touch = rustix::fs::Timestamps { last_access: now[0], last_modification: now[1] };
    rustix::fs::futimens(&appender, &touch).expect("touch");
    assert_eq!(errno(appender.set_modified(SystemTime::now())), PERM);
    assert_eq!(errno(fs::set_permissions(&path, fs::Permissions::from_mode(0o600))), PERM);
    drop(appender);

    ioctl_setflags(&file, plain).expect("plain again");
    drop((file, writer));
    assert_eq!(fs::read(&path).expect("read"), b"content more");
    fs::remove_file(&path).expect("remove");
    disk.finish();
}

#[test]
fn setting_flags_shows_a_new_time_of_change() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    disk.mount("rw");
    let path = disk.point.join("file");
    fs::write(&path, b"").expect("write");
    disk.umount();
    disk.mount("rw");
    let changed = || {
        let found = fs::metadata(&path).expect("stat");
        (found.ctime(), found.ctime_nsec())
    };
    let before = changed();
    std::thread::sleep(Duration::from_millis(20));
    let file = File::open(&path).expect("open");
    let plain = ioctl_getflags(&file).expect("flags");
    ioctl_setflags(&file, plain | IFlags::NOATIME).expect("flags");
    drop(file);
    assert!(changed() > before, "{before:?}");
    disk.finish();
}

/// The kernel keeps the mode that it was given, also where a server changes it.
#[test]
fn change_of_content_by_another_user_takes_set_id_bits_away() {
    if !can_mount() || !is_root() {
        return;
    }
    let disk = Disk::new("64M");
    disk.mount("suid");
    let path = disk.point.join("file");
    let another = |words: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-ec", words, "sh"]);
        // Not by its path, which not every user can reach.
        let file = File::options().read(true).write(true).open(&path).expect("open");
        let status = command.stdin(file).status().expect("setpriv");
        assert!(status.success(), "{words}: {status}");
    };
    let mode = || fs::metadata(&path).expect("stat").mode() & 0o7777;
    fs::write(&path, vec![1; 64 << 10]).expect("write");
    for words in [
        "echo content >&0",
        "fallocate --length 4096 /dev/stdin",
        "fallocate --punch-hole --length 4096 /dev/stdin",
    ] {
        for (before, after) in [(0o6777, 0o777), (0o6666, 0o666)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(before)).expect("chmod");
            assert_eq!(mode(), before);
            another(words);
            // A write leaves set-group-id where the group may not execute: the kernel asks for that.
            let after = if words.starts_with("echo") && before == 0o6666 { 0o2666 } else { after };
            assert_eq!(mode(), after, "{words}");
            disk.umount();
            disk.mount("suid");
            assert_eq!(mode(), after, "{words}, on the disk");
        }
    }
    disk.finish();
}
