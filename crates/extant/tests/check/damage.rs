//! Random bytes in metadata blocks, with their checksums set right or not.

use extant_ondisk::FsBlock;

use crate::disk::{Disk, Kind};

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// Below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % bound.max(1) as u64) as usize
    }
}

/// A number for the kind, so that each kind is damaged equally often.
fn class(kind: Kind) -> u8 {
    match kind {
        Kind::Superblock => 0,
        Kind::Descriptors => 1,
        Kind::BlockBitmap(_) => 2,
        Kind::InodeBitmap(_) => 3,
        Kind::InodeTable(_) => 4,
        Kind::Extents(..) => 5,
        Kind::Indirect => 6,
        Kind::Directory(..) => 7,
        Kind::Index(..) => 8,
        Kind::Xattrs => 9,
        Kind::Symlink => 10,
    }
}

/// One of these blocks, of each kind equally often.
pub fn choose(blocks: &[(FsBlock, Kind)], random: &mut Random) -> (FsBlock, Kind) {
    let mut classes: Vec<u8> = blocks.iter().map(|(_, kind)| class(*kind)).collect();
    classes.sort_unstable();
    classes.dedup();
    let chosen = classes[random.below(classes.len())];
    let of_class: Vec<_> = blocks.iter().filter(|(_, kind)| class(*kind) == chosen).collect();
    *of_class[random.below(of_class.len())]
}

/// Changes a few bytes of a block; what was done.
pub fn damage_block(disk: &mut Disk, block: FsBlock, kind: Kind, random: &mut Random) -> String {
    let range = disk.range(block);
    let (start, len) = match kind {
        Kind::Superblock => (1024, 1024),
        _ => (range.start, range.len()),
    };
    // Headers and first entries count more than the rest.
    let reach = [16, 64, 256, len][random.below(4)].min(len);
    let inode = usize::from(disk.geometry.inode_size);
    let base = if matches!(kind, Kind::InodeTable(_)) { random.below(len / inode) * inode } else { 0 };
    let mut done = format!("{kind:?}, block {block}:");
    for _ in 0..=random.below(3) {
        let at = (base + random.below(reach)).min(len - 1);
        let byte = match random.below(4) {
            0 => 0,
            1 => 0xFF,
            2 => disk.bytes[start + at] ^ 1 << random.below(8),
            _ => random.below(256) as u8,
        };
        done += &format!(" byte {at} from {:#x} to {byte:#x}", disk.bytes[start + at]);
        disk.bytes[start + at] = byte;
    }
    if random.below(4) > 0 {
        disk.fix(block, kind);
        done += ", checksum set";
    }
    done
}
