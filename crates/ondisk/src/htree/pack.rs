//! A directory made anew from all its names: leaves in order of hash, and the index over them.

use std::ops::Range;

use super::leaf::{init_root, pack};
use super::node::{DxNodeMut, init_entries, init_node};
use super::{Dots, DxKind, max_indirect_levels};
use crate::dir_hash::{DirHasher, NameHash};
use crate::dirent::{NewEntry, TAIL_BYTES, entry_bytes, usable_bytes};
use crate::error::Result;
use crate::types::LogicalBlock;

/// A leaf of an index keeps one part of so many free, for names to come (`indexed_dir_slack_percentage` of `e2fsck.conf`).
const SLACK_PART: usize = 5;

/// The blocks that names take: planned first, then written.
#[derive(Debug)]
pub struct PackedDirectory<'a> {
    dots: Dots,
    /// Names with their hashes; in order of those if there is an index.
    entries: Vec<(NameHash, NewEntry<'a>)>,
    /// The names of each leaf; of a linear directory of each block.
    leaves: Vec<Range<usize>>,
    /// The hash, and levels of nodes between the root and the leaves; none of a linear directory.
    index: Option<(DirHasher, u8)>,
    block_bytes: usize,
    has_csum: bool,
}

impl<'a> PackedDirectory<'a> {
    /// Plans a directory of these names. It is linear if they fit one block, or without a `hasher`; the names keep their order then.
    /// `None` if there are more than the deepest index can have. Cost: a hash and a place in a sort per name.
    #[must_use]
    pub fn plan(
        dots: Dots,
        entries: Vec<NewEntry<'a>>,
        hasher: Option<DirHasher>,
        (block_bytes, has_csum): (usize, bool),
        large_dir: bool,
    ) -> Option<Self> {
        let usable = usable_bytes(block_bytes, has_csum);
        let hash = |entry: &NewEntry<'_>| hasher.map_or_else(NameHash::default, |it| it.hash(entry.name));
        let mut entries: Vec<_> = entries.into_iter().map(|entry| (hash(&entry), entry)).collect();
        // `.` and `..` come first.
        let linear = leaves(&entries, 2 * entry_bytes(2), usable);
        let Some(hasher) = hasher.filter(|_| linear.len() > 1) else {
            return Some(Self { dots, entries, leaves: linear, index: None, block_bytes, has_csum });
        };
        entries.sort_by(|a, b| (a.0, a.1.name).cmp(&(b.0, b.1.name)));
        let leaves = leaves(&entries, 0, usable - (block_bytes / SLACK_PART).max(TAIL_BYTES));
        let limit = |kind: DxKind| kind.limit(block_bytes, has_csum);
        let mut room = limit(DxKind::Root);
        let mut levels = 0;
        while leaves.len() > room {
            room = room.saturating_mul(limit(DxKind::Node));
            levels += 1;
            if levels > max_indirect_levels(large_dir) {
                return None;
            }
        }
        Some(Self { dots, entries, leaves, index: Some((hasher, levels)), block_bytes, has_csum })
    }

    /// Levels of nodes between the root of the index and the leaves; none of a linear directory.
    #[must_use]
    pub fn levels(&self) -> Option<u8> {
        self.index.map(|(_, levels)| levels)
    }

    /// The blocks of the index, which come before the leaves.
    #[must_use]
    pub fn index_blocks(&self) -> usize {
        self.index.map_or(0, |(_, levels)| 1 + self.nodes(levels).iter().sum::<usize>())
    }

    /// All blocks.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.index_blocks() + self.leaves.len()
    }

    /// The nodes of each level, from the one below the root.
    fn nodes(&self, levels: u8) -> Vec<usize> {
        let limit = DxKind::Node.limit(self.block_bytes, self.has_csum).max(1);
        let mut nodes = Vec::new();
        let mut below = self.leaves.len();
        for _ in 0..levels {
            below = below.div_ceil(limit);
            nodes.insert(0, below);
        }
        nodes
    }

    /// The bytes of all blocks, without checksums.
    ///
    /// # Errors
    /// `Corrupt` if an index that was planned cannot be written, which no names cause.
    pub fn write(&self) -> Result<Vec<Vec<u8>>> {
        let usable = usable_bytes(self.block_bytes, self.has_csum);
        let mut blocks = Vec::with_capacity(self.block_count());
        if let Some((hasher, levels)) = &self.index {
            self.write_index(hasher, *levels, &mut blocks)?;
        }
        let dot = |name: &'static [u8], inode| NewEntry { inode, name, file_type: self.dots.file_type };
        let dots = [dot(b".", self.dots.own), dot(b"..", self.dots.parent)];
        for leaf in &self.leaves {
            let mut block = vec![0; self.block_bytes];
            let before = if blocks.is_empty() { &dots[..] } else { &[] };
            let names = self.entries[leaf.clone()].iter().map(|(_, entry)| entry);
            pack(&mut block, usable, before.iter().chain(names));
            blocks.push(block);
        }
        Ok(blocks)
    }

    fn write_index(&self, hasher: &DirHasher, levels: u8, blocks: &mut Vec<Vec<u8>>) -> Result<()> {
        let nodes = self.nodes(levels);
        let limit = DxKind::Node.limit(self.block_bytes, self.has_csum).max(1);
        // The hash of each block of a level and its number, from the leaves up.
        let mut first = 1 + nodes.iter().sum::<usize>();
        let hash = |at: usize| self.entries.get(at).map_or(0, |(hash, _)| hash.hash);
        let leaf_hash = |leaf: &Range<usize>| {
            let continues = leaf.start > 0 && hash(leaf.start) == hash(leaf.start - 1);
            hash(leaf.start) | u32::from(continues)
        };
        let numbered = |first: usize, hashes: Vec<u32>| -> Vec<(u32, LogicalBlock)> {
            let numbers = (first as u32..).map(LogicalBlock);
            hashes.into_iter().zip(numbers).collect()
        };
        let mut below = numbered(first, self.leaves.iter().map(leaf_hash).collect());
        let mut written = Vec::new();
        for count in nodes.iter().rev() {
            first -= count;
            let parts: Vec<&[(u32, LogicalBlock)]> = below.chunks(limit).collect();
            let hashes = parts.iter().map(|part| part[0].0).collect();
            for part in parts.iter().rev() {
                let mut block = vec![0; self.block_bytes];
                init_node(&mut block, part[0].1, self.has_csum);
                self.list(&mut block, DxKind::Node, &part[1..])?;
                written.push(block);
            }
            below = numbered(first, hashes);
        }
        let mut root = vec![0; self.block_bytes];
        init_root(&mut root, &self.dots, hasher.version(), levels);
        init_entries(&mut root, DxKind::Root, below[0].1, self.has_csum);
        self.list(&mut root, DxKind::Root, &below[1..])?;
        blocks.push(root);
        blocks.extend(written.into_iter().rev());
        Ok(())
    }

    /// Adds entries behind the first one of an index block.
    fn list(&self, block: &mut [u8], kind: DxKind, entries: &[(u32, LogicalBlock)]) -> Result<()> {
        let mut node = DxNodeMut::parse(block, kind, self.has_csum)?;
        for (index, (hash, child)) in entries.iter().enumerate() {
            node.insert_after(index, *hash, *child)?;
        }
        Ok(())
    }
}

/// Fills blocks of `room` bytes with entries in order, the first one behind `taken` bytes; at least one block.
fn leaves(entries: &[(NameHash, NewEntry<'_>)], taken: usize, room: usize) -> Vec<Range<usize>> {
    let (mut leaves, mut from, mut bytes) = (Vec::new(), 0, taken);
    for (at, (_, entry)) in entries.iter().enumerate() {
        let own = entry_bytes(entry.name.len());
        if bytes + own > room {
            leaves.push(from..at);
            (from, bytes) = (at, 0);
        }
        bytes += own;
    }
    leaves.push(from..entries.len());
    leaves
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dir_hash::HashVersion;
    use crate::dirent;
    use crate::htree::{DxNode, RootInfo};
    use crate::types::InodeNumber;

    fn names(count: usize) -> Vec<Vec<u8>> {
        (0..count).map(|number| format!("a name with the number {number}").into_bytes()).collect()
    }

    /// Walks down to the leaf that must have a name.
    fn leaf_of(blocks: &[Vec<u8>], levels: u8, hash: u32) -> usize {
        let mut at = 0;
        for level in 0..=levels {
            let kind = if level == 0 { DxKind::Root } else { DxKind::Node };
            let node = DxNode::parse(&blocks[at], kind, true).expect("a node");
            at = node.child(node.search(hash)).expect("a child").0 as usize;
        }
        at
    }

    #[test]
    fn every_name_is_in_the_leaf_that_its_hash_leads_to() {
        let hasher = DirHasher::new(HashVersion::HalfMd4, [1, 2, 3, 4]);
        let dots = Dots { own: InodeNumber(12), parent: InodeNumber(2), file_type: 2 };
        for (count, levels) in [(0, None), (20, None), (60, Some(0)), (4000, Some(1)), (400_000, Some(2))] {
            let names = names(count);
            let entry = |name| NewEntry { inode: InodeNumber(15), name, file_type: 1 };
            let entries: Vec<_> = names.iter().map(|name| entry(name.as_slice())).collect();
            let packed =
                PackedDirectory::plan(dots, entries, Some(hasher), (1024, true), true).expect("a directory");
            assert_eq!(packed.levels(), levels, "{count} names");
            let blocks = packed.write().expect("blocks");
            assert_eq!(blocks.len(), packed.block_count());
            let usable = usable_bytes(1024, true);
            if let Some(levels) = levels {
                let info = RootInfo::parse(&blocks[0], true).expect("a root");
                assert_eq!(info.indirect_levels, levels);
            }
            for name in &names {
                let hash = hasher.hash(name).hash;
                let leaf = levels.map_or(0, |levels| leaf_of(&blocks, levels, hash));
                let has = |leaf: usize| dirent::find(&blocks[leaf], usable, name).expect("a leaf").is_some();
                // Names of one hash may go on in the next leaf.
                let goes_on = |leaf: usize| {
                    let first = dirent::entry_at(&blocks[leaf], usable, 0).expect("a name");
                    hasher.hash(first.name).hash == hash
                };
                let is_found = has(leaf) || goes_on(leaf + 1) && has(leaf + 1);
                assert!(is_found, "{count} names: {}", String::from_utf8_lossy(name));
            }
        }
        let many = names(400_000);
        let entry = |name| NewEntry { inode: InodeNumber(15), name, file_type: 1 };
        let entries = many.iter().map(|name| entry(name.as_slice())).collect();
        assert!(PackedDirectory::plan(dots, entries, Some(hasher), (1024, true), false).is_none());
    }
}
