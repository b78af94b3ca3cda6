//! Many operations at random from several threads, and many threads in one directory.

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use extant_testing::Random;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};

use crate::common::{self, Disk, assert_clean, can_mount, run, seed};

const THREADS: u64 = 8;
const OPERATIONS: u64 = 2000;

/// A place at random in a small tree, so that threads meet.
fn place(random: &mut Random, root: &Path) -> PathBuf {
    let mut path = root.to_owned();
    for _ in 0..random.below(3) {
        path.push(format!("d{}", random.below(4)));
    }
    path.join(format!("f{}", random.below(30)))
}

fn write(random: &mut Random, path: &Path) -> io::Result<()> {
    let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    let bytes = vec![random.below(256) as u8; random.below(200_000) as usize + 1];
    file.write_at(&bytes, random.below(1_000_000))?;
    if random.below(10) == 0 {
        file.sync_all()?;
    }
    Ok(())
}

fn step(random: &mut Random, root: &Path) -> io::Result<()> {
    let path = place(random, root);
    match random.below(15) {
        0..=3 => write(random, &path),
        4 => fs::create_dir(path.with_file_name(format!("d{}", random.below(4)))),
        5 => fs::remove_file(path),
        6 => fs::remove_dir(path.with_file_name(format!("d{}", random.below(4)))),
        7 => fs::rename(path, place(random, root)),
        8 => fs::hard_link(path, place(random, root)),
        9 => symlink("somewhere/else", path),
        10 => fs::OpenOptions::new().write(true).open(path)?.set_len(random.below(2_000_000)),
        11 => fs::read(path).map(drop),
        12 => fs::read_dir(path.with_file_name(""))?.try_for_each(|entry| entry.map(drop)),
        13 => fs::set_permissions(path, fs::Permissions::from_mode(random.below(0o1000) as u32 | 0o600)),
        _ => fs::rename(
            path.with_file_name(format!("d{}", random.below(4))),
            place(random, root).with_file_name(format!("d{}", random.below(4))),
        ),
    }
}

/// The host's numbers of errors that such a load meets.
fn is_expected(error: &io::Error) -> bool {
    const ERRNOS: [i32; 12] = [
        2,  // ENOENT
        17, // EEXIST
        16, // EBUSY
        20, // ENOTDIR
        21, // EISDIR
        22, // EINVAL: a directory below itself
        1,  // EPERM: a link to a directory
        39, // ENOTEMPTY
        40, // ELOOP
        28, // ENOSPC
        6,  // ENXIO
        31, // EMLINK
    ];
    error.raw_os_error().is_some_and(|errno| ERRNOS.contains(&errno))
}

#[test]
fn random_operations_of_eight_threads_leave_a_clean_disk() {
    if !can_mount() {
        return;
    }
    let seed = seed();
    let disk = Disk::new("512M");
    disk.mount("rw");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let root = &disk.point;
            scope.spawn(move || {
                let mut random = Random::new(seed.wrapping_add(thread));
                for operation in 0..OPERATIONS {
                    if let Err(error) = step(&mut random, root) {
                        assert!(is_expected(&error), "thread {thread}, operation {operation}: {error}");
                    }
                }
            });
        }
    });
    disk.finish();
}

#[test]
fn sixteen_threads_work_in_one_directory_and_in_sixteen() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("256M");
    disk.mount("rw");
    for is_shared in [true, false] {
        let dir_of =
            |thread: u32| disk.point.join(if is_shared { "one".to_owned() } else { format!("own{thread}") });
        std::thread::scope(|scope| {
            for thread in 0..16 {
                let dir = dir_of(thread);
                scope.spawn(move || {
                    fs::create_dir_all(&dir).expect("directory");
                    for number in 0..200_u32 {
                        let path = dir.join(format!("{thread}-{number}"));
                        let content = path.as_os_str().as_encoded_bytes();
                        fs::write(&path, content).expect("write");
                        assert_eq!(fs::read(&path).expect("read"), content);
                        if number % 2 == 1 {
                            fs::remove_file(&path).expect("remove");
                        }
                    }
                });
            }
        });
        for thread in 0..16 {
            let names = fs::read_dir(dir_of(thread)).expect("directory").count();
            assert_eq!(names, if is_shared { 16 * 100 } else { 100 });
        }
    }
    disk.finish();
}

#[test]
fn file_without_names_lives_until_it_is_closed() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    disk.mount("rw");
    let path = disk.point.join("file");
    let file =
        fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).expect("open");
    file.write_at(b"kept", 0).expect("write");
    fs::remove_file(&path).expect("remove");
    // Its number must not be reused while it is open.
    let others: Vec<_> = (0..50).map(|number| disk.point.join(format!("other{number}"))).collect();
    others.iter().for_each(|other| fs::write(other, b"other").expect("write"));
    let mut content = [0; 4];
    file.read_at(&mut content, 0).expect("read");
    assert_eq!(&content, b"kept");
    let number = file.metadata().expect("stat").ino();
    assert!(others.iter().all(|other| fs::metadata(other).expect("stat").ino() != number));
    assert_eq!(file.metadata().expect("stat").nlink(), 0);
    drop(file);
    disk.finish();
}

#[test]
fn file_made_without_a_name_can_get_one() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    disk.mount("rw");
    let unnamed = || {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        fs::File::from(rustix::fs::open(&disk.point, flags, Mode::from_raw_mode(0o640)).expect("O_TMPFILE"))
    };
    let gone = unnamed();
    gone.write_at(&[1; 10_000], 0).expect("write");
    let kept = unnamed();
    kept.write_at(b"kept", 0).expect("write");
    assert_eq!(kept.metadata().expect("stat").nlink(), 0);
    let name = disk.point.join("named");
    let descriptor = format!("/proc/self/fd/{}", kept.as_raw_fd());
    rustix::fs::linkat(CWD, &descriptor, CWD, &name, AtFlags::SYMLINK_FOLLOW).expect("a name");
    drop((gone, kept));
    disk.umount();
    assert_clean(&disk.image);
    assert_eq!(run(&["cat", &format!("{}:/named", disk.image.display())]), "kept");
}

#[test]
fn time_of_birth_is_the_disks() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    disk.mount("rw");
    let path = disk.point.join("file");
    fs::write(&path, b"x").expect("write");
    let birth = fs::metadata(&path).expect("stat").created();
    disk.umount();
    let birth = match birth {
        Ok(birth) => birth.duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs(),
        Err(error) => return println!("skipped: this kernel asks FUSE for no time of birth: {error}"),
    };
    let mut command = std::process::Command::new("debugfs");
    let output = command.args(["-R", "stat /file"]).arg(&disk.image).env("PATH", common::path()).output();
    let Ok(output) = output else { return println!("skipped: debugfs") };
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(words.contains(&format!("crtime: 0x{birth:08x}:")), "{birth:x}: {words}");
}
