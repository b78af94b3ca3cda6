//! Crashes of the replay, at every request that it makes of the disk.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use extant::{FileType, Filesystem, Mount};
use extant_block::{BlockDevice, Event, MemoryDevice, Recorder, Tearing};
use extant_rt::Arc;
use extant_testing::{Random, assert_clean, crash_scale, scratch};

use crate::disk::make;
use crate::kernel::operate;
use crate::mounted::{Mounted, tree};

/// Names, and of files the size, the names that they have and the content.
type Contents = BTreeMap<Vec<u8>, (u64, u16, Vec<u8>)>;

fn contents(fs: &Filesystem) -> Contents {
    let entry = |name: &[u8]| {
        let path = format!("/{}", String::from_utf8_lossy(name));
        let of = fs.symlink_metadata(&path).expect("metadata");
        let content = match of.file_type {
            FileType::Regular => fs.read(&path).expect("content"),
            FileType::Symlink => fs.read_link(&path).expect("a target"),
            _ => Vec::new(),
        };
        (of.size, of.links, content)
    };
    let names =
        fs.dir("/").and_then(|dir| dir.entries()).expect("the root").into_iter().map(|found| found.name);
    names.filter(|name| !name.starts_with(b".")).map(|name| (name.clone(), entry(&name))).collect()
}

fn load(path: &Path) -> MemoryDevice {
    let bytes = fs::read(path).expect("read");
    let device = MemoryDevice::new(bytes.len() as u64);
    device.write_at(0, &bytes).expect("write");
    device
}

pub fn store(device: &MemoryDevice, path: &Path) {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).expect("read");
    fs::write(path, bytes).expect("write");
}

fn mount(device: Arc<dyn BlockDevice>, read_only: bool) -> extant::Result<Filesystem> {
    Mount::new().read_only(read_only).background(false).open_device(device)
}

/// A disk with fast commits that no transaction covers, if Linux makes some here.
pub fn crashed_disk(seed: u64) -> Option<MemoryDevice> {
    let scratch = scratch();
    let image = scratch.path().join("image");
    make(&image, 4096, "metadata_csum")?;
    let mounted = match Mounted::new(&image, "noatime,commit=600") {
        Ok(mounted) => mounted,
        Err(why) => {
            println!("skipped: {why}");
            return None;
        }
    };
    let mut random = Random::new(seed);
    let mut found = None;
    for _ in 0..60 {
        let _ = operate(&mounted.point, &mut random);
        let copy = scratch.path().join("copy");
        fs::copy(&image, &copy).expect("copy");
        let device = load(&copy);
        let fs = mount(Arc::new(device.snapshot()), true).expect("mount");
        // The more there are, the more there is to lose.
        if fs.mounted().replayed_fast_commits >= 4 {
            found = Some(device);
        }
    }
    if found.is_none() {
        println!("skipped: Linux made no fast commits");
    }
    found
}

#[test]
fn a_replay_is_done_again_or_found_done_after_a_crash_at_every_request() {
    let scratch = scratch();
    let (mut crashes, mut mounts) = (0, 0);
    for seed in 0..2 * crash_scale() {
        let Some(crashed) = crashed_disk(seed) else { return };
        let shown = contents(&mount(Arc::new(crashed.snapshot()), true).expect("mount"));
        let recorder = Arc::new(Recorder::over(crashed));
        let fs = mount(recorder.clone(), false).expect("mount");
        assert_eq!(contents(&fs), shown, "reading and writing replay alike");
        fs.unmount().expect("unmount");
        let log = recorder.log();
        let mut cursor = log.cursor();
        let mut random = Random::new(seed);
        for events in 0..=log.events().len() {
            // The file system's superblock tears, and a disk of one group has no copy of it; that is tested elsewhere.
            let is_superblock = |at: usize| matches!(log.events()[at], Event::Write { offset: 0..2048, .. });
            cursor.advance_to(events).expect("advance");
            for survival in 0..4 {
                let image = cursor
                    .crash_image(Tearing::Sectors, |part| match survival {
                        _ if is_superblock(part.event) => survival % 2 == 0,
                        0 => true,
                        1 => false,
                        _ => random.below(2) == 0,
                    })
                    .expect("an image");
                crashes += 1;
                let what = format!("seed {seed}, {events} of {} requests", log.events().len());
                let read = mount(Arc::new(image.snapshot()), true).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert!(contents(&read) == shown, "{what}: another tree");
                let path = scratch.path().join("image");
                if random.below(20) == 0 {
                    store(&image, &path);
                    let mounted = Mounted::new(&path, "noatime").unwrap_or_else(|e| panic!("{what}: {e}"));
                    let theirs = tree(&mounted.point);
                    let of = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
                    assert!(
                        theirs
                            .iter()
                            .all(|(path, one)| shown.get(&of(path)).is_some_and(|own| one.has(&own.2))),
                        "{what}: Linux recovers another tree"
                    );
                    mounts += 1;
                }
                let image = Arc::new(image);
                let fs = mount(image.clone(), false).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert!(contents(&fs) == shown, "{what}: another tree");
                fs.unmount().unwrap_or_else(|e| panic!("{what}: {e}"));
                if random.below(6) > 0 {
                    continue;
                }
                store(&image, &path);
                assert_clean(&path, &what);
            }
        }
    }
    println!("recovered: {crashes} crashes, {mounts} of them by Linux too");
    assert!(crashes > 100 && mounts > 4);
}
