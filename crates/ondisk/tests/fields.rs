//! Numbers at the edges of the fields that hold them.

use extant_ondisk::inode::EXTRA_ISIZE;
use extant_ondisk::{
    Entries, Error, Extent, ExtentIndex, ExtentNode, FileType, FsBlock, GroupDescriptor, IncompatFeatures,
    InodeFlags, LogicalBlock, RawInode, Superblock, Timestamp,
};

fn inode(size: u16, extra_isize: u16) -> RawInode {
    RawInode::new(size, extra_isize).expect("an inode's sizes")
}

#[test]
fn block_counts_beyond_48_bits_are_in_blocks() {
    let mut file = inode(256, EXTRA_ISIZE);
    for (sectors, in_blocks) in [
        (0, false),
        (u64::from(u32::MAX), false),
        (1 << 32, false),
        ((1 << 48) - 8, false),
        (1 << 48, true),
        (((1 << 48) - 1) * 8, true),
    ] {
        file.set_blocks_512(sectors, 4096, true).expect("a block count");
        assert_eq!(file.flags().contains(InodeFlags::HUGE_FILE), in_blocks, "{sectors}");
        assert_eq!(file.blocks_512(4096), sectors);
    }
    let before = file.clone();
    assert!(file.set_blocks_512(1 << 51, 4096, true).is_err());
    assert!(file.set_blocks_512(1 << 32, 4096, false).is_err());
    assert_eq!(file, before);
    file.set_blocks_bytes(512 * u64::from(u32::MAX), 4096, false).expect("32 bits of sectors");
    assert_eq!(file.blocks_bytes(4096), 512 * u64::from(u32::MAX));
    assert!(!file.flags().contains(InodeFlags::HUGE_FILE));
}

#[test]
fn inodes_without_room_clamp_times_and_refuse_projects() {
    let late = Timestamp { seconds: 0x1_2345_6789, nanoseconds: 42 };
    let mut small = inode(128, 0);
    small.set_mtime(late);
    assert_eq!(small.mtime(), Timestamp::MAX_WITHOUT_EXTRA);
    small.set_crtime(late);
    assert_eq!(small.crtime(), None);
    assert_eq!(small.set_project_id(1), Err(Error::NotRepresentable("project id")));
    assert_eq!(small.set_project_id(0), Ok(()));
    small.set_version(0x1_0000_0002);
    assert_eq!(small.version(), 2);
    assert_eq!(small.xattr_region(), None);

    // Room for the checksum's upper half and the change time, but no further.
    let mut medium = inode(256, 8);
    medium.set_ctime(late);
    medium.set_mtime(late);
    assert_eq!(medium.ctime(), late);
    assert_eq!(medium.mtime(), Timestamp::MAX_WITHOUT_EXTRA);
    assert_eq!(medium.xattr_region().map(<[u8]>::len), Some(120));
    assert!(medium.xattr_region().is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0)));

    let mut whole = inode(256, EXTRA_ISIZE);
    whole.set_crtime(late);
    whole.set_version(0x1_0000_0002);
    whole.set_project_id(7).expect("room for a project");
    assert_eq!((whole.crtime(), whole.version(), whole.project_id()), (Some(late), 0x1_0000_0002, 7));
    assert!(inode(256, EXTRA_ISIZE).set_extra_isize(132).is_err());
    assert!(inode(256, EXTRA_ISIZE).set_extra_isize(30).is_err());
    assert!(
        RawInode::new(128, 4).is_err() && RawInode::new(192, 0).is_err() && RawInode::new(64, 0).is_err()
    );
}

#[test]
fn sizes_have_64_bits_in_files_and_directories_alone() {
    for (file_type, wide) in
        [(FileType::Regular, true), (FileType::Directory, true), (FileType::Symlink, false)]
    {
        let mut file = inode(256, EXTRA_ISIZE);
        file.set_mode(file_type.mode_bits() | 0o644);
        file.set_i_size_high(0);
        file.set_size(5 << 32 | 6);
        assert_eq!(file.size(), if wide { 5 << 32 | 6 } else { 6 });
        assert_eq!(file.i_size_high(), if wide { 5 } else { 0 });
    }
}

#[test]
fn owners_and_attribute_blocks_use_their_upper_halves() {
    let mut file = inode(128, 0);
    file.set_uid(0x1234_5678);
    file.set_gid(0x9ABC_DEF0);
    file.set_file_acl(FsBlock(0x1234_5678_9ABC));
    assert_eq!((file.uid(), file.gid()), (0x1234_5678, 0x9ABC_DEF0));
    assert_eq!(file.file_acl(), FsBlock(0x1234_5678_9ABC));
}

#[test]
fn devices_take_the_older_form_where_it_suffices() {
    let mut device = inode(128, 0);
    for (major, minor, old) in
        [(8, 1, true), (255, 255, true), (256, 0, false), (8, 256, false), (4095, 0xF_FFFF, false)]
    {
        device.set_device(major, minor).expect("a device");
        assert_eq!(device.device(), (major, minor));
        assert_eq!(device.i_block()[..4] != [0; 4], old);
    }
    assert!(device.set_device(4096, 0).is_err());
    assert!(device.set_device(0, 1 << 20).is_err());
}

#[test]
fn extents_of_every_length_survive() {
    let mut root = [0; 60];
    for (len, unwritten) in [(1, false), (32768, false), (1, true), (32767, true)] {
        let extent = Extent { logical: LogicalBlock(9), len, start: FsBlock(0xFFFF_FFFF_FFFF), unwritten };
        let node = ExtentNode { depth: 0, max_entries: 4, entries: Entries::Leaf(vec![extent]) };
        node.write(&mut root).expect("an extent in range");
        assert_eq!(ExtentNode::parse(&root, Some(0)), Ok(node));
    }
    for (len, unwritten, start) in [(0, false, 5), (32769, false, 5), (32768, true, 5), (1, false, 1 << 48)] {
        let extent = Extent { logical: LogicalBlock(9), len, start: FsBlock(start), unwritten };
        let node = ExtentNode { depth: 0, max_entries: 4, entries: Entries::Leaf(vec![extent]) };
        assert!(node.write(&mut root).is_err(), "{extent:?}");
    }
}

#[test]
fn nodes_that_break_the_format_are_refused() {
    let leaf = |places: &[(u32, u16)]| {
        let extent = |&(logical, len)| Extent {
            logical: LogicalBlock(logical),
            len,
            start: FsBlock(100),
            unwritten: false,
        };
        let entries = Entries::Leaf(places.iter().map(extent).collect());
        let mut root = [0; 60];
        ExtentNode { depth: 0, max_entries: 4, entries }.write(&mut root).expect("extents in range");
        root
    };
    assert!(ExtentNode::parse(&leaf(&[(0, 5), (5, 5), (20, 1)]), None).is_ok());
    assert!(ExtentNode::parse(&leaf(&[(0, 6), (5, 5)]), None).is_err(), "overlap");
    assert!(ExtentNode::parse(&leaf(&[(10, 1), (5, 5)]), None).is_err(), "order");
    assert!(ExtentNode::parse(&leaf(&[(u32::MAX - 1, 1)]), None).is_ok(), "the last block");
    assert!(ExtentNode::parse(&leaf(&[(u32::MAX - 1, 2)]), None).is_err(), "wrap");
    assert!(ExtentNode::parse(&leaf(&[]), None).is_ok(), "an empty file");
    assert!(ExtentNode::parse(&leaf(&[]), Some(1)).is_err(), "depth");
    let good = leaf(&[(0, 5)]);
    for (at, value, what) in
        [(0, 0, "magic"), (2, 5, "entries"), (4, 5, "max"), (4, 0, "no max"), (6, 6, "depth"), (16, 0, "len")]
    {
        let mut broken = good;
        broken[at] = value;
        assert!(ExtentNode::parse(&broken, None).is_err(), "{what}");
    }
    let index = |logical| ExtentIndex { logical: LogicalBlock(logical), child: FsBlock(7) };
    for (logicals, good) in [(&[0, 5][..], true), (&[5, 5], false), (&[5, 0], false), (&[], false)] {
        let entries = Entries::Index(logicals.iter().copied().map(index).collect());
        let mut root = [0; 60];
        ExtentNode { depth: 1, max_entries: 4, entries }.write(&mut root).expect("entries in range");
        assert_eq!(ExtentNode::parse(&root, Some(1)).is_ok(), good, "{logicals:?}");
    }
}

#[test]
fn wide_descriptors_have_upper_halves_and_narrow_ones_none() {
    let mut wide = GroupDescriptor::new(64).expect("a size");
    wide.set_inode_table(FsBlock(0x1234_5678_9ABC));
    wide.set_free_blocks_count(0x1_0002);
    wide.set_block_bitmap_csum(0xAABB_CCDD);
    assert_eq!(wide.inode_table(), FsBlock(0x1234_5678_9ABC));
    assert_eq!((wide.free_blocks_count(), wide.block_bitmap_csum()), (0x1_0002, 0xAABB_CCDD));
    let mut narrow = GroupDescriptor::new(32).expect("a size");
    narrow.set_block_bitmap_csum(0xAABB_CCDD);
    narrow.set_free_blocks_count(32768);
    assert_eq!((narrow.block_bitmap_csum(), narrow.free_blocks_count()), (0xCCDD, 32768));
    assert_eq!(narrow.bg_block_bitmap_csum_hi(), 0);
}

#[test]
fn superblock_times_and_counts_use_their_upper_parts() {
    let mut sb = Superblock::new_zeroed();
    sb.set_write_time(0x12_3456_789A);
    assert_eq!((sb.write_time(), sb.s_wtime(), sb.s_wtime_hi()), (0x12_3456_789A, 0x3456_789A, 0x12));
    sb.set_free_blocks_count(1 << 40 | 5);
    assert_eq!(sb.free_blocks_count(), 5);
    sb.set_incompat(IncompatFeatures::BIT64);
    sb.set_free_blocks_count(1 << 40 | 5);
    assert_eq!(sb.free_blocks_count(), 1 << 40 | 5);
}
