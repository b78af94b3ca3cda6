//! Mounting and unmounting, as commands.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::{Command, Stdio};

use crate::common::{Disk, EXTANT, assert_clean, can_mount, extant, is_root, path, run};

fn words(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn mount_is_usable_at_once_and_clean_after_umount() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    disk.mount("rw");
    fs::write(disk.point.join("file"), b"content").expect("write");
    assert_eq!(run(&["sync".as_ref(), disk.point.as_os_str()]), "");
    disk.umount();
    assert_clean(&disk.image);
    let file = format!("{}:/file", disk.image.display());
    assert_eq!(run(&["cat", &file]), "content");
    disk.mount("ro");
    assert!(fs::write(disk.point.join("other"), b"").is_err());
    assert_eq!(fs::read(disk.point.join("file")).expect("read"), b"content");
    disk.finish();
}

#[test]
fn second_mount_is_refused_by_name() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    disk.mount("rw");
    let arguments = ["mount".as_ref(), disk.image.as_os_str(), disk.point.as_os_str()];
    let output = extant(&arguments);
    assert_eq!(output.status.code(), Some(1));
    assert!(words(&output).contains("is mounted there already"), "{}", words(&output));
    let other = disk.point.with_file_name("other");
    fs::create_dir(&other).expect("directory");
    let output = extant(&["mount".as_ref(), disk.image.as_os_str(), other.as_os_str()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(words(&output).contains("disk.img"), "{}", words(&output));
    disk.finish();
}

#[test]
fn mount_waits_for_a_server_on_its_way_out() {
    if !can_mount() || !is_root() {
        return;
    }
    let mut disk = Disk::new("64M");
    disk.serve();
    let pid = fs::read_to_string(disk.point.join(".extant/pid")).expect("pid");
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().expect("number")).expect("pid");
    fs::write(disk.point.join("file"), b"content").expect("write");
    // So it has not ended when the mount is gone.
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("stop");
    // Programs of other tests look at all mounts, and wait for an answer from this one.
    let unmounted = rustix::mount::unmount(&disk.point, rustix::mount::UnmountFlags::DETACH);
    let mut command = Command::new(EXTANT);
    command.arg("mount").arg(&disk.image).arg(&disk.point);
    let mut mount = command.spawn().expect("extant");
    std::thread::sleep(std::time::Duration::from_millis(300));
    let state = mount.try_wait().expect("its state");
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).expect("continue");
    unmounted.expect("unmount");
    assert_eq!(state, None, "it waits");
    assert!(mount.wait().expect("its end").success());
    assert_eq!(fs::read(disk.point.join("file")).expect("read"), b"content");
    disk.finish();
}

#[test]
fn stale_mount_is_recognised_and_removed() {
    if !can_mount() {
        return;
    }
    let mut disk = Disk::new("64M");
    disk.serve();
    let pid = fs::read_to_string(disk.point.join(".extant/pid")).expect("pid");
    let pid = rustix::process::Pid::from_raw(pid.trim().parse().expect("number")).expect("pid");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kill");
    while rustix::fs::statfs(&disk.point).is_ok() {
        std::thread::yield_now();
    }
    let output = extant(&["mount".as_ref(), disk.image.as_os_str(), disk.point.as_os_str()]);
    assert!(words(&output).contains("extant umount"), "{}", words(&output));
    disk.umount();
    disk.mount("rw");
    disk.umount();
    assert_clean(&disk.image);
}

#[test]
fn signal_unmounts_and_leaves_a_clean_disk() {
    if !can_mount() {
        return;
    }
    for in_use in [false, true] {
        let mut disk = Disk::new("64M");
        disk.serve();
        let file = fs::File::create(disk.point.join("file")).expect("create");
        let held = in_use.then_some(file);
        let pid = fs::read_to_string(disk.point.join(".extant/pid")).expect("pid");
        let pid = rustix::process::Pid::from_raw(pid.trim().parse().expect("number")).expect("pid");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("signal");
        disk.wait();
        assert_clean(&disk.image);
        drop(held);
    }
}

#[test]
fn control_files_are_the_mounters_and_not_listed() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    disk.mount("rw");
    let control = disk.point.join(".extant");
    let listed: Vec<_> = fs::read_dir(&disk.point).expect("root").flatten().map(|e| e.file_name()).collect();
    assert!(!listed.contains(&".extant".into()));
    assert_eq!(
        fs::read_to_string(control.join("version")).expect("version").trim(),
        env!("CARGO_PKG_VERSION")
    );
    let first = fs::read_to_string(control.join("metrics")).expect("metrics");
    assert!(first.ends_with("# EOF\n") && first.contains("extant_requests_total{op=\"lookup\"}"));
    fs::write(disk.point.join("file"), b"x").expect("write");
    assert_ne!(fs::read_to_string(control.join("metrics")).expect("metrics"), first, "one snapshot per open");
    assert!(fs::read_to_string(control.join("options")).expect("options").starts_with("rw,nosuid,nodev"));
    assert_eq!(fs::metadata(control.join("pid")).expect("stat").mode() & 0o777, 0o400);
    assert_eq!(fs::read_dir(&control).expect("directory").count(), 11);
    let transport = fs::read_to_string(control.join("transport")).expect("transport");
    // Past the capture: which transport the tests were of is part of what they say.
    writeln!(std::io::stderr(), "transport: {}", transport.trim()).expect("stderr");
    let says =
        |path: &str, words: &[&str]| fs::read_to_string(path).is_ok_and(|text| words.contains(&text.trim()));
    let has_rings = says("/sys/module/fuse/parameters/enable_uring", &["Y", "1"])
        && says("/proc/sys/kernel/io_uring_disabled", &["0"]);
    assert_eq!(transport.trim(), if has_rings { "io_uring" } else { "dev" });
    assert!(first.contains(&format!("extant_transport_info{{name=\"{}\"}} 1", transport.trim())));
    assert!(fs::write(control.join("version"), b"2").is_err() || !is_root());
    disk.umount();
    disk.mount("nocontrol");
    assert!(!control.exists());
    fs::create_dir(&control).expect("directory of that name");
    disk.umount();
    disk.mount("rw");
    assert!(!control.join("version").exists(), "a real entry comes first");
    disk.finish();
}

#[test]
fn exec_runs_in_the_disk_and_passes_the_status_on() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    let image = disk.image.to_str().expect("path");
    let output =
        extant(&["exec", image, "--", "sh", "-c", "echo hello >file; test $PWD = $EXTANT_MOUNT && exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", words(&output));
    assert_clean(&disk.image);
    assert_eq!(run(&["cat", &format!("{image}:/file")]), "hello\n");
    assert_eq!(extant(&["exec", image, "--", "/nowhere"]).status.code(), Some(127));
    assert_eq!(extant(&["exec", image, "--", "sh", "-c", "kill -9 $$"]).status.code(), Some(128 + 9));
    assert_clean(&disk.image);
}

#[test]
fn programs_of_mount_are_answered() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    let (mount, umount) =
        (disk.point.with_file_name("mount.extant"), disk.point.with_file_name("umount.extant"));
    symlink(EXTANT, &mount).expect("link");
    symlink(EXTANT, &umount).expect("link");
    let call = |program, arguments: &[&std::ffi::OsStr]| {
        Command::new(program).args(arguments).status().expect("status").code()
    };
    let (image, point) = (disk.image.as_os_str(), disk.point.as_os_str());
    assert_eq!(call(&mount, &[image, point, "-o".as_ref(), "rw,noauto".as_ref()]), Some(0));
    assert_eq!(call(&mount, &[image, point]), Some(32));
    assert_eq!(call(&mount, &[image, point, "-o".as_ref(), "no_such_word".as_ref()]), Some(1));
    assert_eq!(call(&umount, &[point]), Some(0));
    assert_clean(&disk.image);
}

#[test]
fn mounts_of_fuse2fs_are_served() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    let program = disk.point.with_file_name("fuse2fs");
    symlink(EXTANT, &program).expect("link");
    let call = |options: &str| {
        let mut command = Command::new(&program);
        command.arg(&disk.image).arg(&disk.point).args(["-o", options]).status().expect("status").code()
    };
    assert_eq!(call("rw,no_such_word"), Some(1));
    assert_eq!(call("fakeroot,minixdf"), Some(0));
    fs::write(disk.point.join("file"), b"x").expect("write");
    disk.umount();
    assert_eq!(call("ro,no_default_opts"), Some(0));
    assert_eq!(fs::read(disk.point.join("file")).expect("file"), b"x");
    assert!(fs::write(disk.point.join("other"), b"x").is_err());
    disk.umount();
    assert_clean(&disk.image);
}

#[test]
fn shutdown_stops_writing_and_leaves_a_disk_to_recover() {
    if !can_mount() || Command::new("xfs_io").arg("-V").output().is_err() {
        println!("skipped: no xfs_io");
        return;
    }
    let disk = Disk::new("64M");
    disk.mount("rw");
    fs::write(disk.point.join("before"), b"x").expect("write");
    let status =
        Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(&disk.point).status().expect("xfs_io");
    assert!(status.success());
    assert!(fs::write(disk.point.join("after"), b"x").is_err());
    let synced = fs::File::open(disk.point.join("before")).expect("open").sync_all();
    assert_eq!(synced.expect_err("not synced").raw_os_error(), Some(5), "EIO");
    disk.umount();
    disk.mount("rw");
    assert!(disk.point.join("before").exists() && !disk.point.join("after").exists());
    disk.finish();
}

#[test]
fn a_mount_with_discard_gives_the_space_of_removed_files_back() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    disk.mount("discard");
    let allocated = || fs::metadata(&disk.image).expect("image").blocks() * 512;
    let (file, bytes) = (disk.point.join("file"), 16 << 20);
    fs::write(&file, vec![7; bytes]).expect("write");
    assert_eq!(run(&["sync".as_ref(), disk.point.as_os_str()]), "");
    let full = allocated();
    fs::remove_file(&file).expect("unlink");
    // The kernel says a moment later that it has forgotten the file; the log meanwhile grows on the host.
    let start = std::time::Instant::now();
    while allocated() + bytes as u64 / 2 > full {
        assert!(start.elapsed().as_secs() < 60, "{full} bytes before, {} after", allocated());
        assert_eq!(run(&["sync".as_ref(), disk.point.as_os_str()]), "");
    }
    disk.finish();
}

/// Runs a program of the administrator's; what it printed if it is there and did well.
fn tool(program: &str, arguments: &[&str], input: &str) -> Option<String> {
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("PATH", path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    child.stdin.take()?.write_all(input.as_bytes()).ok()?;
    let output = child.wait_with_output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn partitions_are_mounted_and_worked_in() {
    if !can_mount() {
        return;
    }
    for label in ["dos", "gpt"] {
        let mut disk = Disk::new("64M");
        let whole = disk.image.with_file_name("whole.img");
        fs::File::create(&whole).and_then(|file| file.set_len(80 << 20)).expect("image");
        let script = format!("label: {label}\nstart=2048, size=2048\nstart=4096, size=131072\n");
        let whole_path = whole.to_str().expect("path");
        if tool("sfdisk", &["-q", whole_path], &script).is_none() {
            println!("skipped: no sfdisk");
            return;
        }
        let content = fs::read(&disk.image).expect("disk");
        let file = fs::File::options().write(true).open(&whole).expect("image");
        std::os::unix::fs::FileExt::write_all_at(&file, &content, 2 << 20).expect("partition");
        drop(file);
        disk.image = whole.clone();
        let point = disk.point.to_str().expect("path");
        run(&["mount", "--partition", "2", whole_path, point]);
        fs::write(disk.point.join("file"), label).expect("write");
        disk.umount();
        let output = run(&["exec", "--offset", "2M", "-o", "ro", whole_path, "--", "cat", "file"]);
        assert_eq!(output, label);
        assert_eq!(run(&["exec", "--partition", "2", whole_path, "--", "cat", "file"]), label);
        for (options, expected) in [
            (&["--partition", "1"][..], "file system"),
            (&["--partition", "7"], "no partition 7"),
            (&["--partition", "2", "--offset", "2M"], "cannot be used with"),
            (&["--partition", "2", "-o", "offset=2M"], "exclude each other"),
        ] {
            let output = extant(&[&["mount"], options, &[whole_path, point]].concat());
            assert!(!output.status.success() && words(&output).contains(expected), "{}", words(&output));
        }
        fs::write(&whole, &fs::read(&whole).expect("image")[2 << 20..66 << 20]).expect("the partition alone");
        assert_clean(&whole);
    }
}

#[test]
fn damage_stops_writing_where_that_is_asked_for() {
    if !can_mount() {
        return;
    }
    for (options, may_write) in [("errors=continue", true), ("errors=remount-ro", false)] {
        let disk = Disk::new("64M");
        disk.mount("rw");
        fs::create_dir(disk.point.join("dir")).expect("directory");
        fs::write(disk.point.join("dir/file"), "").expect("file");
        disk.umount();
        let image = disk.image.to_str().expect("path");
        let Some(blocks) = tool("debugfs", &["-R", "blocks /dir", image], "") else {
            println!("skipped: no debugfs");
            return;
        };
        let block: u64 = blocks.trim().parse().expect("a block");
        let file = fs::File::options().write(true).open(&disk.image).expect("image");
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xff; 4096], block * 4096).expect("damage");
        drop(file);
        disk.mount(options);
        assert!(fs::metadata(disk.point.join("dir/file")).is_err());
        let written = fs::write(disk.point.join("other"), "content");
        assert_eq!(written.is_ok(), may_write, "{options}: {written:?}");
        disk.umount();
    }
}
