//! The index against a map, with names of equal hash, and against broken bytes.

use std::collections::{BTreeMap, HashMap};

use extant_ondisk::dir_hash::{DirHasher, HashVersion};
use extant_ondisk::dirent::{self, NewEntry};
use extant_ondisk::htree::{
    DxKind, DxNode, DxNodeMut, LeafSplit, RootInfo, init_node, make_root_from_linear,
};
use extant_ondisk::{InodeNumber, LogicalBlock};

use crate::indexed_dir::IndexedDir;
use crate::rng::Rng;
use crate::sums::checksums;

const OWN: InodeNumber = InodeNumber(12);

fn half_md4() -> DirHasher {
    DirHasher::new(HashVersion::HalfMd4, [1, 2, 3, 4])
}

/// `count` names of 255 bytes with one and the same legacy hash: long prefixes, and three last bytes solved for.
pub fn equal_hash_names(count: usize, rng: &mut Rng) -> Vec<Vec<u8>> {
    const FACTOR: u32 = 7_152_373;
    fn step((hash0, hash1): (u32, u32), byte: u8) -> (u32, u32) {
        let hash = hash1.wrapping_add(hash0 ^ u32::from(byte).wrapping_mul(FACTOR));
        let hash = if hash & 0x8000_0000 != 0 { hash.wrapping_sub(0x7fff_ffff) } else { hash };
        (hash, hash0)
    }
    // Bytes below 128 alone, so that signed and unsigned hashes agree.
    let allowed = || (1..128_u8).filter(|b| *b != b'/');
    let by_product: HashMap<u32, u8> = allowed().map(|b| (u32::from(b).wrapping_mul(FACTOR), b)).collect();
    let target = 0x1234_5678;
    let mut names = Vec::new();
    while names.len() < count {
        let prefix: Vec<u8> = rng.name(252).iter().map(|b| b'a' + b % 26).collect();
        let state = prefix.iter().fold((0x12a3_fe2d, 0x37ab_e8f9), |s, b| step(s, *b));
        let ends = allowed().flat_map(|a| allowed().map(move |b| (a, b)));
        let found = ends.into_iter().find_map(|(a, b)| {
            let (hash0, hash1) = step(step(state, a), b);
            let last = [target, target + 0x7fff_ffff].into_iter().find_map(|sum: u32| {
                let byte = *by_product.get(&(sum.wrapping_sub(hash1) ^ hash0))?;
                (step((hash0, hash1), byte).0 == target).then_some(byte)
            })?;
            Some([a, b, last])
        });
        names.extend(found.map(|end| [prefix, end.to_vec()].concat()));
    }
    names
}

#[test]
fn an_index_agrees_with_a_map_under_random_changes() {
    let mut rng = Rng::new(31);
    for (block_bytes, has_csum, count) in [(1024, false, 9000), (1024, true, 9000), (4096, true, 20_000)] {
        let mut dir = IndexedDir::new(block_bytes, has_csum, half_md4(), OWN, InodeNumber::ROOT);
        let mut model = BTreeMap::new();
        for number in 1..count {
            let len = 8 + rng.below(40);
            let name = rng.name(len);
            assert!(dir.find(&name).is_none());
            assert!(dir.insert(InodeNumber(number), &name, 1));
            model.insert(name, number);
            if number % 3 == 0 {
                let gone = model.keys().nth(rng.below(model.len().min(50))).unwrap().clone();
                model.remove(&gone);
                assert!(dir.remove(&gone));
                assert!(!dir.remove(&gone));
            }
        }
        assert_eq!(dir.check(), model.len());
        for (name, number) in &model {
            assert_eq!(dir.find(name).unwrap().2.0, *number);
        }
        assert!(block_bytes > 1024 || dir.levels() == 1);
    }
}

#[test]
fn a_deep_index_splits_its_inner_nodes_and_ends_at_its_depth() {
    // 1 KiB blocks and names of 255 bytes: 3 names a leaf, 123 entries a root.
    let mut rng = Rng::new(32);
    let mut dir = IndexedDir::new(1024, true, half_md4(), OWN, InodeNumber::ROOT);
    let mut names = vec![];
    loop {
        let name = rng.name(255);
        if !dir.insert(InodeNumber(7), &name, 1) {
            break;
        }
        names.push(name);
    }
    assert_eq!(dir.levels(), 1);
    assert_eq!(dir.check(), names.len());
    assert!(names.len() > 123 * 60 * 2, "{} names", names.len());
    dir.large_dir = true;
    for _ in 0..200 {
        let name = rng.name(255);
        assert!(dir.insert(InodeNumber(7), &name, 1));
        names.push(name);
    }
    assert_eq!(dir.levels(), 2);
    assert_eq!(dir.check(), names.len());
    assert!(names.iter().all(|name| dir.find(name).is_some()));
}

#[test]
fn names_of_one_hash_run_over_many_leaves() {
    let mut rng = Rng::new(33);
    let same = equal_hash_names(14, &mut rng);
    let hasher = DirHasher::new(HashVersion::Legacy, [0; 4]);
    assert!(same.iter().all(|name| hasher.hash(name).hash == hasher.hash(&same[0]).hash));
    let mut dir = IndexedDir::new(1024, true, hasher, OWN, InodeNumber::ROOT);
    let mut names = vec![];
    for (at, name) in same.iter().enumerate() {
        for _ in 0..10 {
            let other = rng.name(255);
            assert!(dir.insert(InodeNumber(9), &other, 1));
            names.push(other);
        }
        assert!(dir.insert(InodeNumber(100 + at as u32), name, 1));
    }
    let (_, leaves) = dir.walk();
    // 14 names at 3 a leaf cannot do with fewer than 4 continued leaves.
    assert!(leaves.iter().filter(|(_, hash)| hash & 1 == 1).count() >= 4);
    assert_eq!(dir.check(), names.len() + same.len());
    for (at, name) in same.iter().enumerate() {
        assert_eq!(dir.find(name).unwrap().2.0, 100 + at as u32);
    }
    for name in same.iter().chain(&names) {
        assert!(dir.remove(name));
        assert!(dir.find(name).is_none());
    }
}

#[test]
fn a_split_goes_by_bytes_and_keeps_equal_hashes_together() {
    let mut rng = Rng::new(34);
    let same = equal_hash_names(2, &mut rng);
    let hasher = DirHasher::new(HashVersion::Legacy, [0; 4]);
    let hash = |name: &[u8]| hasher.hash(name).hash;
    for _ in 0..200 {
        let mut leaf = vec![0; 1024];
        dirent::init_empty(&mut leaf, 1012);
        let other = rng.name(255);
        for name in [&same[0], &other] {
            assert!(dirent::insert(&mut leaf, 1012, OWN, name, 1).unwrap());
        }
        while dirent::insert(&mut leaf, 1012, OWN, &rng.name(30), 1).unwrap() {}
        let entry = NewEntry { inode: OWN, name: &same[1], file_type: 1 };
        let split = LeafSplit::plan(&leaf, 1012, entry, &hasher).unwrap();
        let (mut low, mut high) = (vec![0; 1024], vec![0; 1024]);
        split.write(&mut low, &mut high);
        let names = |block: &[u8]| -> Vec<Vec<u8>> {
            dirent::live_entries(block, 1012).map(|e| e.unwrap().name.to_vec()).collect()
        };
        let (low, high) = (names(&low), names(&high));
        assert_eq!(split.index_hash() & 1, 0);
        assert!(low.iter().all(|n| hash(n) < split.index_hash()));
        assert!(high.iter().all(|n| hash(n) >= split.index_hash()));
        assert!(!low.is_empty() && !high.is_empty());
    }
}

#[test]
fn search_finds_the_last_entry_not_above_the_hash() {
    let mut rng = Rng::new(35);
    let mut block = vec![0; 1024];
    init_node(&mut block, LogicalBlock(1), true);
    let mut hashes: Vec<u32> = vec![0];
    while hashes.len() < DxKind::Node.limit(1024, true) {
        let hash = (rng.below(200) as u32) << 1;
        let mut node = DxNodeMut::parse(&mut block, DxKind::Node, true).unwrap();
        let at = node.as_node().search(hash);
        assert_eq!(at, hashes.iter().rposition(|h| *h <= hash).unwrap());
        assert!(node.insert_after(at, hash, LogicalBlock(hash)).unwrap());
        hashes.insert(at + 1, hash);
    }
    let mut node = DxNodeMut::parse(&mut block, DxKind::Node, true).unwrap();
    assert!(node.as_node().is_full());
    assert!(!node.insert_after(hashes.len() - 1, u32::MAX, LogicalBlock(1)).unwrap());
    assert!(node.insert_after(hashes.len() - 1, 0, LogicalBlock(1)).is_err(), "order is kept");
    let before: Vec<u32> = (0..hashes.len()).map(|i| node.as_node().hash(i)).collect();
    assert_eq!(before, hashes);
    let mut upper = vec![0; 1024];
    let hash = node.split_upper(&mut upper).unwrap();
    let kept = node.as_node().count();
    assert_eq!(hash, hashes[kept]);
    let upper = DxNode::parse(&upper, DxKind::Node, true).unwrap();
    assert_eq!(kept + upper.count(), hashes.len());
    for index in 1..upper.count() {
        assert_eq!(upper.hash(index), hashes[kept + index]);
        assert_eq!(upper.child(index), Some(LogicalBlock(hashes[kept + index])));
    }
}

#[test]
fn malformed_roots_and_nodes_are_refused() {
    let dir = IndexedDir::new(1024, true, half_md4(), OWN, InodeNumber::ROOT);
    let root = &dir.blocks[0];
    assert!(RootInfo::parse(root, false).is_ok());
    // `.`'s length, `..`'s length, reserved_zero, hash_version, info_length, indirect_levels, unused_flags.
    for (at, value) in [(4, 16), (16, 1), (24, 1), (28, 3), (29, 9), (30, 2), (31, 1), (8, b'x'), (20, b'x')]
    {
        let mut bad = root.clone();
        bad[at] = value;
        assert!(RootInfo::parse(&bad, false).is_err(), "byte {at}");
    }
    let mut deep = root.clone();
    deep[30] = 2;
    assert!(RootInfo::parse(&deep, true).is_ok());
    let mut node = vec![0; 1024];
    init_node(&mut node, LogicalBlock(3), true);
    assert!(DxNode::parse(&node, DxKind::Node, true).is_ok());
    assert!(DxNode::parse(&node, DxKind::Node, false).is_err(), "the limit tells of the checksum");
    for (at, value) in [(0, 1), (4, 12), (8, 3), (10, 0), (10, 255)] {
        let mut bad = node.clone();
        bad[at] = value;
        assert!(DxNode::parse(&bad, DxKind::Node, true).is_err(), "byte {at}");
    }
}

#[test]
fn hostile_index_blocks_neither_panic_nor_loop() {
    let mut rng = Rng::new(36);
    let mut dir = IndexedDir::new(1024, true, half_md4(), OWN, InodeNumber::ROOT);
    while dir.levels() == 0 {
        let name = rng.name(200);
        dir.insert(OWN, &name, 1);
    }
    let (nodes, leaves) = dir.walk();
    for round in 0..20_000 {
        let from =
            if rng.below(2) == 0 { nodes[rng.below(nodes.len())] } else { leaves[rng.below(leaves.len())].0 };
        let mut block = if round % 8 == 0 {
            rng.bytes([0, 9, 31, 64, 1024][round % 5])
        } else {
            dir.blocks[from].clone()
        };
        if !block.is_empty() {
            rng.mutate(&mut block, 5);
        }
        let has_csum = rng.below(2) == 0;
        let _ = RootInfo::parse(&block, true);
        for kind in [DxKind::Root, DxKind::Node] {
            checksums(1).update_htree_node(OWN, 3, &mut block);
            let _ = checksums(1).verify_htree_node(OWN, 3, &block);
            let mut fresh = vec![0; block.len()];
            let Ok(mut node) = DxNodeMut::parse(&mut block, kind, has_csum) else {
                continue;
            };
            let hash = rng.next() as u32;
            let at = node.as_node().search(hash);
            assert!(node.as_node().child(at).is_some());
            let _ = node.as_node().continues(at, hash);
            let _ = node.insert_after(at, hash, LogicalBlock(5));
            let _ = node.split_upper(&mut fresh);
            node.truncate(rng.below(300));
            let _ = node.push_down(&mut fresh, LogicalBlock(6));
        }
        let entry = NewEntry { inode: OWN, name: b"new", file_type: 1 };
        let (mut low, mut high) = (vec![0; block.len()], vec![0; block.len()]);
        if let Ok(split) = LeafSplit::plan(&block, 1012, entry, &half_md4()) {
            let _ = split.index_hash();
            split.write(&mut low, &mut high);
        }
        let _ = make_root_from_linear(&mut block, &mut low, LogicalBlock(1), HashVersion::Tea, has_csum);
    }
}
