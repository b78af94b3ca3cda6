//! Inode tables that mkfs left to be initialised lazily hold whatever the device held before.

use std::process::Command;

use extant::Mount;

#[test]
fn unwritten_inode_tables_are_zeroed_as_they_come_into_use() {
    let scratch = tempfile::tempdir().expect("scratch");
    for options in [["-b", "1024"], ["-b", "4096"]] {
        let image = scratch.path().join("disk.img");
        std::fs::write(&image, vec![0xDB; 96 << 20]).expect("a used device");
        let made = Command::new("mke2fs")
            .args(["-q", "-F", "-t", "ext4", "-E", "nodiscard,lazy_itable_init=1"])
            .args(options)
            .arg(&image)
            .output()
            .expect("mke2fs runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));

        let fs = Mount::new().open(&image).expect("mount");
        for dir in 0..40 {
            fs.create_dir(format!("/{dir}")).expect("mkdir");
            for file in 0..60 {
                fs.write(format!("/{dir}/{file}"), b"x").expect("write");
            }
            fs.sync().expect("sync");
        }
        fs.unmount().expect("unmount");

        let judged = Command::new("e2fsck").arg("-fn").arg(&image).output().expect("e2fsck runs");
        let words = String::from_utf8_lossy(&judged.stdout);
        assert!(judged.status.success() && !words.contains("Fix?"), "{options:?}\n{words}");
    }
}
