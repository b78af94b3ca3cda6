//! A mount is defragmented while programs use it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::common::{Disk, can_mount, run};

#[test]
fn a_mounted_disk_is_defragmented_while_files_are_written() {
    if !can_mount() {
        return;
    }
    let disk = Disk::new("64M");
    disk.mount("rw");
    let content = |number: usize| vec![number as u8 | 1; 400_000];
    // Two at a time, block by block from the end, so that each lies in many parts.
    let entwine = |from: usize| {
        let files: Vec<File> = (from..from + 2)
            .map(|n| File::create(disk.point.join(format!("f{n}"))).expect("a file"))
            .collect();
        for part in (0..400_000_u64.div_ceil(4096)).rev() {
            for (at, file) in files.iter().enumerate() {
                let own = content(from + at);
                let range = part as usize * 4096..own.len().min((part as usize + 1) * 4096);
                file.write_all_at(&own[range], part * 4096).expect("a part");
                file.sync_data().expect("sync");
            }
        }
    };
    (0..6).step_by(2).for_each(entwine);
    fs::create_dir(disk.point.join("many")).expect("a directory");
    let name = |number: u32| disk.point.join(format!("many/a-name-with-some-room-{number}"));
    (0..1500).for_each(|number| drop(File::create(name(number)).expect("a file")));
    (0..1500)
        .filter(|number| number % 50 != 0)
        .for_each(|number| fs::remove_file(name(number)).expect("a name"));
    let size = || fs::metadata(disk.point.join("many")).expect("metadata").len();
    let large = size();
    let planned = run(&["defrag".as_ref(), "--dry-run".as_ref(), disk.point.as_os_str()]);
    assert!(planned.contains(": would be: ") && size() == large, "{planned}");
    let point = disk.point.clone();
    let writer = std::thread::spawn(move || {
        let file = File::options().read(true).write(true).open(point.join("f0")).expect("the file");
        for round in 0..60_u64 {
            file.write_all_at(&[round as u8; 5000], round * 6000).expect("a write");
        }
    });
    let said = run(&["defrag".as_ref(), disk.point.as_os_str()]);
    writer.join().expect("the writer");
    println!("{planned}{said}");
    assert!(said.contains(" files and 1 directories in "), "{said}");
    assert!(size() < large, "{large} bytes of names stay");
    assert_eq!(fs::read_dir(disk.point.join("many")).expect("names").count(), 30);
    for number in 1..6 {
        assert!(
            fs::read(disk.point.join(format!("f{number}"))).expect("content") == content(number),
            "f{number}"
        );
    }
    disk.umount();
    let again = run(&["defrag".as_ref(), "--dry-run".as_ref(), disk.image.as_os_str()]);
    assert!(again.contains("would be: 0 files and 0 directories"), "{again}");
    disk.mount("ro");
    let file = fs::read(disk.point.join("f0")).expect("content");
    for round in 0..60_usize {
        assert!(
            file[round * 6000..round * 6000 + 5000].iter().all(|byte| *byte == round as u8),
            "round {round}"
        );
    }
    disk.finish();
}
