//! Work that Linux makes durable by fast commits, and crashes after it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use extant::Mount;
use extant_testing::{Random, assert_clean, scratch};

use crate::disk::make;
use crate::mounted::{Mounted, differences, tree};

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).open(path)
}

/// One operation and the sync of what it changed. What fails, as the removal of what is not there, changes nothing.
pub fn operate(point: &Path, random: &mut Random) -> io::Result<()> {
    let any = |random: &mut Random| point.join(format!("f{}", random.below(12)));
    let (path, other) = (any(random), any(random));
    let sync = |path: &Path| open(path)?.sync_all();
    match random.below(12) {
        0..=2 => {
            let mut file = open(&path)?;
            let len = 1 + random.below(30_000) as usize;
            let at = random.below(120_000);
            file.seek(SeekFrom::Start(at))?;
            file.write_all(&random.bytes(len))?;
            file.sync_all()
        }
        3 | 4 => {
            let mut file = OpenOptions::new().append(true).create(true).open(&path)?;
            let len = 1 + random.below(9000) as usize;
            file.write_all(&random.bytes(len))?;
            file.sync_data()
        }
        5 => {
            let file = OpenOptions::new().write(true).open(&path)?;
            file.set_len(random.below(60_000))?;
            file.sync_all()
        }
        6 => {
            use rustix::fs::{FallocateFlags, fallocate};
            let file = OpenOptions::new().write(true).open(&path)?;
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&file, flags, random.below(60_000), 1 + random.below(40_000))?;
            file.sync_all()
        }
        7 => {
            let file = open(&path)?;
            let flags = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(&file, flags, random.below(90_000), 1 + random.below(40_000))?;
            file.sync_all()
        }
        8 => fs::hard_link(&path, &other).and_then(|()| sync(&other)),
        9 => fs::remove_file(&path).and_then(|()| sync(&other)),
        10 => {
            fs::rename(&path, &other)?;
            sync(&other)
        }
        _ => {
            let target = format!("target{}", random.below(1000));
            symlink(target, point.join(format!("s{}", random.below(40))))?;
            sync(&path)
        }
    }
}

/// The disk after a crash as Linux and as Extant recover it, which must be alike. How many fast commits there were; none if Linux does
/// not recover it.
fn compare(crashed: &Path, what: &str) -> u32 {
    let copy = |name: &str| -> PathBuf {
        let copy = crashed.with_file_name(name);
        fs::copy(crashed, &copy).expect("copy");
        copy
    };
    let (linux, ours, read) = (copy("linux"), copy("ours"), copy("read"));
    let theirs = match Mounted::new(&linux, "noatime") {
        Ok(mounted) => tree(&mounted.point),
        Err(why) => {
            println!("{what}: Linux does not recover it: {why}");
            return 0;
        }
    };
    let before = fs::read(&read).expect("read");
    let fs = Mount::new().read_only(true).open(&read).unwrap_or_else(|e| panic!("{what}: {e}"));
    let shown: Vec<_> = theirs
        .keys()
        .filter(|path| path.to_str().is_some_and(|name| name.starts_with('f')))
        .map(|path| {
            fs.read(format!("/{}", path.display())).unwrap_or_else(|e| panic!("{what}: {path:?}: {e}"))
        })
        .collect();
    let findings = fs.check(&mut |_| ()).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert!(findings.is_empty(), "{what}: {findings:?}");
    fs.unmount().expect("unmount");
    assert!(fs::read(&read).expect("read") == before, "{what}: reading wrote");
    let fs = Mount::new().open(&ours).unwrap_or_else(|e| panic!("{what}: {e}"));
    let fast_commits = fs.mounted().replayed_fast_commits;
    fs.unmount().unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_clean(&ours, what);
    let mounted = Mounted::new(&ours, "noatime").unwrap_or_else(|e| panic!("{what}: {e}"));
    let found = tree(&mounted.point);
    drop(mounted);
    assert!(found == theirs, "{what}: {:#?}", differences(&found, &theirs));
    let files = theirs.iter().filter(|(path, _)| path.to_str().is_some_and(|name| name.starts_with('f')));
    assert!(
        files.zip(shown).all(|((_, one), other)| one.has(&other)),
        "{what}: reading shows another content"
    );
    fast_commits
}

#[test]
fn fast_commits_of_the_kernel_replay_as_the_kernel_replays_them() {
    let scratch = scratch();
    let image = scratch.path().join("image");
    let crashed = scratch.path().join("crashed");
    let mut replayed = 0;
    let disks = [
        (4096, "metadata_csum"),
        (1024, "metadata_csum"),
        (4096, "^metadata_csum"),
        (1024, "metadata_csum,bigalloc"),
    ];
    for (seed, (block_size, features)) in disks.into_iter().enumerate() {
        let Some(()) = make(&image, block_size, features) else { return };
        let mounted = match Mounted::new(&image, "noatime,commit=600") {
            Ok(mounted) => mounted,
            Err(why) => {
                println!("skipped: {why}");
                return;
            }
        };
        let mut random = Random::new(seed as u64);
        for round in 0..12 {
            for _ in 0..1 + random.below(12) {
                let _ = operate(&mounted.point, &mut random);
            }
            fs::copy(&image, &crashed).expect("copy");
            replayed += compare(&crashed, &format!("{block_size}, {features}, round {round}"));
        }
    }
    println!("replayed: {replayed} fast commits");
    assert!(replayed > 20, "{replayed} fast commits");
}
