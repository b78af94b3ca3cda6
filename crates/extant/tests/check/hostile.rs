//! Disks made to lead a reader in circles: the check says what is wrong and ends.

use std::fs;
use std::path::Path;

use extant::{FINDINGS_MAX, Mount};
use extant_ondisk::{
    Entries, ExtentIndex, ExtentNode, FsBlock, GroupNumber, InodeNumber, LogicalBlock, RawInode, indirect,
    jbd2,
};
use extant_testing::{has_e2fsprogs, scratch};

use crate::disk::{Disk, Kind};
use crate::fields::journal_blocks;
use crate::tools::{debugfs, make_disk};
use crate::{Agreement, compare, extant};

/// A disk with `make_tree`'s files, its bytes changed by `change`; what the check says.
fn said_of(options: &[&str], commands: &[&str], change: impl Fn(&mut Disk)) -> String {
    let dir = scratch();
    let image = make_disk(dir.path(), options, 12 << 10).expect("a disk");
    for command in commands {
        debugfs(&image, command);
    }
    rewrite(&image, change);
    let (clean, said) = extant(&image);
    assert!(!clean, "nothing found");
    said
}

fn rewrite(image: &Path, change: impl Fn(&mut Disk)) {
    let mut disk = Disk::new(fs::read(image).expect("an image"));
    change(&mut disk);
    fs::write(image, &disk.bytes).expect("an image");
}

fn inode(disk: &Disk, number: InodeNumber) -> RawInode {
    RawInode::parse(&disk.bytes[disk.inode_range(number)]).expect("an inode")
}

fn put_inode(disk: &mut Disk, number: InodeNumber, mut inode: RawInode) {
    disk.checksums.update_inode(number, &mut inode);
    let range = disk.inode_range(number);
    disk.bytes[range].copy_from_slice(inode.as_bytes());
}

/// A file whose map has blocks of its own.
fn file_with_tree(disk: &Disk) -> (FsBlock, InodeNumber, u32) {
    let blocks = disk.metadata();
    let found = blocks.iter().find_map(|(block, kind)| match kind {
        Kind::Extents(inode, generation) => Some((*block, *inode, *generation)),
        _ => None,
    });
    found.expect("a file of many extents")
}

#[test]
fn an_extent_node_that_is_its_own_child_ends_the_walk() {
    if !has_e2fsprogs() {
        return;
    }
    let said = said_of(&["-b", "1024"], &[], |disk| {
        let (block, number, generation) = file_with_tree(disk);
        let node = |depth, count, max_entries| ExtentNode {
            depth,
            max_entries,
            entries: Entries::Index(
                (0..count)
                    .map(|logical| ExtentIndex { logical: LogicalBlock(logical), child: block })
                    .collect(),
            ),
        };
        let mut root = inode(disk, number);
        node(5, 4, 4).write(root.i_block_mut()).expect("room");
        put_inode(disk, number, root);
        let range = disk.range(block);
        node(4, 80, 83).write(&mut disk.bytes[range]).expect("room");
        disk.fix(block, Kind::Extents(number, generation));
    });
    assert!(said.contains("in use twice"), "{said}");
}

#[test]
fn a_table_of_block_numbers_that_names_itself_ends_the_walk() {
    if !has_e2fsprogs() {
        return;
    }
    let said = said_of(&["-b", "1024", "-O", "^extent,^64bit"], &[], |disk| {
        let table = disk.metadata().iter().find(|(_, kind)| *kind == Kind::Indirect).expect("a table").0;
        for slot in 0..256 {
            let range = disk.range(table);
            indirect::set_pointer(&mut disk.bytes[range], slot, table.0 as u32);
        }
        let owners = (11..disk.geometry.inodes_count).map(InodeNumber);
        for number in owners {
            let mut file = inode(disk, number);
            if indirect::pointer(file.i_block(), indirect::SINGLE) == Some(table.0 as u32) {
                indirect::set_pointer(file.i_block_mut(), indirect::TRIPLE, table.0 as u32);
                put_inode(disk, number, file);
            }
        }
    });
    assert!(said.contains("in use twice"), "{said}");
}

#[test]
fn an_orphan_list_that_loops_is_found() {
    if !has_e2fsprogs() {
        return;
    }
    let said =
        said_of(&["-b", "1024"], &["ssv last_orphan 20", "sif <20> dtime 21", "sif <21> dtime 20"], |_| {});
    assert!(said.contains("the list loops"), "{said}");
}

#[test]
fn a_cycle_of_directories_is_found() {
    if !has_e2fsprogs() {
        return;
    }
    let said = said_of(&["-b", "1024"], &["ln /sub /sub/deep/again", "unlink /sub"], |_| {});
    assert!(said.contains("a cycle of directories"), "{said}");
}

#[test]
fn an_index_that_names_its_root_is_found() {
    if !has_e2fsprogs() {
        return;
    }
    let said = said_of(&["-b", "1024"], &[], |disk| {
        let blocks = disk.metadata();
        let (block, kind) =
            *blocks.iter().find(|(_, kind)| matches!(kind, Kind::Index(..))).expect("an index");
        // The last four bytes of each entry behind the counts are a block of the directory.
        let start = disk.range(block).start;
        for entry in 1..4 {
            let at = start + 32 + entry * 8 + 4;
            disk.bytes[at..at + 4].fill(0);
        }
        disk.fix(block, kind);
    });
    assert!(said.contains("stands in the index twice"), "{said}");
}

/// Both find a disk damaged, or neither does.
fn assert_agreed(image: &Path, what: &str) {
    let (agreement, said) = compare(image);
    assert!(
        matches!(agreement, Agreement::BothClean | Agreement::BothDamaged),
        "{what}: {agreement:?}\n{said}"
    );
}

#[test]
fn what_the_inode_for_descriptors_names_beyond_its_own_is_found() {
    if !has_e2fsprogs() {
        return;
    }
    let dir = scratch();
    for (level, slot) in [(0, 200), (0, 1), (1, 200), (1, 7)] {
        let image = make_disk(dir.path(), &["-b", "1024", "-g", "2048"], 12 << 10).expect("a disk");
        rewrite(&image, |disk| {
            let resize = inode(disk, InodeNumber::RESIZE);
            let named = |table: &[u8], slot| FsBlock(u64::from(indirect::pointer(table, slot).unwrap_or(0)));
            let mut table = named(resize.i_block(), indirect::DOUBLE);
            if level == 1 {
                let slots = 0..256;
                let names = slots.map(|slot| named(disk.block(table), slot));
                table = names.into_iter().find(|block| block.0 != 0).expect("a reserved block");
            }
            let range = disk.range(table);
            indirect::set_pointer(&mut disk.bytes[range], slot, 9000);
        });
        let (agreement, said) = compare(&image);
        assert_eq!(agreement, Agreement::BothDamaged, "{level}, {slot}: {said}");
    }
}

#[test]
fn a_size_beyond_what_a_map_can_hold_is_found() {
    if !has_e2fsprogs() {
        return;
    }
    let dir = scratch();
    for options in [&["-b", "4096"][..], &["-b", "1024"], &["-b", "4096", "-O", "^extent,^64bit"]] {
        for bits in [32, 38, 41, 42, 43, 44, 45] {
            for (less, name) in [(0, "/big"), (1, "/big"), (4096, "/sparse")] {
                let image = make_disk(dir.path(), options, 12 << 10).expect("a disk");
                let size = (1_u64 << bits) - less;
                debugfs(&image, &format!("sif {name} size {size}"));
                assert_agreed(&image, &format!("{options:?}: a size of {size}"));
            }
        }
    }
}

#[test]
fn users_of_a_log_are_counted() {
    if !has_e2fsprogs() {
        return;
    }
    let dir = scratch();
    for users in [0, 1, 2, 48, 49, u32::MAX] {
        let image = make_disk(dir.path(), &["-b", "1024"], 12 << 10).expect("a disk");
        rewrite(&image, |disk| {
            let range = disk.range(journal_blocks(disk)[0]);
            let mut log = jbd2::Superblock::parse(&disk.bytes[range.clone()]).expect("a log");
            log.s_nr_users = users;
            log.write(&mut disk.bytes[range]);
        });
        assert_agreed(&image, &format!("{users} users"));
    }
}

#[test]
fn findings_are_bounded() {
    if !has_e2fsprogs() {
        return;
    }
    let dir = scratch();
    let image = make_disk(dir.path(), &["-b", "1024"], 12 << 10).expect("a disk");
    rewrite(&image, |disk| {
        for group in [GroupNumber(0), GroupNumber(1)] {
            let block = disk.descriptor(group).block_bitmap();
            let range = disk.range(block);
            disk.bytes[range].fill(0x55);
            disk.fix(block, Kind::BlockBitmap(group));
        }
    });
    let fs = Mount::new().read_only(true).open(&image).expect("a disk that mounts");
    assert_eq!(fs.check(&mut |_| {}).expect("a check").len(), FINDINGS_MAX);
}
