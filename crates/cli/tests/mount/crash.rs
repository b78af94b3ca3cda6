//! The server killed in mid-write: what was fsynced is there after the next mount, and the disk is clean.
//!
//! The host lives on, so this shows the order of writes to the file, not of the host's cache to its disk; the crash
//! tests of the engine show that.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use extant_testing::Random;

use crate::common::{Disk, can_mount, seed};

const KILLS: u64 = 20;
const QCOW2_KILLS: u64 = 4;
const WRITERS: u64 = 4;

/// Writes files and notes each that was made durable, until the server is gone.
fn write(root: &Path, round: u64, writer: u64, durable: &Mutex<Vec<(String, Vec<u8>)>>) {
    let mut random = Random::new(round * WRITERS + writer);
    for number in 0.. {
        let name = format!("{round}-{writer}/{}/{number}", number % 7);
        let content = vec![random.below(256) as u8; random.below(50_000) as usize + 1];
        let path = root.join(&name);
        let wrote = fs::create_dir_all(path.parent().expect("directory"))
            .and_then(|()| fs::File::create(&path))
            .and_then(|mut file| file.write_all(&content).map(|()| file));
        let Ok(file) = wrote else { return };
        if random.below(3) == 0 {
            if file.sync_all().is_err() {
                return;
            }
            durable.lock().expect("list").push((name, content));
        } else if random.below(3) == 0 && fs::remove_file(&path).is_err() {
            return;
        }
    }
}

#[test]
fn what_was_synced_survives_twenty_kills() {
    if can_mount() {
        kill_in_mid_write(Disk::new("1G"), KILLS);
    }
}

#[test]
fn what_was_synced_survives_kills_in_a_qcow2_image() {
    if can_mount() {
        kill_in_mid_write(Disk::with_format("qcow2", "1G"), QCOW2_KILLS);
    }
}

/// Kills the server so many times while threads write, and looks for what was durable.
fn kill_in_mid_write(mut disk: Disk, kills: u64) {
    let mut random = Random::new(seed());
    let durable = Mutex::new(Vec::new());
    for round in 0..kills {
        disk.serve();
        let after = Duration::from_millis(30 + random.below(300));
        std::thread::scope(|scope| {
            let (root, durable) = (disk.point.clone(), &durable);
            for writer in 0..WRITERS {
                let root = root.clone();
                scope.spawn(move || write(&root, round, writer, durable));
            }
            std::thread::sleep(after);
            disk.kill();
        });
        disk.umount();
        disk.serve();
        for (name, content) in durable.lock().expect("list").iter() {
            let found = fs::read(disk.point.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(found == *content, "round {round}: {name} differs");
        }
        let all = fs::read_dir(&disk.point).expect("root").count();
        assert!(all >= 1);
        for dir in fs::read_dir(&disk.point).expect("root").flatten() {
            if round % 5 == 4 && dir.file_name() != "lost+found" {
                fs::remove_dir_all(dir.path()).expect("remove");
            }
        }
        if round % 5 == 4 {
            durable.lock().expect("list").clear();
        }
        disk.umount();
        crate::common::assert_clean(&disk.image);
    }
}
