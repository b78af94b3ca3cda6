//! The usage of users, groups and projects: what is charged to them, and how it comes into the quota files.
//!
//! An inode is charged to its owner, its group and its project, with one inode and the bytes that `i_blocks` counts. So the charge
//! follows from an inode's fields, and [`MetadataUpdate`](crate::metadata::update::MetadataUpdate) moves it with each change of them;
//! no operation counts anything itself. An inode without links is charged until it is deleted.
//!
//! Threads add to shards of their own. A freeze adds the shards up and writes the entries into the buffers of the quota files, so that
//! usage is in the transaction of what it counts. An id has an entry before an inode is charged to it
//! ([`BlockMap::add_dquots`](crate::mapping::BlockMap::add_dquots)): a freeze allocates nothing.
//!
//! With limits in force an id with limits has a [`Limited`], from which a change takes what it may use before it begins
//! ([`SbInfo::reserve_quota`]). Charges are covered by what the update holds of it; what it does not cover cannot be refused any more.
//! Limits take effect at a freeze, where what inodes use is known exactly.
//!
//! Leaves out: values of attributes in inodes of their own, with which disks are not written; entries of ids without use, which stay.
//!
//! Locks: `QUOTA` while an id gets an entry; `QUOTA_LIMITS`, one per id with limits; `DQUOTS`, one per file; `CACHE`, one per shard.
//!
//! Source: `__dquot_alloc_space`, `dquot_transfer` of `fs/quota/dquot.c`, `quota_compute_usage` of `lib/support/mkquota.c`.
//! Tests: `../tests/quota`.

mod file;
mod freeze;
mod limits;
pub(crate) mod reserve;
pub(crate) mod values;

use std::collections::{BTreeMap, BTreeSet};

use extant_ondisk::quota::Grace;
use extant_ondisk::{Dqblk, InodeFlags, InodeNumber, QuotaType, RawInode, RoCompatFeatures, Superblock};
use extant_rt::{Arc, AtomicU64, LockClass, Mutex, Ordering};

use crate::error::Result;
use crate::incore::usage::{Dquot, Taken, Usage};
use crate::metadata::SbInfo;
use crate::metadata::shards::Shards;
pub(crate) use file::QuotaFile;
use limits::{LimitCheck, LimitState, Limited};

/// Tokens of an id that a shard keeps when they come back, at most.
const TOKENS_KEPT_MAX: Usage = Usage { space: 4 << 20, inodes: 256 };

/// Credits for the blocks of quota files that an update may change at most: entries of three types for each of the inodes
/// whose owners differ.
pub(crate) const QUOTA_CREDITS: u32 = 12;

/// What an inode is charged for, and to whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Charge {
    /// User, group and project.
    pub(crate) ids: [u32; 3],
    pub(crate) space: i64,
}

impl Charge {
    /// The charge of an inode that is in use; None of one that is not, or that holds the value of an attribute.
    pub(crate) fn of(raw: &RawInode, block_size: u32) -> Option<Self> {
        let is_charged = raw.mode() != 0 && !raw.flags().contains(InodeFlags::EA_INODE);
        is_charged.then(|| Self {
            ids: ids_of(raw),
            space: i64::try_from(raw.blocks_bytes(block_size)).unwrap_or(i64::MAX),
        })
    }
}

/// The user, the group and the project of an inode.
pub(crate) fn ids_of(raw: &RawInode) -> [u32; 3] {
    [raw.uid(), raw.gid(), raw.project_id()]
}

/// The inodes of the quota files of a disk that counts usage.
pub(crate) fn quota_inodes(superblock: &Superblock) -> Vec<(QuotaType, InodeNumber)> {
    if !superblock.ro_compat().contains(RoCompatFeatures::QUOTA) {
        return Vec::new();
    }
    let inodes =
        [superblock.s_usr_quota_inum(), superblock.s_grp_quota_inum(), superblock.s_prj_quota_inum()];
    let named = QuotaType::ALL.into_iter().zip(inodes.map(InodeNumber));
    named.filter(|(_, inode)| inode.0 != 0).collect()
}

/// The quota files of a file system that is mounted for writing.
#[derive(Debug)]
pub(crate) struct Quotas {
    /// In the order of their types.
    pub(crate) files: Vec<QuotaFile>,
    shards: Shards<QuotaShard>,
    /// Changes of ids without an entry: of fast commits that Linux left, and on disks that are wrong already.
    unplaced: Mutex<BTreeMap<Dquot, Usage>>,
    /// Held while an id gets an entry.
    pub(crate) structure: Mutex<()>,
    /// The types whose limits are in force.
    enforced: [bool; 3],
    /// The ids with limits, of these types.
    limits: Mutex<BTreeMap<Dquot, Arc<Limited>>>,
    /// Counts the changes of which ids have limits; 0 as long as none has.
    limits_epoch: AtomicU64,
    /// Ids whose entries have other limits since the last freeze.
    changed_limits: Mutex<Vec<ChangedLimits>>,
}

/// An id whose entry has other limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangedLimits {
    pub(crate) dquot: Dquot,
    /// The entry says when the grace time of space ends.
    pub(crate) keeps_space_time: bool,
    /// The same of inodes.
    pub(crate) keeps_inode_time: bool,
}

/// What threads of one shard have done.
#[derive(Debug, Default)]
struct QuotaShard {
    /// In the running transaction.
    changes: BTreeMap<Dquot, Usage>,
    /// Those that have entries, as far as these threads have check.
    known: BTreeSet<Dquot>,
    /// Whether an id has limits, likewise, at the time of `limits_epoch`.
    limited: BTreeMap<Dquot, bool>,
    limits_epoch: u64,
    /// What these threads may take without a look at what others take.
    tokens: BTreeMap<Dquot, Usage>,
}

impl QuotaShard {
    /// Whether an id has limits; None if these threads have not asked yet.
    fn is_limited(&mut self, dquot: Dquot, epoch: u64) -> Option<bool> {
        if self.limits_epoch != epoch {
            self.limited.clear();
            self.limits_epoch = epoch;
        }
        self.limited.get(&dquot).copied()
    }

    /// Takes tokens of an id, or adds some. False, and nothing is done, if it has too few, or too many already.
    fn take_tokens(&mut self, dquot: Dquot, usage: Usage) -> bool {
        let Some(tokens) = self.tokens.get_mut(&dquot) else { return false };
        let mut left = *tokens;
        left.add(usage.negated());
        let fits = usage.is_within(*tokens) && left.is_within(TOKENS_KEPT_MAX);
        if fits {
            *tokens = left;
        }
        fits
    }
}

impl Quotas {
    /// The quota files of a disk, with the limits of the `enforced` types in force.
    pub(crate) fn new(files: Vec<QuotaFile>, enforced: [bool; 3]) -> Self {
        let quotas = Self {
            files,
            shards: Shards::new(),
            unplaced: Mutex::new(LockClass::DQUOTS, BTreeMap::new()),
            structure: Mutex::new(LockClass::QUOTA, ()),
            enforced,
            limits: Mutex::new(LockClass::DQUOTS, BTreeMap::new()),
            limits_epoch: AtomicU64::new(0),
            changed_limits: Mutex::new(LockClass::DQUOTS, Vec::new()),
        };
        for file in quotas.files.iter().filter(|file| quotas.enforced[file.quota_type as usize]) {
            for entry in file.entries_with_limits() {
                quotas.put_limits(file, &entry);
            }
        }
        quotas
    }

    /// The file of a type.
    pub(crate) fn file(&self, quota_type: QuotaType) -> Option<&QuotaFile> {
        self.files.iter().find(|file| file.quota_type == quota_type)
    }

    /// Ids with limits that are not in force.
    pub(crate) fn limit_count(&self) -> usize {
        let ignored = self.files.iter().filter(|file| !self.enforced[file.quota_type as usize]);
        ignored.map(|file| file.entries_with_limits().len()).sum()
    }

    /// Whether the limits of a type are in force.
    pub(crate) fn is_enforced(&self, quota_type: QuotaType) -> bool {
        self.enforced[quota_type as usize]
    }

    /// Whether any id has limits that are in force.
    pub(crate) fn has_limits(&self) -> bool {
        // Acquire: with the release in `put_limits`.
        self.limits_epoch.load(Ordering::Acquire) != 0
    }

    /// Moves the charge of an inode, and returns how many blocks the transaction may have to write for it. What it takes of limits is out
    /// of what is `taken` already, as far as that goes.
    pub(crate) fn transfer(
        &self,
        before: Option<Charge>,
        after: Option<Charge>,
        taken: &mut Taken,
        now: u64,
    ) -> u32 {
        if before == after {
            return 0;
        }
        let epoch = self.limits_epoch.load(Ordering::Acquire);
        let mut uncovered = Taken::new();
        let mut shard = self.shards.lock_of_thread();
        let mut added = 0;
        for file in &self.files {
            let index = file.quota_type as usize;
            for (dquot, change) in changes_of(file.quota_type, before, after).into_iter().flatten() {
                let usage = shard.changes.entry(dquot).or_insert_with(|| {
                    added += 1;
                    Usage::default()
                });
                usage.add(change);
                if epoch == 0 || !self.enforced[index] || shard.is_limited(dquot, epoch) == Some(false) {
                    continue;
                }
                let rest = cover(change, dquot, taken);
                if rest != Usage::default() && !shard.take_tokens(dquot, rest) {
                    uncovered.push((dquot, rest));
                }
            }
        }
        drop(shard);
        for (dquot, rest) in uncovered {
            // It cannot be refused.
            let _ = self.take(dquot, rest, LimitCheck { is_subject: false, now });
        }
        added
    }

    /// An id with limits that are in force.
    fn limited(&self, dquot: Dquot) -> Option<Arc<Limited>> {
        let epoch = self.limits_epoch.load(Ordering::Acquire);
        if epoch == 0 || !self.enforced[dquot.0 as usize] {
            return None;
        }
        let found = self.limits.lock().get(&dquot).cloned();
        let mut shard = self.shards.lock_of_thread();
        // Unless that has changed since.
        if shard.is_limited(dquot, epoch).is_none() && shard.limits_epoch == epoch {
            shard.limited.insert(dquot, found.is_some());
        }
        found
    }

    /// Takes of the limits of an id: false if it has none.
    ///
    /// # Errors
    /// `QuotaExceeded`, and nothing is taken.
    fn take(&self, dquot: Dquot, usage: Usage, check: LimitCheck) -> Result<bool> {
        if !self.enforced[dquot.0 as usize] {
            return Ok(false);
        }
        {
            let epoch = self.limits_epoch.load(Ordering::Acquire);
            let mut shard = self.shards.lock_of_thread();
            match shard.is_limited(dquot, epoch) {
                Some(false) => return Ok(false),
                _ if shard.take_tokens(dquot, usage) => return Ok(true),
                _ => {}
            }
        }
        let Some(limited) = self.limited(dquot) else { return Ok(false) };
        let mut state = limited.state.lock();
        if let Some(tokens) = state.tokens(usage) {
            self.give_tokens(&mut state, dquot, tokens);
            state.take(usage, check.now);
            return Ok(true);
        }
        self.collect_tokens(&mut state, dquot);
        if let Some(tokens) = state.tokens(usage) {
            self.give_tokens(&mut state, dquot, tokens);
        }
        state.try_take(usage, check)?;
        Ok(true)
    }

    /// Gives back what was taken of the limits of an id.
    fn give_back(&self, dquot: Dquot, usage: Usage) {
        let back = usage.negated();
        if self.shards.lock_of_thread().take_tokens(dquot, back) {
            return;
        }
        if let Some(limited) = self.limited(dquot) {
            // Only a limit that comes to be exceeded needs the time.
            limited.state.lock().take(back, 0);
        }
    }

    fn give_tokens(&self, state: &mut LimitState, dquot: Dquot, tokens: Usage) {
        state.take(tokens, 0);
        state.has_tokens = true;
        self.shards.lock_of_thread().tokens.entry(dquot).or_default().add(tokens);
    }

    fn collect_tokens(&self, state: &mut LimitState, dquot: Dquot) {
        if !std::mem::take(&mut state.has_tokens) {
            return;
        }
        let mut tokens = Usage::default();
        self.shards.visit_all(|shard| tokens.add(shard.tokens.remove(&dquot).unwrap_or_default()));
        state.take(tokens.negated(), 0);
    }

    /// The limits of an id and what of them is taken; None if it has none in force.
    pub(crate) fn limits_of(&self, dquot: Dquot) -> Option<Dqblk> {
        let limited = self.limited(dquot)?;
        let mut state = limited.state.lock();
        self.collect_tokens(&mut state, dquot);
        Some(state.entry(dquot.1))
    }

    /// Has the limits of an entry be in force, of which inodes use what it says.
    fn put_limits(&self, file: &QuotaFile, entry: &Dqblk) {
        let dquot = (file.quota_type, entry.id);
        let known = self.limits.lock().get(&dquot).cloned();
        match known {
            Some(limited) => {
                let mut state = limited.state.lock();
                self.collect_tokens(&mut state, dquot);
                state.set_limits(entry);
            }
            None if !entry.has_limit() => return,
            None => {
                let limited = Arc::new(Limited::new(entry, file.grace()));
                self.limits.lock().insert(dquot, limited);
            }
        }
        // Release: whoever sees the count sees the limits.
        self.limits_epoch.fetch_add(1, Ordering::Release);
    }

    /// Says that the entry of an id has other limits, in the update that changes it. They are in force once it is committed.
    pub(crate) fn note_changed_limits(&self, changed: ChangedLimits) {
        self.changed_limits.lock().push(changed);
    }

    /// Has other grace times be those of a type.
    pub(crate) fn set_grace(&self, quota_type: QuotaType, grace: Grace) {
        let limits: Vec<Arc<Limited>> = {
            let limits = self.limits.lock();
            limits
                .iter()
                .filter(|((of, _), _)| *of == quota_type)
                .map(|(_, limited)| limited.clone())
                .collect()
        };
        limits.iter().for_each(|limited| limited.state.lock().set_grace(grace));
    }

    /// The entries of a type with what the running transaction changed of them. An update is open.
    pub(crate) fn current_entries(&self, file: &QuotaFile) -> BTreeMap<u32, Dqblk> {
        let mut entries: BTreeMap<u32, Dqblk> =
            file.all_entries().into_iter().map(|entry| (entry.id, entry)).collect();
        self.shards.visit_all(|shard| {
            for ((_, id), usage) in shard.changes.iter().filter(|((of, _), _)| *of == file.quota_type) {
                let entry = entries.entry(*id).or_insert(Dqblk::new(*id));
                entry.curspace = entry.curspace.saturating_add_signed(usage.space);
                entry.curinodes = entry.curinodes.saturating_add_signed(usage.inodes);
            }
        });
        for (id, entry) in &mut entries {
            let limited = self.limits.lock().get(&(file.quota_type, *id)).cloned();
            if let Some(limited) = limited {
                let times = limited.state.lock().times();
                (entry.btime, entry.itime) = (times.space, times.inodes);
            }
        }
        entries
    }

    /// Those of some ids that have no entry.
    pub(crate) fn without_entry(&self, ids: [u32; 3]) -> Vec<(&QuotaFile, u32)> {
        let unknown: Vec<(&QuotaFile, u32)> = {
            let shard = self.shards.lock_of_thread();
            let ids = self.files.iter().map(|file| (file, ids[file.quota_type as usize]));
            ids.filter(|(file, id)| !shard.known.contains(&(file.quota_type, *id))).collect()
        };
        if unknown.is_empty() {
            return unknown;
        }
        let (found, missing): (Vec<_>, Vec<_>) = unknown.into_iter().partition(|(file, id)| file.has(*id));
        let found = found.into_iter().map(|(file, id)| (file.quota_type, id));
        self.shards.lock_of_thread().known.extend(found);
        missing
    }

    /// Takes a change out for which there was no entry, to be added once there is one.
    pub(crate) fn take_unplaced(&self) -> Option<(&QuotaFile, u32, Usage)> {
        let ((quota_type, id), usage) = self.unplaced.lock().pop_first()?;
        let file = self.file(quota_type)?;
        Some((file, id, usage))
    }

    /// Adds a change, and returns how many blocks the transaction may have to write for it.
    pub(crate) fn add(&self, dquot: Dquot, usage: Usage) -> u32 {
        let mut shard = self.shards.lock_of_thread();
        let is_new = !shard.changes.contains_key(&dquot);
        shard.changes.entry(dquot).or_default().add(usage);
        u32::from(is_new)
    }
}

/// The changes of ids of a type if the charge of an inode moves.
fn changes_of(
    quota_type: QuotaType,
    before: Option<Charge>,
    after: Option<Charge>,
) -> [Option<(Dquot, Usage)>; 2] {
    let index = quota_type as usize;
    let id = |charge: Charge| (quota_type, charge.ids[index]);
    let gone = before.map(|charge| (id(charge), Usage { space: -charge.space, inodes: -1 }));
    let come = after.map(|charge| (id(charge), Usage { space: charge.space, inodes: 1 }));
    match (gone, come) {
        (Some((old, gone)), Some((new, mut change))) if old == new => {
            change.add(gone);
            [Some((new, change)), None]
        }
        changes => [changes.0, changes.1],
    }
}

/// What of a change is not covered by what is taken already.
fn cover(change: Usage, dquot: Dquot, taken: &mut Taken) -> Usage {
    let Some((_, own)) = taken.iter_mut().find(|(own, _)| *own == dquot) else { return change };
    let covered = Usage {
        space: change.space.clamp(0, own.space.max(0)),
        inodes: change.inodes.clamp(0, own.inodes.max(0)),
    };
    own.add(covered.negated());
    let mut rest = change;
    rest.add(covered.negated());
    rest
}

impl SbInfo {
    /// The quota file that an inode is.
    pub(crate) fn quota_file(&self, number: InodeNumber) -> Option<&QuotaFile> {
        self.quotas.as_ref()?.files.iter().find(|file| file.inode == number)
    }

    /// The charge of an inode; None where usage is not counted.
    pub(crate) fn charge_of(&self, number: InodeNumber, raw: &RawInode) -> Option<Charge> {
        match self.quotas.is_none() || self.special_inodes.contains(number) {
            true => None,
            false => Charge::of(raw, self.geometry.block_size),
        }
    }
}
