//! The inodes of a disk that are not known to be as they were on the disk that it was copied from.
//!
//! Both inode tables are read in sequence and compared byte by byte: 100,000 inodes cost some 10 ms, where to look each up costs
//! a second. An inode holds the number of its changes, its times to the nanosecond and the root of its extents, so that one with the
//! same bytes has the same content, attributes and names, unless its clock stood still. Not so on a disk that crashed: `fdatasync` of
//! blocks that were written in place makes the content durable, not the inode.
//!
//! Test: `tests/layers` of `extant-archive`.

use std::collections::HashMap;

use extant_ondisk::{GroupNumber, InodeNumber, RawInode, Structure};
use extant_rt::is_interrupted;

use crate::error::{Error, Location, Result};
use crate::metadata::SbInfo;

/// Bytes of a table that are read at once.
const PIECE_BYTES: usize = 1 << 20;

/// The inodes that differ between a disk and its base, or may: see [`Filesystem::changed_inodes`](crate::Filesystem::changed_inodes).
#[derive(Clone, Debug)]
pub struct ChangedInodes {
    /// A bit for each inode of a group in which some may have changed.
    groups: HashMap<GroupNumber, Box<[u64]>>,
    inodes_per_group: u32,
    /// Inodes that both disks have.
    inodes_count: u32,
}

impl ChangedInodes {
    /// Whether the inode of that number may have changed.
    #[must_use]
    pub fn contains(&self, number: InodeNumber) -> bool {
        let Some(index) = number.0.checked_sub(1).filter(|index| *index < self.inodes_count) else {
            return true;
        };
        let (group, bit) = (GroupNumber(index / self.inodes_per_group), index % self.inodes_per_group);
        let word = self.groups.get(&group).and_then(|bits| bits.get(bit as usize / 64));
        word.is_some_and(|word| word & 1 << (bit % 64) != 0)
    }

    fn insert(&mut self, group: GroupNumber, index: u32) {
        let words = self.inodes_per_group.div_ceil(64) as usize;
        let bits = self.groups.entry(group).or_insert_with(|| vec![0; words].into_boxed_slice());
        if let Some(word) = bits.get_mut(index as usize / 64) {
            *word |= 1 << (index % 64);
        }
    }
}

impl SbInfo {
    /// As [`Filesystem::changed_inodes`](crate::Filesystem::changed_inodes).
    ///
    /// # Errors
    /// `Io`; `Corrupt` for a descriptor; `Interrupted`.
    pub(crate) fn changed_inodes(&self, base: &Self) -> Result<Option<ChangedInodes>> {
        let (mine, theirs) = (&self.geometry, &base.geometry);
        let uuids = [self, base].map(|volume| volume.superblock.lock().s_uuid());
        let has_one_base = uuids[0] == uuids[1]
            && (mine.block_size, mine.inode_size, mine.inodes_per_group)
                == (theirs.block_size, theirs.inode_size, theirs.inodes_per_group);
        if !has_one_base || [self, base].iter().any(|volume| volume.is_crashed || !volume.is_read_only()) {
            return Ok(None);
        }
        let mut changed = ChangedInodes {
            groups: HashMap::new(),
            inodes_per_group: mine.inodes_per_group,
            inodes_count: mine.inodes_count.min(theirs.inodes_count),
        };
        for group in (0..mine.group_count.min(theirs.group_count)).map(GroupNumber) {
            self.compare_tables(base, group, &mut changed)?;
        }
        Ok(Some(changed))
    }

    /// Compares the tables of one group, as far as one of them was ever used.
    fn compare_tables(&self, base: &Self, group: GroupNumber, changed: &mut ChangedInodes) -> Result<()> {
        let unused = self.allocator.itable_unused(group)?.min(base.allocator.itable_unused(group)?);
        let inode_size = usize::from(self.geometry.inode_size);
        let used = self.geometry.inodes_per_group.saturating_sub(unused);
        let per_piece = (PIECE_BYTES / inode_size) as u32;
        let (mut mine, mut theirs) = (Vec::new(), Vec::new());
        let mut first = 0;
        while first < used {
            if is_interrupted() {
                return Err(Error::Interrupted);
            }
            let count = per_piece.min(used - first);
            self.read_table(group, first, count, &mut mine)?;
            base.read_table(group, first, count, &mut theirs)?;
            for (index, (mine, theirs)) in
                (first..).zip(mine.chunks(inode_size).zip(theirs.chunks(inode_size)))
            {
                if mine != theirs || !has_exact_time(mine) {
                    changed.insert(group, index);
                }
            }
            first += count;
        }
        Ok(())
    }

    /// Reads inodes of a group's table as they are on the disk, with the journal replayed.
    fn read_table(&self, group: GroupNumber, first: u32, count: u32, bytes: &mut Vec<u8>) -> Result<()> {
        let location = Location::of(Structure::Inode).group(group);
        let inode_size = u64::from(self.geometry.inode_size);
        bytes.resize(count as usize * inode_size as usize, 0);
        let table = self.allocator.inode_table(group)?;
        self.read_data(table, u64::from(first) * inode_size, bytes, location)
    }
}

/// Whether the time of an inode's last change distinguishes it from other changes. A time in whole seconds is that of a fixed clock
/// (`SOURCE_DATE_EPOCH`), which gives every change the same one, or of an inode without room for more. A free inode has none.
fn has_exact_time(bytes: &[u8]) -> bool {
    RawInode::parse(bytes).is_ok_and(|raw| raw.links_count() == 0 || raw.ctime().nanoseconds != 0)
}
