//! Partitions end elsewhere, and sfdisk agrees; a crash leaves the old end or the new one.

use std::path::Path;

use extant_block::{
    BlockDevice, Container, DeviceAccess, FileDevice, MemoryDevice, NewPartition, PartitionTable, Recorder,
    Tearing,
};
use extant_testing::Command;

const MIB: u64 = 1 << 20;

/// Runs sfdisk with what it is to read; nothing if there is none.
fn sfdisk(option: &str, image: &Path, script: &str) -> Option<String> {
    if let Err(error) = Command::new("sfdisk").arg("--version").output() {
        println!("skipped: sfdisk: {error}");
        return None;
    }
    let input = image.with_extension("script");
    std::fs::write(&input, script).expect("a script");
    let mut command = Command::new("sh");
    command.args(["-c", r#"exec sfdisk "$0" "$1" <"$2""#, option]).args([image, &input]);
    let output = command.output().expect("sfdisk");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "sfdisk {option}: {said}");
    Some(said)
}

/// An image of 64 MiB with such a table.
fn made(script: &str) -> Option<(tempfile::TempDir, FileDevice)> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = folder.path().join("image");
    std::fs::File::create(&path).expect("the image").set_len(64 * MIB).expect("a length");
    sfdisk("-q", &path, script)?;
    let device = FileDevice::open(&path, DeviceAccess::read_write()).expect("the image");
    Some((folder, device))
}

/// sfdisk finds nothing wrong, and gives the lengths of the partitions in bytes.
fn judged(folder: &tempfile::TempDir) -> Vec<u64> {
    let path = folder.path().join("image");
    let said = sfdisk("--verify", &path, "").expect("sfdisk");
    assert!(said.contains("No errors detected"), "{said}");
    assert!(!said.to_lowercase().contains("corrupt") && !said.contains("mismatch"), "{said}");
    let said = sfdisk("--dump", &path, "").expect("sfdisk");
    let sizes = said.lines().filter_map(|line| line.split("size=").nth(1)?.split(',').next());
    sizes.map(|size| size.trim().parse::<u64>().expect("a size") * 512).collect()
}

#[test]
fn sfdisk_agrees_about_partitions_that_end_elsewhere() {
    for label in ["dos", "gpt"] {
        let script = format!("label: {label}\nstart=1MiB, size=8MiB\nstart=20MiB, size=10MiB\n");
        let Some((folder, mut device)) = made(&script) else { return };
        let mut table = PartitionTable::read(&device).expect("read").expect("a table");
        assert_eq!(table.bytes(1), Some(8 * MIB));
        assert_eq!(table.most_bytes(1, device.size()), Some(19 * MIB));
        assert!(table.set_bytes(&device, 1, 20 * MIB).is_err() && table.set_bytes(&device, 3, MIB).is_err());
        table.set_bytes(&device, 1, 19 * MIB).expect("a longer one");
        assert_eq!(judged(&folder), [19 * MIB, 10 * MIB]);
        assert_eq!(table.device_bytes_for(1, 20 * MIB), None);
        let longer = table.device_bytes_for(2, 100 * MIB).expect("the last one");
        device.set_len(longer).expect("a longer image");
        assert_eq!(table.most_bytes(2, device.size()), Some(100 * MIB));
        table.set_bytes(&device, 2, 100 * MIB).expect("the last one");
        assert_eq!(judged(&folder), [19 * MIB, 100 * MIB]);
        table.set_bytes(&device, 1, 3 * MIB + 1).expect("a shorter one");
        assert_eq!(judged(&folder), [3 * MIB + 512, 100 * MIB]);
        let again = PartitionTable::read(&device).expect("read").expect("a table");
        assert_eq!(again.bytes(1), Some(3 * MIB + 512));
    }
}

#[test]
fn tables_that_cannot_be_changed_are_none() {
    let Some((_folder, device)) = made("label: gpt\nstart=1MiB, size=8MiB\n") else { return };
    device.write_at(512 + 40, &[7]).expect("a damaged header");
    assert!(PartitionTable::read(&device).expect("read").is_none());
    assert!(PartitionTable::read(&MemoryDevice::new(100)).expect("read").is_none());
    assert!(PartitionTable::read(&MemoryDevice::new(MIB)).expect("read").is_none());
    let Some((_folder, device)) = made("label: dos\nstart=1MiB, size=40MiB, type=5\nstart=2MiB, size=3MiB\n")
    else {
        return;
    };
    let table = PartitionTable::read(&device).expect("read").expect("a table");
    assert_eq!((table.bytes(5), table.most_bytes(5, device.size())), (None, None));
}

#[test]
fn every_crash_leaves_the_old_end_or_the_new_one() {
    for label in ["dos", "gpt"] {
        let Some((_folder, device)) = made(&format!("label: {label}\nstart=1MiB, size=8MiB\n")) else {
            return;
        };
        let start = MemoryDevice::new(80 * MIB);
        for at in (0..64 * MIB).step_by(MIB as usize) {
            let mut piece = vec![0; MIB as usize];
            device.read_at(at, &mut piece).expect("read");
            if piece.iter().any(|byte| *byte != 0) {
                start.write_at(at, &piece).expect("write");
            }
        }
        let recorder = Recorder::over(start);
        let mut table = PartitionTable::read(&recorder).expect("read").expect("a table");
        table.set_bytes(&recorder, 1, 70 * MIB).expect("a longer one");
        let log = recorder.log();
        let (mut images, mut found) = (0, [0, 0]);
        for events in 0..=log.events().len() {
            for choice in 0..10_u64 {
                let survives = |part: &extant_block::Unflushed| match choice {
                    0 => true,
                    1 => false,
                    _ => (part.offset / 512 * 7 + choice).is_multiple_of(3),
                };
                let image = log.crash_image(events, Tearing::Sectors, survives).expect("an image");
                let container = Container::recognise(&image).expect("read");
                let Some(Container::PartitionTable(partitions)) = container else {
                    panic!("{label}, {events}, {choice}: {container:?}");
                };
                let bytes = partitions.first().expect("a partition").bytes;
                assert!([8 * MIB, 70 * MIB].contains(&bytes), "{label}, {events}, {choice}: {bytes}");
                found[usize::from(bytes > 8 * MIB)] += 1;
                images += 1;
            }
        }
        println!("{label}: {images} crash images, {found:?} with the old end and the new one");
        assert!(found.iter().all(|count| *count > 1), "{found:?}");
    }
}

#[test]
fn every_program_agrees_about_a_new_table() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let path = folder.path().join("image");
    std::fs::File::create(&path).expect("the image").set_len(64 * MIB).expect("a length");
    let device = FileDevice::open(&path, DeviceAccess::read_write()).expect("the image");
    let kind = 0x0fc6_3daf_8483_4772_8e79_3d69_d847_7de4;
    let partition = |number: u8, name: &str, offset, bytes| NewPartition {
        kind,
        guid: u128::from_be_bytes([0x10 + number; 16]),
        name: name.to_owned(),
        offset,
        bytes,
    };
    let partitions = [
        partition(1, "r\u{f6}\u{1f980}ot", MIB, 8 * MIB),
        partition(2, &"long".repeat(20), 9 * MIB, 50 * MIB + 512),
    ];
    let mut table = PartitionTable::new_gpt(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef, &partitions);
    table.write(&device).expect("written");
    let found: Vec<_> = match Container::recognise(&device).expect("read") {
        Some(Container::PartitionTable(found)) => found,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        found.iter().map(|it| (it.offset, it.bytes)).collect::<Vec<_>>(),
        [(MIB, 8 * MIB), (9 * MIB, 50 * MIB + 512)]
    );
    assert_eq!(found[0].kind.to_string(), "0fc63daf-8483-4772-8e79-3d69d8477de4");
    // What it takes at the end leaves no room for a partition that long.
    assert_eq!(table.most_bytes(2, 64 * MIB), Some(55 * MIB - PartitionTable::GPT_END_BYTES));
    assert!(table.write(&MemoryDevice::new(67 * 512)).is_ok());
    assert!(table.write(&MemoryDevice::new(66 * 512)).is_err());
    if sfdisk("--verify", &path, "").is_none() {
        return;
    }
    assert_eq!(judged(&folder), [8 * MIB, 50 * MIB + 512]);
    let said = sfdisk("--json", &path, "").expect("sfdisk").to_lowercase();
    for part in [
        r#""label": "gpt""#,
        r#""id": "01234567-89ab-cdef-0123-456789abcdef""#,
        r#""uuid": "11111111-1111-1111-1111-111111111111""#,
        r#""name": "rö🦀ot""#,
        r#""name": "longlonglonglonglonglonglonglonglong""#,
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    match Command::new("sgdisk").arg("-v").arg(&path).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && said.contains("No problems found"), "{said}");
        }
        Err(error) => println!("skipped: sgdisk: {error}"),
    }
}
