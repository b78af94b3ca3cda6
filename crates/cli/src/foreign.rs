//! Identifies other formats where an ext4 file system was expected, and says what to do with each.

use extant_block::{BlockDevice, Container, ImageFormat};
use extant_ondisk::{SUPERBLOCK_OFFSET, superblock};

use crate::size;

/// Something that is no ext4 file system.
#[derive(Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Its name with an article, as `an XFS file system`.
    pub what: String,
    /// The advice for it.
    pub advice: String,
}

/// Where a mark is, the mark, what it marks, and what to do about that.
type Mark = (u64, &'static [u8], &'static str, &'static str);

const UNREADABLE: &str =
    "only ext4 is read here; mount it with the kernel and copy its files with `extant mkfs -d DIR IMAGE`";

/// Longer marks before shorter ones that they contain.
const MARKS: [Mark; 26] = [
    (0, b"XFSB", "an XFS file system", UNREADABLE),
    (0x1_0040, b"_BHRfS_M", "a btrfs file system", UNREADABLE),
    (3, b"NTFS    ", "an NTFS file system", UNREADABLE),
    (3, b"EXFAT   ", "an exFAT file system", UNREADABLE),
    (1024, &[0x10, 0x20, 0xf5, 0xf2], "an F2FS file system", UNREADABLE),
    (0x1_0034, b"ReIsEr", "a ReiserFS file system", UNREADABLE),
    (
        54,
        b"FAT1",
        "a FAT file system",
        "`mcopy -s -i IMAGE ::/ DIR` unpacks it, and `extant mkfs -d DIR` makes a disk of that",
    ),
    (
        82,
        b"FAT32",
        "a FAT file system",
        "`mcopy -s -i IMAGE ::/ DIR` unpacks it, and `extant mkfs -d DIR` makes a disk of that",
    ),
    (
        0,
        b"hsqs",
        "a squashfs file system",
        "`unsquashfs -d DIR IMAGE` unpacks it, and `extant mkfs -d DIR` makes a disk of that",
    ),
    (
        1024,
        &[0xe2, 0xe1, 0xf5, 0xe0],
        "an EROFS file system",
        "`fsck.erofs --extract=DIR IMAGE` unpacks it, and `extant mkfs -d DIR` makes a disk of that",
    ),
    (
        0x8001,
        b"CD001",
        "an ISO 9660 file system",
        "`bsdtar -xf IMAGE -C DIR` unpacks it, and `extant mkfs -d DIR` makes a disk of that",
    ),
    (4086, b"SWAPSPACE2", "swap space", "it holds no files"),
    (4086, b"SWAP-SPACE", "swap space", "it holds no files"),
    (
        0,
        b"LUKS\xba\xbe",
        "a LUKS volume",
        "open it with `cryptsetup open IMAGE NAME` and use /dev/mapper/NAME",
    ),
    (512, b"LABELONE", "an LVM physical volume", "activate it with `vgchange -ay` and use /dev/VG/LV"),
    (
        4096,
        &[0xfc, 0x4e, 0x2b, 0xa9],
        "a member of a Linux RAID",
        "assemble it with `mdadm --assemble` and use the array",
    ),
    (
        257,
        b"ustar",
        "a tar archive",
        "`extant mkfs -d ARCHIVE IMAGE` makes a disk of it, `extant import` unpacks it into one",
    ),
    (0, b"070701", "a cpio archive", "`cpio -idm` unpacks it, and `extant mkfs -d DIR` makes a disk of that"),
    (0, b"PK\x03\x04", "a ZIP archive", "unpack it with `unzip`"),
    (0, b"\xfd7zXZ\0", "a file compressed with xz", "unpack it with `unxz -k`"),
    (0, &[0x28, 0xb5, 0x2f, 0xfd], "a file compressed with Zstandard", "unpack it with `unzstd`"),
    (0, &[4, 0x22, 0x4d, 0x18], "a file compressed with LZ4", "unpack it with `unlz4`"),
    (0, b"BZh", "a file compressed with bzip2", "unpack it with `bunzip2 -k`"),
    (0, &[0x1f, 0x8b], "a file compressed with gzip", "unpack it with `gunzip -k`"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it with `7z x`"),
    (0, &[0x3a, 0xff, 0x26, 0xed], "an Android sparse image", "unpack it with `simg2img`"),
];

/// Whether there is the magic number of an ext4 superblock.
pub fn has_superblock(device: &dyn BlockDevice) -> bool {
    has_mark(device, SUPERBLOCK_OFFSET + 56, &superblock::MAGIC.to_le_bytes())
}

/// Other formats that are recognised on a device.
pub fn recognise(device: &dyn BlockDevice) -> Option<Foreign> {
    let found = MARKS.iter().find(|(at, mark, ..)| has_mark(device, *at, mark));
    if let Some((.., what, advice)) = found {
        return Some(Foreign { what: (*what).to_owned(), advice: (*advice).to_owned() });
    }
    Some(match Container::recognise(device).ok()?? {
        Container::PartitionTable(partitions) => {
            let each = partitions.iter().map(|partition| {
                format!("{} ({} at byte {})", partition.number, size::show(partition.bytes), partition.offset)
            });
            let each = each.collect::<Vec<_>>().join(", ");
            let advice = if each.is_empty() {
                "it names no partition".to_owned()
            } else {
                format!("choose one with --partition: {each}")
            };
            Foreign { what: "a partition table".to_owned(), advice }
        }
        Container::DiskImage(format) => Foreign {
            what: format!("a {format} image"),
            advice: match format {
                ImageFormat::Vdi => {
                    "convert it with `qemu-img convert -O qcow2 IMAGE NEW`, or show it as a raw disk with \
                     `qemu-nbd -c /dev/nbd0 IMAGE`"
                }
                _ => "it is opened where it is a file of its own, and not part of another disk",
            }
            .to_owned(),
        },
        _ => return None,
    })
}

/// Why a device without an ext4 superblock cannot be opened, and what to do.
pub fn explain(device: &dyn BlockDevice) -> String {
    if let Some(Foreign { what, advice }) = recognise(device) {
        return format!("{what}, not an ext4 file system; {advice}");
    }
    let advice = match device.size() {
        0 => "the file is empty; `extant mkfs IMAGE SIZE` makes one",
        _ => "`extant mkfs` makes one; --offset BYTES finds one that begins further in",
    };
    format!("no ext4 file system; {advice}")
}

fn has_mark(device: &dyn BlockDevice, at: u64, mark: &[u8]) -> bool {
    let mut found = vec![0; mark.len()];
    device.read_at(at, &mut found).is_ok() && found == mark
}

#[cfg(test)]
mod tests {
    use extant_block::MemoryDevice;

    use super::*;

    #[test]
    fn each_mark_is_recognised_by_itself() {
        for (at, mark, what, _) in MARKS {
            let device = MemoryDevice::new(1 << 20);
            device.write_at(at, mark).expect("written");
            assert_eq!(recognise(&device).map(|found| found.what).as_deref(), Some(what));
            assert!(explain(&device).contains(what));
        }
        assert_eq!(recognise(&MemoryDevice::new(1 << 20)), None);
    }
}
