//! Identifies other formats where an ext4 file system was expected, and says what to do with each.

mod content;
mod marks;
mod partitions;
mod superblocks;
mod volumes;

use extant_block::{BlockDevice, Container, ImageFormat, Segment};
use extant_ondisk::{SUPERBLOCK_OFFSET, superblock};

use marks::PHYSICAL_VOLUME;
use partitions::{Part, parts};
use volumes::{Volume, volumes};

/// Bytes at the front of a device that have all marks but one.
const HEAD_BYTES: u64 = 0x1_1000;

/// Something that is no ext4 file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Its name with an article, as `an XFS file system`.
    pub what: String,
    /// The advice for it.
    pub advice: String,
}

impl Foreign {
    fn new(what: &str, advice: &str) -> Self {
        Self { what: what.to_owned(), advice: advice.to_owned() }
    }

    /// Whether it leaves the beginning of the device to a partition table.
    pub fn leaves_room_for_a_table(&self) -> bool {
        self.what == marks::ISO_9660
    }
}

/// Whether there is the magic number of an ext4 superblock.
pub fn has_superblock(device: &dyn BlockDevice) -> bool {
    has_mark(device, SUPERBLOCK_OFFSET + 56, &superblock::MAGIC.to_le_bytes())
}

/// What a disk is divided into.
pub struct Division {
    /// Its partitions.
    pub parts: Vec<Part>,
    /// The logical volumes whose physical volumes are the whole disk or its partitions.
    pub volumes: Vec<Volume>,
}

impl Division {
    /// Looks at a disk. What looks like a table below another format is none.
    pub fn of(device: &dyn BlockDevice) -> Self {
        let container = Container::recognise(device).ok().flatten();
        let format = format_of(device, container.as_ref());
        let parts = match &container {
            Some(Container::PartitionTable(entries))
                if format.as_ref().is_none_or(Foreign::leaves_room_for_a_table) =>
            {
                parts(device, entries)
            }
            _ => Vec::new(),
        };
        let mut places: Vec<_> = parts.iter().map(|part| part.entry.place()).collect();
        if format.is_some_and(|format| format.what == PHYSICAL_VOLUME) {
            places.push(Segment { offset: 0, bytes: device.size() });
        }
        let volumes = volumes(device, &places);
        Self { parts, volumes }
    }
}

/// Other formats that are recognised on a device.
pub fn recognise(device: &dyn BlockDevice) -> Option<Foreign> {
    let container = Container::recognise(device).ok().flatten();
    let mut found = format_of(device, container.as_ref()).or_else(|| of_container(device, &container?))?;
    if found.what == PHYSICAL_VOLUME
        && let Some(advice) = volumes::advice(&Division::of(device).volumes)
    {
        found.advice = advice;
    }
    Some(found)
}

/// The format of a device by its marks; its container is looked at apart.
fn format_of(device: &dyn BlockDevice, container: Option<&Container>) -> Option<Foreign> {
    let has_partitions = matches!(container, Some(Container::PartitionTable(_)));
    // One request for nearly all marks, since the device may be far away; what cannot be read is asked for mark by mark.
    let mut head = vec![0; device.size().min(HEAD_BYTES) as usize];
    if device.read_at(0, &mut head).is_err() {
        head.clear();
    }
    let has =
        |mark: &marks::Mark| match head.get(mark.at as usize..).and_then(|rest| rest.get(..mark.bytes.len()))
        {
            Some(found) => found == mark.bytes,
            None => has_mark(device, mark.at, mark.bytes),
        };
    let marked = |marks: &[marks::Mark]| {
        let found = marks.iter().find(|mark| has(mark))?;
        Some(Foreign::new(found.what, found.advice))
    };
    marked(marks::LAYERS)
        .or_else(|| superblocks::array(device, has_partitions))
        .or_else(|| marked(marks::MARKS))
        .or_else(|| superblocks::file_system(device))
}

fn of_container(device: &dyn BlockDevice, container: &Container) -> Option<Foreign> {
    Some(match container {
        Container::PartitionTable(_) => {
            let Division { parts, volumes } = Division::of(device);
            Foreign { what: "a partition table".to_owned(), advice: partitions::advice(&parts, &volumes) }
        }
        Container::DiskImage(format) => Foreign::new(
            &format!("a {format} image"),
            match format {
                ImageFormat::Vdi => {
                    "convert it with `qemu-img convert -O qcow2 IMAGE NEW`, or show it as a raw disk with \
                     `qemu-nbd -c /dev/nbd0 IMAGE`"
                }
                _ => "it is opened where it is a file of its own, and not part of another disk",
            },
        ),
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
        for mark in marks::LAYERS.iter().chain(marks::MARKS) {
            let device = MemoryDevice::new(2 << 20);
            device.write_at(mark.at, mark.bytes).expect("written");
            assert_eq!(recognise(&device).map(|found| found.what).as_deref(), Some(mark.what));
            assert!(explain(&device).contains(mark.what));
        }
        assert_eq!(recognise(&MemoryDevice::new(2 << 20)), None);
    }

    /// Tables and marks in any disorder are named or not, and nothing else.
    #[test]
    fn any_bytes_are_survived() {
        let (mut state, seed) = (7_u64, 7);
        println!("seed {seed}");
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        let (mut named, device) = (0, MemoryDevice::new(2 << 20));
        for _ in 0..1000 {
            for _ in 0..below(8) {
                let mark = marks::LAYERS.iter().chain(marks::MARKS).nth(below(60) as usize).expect("a mark");
                let (at, start) = (mark.at + below(3) * 4096, below(2048) * 512);
                device.write_at(at, mark.bytes).expect("written");
                let entry = [
                    &[below(2) as u8 * 0x80, 0, 0, 0, below(256) as u8, 0, 0, 0][..],
                    &start.to_le_bytes()[..4],
                ];
                device.write_at(446 + below(4) * 16, &entry.concat()).expect("written");
                device
                    .write_at(446 + below(4) * 16 + 12, &[below(256) as u8, below(8) as u8, 0, 0])
                    .expect("written");
                device.write_at(510, &[0x55, 0xaa]).expect("written");
            }
            named += usize::from(recognise(&device).is_some());
            explain(&device);
            if below(4) == 0 {
                device.write_at(0, &[0; 0x1_1000]).expect("written");
            }
        }
        assert!(named > 500, "{named}");
    }

    /// Bytes and their places.
    type Writes = &'static [(u64, &'static [u8])];

    #[test]
    fn superblocks_are_recognised_where_they_are() {
        const MIB: u64 = 1 << 20;
        const MD: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
        let cases: [(Writes, &str); 9] = [
            (
                &[(MIB - 8192, &MD), (MIB - 8192 + 144, &[0xf0, 7, 0, 0, 0, 0, 0, 0])],
                "a member of a Linux RAID",
            ),
            (&[(MIB - 65536, &MD)], "a member of a Linux RAID"),
            (&[(MIB - 1024, b"Intel Raid ISM Cfg Sig. ")], "a member of an Intel RAID"),
            (&[(MIB - 512, &[0xde, 0x11, 0xde, 0x11])], "a member of a DDF RAID"),
            (&[(130 << 10, &[0, 0, 0, 0, 0, 0xba, 0xb1, 0x0c])], "a member of a ZFS pool"),
            (&[(132 << 10, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0])], "a member of a ZFS pool"),
            (
                &[(1024, &[0x40, 1, 0xd0, 3, 1, 0, 1, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0x8f, 0x13])],
                "a MINIX file system",
            ),
            (
                &[(1024, &[0x40, 1, 0, 0, 0, 0, 1, 0, 1, 0, 20, 0, 0, 0]), (1048, &[0x5a, 0x4d])],
                "a MINIX file system",
            ),
            (&[(1024, b"BD"), (1044, &[0, 0, 0x10, 0])], "an HFS file system"),
        ];
        for (writes, what) in cases {
            let device = MemoryDevice::new(MIB);
            writes.iter().for_each(|(at, bytes)| device.write_at(*at, bytes).expect("written"));
            assert_eq!(recognise(&device).map(|found| found.what).as_deref(), Some(what));
        }
        // What only begins like them is none of them.
        for (at, bytes) in
            [(MIB - 8192, &MD[..]), (1040, &[0x8f, 0x13]), (1048, &[0x5a, 0x4d]), (1024, b"BD")]
        {
            let device = MemoryDevice::new(MIB);
            device.write_at(at, bytes).expect("written");
            assert_eq!(recognise(&device), None, "{at}");
        }
        assert_eq!(recognise(&MemoryDevice::new(100)), None);
    }
}
