//! Disks in use: threads write, truncate, read and remove files while those are defragmented.

use std::collections::BTreeMap;

use extant::{DefragOptions, Error, Fallocate, Filesystem, Mount};
use extant_rt::{AtomicBool, Ordering};
use extant_testing::Random;

use crate::aged::aged;
use crate::disk::{Image, MIB};

/// Changes files of its own until it is to stop: what they have then.
fn work(fs: &Filesystem, thread: u64, stop: &AtomicBool) -> BTreeMap<String, Vec<u8>> {
    let mut random = Random::new(thread);
    let mut files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let dir = format!("/thread{thread}");
    fs.create_dir(&dir).expect("a directory");
    while !stop.load(Ordering::Relaxed) {
        let path = format!("{dir}/{}", random.below(8));
        let kept = files.entry(path.clone()).or_default();
        let file = fs.options().read(true).write(true).create(true).open(&path).expect("a file");
        let offset = random.below(200_000);
        let done = match random.below(8) {
            0 => {
                let size = random.below(200_000);
                kept.resize(size as usize, 0);
                file.set_len(size)
            }
            1 => {
                let end = (offset as usize + 30_000).min(kept.len());
                if let Some(part) = kept.get_mut(offset as usize..end) {
                    part.fill(0);
                }
                file.allocate(Fallocate::PunchHole, offset, 30_000)
            }
            2 => {
                assert!(file.read_to_end_at(0).expect("content") == *kept, "{path}");
                Ok(())
            }
            3 => {
                files.remove(&path);
                fs.remove_file(&path)
            }
            _ => {
                let bytes = vec![random.below(255) as u8 + 1; 1 + random.below(20_000) as usize];
                let end = offset as usize + bytes.len();
                if kept.len() < end {
                    kept.resize(end, 0);
                }
                kept[offset as usize..end].copy_from_slice(&bytes);
                file.write_all_at(&bytes, offset)
            }
        };
        match done {
            Ok(()) => {}
            // What of it was written is not known.
            Err(Error::NoSpace) => {
                files.remove(&path);
                fs.remove_file(&path).expect("remove");
            }
            Err(error) => panic!("{path}: {error}"),
        }
    }
    files
}

#[test]
fn files_that_threads_change_while_they_are_defragmented_have_what_was_written() {
    if !extant_testing::has_threads() {
        return;
    }
    for (seed, cache_bytes) in [(1, 0), (2, 16 << 20)] {
        let Some(image) = Image::made(48 * MIB, &["-b1024"]) else { return };
        aged(&image, seed).unmount().expect("unmount");
        let fs = Mount::new().page_cache_bytes(cache_bytes).open(&image.path).expect("mount");
        let stop = AtomicBool::new(false);
        let files: Vec<_> = std::thread::scope(|scope| {
            let worker = |thread| {
                let (fs, stop) = (&fs, &stop);
                scope.spawn(move || work(fs, seed * 10 + thread, stop))
            };
            let workers: Vec<_> = (0..3).map(worker).collect();
            let mut moved = 0;
            for round in 0..4 {
                std::thread::sleep(std::time::Duration::from_millis(50));
                let done = fs.defrag("/", &DefragOptions::default(), &mut |_| true).expect("defragment");
                println!("round {round}: {done:?}");
                assert_eq!(done.failed, 0, "{done:?}");
                moved += done.files;
            }
            assert!(moved > 20, "{moved} files");
            stop.store(true, Ordering::Relaxed);
            workers.into_iter().map(|worker| worker.join().expect("a worker")).collect()
        });
        for (path, bytes) in files.iter().flatten() {
            assert!(fs.read(path).expect("content") == *bytes, "{path}");
        }
        fs.unmount().expect("unmount");
        image.assert_clean("in use");
        let fs = image.mount();
        for (path, bytes) in files.iter().flatten() {
            assert!(fs.read(path).expect("content") == *bytes, "{path} on the disk");
        }
    }
}
