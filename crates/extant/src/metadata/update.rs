//! An update: an open journal handle with the blocks it may use.
//!
//! Everything that changes metadata goes through here, so that a transaction's changes are known at its freeze, and an update's
//! credits before it begins.
//!
//! Invariants: an update cannot fail with `NoSpace`, for it holds its worst case from the beginning; each changed block is charged
//! once per transaction; an update that changed something ends by [`MetadataUpdate::finish`].
//!
//! A change cannot be undone, so an update that is dropped after its first change, by an error or a panic, aborts the journal: its
//! transaction is not committed, and the next mount recovers the state before it. An operation therefore makes all checks that can
//! refuse it before its first change. Damage that shows only between its changes ends all writing, as `ext4_handle_error` does
//! where there is a journal.
//!
//! Locks: an update has rank `HANDLE`; takes `INODE_STATE`, `GROUP`, `SUPERBLOCK`, `BUFFER` and `CACHE` briefly.

use extant_alloc::{ClusterRun, InodeKind, MayUse, NewInode, Parent, Purpose, Request, Reservation};
use extant_journal::Handle;
use extant_ondisk::inode::LARGE_FILE_BYTES;
use extant_ondisk::{
    FileType, FsBlock, InodeFlags, InodeNumber, RawInode, Structure, Superblock, Timestamp, TransactionId,
    xattr,
};
use extant_rt::{Arc, BiasedWriteGuard, Mutex, Ordering, yield_now};

use crate::error::{Location, Result};
use crate::incore::buffer::{Buffer, BufferKind, State};
use crate::incore::dirty_in::Before;
use crate::incore::inode::{Inode, InodeState, count_subdirectories};
use crate::metadata::SbInfo;
use crate::metadata::fast_commit::NameChange;
use crate::metadata::quota::Charge;
use crate::metadata::quota::reserve::QuotaReservation;
use crate::metadata::snapshots::{BufferSnapshot, InodeSnapshot};

/// Credits for the bitmap and the descriptor of a run within one group.
pub(crate) const RUN_CREDITS: u32 = 2;

/// The worst case of blocks that an update may change or allocate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credits {
    /// Distinct metadata blocks that it may change, without the superblock.
    pub(crate) credits: u32,
    /// Clusters that it may allocate: one for each block of metadata.
    pub(crate) blocks: u32,
    /// Which free blocks those may be.
    pub(crate) may_use: MayUse,
}

impl Credits {
    /// May allocate root's blocks.
    pub(crate) const fn new(credits: u32, blocks: u32) -> Self {
        Self { credits, blocks, may_use: MayUse::RootBlocks }
    }

    /// May allocate blocks of the reserved pool: for tree blocks of operations that must not fail with `NoSpace` (kernel
    /// `EXT4_GET_BLOCKS_METADATA_NOFAIL`).
    pub(crate) const fn nofail(credits: u32, blocks: u32) -> Self {
        Self { credits, blocks, may_use: MayUse::Reserved }
    }

    /// Whether `held` is enough for it.
    pub(crate) const fn are_within(self, held: Self) -> bool {
        self.credits <= held.credits && self.blocks <= held.blocks
    }

    /// The credits of two changes in one update; blocks of both are of the kind that `self` may use.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self {
            credits: self.credits + other.credits,
            blocks: self.blocks + other.blocks,
            may_use: self.may_use,
        }
    }
}

/// How far a change of an inode matters to `fdatasync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InodeDirty {
    /// Owner, mode, times, names: only `fsync` waits for it.
    Attributes,
    /// The time of the last access, likewise. Of a directory a crash may lose it.
    AccessTime,
    /// Size or block mapping: without it the data cannot be read back.
    Mapping,
}

/// An open handle and its reservation. [`MetadataUpdate::finish`] ends it; dropping it does so only before the first change, else
/// it aborts the journal. Blocks that were not used are given back.
#[must_use = "an update that changed something must be finished"]
pub(crate) struct MetadataUpdate<'v> {
    pub(crate) sbi: &'v SbInfo,
    handle: Handle<'v>,
    reservation: Reservation<'v>,
    quota: QuotaReservation<'v>,
    now: Timestamp,
    /// Records of a fast commit say what it changes.
    is_tracked: bool,
    /// Names that changed, less those that were tracked.
    untracked_names: i32,
    /// A directory changed in what no record says, unless it is because of a name.
    changes_directory: bool,
    has_tracked_name: bool,
}

/// The fields of a directory, to set its times; `None` if another thread has set the same.
fn state_to_touch(
    dir: &Inode,
    now: Timestamp,
    tid: TransactionId,
) -> Option<BiasedWriteGuard<'_, InodeState, Mutex<()>>> {
    if dir.leaf_map().is_none() {
        return Some(dir.state_mut());
    }
    // Of a shared one all threads come here at once in each tick: they wait for the first of them, and not for each other.
    while dir.needs_touch(now, tid) {
        if let Some(state) = dir.try_state_mut() {
            return dir.needs_touch(now, tid).then_some(state);
        }
        yield_now();
    }
    None
}

impl<'v> MetadataUpdate<'v> {
    pub(crate) fn new(sbi: &'v SbInfo, handle: Handle<'v>, reservation: Reservation<'v>) -> Self {
        // Credits that are not charged are returned.
        handle.charge(0);
        let now = sbi.now();
        let (is_tracked, untracked_names) = (false, 0);
        let (changes_directory, has_tracked_name) = (false, false);
        Self {
            sbi,
            handle,
            reservation,
            quota: QuotaReservation::default(),
            now,
            is_tracked,
            untracked_names,
            changes_directory,
            has_tracked_name,
        }
    }

    /// The update, of which records of a fast commit can say what it changes. Every other makes the next commit one of the transaction.
    pub(crate) fn tracked(self) -> Self {
        Self { is_tracked: self.sbi.fast_commits.is_on(), ..self }
    }

    /// Has what it charges be out of what was taken of limits. What it does not charge is given back at its end.
    pub(crate) fn hold_quota(&mut self, quota: QuotaReservation<'v>) {
        self.quota.merge(quota);
    }

    /// Moves the charge of an inode, if usage is counted.
    fn transfer(&mut self, before: Option<Charge>, after: Option<Charge>) {
        let Some(quotas) = &self.sbi.quotas else { return };
        let now = u64::try_from(self.now.seconds).unwrap_or(0);
        let blocks = quotas.transfer(before, after, self.quota.taken_mut(), now);
        self.handle.charge(blocks);
    }

    /// No record says what the update changes.
    pub(crate) fn mark_ineligible(&mut self) {
        self.is_tracked = false;
        self.sbi.fast_commits.mark_ineligible();
    }

    /// A name changed that is to be tracked.
    pub(crate) fn note_name_changed(&mut self) {
        self.untracked_names += 1;
    }

    /// Tracks a name that changed.
    pub(crate) fn track_name(&mut self, change: NameChange, dir: &Inode, inode: &Arc<Inode>, name: &[u8]) {
        if !self.is_tracked {
            return;
        }
        // Linux would encrypt or fold such a name again, and e2fsck leaves names of symbolic links out.
        let is_coded = dir.flags().intersects(InodeFlags::ENCRYPT | InodeFlags::CASEFOLD);
        if is_coded || inode.file_type() != FileType::Regular {
            return self.mark_ineligible();
        }
        self.untracked_names -= 1;
        self.has_tracked_name = true;
        self.sbi.fast_commits.track_name(change, dir.number, inode, name);
    }

    /// Tracks blocks of a file that have another mapping.
    pub(crate) fn track_range(&mut self, inode: &Arc<Inode>, range: std::ops::Range<u64>) {
        if self.is_tracked && !inode.is_directory() {
            self.sbi.fast_commits.track_range(inode, range);
        }
    }

    /// Ends an update whose changes are whole.
    pub(crate) fn finish(mut self) {
        let is_said = self.untracked_names == 0 && (self.has_tracked_name || !self.changes_directory);
        if self.is_tracked && !is_said {
            self.mark_ineligible();
        }
        self.handle.finish();
    }

    /// Says that a change begins, before what [`MetadataUpdate`] does not see changes in memory. A panic from here on aborts the
    /// journal.
    pub(crate) fn begin_change(&self) {
        if !self.is_tracked {
            self.sbi.fast_commits.mark_ineligible();
        }
        self.handle.begin_change();
    }

    /// One time for all that the update does.
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    pub(crate) fn tid(&self) -> TransactionId {
        self.handle.tid()
    }

    /// Asks for more credits without waiting; false means: close this update at a consistent point, begin another.
    pub(crate) fn extend(&mut self, credits: u32) -> bool {
        self.handle.extend(credits)
    }

    /// Whether it changed more blocks than it has credits for.
    pub(crate) fn is_overdrawn(&self) -> bool {
        self.handle.is_overdrawn()
    }

    /// Counts blocks that the transaction did not have to write before.
    pub(crate) fn charge(&self, blocks: u32) {
        self.handle.charge(blocks);
    }

    /// Brings a new inode into the table.
    pub(crate) fn add_inode(&mut self, inode: &Arc<Inode>) {
        self.begin_change();
        let charge = self.sbi.charge_of(inode.number, &inode.state().raw);
        self.transfer(None, charge);
        self.modify_inode(inode, InodeDirty::Mapping, |_| ());
    }

    /// Changes an inode's fields; counts its version up. The time of a write that it has not got comes first.
    pub(crate) fn modify_inode<R>(
        &mut self,
        inode: &Arc<Inode>,
        dirty: InodeDirty,
        modify: impl FnOnce(&mut RawInode) -> R,
    ) -> R {
        self.modify_state(inode, inode.state_mut(), dirty, modify)
    }

    /// [`MetadataUpdate::modify_inode`] if the inode's fields pass a `check`.
    ///
    /// # Errors
    /// The errors of `check`, and nothing was changed.
    pub(crate) fn modify_checked_inode<R>(
        &mut self,
        inode: &Arc<Inode>,
        dirty: InodeDirty,
        check: impl FnOnce(&RawInode) -> Result<()>,
        modify: impl FnOnce(&mut RawInode) -> R,
    ) -> Result<R> {
        let state = inode.state_mut();
        check(&state.raw)?;
        Ok(self.modify_state(inode, state, dirty, modify))
    }

    /// The last change of an inode: its number may belong to a new inode afterwards.
    pub(crate) fn delete_inode(&mut self, inode: &Arc<Inode>, modify: impl FnOnce(&mut RawInode)) {
        self.begin_change();
        let mut state = inode.state_mut();
        state.deleted = true;
        self.modify_state(inode, state, InodeDirty::Mapping, modify);
    }

    /// Puts the time of the last write into an inode, if it has not got it and is not deleted. Takes one credit.
    pub(crate) fn put_times(&mut self, inode: &Arc<Inode>) {
        let state = inode.state_mut();
        // Both are checked without releasing the lock in between: afterwards the number may belong to a new inode.
        if !state.deleted && state.delalloc.time.is_some() {
            self.modify_state(inode, state, InodeDirty::Attributes, |_| ());
        }
    }

    /// Sets the times of a directory whose names changed. Those of one that threads change at once are set once per tick and transaction, so
    /// that they write no common line.
    pub(crate) fn touch_directory(&mut self, dir: &Arc<Inode>) {
        let (now, tid, has_index) = (self.now, self.tid(), self.sbi.dir_format.has_index);
        let Some(state) = state_to_touch(dir, now, tid) else { return };
        self.modify_state(dir, state, InodeDirty::Attributes, |raw| {
            dir.note_touch(now, tid);
            raw.set_mtime(now);
            raw.set_ctime(now);
            if !has_index {
                raw.set_flags(raw.flags() - InodeFlags::INDEX);
            }
        });
    }

    /// Counts `added` subdirectories of a directory, or fewer; those of one whose names threads change at once so that they write no common
    /// line.
    pub(crate) fn count_subdirectories(&mut self, dir: &Arc<Inode>, added: i32) {
        let sbi = self.sbi;
        // Without the feature there may be no more than the fields count.
        let Some(map) = dir.leaf_map().filter(|_| sbi.features.has_dir_nlink) else {
            return self.modify_inode(dir, InodeDirty::Attributes, |raw| {
                count_subdirectories(raw, added, sbi.dir_format.is_indexed(raw));
            });
        };
        // With its times it is in the transaction, and the fields are locked to be changed before the next one adds any.
        self.touch_directory(dir);
        dir.count_beside_fields(map, added);
    }

    fn modify_state<R>(
        &mut self,
        inode: &Arc<Inode>,
        mut state: BiasedWriteGuard<'_, InodeState, Mutex<()>>,
        dirty: InodeDirty,
        modify: impl FnOnce(&mut RawInode) -> R,
    ) -> R {
        self.begin_change();
        let tid = self.tid();
        let before = state.dirty_in.enter(tid);
        if before == Before::Committing {
            self.sbi.dirty_metadata.add_early_inode(InodeSnapshot::new(inode, &state));
        }
        let first = before != Before::Listed;
        state.sync_tid = Some(tid);
        if dirty == InodeDirty::Mapping {
            state.datasync_tid = Some(tid);
        }
        // A directory that threads change at once gets a block without another time.
        if dirty != InodeDirty::Mapping || inode.leaf_map().is_none() {
            inode.forget_time_noted();
        }
        let written = state.delalloc.time.take();
        let raw = Arc::make_mut(&mut state.raw);
        let charged = self.sbi.charge_of(inode.number, raw);
        if first {
            grow_fields(raw, self.sbi.features.extra_isize);
        }
        if let Some(written) = written {
            raw.set_mtime(written);
            raw.set_ctime(written);
        }
        // Such an inode counts references there.
        if !raw.flags().contains(InodeFlags::EA_INODE) {
            raw.set_version(raw.version().wrapping_add(1));
        }
        let result = modify(raw);
        self.transfer(charged, self.sbi.charge_of(inode.number, raw));
        inode.publish(&state);
        if dirty == InodeDirty::Attributes
            && let Some(map) = inode.leaf_map()
        {
            map.attributes_version.fetch_add(1, Ordering::Release);
        }
        let is_directory = state.raw.file_type() == FileType::Directory;
        drop(state);
        if is_directory {
            self.changes_directory |= dirty != InodeDirty::AccessTime;
        } else if self.is_tracked {
            self.sbi.fast_commits.track_inode(inode);
        }
        if first && self.sbi.dirty_metadata.add_inode(self.sbi.group_of_inode(inode.number), inode.clone()) {
            self.handle.charge(1);
        }
        result
    }

    /// Changes a buffer's bytes. `modify` takes no lock.
    pub(crate) fn modify_buffer<R>(
        &mut self,
        buffer: &Arc<Buffer>,
        modify: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        self.modify_buffer_state(buffer, |state| {
            state.known_entry = None;
            modify(Arc::make_mut(&mut state.bytes))
        })
    }

    /// As [`MetadataUpdate::modify_buffer`], with what else is known of the bytes.
    pub(crate) fn modify_buffer_state<R>(
        &mut self,
        buffer: &Arc<Buffer>,
        modify: impl FnOnce(&mut State) -> R,
    ) -> R {
        self.begin_change();
        let mut state = buffer.lock();
        let is_named =
            matches!(state.kind, BufferKind::Extent(_) | BufferKind::Directory(_) | BufferKind::HtreeNode(_));
        let first = self.enter(buffer, &mut state) != Before::Listed;
        state.version = state.version.wrapping_add(1);
        let result = modify(&mut state);
        drop(state);
        if !is_named {
            // Attributes, targets of links, tables of block maps: no record says what is in them.
            self.mark_ineligible();
        }
        if first {
            self.sbi.dirty_metadata.add_buffer(buffer.clone());
            self.handle.charge(1);
        }
        result
    }

    /// The running transaction is about to change a buffer, which the commit of the one before may have to copy as it is: where it was listed.
    fn enter(&self, buffer: &Buffer, state: &mut State) -> Before {
        let before = state.dirty_in.enter(self.tid());
        if before == Before::Committing {
            self.sbi.dirty_metadata.add_early_buffer(BufferSnapshot::new(buffer, state));
        }
        before
    }

    /// Changes what a buffer is, such as a directory's first block that becomes the root of a hash tree.
    pub(crate) fn set_kind(&mut self, buffer: &Arc<Buffer>, kind: BufferKind) {
        self.modify_buffer(buffer, |_| ());
        buffer.lock().kind = kind;
    }

    /// Changes the superblock's fields other than the free counts, which the committer sets.
    pub(crate) fn modify_superblock<R>(&mut self, modify: impl FnOnce(&mut Superblock) -> R) -> R {
        self.begin_change();
        self.mark_ineligible();
        let result = modify(&mut self.sbi.superblock.lock());
        // Charged like any other block: a transaction that changes nothing else is not empty.
        if self.sbi.dirty_metadata.add_superblock() {
            self.handle.charge(1);
        }
        result
    }

    /// Allocates one block of metadata near `goal`, as a buffer of zeroes that is part of the transaction.
    ///
    /// # Errors
    /// `NoSpace` if the update did not reserve it or no block is free in fact; `Corrupt` bitmaps.
    pub(crate) fn allocate_metadata(&mut self, goal: FsBlock, kind: BufferKind) -> Result<Arc<Buffer>> {
        let taken = self.take_metadata(goal)?;
        self.mark_used(taken)?;
        Ok(self.new_buffer(self.sbi.geometry.first_block(taken.start), kind))
    }

    /// Takes the cluster of a block of metadata near `goal`, which changes nothing yet.
    ///
    /// # Errors
    /// `NoSpace` if the update did not reserve it or no block is free in fact.
    pub(crate) fn take_metadata(&mut self, goal: FsBlock) -> Result<ClusterRun> {
        let goal = self.sbi.geometry.cluster_of(goal);
        let request = Request { goal, len: 1, least: 1, ahead: 0, purpose: Purpose::Metadata };
        Ok(self.sbi.allocator.allocate(&mut self.reservation, &request)?)
    }

    /// A buffer of zeroes for a block that was just allocated.
    pub(crate) fn new_buffer(&mut self, block: FsBlock, kind: BufferKind) -> Arc<Buffer> {
        let buffer = Buffer::new(block, kind, self.sbi.zeroes());
        self.sbi.buffers.replace(buffer.clone());
        self.modify_buffer(&buffer, |_| ());
        buffer
    }

    /// Marks a run that was taken from the allocator as used on the disk.
    ///
    /// # Errors
    /// `Corrupt` if the disk says that it is used already.
    pub(crate) fn mark_used(&mut self, run: ClusterRun) -> Result<()> {
        self.begin_change();
        let changed = self.sbi.allocator.mark_used(self.tid(), run)?;
        self.handle.charge(changed);
        Ok(())
    }

    /// Frees clusters; they can be used again once the transaction is durable.
    ///
    /// # Errors
    /// `Corrupt` if they are free already or belong to the file system itself.
    pub(crate) fn free(&mut self, run: ClusterRun) -> Result<()> {
        self.begin_change();
        let changed = self.sbi.allocator.mark_free(self.tid(), run)?;
        self.handle.charge(changed);
        Ok(())
    }

    /// Frees a block of metadata that has a cluster of its own: revoked, forgotten, and free once the transaction is durable.
    ///
    /// # Errors
    /// As [`MetadataUpdate::free`].
    pub(crate) fn free_metadata(&mut self, block: FsBlock) -> Result<()> {
        let cluster = self.sbi.geometry.cluster_of(block);
        self.free(ClusterRun { start: cluster, len: 1 })?;
        self.revoke(block);
        Ok(())
    }

    /// Revokes and forgets a block of metadata that is no longer in use, whether its cluster is free or not. The update has changed
    /// what referred to it.
    pub(crate) fn revoke(&mut self, block: FsBlock) {
        self.handle.revoke(block);
        self.forget(block);
    }

    /// Has a block of metadata that is no longer in use not be written any more.
    pub(crate) fn forget(&mut self, block: FsBlock) {
        if let Some(buffer) = self.sbi.buffers.remove(block.0) {
            let mut state = buffer.lock();
            // The transaction before may still have it to write.
            self.enter(&buffer, &mut state);
            state.forgotten = true;
        }
    }

    /// Allocates an inode number.
    ///
    /// # Errors
    /// `NoInodes`, and nothing was changed.
    pub(crate) fn allocate_inode(&mut self, parent: Parent<'_>, kind: InodeKind) -> Result<NewInode> {
        let had_changed = self.handle.begin_change();
        if !self.is_tracked {
            self.sbi.fast_commits.mark_ineligible();
        }
        let made = self.sbi.allocator.allocate_inode(self.tid(), parent, kind).inspect_err(|_| {
            if !had_changed {
                self.handle.cancel_change();
            }
        })?;
        self.handle.charge(made.written);
        Ok(made)
    }

    /// Allocates this very inode number.
    ///
    /// # Errors
    /// `Corrupt` if it is in use or reserved.
    pub(crate) fn allocate_inode_at(&mut self, number: InodeNumber, kind: InodeKind) -> Result<()> {
        self.begin_change();
        let changed = self.sbi.allocator.allocate_inode_at(self.tid(), number, kind)?;
        self.handle.charge(changed);
        Ok(())
    }

    /// Takes an inode number back. The caller has changed the inode in this update already.
    ///
    /// # Errors
    /// `Corrupt` if it is free already.
    pub(crate) fn free_inode(&mut self, inode: &Arc<Inode>, kind: InodeKind) -> Result<()> {
        self.begin_change();
        let changed = self.sbi.allocator.free_inode(self.tid(), inode.number, kind)?;
        self.handle.charge(changed);
        Ok(())
    }

    /// Sets a flag of the superblock that says that a feature is in use, if it is not set.
    pub(crate) fn use_feature(&mut self, feature: Feature) {
        // Relaxed: a flag stays set, and a thread that sees this one is in the transaction that set it or in a later one.
        let (known, bit) = (&self.sbi.features_in_use, 1 << feature as u32);
        if known.load(Ordering::Relaxed) & bit != 0 {
            return;
        }
        let set = |sb: &mut Superblock| match feature {
            Feature::LargeFile => {
                sb.set_ro_compat(sb.ro_compat() | extant_ondisk::RoCompatFeatures::LARGE_FILE)
            }
            Feature::ExtAttr => sb.set_compat(sb.compat() | extant_ondisk::CompatFeatures::EXT_ATTR),
        };
        let missing = {
            let sb = self.sbi.superblock.lock();
            match feature {
                Feature::LargeFile => !sb.ro_compat().contains(extant_ondisk::RoCompatFeatures::LARGE_FILE),
                Feature::ExtAttr => !sb.compat().contains(extant_ondisk::CompatFeatures::EXT_ATTR),
            }
        };
        if missing {
            self.modify_superblock(set);
        }
        known.fetch_or(bit, Ordering::Relaxed);
    }

    /// Notes in the superblock that a file is as large as that.
    pub(crate) fn note_size(&mut self, size: u64) {
        if size >= LARGE_FILE_BYTES {
            self.use_feature(Feature::LargeFile);
        }
    }

    /// The error of metadata at `structure` that is not what it must be.
    pub(crate) fn corrupt(&self, structure: Structure, inode: &Inode, reason: &'static str) -> crate::Error {
        Location::of(structure).inode(inode.number).corrupt(reason)
    }
}

/// Makes room for the fields that new inodes have in one that was made without, as long as no attributes are in the
/// way (`ext4_expand_extra_isize`).
fn grow_fields(raw: &mut RawInode, wanted: u16) {
    let has = raw.extra_isize();
    if has >= wanted {
        return;
    }
    // An inode that never reserved room has no attributes inside either, whatever its bytes say.
    if has == 0 && raw.set_extra_isize(4).is_err() {
        return;
    }
    let Some(region) = raw.xattr_region_mut() else { return };
    if has > 0 && !xattr::parse_ibody(region).is_ok_and(|xattrs| xattrs.is_empty()) {
        return;
    }
    region.fill(0);
    // The size was checked at mounting; if it does not fit after all, the inode keeps what it has.
    let _ = raw.set_extra_isize(wanted);
}

/// A feature whose flag is set at its first use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Feature {
    /// A file of 2 GiB or more.
    LargeFile,
    /// An extended attribute.
    ExtAttr,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_grow_over_stale_bytes_but_not_over_attributes() {
        let mut raw = RawInode::new(256, 4).expect("an inode");
        raw.xattr_region_mut().expect("a region").fill(0xDB);
        grow_fields(&mut raw, 32);
        assert_eq!((raw.extra_isize(), raw.crtime().map(|time| time.seconds)), (32, Some(0)));

        let mut raw = RawInode::new(256, 28).expect("an inode");
        let attribute = xattr::Xattr::new(1, b"name", b"value");
        xattr::write_ibody(raw.xattr_region_mut().expect("a region"), &[attribute]).expect("room");
        grow_fields(&mut raw, 32);
        assert_eq!(raw.extra_isize(), 28);
    }
}
