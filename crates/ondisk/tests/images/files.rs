//! Inodes and the maps of their blocks against `debugfs`.

use extant_ondisk::{
    Entries, ExtentNode, FileType, FsBlock, InodeFlags, InodeNumber, LogicalBlock, RawInode, extent,
};

use crate::disk::Disk;
use crate::tools::Image;

/// Every used inode and all its blocks.
pub fn compare(disk: &Disk, image: &Image) {
    let inodes: Vec<_> =
        disk.inodes().into_iter().filter(|(ino, _)| ino.0 != InodeNumber::RESIZE.0).collect();
    let commands =
        |command: &str| inodes.iter().map(|(ino, _)| format!("{command} <{ino}>")).collect::<Vec<_>>();
    for ((ino, inode), said) in inodes.iter().zip(image.debugfs(&commands("stat"))) {
        compare_inode(disk, *ino, inode, &said);
    }
    let mut depths = 0;
    for ((ino, inode), said) in inodes.iter().zip(image.debugfs(&commands("blocks"))) {
        if !has_map(inode) {
            continue;
        }
        let map = disk.map(*ino, inode);
        depths += map.tree.len();
        let mut ours: Vec<u64> = map.data.iter().map(|pair| pair.1).chain(map.tree).collect();
        let mut theirs: Vec<u64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        ours.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(ours, theirs, "blocks of inode {ino}");
        compare_places(image, *ino, &map.data);
    }
    assert!(depths > 0, "a file whose map needs blocks");
}

fn has_map(inode: &RawInode) -> bool {
    let fast_link = inode.file_type() == FileType::Symlink && inode.size() < 60;
    let mapped = matches!(inode.file_type(), FileType::Regular | FileType::Directory | FileType::Symlink);
    mapped && !fast_link && !inode.flags().contains(InodeFlags::INLINE_DATA)
}

/// A sample of the blocks, each at its place in the file.
fn compare_places(image: &Image, ino: InodeNumber, data: &[(u64, u64)]) {
    let sample: Vec<_> = data.iter().step_by(data.len() / 8 + 1).chain(data.last()).collect();
    let commands: Vec<_> = sample.iter().map(|(logical, _)| format!("bmap <{ino}> {logical}")).collect();
    if commands.is_empty() {
        return;
    }
    for ((logical, block), said) in sample.iter().zip(image.debugfs(&commands)) {
        assert_eq!(said.trim().parse(), Ok(*block), "block {logical} of inode {ino}");
    }
}

fn word_after<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    text.split_once(label)?.1.split_whitespace().next()
}

/// Compares an inode with the output of `debugfs stat` for it.
pub fn compare_inode(disk: &Disk, ino: InodeNumber, inode: &RawInode, said: &str) {
    let number = |label: &str| -> u64 {
        let word = word_after(said, label).unwrap_or_else(|| panic!("{label} in {said}"));
        word.parse().unwrap_or_else(|_| panic!("{label} {word}"))
    };
    let file_type = match word_after(said, "Type:") {
        Some("regular") => FileType::Regular,
        Some("directory") => FileType::Directory,
        Some("symlink") => FileType::Symlink,
        Some("FIFO") => FileType::Fifo,
        Some("block") => FileType::BlockDevice,
        Some("character") => FileType::CharDevice,
        other => panic!("type {other:?} of inode {ino}"),
    };
    assert_eq!(inode.file_type(), file_type, "inode {ino}");
    let mode = u16::from_str_radix(word_after(said, "Mode:").expect("a mode"), 8).expect("an octal mode");
    assert_eq!(inode.mode() & 0o7777, mode, "inode {ino}");
    let flags = word_after(said, "Flags:").expect("flags").trim_start_matches("0x");
    assert_eq!(
        inode.flags().bits(),
        u32::from_str_radix(flags, 16).expect("hexadecimal flags"),
        "inode {ino}"
    );
    assert!(inode.flags().difference(InodeFlags::all()).is_empty(), "unknown flags of inode {ino}");
    assert_eq!(u64::from(inode.generation()), number("Generation:"));
    assert_eq!(u64::from(inode.uid()), number("User:"), "inode {ino}");
    assert_eq!(u64::from(inode.gid()), number("Group:"), "inode {ino}");
    assert_eq!(u64::from(inode.links_count()), number("Links:"));
    assert_eq!(inode.file_acl().0, number("File ACL:"));
    assert_eq!(inode.blocks_512(disk.geometry.block_size), number("Blockcount:"), "inode {ino}");
    if !matches!(file_type, FileType::BlockDevice | FileType::CharDevice) {
        assert_eq!(inode.size(), number("Size:"), "inode {ino}");
    } else {
        let device = said.split_once("Device major/minor number:").map(|(_, rest)| rest.trim());
        let device = device.and_then(|text| text.split([' ', '\n']).next());
        let (major, minor) = inode.device();
        assert_eq!(device, Some(format!("{major:02}:{minor:02}").as_str()), "inode {ino}");
    }
    for (label, time) in [
        ("ctime: 0x", Some(inode.ctime())),
        ("atime: 0x", Some(inode.atime())),
        ("mtime: 0x", Some(inode.mtime())),
        ("crtime: 0x", inode.crtime()),
    ] {
        let Some(word) = said.lines().find_map(|line| line.trim_start().strip_prefix(label)) else {
            continue;
        };
        let word = word.split_whitespace().next().expect("a time");
        let (base, extra) = word.split_once(':').map_or((word, None), |(base, extra)| (base, Some(extra)));
        let hex = |text: &str| u32::from_str_radix(text, 16).expect("hexadecimal time");
        let said = extant_ondisk::Timestamp::decode(hex(base), extra.map(hex));
        assert_eq!(time, Some(said), "{label} of inode {ino}");
    }
    if inode.as_bytes().len() > 128 && said.contains("Size of extra inode fields:") {
        assert_eq!(u64::from(inode.extra_isize()), number("Size of extra inode fields:"));
        let region = inode.xattr_region().expect("bytes behind the fields");
        assert_eq!(region.len(), inode.as_bytes().len() - 128 - usize::from(inode.extra_isize()));
    }
}

/// Looking up each block, through raw bytes, finds what the whole nodes say.
pub fn search_agrees_with_the_whole_node(disk: &Disk) {
    for (ino, inode) in disk.inodes() {
        if !inode.flags().contains(InodeFlags::EXTENTS) {
            continue;
        }
        let data: std::collections::HashMap<u64, u64> = disk.map(ino, &inode).data.into_iter().collect();
        let end = data.keys().max().map_or(0, |last| last + 3);
        for logical in (0..end).step_by((end as usize / 3000).max(1)).chain([u64::from(u32::MAX) - 1]) {
            let found = look_up(disk, &inode, LogicalBlock(logical as u32));
            assert_eq!(
                found.map(|block| block.0),
                data.get(&logical).copied(),
                "block {logical} of inode {ino}"
            );
        }
    }
}

fn look_up(disk: &Disk, inode: &RawInode, logical: LogicalBlock) -> Option<FsBlock> {
    let mut bytes = inode.i_block().to_vec();
    while extent::depth(&bytes)? > 0 {
        let (position, index) = extent::search_index(&bytes, logical)?;
        assert_eq!(extent::index_at(&bytes, position), Some(index));
        bytes = disk.block(index.child);
    }
    let Ok(ExtentNode { entries: Entries::Leaf(extents), .. }) = ExtentNode::parse(&bytes, Some(0)) else {
        panic!("a leaf");
    };
    assert_eq!(extent::entry_count(&bytes), extents.len());
    let (position, found) = extent::search_leaf(&bytes, logical)?;
    assert_eq!(extents.get(position), Some(&found));
    assert!(extents.get(position + 1).is_none_or(|next| next.logical > logical));
    found.map(logical)
}
