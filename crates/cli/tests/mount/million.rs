//! A million files in one directory, on a mount and beside it on the kernel's ext4.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use extant_testing::Random;

use crate::common::{Disk, can_mount, is_root, path, run, seed};
use crate::kernel::Kernel;

const FILES: usize = 1_000_000;
const LOOKUPS: u64 = 100_000;
const DISK_BYTES: &str = "3G";
/// Inodes: more than mkfs makes for that size.
const INODES: &str = "1100000";
/// Memory that the server may keep when the kernel has forgotten all inodes: its caches of buffers (64 MiB) and of
/// inodes, and the part of the journal that is not home (64 MiB at most), with as much again or twice for pages of
/// which these hold a part.
const RESIDENT_KIB_MAX: u64 = 384 << 10;
/// Memory for each inode that the kernel knows.
const INODE_BYTES_MAX: u64 = 1024;

/// Names of different lengths, so that blocks of the directory split in different places.
fn name(number: usize) -> String {
    let padding = "-".repeat(number * 7 % 23);
    format!("file{number}{padding}")
}

/// Lists a directory: which files it has. Panics if one is there twice.
fn list(dir: &Path) -> Vec<bool> {
    let mut seen = vec![false; FILES];
    for entry in fs::read_dir(dir).expect("directory") {
        let found = entry.expect("entry").file_name().into_string().expect("a name");
        let number =
            found.trim_start_matches("file").trim_end_matches('-').parse::<usize>().expect("a number");
        assert_eq!(found, name(number));
        assert!(!std::mem::replace(&mut seen[number], true), "{found} is listed twice");
    }
    seen
}

/// Runs the load in a directory; how long each part took.
fn load(dir: &Path, random: &mut Random) -> Vec<(&'static str, Duration)> {
    let mut times = Vec::new();
    let mut timed = |what, part: &mut dyn FnMut()| {
        let start = Instant::now();
        part();
        times.push((what, start.elapsed()));
    };
    fs::create_dir(dir).expect("directory");
    timed("create", &mut || {
        for number in 0..FILES {
            fs::File::create_new(dir.join(name(number))).expect("create");
        }
    });
    timed("list", &mut || assert!(list(dir).iter().all(|seen| *seen), "a name is missing"));
    timed("look up 100,000 at random", &mut || {
        for _ in 0..LOOKUPS {
            let number = random.below(2 * FILES as u64) as usize;
            let found = fs::symlink_metadata(dir.join(name(number)));
            match found {
                Ok(_) => assert!(number < FILES, "{number} was never made"),
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::NotFound);
                    assert!(number >= FILES, "{number} is not found");
                }
            }
        }
    });
    timed("unlink every second", &mut || {
        for number in (1..FILES).step_by(2) {
            fs::remove_file(dir.join(name(number))).expect("unlink");
        }
    });
    timed("list the rest", &mut || assert_half(dir));
    times
}

/// Asserts that exactly the files of even numbers are there, once each.
fn assert_half(dir: &Path) {
    let seen = list(dir);
    assert!(
        seen.iter().enumerate().all(|(number, seen)| *seen == (number % 2 == 0)),
        "wrong names are listed"
    );
}

/// The server's resident memory in KiB, and how many inodes the kernel knows of it.
fn server(disk: &Disk) -> (u64, u64) {
    let control =
        |name: &str| fs::read_to_string(disk.point.join(".extant").join(name)).expect("control file");
    let status = fs::read_to_string(format!("/proc/{}/status", control("pid").trim())).expect("status");
    let of = |text: &str, key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("a line");
        line.trim().trim_end_matches(" kB").parse().expect("a number")
    };
    (of(&status, "VmRSS:"), of(&control("metrics"), "extant_known_inodes "))
}

/// The same once the server has seen what the kernel forgot.
fn forgotten(disk: &Disk) -> (u64, u64) {
    let start = Instant::now();
    loop {
        let (used_kib, known) = server(disk);
        if known < FILES as u64 / 1000 {
            return (used_kib, known);
        }
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "the kernel forgot, the server still holds {known}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The same on the kernel's ext4, for its times.
fn kernel_times(disk: &Disk, seed: u64) -> Option<Vec<(&'static str, Duration)>> {
    let (image, point) = (disk.image.with_file_name("kernel.img"), disk.point.with_file_name("kernel"));
    fs::create_dir(&point).expect("mount point");
    let mut command = Command::new("mke2fs");
    command.args(["-q", "-F", "-t", "ext4", "-N", INODES]).arg(&image).arg(DISK_BYTES).env("PATH", path());
    assert!(command.status().expect("mke2fs").success());
    let mounted = Kernel::mount(&image, &point, "rw")?;
    let times = load(&point.join("dir"), &mut Random::new(seed));
    drop(mounted);
    fs::remove_file(&image).expect("remove");
    Some(times)
}

#[test]
#[ignore = "long: make test-scale"]
fn million_files_in_one_directory() {
    if !can_mount() {
        return;
    }
    let seed = seed();
    let disk = Disk::new("64M");
    run(&["mkfs", "-q", "-F", "-N", INODES, disk.image.to_str().expect("path"), DISK_BYTES]);
    disk.mount("rw");
    let dir = disk.point.join("dir");
    let times = load(&dir, &mut Random::new(seed));
    let (used_kib, known) = server(&disk);
    println!("at the end: the server's memory {} MiB, {known} inodes known to the kernel", used_kib >> 10);
    // All files were known at once.
    assert!(used_kib <= RESIDENT_KIB_MAX + FILES as u64 * INODE_BYTES_MAX / 1024, "memory of the server");
    if is_root() {
        fs::write("/proc/sys/vm/drop_caches", "2").expect("drop_caches");
        let (kept_kib, known) = forgotten(&disk);
        println!("after dropping caches: {} MiB, {known} inodes", kept_kib >> 10);
        assert!(kept_kib <= RESIDENT_KIB_MAX, "memory of what is forgotten is kept");
    } else {
        println!("skipped: dropping caches needs root");
    }
    disk.umount();
    disk.mount("ro");
    assert_half(&dir);
    let kernels = kernel_times(&disk, seed);
    for (index, (what, ours)) in times.iter().enumerate() {
        let theirs = kernels.as_ref().map(|times| times[index].1);
        let theirs = theirs.map_or("-".to_owned(), |time| format!("{:.2}", time.as_secs_f64()));
        println!("{what:28} {:8.2} s   the kernel's ext4 {theirs:>8} s", ours.as_secs_f64());
    }
    disk.finish();
}
