//! Whatever bytes a disk holds, reading them gives a value or an error: never a panic, an overflow or a hang.

use extant_ondisk::{
    ChecksumKind, Checksums, CompatFeatures, ExtentNode, FsBlock, Geometry, GroupDescriptor, GroupNumber,
    IncompatFeatures, InodeNumber, LogicalBlock, Mmp, RawInode, RoCompatFeatures, Superblock, bitmap, extent,
    indirect, orphan_file,
};
use extant_testing::Random;

/// Bytes of which many are at the edges of their range.
fn bytes(random: &mut Random, count: usize) -> Vec<u8> {
    (0..count)
        .map(|_| match random.below(4) {
            0 => 0,
            1 => 0xFF,
            _ => random.next() as u8,
        })
        .collect()
}

/// Prints the seed of the round in which a panic happens.
struct Round(u64);

impl Drop for Round {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}", self.0);
        }
    }
}

fn rounds(count: u64, mut round: impl FnMut(&mut Random)) {
    for seed in 0..count {
        let _seed = Round(seed);
        round(&mut Random::new(seed));
    }
}

fn summed() -> Checksums {
    Checksums {
        kind: ChecksumKind::Crc32c,
        seed: 1,
        desc_size: 64,
        block_bitmap_bytes: 4096,
        inode_bitmap_bytes: 512,
    }
}

/// A superblock with valid fields.
fn plausible() -> Superblock {
    let mut sb = Superblock::new_zeroed();
    sb.set_s_rev_level(1);
    sb.set_s_log_block_size(2);
    sb.set_s_log_cluster_size(2);
    sb.set_s_blocks_per_group(32768);
    sb.set_s_clusters_per_group(32768);
    sb.set_s_inodes_per_group(8192);
    sb.set_s_inode_size(256);
    sb.set_s_first_ino(11);
    sb.set_s_desc_size(64);
    sb.set_incompat(IncompatFeatures::BIT64 | IncompatFeatures::EXTENTS | IncompatFeatures::FLEX_BG);
    sb.set_s_log_groups_per_flex(4);
    sb.set_blocks_count(10 * 32768 + 5000);
    sb.set_s_inodes_count(11 * 8192);
    sb
}

fn use_geometry(sb: &Superblock, random: &mut Random) {
    let Ok(geometry) = Geometry::new(sb) else { return };
    let last = geometry.group_count - 1;
    for group in [0, 1, last, random.next() as u32 % geometry.group_count, random.next() as u32] {
        let group = GroupNumber(group);
        let first = geometry.group_first_block(group);
        assert!(geometry.blocks_in_group(group) <= geometry.blocks_per_group);
        assert!(geometry.base_meta_blocks(group) <= geometry.blocks_in_group(group));
        assert!(group.0 > last || geometry.group_of(first) == Some((group, 0)));
        let _ =
            (geometry.descriptor_location(group), geometry.super_block(group), geometry.flex_group_of(group));
    }
    for ino in [0, 1, geometry.inodes_count, u32::MAX, random.next() as u32] {
        let Some((group, index)) = geometry.inode_location(InodeNumber(ino)) else { continue };
        assert!(group.0 <= last && index < geometry.inodes_per_group);
        assert_eq!(geometry.inode_number(group, index), Some(InodeNumber(ino)));
        let (_, byte) = geometry.inode_block(FsBlock(u64::MAX - 3), index);
        assert!(byte + u32::from(geometry.inode_size) <= geometry.block_size);
    }
    let _ = geometry.group_of(FsBlock(random.next()));
    assert!(geometry.max_file_size(true) >> 48 == 0);
    assert!(geometry.max_file_size(false) <= geometry.max_file_size(true));
    assert!(!geometry.is_valid_block_run(FsBlock(random.next() | 1 << 63), random.next()));
    assert!(geometry.descriptor_block_count() > 0 && geometry.flex_group_count() > 0);
}

#[test]
fn a_plausible_superblock_is_accepted() {
    let sb = plausible();
    assert_eq!(Superblock::parse(sb.as_bytes()), Ok(sb.clone()));
    use_geometry(&sb, &mut Random::new(0));
}

#[test]
fn superblocks_with_random_fields_never_panic() {
    let mut accepted = 0;
    rounds(60_000, |random| {
        let mut bytes = *plausible().as_bytes();
        for _ in 0..=random.below(6) {
            // Two times in three among the fields that say how the disk is laid out.
            let at = if random.below(3) == 0 {
                random.below(1021) as usize
            } else {
                random.below(0x180) as usize / 4 * 4
            };
            let value = match random.below(4) {
                0 => 0,
                1 => u32::MAX,
                2 => 1 << random.below(32),
                _ => random.next() as u32,
            };
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        if let Ok(sb) = Superblock::parse(&bytes) {
            accepted += 1;
            use_geometry(&sb, random);
        }
    });
    assert!(accepted > 100, "only {accepted} accepted: the test tests nothing");
}

#[test]
fn random_superblocks_never_panic() {
    rounds(5_000, |random| {
        let len = random.below(1100) as usize;
        let mut bytes = bytes(random, len);
        if let Some(magic) = bytes.get_mut(0x38..0x3A) {
            magic.copy_from_slice(&[0x53, 0xEF]);
        }
        if let Ok(sb) = Superblock::parse(&bytes) {
            use_geometry(&sb, random);
        }
    });
}

#[test]
fn each_field_out_of_range_is_refused() {
    type Change = fn(&mut Superblock);
    let changes: [(&str, Change); 22] = [
        ("magic", |sb| sb.set_s_magic(0xEF54)),
        ("block size", |sb| sb.set_s_log_block_size(7)),
        ("cluster size without bigalloc", |sb| sb.set_s_log_cluster_size(3)),
        ("no blocks per group", |sb| sb.set_s_blocks_per_group(0)),
        ("more blocks than bits", |sb| sb.set_s_blocks_per_group(32776)),
        ("bits beyond a byte", |sb| sb.set_s_blocks_per_group(32764)),
        ("no inodes per group", |sb| sb.set_s_inodes_per_group(0)),
        ("more inodes than bits", |sb| sb.set_s_inodes_per_group(32776)),
        ("inode size no power of two", |sb| sb.set_s_inode_size(192)),
        ("inode size too small", |sb| sb.set_s_inode_size(64)),
        ("inode size above the block's", |sb| sb.set_s_inode_size(8192)),
        ("descriptor size", |sb| sb.set_s_desc_size(32)),
        ("descriptor size no power of two", |sb| sb.set_s_desc_size(96)),
        ("first data block", |sb| sb.set_s_first_data_block(1)),
        ("no blocks", |sb| sb.set_blocks_count(0)),
        ("blocks of 49 bits", |sb| sb.set_blocks_count(1 << 48)),
        ("inode count", |sb| sb.set_s_inodes_count(11 * 8192 - 1)),
        ("reserved descriptor blocks", |sb| sb.set_s_reserved_gdt_blocks(1025)),
        ("first inode", |sb| sb.set_s_first_ino(10)),
        ("flex group size", |sb| sb.set_s_log_groups_per_flex(32)),
        ("checksum", |sb| sb.set_ro_compat(RoCompatFeatures::METADATA_CSUM)),
        ("first meta group", |sb| {
            sb.set_incompat(sb.incompat() | IncompatFeatures::META_BG);
            sb.set_s_first_meta_bg(2);
        }),
    ];
    for (name, change) in changes {
        let mut sb = plausible();
        change(&mut sb);
        assert!(Superblock::parse(sb.as_bytes()).is_err(), "{name}");
    }
    let mut external = plausible();
    external.set_incompat(IncompatFeatures::JOURNAL_DEV);
    let refused = Superblock::parse(external.as_bytes());
    assert_eq!(refused, Err(extant_ondisk::Error::Incompatible(IncompatFeatures::JOURNAL_DEV)));
}

#[test]
fn bytes_without_a_name_are_kept() {
    rounds(200, |random| {
        let mut bytes = *plausible().as_bytes();
        bytes[0x288..0x3FC].fill_with(|| random.next() as u8);
        let mut sb = Superblock::parse(&bytes).expect("a plausible superblock");
        sb.set_compat(CompatFeatures::from_bits_retain(0x8000_0000) | sb.compat());
        sb.set_compat(sb.compat() - CompatFeatures::from_bits_retain(0x8000_0000));
        assert_eq!(sb.as_bytes(), &bytes);
    });
}

#[test]
fn random_descriptors_and_bitmaps_never_panic() {
    rounds(5_000, |random| {
        let len = random.below(1100) as usize;
        let bytes = bytes(random, len);
        for size in [0, 32, 48, 64, 128, 1024, 2048] {
            let Ok(mut descriptor) = GroupDescriptor::parse(&bytes, size) else { continue };
            let mut copy = vec![0; usize::from(size)];
            descriptor.write(&mut copy).expect("room");
            assert_eq!(copy, bytes[..usize::from(size)]);
            for kind in [ChecksumKind::None, ChecksumKind::Crc16(7), ChecksumKind::Crc32c] {
                let checksums = Checksums { kind, desc_size: size, ..summed() };
                descriptor.update_checksum(&checksums, GroupNumber(3));
                assert!(descriptor.verify_checksum(&checksums, GroupNumber(3)));
                checksums.update_block_bitmap(&mut descriptor, &bytes);
                assert!(checksums.verify_block_bitmap(&descriptor, &bytes));
                checksums.update_inode_bitmap(&mut descriptor, &bytes);
                assert!(checksums.verify_inode_bitmap(&descriptor, &bytes));
            }
            let (low, high) = (random.next() as u32, random.next() as u32);
            let _ = (bitmap::count_ones(&bytes, low..high), bitmap::find_zero(&bytes, low..high));
            let _ = (bitmap::find_one(&bytes, low..high), bitmap::is_set(&bytes, low));
        }
    });
}

#[test]
fn random_inodes_never_panic_and_keep_their_bytes() {
    let mut accepted = 0;
    rounds(20_000, |random| {
        let len = [0, 64, 128, 128, 160, 256, 256, 512, 1024][random.below(9) as usize];
        let mut bytes = bytes(random, len);
        if let Some(extra) = bytes.get_mut(0x80..0x82)
            && random.below(4) > 0
        {
            extra.copy_from_slice(&(random.below(36) as u16).to_le_bytes());
        }
        let Ok(mut inode) = RawInode::parse(&bytes) else { return };
        accepted += 1;
        let times = (inode.atime(), inode.mtime(), inode.ctime(), inode.crtime());
        let _ =
            (inode.size(), inode.blocks_bytes(65536), inode.device(), inode.version(), inode.project_id());
        let _ = (inode.file_type(), inode.flags(), inode.xattr_region().map(<[u8]>::len));
        let _ =
            (ExtentNode::parse(inode.i_block(), None), extent::search_leaf(inode.i_block(), LogicalBlock(5)));
        assert_eq!(inode.as_bytes(), bytes);
        inode.set_atime(times.0);
        inode.set_mtime(times.1);
        inode.set_ctime(times.2);
        times.3.into_iter().for_each(|time| inode.set_crtime(time));
        assert_eq!((inode.atime(), inode.mtime(), inode.ctime(), inode.crtime()), times);
        summed().update_inode(InodeNumber(12), &mut inode);
        assert!(summed().verify_inode(InodeNumber(12), &inode));
    });
    assert!(accepted > 1000, "only {accepted} accepted: the test tests nothing");
}

#[test]
fn random_extent_nodes_never_panic() {
    let mut accepted = 0;
    rounds(40_000, |random| {
        let len = [0, 11, 12, 60, 60, 1024, 4096][random.below(7) as usize];
        let mut bytes = bytes(random, len);
        if bytes.len() >= 12 && random.below(8) > 0 {
            let max = (bytes.len() - 12) / 12;
            let entries = random.below(max as u64 + 2) as u16;
            let depth = random.below(7) as u16;
            for (at, value) in
                [(0, 0xF30A), (2, entries), (4, max as u16 + u16::from(random.below(9) == 0)), (6, depth)]
            {
                bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
            }
            // Ascending, so that some pass.
            for (index, slot) in bytes[12..].chunks_exact_mut(12).enumerate() {
                if random.below(200) > 0 {
                    slot[..4].copy_from_slice(&(index as u32 * 70_000).to_le_bytes());
                }
            }
        }
        let logical = LogicalBlock(random.next() as u32);
        let _ = (
            extent::depth(&bytes),
            extent::search_leaf(&bytes, logical),
            extent::search_index(&bytes, logical),
        );
        let _ = (extent::extent_at(&bytes, random.next() as usize), extent::index_at(&bytes, 3));
        if let Ok(node) = ExtentNode::parse(&bytes, None) {
            accepted += 1;
            let mut copy = bytes.clone();
            node.write(&mut copy).expect("a node that was read");
            assert_eq!(ExtentNode::parse(&copy, Some(node.depth)), Ok(node));
        }
        let (ino, sums) = (InodeNumber(12), summed());
        let _ = sums.verify_extent_block(ino, 3, &bytes);
        sums.update_extent_block(ino, 3, &mut bytes);
    });
    assert!(accepted > 500, "only {accepted} accepted: the test tests nothing");
}

#[test]
fn random_other_blocks_never_panic() {
    rounds(5_000, |random| {
        let len = random.below(1100) as usize;
        let mut bytes = bytes(random, len);
        let _ = Mmp::parse(&bytes, &summed());
        let _ = orphan_file::verify(&summed(), InodeNumber(9), 1, FsBlock(3), &bytes);
        orphan_file::update(&summed(), InodeNumber(9), 1, FsBlock(3), &mut bytes);
        orphan_file::set_entry(&mut bytes, random.next() as usize, InodeNumber(1));
        let _ = orphan_file::entry(&bytes, random.next() as usize);
        let _ = indirect::pointer(&bytes, random.next() as u32);
        let _ = indirect::path(LogicalBlock(random.next() as u32), random.next() as u32);
    });
}
