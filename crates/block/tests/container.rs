//! Partition tables are read as libblkid reads them, and hostile ones do no harm.

use extant_block::{BlockDevice, Container, ImageFormat, MemoryDevice, PartitionEntry, PartitionKind};
use extant_testing::{Command, Random};

const SECTOR: usize = 512;
const DISK_BYTES: usize = 8 << 20;

const LINUX_GUID: [u8; 16] =
    [0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4];

fn put(disk: &mut [u8], at: usize, bytes: &[u8]) {
    disk[at..at + bytes.len()].copy_from_slice(bytes);
}

/// An entry of an MBR or of an extended partition's table; start and length in sectors.
fn put_mbr_entry(disk: &mut [u8], table_sector: usize, slot: usize, kind: u8, start: u32, sectors: u32) {
    let at = table_sector * SECTOR + 446 + slot * 16;
    put(disk, at + 4, &[kind]);
    put(disk, at + 8, &start.to_le_bytes());
    put(disk, at + 12, &sectors.to_le_bytes());
    put(disk, table_sector * SECTOR + 510, &[0x55, 0xaa]);
}

/// Two primary partitions and an extended one with two logical ones.
fn mbr_disk() -> Vec<u8> {
    let mut disk = vec![0; DISK_BYTES];
    put_mbr_entry(&mut disk, 0, 0, 0x83, 64, 1000);
    put_mbr_entry(&mut disk, 0, 2, 0x0c, 2048, 512);
    put_mbr_entry(&mut disk, 0, 3, 0x05, 4096, 8192);
    put_mbr_entry(&mut disk, 4096, 0, 0x83, 8, 100);
    put_mbr_entry(&mut disk, 4096, 1, 0x05, 1024, 2000);
    put_mbr_entry(&mut disk, 5120, 0, 0x82, 16, 300);
    disk
}

/// The checksum of zip, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()))
    })
}

fn put_gpt_header(disk: &mut [u8], at: u64, other: u64, entries_at: u64, entries_crc: u32) {
    let mut header = [0; 92];
    let last = (disk.len() / SECTOR) as u64 - 1;
    put(&mut header, 0, b"EFI PART");
    put(&mut header, 8, &0x10000_u32.to_le_bytes());
    put(&mut header, 12, &92_u32.to_le_bytes());
    put(&mut header, 24, &at.to_le_bytes());
    put(&mut header, 32, &other.to_le_bytes());
    put(&mut header, 40, &34_u64.to_le_bytes());
    put(&mut header, 48, &(last - 33).to_le_bytes());
    put(&mut header, 56, &[1; 16]);
    put(&mut header, 72, &entries_at.to_le_bytes());
    put(&mut header, 80, &128_u32.to_le_bytes());
    put(&mut header, 84, &128_u32.to_le_bytes());
    put(&mut header, 88, &entries_crc.to_le_bytes());
    let crc = crc32(&header);
    put(&mut header, 16, &crc.to_le_bytes());
    put(disk, at as usize * SECTOR, &header);
}

/// Partitions 1 and 3, in both copies of the table.
fn gpt_disk() -> Vec<u8> {
    let mut disk = vec![0; DISK_BYTES];
    let last = (DISK_BYTES / SECTOR) as u64 - 1;
    put_mbr_entry(&mut disk, 0, 0, 0xee, 1, last as u32);
    let mut entries = vec![0; 128 * 128];
    for (slot, first, last) in [(0, 2048_u64, 4095_u64), (2, 6144, 6151)] {
        put(&mut entries, slot * 128, &LINUX_GUID);
        put(&mut entries, slot * 128 + 16, &[slot as u8 + 1; 16]);
        put(&mut entries, slot * 128 + 32, &first.to_le_bytes());
        put(&mut entries, slot * 128 + 40, &last.to_le_bytes());
    }
    for (header, other, table) in [(1, last, 2), (last, 1, last - 32)] {
        put(&mut disk, table as usize * SECTOR, &entries);
        put_gpt_header(&mut disk, header, other, table, crc32(&entries));
    }
    disk
}

fn recognise(disk: &[u8]) -> Option<Container> {
    let device = MemoryDevice::new(disk.len() as u64);
    device.write_at(0, disk).expect("write");
    Container::recognise(&device).expect("reads")
}

fn partitions(disk: &[u8]) -> Vec<PartitionEntry> {
    match recognise(disk) {
        Some(Container::PartitionTable(partitions)) => partitions,
        other => panic!("{other:?}"),
    }
}

fn places(partitions: &[PartitionEntry]) -> Vec<(u32, u64, u64)> {
    partitions.iter().map(|p| (p.number, p.offset / SECTOR as u64, p.bytes / SECTOR as u64)).collect()
}

/// Holds the list against `partx`, which shows extended partitions too, by their type.
fn agrees_with_partx(disk: &[u8]) {
    let dir = tempfile::tempdir_in("/dev/shm").expect("tempdir");
    let path = dir.path().join("disk");
    std::fs::write(&path, disk).expect("disk");
    let output = Command::new("partx")
        .args(["--raw", "--noheadings", "-o", "NR,START,SECTORS,TYPE"])
        .arg(&path)
        .output();
    let Ok(output) = output else {
        println!("skipped: no partx");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let number = |field: Option<&&str>| field.and_then(|text| text.parse::<u64>().ok()).expect("number");
    let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let found: Vec<_> = rows
        .filter(|row| row.get(3) != Some(&"0x5"))
        .map(|row| (number(row.first()) as u32, number(row.get(1)), number(row.get(2))))
        .collect();
    assert_eq!(places(&partitions(disk)), found);
}

#[test]
fn mbr_with_logical_partitions_is_listed() {
    let found = partitions(&mbr_disk());
    assert_eq!(places(&found), [(1, 64, 1000), (3, 2048, 512), (5, 4104, 100), (6, 5136, 300)]);
    assert_eq!(found[1].kind, PartitionKind::Mbr(0x0c));
    assert_eq!(found[1].kind.to_string(), "0c");
    agrees_with_partx(&mbr_disk());
}

#[test]
fn guid_table_is_listed() {
    let found = partitions(&gpt_disk());
    assert_eq!(places(&found), [(1, 2048, 2048), (3, 6144, 8)]);
    assert_eq!(found[0].kind.to_string(), "0fc63daf-8483-4772-8e79-3d69d8477de4");
    agrees_with_partx(&gpt_disk());
}

#[test]
fn guid_table_with_a_damaged_front_is_read_from_its_copy() {
    let mut disk = gpt_disk();
    let expected = partitions(&disk);
    disk[SECTOR + 80] ^= 1;
    assert_eq!(partitions(&disk), expected);
    let mut disk = gpt_disk();
    disk[2 * SECTOR + 300] ^= 1;
    assert_eq!(partitions(&disk), expected);
    // Without either copy only the protective entry is left.
    let last = disk.len() - SECTOR;
    disk[last] ^= 1;
    assert_eq!(partitions(&disk)[0].kind, PartitionKind::Mbr(0xee));
}

#[test]
fn chain_of_tables_that_closes_on_itself_ends() {
    let mut disk = mbr_disk();
    put_mbr_entry(&mut disk, 5120, 1, 0x05, 0, 8192);
    assert!(partitions(&disk).len() <= 200);
}

#[test]
fn partition_past_the_end_is_left_out() {
    let mut disk = mbr_disk();
    put_mbr_entry(&mut disk, 0, 1, 0x83, u32::MAX, u32::MAX);
    put_mbr_entry(&mut disk, 4096, 1, 0x05, u32::MAX, 1);
    assert_eq!(places(&partitions(&disk)), [(1, 64, 1000), (3, 2048, 512), (5, 4104, 100)]);
}

#[test]
fn image_formats_are_recognised_by_their_marks() {
    for (at, mark, format, name) in [
        (0, &b"QFI\xfb"[..], ImageFormat::Qcow2, "qcow2"),
        (0, b"KDMV", ImageFormat::Vmdk, "VMDK"),
        (0, b"# Disk DescriptorFile\n", ImageFormat::Vmdk, "VMDK"),
        (0, b"vhdxfile", ImageFormat::Vhdx, "VHDX"),
        (64, &[0x7f, 0x10, 0xda, 0xbe], ImageFormat::Vdi, "VDI"),
        (0, b"conectix", ImageFormat::Vhd, "VHD"),
    ] {
        let mut disk = vec![0; 4096];
        put(&mut disk, at, mark);
        assert_eq!(recognise(&disk), Some(Container::DiskImage(format)));
        assert_eq!(format.to_string(), name);
    }
}

#[test]
fn neither_noise_nor_a_boot_sector_nor_nothing_is_a_table() {
    assert_eq!(recognise(&[]), None);
    assert_eq!(recognise(&[0; 100]), None);
    assert_eq!(recognise(&vec![0; DISK_BYTES]), None);
    let mut boot_sector = vec![0xeb; DISK_BYTES];
    put(&mut boot_sector, 510, &[0x55, 0xaa]);
    assert_eq!(recognise(&boot_sector), None);
}

#[test]
fn any_damage_is_survived() {
    let seed = 77;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    for disk in [mbr_disk(), gpt_disk()] {
        let device = MemoryDevice::new(disk.len() as u64);
        device.write_at(0, &disk).expect("write");
        for _ in 0..2000 {
            let damaged = device.snapshot();
            for _ in 0..=random.below(4) {
                let sector = [0, 1, 2, 4096, 5120, disk.len() as u64 / 512 - 1][random.below(6) as usize];
                let at = sector * 512 + random.below(512 - 8);
                let field = [u64::MAX, 0, 1, random.below(u64::MAX)][random.below(4) as usize].to_le_bytes();
                damaged.write_at(at, &field[..1 << random.below(4)]).expect("write");
            }
            if let Some(Container::PartitionTable(found)) = Container::recognise(&damaged).expect("reads") {
                assert!(
                    found.iter().all(|p| p.offset + p.bytes <= disk.len() as u64),
                    "seed {seed}: {found:?}"
                );
            }
        }
    }
}

#[test]
fn guid_header_with_a_valid_checksum_over_absurd_fields_is_survived() {
    for (at, value) in
        [(12, u32::MAX), (12, 512), (12, 0), (72, u32::MAX), (80, u32::MAX), (84, u32::MAX), (84, 0)]
    {
        let mut disk = gpt_disk();
        let last = disk.len() - SECTOR;
        disk[last] ^= 1;
        put(&mut disk, SECTOR + at, &value.to_le_bytes());
        put(&mut disk, SECTOR + 16, &[0; 4]);
        let crc = crc32(&disk[SECTOR..SECTOR + 92]);
        put(&mut disk, SECTOR + 16, &crc.to_le_bytes());
        assert_eq!(partitions(&disk)[0].kind, PartitionKind::Mbr(0xee), "field at {at} = {value}");
    }
}
