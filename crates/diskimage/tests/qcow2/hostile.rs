//! Images whose fields were changed, and images that are refused.

use std::path::Path;

use extant_block::{BlockDevice, MemoryDevice, Overlay};
use extant_rt::Arc;
use extant_testing::scratch;

use super::common::{Random, in_memory, open, peak_bytes, qemu_img, raw_disk, rounds, run, seed};

/// Opens an image that was changed and uses it, if it opens; errors are right, and so is what no error shows.
fn use_image(image: MemoryDevice, random: &mut Random) -> bool {
    let Ok(opened) = extant_diskimage::open(Path::new(""), Arc::new(image), &[]) else { return false };
    let device = opened.device;
    let mut buf = vec![0; 100_000];
    let size = device.size();
    for _ in 0..20 {
        let len = random.below(100_000).min(size);
        let at = random.below(size - len + 1);
        // Damage may be met at any of them.
        let _ = match random.below(5) {
            0 | 1 => device.read_at(at, &mut buf[..len as usize]),
            2 | 3 => device.write_at(at, &buf[..len as usize]),
            _ => device.write_zeroes(at, len),
        };
    }
    let _ = device.flush();
    true
}

#[test]
fn changed_fields_make_errors_and_nothing_worse() {
    let mut random = Random(seed("hostile"));
    let dir = scratch();
    raw_disk(dir.path(), "disk.raw", 1 << 20, &mut random);
    qemu_img(dir.path(), &["convert", "-O", "qcow2", "-o", "cluster_size=4096", "disk.raw", "plain"]);
    qemu_img(dir.path(), &["snapshot", "-c", "s", "plain"]);
    qemu_img(dir.path(), &["convert", "-c", "-O", "qcow2", "disk.raw", "packed"]);
    let images = ["plain", "packed"].map(|name| in_memory(&dir.path().join(name), 0));
    let mut opened = 0;
    for round in 0..rounds(200) {
        let image = images[(round % 2) as usize].snapshot();
        // Few bytes of the header, or of the tables behind it.
        for _ in 0..random.below(4) + 1 {
            let end = [112, 112, 4096, image.size()][random.below(4) as usize];
            let at = random.below(end - 8);
            let value = [random.next(), 0, u64::MAX, 1 << random.below(64), random.below(256)]
                [random.below(5) as usize];
            let len = [1, 4, 8][random.below(3) as usize];
            image.write_at(at, &value.to_be_bytes()[8 - len..]).expect("a write");
        }
        opened += u32::from(use_image(image, &mut random));
    }
    println!("{} images, {opened} of them opened, {} bytes at most", rounds(200), peak_bytes());
    // No field asks for memory that the file does not have; the tests of this program run beside each other.
    assert!(peak_bytes() < 512 << 20, "{} bytes", peak_bytes());
}

#[test]
fn images_that_use_what_is_not_served_are_refused_by_name() {
    let dir = scratch();
    qemu_img(dir.path(), &["create", "-q", "-f", "qcow2", "a", "1M"]);
    let base = in_memory(&dir.path().join("a"), 0);
    // Where a field is, what it is set to, and the words.
    let cases: [(u64, &[u8], &str); 9] = [
        (4, &[0, 0, 0, 4], "version 4"),
        (20, &[0, 0, 0, 30], "clusters of 2^30 bytes"),
        (32, &[0, 0, 0, 2], "encryption"),
        (24, &[0x7f; 8], "more than its tables describe"),
        (36, &[0x10, 0, 0, 0], "a level-1 table of 2147483648 bytes"),
        (72, &[0, 0, 0, 0, 0, 0, 0, 2], "marked it corrupt; `qemu-img check -r all IMAGE`"),
        (72, &[0, 0, 0, 0, 0, 0, 0, 1], "was not closed; `qemu-img check -r all IMAGE`"),
        (72, &[0, 0, 0, 0, 0, 0, 0, 4], "an external data file; `qemu-img convert -O qcow2 IMAGE NEW`"),
        (72, &[0, 0, 0, 0, 0, 0, 0, 16], "subclusters"),
    ];
    for (at, value, words) in cases {
        let image = base.snapshot();
        image.write_at(at, value).expect("a write");
        let told =
            extant_diskimage::open(Path::new(""), Arc::new(image), &[]).err().expect(words).to_string();
        assert!(told.contains(words), "{told}");
    }
}

#[test]
fn metadata_that_counts_as_free_is_not_written_over() {
    let dir = scratch();
    qemu_img(dir.path(), &["create", "-q", "-f", "qcow2", "a", "1M"]);
    let image = in_memory(&dir.path().join("a"), 4 << 20);
    // The refcounts are in the third cluster; that of the level-1 table is the fourth.
    image.write_at((2 << 16) + 6, &[0, 0]).expect("a write");
    let opened = extant_diskimage::open(Path::new(""), Arc::new(image), &[]).expect("an image");
    let told = opened.device.write_at(0, &[1; 512]).expect_err("written").to_string();
    assert!(told.contains("metadata in cluster 3 counts as free"), "{told}");
}

#[test]
fn image_that_qemu_writes_is_in_use() {
    if cfg!(not(unix)) {
        println!("skipped: the host has no locks that Linux sees");
        return;
    }
    let dir = scratch();
    qemu_img(dir.path(), &["create", "-q", "-f", "qcow2", "a", "1M"]);
    let held = open(&dir.path().join("a"), false).expect("an image");
    let output = run("qemu-img", &["resize", "-f", "qcow2", "a", "2M"], dir.path());
    assert!(String::from_utf8_lossy(&output.stderr).contains("lock"), "{output:?}");
    drop(held);
    qemu_img(dir.path(), &["resize", "-f", "qcow2", "a", "2M"]);
}

#[test]
fn raw_disk_with_the_mark_of_an_image_is_raw() {
    let disk = MemoryDevice::new(1 << 20);
    disk.write_at(0, b"QFI\xfb\0\0\0\x03").expect("a write");
    let recognised = |disk: &MemoryDevice| {
        let disk = Arc::new(Overlay::new(disk.snapshot(), 512));
        extant_diskimage::Format::recognise(&*disk).expect("a read")
    };
    assert_eq!(recognised(&disk), extant_diskimage::Format::Qcow2);
    let table = disk.snapshot();
    table.write_at(510, &[0x55, 0xaa]).expect("a write");
    assert_eq!(recognised(&table), extant_diskimage::Format::Raw);
    disk.write_at(1024 + 56, &[0x53, 0xef]).expect("a write");
    assert_eq!(recognised(&disk), extant_diskimage::Format::Raw);
}
