//! Disks that grow while threads work on them.

use std::collections::BTreeMap;

use extant::{Error, Filesystem, Mount};
use extant_block::{BlockDevice, MemoryDevice, Recorder, Tearing};
use extant_rt::{Arc, AtomicBool, Ordering};
use extant_testing::Random;

use crate::disk::{Image, MIB, contents, fill, run, survives, text};

/// Arguments of mke2fs, and sizes in MiB.
const CASES: &[(&[&str], &[u64])] = &[
    (&["-b1024", "-g2048", "-N2048"], &[8, 13, 31, 64, 150]),
    (&["-b1024", "-g1024", "-N2048", "-Eresize=18000"], &[12, 15, 40, 90]),
    (&["-b4096"], &[16, 100, 1024, 20 << 10]),
    (&["-b1024", "-g1024", "-N1024", "-Ometa_bg,^resize_inode"], &[5, 6, 9, 24, 70]),
    (&["-b1024", "-g2048", "-N2048", "-O^metadata_csum,^uninit_bg,^flex_bg"], &[8, 20, 60]),
    (&["-b1024", "-g2048", "-N2048", "-Ofast_commit"], &[9, 30, 80]),
];

/// Changes files of its own directory until it is to stop: what they have then.
fn work(fs: &Filesystem, thread: u64, stop: &AtomicBool) -> BTreeMap<String, Vec<u8>> {
    let mut random = Random::new(thread);
    let mut files = BTreeMap::new();
    let dir = format!("/thread{thread}");
    fs.create_dir(&dir).expect("a directory");
    let mut is_full = false;
    while !stop.load(Ordering::Relaxed) {
        let path = format!("{dir}/{}", random.below(40));
        // As many as there is room for.
        if is_full || random.below(3) == 0 {
            if files.remove(&path).is_some() {
                fs.remove_file(&path).expect("remove");
                is_full = false;
            }
            continue;
        }
        let bytes = vec![random.below(255) as u8 + 1; random.below(60_000) as usize];
        match fs.write(&path, &bytes).map_err(Error::into_cause) {
            Ok(()) => drop(files.insert(path.clone(), bytes)),
            Err(Error::NoSpace) => {
                is_full = true;
                // What is left of it.
                if files.remove(&path).is_some() || fs.read(&path).is_ok() {
                    fs.remove_file(&path).expect("remove");
                }
            }
            Err(error) => panic!("{path}: {error}"),
        }
        if random.below(20) == 0 {
            fs.sync().expect("sync");
        }
    }
    files
}

#[test]
fn a_disk_in_use_grows_and_what_it_gets_is_used() {
    if !extant_testing::has_threads() {
        return;
    }
    for (arguments, sizes) in CASES {
        let Some(image) = Image::made(sizes[0] * MIB, arguments) else { return };
        let fs = Mount::new().open(&image.path).expect("mount");
        fill(&fs, 1, 20);
        let tree = contents(&fs);
        let stop = AtomicBool::new(false);
        let files: Vec<_> = std::thread::scope(|scope| {
            let worker = |thread| {
                let (fs, stop) = (&fs, &stop);
                scope.spawn(move || work(fs, thread, stop))
            };
            let workers: Vec<_> = (0..3).map(worker).collect();
            for size in &sizes[1..] {
                std::thread::sleep(std::time::Duration::from_millis(60));
                let free = fs.statistics();
                let grown = fs.grow(size * MIB).unwrap_or_else(|e| panic!("{arguments:?} to {size}: {e}"));
                assert!(grown.to_bytes > grown.from_bytes && grown.to_bytes <= size * MIB, "{grown:?}");
                assert!(fs.statistics().blocks > free.blocks && fs.statistics().inodes >= free.inodes);
            }
            std::thread::sleep(std::time::Duration::from_millis(60));
            stop.store(true, Ordering::Relaxed);
            workers.into_iter().map(|worker| worker.join().expect("a worker")).collect()
        });
        // More than the disk had room for at first.
        let large = vec![9; 1 << 20];
        let count = (sizes.last().expect("a size") / 2).min(200);
        (0..count).for_each(|number| fs.write(format!("/large{number}"), &large).expect("room"));
        let inodes = fs.statistics().free_inodes.min(5000);
        (0..inodes).for_each(|number| fs.write(format!("/inode{number}"), b"").expect("an inode"));
        let statistics = fs.statistics();
        fs.unmount().expect("unmount");
        image.assert_clean(&format!("{arguments:?}"));

        let fs = image.mount();
        assert_eq!(fs.statistics().free_inodes, statistics.free_inodes, "{arguments:?}");
        assert_eq!(fs.statistics().blocks, statistics.blocks, "{arguments:?}");
        for (path, bytes) in tree.iter().filter(|(path, _)| !path.starts_with("/link")) {
            assert!(bytes.is_empty() || fs.read(path).expect("content") == *bytes, "{arguments:?}: {path}");
        }
        for (path, bytes) in files.iter().flatten() {
            assert!(fs.read(path).expect("content") == *bytes, "{arguments:?}: {path}");
        }
        (0..count).for_each(|number| assert!(fs.read(format!("/large{number}")).expect("content") == large));
        fs.unmount().expect("unmount");
    }
}

#[test]
fn the_image_of_a_disk_in_use_becomes_longer_and_other_sizes_are_refused() {
    let Some(image) = Image::made(40 * MIB, &["-b4096"]) else { return };
    let fs = image.mount();
    assert!(matches!(fs.grow(39 * MIB), Err(Error::OutOfRange { min, .. }) if min == 40 * MIB));
    assert_eq!(fs.grow(300 * MIB).expect("grow").to_bytes, 300 * MIB);
    assert_eq!(std::fs::metadata(&image.path).expect("the image").len(), 300 * MIB);
    assert_eq!(fs.grow(300 * MIB).expect("nothing to do").steps, 0);
    fs.unmount().expect("unmount");
    image.assert_clean("grown in use");
    let fs = Mount::new().read_only(true).open(&image.path).expect("mount");
    assert!(matches!(fs.grow(400 * MIB), Err(Error::ReadOnly)));
    assert_eq!(std::fs::metadata(&image.path).expect("the image").len(), 300 * MIB);

    let device: Arc<dyn BlockDevice> = Arc::new(image.load(310 * MIB));
    let fs = Mount::new().open_device(device).expect("mount");
    assert!(matches!(fs.grow(311 * MIB), Err(Error::OutOfRange { max, .. }) if max == 310 * MIB));
    fs.unmount().expect("unmount");
}

/// Makes files whose names say what is in them.
fn write_some(fs: &Filesystem, name: &str, count: u64) {
    for number in 0..count {
        let byte = number as u8 + 1;
        fs.write(format!("/{name}-{byte}"), vec![byte; 3000 * number as usize]).expect("a file");
        if number % 4 == 0 {
            fs.sync().expect("sync");
        }
    }
}

/// What is wrong with the tree of a crashed disk: `tree` is whole, and other files have bytes of their own only.
fn check_tree(device: Arc<MemoryDevice>, tree: &[(String, Vec<u8>)]) -> Result<(), String> {
    let fs = Mount::new().read_only(true).open_device(device).map_err(|e| format!("reading: {e}"))?;
    let found: BTreeMap<_, _> = contents(&fs).into_iter().collect();
    if let Some((path, _)) = tree.iter().find(|(path, bytes)| found.get(path) != Some(bytes)) {
        return Err(format!("{path} is not as it was"));
    }
    let is_own = |(path, bytes): (&String, &Vec<u8>)| {
        let own = path.rsplit_once('-').and_then(|(_, byte)| byte.parse().ok());
        own.is_none_or(|own: u8| bytes.iter().all(|byte| *byte == own))
    };
    match found.iter().find(|file| !is_own(*file)) {
        Some((path, _)) => Err(format!("{path} has bytes of another")),
        None => Ok(()),
    }
}

#[test]
fn every_crash_of_a_disk_that_grows_in_use_leaves_it_whole() {
    if !extant_testing::has_threads() {
        return;
    }
    let scale = extant_testing::crash_scale();
    let cases: &[(&[&str], u64, u64)] = &[
        (&["-b1024", "-g2048", "-N2048", "-Jsize=1"], 7 * MIB, 15 * MIB),
        (&["-b1024", "-g1024", "-N2048", "-Jsize=1", "-Eresize=18000"], 12 * MIB, 40 * MIB),
        (&["-b1024", "-g1024", "-N2048", "-Jsize=1", "-Ofast_commit"], 8 * MIB, 14 * MIB),
    ];
    let (mut images, mut judged) = (0, 0);
    for (arguments, before, after) in cases {
        let Some(image) = Image::made(*before, arguments) else { return };
        let fs = image.mount();
        fill(&fs, 7, 12);
        let tree = contents(&fs);
        fs.unmount().expect("unmount");
        let recorder = Arc::new(Recorder::over(image.load(*after)));
        let fs = Mount::new().background(false).open_device(recorder.clone()).expect("mount");
        std::thread::scope(|scope| {
            scope.spawn(|| write_some(&fs, "beside", 16));
            fs.grow((before + after) / 2).expect("grow");
            write_some(&fs, "between", 6);
            fs.grow(*after).expect("grow");
            write_some(&fs, "behind", 6);
        });
        drop(fs);
        let log = recorder.log();
        let mut random = Random::new(*before);
        let mut cursor = log.cursor();
        for events in 0..=log.events().len() {
            cursor.advance_to(events).expect("advance");
            for survival in 0..2 + scale.pow(4) {
                let cut = cursor.crash_image(Tearing::Sectors, |_| survives(&mut random, survival));
                let cut = cut.expect("an image");
                images += 1;
                let case =
                    || format!("{arguments:?}, {events} of {}, survival {survival}", log.events().len());
                let cut = Arc::new(cut);
                check_tree(cut.clone(), &tree).unwrap_or_else(|what| panic!("{}: {what}", case()));
                if random.below(10 * (2 + scale.pow(4))) == 0 {
                    judged += 1;
                    let fs = Mount::new().open_device(Arc::new(cut.snapshot())).and_then(Filesystem::unmount);
                    fs.unwrap_or_else(|what| panic!("{}: {what}", case()));
                    image.store(&cut);
                    if survival < 2 {
                        // It reports with its status that it replayed the log.
                        let _ = run("e2fsck", &["-fy", text(&image.path)]);
                        image.assert_clean(&case());
                        let fs = image.mount();
                        fs.unmount().expect("unmount");
                    }
                    let again = Arc::new(cut.snapshot());
                    let device: Arc<dyn BlockDevice> = again.clone();
                    Mount::new().grow_device(&device, *after).unwrap_or_else(|e| panic!("{}: {e}", case()));
                    image.store(&again);
                    image.assert_clean(&case());
                    check_tree(again, &tree).unwrap_or_else(|what| panic!("{}: again: {what}", case()));
                }
            }
        }
    }
    println!("explored: {images} crash images, {judged} judged by e2fsck too");
}
