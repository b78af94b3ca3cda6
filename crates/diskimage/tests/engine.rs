//! The engine on a qcow2 image whose host crashes: what was synced is there, and the file system is clean.

#[path = "common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::path::Path;

use extant::mkfs::Mkfs;
use extant::{Filesystem, Mount};
use extant_block::{BlockDevice, MemoryDevice, Recorder, Tearing};
use extant_rt::Arc;
use extant_testing::{Command, scratch};

use common::{Random, content, in_memory, qemu_img, rounds, seed};

const DISK_BYTES: &str = "16M";
const FILE_BYTES: u64 = 32 << 20;

/// The contents of files at a sync, by name; none of one that was removed.
type Files = BTreeMap<String, Option<Vec<u8>>>;

fn open(file: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
    extant_diskimage::open(Path::new(""), file, &[]).expect("an image").device
}

/// Changes random files and syncs; each sync is noted with the events that it took, and the end of all as if it were one.
fn work(fs: &Filesystem, recorder: &Recorder<MemoryDevice>, random: &mut Random) -> Vec<(usize, Files)> {
    let mut files = Files::new();
    let mut synced = vec![(recorder.event_count(), files.clone())];
    for step in 0..60 {
        let name = format!("/{}", random.below(12));
        match random.below(6) {
            0 if files.get(&name).is_some_and(Option::is_some) => {
                fs.remove_file(&name).expect("removed");
                files.insert(name, None);
            }
            1 => {
                fs.sync().expect("a sync");
                synced.push((recorder.event_count(), files.clone()));
            }
            _ => {
                let len = random.below(60_000) as usize + 1;
                let bytes = vec![step + 1; len];
                fs.write(&name, &bytes).expect("a write");
                files.insert(name, Some(bytes));
            }
        }
    }
    synced.push((usize::MAX, files));
    synced
}

/// Looks at the disk after a crash: it is clean, and what was synced is as it was or newer.
fn judge(crashed: MemoryDevice, synced: &Files, changed_later: &[String], dir: &Path, asks_e2fsck: bool) {
    let device = open(Arc::new(crashed));
    let fs = Mount::new().open_device(device.clone()).expect("a mount");
    assert_eq!(fs.check(&mut |_| {}).expect("a check"), []);
    for (name, content) in synced.iter().filter(|(name, _)| !changed_later.contains(name)) {
        let found = fs.read(name).ok();
        assert!(found == *content, "{name}: {:?} bytes", found.map(|found| found.len()));
    }
    fs.unmount().expect("an unmount");
    if asks_e2fsck {
        std::fs::write(dir.join("disk.raw"), content(&*device)).expect("the disk");
        let output =
            Command::new("e2fsck").args(["-fn", "disk.raw"]).current_dir(dir).output().expect("e2fsck");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
}

#[test]
fn what_was_synced_survives_crashes_of_the_host() {
    let seed = seed("engine");
    let mut crashes = 0;
    for round in 0..rounds(1) {
        for options in ["cluster_size=65536", "cluster_size=4096"] {
            let mut random = Random(seed + round + 1);
            let dir = scratch();
            qemu_img(dir.path(), &["create", "-q", "-f", "qcow2", "-o", options, "a.qcow2", DISK_BYTES]);
            let image = Arc::new(in_memory(&dir.path().join("a.qcow2"), FILE_BYTES));
            // In two groups, so that a superblock that is torn has a copy.
            Mkfs::new().block_size(1024).format(&*open(image.clone())).expect("a file system");
            let recorder = Arc::new(Recorder::over(image.snapshot()));
            let device = open(recorder.clone());
            let fs = Mount::new().background(false).open_device(device).expect("a mount");
            let synced = work(&fs, &recorder, &mut random);
            fs.unmount().expect("an unmount");
            let log = recorder.log();
            let begin = synced[0].0;
            let mut cursor = log.cursor();
            let mut places: Vec<usize> =
                (0..60).map(|_| begin + random.below((log.events().len() - begin) as u64) as usize).collect();
            places.sort_unstable();
            for (number, events) in places.into_iter().enumerate() {
                cursor.advance_to(events).expect("a place");
                crashes += 1;
                let keep = random.below(4);
                let crashed =
                    cursor.crash_image(Tearing::Sectors, |_| random.below(4) < keep).expect("a crash");
                let at = synced.partition_point(|(count, _)| *count <= events).max(1) - 1;
                // Until the next sync files may be newer.
                let changed: Vec<String> = synced[at + 1]
                    .1
                    .iter()
                    .filter(|(name, content)| synced[at].1.get(*name) != Some(*content))
                    .map(|(name, _)| name.clone())
                    .collect();
                judge(crashed, &synced[at].1, &changed, dir.path(), number % 20 == 0);
            }
        }
    }
    println!("{crashes} crashes");
}
