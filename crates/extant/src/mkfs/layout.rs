//! The plan of a new file system: everything but its bytes.

use extant_ondisk::{
    FsBlock, Geometry, GroupDescriptor, GroupFlags, GroupNumber, InodeNumber, QuotaType, State, Superblock,
};

use crate::metadata::reserve::reserved_clusters_of;

use super::features::Features;
use super::files::{FileMap, Files, QuotaFile};
use super::identity::Identity;
use super::space::Space;
use super::{Mkfs, Result, sizes, tables};

/// lost+found: the first inode that is not reserved.
pub(super) const LOST_FOUND: InodeNumber = InodeNumber(11);
/// `s_jnl_backup_type`: `s_jnl_blocks` holds the journal inode's map.
const JOURNAL_BACKUP_BLOCKS: u8 = 1;

/// Where everything lies on a file system that was made or planned.
#[derive(Clone, Debug)]
pub struct Layout {
    pub(super) superblock: Superblock,
    pub(super) geometry: Geometry,
    pub(super) features: Features,
    pub(super) descriptors: Vec<GroupDescriptor>,
    pub(super) space: Space,
    pub(super) files: Files,
    pub(super) identity: Identity,
}

impl Layout {
    pub(super) fn new(options: &Mkfs, device_bytes: Option<u64>) -> Result<Self> {
        let identity = Identity::new(options);
        let (mut superblock, geometry) = sizes::superblock(options, device_bytes, &identity)?;
        let features = Features {
            compat: superblock.compat(),
            incompat: superblock.incompat(),
            ro_compat: superblock.ro_compat(),
        };
        let mut space = Space::new(&geometry);
        let groups = || (0..geometry.group_count).map(GroupNumber);
        for group in groups() {
            let len = u64::from(geometry.base_meta_blocks(group));
            space.mark(geometry.group_first_block(group).0, len)?;
        }
        let empty = GroupDescriptor::new(geometry.desc_size)?;
        let mut descriptors = vec![empty; geometry.group_count as usize];
        let mut touched =
            tables::place(&geometry, &mut descriptors, &mut space, options.extended.packed_meta_blocks)?;
        space.take_clusters(&geometry);
        let own = u64::from(geometry.first_data_block) + geometry.clusters_of(space.used_count());
        let files = Files::new(options, &features, &geometry, &mut space)?;
        touch(&geometry, &files, &mut touched);
        let overhead = own + geometry.clusters_of(files.journal.as_ref().map_or(0, FileMap::len));
        describe_files(&mut superblock, options, &files);
        superblock.set_s_overhead_clusters(u32::try_from(overhead).unwrap_or(0));
        superblock.set_free_blocks_count(space.free_count());
        superblock.set_state(State::VALID);
        let mut layout = Self { superblock, geometry, features, descriptors, space, files, identity };
        layout.count(&touched, options);
        Ok(layout)
    }

    /// Sets counts and flags of descriptors, and the superblock's count of inodes.
    fn count(&mut self, touched: &[bool], options: &Mkfs) {
        let inodes_per_group = self.geometry.inodes_per_group;
        let last = self.descriptors.len().saturating_sub(1);
        let zeroed = !self.is_lazy(options) || options.extended.assume_storage_prezeroed;
        for (index, descriptor) in self.descriptors.iter_mut().enumerate() {
            let group = GroupNumber(index as u32);
            descriptor.set_free_blocks_count(self.space.free_in_group(&self.geometry, group));
            let used = used_inodes(&self.geometry, &self.files, group);
            descriptor.set_free_inodes_count(inodes_per_group - used);
            let directories = [InodeNumber::ROOT, LOST_FOUND].into_iter();
            let here = directories
                .filter(|ino| self.geometry.inode_location(*ino).is_some_and(|(at, _)| at == group));
            descriptor.set_used_dirs_count(here.count() as u32);
            if self.features.has_group_checksums() {
                descriptor.set_itable_unused(inodes_per_group - used);
                let mut flags = GroupFlags::empty();
                flags.set(GroupFlags::INODE_UNINIT, used == 0);
                // The last group's bitmap has bits past the end of the disk.
                flags.set(GroupFlags::BLOCK_UNINIT, index != last && !touched.get(index).is_some_and(|t| *t));
                flags.set(GroupFlags::INODE_ZEROED, zeroed);
                descriptor.set_flags(flags);
            }
        }
        let used = last_inode(&self.files).0;
        self.superblock.set_s_free_inodes_count(self.geometry.inodes_count - used);
    }

    /// Whether inode tables are left as they are.
    pub(super) fn is_lazy(&self, options: &Mkfs) -> bool {
        self.features.has_group_checksums() && options.extended.lazy_itable_init.unwrap_or(true)
    }

    /// The layout's numbers.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The superblock, its checksum stale.
    #[must_use]
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The descriptors of all groups; after a plan their checksums are not set.
    #[must_use]
    pub fn descriptors(&self) -> &[GroupDescriptor] {
        &self.descriptors
    }

    /// Free blocks, those reserved for privileged users included.
    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        self.space.free_count()
    }

    /// The free blocks that a mount keeps for tree blocks.
    #[must_use]
    pub fn reserved_pool(&self) -> u64 {
        self.geometry.blocks_of_clusters(reserved_clusters_of(&self.superblock))
    }

    /// Free inodes.
    #[must_use]
    pub fn free_inodes(&self) -> u32 {
        self.superblock.s_free_inodes_count()
    }

    /// Blocks of the journal; 0 without one.
    #[must_use]
    pub fn journal_blocks(&self) -> u64 {
        self.files.journal.as_ref().map_or(0, FileMap::len)
    }
}

/// The last inode in use; all before it are in use or reserved.
pub(super) fn last_inode(files: &Files) -> InodeNumber {
    let before = files.quotas.iter().map(|file| file.inode).max().unwrap_or(LOST_FOUND).max(LOST_FOUND);
    InodeNumber(before.0 + u32::from(files.orphans.is_some()))
}

/// The orphan file, if there is one.
pub(super) fn orphan_inode(files: &Files) -> Option<InodeNumber> {
    files.orphans.is_some().then(|| last_inode(files))
}

/// Inodes of a group that are in use or reserved.
pub(super) fn used_inodes(geometry: &Geometry, files: &Files, group: GroupNumber) -> u32 {
    let before = u64::from(group.0) * u64::from(geometry.inodes_per_group);
    u64::from(last_inode(files).0).saturating_sub(before).min(u64::from(geometry.inodes_per_group)) as u32
}

/// Notes the groups in which files have blocks.
fn touch(geometry: &Geometry, files: &Files, touched: &mut [bool]) {
    let mut note = |start: u64, len: u64| {
        let place = |block| geometry.group_of(FsBlock(block)).map_or(0, |(group, _)| group.0 as usize);
        let (from, to) = (place(start), place(start + len.saturating_sub(1)));
        touched.iter_mut().take(to + 1).skip(from).for_each(|touched| *touched = true);
    };
    let maps = [Some(&files.root), Some(&files.lost_found), files.journal.as_ref(), files.orphans.as_ref()];
    for map in maps.into_iter().flatten().chain(files.quotas.iter().map(|file| &file.map)) {
        map.runs.iter().for_each(|(start, len)| note(*start, *len));
        map.tree.iter().for_each(|(block, _)| note(block.0, 1));
    }
    files.resize.into_iter().chain(files.mmp).for_each(|block| note(block.0, 1));
}

fn describe_files(superblock: &mut Superblock, options: &Mkfs, files: &Files) {
    if let Some(journal) = &files.journal {
        superblock.set_s_journal_inum(InodeNumber::JOURNAL.0);
        superblock.set_s_jnl_backup_type(JOURNAL_BACKUP_BLOCKS);
        let bytes = journal.len() * u64::from(superblock.block_size());
        let mut backup = [0; 17];
        for (word, bytes) in backup.iter_mut().zip(journal.i_block.chunks_exact(4)) {
            *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
        }
        backup[15] = (bytes >> 32) as u32;
        backup[16] = bytes as u32;
        superblock.set_s_jnl_blocks(backup);
    }
    if let Some(block) = files.mmp {
        let default = extant_ondisk::mmp::DEFAULT_UPDATE_INTERVAL_S;
        superblock.set_s_mmp_block(block.0);
        superblock.set_s_mmp_update_interval(options.extended.mmp_update_interval_s.unwrap_or(default));
    }
    for QuotaFile { quota_type, inode, .. } in &files.quotas {
        match quota_type {
            QuotaType::User => superblock.set_s_usr_quota_inum(inode.0),
            QuotaType::Group => superblock.set_s_grp_quota_inum(inode.0),
            QuotaType::Project => superblock.set_s_prj_quota_inum(inode.0),
        }
    }
    if let Some(inode) = orphan_inode(files) {
        superblock.set_s_orphan_file_inum(inode.0);
    }
}
