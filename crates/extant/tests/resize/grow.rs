//! Disks of all layouts grow in steps, and are clean and whole after each.

use std::time::Instant;

use extant::{Error, Mount};
use extant_block::{BlockDevice, Fault, FaultDevice, MemoryDevice, Operation};
use extant_rt::Arc;

use crate::disk::{GIB, Image, KIB, MIB, contents, fill, run, text};

/// Arguments of mke2fs, and sizes in MiB.
const CASES: &[(&[&str], &[u64])] = &[
    // A file of the host may have to be shorter than 16 TiB.
    (&["-b4096"], &[16, 100, 1024, 32 << 10, 1 << 20, (16 << 20) - 1]),
    (&["-b1024"], &[16, 33, 200, 3 << 10, 40 << 10]),
    (&["-b2048", "-O", "^flex_bg"], &[20, 90, 700, 9 << 10]),
    (&["-b4096", "-O", "^metadata_csum,uninit_bg"], &[64, 300, 20 << 10]),
    (&["-b4096", "-O", "^metadata_csum,^uninit_bg"], &[64, 300, 1024]),
    (&["-b4096", "-O", "^64bit"], &[64, 300, 20 << 10, 300 << 10]),
    (&["-b4096", "-O", "^resize_inode"], &[64, 300, 20 << 10]),
    (&["-b4096", "-O", "meta_bg,^resize_inode"], &[64, 300, 20 << 10]),
    (&["-b1024", "-g1024", "-O", "meta_bg,^resize_inode"], &[5, 9, 24, 40]),
    (&["-b4096", "-O", "sparse_super2"], &[64, 300, 20 << 10]),
    (&["-b1024", "-O", "^sparse_super,^resize_inode"], &[64, 90, 1024]),
    (&["-b4096", "-O", "^has_journal"], &[64, 300, 20 << 10]),
    (&["-b4096", "-O", "fast_commit"], &[64, 300]),
    (&["-b1024", "-E", "resize=65536"], &[40, 50, 70, 200]),
    (&["-b1024", "-g2048", "-N", "4096"], &[8, 9, 31, 64]),
];

#[test]
fn every_layout_grows_in_steps_and_is_clean_and_whole_after_each() {
    for (arguments, sizes) in CASES {
        let Some(image) = Image::made(sizes[0] * MIB, arguments) else { return };
        let fs = image.mount();
        fill(&fs, sizes[0], 40);
        let tree = contents(&fs);
        fs.unmount().expect("unmount");
        for size in &sizes[1..] {
            let case = format!("{arguments:?} to {size} MiB");
            let before = std::fs::metadata(&image.path).expect("the image").len();
            let grown = image.grow(size * MIB).unwrap_or_else(|e| panic!("{case}: {e}"));
            assert!(grown.to_bytes > before - 4 * MIB && grown.to_bytes <= size * MIB, "{case}: {grown:?}");
            image.assert_clean(&case);
            let fs = image.mount();
            assert!(contents(&fs) == tree, "{case}: another tree");
            fs.unmount().expect("unmount");
        }
        // New groups take files.
        let fs = image.mount();
        let (free, inodes) = (fs.statistics().free_blocks, fs.statistics().free_inodes);
        fs.create_dir("/new").expect("a directory");
        (0..60).for_each(|number| fs.write(format!("/new/{number}"), vec![7; 300_000]).expect("a file"));
        assert!(fs.statistics().free_blocks < free && fs.statistics().free_inodes == inodes - 61);
        fs.unmount().expect("unmount");
        image.assert_clean("written after growing");
    }
}

#[test]
fn resize2fs_goes_on_where_growing_ended_and_the_other_way_round() {
    for (arguments, sizes) in CASES.iter().take(8).step_by(2) {
        let Some(image) = Image::made(200 * MIB, arguments) else { return };
        let fs = image.mount();
        fill(&fs, 1, 40);
        let tree = contents(&fs);
        fs.unmount().expect("unmount");
        let theirs = |size: &str| {
            let said = run("resize2fs", &["-f", text(&image.path), size]);
            said.unwrap_or_else(|said| panic!("{arguments:?}, {sizes:?}, {size}: {said}"));
            image.assert_clean(&format!("{arguments:?}, by resize2fs to {size}"));
        };
        image.grow(500 * MIB).expect("grow");
        theirs("1300M");
        image.grow(2 * GIB).expect("grow");
        image.assert_clean("grown behind resize2fs");
        theirs("300M");
        image.grow(900 * MIB).expect("grow");
        image.assert_clean("grown again where resize2fs cut");
        let fs = image.mount();
        assert!(contents(&fs) == tree, "{arguments:?}: another tree");
        fs.unmount().expect("unmount");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_kernel_mounts_and_writes_what_grew() {
    let Some(image) = Image::made(100 * MIB, &["-b4096"]) else { return };
    image.grow(3 * GIB).expect("grow");
    let point = image.path.with_extension("mounted");
    std::fs::create_dir(&point).expect("a folder");
    if let Err(why) = run("mount", &["-o", "loop", text(&image.path), text(&point)]) {
        println!("skipped: {why}");
        return;
    }
    let written = (0..40).try_for_each(|number| {
        let folder = point.join(number.to_string());
        std::fs::create_dir(&folder)?;
        std::fs::write(folder.join("file"), vec![1_u8; 8 << 20])
    });
    extant_testing::unmount(&point);
    written.expect("files of Linux");
    image.assert_clean("written by Linux");
    image.grow(4 * GIB).expect("grow");
    image.assert_clean("grown behind Linux");
}

#[test]
fn growth_from_4_to_30_gib_costs_few_flushes_and_little_time() {
    let Some(image) = Image::made(4 * GIB, &["-b4096"]) else { return };
    let flushes = |device: &FaultDevice<MemoryDevice>| {
        [Operation::Flush, Operation::WriteFua].map(|operation| device.count(operation)).iter().sum::<u64>()
    };
    let device = Arc::new(FaultDevice::new(image.load(30 * GIB), |_| Fault::None));
    let start = Instant::now();
    let wide: Arc<dyn BlockDevice> = device.clone();
    let grown = Mount::new().grow_device(&wide, 30 * GIB).expect("grow");
    let (took, flushes) = (start.elapsed(), flushes(&device));
    println!("measured: 4 to 30 GiB in {took:?} with {flushes} flushes and durable writes; {grown:?}");
    assert_eq!((grown.to_bytes, grown.steps), (30 * GIB, 1));
    assert!(flushes <= 10, "{flushes} flushes");
}

#[test]
fn sizes_that_cannot_be_are_refused_and_change_nothing() {
    let Some(image) = Image::made(64 * MIB, &["-b4096", "-O", "^64bit"]) else { return };
    let device: Arc<dyn BlockDevice> = Arc::new(image.load(20 << 40));
    let grow = |bytes| Mount::new().grow_device(&device, bytes);
    let start = || {
        let mut start = vec![0; (4 * MIB) as usize];
        device.read_at(0, &mut start).expect("read");
        start
    };
    let before = start();
    assert!(matches!(grow(21 << 40), Err(Error::OutOfRange { .. })));
    assert!(start() == before, "not even the time of a mount is written for what the device has no room for");
    for bytes in [0, 63 * MIB] {
        assert!(matches!(grow(bytes), Err(Error::OutOfRange { .. })), "{bytes}");
    }
    assert!(matches!(grow(17 << 40), Err(Error::Unsupported(why)) if why.contains("64bit")));
    // A last group that would be too short for its metadata is left out, and less than a block is nothing.
    let grown = grow(128 * MIB + 64 * KIB).expect("grow");
    assert_eq!((grown.to_bytes, grown.steps), (128 * MIB, 1));
    let grown = grow(128 * MIB + 64 * KIB).expect("grow");
    assert_eq!((grown.to_bytes, grown.steps), (128 * MIB, 0));
}
