//! VHDX, VHD, VMDK and Android sparse images, beside QEMU's.

#[path = "../common/mod.rs"]
mod common;

use std::path::Path;

use extant_block::{BlockDevice, MemoryDevice};
use extant_diskimage::{Error, Format};
use extant_rt::Arc;
use extant_testing::scratch;

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
        let dir = scratch();
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
    let dir = scratch();
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
    let dir = scratch();
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

/// Bytes of a sector of a VHDX's log.
const LOG_SECTOR: usize = 4096;

/// An entry of a VHDX's log whose sequence begins at its first sector: `data` for places of the file, and 4 KiB that become zero.
fn log_entry(sequence: u64, data: &[(u64, &[u8])], zero_at: Option<u64>, file_bytes: u64) -> Vec<u8> {
    let mut descriptors = Vec::new();
    let mut sectors = Vec::new();
    for (offset, bytes) in data {
        descriptors.extend(
            [b"desc", &bytes[LOG_SECTOR - 4..], &bytes[..8], &offset.to_le_bytes(), &sequence.to_le_bytes()]
                .concat(),
        );
        sectors.extend(
            [b"data", &[0; 4][..], &bytes[8..LOG_SECTOR - 4], &(sequence as u32).to_le_bytes()].concat(),
        );
    }
    if let Some(offset) = zero_at {
        let bytes = LOG_SECTOR as u64;
        descriptors.extend(
            [b"zero", &[0; 4][..], &bytes.to_le_bytes(), &offset.to_le_bytes(), &sequence.to_le_bytes()]
                .concat(),
        );
    }
    let count = data.len() as u32 + u32::from(zero_at.is_some());
    let mut entry =
        [b"loge", &[0; 4][..], &((LOG_SECTOR + sectors.len()) as u32).to_le_bytes(), &[0; 4]].concat();
    entry.extend([&sequence.to_le_bytes()[..], &count.to_le_bytes(), &[0; 4], &[7; 16]].concat());
    entry.extend([file_bytes.to_le_bytes(), file_bytes.to_le_bytes()].concat());
    entry.extend(descriptors);
    entry.resize(LOG_SECTOR, 0);
    entry.extend(sectors);
    let sum = crc32c::crc32c(&entry);
    entry[4..8].copy_from_slice(&sum.to_le_bytes());
    entry
}

fn read_u64(image: &MemoryDevice, at: u64) -> u64 {
    let mut field = [0; 8];
    image.read_at(at, &mut field).expect("a read");
    u64::from_le_bytes(field)
}

/// Where the log of a VHDX is.
fn log_offset(image: &MemoryDevice) -> u64 {
    if image.size() > 1 << 20 { read_u64(image, (64 << 10) + 72) } else { 0 }
}

/// Where the block table of a VHDX is.
fn block_table(image: &MemoryDevice) -> u64 {
    let entries = [16, 48].map(|at| (192 << 10) + at);
    let entry = entries.into_iter().find(|at| read_u64(image, *at) & 0xffff_ffff == 0x2dc2_7766);
    read_u64(image, entry.expect("a block table") + 16)
}

/// Says in both headers that the log is to be replayed.
fn mark_dirty(image: &MemoryDevice) {
    for at in [64 << 10, 128 << 10] {
        image.write_at(at + 48, &[7; 16]).expect("a write");
    }
    sum_vhdx(image);
}

#[test]
fn log_of_a_vhdx_is_replayed_in_memory_as_qemu_replays_it() {
    let mut random = Random(seed("vhdx log"));
    let dir = scratch();
    let mut disk = raw_disk(dir.path(), "disk.raw", DISK_BYTES, &mut random);
    disk[..LOG_SECTOR].fill(9);
    std::fs::write(dir.path().join("disk.raw"), &disk).expect("a disk");
    qemu_img(dir.path(), &["convert", "-O", "vhdx", "-o", "block_size=1048576", "disk.raw", "image"]);
    let image = in_memory(&dir.path().join("image"), 0);
    let (log, table) = (log_offset(&image), block_table(&image));
    let mut blocks = vec![0; LOG_SECTOR];
    image.read_at(table, &mut blocks).expect("the table");
    assert_eq!(blocks[0] & 7, 6, "the first block is not there");
    let zero_at = u64::from_le_bytes(blocks[..8].try_into().expect("an entry")) >> 20 << 20;
    // The table is in the log alone; after it, a part of a block becomes zero.
    image.write_at(table, &vec![0; LOG_SECTOR]).expect("a write");
    let entries = [
        log_entry(8, &[(table, &blocks)], None, image.size()),
        log_entry(9, &[], Some(zero_at), image.size()),
    ]
    .concat();
    image.write_at(log, &entries).expect("a write");
    mark_dirty(&image);
    disk[..LOG_SECTOR].fill(0);
    let before = content(&image);
    let opened = open_in_memory(image.snapshot()).expect("an image");
    assert_equal(&content(&*opened.device), &disk, "replayed");
    std::fs::write(dir.path().join("dirty"), &before).expect("the image");
    qemu_img(dir.path(), &["check", "-r", "all", "-f", "vhdx", "dirty"]);
    std::fs::write(dir.path().join("disk.raw"), &disk).expect("the disk");
    qemu_img(dir.path(), &["compare", "-f", "vhdx", "-F", "raw", "dirty", "disk.raw"]);
    // An entry that is not whole ends the log before it.
    image.write_at(log + 2 * LOG_SECTOR as u64 + 100, &[1]).expect("a write");
    let opened = open_in_memory(image.snapshot()).expect("an image");
    assert_eq!(content(&*opened.device)[..LOG_SECTOR], [9; LOG_SECTOR]);
    image.write_at(log + 100, &[1]).expect("a write");
    assert!(refusal(image).contains("a log without a whole sequence of entries"));
}

#[test]
fn extents_outside_of_the_directory_are_refused() {
    let dir = scratch();
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
    let dir = scratch();
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
    let dir = scratch();
    let disk = raw_disk(dir.path(), "disk.raw", 1 << 20, &mut random);
    let mut images = vec![memory(&android(&disk))];
    for (name, option, _) in
        FORMATS.iter().filter(|(_, option, _)| !option.contains("Extent") && !option.contains("Flat"))
    {
        qemu_img(dir.path(), &["convert", "-O", name, "-o", option, "disk.raw", "image"]);
        images.push(in_memory(&dir.path().join("image"), 0));
    }
    let dirty = images[1].snapshot();
    let (log, table) = (log_offset(&dirty), block_table(&dirty));
    let mut blocks = vec![0; LOG_SECTOR];
    dirty.read_at(table, &mut blocks).expect("the table");
    dirty
        .write_at(log, &log_entry(8, &[(table, &blocks)], Some(table + 8192), dirty.size()))
        .expect("a write");
    mark_dirty(&dirty);
    open_in_memory(dirty.snapshot()).expect("an image with a log");
    images.push(dirty);
    let mut buf = vec![0; 100_000];
    let mut opened_count = 0;
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
        opened_count += 1;
        for _ in 0..10 {
            let len = random.below(100_000).min(opened.device.size());
            let at = random.below(opened.device.size() - len + 1);
            // Damage may be met at any of them.
            let _ = opened.device.read_at(at, &mut buf[..len as usize]);
        }
    }
    let all = rounds(100) * images.len() as u64;
    println!("{all} images, {opened_count} of them opened, {} bytes at most", peak_bytes());
    // No field asks for memory that the file does not have; the tests of this program run beside each other.
    assert!(peak_bytes() < 512 << 20, "{} bytes", peak_bytes());
}

/// Makes the checksums of a VHDX right, so that changed fields are looked at.
fn sum_vhdx(image: &MemoryDevice) {
    let log = log_offset(image);
    for (at, bytes) in
        [(64 << 10, 4096), (128 << 10, 4096), (192 << 10, 64 << 10), (256 << 10, 64 << 10), (log, 8192)]
    {
        let mut found = vec![0; bytes];
        let is_there = image.read_at(at, &mut found).is_ok();
        if !is_there || ![b"head", b"regi", b"loge"].iter().any(|mark| found.starts_with(*mark)) {
            continue;
        }
        found[4..8].fill(0);
        let sum = crc32c::crc32c(&found);
        image.write_at(at + 4, &sum.to_le_bytes()).expect("a write");
    }
}

#[test]
fn streams_become_devices_and_a_limit_ends_them() {
    let dir = scratch();
    let mut random = Random(seed("streams"));
    let disk = raw_disk(dir.path(), "disk.raw", (1 << 20) + 700, &mut random);
    let device = extant_diskimage::spool(&mut disk.as_slice(), dir.path(), 1 << 30).expect("a stream");
    assert_equal(&content(&device), &disk, "a stream");
    assert!(device.is_read_only() && device.write_at(0, &[0]).is_err());
    let mut endless = std::io::repeat(0);
    let told = extant_diskimage::spool(&mut endless, dir.path(), 1 << 20).err().expect("no end").to_string();
    assert_eq!(told, "more than 1048576 bytes; EXTANT_SCRATCH_BYTES=BYTES allows more");
}
