//! VHDX, VHD, VMDK and Android sparse images, beside QEMU's.

#[path = "../common/mod.rs"]
mod common;

use std::path::Path;

use extant_block::{BlockDevice, MemoryDevice};
use extant_diskimage::{Error, Format};
use extant_rt::Arc;

use common::{Random, assert_equal, content, in_memory, open, peak_bytes, qemu_img, raw_disk, rounds, seed};

const DISK_BYTES: u64 = 5 << 20;

/// Formats by QEMU's names, their options, and ours.
const FORMATS: [(&str, &str, Format); 11] = [
    ("vhdx", "subformat=dynamic", Format::Vhdx),
    ("vhdx", "subformat=fixed", Format::Vhdx),
    ("vhdx", "subformat=dynamic,block_size=1048576", Format::Vhdx),
    ("vpc", "subformat=dynamic,force_size=on", Format::Vhd),
    ("vpc", "subformat=fixed,force_size=on", Format::Vhd),
    ("vmdk", "subformat=monolithicSparse", Format::Vmdk),
    ("vmdk", "subformat=streamOptimized", Format::Vmdk),
    ("vmdk", "subformat=monolithicFlat", Format::Vmdk),
    ("vmdk", "subformat=twoGbMaxExtentSparse", Format::Vmdk),
    ("vmdk", "subformat=twoGbMaxExtentFlat", Format::Vmdk),
    ("vmdk", "subformat=monolithicSparse,zeroed_grain=on", Format::Vmdk),
];

#[test]
fn images_of_qemu_read_equal() {
    let mut random = Random(seed("formats"));
    for (name, option, format) in FORMATS {
        let dir = tempfile::tempdir().expect("a directory");
        let disk = raw_disk(dir.path(), "disk.raw", DISK_BYTES, &mut random);
        qemu_img(dir.path(), &["convert", "-O", name, "-o", option, "disk.raw", "image"]);
        let image = open(&dir.path().join("image"), true).expect(option);
        assert_eq!(image.layers[0].format, format, "{option}");
        assert_equal(&content(&*image.device), &disk, option);
        for _ in 0..100 {
            let len = random.below(70_000) as usize;
            let at = random.below(DISK_BYTES - len as u64) as usize;
            let mut found = vec![0xee; len];
            image.device.read_at(at as u64, &mut found).expect("a read");
            assert_equal(&found, &disk[at..at + len], option);
        }
    }
}

#[test]
fn formats_that_are_only_read_say_how_to_convert_them() {
    let dir = tempfile::tempdir().expect("a directory");
    for (name, option, format) in FORMATS {
        qemu_img(dir.path(), &["create", "-q", "-f", name, "-o", option, "image", "1M"]);
        let opened = open(&dir.path().join("image"), false);
        if option.starts_with("subformat=fixed,force") {
            // Its disk is in the file byte by byte.
            let image = opened.expect("a fixed VHD");
            assert_eq!(image.device.size(), 1 << 20);
            image.device.write_at(4096, &[7; 512]).expect("a write");
            drop(image);
            qemu_img(
                dir.path(),
                &["check", "-f", "raw", "image"].map(|word| if word == "check" { "info" } else { word }),
            );
            continue;
        }
        let error = opened.err().expect(option);
        assert!(matches!(error, Error::ReadOnly { format: found } if found == format), "{option}: {error}");
        assert!(error.to_string().contains("`qemu-img convert -O qcow2 IMAGE NEW`"), "{error}");
        let image = open(&dir.path().join("image"), true).expect(option);
        let error = image.device.write_at(0, &[0; 512]).expect_err("written");
        assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    }
}

#[test]
fn damage_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    // Where a byte is changed, and the words.
    let cases = [
        (
            "vhdx",
            "subformat=dynamic",
            vec![(64 << 10) + 100, (128 << 10) + 100],
            "no header with the right checksum",
        ),
        (
            "vhdx",
            "subformat=dynamic",
            vec![(192 << 10) + 9, (256 << 10) + 9],
            "no region table with the right checksum",
        ),
        ("vpc", "subformat=dynamic", vec![512 + 40], "the checksum of its dynamic header"),
        ("vmdk", "subformat=monolithicSparse", vec![23], "in grains of"),
    ];
    for (name, option, places, words) in cases {
        qemu_img(dir.path(), &["create", "-q", "-f", name, "-o", option, "image", "8M"]);
        let image = in_memory(&dir.path().join("image"), 0);
        for at in places {
            image.write_at(at, &[0x77]).expect("a write");
        }
        let told = refusal(image);
        assert!(told.contains("damaged") && told.contains(words), "{told}");
    }
}

/// The words for an image that is opened for reading.
fn refusal(image: MemoryDevice) -> String {
    open_in_memory(image).err().expect("an error").to_string()
}

fn open_in_memory(image: MemoryDevice) -> extant_diskimage::Result<extant_diskimage::DiskImage> {
    extant_diskimage::open(Path::new(""), Arc::new(Reading(image)), &[])
}

/// A device that is only read.
struct Reading(MemoryDevice);

impl BlockDevice for Reading {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        self.0.read_at(offset, buf)
    }
    fn write_vectored_at(&self, _: u64, _: &[std::io::IoSlice<'_>]) -> std::io::Result<()> {
        panic!("an image that is only read was written")
    }
    fn flush(&self) -> std::io::Result<()> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> std::io::Result<()> {
        panic!("an image that is only read was written")
    }
    fn is_read_only(&self) -> bool {
        true
    }
}

#[test]
fn vhdx_that_was_not_closed_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    qemu_img(dir.path(), &["create", "-q", "-f", "vhdx", "image", "8M"]);
    let image = in_memory(&dir.path().join("image"), 0);
    for at in [64 << 10, 128 << 10] {
        let mut header = vec![0; 4096];
        image.read_at(at, &mut header).expect("a read");
        header[48..64].fill(1);
        header[4..8].fill(0);
        let sum = crc32c::crc32c(&header);
        header[4..8].copy_from_slice(&sum.to_le_bytes());
        image.write_at(at, &header).expect("a write");
    }
    let told = refusal(image);
    assert!(told.contains("its log is to be replayed; `qemu-img check -r all IMAGE` does"), "{told}");
}

#[test]
fn extents_outside_of_the_directory_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    qemu_img(
        dir.path(),
        &["create", "-q", "-f", "vmdk", "-o", "subformat=monolithicFlat", "image.vmdk", "1M"],
    );
    let path = dir.path().join("image.vmdk");
    let text = std::fs::read_to_string(&path).expect("a descriptor");
    std::fs::write(&path, text.replace("image-flat.vmdk", "/etc/passwd")).expect("written");
    let told = open(&path, true).err().expect("an error").to_string();
    assert!(told.contains("'/etc/passwd', which is not below its own directory"), "{told}");
}

/// An Android sparse image of `disk` in blocks of 4 KiB, with fills, holes and checksums of chunks.
fn android(disk: &[u8]) -> Vec<u8> {
    const BLOCK: usize = 4096;
    let mut chunks = Vec::new();
    let mut count = 0u32;
    let mut chunk = |kind: u16, blocks: u32, content: &[u8]| {
        chunks.extend(kind.to_le_bytes());
        chunks.extend([0; 2]);
        chunks.extend(blocks.to_le_bytes());
        chunks.extend((12 + content.len() as u32).to_le_bytes());
        chunks.extend(content);
        count += 1;
    };
    for block in disk.chunks(BLOCK) {
        if block.iter().all(|byte| *byte == 0) {
            chunk(0xcac3, 1, &[]);
        } else if block.chunks(4).all(|word| *word == block[..4]) {
            chunk(0xcac2, 1, &block[..4]);
        } else {
            chunk(0xcac1, 1, block);
            chunk(0xcac4, 0, &[0; 4]);
        }
    }
    let mut image = 0xed26_ff3a_u32.to_le_bytes().to_vec();
    for half in [1u16, 0, 28, 12] {
        image.extend(half.to_le_bytes());
    }
    for word in [BLOCK as u32, (disk.len() / BLOCK) as u32, count, 0] {
        image.extend(word.to_le_bytes());
    }
    image.extend(chunks);
    image
}

fn memory(bytes: &[u8]) -> MemoryDevice {
    let device = MemoryDevice::new(bytes.len() as u64);
    device.write_at(0, bytes).expect("a write");
    device
}

#[test]
fn android_sparse_images_are_read() {
    let mut random = Random(seed("android"));
    let dir = tempfile::tempdir().expect("a directory");
    let disk = raw_disk(dir.path(), "disk.raw", DISK_BYTES, &mut random);
    let image = android(&disk);
    let opened = open_in_memory(memory(&image)).expect("an image");
    assert_eq!(opened.layers[0].format, Format::AndroidSparse);
    assert_equal(&content(&*opened.device), &disk, "sparse");
    let told = refusal(memory(&image[..image.len() - 5000]));
    assert!(told.contains("damaged Android sparse image"), "{told}");
}

#[test]
fn changed_fields_make_errors_and_nothing_worse() {
    let mut random = Random(seed("hostile formats"));
    let dir = tempfile::tempdir().expect("a directory");
    let disk = raw_disk(dir.path(), "disk.raw", 1 << 20, &mut random);
    let mut images = vec![memory(&android(&disk))];
    for (name, option, _) in
        FORMATS.iter().filter(|(_, option, _)| !option.contains("Extent") && !option.contains("Flat"))
    {
        qemu_img(dir.path(), &["convert", "-O", name, "-o", option, "disk.raw", "image"]);
        images.push(in_memory(&dir.path().join("image"), 0));
    }
    let mut buf = vec![0; 100_000];
    for round in 0..rounds(100) * images.len() as u64 {
        let image = images[(round % images.len() as u64) as usize].snapshot();
        let size = image.size();
        for _ in 0..random.below(4) + 1 {
            let near = [512, 1024, 2048, 64 << 10, 400 << 10, size][random.below(6) as usize].min(size);
            let at = if random.below(4) == 0 { size - near } else { 0 } + random.below(near - 8);
            let value = [random.next(), 0, u64::MAX, 1 << random.below(64), random.below(256)]
                [random.below(5) as usize];
            let len = [1, 4, 8][random.below(3) as usize];
            image.write_at(at, &value.to_le_bytes()[..len]).expect("a write");
        }
        let mend = random.below(2) == 0;
        if mend {
            sum_vhdx(&image);
        }
        let Ok(opened) = open_in_memory(image) else { continue };
        for _ in 0..10 {
            let len = random.below(100_000).min(opened.device.size());
            let at = random.below(opened.device.size() - len + 1);
            // Damage may be met at any of them.
            let _ = opened.device.read_at(at, &mut buf[..len as usize]);
        }
    }
    // No field asks for memory that the file does not have; the tests of this program run beside each other.
    assert!(peak_bytes() < 512 << 20, "{} bytes", peak_bytes());
}

/// Makes the checksums of a VHDX right, so that changed fields are looked at.
fn sum_vhdx(image: &MemoryDevice) {
    for (at, bytes) in [(64 << 10, 4096), (128 << 10, 4096), (192 << 10, 64 << 10), (256 << 10, 64 << 10)] {
        let mut found = vec![0; bytes];
        if image.read_at(at, &mut found).is_err()
            || !(found.starts_with(b"head") || found.starts_with(b"regi"))
        {
            continue;
        }
        found[4..8].fill(0);
        let sum = crc32c::crc32c(&found);
        image.write_at(at + 4, &sum.to_le_bytes()).expect("a write");
    }
}

#[test]
fn streams_become_devices_and_a_limit_ends_them() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut random = Random(seed("streams"));
    let disk = raw_disk(dir.path(), "disk.raw", (1 << 20) + 700, &mut random);
    let device = extant_diskimage::spool(&mut disk.as_slice(), dir.path(), 1 << 30).expect("a stream");
    assert_equal(&content(&device), &disk, "a stream");
    assert!(device.is_read_only() && device.write_at(0, &[0]).is_err());
    let mut endless = std::io::repeat(0);
    let told = extant_diskimage::spool(&mut endless, dir.path(), 1 << 20).err().expect("no end").to_string();
    assert_eq!(told, "more than 1048576 bytes; EXTANT_SCRATCH_BYTES=BYTES allows more");
}
