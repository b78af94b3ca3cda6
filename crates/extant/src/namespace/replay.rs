//! Replaying fast commits: what their records say becomes one update.
//!
//! A record says how something shall be, not what was done to it, so that applying it again changes nothing. The last record of an inode
//! counts, and the names change in the order of the records. Blocks move between files only by the difference of all their maps before and
//! after: a block that two files had in turn is neither freed nor allocated.
//!
//! Everything is planned, and the blocks that the files shall have are taken from the allocator, before the update begins: what the
//! records say of damaged or unsupported structures is refused before that. From then on an error stops all writing, with nothing on the disk.
//!
//! Leaves out: which records count (crate `journal`).
//!
//! Locks: none of inodes are taken, for at mounting no other thread knows them.
//!
//! Source: `ext4_fc_replay` and the functions it calls (`fs/ext4/fast_commit.c`). Tests: `../tests/fast_commit`.

mod extents;
mod plan;

use extant_alloc::{ClusterRun, InodeKind, MayUse, Purpose, Request, Reservation};
use extant_journal::recovery::FastCommitRecord;
use extant_ondisk::extent::{MAX_LEN, MAX_UNWRITTEN_LEN};
use extant_ondisk::fast_commit::Dentry;
use extant_ondisk::{Cluster, Extent, FileType, FsBlock, InodeNumber, LogicalBlock, RawInode, Run};
use extant_rt::Arc;

use self::extents::difference;
use self::plan::{Plan, PlannedInode, PlannedName, damaged};
use crate::directory::Insertion;
use crate::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::incore::inode_cache::InodeRef;
use crate::mapping::{MapKind, Mapping};
use crate::metadata::update::{Credits, InodeDirty, MetadataUpdate};
use crate::namespace::Namespace;

impl Namespace {
    /// Applies the records of fast commits in one update. The caller commits it, and nothing else before.
    ///
    /// # Errors
    /// `Corrupt` for what the records cannot mean; `Unsupported` for what is not replayed; `NoSpace`; `Io`. Nothing is written then.
    pub(crate) fn replay_fast_commits(&self, records: &[FastCommitRecord]) -> Result<()> {
        let plan = Plan::new(self, records)?;
        let journal = self.writable()?;
        // Held until the end: a block that is not marked by then goes back to the allocator with the volume.
        let _claims = self.claim(&plan.allocated)?;
        // One credit is for the superblock.
        let credits = journal.max_credits().saturating_sub(1);
        let need = Credits { credits, blocks: plan.metadata_blocks(), may_use: MayUse::Reserved };
        let mut update = self.begin(need)?;
        let applied = update.apply(self, &plan).and_then(|()| match update.is_overdrawn() {
            true => Err(Error::Unsupported(
                "fast commits that do not fit a transaction; a mount by Linux replays them",
            )),
            false => Ok(()),
        });
        match applied {
            Ok(()) => {
                update.finish();
                Ok(())
            }
            Err(error) => {
                // The disk is as it was, so there is no error to note on it.
                journal.abort(extant_journal::Error::ShutDown);
                Err(error)
            }
        }
    }

    /// Takes these very clusters from the allocator.
    fn claim(&self, runs: &[ClusterRun]) -> Result<Reservation<'_>> {
        let clusters = runs.iter().map(|run| u64::from(run.len)).sum();
        let mut reservation = self.allocator.reserve(clusters, MayUse::Reserved)?;
        for run in runs {
            let (mut start, mut left) = (run.start, run.len);
            while left > 0 {
                let one = ClusterRun { start, len: 1 };
                if !self.allocator.is_free(one)? {
                    return Err(damaged("a fast commit maps a block that is in use"));
                }
                let request = Request { goal: start, len: left, least: 1, ahead: 0, purpose: Purpose::Data };
                let taken = self.allocator.allocate(&mut reservation, &request)?;
                if taken.start != start || taken.len == 0 {
                    self.allocator.free_unmarked(taken);
                    return Err(damaged("a fast commit maps a block that is in use"));
                }
                left -= taken.len.min(left);
                start = Cluster(start.0 + u64::from(taken.len));
            }
        }
        Ok(reservation)
    }

    /// An inode in use, whether it has a name or not.
    fn replayed_inode(&self, number: InodeNumber) -> Result<Option<InodeRef>> {
        if self.special_inodes.contains(number) || !self.allocator.is_inode_allocated(number)? {
            return Ok(None);
        }
        match self.inode_if(number, |raw| raw.mode() != 0) {
            Ok(inode) => Ok(Some(inode)),
            Err(Error::Stale) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl MetadataUpdate<'_> {
    fn apply(&mut self, names: &Namespace, plan: &Plan<'_>) -> Result<()> {
        // Durable even if nothing else changes: the fast commits are not to be replayed again.
        self.modify_superblock(|_| ());
        for (number, planned) in &plan.inodes {
            self.put_inode(names, *number, planned, plan)?;
        }
        for (number, planned) in plan.inodes.iter().filter(|(_, planned)| !planned.is_new) {
            for extent in difference(&planned.old, &planned.extents.to_vec()) {
                let inode = names.inode_if(*number, |_| true)?;
                self.unmap(names, &inode, extent)?;
            }
        }
        plan.allocated.iter().try_for_each(|run| self.mark_used(*run))?;
        for (number, planned) in &plan.inodes {
            let old = if planned.is_new { Vec::new() } else { planned.old.clone() };
            for extent in difference(&planned.extents.to_vec(), &old) {
                let inode = names.inode_if(*number, |_| true)?;
                self.map_extent(names, &inode, extent)?;
            }
        }
        plan.freed.iter().try_for_each(|run| self.free(*run))?;
        plan.names.iter().try_for_each(|name| self.put_name(names, name))?;
        for number in plan.touched() {
            if let Some(inode) = names.replayed_inode(number)? {
                match inode.raw().links_count() {
                    0 => self.add_orphan(&inode),
                    _ if inode.is_orphan() => self.remove_linked_orphan(&inode),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Gives an inode the fields of its last record.
    fn put_inode(
        &mut self,
        names: &Namespace,
        number: InodeNumber,
        planned: &PlannedInode<'_>,
        plan: &Plan<'_>,
    ) -> Result<()> {
        let Some(fields) = planned.fields else { return Ok(()) };
        if !planned.is_new {
            let inode = names.inode_if(number, |_| true)?;
            let replaced = self.modify_inode(&inode, InodeDirty::Mapping, |raw| {
                *raw = planned.with_fields(raw, fields, names)?;
                Ok(raw.size())
            });
            return replaced.map(|size| self.note_size(size));
        }
        if planned.before.is_some() {
            self.delete_replaced(names, number, planned)?;
        }
        let empty = RawInode::new(names.features.inode_size, names.features.extra_isize);
        let raw = planned.with_fields(&empty.map_err(|e| damaged_inode(number, e))?, fields, names)?;
        let is_directory = raw.file_type() == FileType::Directory;
        let kind = if is_directory { InodeKind::Directory } else { InodeKind::Other };
        self.allocate_inode_at(number, kind)?;
        self.note_size(raw.size());
        let home = names.inode_table_location(number)?;
        let inode = names.inodes.replace(Inode::new(number, home, raw));
        self.add_inode(&inode);
        if is_directory {
            self.make_first_block(names, &inode, plan.parent_of(number))?;
        }
        Ok(())
    }

    /// Deletes the inode whose number a new one has. Its blocks are freed with those of all files.
    fn delete_replaced(
        &mut self,
        names: &Namespace,
        number: InodeNumber,
        planned: &PlannedInode<'_>,
    ) -> Result<()> {
        let Some(inode) = names.replayed_inode(number)? else {
            return Err(damaged("a fast commit makes an inode that is in use"));
        };
        for extent in &planned.old {
            self.unmap(names, &inode, *extent)?;
        }
        self.modify_inode(&inode, InodeDirty::Mapping, |raw| raw.set_links_count(0));
        self.free_node(names, &inode)
    }

    /// Takes an extent out of the map of a file.
    fn unmap(&mut self, names: &Namespace, inode: &Arc<Inode>, extent: Extent) -> Result<()> {
        let (from, mut end) = (u64::from(extent.logical.0), extent.end());
        while end > from {
            let Some(removal) = names.extent_removal(inode, from, end, u32::MAX)? else { break };
            end = removal.end;
            self.unmap_only(inode, removal)?;
        }
        Ok(())
    }

    /// Maps a hole of a file to blocks that are marked.
    fn map_extent(&mut self, names: &Namespace, inode: &Arc<Inode>, extent: Extent) -> Result<()> {
        if names.map_kind(&inode.raw()) != MapKind::Extents {
            return Err(Error::Unsupported("fast commits of a file without extents"));
        }
        let len_max = u32::from(if extent.unwritten { MAX_UNWRITTEN_LEN } else { MAX_LEN });
        let (mut logical, mut start, mut left) = (extent.logical, extent.start, u32::from(extent.len));
        while left > 0 {
            let raw = inode.raw();
            let Mapping::Hole { len } = names.map(inode, &raw, logical, left.min(len_max))? else {
                return Err(damaged("a fast commit maps blocks twice"));
            };
            let hole = names.hole(inode, &raw, logical)?;
            if names.place_in_cluster(inode, &raw, logical)?.is_some_and(|place| place != start) {
                return Err(damaged("a fast commit maps a cluster of a file to two"));
            }
            drop(raw);
            let (from, end) = (u64::from(logical.0), u64::from(logical.0) + u64::from(len));
            let part = Extent { logical, len: len as u16, start, ..extent };
            let more = names.clusters_of_only(inode, from..end, vec![part])?;
            let change = self.map_marked(inode, hole, logical, Run { start, len }, extent.unwritten)?;
            self.change_content(inode, change.with_clusters(more.count()), |_| ())?;
            (logical, start, left) =
                (LogicalBlock(logical.0 + len), FsBlock(start.0 + u64::from(len)), left - len);
        }
        Ok(())
    }

    /// Makes a name be there, or not.
    fn put_name(&mut self, names: &Namespace, planned: &PlannedName<'_>) -> Result<()> {
        let Dentry { parent, inode: number, name } = planned.dentry;
        let dir = names.replayed_inode(parent)?.filter(|dir| dir.is_directory());
        let (Some(dir), Some(child)) = (dir, names.replayed_inode(number)?) else { return Ok(()) };
        names.check_directory(&dir.raw())?;
        if dir.raw().has_inline_data() {
            return Err(Error::Unsupported("fast commits in a directory within its inode"));
        }
        let found = names.find_entry(&dir, name)?;
        let file_type = child.file_type();
        let is_directory = file_type == FileType::Directory;
        match (found, planned.is_there) {
            (Some(found), true) if found.inode != number => {
                self.replace_entry(&dir, &found, number, file_type)?;
                self.touch_directory(&dir);
            }
            (None, true) => {
                let insert = names.plan_insert(&dir, &dir.raw(), name)?;
                self.insert_entry(names, &dir, insert, Insertion { name, inode: number, file_type })?;
                if is_directory {
                    self.count_subdirectories(&dir, 1);
                }
            }
            (Some(found), false) if found.inode == number => {
                self.remove_entry(&dir, &found)?;
                if is_directory {
                    self.count_subdirectories(&dir, -1);
                }
            }
            _ => return Ok(()),
        }
        if planned.counts {
            self.modify_inode(&child, InodeDirty::Attributes, |raw| {
                let links = raw.links_count();
                raw.set_links_count(match (planned.is_there, is_directory) {
                    (true, false) => links.saturating_add(1),
                    (false, false) => links.saturating_sub(1),
                    (true, true) => links,
                    (false, true) => 0,
                });
            });
        }
        Ok(())
    }
}

fn damaged_inode(number: InodeNumber, error: extant_ondisk::Error) -> Error {
    crate::error::Location::of(extant_ondisk::Structure::Inode).inode(number).format(error)
}
