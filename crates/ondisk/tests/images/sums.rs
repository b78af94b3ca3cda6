//! Every checksum on a disk: right as it is, made again when erased, wrong when a bit flips.

use extant_ondisk::{
    Checksums, FsBlock, GroupDescriptor, GroupFlags, GroupNumber, InodeNumber, Mmp, RawInode, Superblock,
    orphan_file,
};

use crate::disk::Disk;

pub fn check_superblock(disk: &Disk) {
    let bytes = *disk.superblock.as_bytes();
    let mut copy = Superblock::parse(&bytes).expect("a good superblock");
    assert_eq!(copy.as_bytes(), &bytes);
    if !disk.checksums.has_metadata_checksums() {
        return;
    }
    copy.set_s_checksum(0);
    assert!(Superblock::parse(copy.as_bytes()).is_err());
    copy.update_checksum();
    assert_eq!(copy.as_bytes(), &bytes);
    let mut broken = bytes;
    broken[0x90] ^= 1;
    assert!(Superblock::parse(&broken).is_err());
}

fn written(descriptor: &GroupDescriptor) -> Vec<u8> {
    let mut bytes = vec![0; usize::from(descriptor.size())];
    descriptor.write(&mut bytes).expect("room for a descriptor");
    bytes
}

pub fn check_descriptors(disk: &Disk) {
    let sums = &disk.checksums;
    for (group, descriptor) in disk.groups() {
        assert!(descriptor.verify_checksum(sums, group), "group {group}");
        if !sums.has_group_checksums() {
            continue;
        }
        let bytes = written(descriptor);
        let mut copy = descriptor.clone();
        copy.set_bg_checksum(!copy.bg_checksum());
        copy.update_checksum(sums, group);
        assert_eq!(written(&copy), bytes);
        assert!(!descriptor.verify_checksum(sums, GroupNumber(group.0 + 1)));
        for bit in (0..bytes.len() * 8).filter(|bit| !(0x1E..0x20).contains(&(bit / 8))) {
            let mut broken = bytes.clone();
            broken[bit / 8] ^= 1 << (bit % 8);
            let broken = GroupDescriptor::parse(&broken, descriptor.size()).expect("a descriptor");
            assert!(!broken.verify_checksum(sums, group), "bit {bit} of group {group}");
        }
        if group.0 > 20 {
            break;
        }
    }
}

pub fn check_bitmaps(disk: &Disk) {
    type Verify = fn(&Checksums, &GroupDescriptor, &[u8]) -> bool;
    let sums = &disk.checksums;
    for (group, descriptor) in disk.groups() {
        let kinds: [(_, _, Verify, _); 2] = [
            (
                GroupFlags::BLOCK_UNINIT,
                descriptor.block_bitmap(),
                Checksums::verify_block_bitmap,
                sums.block_bitmap_bytes,
            ),
            (
                GroupFlags::INODE_UNINIT,
                descriptor.inode_bitmap(),
                Checksums::verify_inode_bitmap,
                sums.inode_bitmap_bytes,
            ),
        ];
        for (flag, block, verify, bytes) in kinds {
            if disk.is_uninit(descriptor, flag) {
                continue;
            }
            let mut bits = disk.block(block);
            assert!(verify(sums, descriptor, &bits), "{flag:?} of group {group}");
            if sums.has_metadata_checksums() {
                bits[bytes as usize - 1] ^= 0x80;
                assert!(!verify(sums, descriptor, &bits), "{flag:?} of group {group}");
            }
        }
        let mut copy = descriptor.clone();
        if sums.has_metadata_checksums() && !disk.is_uninit(descriptor, GroupFlags::BLOCK_UNINIT) {
            copy.set_block_bitmap_csum(0);
            sums.update_block_bitmap(&mut copy, &disk.block(descriptor.block_bitmap()));
            assert_eq!(written(&copy), written(descriptor));
        }
    }
}

pub fn check_inodes(disk: &Disk) {
    let sums = &disk.checksums;
    let inodes = disk.inodes();
    assert!(inodes.len() >= 3, "root, lost+found and the journal or a file");
    for (ino, inode) in inodes {
        assert!(sums.verify_inode(ino, &inode), "inode {ino}");
        assert_eq!(inode.as_bytes(), disk.inode_bytes(ino));
        if !sums.has_metadata_checksums() {
            continue;
        }
        let mut copy = inode.clone();
        copy.set_l_i_checksum_lo(!copy.l_i_checksum_lo());
        assert!(!sums.verify_inode(ino, &copy));
        sums.update_inode(ino, &mut copy);
        assert_eq!(copy, inode);
        assert!(!sums.verify_inode(InodeNumber(ino.0 + 1), &inode), "inode {ino}");
        let mut last = inode.as_bytes().to_vec();
        *last.last_mut().expect("bytes") ^= 1;
        assert!(!sums.verify_inode(ino, &RawInode::parse(&last).expect("an inode")), "inode {ino}");
    }
}

/// The block of multiple-mount protection and the orphan file, where there are such.
pub fn check_special_blocks(disk: &Disk) {
    let sums = &disk.checksums;
    if disk.superblock.s_mmp_block() != 0 {
        let block = disk.block(FsBlock(disk.superblock.s_mmp_block()));
        let mut mmp = Mmp::parse(&block, sums).expect("the block as mke2fs made it");
        assert_eq!(mmp.mmp_seq(), extant_ondisk::mmp::SEQ_CLEAN);
        mmp.set_mmp_seq(1);
        assert!(Mmp::parse(mmp.as_bytes(), sums).is_err());
        mmp.set_mmp_seq(extant_ondisk::mmp::SEQ_CLEAN);
        mmp.update_checksum(sums);
        assert_eq!(mmp.as_bytes()[..], block[..1024]);
    }
    let ino = InodeNumber(disk.superblock.s_orphan_file_inum());
    if ino.0 == 0 {
        return;
    }
    let inode = disk.inode(ino);
    let blocks = disk.map(ino, &inode).data;
    assert!(!blocks.is_empty());
    for (_, place) in blocks {
        let place = FsBlock(place);
        let bytes = disk.block(place);
        assert!(orphan_file::verify(sums, ino, inode.generation(), place, &bytes));
        assert!(!orphan_file::verify(sums, ino, inode.generation(), FsBlock(place.0 + 1), &bytes));
        let entries = orphan_file::entries_per_block(disk.geometry.block_size);
        assert!((0..entries).all(|index| orphan_file::entry(&bytes, index).0 == 0));
        let mut copy = vec![0xFF; bytes.len()];
        orphan_file::initialise(&mut copy);
        orphan_file::update(sums, ino, inode.generation(), place, &mut copy);
        assert_eq!(copy, bytes);
        orphan_file::set_entry(&mut copy, entries, InodeNumber(5));
        assert_eq!(copy, bytes, "the tail is no entry");
        orphan_file::set_entry(&mut copy, entries - 1, InodeNumber(5));
        assert_eq!(orphan_file::entry(&copy, entries - 1), InodeNumber(5));
        assert!(!orphan_file::verify(sums, ino, inode.generation(), place, &copy));
    }
}
