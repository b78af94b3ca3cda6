//! Images: partitions, offsets, other formats, locks.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

use crate::common::{Bench, bytes, has_tools};

const PARTITION_OFFSET: u64 = 1 << 20;

/// An image with an MBR whose second partition holds a file system of 16 MiB.
fn partitioned() -> Bench {
    let bench = Bench::new();
    bench.run("mkfs -q -L inner fs.img 16M");
    let mut disk = vec![0; PARTITION_OFFSET as usize + (16 << 20)];
    let entry = &mut disk[446 + 16..446 + 32];
    entry[4] = 0x83;
    entry[8..12].copy_from_slice(&2048_u32.to_le_bytes());
    entry[12..16].copy_from_slice(&32768_u32.to_le_bytes());
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk[PARTITION_OFFSET as usize..].copy_from_slice(&bytes(bench.path("fs.img")));
    bench.write("disk.img", disk);
    bench
}

#[test]
fn partitions_are_reached_by_number_and_by_offset() {
    let bench = partitioned();
    let said = bench.fail(1, "ls disk.img");
    assert!(said.contains("--partition") && said.contains("2 (16 MiB at byte 1048576)"), "{said}");
    bench.write("f", "inside");
    bench.run("cp --partition 2 f disk.img:/f");
    assert_eq!(bench.run("cat --offset 1048576 disk.img:/f"), "inside");
    assert_eq!(bench.run("cat --offset 1M disk.img:/f"), "inside");
    assert!(bench.fail(1, "ls --partition 1 disk.img").contains("there are 2"));
    assert!(bench.fail(1, "ls --partition 1 fs.img").contains("no partition table"));
    assert!(bench.fail(1, "ls --offset 1G disk.img").contains("disk.img"));
    bench.fail(2, "ls --offset 1M --partition 2 disk.img");
    bench.shell("tail -c +1048577 disk.img > part.img");
    bench.assert_clean("part.img");
    assert!(bench.fail(1, "mkfs disk.img").contains("partition table"));
    assert!(bench.fail(1, "mkfs --partition 2 disk.img").contains("an ext4 file system"));
    bench.run("mkfs -F -q -L fresh --partition 2 disk.img");
    assert_eq!(bench.json("info --json --partition 2 disk.img")["label"], "fresh");
    assert_eq!(bytes(bench.path("disk.img"))[510..512], [0x55, 0xaa], "the table stays");
}

#[test]
fn other_formats_are_named_with_the_way_out() {
    let bench = Bench::new();
    bench.write("q.img", [b"QFI\xfb\0\0\0\x03".as_slice(), &[0; 4096]].concat());
    let said = bench.fail(1, "ls q.img");
    assert!(said.contains("qcow2") && said.contains("qemu-nbd"), "{said}");
    bench.write("z.img", vec![0; 65536]);
    assert!(bench.fail(1, "ls z.img").contains("no ext4 file system"));
    bench.write("short.img", "x");
    assert!(bench.fail(1, "ls short.img").contains("no ext4 file system"));
    bench.write("empty.img", "");
    bench.fail(1, "info empty.img");
    assert!(bench.fail(1, "ls .").contains("neither a file nor a block device"));
    assert!(bench.fail(1, "ls /dev/null").contains("/dev/null"));
}

#[test]
fn two_writers_exclude_each_other_and_readers_wait_for_none() {
    if !has_tools(&["sh"]) {
        return;
    }
    let bench = Bench::new();
    bench.run("mkfs -q disk.img 16M");
    // It holds the disk for as long as its archive does not end.
    let mut writer =
        bench.command("import disk.img -").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut archive = writer.stdin.take().unwrap();
    bench.write("f", "x");
    bench.shell("tar -cf f.tar f");
    archive.write_all(&bytes(bench.path("f.tar"))[..512]).unwrap();
    let told = (0..200).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(25));
        let out = bench.try_run("mkdir disk.img:/d");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let _ = if out.status.success() { bench.try_run("rm -d disk.img:/d") } else { out };
        said.contains("in use").then_some(said)
    });
    let told = told.expect("the second writer is refused");
    assert!(told.contains(&format!("extant (process {})", writer.id())), "names the holder: {told}");
    assert!(bench.fail(1, "ls disk.img").contains("in use"), "a reader does not see half a change");
    archive.write_all(&bytes(bench.path("f.tar"))[512..]).unwrap();
    drop(archive);
    assert!(writer.wait().unwrap().success());
    assert_eq!(bench.run("cat disk.img:/f"), "x");
    bench.assert_clean("disk.img");
}

#[test]
fn two_readers_share() {
    let bench = Bench::new();
    bench.run("mkfs -q disk.img 16M");
    bench.shell("head -c 8000000 /dev/zero > f");
    bench.run("cp f disk.img:/f");
    let mut reader = bench.command("cat disk.img:/f").stdout(Stdio::piped()).spawn().unwrap();
    bench.run("ls disk.img");
    // Its pipe is full: it is still at it.
    assert!(reader.try_wait().unwrap().is_none());
    assert!(bench.fail(1, "mkdir disk.img:/d").contains("in use"));
    drop(reader.stdout.take());
    reader.wait().unwrap();
}

#[test]
fn damage_is_told_with_its_place() {
    let bench = Bench::new();
    bench.run("mkfs -q disk.img 16M");
    bench.run("mkdir disk.img:/d");
    let image = std::fs::File::options().write(true).open(bench.path("disk.img")).unwrap();
    image.write_all_at(&[0xff; 64], 1024 + 0x100).unwrap();
    drop(image);
    let said = bench.fail(1, "ls disk.img");
    assert!(said.starts_with("extant: disk.img: superblock") && said.contains("checksum"), "{said}");
}
