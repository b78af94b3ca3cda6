//! What a change may use of a user's, group's or project's limits: taken before the change, for a change cannot be undone.
//!
//! Limits apply to a caller where a [`QuotaScope`] of its thread says so, as the kernel's do to a task without `CAP_SYS_RESOURCE`.
//! Threads that write back, and callers without a scope, are never refused: what a write was promised it gets.
//!
//! Leaves out: blocks of maps, which are charged when they are allocated, as by the kernel's delayed allocation; a limit is exceeded by
//! those few.
//!
//! Locks: `CACHE`, one shard at a time; `QUOTA_LIMITS` near a limit.
//!
//! Source: `dquot_alloc_inode`, `__dquot_alloc_space`, `ignore_hardlimit` of `fs/quota/dquot.c`.

use std::cell::Cell;
use std::marker::PhantomData;

use super::{LimitCheck, Quotas};
use crate::error::{Error, Result};
use crate::incore::usage::{self, Dquot, Taken, Usage};
use crate::metadata::SbInfo;

thread_local! {
    static IS_SUBJECT: Cell<bool> = const { Cell::new(false) };
}

/// Has limits of quotas apply to what the calling thread does until it is dropped: a change that would exceed one gives
/// [`Error::QuotaExceeded`]. Scopes nest, and an inner one lifts no limits.
#[derive(Debug)]
pub struct QuotaScope {
    was_subject: bool,
    /// It belongs to its thread.
    of_thread: PhantomData<*const ()>,
}

impl QuotaScope {
    /// A scope in which limits apply if `applies`, and as before if not.
    #[must_use]
    pub fn new(applies: bool) -> Self {
        let was_subject = IS_SUBJECT.get();
        IS_SUBJECT.set(was_subject || applies);
        Self { was_subject, of_thread: PhantomData }
    }
}

impl Drop for QuotaScope {
    fn drop(&mut self) {
        IS_SUBJECT.set(self.was_subject);
    }
}

/// What is taken of limits for a change. What was not charged is given back with it.
#[derive(Debug, Default)]
pub(crate) struct QuotaReservation<'q> {
    quotas: Option<&'q Quotas>,
    taken: Taken,
}

impl<'q> QuotaReservation<'q> {
    /// What was kept by [`QuotaReservation::into_taken`].
    pub(crate) fn of_taken(sbi: &'q SbInfo, taken: Taken) -> Self {
        Self { quotas: sbi.quotas.as_ref(), taken }
    }

    /// Keeps it beyond the call.
    pub(crate) fn into_taken(mut self) -> Taken {
        std::mem::take(&mut self.taken)
    }

    /// Adds another.
    pub(crate) fn merge(&mut self, mut other: Self) {
        self.quotas = self.quotas.or(other.quotas);
        usage::merge(&mut self.taken, std::mem::take(&mut other.taken));
    }

    /// Takes up to `space` bytes of each id out.
    pub(crate) fn split(&mut self, space: u64) -> Self {
        let space = i64::try_from(space).unwrap_or(i64::MAX);
        let split = |(dquot, own): &mut (Dquot, Usage)| {
            let part = own.space.min(space);
            own.space -= part;
            (*dquot, Usage { space: part, inodes: 0 })
        };
        Self { quotas: self.quotas, taken: self.taken.iter_mut().map(split).collect() }
    }

    /// Gives back all but `space` bytes of each id.
    pub(crate) fn shrink_to(&mut self, space: u64) {
        if !self.taken.is_empty() {
            let kept = self.split(space);
            *self = kept;
        }
    }

    /// What is left, for charges to take from.
    pub(crate) fn taken_mut(&mut self) -> &mut Taken {
        &mut self.taken
    }
}

impl Drop for QuotaReservation<'_> {
    fn drop(&mut self) {
        let Some(quotas) = self.quotas else { return };
        for (dquot, usage) in self.taken.drain(..).filter(|(_, usage)| *usage != Usage::default()) {
            quotas.give_back(dquot, usage);
        }
    }
}

impl SbInfo {
    /// The caller and the time.
    fn limit_check(&self) -> LimitCheck {
        LimitCheck { is_subject: IS_SUBJECT.get(), now: u64::try_from(self.now().seconds).unwrap_or(0) }
    }

    /// Takes space and inodes of the limits of a user, a group and a project; None leaves one out.
    ///
    /// # Errors
    /// `QuotaExceeded`, and nothing is taken.
    pub(crate) fn reserve_quota(&self, ids: [Option<u32>; 3], usage: Usage) -> Result<QuotaReservation<'_>> {
        let mut reservation = QuotaReservation::default();
        let Some(quotas) = self.quotas.as_ref().filter(|quotas| quotas.has_limits()) else {
            return Ok(reservation);
        };
        reservation.quotas = Some(quotas);
        let check = self.limit_check();
        for file in &quotas.files {
            let Some(id) = ids[file.quota_type as usize] else { continue };
            let dquot = (file.quota_type, id);
            if quotas.take(dquot, usage, check)? {
                reservation.taken.push((dquot, usage));
            }
        }
        Ok(reservation)
    }

    /// Takes space for as many of `clusters` clusters as the limits of an inode's ids leave: how many.
    ///
    /// # Errors
    /// `QuotaExceeded` if that is none.
    pub(crate) fn reserve_quota_clusters(
        &self,
        ids: [u32; 3],
        clusters: u32,
    ) -> Result<(u32, QuotaReservation<'_>)> {
        let cluster_bytes = i64::from(self.geometry.block_size) * i64::from(self.geometry.cluster_ratio);
        let reserve = |clusters: u32| {
            let usage = Usage { space: i64::from(clusters) * cluster_bytes, inodes: 0 };
            self.reserve_quota(ids.map(Some), usage)
        };
        match reserve(clusters) {
            Err(Error::QuotaExceeded) => {}
            reserved => return Ok((clusters, reserved?)),
        }
        let quotas = self.quotas.as_ref().ok_or(Error::QuotaExceeded)?;
        let now = self.limit_check().now;
        let rooms = quotas.files.iter().map(|file| {
            let id = ids[file.quota_type as usize];
            quotas
                .limited((file.quota_type, id))
                .map_or(i64::MAX, |limited| limited.state.lock().space_room(now))
        });
        let room = rooms.min().unwrap_or(i64::MAX) / cluster_bytes;
        let fewer = u32::try_from(room).unwrap_or(u32::MAX).min(clusters);
        if fewer == 0 {
            return Err(Error::QuotaExceeded);
        }
        Ok((fewer, reserve(fewer)?))
    }
}
