//! Disks of all layouts become smaller, and are clean and whole after each step.

use extant::{Error, Mount, ShrinkTo, Shrunk, Tune};
use extant_block::{BlockDevice, DeviceAccess, FileDevice};
use extant_rt::Arc;

use crate::disk::{Image, MIB, run, text};
use crate::tree::{Census, age, census, difference, small};

/// Arguments of mke2fs, and sizes in MiB.
pub const CASES: &[(&[&str], u64, &[u64])] = &[
    (&["-b4096"], 600, &[300, 100]),
    (&["-b1024"], 200, &[90, 40]),
    (&["-b2048", "-O", "^flex_bg"], 300, &[150, 70]),
    (&["-b4096", "-O", "^metadata_csum,uninit_bg"], 600, &[200]),
    (&["-b1024", "-O", "^metadata_csum,^uninit_bg,^64bit"], 200, &[60]),
    (&["-b4096", "-O", "^resize_inode"], 600, &[100]),
    (&["-b1024", "-g1024", "-O", "meta_bg,^resize_inode"], 120, &[60, 30]),
    (&["-b1024", "-O", "sparse_super2"], 200, &[60]),
    (&["-b1024", "-O", "^has_journal"], 200, &[40]),
    (&["-b1024", "-O", "^has_journal,^extents,^64bit,^flex_bg,^metadata_csum"], 200, &[50]),
    (&["-b1024", "-O", "fast_commit,orphan_file"], 200, &[60]),
    (&["-b1024", "-I512", "-O", "inline_data,ea_inode,large_dir"], 200, &[60]),
    (&["-b1024", "-g2048", "-N4096", "-Jsize=2"], 120, &[60, 30]),
    (&["-b1024", "-g2048", "-N4096", "-I256", "-Oquota,project"], 120, &[60, 30]),
];

impl Image {
    /// Makes the file system smaller.
    pub fn shrink(&self, to: ShrinkTo) -> extant::Result<Shrunk> {
        let device = FileDevice::open(&self.path, DeviceAccess::read_write())?;
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        Mount::new().shrink_device(&device, to, &mut |_| true)
    }

    /// Cuts the file to the file system.
    pub fn cut(&self, shrunk: &Shrunk) {
        let file = std::fs::OpenOptions::new().write(true).open(&self.path).expect("the image");
        file.set_len(shrunk.to_bytes).expect("a length");
    }
}

#[test]
fn every_layout_becomes_smaller_and_is_clean_and_whole_after_each_step() {
    for (arguments, size, sizes) in CASES {
        let Some(image) = Image::made(size * MIB, arguments) else { return };
        let fs = image.mount();
        age(&fs, *size, 150, 60_000);
        let tree = census(&fs).expect("a census");
        fs.unmount().expect("unmount");
        let steps = sizes.iter().map(|size| ShrinkTo::Bytes(size * MIB)).chain([ShrinkTo::Minimum]);
        for to in steps {
            let case = format!("{arguments:?} to {to:?}");
            let shrunk = image.shrink(to).unwrap_or_else(|e| panic!("{case}: {e}"));
            println!("{case}: {shrunk:?}");
            image.cut(&shrunk);
            if let ShrinkTo::Bytes(bytes) = to {
                assert!(shrunk.to_bytes <= bytes && shrunk.to_bytes > bytes - 8 * MIB, "{case}: {shrunk:?}");
            }
            image.assert_clean(&case);
            let fs = image.mount();
            let other = difference(&tree, &census(&fs).expect("a census"));
            assert!(other.is_none(), "{case}: {other:?}");
            fs.unmount().expect("unmount");
        }
    }
}

#[test]
fn values_with_inodes_of_their_own_move_with_what_refers_to_them() {
    let arguments = ["-b1024", "-g2048", "-N4096", "-Oea_inode"];
    let Some(image) = Image::made(60 * MIB, &arguments) else { return };
    let fs = image.mount();
    age(&fs, 3, 120, 20_000);
    fs.unmount().expect("unmount");
    let value = image.path.with_extension("value");
    std::fs::write(&value, vec![9; 30_000]).expect("a value");
    for number in (0..120).filter(|number| number % 3 == 0) {
        let request = format!("ea_set -f {} /d{}/f{number} user.large", text(&value), number % 12);
        run("debugfs", &["-w", "-R", &request, text(&image.path)]).expect("debugfs");
    }
    // debugfs counts no block for them.
    let _ = run("e2fsck", &["-fy", text(&image.path)]);
    image.assert_clean("with values in inodes");
    let tree = census(&image.mount()).expect("a census");
    for to in [ShrinkTo::Bytes(30 * MIB), ShrinkTo::Minimum] {
        let shrunk = image.shrink(to).expect("shrink");
        println!("{to:?}: {shrunk:?}");
        assert!(shrunk.moved_inodes > 0, "{shrunk:?}");
        image.cut(&shrunk);
        image.assert_clean("made smaller");
        let fs = image.mount();
        assert_eq!(difference(&tree, &census(&fs).expect("a census")), None);
        fs.unmount().expect("unmount");
    }
}

#[test]
fn resize2fs_goes_on_where_shrinking_ended_and_the_other_way_round() {
    for (arguments, size, _) in CASES.iter().take(8).step_by(2) {
        let Some(image) = Image::made(size * MIB, arguments) else { return };
        let fs = image.mount();
        age(&fs, *size, 80, 30_000);
        let tree = census(&fs).expect("a census");
        fs.unmount().expect("unmount");
        let theirs = |size: &str| {
            let said = run("resize2fs", &["-f", text(&image.path), size]);
            said.unwrap_or_else(|said| panic!("{arguments:?}, {size}: {said}"));
            image.assert_clean(&format!("{arguments:?}, by resize2fs to {size}"));
        };
        let ours = |to: ShrinkTo| {
            let shrunk = image.shrink(to).unwrap_or_else(|e| panic!("{arguments:?}, {to:?}: {e}"));
            image.cut(&shrunk);
            image.assert_clean(&format!("{arguments:?} to {to:?}"));
            let fs = image.mount();
            // resize2fs changes times of directories.
            let names = |census: Census| {
                census.into_iter().map(|(path, _, content)| (path, content)).collect::<Vec<_>>()
            };
            assert!(
                names(census(&fs).expect("a census")) == names(tree.clone()),
                "{arguments:?} to {to:?}: another tree"
            );
            fs.unmount().expect("unmount");
        };
        ours(ShrinkTo::Bytes(size / 2 * MIB));
        theirs(&format!("{}M", size / 3));
        ours(ShrinkTo::Minimum);
        theirs("2G");
        ours(ShrinkTo::Bytes(size / 2 * MIB));
        image.grow(3 * size * MIB).expect("grow");
        image.assert_clean("grown again");
        ours(ShrinkTo::Minimum);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_kernel_mounts_and_writes_what_was_made_smaller() {
    let Some(image) = Image::made(600 * MIB, &["-b4096"]) else { return };
    let fs = image.mount();
    age(&fs, 8, 240, 60_000);
    let names = census(&fs).expect("a census").len();
    fs.unmount().expect("unmount");
    let shrunk = image.shrink(ShrinkTo::Bytes(150 * MIB)).expect("shrink");
    image.cut(&shrunk);
    let point = image.path.with_extension("mounted");
    std::fs::create_dir(&point).expect("a folder");
    if let Err(why) = run("mount", &["-o", "loop", text(&image.path), text(&point)]) {
        println!("skipped: {why}");
        return;
    }
    let written = (0..20).try_for_each(|number| {
        let folder = point.join(number.to_string());
        std::fs::create_dir(&folder)?;
        std::fs::write(folder.join("file"), vec![1_u8; 2 << 20])
    });
    let found = run("find", &[text(&point), "-mindepth", "1"]).expect("find").lines().count();
    extant_testing::unmount(&point);
    written.expect("files of Linux");
    assert_eq!(found, names + 40);
    image.assert_clean("written by Linux");
    let shrunk = image.shrink(ShrinkTo::Minimum).expect("shrink");
    image.cut(&shrunk);
    image.assert_clean("made smaller behind Linux");
}

#[test]
fn sizes_that_cannot_be_are_refused_and_change_nothing_on_a_dry_run() {
    let Some(image) = Image::made(100 * MIB, &["-b1024"]) else { return };
    let fs = image.mount();
    age(&fs, 8, 60, 60_000);
    fs.unmount().expect("unmount");
    let before = std::fs::read(&image.path).expect("the image");
    let device: Arc<dyn BlockDevice> = Arc::new(image.load(100 * MIB));
    let plan = Mount::new().plan_shrink(&device, ShrinkTo::Minimum).expect("a plan");
    println!("{plan:?}");
    assert_eq!((plan.from_bytes, plan.to_bytes), (100 * MIB, plan.min_bytes));
    for bytes in [0, plan.min_bytes - 1024, 101 * MIB] {
        let refused = image.shrink(ShrinkTo::Bytes(bytes));
        assert!(matches!(refused, Err(Error::OutOfRange { .. })), "{bytes}: {refused:?}");
        let refused = Mount::new().plan_shrink(&device, ShrinkTo::Bytes(bytes));
        assert!(matches!(refused, Err(Error::OutOfRange { .. })), "{bytes}: {refused:?}");
    }
    let device_bytes = {
        let mut bytes = vec![0; before.len()];
        device.read_at(0, &mut bytes).expect("read");
        bytes
    };
    assert!(device_bytes == before, "a dry run writes");
    let shrunk = image.shrink(ShrinkTo::Bytes(plan.min_bytes)).expect("shrink");
    assert_eq!(shrunk.to_bytes, plan.min_bytes);
    // Nothing is left to do.
    let again = image.shrink(ShrinkTo::Bytes(plan.min_bytes)).expect("shrink");
    assert_eq!((again.from_bytes, again.to_bytes, again.moved_bytes), (plan.min_bytes, plan.min_bytes, 0));
}

#[test]
fn bitmaps_and_inode_tables_of_groups_that_stay_move_before_the_new_end() {
    // Of all 64 or 256 groups of a flex group the bitmaps lie before the first inode table.
    let cases: &[&[&str]] = &[
        &["-b1024", "-G64", "-O^has_journal"],
        &["-b1024", "-G256", "-O^has_journal,^metadata_csum,^uninit_bg"],
        &["-b1024", "-g1024", "-G64", "-O^has_journal"],
        &["-b1024", "-N8192", "-O^has_journal,^resize_inode"],
        &["-b1024", "-N8192", "-Jsize=1", "-O^resize_inode"],
    ];
    for arguments in cases {
        let Some(image) = Image::made(200 * MIB, arguments) else { return };
        if arguments.contains(&"-N8192") {
            crate::shrink_crash::grow_by_resize2fs(&image);
        }
        let fs = image.mount();
        small(&fs, 3);
        let tree = census(&fs).expect("a census");
        fs.unmount().expect("unmount");
        let before = run("dumpe2fs", &[text(&image.path)]).expect("dumpe2fs");
        let shrunk = image.shrink(ShrinkTo::Minimum).unwrap_or_else(|e| panic!("{arguments:?}: {e}"));
        println!("{arguments:?}: {shrunk:?}");
        image.cut(&shrunk);
        image.assert_clean(&format!("{arguments:?}"));
        let places = |said: &str| {
            let group = said.split("Group 0:").nth(1).unwrap_or_default();
            group.lines().filter(|it| it.contains(" at ")).take(3).map(str::to_owned).collect::<Vec<_>>()
        };
        let after = run("dumpe2fs", &[text(&image.path)]).expect("dumpe2fs");
        assert_ne!(places(&before), places(&after), "{arguments:?}: nothing had to move");
        let fs = image.mount();
        assert_eq!(difference(&tree, &census(&fs).expect("a census")), None, "{arguments:?}");
        fs.remove_file("/d0/sub/f2").expect("the file");
        fs.write("/more", vec![1; 2000]).expect("a file");
        fs.unmount().expect("unmount");
        image.assert_clean(&format!("{arguments:?}, written"));
    }
}

#[test]
fn journals_that_are_mapped_by_block_numbers_move() {
    for becomes_extents in [false, true] {
        let arguments = ["-b1024", "-g2048", "-O^has_journal,^extents,^64bit,^metadata_csum"];
        let Some(image) = Image::made(60 * MIB, &arguments) else { return };
        crate::shrink_crash::add_journal_behind(&image);
        if becomes_extents {
            run("tune2fs", &["-Oextents", text(&image.path)]).expect("tune2fs");
        }
        let fs = image.mount();
        small(&fs, 3);
        let tree = census(&fs).expect("a census");
        fs.unmount().expect("unmount");
        for to in [ShrinkTo::Bytes(10 * MIB), ShrinkTo::Minimum] {
            let shrunk = image.shrink(to).expect("shrink");
            image.cut(&shrunk);
            image.assert_clean(&format!("{to:?}"));
            let said = run("debugfs", &["-R", "stat <8>", text(&image.path)]).expect("debugfs");
            assert_eq!(said.contains("EXTENTS:"), becomes_extents, "{said}");
            let fs = image.mount();
            assert_eq!(difference(&tree, &census(&fs).expect("a census")), None, "{to:?}");
            fs.unmount().expect("unmount");
        }
    }
}

#[test]
fn quota_files_move_and_count_on() {
    let arguments = ["-b1024", "-g2048", "-N4096", "-Jsize=1", "-Oquota"];
    let Some(image) = Image::made(60 * MIB, &arguments) else { return };
    let fs = image.mount();
    // What the quota files grow by lies behind it.
    fs.write("/large", vec![1; 45 << 20]).expect("a file");
    for id in 1..400 {
        let path = format!("/f{id}");
        fs.write(&path, b"x").expect("a file");
        fs.set_owner(&path, id, id).expect("an owner");
    }
    fs.remove_file("/large").expect("the file");
    let tree = census(&fs).expect("a census");
    fs.unmount().expect("unmount");
    let last_block = || {
        let blocks = run("debugfs", &["-R", "blocks <3>", text(&image.path)]).expect("debugfs");
        blocks.split_whitespace().filter_map(|block| block.parse::<u64>().ok()).max()
    };
    let end = 10 * MIB / 1024;
    assert!(last_block() >= Some(end), "{:?}", last_block());
    let shrunk = image.shrink(ShrinkTo::Bytes(10 * MIB)).expect("shrink");
    image.cut(&shrunk);
    image.assert_clean("made smaller");
    assert!(last_block() < Some(end), "{:?}", last_block());
    let fs = image.mount();
    assert_eq!(difference(&tree, &census(&fs).expect("a census")), None);
    (1..200).for_each(|id| fs.remove_file(format!("/f{id}")).expect("the file"));
    fs.unmount().expect("unmount");
    image.assert_clean("written afterwards");
}

#[test]
fn a_block_of_multiple_mount_protection_behind_the_new_end_is_refused_and_nothing_changes() {
    if !extant_testing::has_threads() {
        return;
    }
    // It lies behind the tables of all groups, most of which go.
    let arguments = ["-b1024", "-N32768", "-Jsize=1", "-Ommp,^resize_inode"];
    let Some(image) = Image::made(60 * MIB, &arguments) else { return };
    let tune = |words: &str| {
        let tune = Tune::new().features(words).expect("a feature");
        let device = FileDevice::open(&image.path, DeviceAccess::read_write()).expect("the image");
        tune.apply(Arc::new(device)).expect("tune");
    };
    let fs = image.mount();
    small(&fs, 3);
    let tree = census(&fs).expect("a census");
    let size = ShrinkTo::Bytes(fs.superblock().s_mmp_block() * 1024);
    fs.unmount().expect("unmount");
    let before = std::fs::read(&image.path).expect("the image");
    let refused = image.shrink(size);
    let is_named = |why: &str| why.contains("multiple-mount protection") && why.contains("tune -O ^mmp");
    assert!(matches!(&refused, Err(Error::Unsupported(why)) if is_named(why)), "{refused:?}");
    assert!(std::fs::read(&image.path).expect("the image") == before, "it changed");
    // As the refusal says.
    tune("^mmp");
    let shrunk = image.shrink(size).expect("shrink");
    image.cut(&shrunk);
    tune("mmp");
    image.assert_clean("made smaller");
    let fs = image.mount();
    assert_eq!(difference(&tree, &census(&fs).expect("a census")), None);
    fs.unmount().expect("unmount");
}
