//! Content in inodes by its bytes: what is there, what is refused, and what is left when it is taken out.

use extant_ondisk::inline_data::{content, entry_lists, fill_directory_block, parent, take_out};
use extant_ondisk::xattr::{Xattr, XattrValue, index, parse_ibody, write_ibody};
use extant_ondisk::{ExtentNode, InodeFlags, InodeNumber, RawInode, dirent};

use crate::rng::Rng;

/// A file whose `i_block` counts up from 1, with these attributes.
fn inode(xattrs: &[Xattr]) -> RawInode {
    let mut inode = RawInode::new(256, 32).unwrap();
    inode.set_mode(0o100_644);
    inode.set_flags(InodeFlags::INLINE_DATA | InodeFlags::NOATIME);
    (1..).zip(inode.i_block_mut()).for_each(|(value, byte)| *byte = value);
    write_ibody(inode.xattr_region_mut().unwrap(), xattrs).unwrap();
    inode
}

fn of_content(value: &[u8]) -> Xattr {
    Xattr::new(index::SYSTEM, b"data", value)
}

#[test]
fn content_is_i_block_and_the_value_and_leaves_an_empty_map() {
    let other = Xattr::new(index::USER, b"data", b"theirs");
    for has_extents in [false, true] {
        let mut inode = inode(&[other.clone(), of_content(b"more")]);
        inode.set_size(64);
        let expected: Vec<u8> = (1..=60).chain(*b"more").collect();
        assert_eq!(content(&inode), Ok(expected));
        take_out(&mut inode, has_extents).unwrap();
        assert_eq!(parse_ibody(inode.xattr_region().unwrap()), Ok(vec![other.clone()]));
        assert_eq!(inode.size(), 64);
        if has_extents {
            assert_eq!(inode.flags(), InodeFlags::NOATIME | InodeFlags::EXTENTS);
            assert_eq!(ExtentNode::parse(inode.i_block(), None).unwrap().entries.len(), 0);
        } else {
            assert_eq!((inode.flags(), inode.i_block()), (InodeFlags::NOATIME, &[0; 60]));
        }
    }
}

#[test]
fn content_that_cannot_be_there_is_refused() {
    let refused = |inode: &RawInode| content(inode).unwrap_err().to_string();
    assert!(refused(&inode(&[])).contains("without an attribute"));
    assert!(refused(&inode(&[Xattr::new(index::USER, b"data", b"")])).contains("without an attribute"));
    assert!(refused(&RawInode::new(128, 0).unwrap()).contains("without an attribute"));
    let value = XattrValue::Inode { inum: 12, size: 4, hash: 0 };
    assert!(refused(&inode(&[Xattr { value, ..of_content(b"") }])).contains("in another one"));
    let mut large = inode(&[of_content(b"more")]);
    large.set_size(65);
    assert!(refused(&large).contains("more than the inode holds"));
    let mut mapped = inode(&[of_content(b"more")]);
    mapped.set_flags(mapped.flags() | InodeFlags::EXTENTS);
    assert!(refused(&mapped).contains("mapped by extents"));
}

/// The content of a directory with names in both of its lists.
fn directory(value: usize) -> Vec<u8> {
    let mut content = vec![0; 60 + value];
    content[0] = 5;
    let (own, behind) = content.split_at_mut(60);
    for (list, names) in [(&mut own[4..], ["a", "bb"]), (behind, ["ccc", "dddd"])] {
        let usable = list.len();
        dirent::init_empty(list, usable);
        for (inode, name) in (20..).zip(names) {
            assert!(dirent::insert(list, usable, InodeNumber(inode), name.as_bytes(), 1).unwrap());
        }
    }
    content
}

#[test]
fn both_lists_of_a_directory_come_into_its_block() {
    let content = directory(68);
    assert_eq!(parent(&content), InodeNumber(5));
    assert_eq!(entry_lists(&content).map(<[u8]>::len), [56, 68]);
    let mut block = vec![0xEE; 1024];
    fill_directory_block(&mut block, 1012, &content, InodeNumber(30), 2).unwrap();
    let entries: Vec<_> = dirent::entries(&block, 1012).map(Result::unwrap).collect();
    let said: Vec<_> = entries.iter().map(|entry| (entry.name, entry.inode.0)).collect();
    let expected: [(&[u8], u32); 6] =
        [(b".", 30), (b"..", 5), (b"a", 20), (b"bb", 21), (b"ccc", 20), (b"dddd", 21)];
    assert_eq!(said, expected);
    assert!(dirent::has_tail(&block));
}

#[test]
fn a_directory_that_cannot_be_is_refused() {
    let refused = |content: &[u8]| {
        let mut block = vec![0; 1024];
        fill_directory_block(&mut block, 1012, content, InodeNumber(30), 2).unwrap_err().to_string()
    };
    let mut orphan = directory(68);
    orphan[0] = 0;
    assert!(refused(&orphan).contains("no parent"));
    for at in [8, 64] {
        let mut broken = directory(68);
        broken[at] = 0xFF;
        assert!(refused(&broken).contains("broken"));
    }
    assert!(refused(&directory(68)[..66]).contains("broken"));
}

#[test]
fn random_bytes_are_content_or_an_error() {
    let mut rng = Rng::new(7);
    let mut directories = 0;
    for _ in 0..20_000 {
        let mut bytes = inode(&[of_content(&directory(68)[60..])]).as_bytes().to_vec();
        bytes[40..100].copy_from_slice(&directory(68)[..60]);
        for _ in 0..rng.below(5) {
            let at = [rng.below(256), 40 + rng.below(60), 160 + rng.below(96)][rng.below(3)];
            bytes[at] = rng.below(256) as u8;
        }
        let Ok(mut inode) = RawInode::parse(&bytes) else { continue };
        if let Ok(content) = content(&inode) {
            let mut block = vec![0; 1024];
            let filled = fill_directory_block(&mut block, 1012, &content, InodeNumber(30), 2);
            directories += u32::from(filled.is_ok());
        }
        let _ = take_out(&mut inode, rng.below(2) == 0);
    }
    assert!(directories > 1000, "{directories}");
}
