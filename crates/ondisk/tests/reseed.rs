//! Checksums that change to another seed are those of the other seed, whatever they sum; wrong ones stay wrong.

use extant_ondisk::inode::EXTRA_ISIZE;
use extant_ondisk::{ChecksumKind, Checksums, FsBlock, InodeNumber, RawInode, Reseed, dirent, orphan_file};

const INODE: InodeNumber = InodeNumber(0x0102_0304);
const GENERATION: u32 = 0xFEDC_BA98;
const PLACE: FsBlock = FsBlock(0x1_2345_6789);

fn summed(seed: u32) -> Checksums {
    Checksums {
        kind: ChecksumKind::Crc32c,
        seed,
        desc_size: 64,
        block_bitmap_bytes: 4096,
        inode_bitmap_bytes: 1024,
    }
}

/// A block of bytes that are not all the same.
fn block(size: u32) -> Vec<u8> {
    (0..size).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 13) as u8).collect()
}

/// What is asked of each structure: summed under one seed and changed, it is right under the other alone; and wrong before, wrong after.
fn assert_reseeded(
    what: &str,
    mut bytes: Vec<u8>,
    wrong_at: usize,
    sum: impl Fn(&Checksums, &mut Vec<u8>),
    reseed: impl Fn(&Reseed, &mut Vec<u8>),
    is_right: impl Fn(&Checksums, &[u8]) -> bool,
    sizes: (u16, u32),
) {
    let (old, new) = (summed(7), summed(0xA5A5_1234));
    let change = Reseed::between(&old, &new, sizes.0, sizes.1).expect("two seeds");
    sum(&old, &mut bytes);
    assert!(is_right(&old, &bytes), "{what}");
    let mut damaged = bytes.clone();
    damaged[wrong_at] ^= 4;
    reseed(&change, &mut bytes);
    assert!(is_right(&new, &bytes) && !is_right(&old, &bytes), "{what} of {sizes:?}");
    reseed(&change, &mut damaged);
    assert!(!is_right(&new, &damaged) && !is_right(&old, &damaged), "{what} of {sizes:?}, damaged");
}

#[test]
fn inode_of_every_size_gets_the_checksum_of_the_other_seed() {
    for (size, extra_isize) in
        [(128, 0), (256, 0), (256, 4), (256, EXTRA_ISIZE), (512, EXTRA_ISIZE), (4096, EXTRA_ISIZE)]
    {
        let mut inode = RawInode::new(size, extra_isize).expect("an inode's sizes");
        inode.set_generation(GENERATION);
        inode.set_i_mode(0o100_644);
        assert_reseeded(
            "inode",
            inode.as_bytes().to_vec(),
            8,
            |checksums, bytes| {
                let mut raw = RawInode::parse(bytes).expect("an inode");
                checksums.update_inode(INODE, &mut raw);
                bytes.copy_from_slice(raw.as_bytes());
            },
            |reseed, bytes| reseed.inode(bytes),
            |checksums, bytes| checksums.verify_inode(INODE, &RawInode::parse(bytes).expect("an inode")),
            (size, 4096),
        );
    }
}

#[test]
fn blocks_of_every_kind_and_size_get_the_checksum_of_the_other_seed() {
    for size in [1024, 2048, 4096, 65_536] {
        let mut leaf = block(size);
        dirent::init_tail(&mut leaf);
        assert_reseeded(
            "directory block",
            leaf,
            100,
            |checksums, bytes| checksums.update_dir_block(INODE, GENERATION, bytes),
            |reseed, bytes| reseed.dir_block(bytes),
            |checksums, bytes| checksums.verify_dir_block(INODE, GENERATION, bytes),
            (256, size),
        );
        let mut node = block(size);
        node[4..6].copy_from_slice(&(((size - 12 - 4) / 12) as u16).to_le_bytes());
        assert_reseeded(
            "extent node",
            node,
            100,
            |checksums, bytes| checksums.update_extent_block(INODE, GENERATION, bytes),
            |reseed, bytes| reseed.extent_block(bytes),
            |checksums, bytes| checksums.verify_extent_block(INODE, GENERATION, bytes),
            (256, size),
        );
        assert_reseeded(
            "xattr block",
            block(size),
            100,
            |checksums, bytes| checksums.update_xattr_block(PLACE, bytes),
            |reseed, bytes| reseed.xattr_block(bytes),
            |checksums, bytes| checksums.verify_xattr_block(PLACE, bytes),
            (256, size),
        );
        let mut orphans = block(size);
        let tail = orphans.len() - 8;
        orphans[tail..tail + 4].copy_from_slice(&orphan_file::MAGIC.to_le_bytes());
        assert_reseeded(
            "block of the orphan file",
            orphans,
            100,
            |checksums, bytes| orphan_file::update(checksums, INODE, GENERATION, PLACE, bytes),
            |reseed, bytes| reseed.orphan_block(bytes),
            |checksums, bytes| orphan_file::verify(checksums, INODE, GENERATION, PLACE, bytes),
            (256, size),
        );
    }
}

#[test]
fn disk_without_checksums_has_no_way_to_another_seed() {
    let without = Checksums { kind: ChecksumKind::None, ..summed(7) };
    assert!(Reseed::between(&without, &summed(8), 256, 4096).is_none());
    assert!(Reseed::between(&summed(8), &without, 256, 4096).is_none());
}

#[test]
fn damaged_node_whose_tail_lies_outside_of_it_is_left_alone() {
    let reseed = Reseed::between(&summed(7), &summed(8), 256, 1024).expect("two seeds");
    let mut node = block(1024);
    node[4..6].fill(0xFF);
    let before = node.clone();
    reseed.extent_block(&mut node);
    assert_eq!(node, before);
    reseed.inode(&mut []);
    reseed.dir_block(&mut []);
    reseed.xattr_block(&mut []);
}
