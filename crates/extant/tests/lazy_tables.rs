//! Inode tables that mkfs left to be initialised lazily hold whatever the device held before.

use std::path::Path;
use std::time::Duration;

use extant::Mount;
use extant_testing::{assert_clean, run, scratch, text};

/// An image full of garbage, but for what mkfs writes.
fn lazy_image(dir: &Path, options: &[&str]) -> std::path::PathBuf {
    let image = dir.join("disk.img");
    std::fs::write(&image, vec![0xDB; 96 << 20]).expect("a used device");
    let made = ["-q", "-F", "-t", "ext4", "-E", "nodiscard,lazy_itable_init=1"];
    run("mke2fs", &[&made, options, &[text(&image)]].concat()).expect("mke2fs");
    image
}

/// How many groups say that their tables are zeroed, and how many there are.
fn zeroed(image: &Path) -> (usize, usize) {
    let said = run("dumpe2fs", &[text(image)]).expect("dumpe2fs");
    let groups = said.lines().filter(|line| line.starts_with("Group ") && line.contains("(Blocks ")).count();
    (said.matches("ITABLE_ZEROED").count(), groups)
}

#[test]
fn unwritten_inode_tables_are_zeroed_as_they_come_into_use() {
    let scratch = scratch();
    for options in [["-b", "1024"], ["-b", "4096"]] {
        let image = lazy_image(scratch.path(), &options);
        let fs = Mount::new().open(&image).expect("mount");
        for dir in 0..40 {
            fs.create_dir(format!("/{dir}")).expect("mkdir");
            for file in 0..60 {
                fs.write(format!("/{dir}/{file}"), b"x").expect("write");
            }
            fs.sync().expect("sync");
        }
        fs.unmount().expect("unmount");
        assert_clean(&image, "filled");
    }
}

#[test]
fn unwritten_inode_tables_are_zeroed_in_the_background_of_a_long_mount() {
    if !extant_testing::has_threads() {
        return;
    }
    let scratch = scratch();
    let image = lazy_image(scratch.path(), &["-b", "1024"]);
    assert_eq!(zeroed(&image), (0, 12));
    let fs = Mount::new().read_only(true).open(&image).expect("mount");
    extant_rt::sleep(Duration::from_millis(100));
    fs.unmount().expect("unmounted");
    assert_eq!(zeroed(&image).0, 0, "a mount for reading zeroed tables");

    let fs = Mount::new().open(&image).expect("mount");
    for file in 0.. {
        fs.write(format!("/{file}"), b"x").expect("write");
        let progress = fs.table_initialisation();
        if progress.seen == 12 {
            assert_eq!((progress.zeroed, progress.skipped), (12, 0));
            break;
        }
        assert!(file < 2400, "{progress:?} after two minutes");
        extant_rt::sleep(Duration::from_millis(50));
    }
    fs.unmount().expect("unmount");
    assert_eq!(zeroed(&image), (12, 12));
    assert_clean(&image, "zeroed");
    #[cfg(target_os = "linux")]
    fill_by_kernel(&image);
}

/// The kernel uses the tables.
#[cfg(target_os = "linux")]
fn fill_by_kernel(image: &Path) {
    let point = image.with_file_name("mount");
    std::fs::create_dir(&point).expect("a directory");
    if run("mount", &["-o", "loop", text(image), text(&point)]).is_err() {
        return println!("skipped: the kernel does not mount here");
    }
    (0..500).for_each(|file| std::fs::write(point.join(format!("kernel-{file}")), b"y").expect("a file"));
    extant_testing::unmount(&point);
    assert_clean(image, "filled by the kernel");
}
