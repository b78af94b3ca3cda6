//! Disks that grow while they are mounted.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use crate::claimed::disk_on_loop;
use crate::common::{Disk, can_mount, extant, path, run};

const MIB: u64 = 1 << 20;

fn blocks(disk: &Disk) -> u64 {
    rustix::fs::statvfs(&disk.point).expect("statvfs").f_blocks
}

#[test]
fn a_mounted_disk_grows_while_files_are_written() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    disk.mount("rw");
    let before = blocks(&disk);
    let point = disk.point.clone();
    fs::write(point.join("first"), vec![1; 20 << 20]).expect("a file");
    let writer = std::thread::spawn(move || {
        for number in 0..200_u8 {
            let file = point.join(format!("beside{number}"));
            fs::write(&file, vec![number; 40_000]).expect("a file");
            if number % 3 == 0 {
                fs::remove_file(&file).expect("remove");
            }
        }
    });
    for size in ["100M", "600M", "3G"] {
        let said = run(&["resize".as_ref(), disk.point.as_os_str(), size.as_ref()]);
        assert!(said.contains(": has "), "{said}");
    }
    writer.join().expect("the writer");
    assert!(blocks(&disk) > before * 40, "{} blocks, before {before}", blocks(&disk));
    assert_eq!(fs::metadata(&disk.image).expect("the image").len(), 3 << 30);
    // More than there was room for.
    (0..4).for_each(|n| fs::write(disk.point.join(format!("large{n}")), vec![7; 50 << 20]).expect("room"));
    for size in ["1G", "0"] {
        let refused = extant(&["resize".as_ref(), disk.point.as_os_str(), size.as_ref()]);
        let words = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(1) && words.contains("smaller than it is"), "{words}");
    }
    disk.umount();
    disk.mount("ro");
    assert!(fs::read(disk.point.join("first")).expect("content") == vec![1; 20 << 20]);
    for number in (0..200_u8).filter(|number| number % 3 != 0) {
        let file = disk.point.join(format!("beside{number}"));
        assert!(fs::read(file).expect("content") == vec![number; 40_000], "beside{number}");
    }
    assert!(blocks(&disk) * 4096 > 2900 * MIB);
    disk.finish();
}

#[test]
fn resize2fs_grows_a_device_that_extant_has_mounted() {
    let Some((disk, _device, backing)) = disk_on_loop() else { return };
    disk.mount("rw");
    let tool =
        |name: &str, arguments: &[&OsStr]| Command::new(name).args(arguments).env("PATH", path()).output();
    fs::write(disk.point.join("file"), vec![5; 30 << 20]).expect("a file");
    let image = fs::File::options().write(true).open(&backing.image).expect("the image");
    image.set_len(400 * MIB).expect("longer");
    let told = tool("losetup", &["--set-capacity".as_ref(), disk.image.as_os_str()]).expect("losetup");
    assert!(told.status.success(), "{told:?}");
    let Ok(grown) = tool("resize2fs", &[disk.image.as_os_str()]) else {
        println!("skipped: no resize2fs");
        return;
    };
    let words = String::from_utf8_lossy(&grown.stdout).into_owned();
    assert!(grown.status.success() && words.contains("102400 (4k) blocks"), "{grown:?}");
    fs::write(disk.point.join("large"), vec![6; 200 << 20]).expect("room");
    disk.umount();
    disk.mount("ro");
    assert!(fs::read(disk.point.join("file")).expect("content") == vec![5; 30 << 20]);
    assert!(fs::read(disk.point.join("large")).expect("content") == vec![6; 200 << 20]);
    disk.finish();
}
