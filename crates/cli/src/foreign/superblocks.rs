//! Formats whose superblock is where the size of the device says, or whose mark is so short that other fields are looked at too.
//!
//! Sources: the kernel's `drivers/md/md_p.h`, `fs/minix/minix.h`, `fs/hfs/hfs.h`; the on-disk format of ZFS, chapter 1.

use extant_block::BlockDevice;

use super::Foreign;
use super::marks::{ARRAY, KERNEL};

/// The magic number of Linux's RAID.
const MD_MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
const SECTOR_BYTES: u64 = 512;

/// The superblock of an array at the end of a device. One of version 0.90 does not say where it is: on a device that has partitions it is
/// the last one's.
pub fn array(device: &dyn BlockDevice, has_partitions: bool) -> Option<Foreign> {
    let what = if is_md_at_end(device, has_partitions) {
        "a member of a Linux RAID"
    } else if read(device, device.size().checked_sub(1024)?) == *b"Intel Raid ISM Cfg Sig. " {
        "a member of an Intel RAID"
    } else if read(device, device.size().checked_sub(512)?) == [0xde, 0x11, 0xde, 0x11] {
        "a member of a DDF RAID"
    } else {
        return None;
    };
    Some(Foreign::new(what, ARRAY))
}

fn is_md_at_end(device: &dyn BlockDevice, has_partitions: bool) -> bool {
    let sectors = device.size() / SECTOR_BYTES;
    // Version 1.0: 8 KiB before the end or a little more, at a multiple of 4 KiB. It says where it is.
    let is_1_0 = sectors.checked_sub(16).is_some_and(|sector| {
        let sector = sector & !7;
        let at = sector * SECTOR_BYTES;
        read(device, at) == MD_MAGIC && read(device, at + 144) == sector.to_le_bytes()
    });
    // Version 0.90: in the last whole 64 KiB.
    let is_0_90 = !has_partitions
        && (device.size() & !0xffff)
            .checked_sub(0x1_0000)
            .is_some_and(|at| read(device, at) == MD_MAGIC && read(device, at + 4) == [0; 4]);
    is_1_0 || is_0_90
}

/// File systems.
pub fn file_system(device: &dyn BlockDevice) -> Option<Foreign> {
    if is_zfs(device) {
        let advice = "import it with `zpool import -o readonly=on -d DIR POOL`, where DIR has the image, and copy its files";
        return Some(Foreign::new("a member of a ZFS pool", advice));
    }
    if is_minix(device) {
        return Some(Foreign::new("a MINIX file system", KERNEL));
    }
    is_hfs(device).then(|| Foreign::new("an HFS file system", KERNEL))
}

/// An uberblock in the first label, in either order of bytes.
fn is_zfs(device: &dyn BlockDevice) -> bool {
    /// Where the ring of uberblocks of the first label begins and ends, and the least bytes of one.
    const RING: std::ops::Range<u64> = 128 << 10..256 << 10;
    const UBERBLOCK_BYTES: usize = 1024;
    const MAGIC: u64 = 0x00ba_b10c;
    let mut ring = vec![0; (RING.end - RING.start) as usize];
    device.read_at(RING.start, &mut ring).is_ok()
        && ring.chunks(UBERBLOCK_BYTES).any(|uberblock| {
            uberblock.starts_with(&MAGIC.to_le_bytes()) || uberblock.starts_with(&MAGIC.to_be_bytes())
        })
}

fn is_minix(device: &dyn BlockDevice) -> bool {
    let superblock: [u8; 32] = read(device, 1024);
    let field = |at: usize| u32::from(u16::from_le_bytes([superblock[at], superblock[at + 1]]));
    // Where the sizes of the two bitmaps, the first block of data and the size of a zone are.
    let (bitmaps, first_data, log_zone) = match (field(16), field(24)) {
        (0x137f | 0x138f | 0x2468 | 0x2478, _) => (4, 8, 10),
        (_, 0x4d5a) => (6, 10, 12),
        _ => return false,
    };
    let (inodes, zones) = (field(bitmaps), field(bitmaps + 2));
    inodes > 0 && zones > 0 && field(log_zone) == 0 && field(first_data) >= 2 + inodes + zones
}

fn is_hfs(device: &dyn BlockDevice) -> bool {
    let superblock: [u8; 24] = read(device, 1024);
    let block_bytes = u32::from_be_bytes([superblock[20], superblock[21], superblock[22], superblock[23]]);
    superblock.starts_with(b"BD") && block_bytes > 0 && block_bytes.is_multiple_of(512)
}

/// Bytes of the device; zeroes if it ends before.
fn read<const BYTES: usize>(device: &dyn BlockDevice, at: u64) -> [u8; BYTES] {
    let mut found = [0; BYTES];
    match device.read_at(at, &mut found) {
        Ok(()) => found,
        Err(_) => [0; BYTES],
    }
}
