//! Random writes, discards and flushes beside a model in memory; QEMU checks and reads what they leave.

use std::io::IoSlice;
use std::path::Path;

use extant_block::BlockDevice;
use extant_diskimage::{Format, Layer};
use extant_testing::scratch;

use super::common::{Random, assert_equal, content, open, qemu_img, raw_disk, rounds, seed};

const DISK_BYTES: u64 = 3 << 20;

/// Changes `device` and its model alike.
fn change(device: &dyn BlockDevice, model: &mut [u8], random: &mut Random, steps: u64) {
    for _ in 0..steps {
        let len = [random.below(512), 4096, random.below(200_000), 65_536][random.below(4) as usize] + 1;
        let start = random.below(device.size() - len + 1);
        let (offset, range) = (start, start as usize..(start + len) as usize);
        match random.below(8) {
            0..=3 => {
                let bytes = random.bytes(len as usize);
                let cut = random.below(len + 1) as usize;
                let bufs = [IoSlice::new(&bytes[..cut]), IoSlice::new(&[]), IoSlice::new(&bytes[cut..])];
                device.write_vectored_at(offset, &bufs).expect("a write");
                model[range].copy_from_slice(&bytes);
            }
            4 => {
                let bytes = random.bytes(len as usize);
                device.write_fua(offset, &bytes).expect("a durable write");
                model[range].copy_from_slice(&bytes);
            }
            5 => {
                device.write_zeroes(offset, len).expect("zeroes");
                model[range].fill(0);
            }
            6 => {
                let is_discarded = device.discard(offset, len).is_ok();
                if is_discarded {
                    device.read_at(offset, &mut model[range]).expect("a read");
                }
            }
            _ => device.flush().expect("a flush"),
        }
        let at = random.below(device.size() - 5000) as usize;
        let mut found = vec![0; 5000];
        device.read_at(at as u64, &mut found).expect("a read");
        assert_equal(&found, &model[at..at + 5000], "a read between");
    }
}

/// QEMU finds nothing wrong with the image, not even a leak, and reads the model from it.
fn check(dir: &Path, image: &str, model: &[u8]) {
    qemu_img(dir, &["check", "-f", "qcow2", image]);
    std::fs::write(dir.join("model.raw"), model).expect("the model");
    qemu_img(dir, &["compare", "-f", "qcow2", "-F", "raw", image, "model.raw"]);
}

#[test]
fn what_is_written_is_what_qemu_reads_and_its_check_finds_nothing() {
    let seed = seed("model");
    let options = [
        "cluster_size=65536",
        "cluster_size=512",
        "cluster_size=4096,refcount_bits=1",
        "cluster_size=2097152,refcount_bits=64",
        "compat=0.10",
        "cluster_size=1024,refcount_bits=4,lazy_refcounts=on",
        "preallocation=metadata",
        "cluster_size=8192,refcount_bits=8,compression_type=zstd",
    ];
    for round in 0..rounds(1) {
        for (index, option) in (0..).zip(options) {
            let mut random = Random(seed + round * 100 + index + 1);
            let dir = scratch();
            qemu_img(
                dir.path(),
                &["create", "-q", "-f", "qcow2", "-o", option, "a.qcow2", &DISK_BYTES.to_string()],
            );
            let mut model = vec![0; DISK_BYTES as usize];
            for _ in 0..3 {
                let image = open(&dir.path().join("a.qcow2"), false).expect(option);
                change(&*image.device, &mut model, &mut random, 40);
                assert_equal(&content(&*image.device), &model, option);
                drop(image);
                check(dir.path(), "a.qcow2", &model);
            }
        }
    }
}

#[test]
fn packed_clusters_are_read_and_written_over() {
    let mut random = Random(seed("packed"));
    for kind in ["zlib", "zstd"] {
        let dir = scratch();
        let mut model = raw_disk(dir.path(), "disk.raw", DISK_BYTES, &mut random);
        let option = format!("compression_type={kind}");
        qemu_img(dir.path(), &["convert", "-c", "-O", "qcow2", "-o", &option, "disk.raw", "a.qcow2"]);
        let image = open(&dir.path().join("a.qcow2"), false).expect("an image");
        assert_equal(&content(&*image.device), &model, kind);
        assert_eq!(image.layers[0].compression, Some(if kind == "zlib" { "deflate" } else { "zstd" }));
        change(&*image.device, &mut model, &mut random, 80);
        drop(image);
        check(dir.path(), "a.qcow2", &model);
    }
}

#[test]
fn snapshots_stay_as_they_were() {
    let mut random = Random(seed("snapshots"));
    let dir = scratch();
    let mut model = raw_disk(dir.path(), "disk.raw", DISK_BYTES, &mut random);
    qemu_img(dir.path(), &["convert", "-O", "qcow2", "-o", "cluster_size=4096", "disk.raw", "a.qcow2"]);
    let mut snapshots = Vec::new();
    for number in 0..3 {
        qemu_img(dir.path(), &["snapshot", "-c", &format!("s{number}"), "a.qcow2"]);
        snapshots.push(model.clone());
        let image = open(&dir.path().join("a.qcow2"), false).expect("an image");
        change(&*image.device, &mut model, &mut random, 40);
        drop(image);
        check(dir.path(), "a.qcow2", &model);
    }
    for (number, snapshot) in snapshots.iter().enumerate() {
        qemu_img(
            dir.path(),
            &["convert", "-l", &format!("s{number}"), "-O", "raw", "a.qcow2", "snapshot.raw"],
        );
        assert_equal(
            &std::fs::read(dir.path().join("snapshot.raw")).expect("a snapshot"),
            snapshot,
            "a snapshot",
        );
    }
    qemu_img(dir.path(), &["snapshot", "-d", "s1", "a.qcow2"]);
    check(dir.path(), "a.qcow2", &model);
}

#[test]
fn new_image_is_one_of_qemu_and_takes_no_more_than_its_tables() {
    let dir = scratch();
    for bytes in [0, 512, 1 << 20, (1 << 40) + 512, 1 << 50] {
        let path = dir.path().join("new.qcow2");
        let access = extant_block::DeviceAccess { create: extant_block::Create::New, ..Default::default() };
        let file = extant_block::FileDevice::open(&path, access).expect("a file");
        extant_diskimage::create_qcow2(&file, bytes).expect("an image");
        drop(file);
        qemu_img(dir.path(), &["check", "-f", "qcow2", "new.qcow2"]);
        let told = qemu_img(dir.path(), &["info", "-f", "qcow2", "new.qcow2"]);
        assert!(told.contains(&format!("({bytes} bytes)")), "{told}");
        let image = open(&path, false).expect("an image");
        assert_eq!(image.device.size(), bytes);
        let Layer { format, compression, .. } = &image.layers[0];
        assert_eq!((*format, *compression), (Format::Qcow2, Some("deflate")));
        if bytes > 1 << 20 {
            image.device.write_at(bytes - 4096, &[7; 4096]).expect("a write at the end");
        }
        drop(image);
        qemu_img(dir.path(), &["check", "-f", "qcow2", "new.qcow2"]);
        std::fs::remove_file(&path).expect("removed");
    }
}

#[test]
fn disk_that_ends_within_a_cluster_is_written_to_its_end_and_made_longer() {
    let mut random = Random(seed("end"));
    let dir = scratch();
    let mut model = raw_disk(dir.path(), "disk.raw", (1 << 20) + 512, &mut random);
    let end = model.len() - 512;
    model[end..].fill(3);
    std::fs::write(dir.path().join("disk.raw"), &model).expect("a disk");
    qemu_img(dir.path(), &["convert", "-O", "qcow2", "disk.raw", "a.qcow2"]);
    let image = open(&dir.path().join("a.qcow2"), false).expect("an image");
    image.device.grow(5 << 30).expect("a longer disk");
    assert_eq!(image.device.size(), 5 << 30);
    model.resize(2 << 20, 0);
    let mut found = vec![0xee; 2 << 20];
    image.device.read_at(0, &mut found).expect("a read");
    assert_equal(&found, &model, "longer");
    image.device.write_at(end as u64 + 4096, &[4; 4096]).expect("a write behind the former end");
    image.device.write_at((5 << 30) - 512, &[5; 512]).expect("a write at the end");
    drop(image);
    qemu_img(dir.path(), &["check", "-f", "qcow2", "a.qcow2"]);
    let image = open(&dir.path().join("a.qcow2"), true).expect("an image");
    model[end + 4096..end + 8192].fill(4);
    image.device.read_at(0, &mut found).expect("a read");
    assert_equal(&found, &model, "written");
    drop(image);
    assert!(qemu_img(dir.path(), &["info", "a.qcow2"]).contains("(5368709120 bytes)"));
}

#[cfg(target_os = "linux")]
#[test]
fn discards_give_the_space_of_the_file_back() {
    use std::os::unix::fs::MetadataExt;
    let dir = scratch();
    qemu_img(dir.path(), &["create", "-q", "-f", "qcow2", "a.qcow2", "64M"]);
    let path = dir.path().join("a.qcow2");
    let image = open(&path, false).expect("an image");
    image.device.write_at(0, &vec![5; 32 << 20]).expect("a write");
    image.device.flush().expect("a flush");
    let full = path.metadata().expect("the file").blocks() * 512;
    image.device.discard(0, 32 << 20).expect("a discard");
    image.device.flush().expect("a flush");
    let empty = path.metadata().expect("the file").blocks() * 512;
    assert!(full > 32 << 20 && empty < 1 << 20, "{full}, then {empty}");
    // Clusters that are free are used before the file becomes longer.
    let length = path.metadata().expect("the file").len();
    image.device.write_at(32 << 20, &vec![6; 32 << 20]).expect("a write");
    image.device.flush().expect("a flush");
    assert_eq!(path.metadata().expect("the file").len(), length);
}

#[test]
fn threads_write_beside_each_other() {
    let dir = scratch();
    qemu_img(dir.path(), &["create", "-q", "-f", "qcow2", "-o", "cluster_size=4096", "a.qcow2", "16M"]);
    let image = open(&dir.path().join("a.qcow2"), false).expect("an image");
    let device = &image.device;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            scope.spawn(move || {
                let mut random = Random(seed("threads") + thread + 1);
                // The threads' parts share clusters and tables.
                for _ in 0..400 {
                    let at = random.below(4096) * 4096 + thread * 1024;
                    device.write_at(at, &[thread as u8 + 1; 1024]).expect("a write");
                    let mut found = [0; 1024];
                    device.read_at(at, &mut found).expect("a read");
                    assert_eq!(found, [thread as u8 + 1; 1024]);
                    match random.below(40) {
                        0 => device.flush().expect("a flush"),
                        1 => device.write_zeroes(at, 1024).expect("zeroes"),
                        _ => {}
                    }
                }
            });
        }
    });
    let found = content(&**device);
    for (number, piece) in found.chunks(1024).enumerate() {
        let thread = (number % 4) as u8 + 1;
        assert!(
            piece.iter().all(|byte| *byte == 0) || piece.iter().all(|byte| *byte == thread),
            "piece {number}"
        );
    }
    drop(image);
    qemu_img(dir.path(), &["check", "-f", "qcow2", "a.qcow2"]);
}
