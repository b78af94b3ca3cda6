//! Inode tables that mkfs left to be initialised lazily hold whatever the device held before.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use extant::Mount;

/// An image full of garbage, but for what mkfs writes.
fn lazy_image(dir: &Path, options: &[&str]) -> std::path::PathBuf {
    let image = dir.join("disk.img");
    std::fs::write(&image, vec![0xDB; 96 << 20]).expect("a used device");
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-E", "nodiscard,lazy_itable_init=1"])
        .args(options)
        .arg(&image)
        .output()
        .expect("mke2fs runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    image
}

fn assert_clean(image: &Path) {
    let judged = Command::new("e2fsck").arg("-fn").arg(image).output().expect("e2fsck runs");
    let words = String::from_utf8_lossy(&judged.stdout);
    let is_clean = judged.status.success() && !words.contains("Fix?") && !words.contains("WARNING");
    assert!(is_clean, "{words}");
}

/// How many groups say that their tables are zeroed, and how many there are.
fn zeroed(image: &Path) -> (usize, usize) {
    let said = Command::new("dumpe2fs").arg(image).output().expect("dumpe2fs runs");
    let said = String::from_utf8_lossy(&said.stdout);
    let groups = said.lines().filter(|line| line.starts_with("Group ") && line.contains("(Blocks ")).count();
    (said.matches("ITABLE_ZEROED").count(), groups)
}

#[test]
fn unwritten_inode_tables_are_zeroed_as_they_come_into_use() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("scratch");
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

        assert_clean(&image);
    }
}

#[test]
fn unwritten_inode_tables_are_zeroed_in_the_background_of_a_long_mount() {
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("scratch");
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
    assert_clean(&image);
    let scratch = scratch.path().join("mount");
    std::fs::create_dir(&scratch).expect("a directory");
    let mounted = Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&scratch).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        return println!("skipped: the kernel does not mount here");
    }
    (0..500).for_each(|file| std::fs::write(scratch.join(format!("kernel-{file}")), b"y").expect("a file"));
    extant_testing::unmount(&scratch);
    assert_clean(&image);
}
