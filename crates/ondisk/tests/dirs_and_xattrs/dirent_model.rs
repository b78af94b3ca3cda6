//! One directory block against a map.

use std::collections::BTreeMap;

use extant_ondisk::dirent::{
    self, NewEntry, Search, entries, entry_bytes, find, insert, live_entries, remove, search, usable_bytes,
};
use extant_ondisk::{FileType, InodeNumber};

use crate::rng::Rng;
use crate::sums::checksums;

type Model = BTreeMap<Vec<u8>, (u32, u8)>;

fn assert_same(block: &[u8], usable: usize, model: &Model) {
    let mut end = 0;
    for entry in entries(block, usable) {
        let entry = entry.unwrap();
        assert_eq!(entry.offset, end, "entries are end to end");
        end += entry.rec_len;
    }
    assert_eq!(end, usable, "entries cover the block");
    let live: Vec<_> = live_entries(block, usable).map(Result::unwrap).collect();
    assert_eq!(live.len(), model.len());
    for entry in live {
        assert_eq!(model.get(entry.name), Some(&(entry.inode.0, entry.file_type)));
    }
}

fn room(found: Search<'_>) -> Option<usize> {
    match found {
        Search::Room(offset) => Some(offset),
        Search::Found { .. } | Search::Full => None,
    }
}

/// The offsets of the entry of a name that is there, and of the one before it.
fn place(block: &[u8], usable: usize, name: &[u8]) -> (usize, usize) {
    let Search::Found { entry, before } = search(block, usable, name, None).unwrap() else {
        panic!("the name is there");
    };
    (entry.offset, before)
}

fn churn(block_bytes: usize, has_csum: bool, rng: &mut Rng) {
    let usable = usable_bytes(block_bytes, has_csum);
    let mut block = vec![0xAA; block_bytes];
    dirent::init_empty(&mut block, usable);
    let mut model = Model::new();
    // Where an entry begins.
    let mut known = None;
    for step in 0..4000 {
        let len = if rng.below(8) == 0 { 255 } else { 1 + rng.below(12) };
        let mut name = rng.name(len);
        // Of names with one ending some are there and some are not.
        if rng.below(2) == 0 {
            name.truncate(240);
            name.extend(&b".the same end"[rng.below(12)..]);
        }
        let names: Vec<_> = model.keys().cloned().collect();
        match rng.below(10) {
            0..=4 if !model.contains_key(&name) => {
                let rooms = [None, known].map(|known| room(search(&block, usable, &name, known).unwrap()));
                let entry = (1 + rng.below(1000) as u32, 1 + rng.below(7) as u8);
                let new = NewEntry { inode: InodeNumber(entry.0), name: &name, file_type: entry.1 };
                let mut others = [block.clone(), block.clone()];
                let done = insert(&mut block, usable, InodeNumber(entry.0), &name, entry.1).unwrap();
                let mut added = None;
                for (room, other) in rooms.iter().zip(&mut others) {
                    assert_eq!(room.is_some(), done);
                    added = room.and_then(|room| dirent::insert_at(other, usable, room, &new).unwrap());
                    assert_eq!(added.is_some(), done);
                }
                let [first, other] = others;
                assert!(block == first, "put into another place, or written in vain");
                if let Some(added) = added {
                    assert_eq!(dirent::entry_at(&other, usable, added).unwrap().name, name);
                    model.insert(name, entry);
                    (block, known) = (other, Some(added));
                }
            }
            5..=7 if !names.is_empty() => {
                let name = &names[rng.below(names.len())];
                let (offset, before) = place(&block, usable, name);
                let mut by_whole_walk = block.clone();
                remove(&mut by_whole_walk, usable, offset, 0).unwrap();
                // Others may have come in between.
                let from =
                    if rng.below(2) == 0 { before } else { place(&block, usable, &names[0]).0.min(before) };
                remove(&mut block, usable, offset, from).unwrap();
                assert!(block == by_whole_walk);
                // Where one began is none any more.
                known = known.filter(|known| *known != offset);
                model.remove(name);
                assert!(remove(&mut block, usable, offset, from).is_err(), "nothing is removed twice");
            }
            8 if !names.is_empty() => {
                let name = &names[rng.below(names.len())];
                let offset = find(&block, usable, name).unwrap().unwrap().offset;
                dirent::set_inode(&mut block, usable, offset, InodeNumber(77), FileType::Fifo.dirent_byte())
                    .unwrap();
                model.insert(name.clone(), (77, FileType::Fifo.dirent_byte()));
            }
            _ => {
                let found = find(&block, usable, &name).unwrap();
                assert_eq!(found.is_some(), model.contains_key(&name));
                for known in [None, known] {
                    let searched = search(&block, usable, &name, known).unwrap();
                    let by_search = match searched {
                        Search::Found { entry, .. } => Some(entry),
                        Search::Room(_) | Search::Full => None,
                    };
                    assert_eq!(by_search, found);
                }
            }
        }
        if step % 16 == 0 {
            assert_same(&block, usable, &model);
        }
    }
    assert_same(&block, usable, &model);
    assert_eq!(dirent::has_tail(&block), has_csum);
}

#[test]
fn a_block_agrees_with_a_map_under_random_changes() {
    let mut rng = Rng::new(11);
    for block_bytes in [1024, 2048, 4096, 65536] {
        for has_csum in [false, true] {
            churn(block_bytes, has_csum, &mut rng);
        }
    }
}

#[test]
fn a_block_fills_to_the_last_byte() {
    let mut block = vec![0; 1024];
    dirent::init_dot_dotdot(
        &mut block,
        1024,
        InodeNumber(12),
        InodeNumber(2),
        FileType::Directory.dirent_byte(),
    );
    let mut count = 0_u32;
    while insert(&mut block, 1024, InodeNumber(20 + count), format!("{count:04}").as_bytes(), 1).unwrap() {
        count += 1;
    }
    // 1,024 bytes less `.` and `..` of 12 each, in entries of 12.
    assert_eq!(count, (1024 - 24) / 12);
    assert_eq!(live_entries(&block, 1024).count() as u32, count + 2);
    assert!(!dirent::is_empty(&block, 1024).unwrap());
}

#[test]
fn names_of_no_or_too_many_bytes_have_no_room() {
    let mut block = vec![0; 4096];
    dirent::init_empty(&mut block, 4096);
    assert!(!insert(&mut block, 4096, InodeNumber(5), b"", 1).unwrap());
    assert!(!insert(&mut block, 4096, InodeNumber(5), &[b'a'; 256], 1).unwrap());
    assert!(insert(&mut block, 4096, InodeNumber(5), &[b'a'; 255], 1).unwrap());
    assert_eq!(entry_bytes(255), 264);
}

#[test]
fn a_tail_sums_the_bytes_before_it() {
    let mut block = vec![0; 1024];
    dirent::init_dot_dotdot(
        &mut block,
        1012,
        InodeNumber(12),
        InodeNumber(2),
        FileType::Directory.dirent_byte(),
    );
    let sums = checksums(99);
    let ok = |block: &[u8]| sums.verify_dir_block(InodeNumber(12), 5, block);
    assert!(!ok(&block));
    sums.update_dir_block(InodeNumber(12), 5, &mut block);
    assert!(ok(&block));
    assert!(!sums.verify_dir_block(InodeNumber(13), 5, &block));
    assert!(!sums.verify_dir_block(InodeNumber(12), 6, &block));
    assert!(!checksums(98).verify_dir_block(InodeNumber(12), 5, &block));
    for at in [0, 500, 1011, 1016, 1020] {
        let mut other = block.clone();
        other[at] ^= 1;
        assert!(!ok(&other), "byte {at} is covered");
    }
}

#[test]
fn broken_entries_are_refused() {
    let mut good = vec![0; 1024];
    dirent::init_dot_dotdot(
        &mut good,
        1024,
        InodeNumber(12),
        InodeNumber(2),
        FileType::Directory.dirent_byte(),
    );
    insert(&mut good, 1024, InodeNumber(13), b"name", 1).unwrap();
    // The second entry's length: too small, unaligned, too small for the name, too long, leaving too little.
    for rec_len in [0_u16, 8, 14, 1016, 65535, 1008] {
        let mut block = good.clone();
        block[16..18].copy_from_slice(&rec_len.to_le_bytes());
        assert!(entries(&block, 1024).any(|e| e.is_err()), "rec_len {rec_len}");
        assert!(entries(&block, 1024).last().unwrap().is_err(), "an error is the last item");
        let before = block.clone();
        assert!(insert(&mut block, 1024, InodeNumber(14), &[b'z'; 200], 1).is_err());
        assert!(remove(&mut block, 1024, 24, 0).is_err());
        assert_eq!(block, before);
    }
    let mut block = good.clone();
    block[18] = 200;
    assert!(entries(&block, 1024).any(|e| e.is_err()), "a name longer than its entry");
    let mut block = good;
    block[18] = 0;
    assert!(entries(&block, 1024).any(|e| e.is_err()), "an inode without a name");
}

#[test]
fn hostile_blocks_neither_panic_nor_loop() {
    let mut rng = Rng::new(12);
    for round in 0..20_000 {
        let block_bytes = [0, 1, 11, 12, 64, 1024, 4096][rng.below(7)];
        let mut block = if round % 2 == 0 { rng.bytes(block_bytes) } else { vec![0; block_bytes] };
        let usable =
            [block_bytes, block_bytes + 5, usable_bytes(block_bytes, true), rng.below(5000)][rng.below(4)];
        if round % 2 == 1 {
            dirent::init_dot_dotdot(
                &mut block,
                usable,
                InodeNumber(12),
                InodeNumber(2),
                FileType::Directory.dirent_byte(),
            );
            for _ in 0..rng.below(20) {
                let _ = insert(&mut block, usable, InodeNumber(9), b"some name", 1);
            }
            if !block.is_empty() {
                rng.mutate(&mut block, 6);
            }
        }
        assert!(entries(&block, usable).count() <= block_bytes / 12 + 1);
        let offset = rng.below(block_bytes + 20);
        let _ = find(&block, usable, b"some name");
        let _ = search(&block, usable, b"some name", Some(offset));
        let _ = insert(&mut block, usable, InodeNumber(9), b"another", 1);
        let _ = dirent::set_inode(&mut block, usable, offset, InodeNumber(3), 2);
        let _ = remove(&mut block, usable, offset, rng.below(offset + 20));
        checksums(1).update_dir_block(InodeNumber(2), 3, &mut block);
        let _ = checksums(1).verify_dir_block(InodeNumber(2), 3, &block);
        dirent::init_tail(&mut block);
        dirent::init_empty(&mut block, usable);
    }
}

#[test]
fn a_hash_behind_a_name_is_read_if_its_entry_has_room() {
    let mut block = vec![0; 64];
    // Inode 12, a name of 5 bytes, which end at 13; the words at 16 and 20.
    block[..8].copy_from_slice(&[12, 0, 0, 0, 64, 0, 5, 1]);
    block[8..13].copy_from_slice(b"names");
    block[16..24].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
    let stored = |block: &[u8]| {
        let entry = dirent::entry_at(block, block.len(), 0).expect("an entry");
        let hash = dirent::stored_hash(block, &entry);
        (hash.hash, hash.minor)
    };
    assert_eq!(stored(&block), (0x0403_0201, 0x0807_0605));
    block[4] = 20;
    assert_eq!(stored(&block), (0, 0));
}
