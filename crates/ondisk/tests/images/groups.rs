//! Superblock, descriptors and layout against `dumpe2fs`.

use std::collections::HashMap;

use extant_ondisk::{FsBlock, GroupFlags, GroupNumber, bitmap};

use crate::disk::Disk;
use crate::tools::Image;

/// Every number of the superblock that `dumpe2fs` prints.
pub fn compare_superblock(disk: &Disk, image: &Image) {
    let text = image.dumpe2fs();
    let said: HashMap<&str, &str> = text
        .lines()
        .take_while(|line| !line.starts_with("Group 0"))
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key, value.trim()))
        .collect();
    let (sb, geometry) = (&disk.superblock, &disk.geometry);
    let numbers = [
        ("Inode count", u64::from(sb.s_inodes_count())),
        ("Block count", sb.blocks_count()),
        ("Reserved block count", sb.r_blocks_count()),
        ("Overhead clusters", u64::from(sb.s_overhead_clusters())),
        ("Free blocks", sb.free_blocks_count()),
        ("Free inodes", u64::from(sb.s_free_inodes_count())),
        ("First block", u64::from(geometry.first_data_block)),
        ("Block size", u64::from(sb.block_size())),
        ("Cluster size", u64::from(sb.block_size() * sb.cluster_ratio())),
        ("Group descriptor size", u64::from(geometry.desc_size)),
        ("Reserved GDT blocks", u64::from(geometry.reserved_gdt_blocks)),
        ("Blocks per group", u64::from(geometry.blocks_per_group)),
        ("Clusters per group", u64::from(geometry.clusters_per_group)),
        ("Inodes per group", u64::from(geometry.inodes_per_group)),
        ("Inode blocks per group", u64::from(geometry.inode_table_blocks_per_group)),
        ("Flex block group size", u64::from(geometry.groups_per_flex)),
        ("First inode", u64::from(geometry.first_ino)),
        ("Inode size", u64::from(geometry.inode_size)),
        ("Required extra isize", u64::from(sb.s_min_extra_isize())),
        ("Desired extra isize", u64::from(sb.s_want_extra_isize())),
        ("Journal inode", u64::from(sb.s_journal_inum())),
        ("MMP block number", sb.s_mmp_block()),
        ("MMP update interval", u64::from(sb.s_mmp_update_interval())),
        ("Orphan file inode", u64::from(sb.s_orphan_file_inum())),
        ("User quota inode", u64::from(sb.s_usr_quota_inum())),
        ("Group quota inode", u64::from(sb.s_grp_quota_inum())),
        ("Project quota inode", u64::from(sb.s_prj_quota_inum())),
        ("First meta block group", u64::from(sb.s_first_meta_bg())),
    ];
    for (key, number) in numbers {
        if let Some(value) = said.get(key) {
            assert_eq!(value.parse(), Ok(number), "{key}");
        }
    }
    for (key, number) in [("Checksum", sb.s_checksum()), ("Checksum seed", sb.s_checksum_seed())] {
        if let Some(value) = said.get(key) {
            assert_eq!(u32::from_str_radix(value.trim_start_matches("0x"), 16), Ok(number), "{key}");
        }
    }
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(&sb.s_uuid()), said["Filesystem UUID"].replace('-', ""));
    if let Some(seed) = said.get("Directory Hash Seed") {
        let words: Vec<u8> = sb.s_hash_seed().iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(hex(&words), seed.replace('-', ""));
    }
    let names: Vec<&str> =
        sb.compat().names().chain(sb.incompat().names()).chain(sb.ro_compat().names()).collect();
    let said_names = said["Filesystem features"].replace("(none)", "");
    assert_eq!(names, said_names.split_whitespace().collect::<Vec<_>>());
    assert!(sb.compat().unknown().is_empty() && sb.incompat().unknown().is_empty());
}

/// The output of `dumpe2fs` for one group.
#[derive(Default)]
struct SaidGroup {
    blocks: (u64, u64),
    csum: Option<u16>,
    flags: GroupFlags,
    superblock: Option<u64>,
    /// Descriptor blocks, and the end of those reserved for more.
    descriptors: Option<(u64, u64)>,
    reserved_end: Option<u64>,
    block_bitmap: (u64, Option<u32>),
    inode_bitmap: (u64, Option<u32>),
    inode_table: (u64, u64),
    free: [u32; 4],
}

fn number_after<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    let rest = text.split_once(before)?.1;
    Some(rest.split([' ', ',', ')', ']']).next().unwrap_or(rest))
}

fn range(text: &str) -> (u64, u64) {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    (first.parse().expect("a block"), last.parse().expect("a block"))
}

fn hex(text: &str) -> u32 {
    u32::from_str_radix(text.trim_start_matches("0x"), 16).expect("a checksum")
}

fn read_groups(text: &str) -> Vec<SaidGroup> {
    let mut groups: Vec<SaidGroup> = Vec::new();
    for line in text.lines() {
        if line.starts_with("Group ") && line.contains("(Blocks ") {
            let mut group = SaidGroup {
                blocks: range(number_after(line, "(Blocks ").expect("blocks")),
                ..Default::default()
            };
            group.csum = number_after(line, " csum ").map(|sum| hex(sum) as u16);
            group.flags.set(GroupFlags::INODE_UNINIT, line.contains("INODE_UNINIT"));
            group.flags.set(GroupFlags::BLOCK_UNINIT, line.contains("BLOCK_UNINIT"));
            group.flags.set(GroupFlags::INODE_ZEROED, line.contains("ITABLE_ZEROED"));
            groups.push(group);
        }
        let Some(group) = groups.last_mut() else { continue };
        if let Some(block) = number_after(line, "superblock at ") {
            group.superblock = block.parse().ok();
        }
        if let Some(blocks) = number_after(line, "descriptors at ").or(number_after(line, "descriptor at ")) {
            group.descriptors = Some(range(blocks));
        }
        if let Some(blocks) = number_after(line, "Reserved GDT blocks at ") {
            group.reserved_end = Some(range(blocks).1);
        }
        let sum = number_after(line, "csum ").map(hex);
        if let Some(block) = number_after(line, "Block bitmap at ") {
            group.block_bitmap = (range(block).0, sum);
        }
        if let Some(block) = number_after(line, "Inode bitmap at ") {
            group.inode_bitmap = (range(block).0, sum);
        }
        if let Some(blocks) = number_after(line, "Inode table at ") {
            group.inode_table = range(blocks);
        }
        if line.contains(" free inodes") {
            let numbers = line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok());
            group.free.iter_mut().zip(numbers).for_each(|(to, from)| *to = from);
        }
    }
    groups
}

/// Every descriptor, and what lies at the start of every group.
pub fn compare_groups(disk: &Disk, image: &Image) {
    let said = read_groups(&image.dumpe2fs());
    let geometry = &disk.geometry;
    assert_eq!(said.len(), geometry.group_count as usize);
    for ((group, descriptor), said) in disk.groups().zip(&said) {
        let first = geometry.group_first_block(group);
        let last = FsBlock(first.0 + u64::from(geometry.blocks_in_group(group)) - 1);
        assert_eq!((first.0, last.0), said.blocks, "group {group}");
        for (block, offset) in [(first, 0), (last, geometry.blocks_in_group(group) - 1)] {
            assert_eq!(geometry.group_of(block), Some((group, offset)));
        }
        if let Some(sum) = said.csum {
            assert_eq!(descriptor.bg_checksum(), sum, "group {group}");
            assert_eq!(descriptor.flags(), said.flags, "group {group}");
        }
        assert_eq!(geometry.super_block(group).map(|block| block.0), said.superblock, "group {group}");
        compare_start(disk, group, said);
        assert_eq!(descriptor.block_bitmap().0, said.block_bitmap.0);
        assert_eq!(descriptor.inode_bitmap().0, said.inode_bitmap.0);
        assert!(said.block_bitmap.1.is_none_or(|sum| sum == descriptor.block_bitmap_csum()));
        assert!(said.inode_bitmap.1.is_none_or(|sum| sum == descriptor.inode_bitmap_csum()));
        let table_blocks = u64::from(geometry.inode_table_blocks_per_group);
        assert_eq!(
            said.inode_table,
            (descriptor.inode_table().0, descriptor.inode_table().0 + table_blocks - 1)
        );
        assert!(geometry.is_valid_block_run(descriptor.inode_table(), table_blocks));
        let unused = if disk.checksums.has_group_checksums() { descriptor.itable_unused() } else { 0 };
        let free = [
            descriptor.free_blocks_count(),
            descriptor.free_inodes_count(),
            descriptor.used_dirs_count(),
            unused,
        ];
        assert_eq!(free, said.free, "group {group}");
    }
    let end = FsBlock(geometry.blocks_count);
    assert_eq!(geometry.group_of(end), None);
    assert_eq!(geometry.blocks_in_group(GroupNumber(geometry.group_count)), 0);
}

fn compare_start(disk: &Disk, group: GroupNumber, said: &SaidGroup) {
    let geometry = &disk.geometry;
    let descriptors = said.descriptors.map_or(0, |(first, last)| last - first + 1);
    assert_eq!(u64::from(geometry.descriptor_blocks_in(group)), descriptors, "group {group}");
    let ends = [said.superblock, said.descriptors.map(|range| range.1), said.reserved_end];
    let end =
        ends.into_iter().flatten().max().map_or(0, |last| last + 1 - geometry.group_first_block(group).0);
    assert_eq!(u64::from(geometry.base_meta_blocks(group)), end, "group {group}");
}

/// Zeros of the bitmaps are the free counts of the descriptors, and these add up to the superblock's.
pub fn count_free_bits(disk: &Disk) {
    let geometry = &disk.geometry;
    let (mut blocks, mut inodes) = (0, 0);
    for (group, descriptor) in disk.groups() {
        blocks += u64::from(descriptor.free_blocks_count()) * u64::from(geometry.cluster_ratio);
        inodes += descriptor.free_inodes_count();
        if !disk.is_uninit(descriptor, GroupFlags::BLOCK_UNINIT) {
            let bits = disk.block(descriptor.block_bitmap());
            let clusters = geometry.clusters_in_group(group);
            assert_eq!(
                bitmap::count_zeros(&bits, 0..clusters),
                descriptor.free_blocks_count(),
                "group {group}"
            );
            assert!(
                bitmap::is_range_set(&bits, clusters..geometry.block_size * 8),
                "padding of group {group}"
            );
        }
        if !disk.is_uninit(descriptor, GroupFlags::INODE_UNINIT) {
            let bits = disk.block(descriptor.inode_bitmap());
            let zeros = bitmap::count_zeros(&bits, 0..geometry.inodes_per_group);
            assert_eq!(zeros, descriptor.free_inodes_count(), "group {group}");
            assert!(bitmap::is_range_set(&bits, geometry.inodes_per_group..geometry.block_size * 8));
        }
    }
    assert_eq!(blocks, disk.superblock.free_blocks_count());
    assert_eq!(inodes, disk.superblock.s_free_inodes_count());
}
