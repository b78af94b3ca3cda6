//! Leaves of the index: dividing a full one, and making the first index of a linear directory.

use super::node::init_entries;
use super::{DxKind, LEVELS_OFFSET, ROOT_INFO_BYTES, ROOT_INFO_OFFSET, corrupt};
use crate::dir_hash::{DirHasher, HashVersion, NameHash};
use crate::dirent::{self, NewEntry, entry_bytes, init_empty, live_entries, put_entry, usable_bytes};
use crate::error::Result;
use crate::types::{InodeNumber, LogicalBlock};

/// How a full leaf and one new entry divide into two leaves (`do_split`, with the new entry counted in).
///
/// Planning changes nothing, so that the caller can see whether the parent takes [`LeafSplit::index_hash`]
/// before [`LeafSplit::write`].
#[derive(Debug)]
pub struct LeafSplit<'a> {
    /// All entries in order of hash.
    sorted: Vec<(NameHash, NewEntry<'a>)>,
    /// The name that there is no room for.
    new: &'a [u8],
    /// Entries that stay in the lower leaf.
    kept: usize,
    usable: usize,
}

impl<'a> LeafSplit<'a> {
    /// Plans the division of `leaf`, which has no room for `entry`: by half of the bytes, and never inside a run of
    /// equal hashes unless nothing else fits. Cost: a hash and a place in a sort per entry.
    ///
    /// # Errors
    /// `Corrupt` when an entry is broken, or the entries do not divide into two leaves.
    pub fn plan(leaf: &'a [u8], usable: usize, entry: NewEntry<'a>, hasher: &DirHasher) -> Result<Self> {
        let mut sorted = vec![(hasher.hash(entry.name), entry)];
        for old in live_entries(leaf, usable) {
            let old = old?;
            let entry = NewEntry { inode: old.inode, name: old.name, file_type: old.file_type };
            sorted.push((hasher.hash(old.name), entry));
        }
        sorted.sort_by_key(|(hash, _)| *hash);
        let kept = split_point(&sorted, usable).ok_or_else(|| corrupt("a leaf cannot be divided"))?;
        Ok(Self { sorted, new: entry.name, kept, usable })
    }

    /// The hash under which the parent is to list the upper leaf; bit 0 is set when the lower leaf ends with the
    /// same hash.
    #[must_use]
    pub fn index_hash(&self) -> u32 {
        let hash = |index: usize| self.sorted.get(index).map_or(0, |(hash, _)| hash.hash);
        hash(self.kept) | u32::from(hash(self.kept) == hash(self.kept.wrapping_sub(1)))
    }

    /// Whether the new entry belongs to the upper leaf.
    #[must_use]
    pub fn is_new_in_upper(&self) -> bool {
        self.sorted[self.kept..].iter().any(|(_, entry)| entry.name == self.new)
    }

    /// Fills two blocks, neither of them the leaf that was planned, with packed entries; a summed block's tail
    /// has no checksum yet.
    pub fn write(&self, lower: &mut [u8], upper: &mut [u8]) {
        let (low, high) = self.sorted.split_at(self.kept);
        pack(lower, self.usable, low.iter().map(|(_, e)| e));
        pack(upper, self.usable, high.iter().map(|(_, e)| e));
    }

    /// As [`LeafSplit::write`], with room in place of the new entry.
    pub fn write_with_room(&self, lower: &mut [u8], upper: &mut [u8]) {
        let (low, high) = self.sorted.split_at(self.kept);
        let old = |(_, entry): &&(NameHash, NewEntry<'a>)| entry.name != self.new;
        pack(lower, self.usable, low.iter().filter(old).map(|(_, e)| e));
        pack(upper, self.usable, high.iter().filter(old).map(|(_, e)| e));
    }
}

/// The number of entries to keep: both sides fit; no run of equal hashes is cut unless every fitting cut does; the
/// sides are as equal as that allows.
fn split_point(sorted: &[(NameHash, NewEntry<'_>)], usable: usize) -> Option<usize> {
    let size = |entry: &NewEntry<'_>| entry_bytes(entry.name.len());
    let total: usize = sorted.iter().map(|(_, e)| size(e)).sum();
    let mut low = 0;
    let mut best = None;
    for (index, pair) in sorted.windows(2).enumerate() {
        let [(before, entry), (after, _)] = pair else {
            continue;
        };
        low += size(entry);
        let high = total - low;
        if low <= usable && high <= usable {
            let cost = (before.hash == after.hash, low.abs_diff(high));
            best = best.filter(|(least, _)| *least <= cost).or(Some((cost, index + 1)));
        }
    }
    best.map(|(_, kept)| kept)
}

/// Makes the block these entries end to end, the last one taking the rest. The caller has seen that they fit.
pub(super) fn pack<'e>(block: &mut [u8], usable: usize, list: impl Iterator<Item = &'e NewEntry<'e>>) {
    init_empty(block, usable);
    let mut list = list.peekable();
    let mut offset = 0;
    while let Some(entry) = list.next() {
        let own = entry_bytes(entry.name.len());
        let rec_len = if list.peek().is_some() { own } else { usable.saturating_sub(offset) };
        put_entry(block, offset, rec_len, entry);
        offset += own;
    }
}

/// Turns a linear directory of one block into an indexed one (`make_indexed_dir`): the names move to `leaf`,
/// which is the directory's block `leaf_block`, and `root` becomes the index root with one entry. The inode's
/// index flag is the caller's to set; the leaf is then divided as any other.
///
/// # Errors
/// `Corrupt`, and no change, when `root` is no linear first block, or the blocks differ in size.
pub fn make_root_from_linear(
    root: &mut [u8],
    leaf: &mut [u8],
    leaf_block: LogicalBlock,
    version: HashVersion,
    has_csum: bool,
) -> Result<()> {
    if root.len() != leaf.len() || root.len() < 64 {
        return Err(corrupt("blocks of an index differ in size"));
    }
    let usable = usable_bytes(root.len(), has_csum);
    let names = live_entries(root, usable)
        .map(|e| e.map(|e| NewEntry { inode: e.inode, name: e.name, file_type: e.file_type }))
        .collect::<Result<Vec<_>>>()?;
    let [dot, dotdot, names @ ..] = names.as_slice() else {
        return Err(corrupt("directory without `.` and `..`"));
    };
    if dot.name != b"." || dotdot.name != b".." {
        return Err(corrupt("directory does not begin with `.` and `..`"));
    }
    let (own, parent, file_type) = (dot.inode, dotdot.inode, dotdot.file_type);
    pack(leaf, usable, names.iter());
    init_root(root, &Dots { own, parent, file_type }, version, 0);
    init_entries(root, DxKind::Root, leaf_block, has_csum);
    Ok(())
}

/// The first two entries of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dots {
    /// The directory: `.`.
    pub own: InodeNumber,
    /// The directory that it is in: `..`.
    pub parent: InodeNumber,
    /// The type byte of both.
    pub file_type: u8,
}

/// Makes the block the root of an index, whose entries are the caller's to write.
pub(super) fn init_root(root: &mut [u8], dots: &Dots, version: HashVersion, levels: u8) {
    // The index hides inside `..`, which covers the whole block: a root has no linear tail.
    let block_bytes = root.len();
    dirent::init_dot_dotdot(root, block_bytes, dots.own, dots.parent, dots.file_type);
    for (at, value) in [
        (ROOT_INFO_OFFSET + 4, version.to_disk()),
        (ROOT_INFO_OFFSET + 5, ROOT_INFO_BYTES as u8),
        (LEVELS_OFFSET, levels),
    ] {
        if let Some(byte) = root.get_mut(at) {
            *byte = value;
        }
    }
}
