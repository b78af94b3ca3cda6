//! A mutated disk behind a mount: everything that can be reached is looked at and, where it may be written, much of it changed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::{CaseDir, TIME_MAX, extant, judge, run};

/// Files and directories that a walk visits; on a disk with cycles it would go on.
const VISITED_MAX: usize = 1000;

pub fn can_mount() -> bool {
    OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok()
}

/// Mounts the image, for reading (`ro`) or writing (`rw`), uses it and unmounts it; whether it was served.
pub fn pass(image: &Path, access: &str, dir: &CaseDir) -> Result<bool, String> {
    if !can_mount() {
        return Ok(false);
    }
    let (point, words) = (dir.path.join("point"), dir.path.join("words of the server"));
    let _ = fs::create_dir(&point);
    let name = point.to_str().expect("a path");
    let image = image.to_str().expect("a path");
    let mut server = extant(&["mount", "-f", "-o", access, image, name], &words).spawn().expect("prlimit");
    let result = if is_mounted(&point, &mut server)? {
        let verbs = [&["top", "-n", "1", name][..], &["sync", name], &["umount", name]];
        let used = within_time(&server, &point, access == "rw");
        used.and_then(|()| verbs.iter().try_for_each(|verb| run(verb, &dir.words).map(|_| ()))).map(|()| true)
    } else {
        Ok(false)
    };
    if result.is_err() {
        let _ = server.kill();
        let _ = run(&["umount", "--lazy", name], &dir.words);
    }
    let status = server.wait().expect("its end");
    let served = result?;
    judge(status, &words).map_err(|why| format!("the server: {why}"))?;
    Ok(served)
}

/// Waits until it is mounted, or the server has ended because it cannot be.
fn is_mounted(point: &Path, server: &mut Child) -> Result<bool, String> {
    let start = Instant::now();
    while start.elapsed() < TIME_MAX {
        if server.try_wait().expect("a child").is_some() {
            return Ok(false);
        }
        if fs::read_to_string("/proc/mounts").expect("mounts").contains(point.to_str().expect("a path")) {
            return Ok(true);
        }
        thread::sleep(Duration::from_millis(2));
    }
    let _ = server.kill();
    let _ = server.wait();
    Err("mounting hangs".to_owned())
}

/// Uses the mount in a thread; if that takes too long the server is killed, so that the thread's calls fail.
fn within_time(server: &Child, point: &Path, is_writable: bool) -> Result<(), String> {
    let (done, is_done) = channel();
    let root = point.to_owned();
    let user = thread::spawn(move || {
        let paths = walk(&root);
        if is_writable {
            change_all(&root, &paths);
            walk(&root);
        }
        // The receiver may have timed out.
        let _ = done.send(());
    });
    let ended = is_done.recv_timeout(TIME_MAX);
    if ended == Err(RecvTimeoutError::Timeout) {
        let _ = Command::new("kill").args(["-KILL", &server.id().to_string()]).status();
    }
    user.join().map_err(|_| "the walk panicked".to_owned())?;
    ended.map_err(|_| "the mount hangs".to_owned())
}

/// Whether a step succeeds is the disk's affair.
fn change_all(root: &Path, paths: &[PathBuf]) {
    for (number, path) in paths.iter().enumerate() {
        let _ = change(root, path, number);
    }
    for path in paths.iter().rev().take(100) {
        let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
    }
    let _ = File::open(root).and_then(|root| root.sync_all());
}

fn walk(root: &Path) -> Vec<PathBuf> {
    let (mut paths, mut at) = (vec![root.to_owned()], 0);
    while at < paths.len() && paths.len() < VISITED_MAX {
        let path = paths[at].clone();
        at += 1;
        let _ = look_at(&path);
        if fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir())
            && let Ok(entries) = fs::read_dir(&path)
        {
            paths.extend(entries.flatten().take(VISITED_MAX).map(|entry| entry.path()));
        }
    }
    paths
}

fn look_at(path: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    let (mut names, mut value) = ([0; 4096], [0; 4096]);
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let _ = rustix::fs::lgetxattr(path, name, &mut value[..]);
    }
    let _ = fs::read_link(path);
    // A pipe would wait for its other end.
    if found.is_file() {
        let (file, mut bytes) = (File::open(path)?, vec![0; 16 << 10]);
        for offset in [0, 70_000, found.len().saturating_sub(5000), found.len() / 2] {
            let _ = file.read_at(&mut bytes, offset);
        }
    }
    Ok(())
}

fn change(root: &Path, path: &Path, number: usize) -> io::Result<()> {
    let new = path.with_file_name(format!("new{number}"));
    let file = || OpenOptions::new().read(true).write(true).open(path);
    let is_file = fs::symlink_metadata(path)?.is_file();
    match number % 10 {
        0 => fs::write(&new, vec![b'n'; 10_000]),
        1 => fs::create_dir(&new),
        2 => fs::rename(path, root.join(format!("moved{number}"))),
        3 => fs::hard_link(path, &new),
        4 => std::os::unix::fs::symlink("target/".repeat(20), &new),
        5 if is_file => file()?.set_len(number as u64 * 997),
        6 if is_file => file()?.write_all_at(&[b'w'; 9000], number as u64 * 1009),
        7 if is_file => {
            let punch = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
            Ok(rustix::fs::fallocate(file()?, punch, 1000, 20_000)?)
        }
        8 => Ok(rustix::fs::lsetxattr(path, "user.new", &[b'v'; 300], rustix::fs::XattrFlags::empty())?),
        9 if is_file => file()?.sync_all(),
        _ => fs::remove_file(path),
    }
}
