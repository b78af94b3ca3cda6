//! A whole indexed directory in memory, grown by the crate's own pieces as the kernel grows one.

use extant_ondisk::dir_hash::DirHasher;
use extant_ondisk::dirent::{self, NewEntry, usable_bytes};
use extant_ondisk::htree::{DxKind, DxNode, DxNodeMut, LeafSplit, RootInfo, make_root_from_linear};
use extant_ondisk::{Checksums, FileType, InodeNumber, LogicalBlock};

use crate::rng::Rng;

pub struct IndexedDir {
    pub blocks: Vec<Vec<u8>>,
    pub hasher: DirHasher,
    pub has_csum: bool,
    pub large_dir: bool,
}

/// The way from the root to a leaf: block and index in it, at each level.
type Path = Vec<(usize, usize)>;

fn kind(block: usize) -> DxKind {
    if block == 0 { DxKind::Root } else { DxKind::Node }
}

impl IndexedDir {
    /// A directory of one linear block, turned into root and leaf at once.
    pub fn new(
        block_bytes: usize,
        has_csum: bool,
        hasher: DirHasher,
        own: InodeNumber,
        parent: InodeNumber,
    ) -> Self {
        let usable = usable_bytes(block_bytes, has_csum);
        let (mut root, mut leaf) = (vec![0; block_bytes], vec![0; block_bytes]);
        dirent::init_dot_dotdot(&mut root, usable, own, parent, FileType::Directory.dirent_byte());
        make_root_from_linear(&mut root, &mut leaf, LogicalBlock(1), hasher.version(), has_csum).unwrap();
        Self { blocks: vec![root, leaf], hasher, has_csum, large_dir: false }
    }

    pub fn usable(&self) -> usize {
        usable_bytes(self.blocks[0].len(), self.has_csum)
    }

    pub fn node(&self, block: usize) -> DxNode<'_> {
        DxNode::parse(&self.blocks[block], kind(block), self.has_csum).unwrap()
    }

    fn node_mut(&mut self, block: usize) -> DxNodeMut<'_> {
        DxNodeMut::parse(&mut self.blocks[block], kind(block), self.has_csum).unwrap()
    }

    pub fn levels(&self) -> u8 {
        RootInfo::parse(&self.blocks[0], self.large_dir).unwrap().indirect_levels
    }

    fn child(&self, (block, index): (usize, usize)) -> usize {
        self.node(block).child(index).unwrap().0 as usize
    }

    fn path(&self, hash: u32) -> Path {
        let mut path: Path = vec![];
        let mut block = 0;
        for _ in 0..=self.levels() {
            let at = (block, self.node(block).search(hash));
            path.push(at);
            block = self.child(at);
        }
        path
    }

    /// Moves to the next leaf if it may hold more names of `hash`.
    fn advance(&self, path: &mut Path, hash: u32) -> bool {
        let depth = path.len();
        while let Some((block, index)) = path.pop() {
            match self.node(block).continues(index, hash) {
                None => continue,
                Some(false) => return false,
                Some(true) => path.push((block, index + 1)),
            }
            while path.len() < depth {
                let block = self.child(*path.last().unwrap());
                path.push((block, 0));
            }
            return true;
        }
        false
    }

    /// The leaf and the offset of a name, and its inode.
    pub fn find(&self, name: &[u8]) -> Option<(usize, usize, InodeNumber)> {
        let hash = self.hasher.hash(name).hash;
        let mut path = self.path(hash);
        loop {
            let leaf = self.child(*path.last().unwrap());
            if let Some(entry) = dirent::find(&self.blocks[leaf], self.usable(), name).unwrap() {
                return Some((leaf, entry.offset, entry.inode));
            }
            if !self.advance(&mut path, hash) {
                return None;
            }
        }
    }

    pub fn remove(&mut self, name: &[u8]) -> bool {
        let Some((leaf, offset, _)) = self.find(name) else {
            return false;
        };
        let usable = self.usable();
        dirent::remove(&mut self.blocks[leaf], usable, offset, 0).unwrap();
        true
    }

    /// Adds a name; `false` when the index is full.
    pub fn insert(&mut self, inode: InodeNumber, name: &[u8], file_type: u8) -> bool {
        let usable = self.usable();
        loop {
            let path = self.path(self.hasher.hash(name).hash);
            let leaf = self.child(*path.last().unwrap());
            if dirent::insert(&mut self.blocks[leaf], usable, inode, name, file_type).unwrap() {
                return true;
            }
            if !self.node(path.last().unwrap().0).is_full() {
                self.split_leaf(&path, NewEntry { inode, name, file_type });
                return true;
            }
            if !self.split_index(&path) {
                return false;
            }
        }
    }

    /// Divides leaves that need it not, until there are so many blocks.
    pub fn grow_to(&mut self, blocks: usize, rng: &mut Rng) {
        let usable = self.usable();
        assert!(self.blocks.len() <= blocks, "{} blocks are more than {blocks}", self.blocks.len());
        while self.blocks.len() < blocks {
            let (_, leaves) = self.walk();
            let leaf = leaves[rng.below(leaves.len())].0;
            let live: Vec<_> = dirent::live_entries(&self.blocks[leaf], usable).map(Result::unwrap).collect();
            // A run of one hash may reach into this leaf from another: only what a search leads to is taken.
            let Some(entry) = live.first().filter(|_| live.len() > 1) else {
                continue;
            };
            let (name, inode, file_type, offset) =
                (entry.name.to_vec(), entry.inode, entry.file_type, entry.offset);
            let path = self.path(self.hasher.hash(&name).hash);
            if self.child(*path.last().unwrap()) != leaf {
                continue;
            }
            if self.node(path.last().unwrap().0).is_full() {
                assert!(self.split_index(&path));
                continue;
            }
            dirent::remove(&mut self.blocks[leaf], usable, offset, 0).unwrap();
            self.split_leaf(&path, NewEntry { inode, name: &name, file_type });
        }
    }

    /// Divides the leaf at the end of the path, whose node has room, between its entries and a new one.
    fn split_leaf(&mut self, path: &Path, entry: NewEntry<'_>) {
        let usable = self.usable();
        let (parent, index) = *path.last().unwrap();
        let leaf = self.child((parent, index));
        let new = LogicalBlock(self.blocks.len() as u32);
        let split = LeafSplit::plan(&self.blocks[leaf], usable, entry, &self.hasher).unwrap();
        let at = split.index_hash();
        let (mut lower, mut upper) = (vec![0; self.blocks[0].len()], vec![0; self.blocks[0].len()]);
        split.write(&mut lower, &mut upper);
        assert!(self.node_mut(parent).insert_after(index, at, new).unwrap());
        self.blocks[leaf] = lower;
        self.blocks.push(upper);
    }

    /// Makes room in the lowest node of the path or above it.
    fn split_index(&mut self, path: &Path) -> bool {
        let new = LogicalBlock(self.blocks.len() as u32);
        let mut fresh = vec![0; self.blocks[0].len()];
        let roomy = path.iter().rposition(|(block, _)| !self.node(*block).is_full());
        match roomy {
            Some(level) => {
                let ((parent, index), (full, _)) = (path[level], path[level + 1]);
                let hash = self.node_mut(full).split_upper(&mut fresh).unwrap();
                assert!(self.node_mut(parent).insert_after(index, hash, new).unwrap());
            }
            None if self.levels() >= extant_ondisk::htree::max_indirect_levels(self.large_dir) => {
                return false;
            }
            None => self.node_mut(0).push_down(&mut fresh, new).unwrap(),
        }
        self.blocks.push(fresh);
        true
    }

    /// The blocks of the index, root first, and the leaves in the order of the index with their hash ranges.
    pub fn walk(&self) -> (Vec<usize>, Vec<(usize, u32)>) {
        let (mut nodes, mut row) = (vec![0], vec![(0, 0)]);
        for _ in 0..=self.levels() {
            let mut below = vec![];
            for &(block, from) in &row {
                let node = self.node(block);
                for index in 0..node.count() {
                    let hash = if index == 0 { from } else { node.hash(index) };
                    below.push((node.child(index).unwrap().0 as usize, hash));
                }
            }
            nodes.extend(row.iter().map(|(block, _)| *block).filter(|b| *b != 0));
            row = below;
        }
        (nodes, row)
    }

    /// Writes the checksum of every block.
    pub fn sum(&mut self, checksums: &Checksums, ino: InodeNumber, generation: u32) {
        let (nodes, leaves) = self.walk();
        for node in nodes {
            checksums.update_htree_node(ino, generation, &mut self.blocks[node]);
        }
        for (leaf, _) in leaves {
            checksums.update_dir_block(ino, generation, &mut self.blocks[leaf]);
        }
    }

    /// Every leaf holds the hashes of its range alone; every block is reached once.
    pub fn check(&self) -> usize {
        let (nodes, leaves) = self.walk();
        let mut seen: Vec<usize> = nodes.into_iter().chain(leaves.iter().map(|(leaf, _)| *leaf)).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..self.blocks.len()).collect::<Vec<_>>());
        let mut names = 0;
        for (at, &(leaf, from)) in leaves.iter().enumerate() {
            let end = leaves.get(at + 1).map_or(u32::MAX, |next| next.1);
            for entry in dirent::live_entries(&self.blocks[leaf], self.usable()) {
                let hash = self.hasher.hash(entry.unwrap().name).hash;
                assert!(hash >= from & !1 && hash < end, "{hash:x} outside {from:x}..{end:x}");
                names += 1;
            }
        }
        names
    }
}
