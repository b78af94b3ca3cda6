//! Structures with a field changed and their checksums right: what passes every checksum and is wrong all the same.
//!
//! [`change_field`] gives a field of a block another value, and [`write_log`] a log transactions of such blocks.

use extant_ondisk::jbd2::{Superblock, Tag, TagFlags, escape, needs_escape};
use extant_ondisk::{Entries, ExtentNode, FsBlock, InodeNumber, RawInode, TransactionId, indirect};

use crate::damage::{Random, choose};
use crate::disk::{Disk, Kind};

/// The fields of a structure in its block: offset and bytes.
fn field(disk: &Disk, block: FsBlock, kind: Kind, random: &mut Random) -> (usize, usize) {
    const SUPERBLOCK: &[(usize, usize)] = &[
        (0, 4),
        (4, 4),
        (0x14, 4),
        (0x18, 4),
        (0x20, 4),
        (0x28, 4),
        (0x54, 4),
        (0x58, 2),
        (0x5C, 4),
        (0x60, 4),
        (0x64, 4),
        (0xCE, 2),
        (0xE0, 4),
        (0xE8, 4),
        (0xFE, 2),
        (0x104, 4),
        (0x150, 4),
        (0x174, 1),
    ];
    const INODE: &[(usize, usize)] = &[
        (0, 2),
        (4, 4),
        (0x14, 4),
        (0x1A, 2),
        (0x1C, 4),
        (0x20, 4),
        (0x64, 4),
        (0x68, 4),
        (0x6C, 4),
        (0x74, 2),
        (0x76, 2),
        (0x80, 2),
    ];
    let len = disk.geometry.block_size as usize;
    let of = |table: &[(usize, usize)], random: &mut Random| table[random.below(table.len())];
    match kind {
        Kind::Superblock => of(SUPERBLOCK, random),
        Kind::Descriptors => {
            let desc_size = usize::from(disk.geometry.desc_size);
            let groups = (len / desc_size).min(disk.geometry.group_count as usize);
            let (at, bytes) =
                of(&[(0, 4), (4, 4), (8, 4), (12, 2), (14, 2), (16, 2), (18, 2), (28, 2)], random);
            (random.below(groups) * desc_size + at, bytes)
        }
        Kind::InodeTable(_) => {
            let inode = usize::from(disk.geometry.inode_size);
            let base = random.below(len / inode) * inode;
            let (at, bytes) = match random.below(3) {
                0 => of(INODE, random),
                // The map, or what is stored in its place.
                1 => (0x28 + random.below(15) * 4, 4),
                _ if inode > 160 => (160 + random.below((inode - 160) / 4) * 4, 4),
                _ => of(INODE, random),
            };
            (base + at, bytes)
        }
        Kind::Extents(..) => {
            let entry = 12 + random.below(4) * 12;
            of(&[(2, 2), (4, 2), (6, 2), (entry, 4), (entry + 4, 2), (entry + 6, 2), (entry + 8, 4)], random)
        }
        Kind::Directory(..) => {
            let bytes = disk.block(block);
            let mut at = 0;
            for _ in 0..random.below(12) {
                let rec_len = usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
                at = if rec_len >= 8 && at + rec_len + 16 < len { at + rec_len } else { 0 };
            }
            of(&[(at, 4), (at + 4, 2), (at + 6, 1), (at + 7, 1), (at + 8, 1), (at + 9, 1)], random)
        }
        Kind::Index(..) => {
            let entry = [8, 32][random.below(2)] + random.below(6) * 8;
            of(
                &[
                    (0x18, 4),
                    (0x1C, 1),
                    (0x1D, 1),
                    (0x1E, 1),
                    (entry, 2),
                    (entry + 2, 2),
                    (entry, 4),
                    (entry + 4, 4),
                ],
                random,
            )
        }
        Kind::Xattrs => {
            let entry = 32 + random.below(3) * 20;
            of(
                &[(4, 4), (8, 4), (entry, 1), (entry + 1, 1), (entry + 2, 2), (entry + 4, 4), (entry + 8, 4)],
                random,
            )
        }
        Kind::Indirect => (random.below(len / 4) * 4, 4),
        Kind::BlockBitmap(_) | Kind::InodeBitmap(_) | Kind::Symlink => (random.below(len), 1),
    }
}

/// Gives a field of a block another value, and sets its checksum; what was done.
pub fn change_field(
    disk: &mut Disk,
    blocks: &[(FsBlock, Kind)],
    (block, kind): (FsBlock, Kind),
    random: &mut Random,
) -> String {
    let (at, width) = field(disk, block, kind, random);
    let start = if kind == Kind::Superblock { 1024 } else { disk.range(block).start };
    let place = start + at..start + at + width;
    let mut raw = [0; 8];
    raw[..width].copy_from_slice(&disk.bytes[place.clone()]);
    let old = u64::from_le_bytes(raw);
    let new = match random.below(9) {
        0 => 0,
        1 => u64::MAX,
        2 => old.wrapping_add(1),
        3 => old.wrapping_sub(1),
        // A block that another structure occupies.
        4 => blocks[random.below(blocks.len())].0.0,
        // An inode.
        5 => random.below(20) as u64,
        6 => old ^ 1 << random.below(8 * width),
        7 => old.wrapping_mul(2),
        _ => random.below(usize::MAX) as u64,
    };
    disk.bytes[place].copy_from_slice(&new.to_le_bytes()[..width]);
    disk.fix(block, kind);
    format!("{kind:?}, block {block}: field at {at} from {old:#x} to {new:#x}")
}

/// The blocks of the journal: those that its extents in its inode name, or the direct and singly indirect ones.
pub fn journal_blocks(disk: &Disk) -> Vec<FsBlock> {
    let inode = RawInode::parse(&disk.bytes[disk.inode_range(InodeNumber(8))]).expect("an inode");
    if inode.links_count() == 0 {
        return Vec::new();
    }
    match ExtentNode::parse(inode.i_block(), None).map(|node| node.entries) {
        Ok(Entries::Leaf(extents)) => {
            let blocks = |extent: &extant_ondisk::Extent| {
                let start = extent.start.0;
                (start..start + u64::from(extent.len)).map(FsBlock)
            };
            extents.iter().flat_map(blocks).collect()
        }
        Ok(Entries::Index(_)) => Vec::new(),
        Err(_) => {
            let number = |table: &[u8], slot| indirect::pointer(table, slot).filter(|number| *number != 0);
            let block = |number: u32| FsBlock(u64::from(number));
            let direct = (0..indirect::DIRECT).map_while(|slot| number(inode.i_block(), slot)).map(block);
            let single = number(inode.i_block(), indirect::SINGLE).map(block).into_iter();
            let further = single.flat_map(|table| {
                (0..disk.geometry.block_size / 4).map_while(move |slot| number(disk.block(table), slot))
            });
            direct.chain(further.map(block)).collect()
        }
    }
}

/// Writes a log of a few transactions of changed blocks, all checksums right, or changes the log's superblock; what was
/// done.
pub fn write_log(
    disk: &mut Disk,
    journal: &[FsBlock],
    blocks: &[(FsBlock, Kind)],
    random: &mut Random,
) -> String {
    let Some(first) = journal.first() else { return "no journal".to_owned() };
    let Ok(mut log) = Superblock::parse(disk.block(*first)) else { return "no log".to_owned() };
    // Without EXT4_FEATURE_INCOMPAT_RECOVER the log is not replayed, whatever its content.
    if random.below(8) != 0 {
        disk.bytes[1024 + 0x60] |= 4;
        disk.fix(blocks[0].0, Kind::Superblock);
    }
    if random.below(4) == 0 {
        change_log_superblock(&mut log, random);
        let range = disk.range(*first);
        log.write(&mut disk.bytes[range]);
        return format!("{log:?}");
    }
    let (format, mut done) = (log.format(), String::new());
    let mut at = log.s_first as usize;
    // A few of them at the wrap of the number.
    log.s_sequence = TransactionId(if random.below(4) == 0 { u32::MAX - 1 } else { log.s_sequence.0 });
    let mut sequence = log.s_sequence;
    for _ in 0..=random.below(3) {
        let mut tags = Vec::new();
        let mut written: Vec<Box<[u8]>> = Vec::new();
        for _ in 0..=random.below(3) {
            let (block, kind) = choose(blocks, random);
            let saved = disk.block(block).to_vec();
            done += &change_field(disk, blocks, (block, kind), random);
            let range = disk.range(block);
            let mut copy = disk.bytes[range.clone()].to_vec();
            disk.bytes[range].copy_from_slice(&saved);
            let checksum = format.copy_checksum(sequence, &copy);
            let mut flags = TagFlags::empty();
            if needs_escape(&copy) {
                escape(&mut copy);
                flags |= TagFlags::ESCAPE;
            }
            let home = match random.below(12) {
                0 => journal[random.below(journal.len())],
                1 => FsBlock(random.below(disk.bytes.len()) as u64),
                _ => block,
            };
            tags.push(Tag { block: home, flags, checksum });
            written.push(copy.into());
        }
        written.insert(0, format.descriptor(sequence, &tags));
        if random.below(3) == 0 {
            let revoked: Vec<_> = (0..random.below(8)).map(|_| choose(blocks, random).0).collect();
            written.push(format.revoke(sequence, &revoked));
        }
        written.push(format.commit(sequence, 1_700_000_000, 0));
        for bytes in written {
            let Some(block) = journal.get(at) else { break };
            let range = disk.range(*block);
            disk.bytes[range].copy_from_slice(&bytes);
            at += 1;
        }
        sequence = TransactionId(sequence.0.wrapping_add(1));
    }
    log.s_start = log.s_first;
    let range = disk.range(*first);
    log.write(&mut disk.bytes[range]);
    format!("a log from {sequence:?} on of {done}")
}

fn change_log_superblock(log: &mut Superblock, random: &mut Random) {
    let value =
        [0, 1, u32::MAX, log.s_maxlen, log.s_maxlen - 1, random.below(1 << 20) as u32][random.below(6)];
    match random.below(9) {
        0 => log.s_blocksize = value,
        1 => log.s_maxlen = value,
        2 => log.s_first = value,
        3 => log.s_start = value,
        4 => log.s_sequence = TransactionId(value),
        5 => log.s_nr_users = value,
        6 => log.s_errno = value as i32,
        7 => log.s_num_fc_blks = value,
        _ => log.s_head = value,
    }
}
