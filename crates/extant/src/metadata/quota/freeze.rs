//! How usage and limits come into the quota files: at the freeze of a transaction, where both are known exactly.
//!
//! Locks: as [`super`]; `BUFFER` of one block at a time.

use std::collections::BTreeMap;

use extant_ondisk::quota::{LIMIT_UNIT, QUOTA_BLOCK_SIZE};
use extant_ondisk::{Dqblk, TransactionId};
use extant_rt::Arc;

use super::{ChangedLimits, Quotas};
use crate::incore::buffer::Buffer;
use crate::incore::dirty_in::Before;
use crate::incore::usage::{Dquot, Usage};

impl Quotas {
    /// Writes into the buffers of the files what the transaction changed; those that it had not changed join `buffers`. At the
    /// freeze only.
    pub(crate) fn freeze(&self, tid: TransactionId, now: u64, buffers: &mut Vec<Arc<Buffer>>) {
        let mut changes: BTreeMap<Dquot, Usage> = BTreeMap::new();
        self.shards.visit(|shard| {
            for (dquot, usage) in std::mem::take(&mut shard.changes) {
                changes.entry(dquot).or_default().add(usage);
            }
        });
        for ((quota_type, id), usage) in changes {
            // Without a change of usage in all, a grace time may have ended and begun anew.
            if usage == Usage::default() && self.limited((quota_type, id)).is_none() {
                continue;
            }
            let file = self.file(quota_type);
            let Some(place) = file.and_then(|file| file.entry(id)) else {
                self.unplaced.lock().entry((quota_type, id)).or_default().add(usage);
                continue;
            };
            let times = self.limited((quota_type, id)).map(|limited| limited.state.lock().times());
            modify_entry(&place, id, (tid, buffers), |entry| {
                entry.curspace = entry.curspace.saturating_add_signed(usage.space);
                entry.curinodes = entry.curinodes.saturating_add_signed(usage.inodes);
                if let Some(times) = times {
                    (entry.btime, entry.itime) = (times.space, times.inodes);
                }
            });
        }
        let changed = std::mem::take(&mut *self.changed_limits.lock());
        changed.into_iter().for_each(|changed| self.apply_changed_limits(changed, now, (tid, &mut *buffers)));
    }

    /// Has other limits of an entry be in force; a soft limit that is exceeded is so from now on.
    fn apply_changed_limits(
        &self,
        changed: ChangedLimits,
        now: u64,
        list: (TransactionId, &mut Vec<Arc<Buffer>>),
    ) {
        let (quota_type, id) = changed.dquot;
        let Some(file) = self.file(quota_type) else { return };
        let Some(place) = file.entry(id) else { return };
        let grace = file.grace();
        let time = |is_exceeded: bool, keeps: bool, time: u64, seconds: u32| match (is_exceeded, keeps) {
            (false, _) => 0,
            (true, true) => time,
            (true, false) => now.saturating_add(u64::from(seconds)),
        };
        let mut changed_entry = Dqblk::new(id);
        modify_entry(&place, id, list, |entry| {
            let space = entry.bsoftlimit.saturating_mul(LIMIT_UNIT);
            let is_exceeded = space > 0 && entry.curspace > space;
            entry.btime = time(is_exceeded, changed.keeps_space_time, entry.btime, grace.space_seconds);
            let is_exceeded = entry.isoftlimit > 0 && entry.curinodes > entry.isoftlimit;
            entry.itime = time(is_exceeded, changed.keeps_inode_time, entry.itime, grace.inode_seconds);
            changed_entry = *entry;
        });
        if self.enforced[quota_type as usize] {
            self.put_limits(file, &changed_entry);
        }
    }
}

/// Changes an entry at the freeze of a transaction; its buffer joins those that the transaction changed.
fn modify_entry(
    (buffer, at, slot): &(Arc<Buffer>, usize, usize),
    id: u32,
    (tid, buffers): (TransactionId, &mut Vec<Arc<Buffer>>),
    modify: impl FnOnce(&mut Dqblk),
) {
    let mut state = buffer.lock();
    let bytes = Arc::make_mut(&mut state.bytes);
    let block = bytes.get_mut(*at..at + QUOTA_BLOCK_SIZE).unwrap_or_default();
    let mut entry = Dqblk::read(block, *slot).unwrap_or(Dqblk::new(id));
    modify(&mut entry);
    entry.write(block, *slot);
    // The commit before has copied it: one follows the other.
    if state.dirty_in.enter(tid) != Before::Listed {
        buffers.push(buffer.clone());
    }
}
