//! What the records of fast commits come to: how inodes, maps and names shall be.

use std::collections::{BTreeMap, BTreeSet};

use extant_alloc::ClusterRun;
use extant_journal::recovery::FastCommitRecord;
use extant_ondisk::extent::ROOT_CAPACITY;
use extant_ondisk::fast_commit::{Change, Dentry};
use extant_ondisk::{Extent, ExtentNode, FileType, Geometry, InodeFlags, InodeNumber, RawInode, Structure};

use super::extents::{Clusters, ExtentList};
use crate::error::{Error, Location, Result};
use crate::namespace::Namespace;

/// How everything shall be that the records name.
pub(super) struct Plan<'r> {
    pub(super) inodes: BTreeMap<InodeNumber, PlannedInode<'r>>,
    pub(super) names: Vec<PlannedName<'r>>,
    /// Clusters that files have afterwards and did not have before.
    pub(super) allocated: Vec<ClusterRun>,
    /// Clusters that files had before and do not have afterwards.
    pub(super) freed: Vec<ClusterRun>,
}

/// How an inode shall be.
pub(super) struct PlannedInode<'r> {
    /// The inode on the disk; `None` if its number is free there.
    pub(super) before: Option<RawInode>,
    /// The fields of its last record.
    pub(super) fields: Option<&'r [u8]>,
    /// The place of that among the records.
    place: usize,
    /// Its number was free, or another inode's.
    pub(super) is_new: bool,
    /// What the inode on the disk maps.
    pub(super) old: Vec<Extent>,
    pub(super) extents: ExtentList,
}

/// A name that shall be there, or not.
pub(super) struct PlannedName<'r> {
    pub(super) dentry: Dentry<'r>,
    pub(super) is_there: bool,
    /// The number of names that the inode has changes with it: no later record says it.
    pub(super) counts: bool,
}

/// The error of records that contradict the disk or each other.
pub(super) fn damaged(reason: &'static str) -> Error {
    Location::of(Structure::Journal).corrupt(reason)
}

impl<'r> Plan<'r> {
    pub(super) fn new(names: &Namespace, records: &'r [FastCommitRecord]) -> Result<Self> {
        let mut plan =
            Self { inodes: BTreeMap::new(), names: Vec::new(), allocated: Vec::new(), freed: Vec::new() };
        let mut placed = Vec::new();
        for (place, record) in records.iter().enumerate() {
            let change = Change::parse(record.tag, &record.value)
                .map_err(|e| Location::of(Structure::Journal).format(e))?;
            match change {
                Some(Change::Inode(number, fields)) => plan.inode(names, number)?.set(place, fields)?,
                Some(Change::AddRange(number, extent)) => {
                    if !names.geometry.is_valid_block_run(extent.start, u64::from(extent.len)) {
                        return Err(damaged("a fast commit maps blocks outside the disk"));
                    }
                    let inode = plan.inode(names, number)?;
                    if inode.maps_content() {
                        inode.extents.add(extent);
                    }
                }
                Some(Change::DelRange(number, logical, len)) => {
                    let from = u64::from(logical.0);
                    let inode = plan.inode(names, number)?;
                    if inode.maps_content() {
                        inode.extents.remove(from, from + u64::from(len));
                    }
                }
                Some(Change::Creat(dentry)) => placed.push((place, dentry, true, false)),
                Some(Change::Link(dentry)) => placed.push((place, dentry, true, true)),
                Some(Change::Unlink(dentry)) => placed.push((place, dentry, false, true)),
                None => {}
            }
        }
        for (place, dentry, is_there, changes_count) in placed {
            if dentry.name.contains(&0) || dentry.name.contains(&b'/') || matches!(dentry.name, b"." | b"..")
            {
                return Err(damaged("a fast commit has an impossible name"));
            }
            let recorded = plan.inodes.get(&dentry.inode).filter(|inode| inode.fields.is_some());
            let counts = changes_count && recorded.is_none_or(|inode| inode.place < place);
            plan.names.push(PlannedName { dentry, is_there, counts });
        }
        plan.balance(&names.geometry)?;
        Ok(plan)
    }

    fn inode(&mut self, names: &Namespace, number: InodeNumber) -> Result<&mut PlannedInode<'r>> {
        if names.special_inodes.contains(number) || names.geometry.inode_location(number).is_none() {
            return Err(damaged("a fast commit changes an inode that is no file"));
        }
        match self.inodes.entry(number) {
            std::collections::btree_map::Entry::Occupied(known) => Ok(known.into_mut()),
            std::collections::btree_map::Entry::Vacant(new) => {
                let before = match names.allocator.is_inode_allocated(number)? {
                    true => Some(names.read_inode(number)?).filter(|raw| raw.mode() != 0),
                    false => None,
                };
                let maps = |raw: &&RawInode| raw.file_type() != FileType::Directory;
                let old = match before.as_ref().filter(maps) {
                    Some(raw) => names.all_extents(number, raw)?,
                    None => Vec::new(),
                };
                let extents = ExtentList::new(&old);
                let is_new = before.is_none();
                Ok(new.insert(PlannedInode { before, fields: None, place: 0, is_new, old, extents }))
            }
        }
    }

    /// Works out which clusters change hands.
    fn balance(&mut self, geometry: &Geometry) -> Result<()> {
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for inode in self.inodes.values_mut() {
            if inode.fields.is_none() && inode.is_new {
                // Ranges of an inode that was deleted.
                inode.extents = ExtentList::default();
            }
            before.push(&inode.old[..]);
            after.push(inode.extents.to_vec());
        }
        let clusters = |files: &mut dyn Iterator<Item = &[Extent]>| Clusters::new(geometry, files);
        let before = clusters(&mut before.into_iter()).ok_or(damaged("two files share a block"))?;
        let after = clusters(&mut after.iter().map(Vec::as_slice))
            .ok_or(damaged("fast commits map a block twice"))?;
        self.allocated = after.without(&before);
        self.freed = before.without(&after);
        Ok(())
    }

    /// Blocks that the update may need for directories and for nodes of trees.
    pub(super) fn metadata_blocks(&self) -> u32 {
        let extents: usize = self.inodes.values().map(|inode| inode.extents.to_vec().len()).sum();
        // A node of the smallest block has 84 entries, and is half full after a split; a name may split a leaf and the nodes above it.
        let blocks = 8 + 6 * self.inodes.len() + extents / 40 + 4 * self.names.len();
        u32::try_from(blocks).unwrap_or(u32::MAX)
    }

    /// The inodes whose number of names may be another.
    pub(super) fn touched(&self) -> BTreeSet<InodeNumber> {
        self.inodes.keys().copied().chain(self.names.iter().map(|name| name.dentry.inode)).collect()
    }

    /// The directory that has the name of a new directory.
    pub(super) fn parent_of(&self, number: InodeNumber) -> InodeNumber {
        let named = self.names.iter().rfind(|name| name.is_there && name.dentry.inode == number);
        named.map_or(InodeNumber::ROOT, |name| name.dentry.parent)
    }
}

impl<'r> PlannedInode<'r> {
    fn set(&mut self, place: usize, fields: &'r [u8]) -> Result<()> {
        let raw = fields_of(fields)?;
        let is_another = |before: &RawInode| {
            before.generation() != raw.generation() || before.file_type() != raw.file_type()
        };
        let known = self.fields.map(fields_of).transpose()?;
        // The record before it may already be of another inode than that on the disk.
        if known.as_ref().or(self.before.as_ref()).is_none_or(is_another) {
            self.extents = ExtentList::default();
        }
        self.is_new = self.before.as_ref().is_none_or(is_another);
        (self.fields, self.place) = (Some(fields), place);
        Ok(())
    }

    fn file_type(&self) -> Option<FileType> {
        let recorded = self.fields.and_then(|fields| fields_of(fields).ok());
        recorded.as_ref().or(self.before.as_ref()).map(RawInode::file_type)
    }

    /// Whether ranges of it mean something.
    fn maps_content(&self) -> bool {
        matches!(self.file_type(), Some(FileType::Regular | FileType::Symlink))
    }

    /// An inode as its record says: with the map and the number of blocks that it has, and in the list of orphans as it is.
    pub(super) fn with_fields(&self, own: &RawInode, fields: &[u8], names: &Namespace) -> Result<RawInode> {
        let format = |e| Location::of(Structure::Inode).format(e);
        let mut raw = own.with_fields(fields).map_err(format)?;
        raw.set_dtime(own.dtime());
        let is_directory = raw.file_type() == FileType::Directory;
        if is_directory {
            // Its blocks are those that its names need.
            let own_flags = InodeFlags::EXTENTS | InodeFlags::INDEX | InodeFlags::INLINE_DATA;
            raw.set_size(own.size());
            raw.set_links_count(if self.is_new { 2 } else { own.links_count() });
            let kept = match self.is_new {
                true if names.features.has_extents => InodeFlags::EXTENTS,
                true => InodeFlags::empty(),
                false => own.flags() & own_flags,
            };
            raw.set_flags((raw.flags() - own_flags) | kept);
        }
        if !self.is_new && (raw.flags() ^ own.flags()).contains(InodeFlags::EXTENTS) {
            return Err(Error::Unsupported("fast commits that change how a file is mapped"));
        }
        if raw.flags().contains(InodeFlags::EXTENTS) {
            if self.is_new {
                ExtentNode::empty_leaf(ROOT_CAPACITY).write(raw.i_block_mut()).map_err(format)?;
            }
        } else if raw.has_inline_data() || !matches!(raw.file_type(), FileType::Regular | FileType::Directory)
        {
            // Content, a device, or the target of a short symbolic link.
            raw.i_block_mut().copy_from_slice(fields_of(fields)?.i_block());
        }
        let block_size = names.geometry.block_size;
        let sectors = own.blocks_512(block_size);
        raw.set_blocks_512(sectors, block_size, names.geometry.has_huge_file).map_err(format)?;
        Ok(raw)
    }
}

/// The inode of a record, in the smallest size that has its fields.
fn fields_of(fields: &[u8]) -> Result<RawInode> {
    let mut bytes = fields.to_vec();
    bytes.resize(fields.len().next_power_of_two(), 0);
    RawInode::parse(&bytes).map_err(|e| Location::of(Structure::Inode).format(e))
}
