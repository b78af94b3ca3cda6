//! What stays in its place, full disks, disks that are open for reading, and dry runs.

use extant::{DefragEvent, DefragOptions, Error, Filesystem, InodeFlags, Mount};
use extant_block::BlockDevice;
use extant_rt::Arc;
use extant_testing::Random;

use crate::aged::{aged, defrag};
use crate::disk::{Image, MIB};
use crate::measure::measure;

/// Two files whose blocks lie in turn.
fn entwined(fs: &Filesystem, paths: [&str; 2], parts: u64) {
    let block = u64::from(fs.statistics().block_size);
    let files = paths.map(|path| fs.options().write(true).create(true).open(path).expect("a file"));
    for part in (0..parts).rev() {
        for (file, byte) in files.iter().zip(1..) {
            file.write_all_at(&vec![byte; block as usize], part * block).expect("a block");
        }
    }
}

fn extents(fs: &Filesystem, path: &str) -> Vec<u64> {
    let file = fs.lookup(path).expect("the file");
    file.extents(0, u64::MAX >> 1).expect("extents").iter().map(|extent| extent.start.0).collect()
}

/// What a run reports, by path.
fn told(fs: &Filesystem, options: &DefragOptions) -> Vec<(String, String)> {
    let mut told = Vec::new();
    fs.defrag("/", options, &mut |event| {
        match event {
            DefragEvent::File { path, .. } => told.push((path.display().to_string(), "moved".to_owned())),
            DefragEvent::Left { path, reason } => told.push((path.display().to_string(), reason.to_owned())),
            DefragEvent::Failed { path, error } => told.push((path.display().to_string(), error.to_string())),
            _ => {}
        }
        true
    })
    .expect("defragment");
    told.sort();
    told
}

#[test]
fn immutable_files_and_swap_files_stay_where_they_are() {
    let Some(image) = Image::made(16 * MIB, &["-b1024"]) else { return };
    let fs = image.mount();
    entwined(&fs, ["/immutable", "/plain"], 40);
    entwined(&fs, ["/swap", "/swapped"], 40);
    fs.write("/append", vec![1; 9000]).expect("a file");
    let swap = fs.options().write(true).open("/swap").expect("the file");
    swap.write_all_at(b"SWAPSPACE2", 4096 - 10).expect("a signature");
    let flags = InodeFlags::EXTENTS | InodeFlags::IMMUTABLE;
    fs.lookup("/immutable").expect("the file").set_flags(flags).expect("flags");
    let places = ["/immutable", "/swap"].map(|path| extents(&fs, path));
    assert!(places.iter().all(|place| place.len() > 10), "{places:?}");
    let told = told(&fs, &DefragOptions::default());
    assert_eq!(["/immutable", "/swap"].map(|path| extents(&fs, path)), places);
    assert_eq!(extents(&fs, "/plain").len(), 1);
    assert_eq!(extents(&fs, "/swapped").len(), 1);
    let reasons: Vec<_> = told.iter().map(|(path, said)| (path.as_str(), said.as_str())).collect();
    assert_eq!(
        reasons,
        [
            ("/immutable", "it is immutable"),
            ("/plain", "moved"),
            ("/swap", "it is a swap file, whose blocks a kernel may have"),
            ("/swapped", "moved"),
        ]
    );
    fs.unmount().expect("unmount");
    image.assert_clean("fixed files");
}

/// Fills a disk to its last block that files may have.
fn fill(fs: &Filesystem) {
    let mut random = Random::new(7);
    for bytes_max in [200_000, 1] {
        for number in 0.. {
            let bytes = vec![1; 1024 + random.below(bytes_max) as usize];
            match fs.write(format!("/f{bytes_max}-{number}"), &bytes).map_err(Error::into_cause) {
                Ok(()) => {}
                Err(Error::NoSpace | Error::NoInodes) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn a_full_disk_is_improved_with_the_blocks_that_are_left_and_without_any_left_as_it_is() {
    // With extents a fiftieth of the blocks is kept for work that must not fail.
    for (arguments, has_room) in [
        (&["-b1024", "-m0", "-Jsize=1"][..], true),
        (&["-b1024", "-m0", "-Jsize=1", "-O^extents,^64bit,^metadata_csum,^uninit_bg"][..], false),
    ] {
        let Some(image) = Image::made(16 * MIB, arguments) else { return };
        let fs = image.mount();
        entwined(&fs, ["/one", "/two"], 60);
        entwined(&fs, ["/large", "/larger"], 800);
        fill(&fs);
        let before = measure(&fs);
        let told = told(&fs, &DefragOptions::default());
        let after = measure(&fs);
        println!("{before:?}\n{after:?}\n{told:?}");
        assert!(before.runs > before.needed + 1500 && (before.free_blocks > 8) == has_room, "{before:?}");
        if has_room {
            assert!(before.longest_free < 400 && after.runs < after.needed + 20, "{after:?}");
        } else {
            assert_eq!(after.runs, before.runs);
            let left = |path: &str| told.iter().any(|(at, said)| at == path && said != "moved");
            assert!(["/one", "/two", "/large", "/larger"].iter().all(|path| left(path)), "{told:?}");
        }
        for (path, byte) in [("/one", 1), ("/two", 2), ("/large", 1), ("/larger", 2)] {
            assert!(fs.read(path).expect("content").iter().all(|found| *found == byte), "{path}");
        }
        fs.unmount().expect("unmount");
        image.assert_clean("a full disk");
    }
}

#[test]
fn a_dry_run_tells_what_is_done_and_writes_nothing() {
    let Some(image) = Image::made(32 * MIB, &["-b4096"]) else { return };
    aged(&image, 3).unmount().expect("unmount");
    let bytes = std::fs::read(&image.path).expect("the image");
    let fs = Mount::new().read_only(true).open(&image.path).expect("mount");
    let planned = fs.defrag("/", &DefragOptions { dry_run: true }, &mut |_| true).expect("a dry run");
    assert!(matches!(fs.defrag("/", &DefragOptions::default(), &mut |_| true), Err(Error::ReadOnly)));
    drop(fs);
    assert!(std::fs::read(&image.path).expect("the image") == bytes, "a dry run writes");
    let fs = image.mount();
    let done = defrag(&fs);
    println!("planned {planned:?}\ndone {done:?}");
    assert_eq!((planned.directories, planned.left, planned.failed), (done.directories, 0, 0));
    assert!(planned.files.abs_diff(done.files) <= 1, "{planned:?}, {done:?}");
    assert!(planned.runs_after.abs_diff(done.runs_after) <= 4, "{planned:?}, {done:?}");
    let (one, other) = (planned.moved_bytes, done.moved_bytes);
    assert!(one.abs_diff(other) <= one.max(other) / 3, "{planned:?}, {done:?}");
}

#[test]
fn a_run_ends_when_it_is_told_to_and_the_next_completes_it() {
    let Some(image) = Image::made(32 * MIB, &["-b4096"]) else { return };
    let fs = aged(&image, 4);
    let mut cancelled = 0;
    loop {
        let mut left = 40;
        let result = fs.defrag("/", &DefragOptions::default(), &mut |_| {
            left -= 1;
            left > 0
        });
        match result {
            Ok(_) => break,
            Err(error) => assert!(matches!(error, Error::Interrupted), "{error}"),
        }
        cancelled += 1;
    }
    assert!(cancelled > 3, "{cancelled}");
    let after = measure(&fs);
    assert!(after.runs <= after.needed + 2, "{after:?}");
    fs.unmount().expect("unmount");
    image.assert_clean("cancelled");
}

#[test]
fn damage_of_one_file_is_told_and_the_others_are_improved() {
    let Some(image) = Image::made(16 * MIB, &["-b1024", "-O^metadata_csum,^uninit_bg"]) else { return };
    let fs = image.mount();
    entwined(&fs, ["/good", "/bad"], 60);
    entwined(&fs, ["/fine", "/other"], 60);
    let inode = fs.lookup("/bad").expect("the file").number();
    fs.unmount().expect("unmount");
    let device = Arc::new(image.load(16 * MIB));
    let place = crate::disk::run(
        "debugfs",
        &["-R", &format!("extents <{}>", inode.0), crate::disk::text(&image.path)],
    )
    .expect("debugfs");
    // The block of the tree, of which debugfs tells in the second line: level, entries, logical, physical.
    let words: Vec<&str> =
        place.lines().nth(1).or(place.lines().nth(2)).expect("a line").split_whitespace().collect();
    println!("{place}");
    let node: u64 = words.iter().filter_map(|word| word.parse().ok()).nth(4).expect("a block");
    device.write_at(node * 1024, &[0xFF; 64]).expect("damage");
    let fs = Mount::new().background(false).open_device(device).expect("mount");
    let mut failed = Vec::new();
    fs.defrag("/", &DefragOptions::default(), &mut |event| {
        if let DefragEvent::Failed { path, error } = event {
            failed.push((path.display().to_string(), error.to_string()));
        }
        true
    })
    .expect("defragment");
    assert!(matches!(failed.as_slice(), [(path, _)] if path == "/bad"), "{failed:?}");
    assert_eq!(["/good", "/fine", "/other"].map(|path| extents(&fs, path).len()), [1, 1, 1]);
}
