//! One disk mounted and unmounted many times: nothing is left over.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Disk, EXTANT, assert_clean, can_mount, run};

/// Mounts in ordinary tests: some seconds.
const COUNT: u32 = 200;
/// Mounts in `make test-scale`.
const COUNT_LONG: u32 = 10_000;
/// The growth of a process that is accepted in so many mounts: allocators keep some freed memory.
const GROWTH_KIB_MAX: u64 = 4096;

/// A process's memory, in KiB, and its descriptors.
fn footprint(process: &str) -> (u64, usize) {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    let resident_kib = line.trim().trim_end_matches(" kB").parse().expect("a number");
    (resident_kib, fs::read_dir(format!("/proc/{process}/fd")).expect("descriptors").count())
}

/// The traces of a disk that are left on the host: mounts, loop devices, processes, files beside it.
fn leftovers(disk: &Disk) -> Vec<String> {
    let (image, dir) = (disk.image.to_str().expect("path"), disk.image.parent().expect("directory"));
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let mut left: Vec<String> =
        mounts.lines().filter(|line| line.contains(image)).map(str::to_owned).collect();
    let has_image =
        |path: &Path| fs::read(path).is_ok_and(|text| String::from_utf8_lossy(&text).contains(image));
    for process in fs::read_dir("/proc").expect("processes").flatten() {
        if has_image(&process.path().join("cmdline")) {
            left.push(format!("{:?}", process.path()));
        }
    }
    for device in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        if has_image(&device.path().join("loop/backing_file")) {
            left.push(format!("{:?}", device.path()));
        }
    }
    let names = fs::read_dir(dir).expect("directory").flatten().map(|entry| entry.file_name());
    let own = ["disk.img", "point"];
    left.extend(names.filter(|name| !own.iter().any(|own| name == own)).map(|name| format!("{name:?}")));
    left
}

fn extant(disk: &Disk, arguments: &[&str]) {
    let mut command = Command::new(EXTANT);
    // Files that it leaves in the directory for temporary files are seen too.
    command.args(arguments).env("TMPDIR", disk.image.parent().expect("directory")).stdin(Stdio::null());
    assert!(command.status().expect("extant").success(), "{arguments:?}");
}

fn mount_and_unmount(count: u32) {
    let disk = Disk::new("64M");
    let (image, point) = (disk.image.to_str().expect("path"), disk.point.to_str().expect("path"));
    let mut first = None;
    let mut last = (0, 0);
    for number in 0..count {
        extant(&disk, &["mount", image, point]);
        // Done by a separate process: children of other tests inherit this process's descriptors for a moment, and
        // the mount would be in use.
        let words = format!("cat .extant/pid; cat file{0} 2>/dev/null; echo {number} >file{0}", number % 10);
        let output = Command::new("sh").args(["-c", &words]).current_dir(point).output().expect("a shell");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let output = String::from_utf8_lossy(&output.stdout);
        let (pid, found) = output.trim().split_once('\n').unwrap_or((output.trim(), ""));
        let expected = number.checked_sub(10).map_or(String::new(), |before| before.to_string());
        assert_eq!(found, expected, "what an earlier mount wrote");
        // After some, so that what the disk holds is the same at each measurement.
        if number >= 20 && (number % 100 == 20 || number + 1 == count) {
            last = footprint(pid);
            first.get_or_insert(last);
        }
        extant(&disk, &["umount", point]);
    }
    let first = first.expect("a measurement");
    println!(
        "{count} mounts: the server's memory {} KiB at the 21st, {} KiB at the last; descriptors {} and {}",
        first.0, last.0, first.1, last.1
    );
    assert!(last.0 <= first.0 + GROWTH_KIB_MAX, "memory grows with the mounts of a disk");
    assert_eq!(last.1, first.1, "descriptors");
    assert_eq!(leftovers(&disk), Vec::<String>::new());
    run(&["check", image]);
    assert_clean(&disk.image);
}

#[test]
fn two_hundred_mounts_leave_nothing_behind() {
    if can_mount() {
        mount_and_unmount(COUNT);
    }
}

#[test]
#[ignore = "long: make test-scale"]
fn ten_thousand_mounts_leave_nothing_behind() {
    if can_mount() {
        mount_and_unmount(COUNT_LONG);
    }
}

#[test]
#[ignore = "measures this process, so no other test may run: make test-scale"]
fn ten_thousand_mounts_by_one_process_leave_nothing_behind() {
    let disk = Disk::new("64M");
    let mut first = None;
    for number in 0..COUNT_LONG {
        let fs = extant::Mount::new().open(&disk.image).expect("mount");
        fs.write(format!("/file{}", number % 10), number.to_string()).expect("write");
        fs.unmount().expect("unmount");
        if number == COUNT_LONG / 10 {
            first = Some(footprint("self"));
        }
    }
    let (first, last) = (first.expect("a measurement"), footprint("self"));
    println!(
        "{COUNT_LONG} mounts by one process: memory {} KiB after a tenth, {} KiB at the end; descriptors {} and {}",
        first.0, last.0, first.1, last.1
    );
    assert!(last.0 <= first.0 + GROWTH_KIB_MAX, "memory grows with the mounts");
    assert_eq!(last.1, first.1, "descriptors");
    assert_eq!(leftovers(&disk), Vec::<String>::new());
    assert_clean(&disk.image);
}
