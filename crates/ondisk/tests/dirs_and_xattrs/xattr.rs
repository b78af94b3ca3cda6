//! Extended attributes in memory: what is written is read, what is broken is refused.

use extant_ondisk::xattr::{
    NoRoom, Xattr, XattrValue, block_bytes, full_name, ibody_bytes, index, parse_block, parse_ibody,
    refcount, set_refcount, split_name, verify_block_hashes, write_block, write_ibody,
};
use extant_ondisk::{FsBlock, xattr};

use crate::rng::Rng;
use crate::sums::checksums;

fn random(rng: &mut Rng) -> Xattr {
    let name_len = rng.below(12);
    let name = rng.name(name_len);
    let name_index = 1 + rng.below(8) as u8;
    if rng.below(8) == 0 {
        let value =
            XattrValue::Inode { inum: 1 + rng.next() as u32 % 99, size: 70_000, hash: rng.next() as u32 };
        return Xattr { name_index, name, value };
    }
    let value_len = rng.below(40);
    Xattr::new(name_index, &name, &rng.bytes(value_len))
}

fn sorted(mut list: Vec<Xattr>) -> Vec<Xattr> {
    list.sort_by_key(|x| (x.name_index, x.name.len(), x.name.clone()));
    list
}

#[test]
fn what_is_written_is_read() {
    let mut rng = Rng::new(51);
    for _ in 0..2000 {
        let list: Vec<Xattr> = (0..1 + rng.below(12)).map(|_| random(&mut rng)).collect();
        let mut region = vec![0xAA; [96, 160, 864][rng.below(3)]];
        let before = region.clone();
        match write_ibody(&mut region, &list) {
            Ok(()) => assert_eq!(parse_ibody(&region).unwrap(), list),
            Err(NoRoom) => {
                assert!(ibody_bytes(&list) > region.len());
                assert_eq!(region, before);
            }
        }
        let mut block = vec![0xAA; 1024];
        match write_block(&mut block, &list, 3) {
            Ok(()) => {
                assert_eq!(sorted(parse_block(&block).unwrap()), parse_block(&block).unwrap());
                assert_eq!(parse_block(&block).unwrap(), sorted(list));
                assert!(verify_block_hashes(&block).unwrap());
                assert_eq!(refcount(&block), Ok(3));
            }
            Err(NoRoom) => assert!(block_bytes(&list) > block.len()),
        }
    }
}

#[test]
fn the_sizes_are_exact() {
    let list = [Xattr::new(1, b"abc", b"12345"), Xattr::new(6, b"x", b"")];
    // Entries of 16 bytes and the name, rounded; the value, rounded; the end.
    assert_eq!(ibody_bytes(&list), 4 + 20 + 8 + 20 + 4);
    assert_eq!(block_bytes(&list), 32 + 20 + 8 + 20 + 4);
    let mut region = vec![0; 56];
    assert_eq!(write_ibody(&mut region, &list), Ok(()));
    assert_eq!(parse_ibody(&region).unwrap(), list);
    assert_eq!(write_ibody(&mut region[..52], &list), Err(NoRoom));
    assert_eq!(write_block(&mut [0; 80], &list, 1), Err(NoRoom));
    assert_eq!(write_ibody(&mut region, &[]), Ok(()));
    assert_eq!(region, [0; 56]);
    assert_eq!(parse_ibody(&region).unwrap(), []);
    assert_eq!(parse_ibody(&[]).unwrap(), []);
    assert_eq!(write_ibody(&mut [0; 600], &[Xattr::new(1, &[b'a'; 256], b"")]), Err(NoRoom));
}

#[test]
fn a_value_wider_than_a_page_of_64_kib_stays_addressable() {
    let list = [Xattr::new(1, b"a", &[7; 60_000]), Xattr::new(1, b"b", &[8; 5000])];
    let mut block = vec![0; 65_536];
    write_block(&mut block, &list, 1).unwrap();
    assert_eq!(parse_block(&block).unwrap(), list);
}

#[test]
fn names_split_and_join() {
    let names: [(&[u8], u8, &[u8]); 7] = [
        (b"user.foo", index::USER, b"foo"),
        (b"trusted.a.b", index::TRUSTED, b"a.b"),
        (b"security.capability", index::SECURITY, b"capability"),
        (b"system.posix_acl_access", index::POSIX_ACL_ACCESS, b""),
        (b"system.posix_acl_default", index::POSIX_ACL_DEFAULT, b""),
        (b"system.richacl", index::RICHACL, b""),
        (b"system.data", index::SYSTEM, b"data"),
    ];
    for (whole, name_index, rest) in names {
        assert_eq!(split_name(whole), Some((name_index, rest)));
        assert_eq!(full_name(name_index, rest).as_deref(), Some(whole));
    }
    for none in [&b"user."[..], b"user", b"", b"btrfs.x", b"Xuser.foo"] {
        assert_eq!(split_name(none), None);
    }
    assert_eq!(full_name(5, b"x"), None);
}

/// A block of two attributes, whose entries are at 32 and 52.
fn two() -> Vec<u8> {
    let mut block = vec![0; 1024];
    write_block(&mut block, &[Xattr::new(1, b"aa", b"value one"), Xattr::new(1, b"bb", b"value two")], 1)
        .unwrap();
    block
}

#[test]
fn malformed_blocks_are_refused() {
    assert!(parse_block(&two()).is_ok());
    let cases: [(usize, &[u8], &str); 9] = [
        (0, &[1], "magic"),
        (8, &[2], "h_blocks"),
        (34, &[0xFE, 3], "a value past the end"),
        (34, &[32, 0], "a value over the entries"),
        (40, &[0xFF, 0xFF], "a size past the end"),
        (40, &[0xFF, 0xFF, 0xFF, 0xFF], "a size that overflows"),
        (48, &[0], "NUL in a name"),
        (52, &[255, 1], "an overlap of values or names past the values"),
        (54, &[0xF4, 3], "an overlap of values"),
    ];
    for (at, bytes, what) in cases {
        let mut block = two();
        block[at..at + bytes.len()].copy_from_slice(bytes);
        assert!(parse_block(&block).is_err(), "{what}");
    }
    let mut endless = two();
    endless[32..].fill(1);
    assert!(parse_block(&endless).is_err());
    assert!(parse_block(&[]).is_err());
    assert!(set_refcount(&mut [0; 64], 1).is_err());
}

#[test]
fn hashes_of_either_sign_pass_and_others_do_not() {
    let mut block = vec![0; 1024];
    write_block(&mut block, &[Xattr::new(1, b"\xE9", b"v")], 1).unwrap();
    assert!(verify_block_hashes(&block).unwrap());
    let stored = u32::from_le_bytes([block[44], block[45], block[46], block[47]]);
    // One name byte 0xE9: taken as signed it is 0xFFFFFFE9, rotated by 16 before the value's word comes in.
    let signed = stored ^ 0xE9_u32.rotate_left(16) ^ 0xFFFF_FFE9_u32.rotate_left(16);
    for (hash, ok) in [(signed, true), (0, true), (stored ^ 1, false)] {
        block[44..48].copy_from_slice(&hash.to_le_bytes());
        block[12..16].copy_from_slice(&hash.to_le_bytes());
        assert_eq!(verify_block_hashes(&block).unwrap(), ok, "{hash:x}");
    }
}

#[test]
fn a_checksum_covers_the_block_and_its_number() {
    let mut block = two();
    let sums = checksums(7);
    sums.update_xattr_block(FsBlock(500), &mut block);
    assert!(sums.verify_xattr_block(FsBlock(500), &block));
    assert!(!sums.verify_xattr_block(FsBlock(501), &block));
    for at in [0, 5, 13, 17, 31, 40, 1023] {
        let mut other = block.clone();
        other[at] ^= 4;
        assert!(!sums.verify_xattr_block(FsBlock(500), &other), "byte {at}");
    }
}

#[test]
fn hostile_attributes_neither_panic_nor_loop() {
    let mut rng = Rng::new(52);
    let mut refused = 0;
    for round in 0..40_000 {
        let len = [0, 3, 4, 8, 31, 32, 96, 1024][rng.below(8)];
        let mut bytes = if round % 4 == 0 { rng.bytes(len) } else { vec![0; len] };
        if round % 4 != 0 {
            let list: Vec<Xattr> = (0..rng.below(6)).map(|_| random(&mut rng)).collect();
            let _ = if round % 2 == 0 {
                write_ibody(&mut bytes, &list)
            } else {
                write_block(&mut bytes, &list, 1)
            };
            if len > 0 {
                rng.mutate(&mut bytes, 5);
            }
        }
        // Accepted attributes can be written back into as many bytes.
        match parse_ibody(&bytes) {
            Ok(list) => write_ibody(&mut bytes.clone(), &list).unwrap(),
            Err(_) => refused += 1,
        }
        if let Ok(list) = parse_block(&bytes) {
            write_block(&mut bytes.clone(), &list, 1).unwrap();
        }
        let _ = verify_block_hashes(&bytes);
        let _ = xattr::refcount(&bytes);
        checksums(1).update_xattr_block(FsBlock(9), &mut bytes);
    }
    assert!(refused > 1000);
}
