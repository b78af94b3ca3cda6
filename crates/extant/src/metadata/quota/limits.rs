//! The limits of a user, group or project, and how much it may still use.
//!
//! What is *taken* counts against the limits: what inodes use, what is reserved for a change that has not happened yet, and the tokens
//! that shards of threads hold. Far below every limit a shard takes tokens for more than it needs, so that threads which write as one user
//! meet seldom. Near a limit the tokens of all shards are collected, and each change is counted exactly.
//!
//! Invariant: tokens of an id are in a shard only while [`LimitState::has_tokens`] is set, and enter it under the lock of the state.
//!
//! Locks: `QUOTA_LIMITS`, one per id with limits; then `CACHE`, one shard at a time.
//!
//! Source: `dquot_add_space`, `dquot_add_inodes`, `dquot_decr_space`, `do_set_dqblk` of `fs/quota/dquot.c`. Tests: `../tests/quota`.

use extant_ondisk::Dqblk;
use extant_ondisk::quota::{Grace, LIMIT_UNIT};
use extant_rt::{LockClass, Mutex};

use crate::error::{Error, Result};
use crate::incore::usage::Usage;

/// A shard takes tokens for a part of the room below the nearest limit, at most for so much.
const ROOM_PARTS: i64 = 64;
const TOKENS_MAX: Usage = Usage { space: 1 << 20, inodes: 64 };
/// Tokens for less are not worth collecting.
const TOKENS_MIN: Usage = Usage { space: 64 << 10, inodes: 4 };

/// Whether a caller can be refused, and the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitCheck {
    /// False for a task with `CAP_SYS_RESOURCE`, and for what cannot be refused any more.
    pub(super) is_subject: bool,
    pub(super) now: u64,
}

/// When grace times end, in seconds of the epoch; 0 while a soft limit is not exceeded.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitTimes {
    pub(super) space: u64,
    pub(super) inodes: u64,
}

/// An id with limits.
#[derive(Debug)]
pub(super) struct Limited {
    pub(super) state: Mutex<LimitState>,
}

/// What of an id is taken, and its limits.
#[derive(Debug)]
pub(super) struct LimitState {
    space: Limit,
    inodes: Limit,
    grace: Grace,
    /// Shards may hold tokens.
    pub(super) has_tokens: bool,
}

/// A limit on space in bytes, or on inodes; 0 is none.
#[derive(Clone, Copy, Debug, Default)]
struct Limit {
    hard: i64,
    soft: i64,
    taken: i64,
    /// When the grace time ends; 0 while the soft limit is not exceeded.
    time: u64,
}

impl Limit {
    /// The nearest one above which a change has to be counted exactly.
    fn nearest(self) -> Option<i64> {
        [self.soft, self.hard].into_iter().filter(|limit| *limit > 0).min()
    }

    /// How much may still be taken by a caller that can be refused; `i64::MAX` without a limit.
    fn room(self, now: u64) -> i64 {
        let is_late = self.soft > 0 && self.time > 0 && now >= self.time;
        let limits = [(self.hard > 0).then_some(self.hard), is_late.then_some(self.soft)];
        let nearest = limits.into_iter().flatten().min();
        nearest.map_or(i64::MAX, |limit| limit.saturating_sub(self.taken).max(0))
    }

    fn take(&mut self, amount: i64, now: u64, grace_seconds: u32) {
        self.taken = self.taken.saturating_add(amount);
        if amount > 0 && self.soft > 0 && self.taken > self.soft && self.time == 0 {
            self.time = now.saturating_add(u64::from(grace_seconds));
        }
        if amount < 0 && self.taken <= self.soft {
            self.time = 0;
        }
    }

    /// How many tokens a shard may take with `wanted`; None if that is to be counted exactly.
    fn tokens(self, wanted: i64, max: i64, min: i64) -> Option<i64> {
        let Some(nearest) = self.nearest() else { return Some(max) };
        let room = nearest.saturating_sub(self.taken).saturating_sub(wanted);
        let tokens = (room / ROOM_PARTS).min(max);
        (tokens >= min).then_some(tokens)
    }
}

impl Limited {
    /// An id of which inodes use what its entry says.
    pub(super) fn new(entry: &Dqblk, grace: Grace) -> Self {
        let amount = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
        let mut state = LimitState {
            space: Limit { taken: amount(entry.curspace), ..Limit::default() },
            inodes: Limit { taken: amount(entry.curinodes), ..Limit::default() },
            grace,
            has_tokens: false,
        };
        state.set_limits(entry);
        Self { state: Mutex::new(LockClass::QUOTA_LIMITS, state) }
    }
}

impl LimitState {
    /// Takes over the limits and the times of an entry. No shard may hold tokens.
    pub(super) fn set_limits(&mut self, entry: &Dqblk) {
        let limit = |limit: u64| i64::try_from(limit).unwrap_or(i64::MAX);
        let space = |units: u64| limit(units.saturating_mul(LIMIT_UNIT));
        self.space = Limit {
            hard: space(entry.bhardlimit),
            soft: space(entry.bsoftlimit),
            time: entry.btime,
            ..self.space
        };
        self.inodes = Limit {
            hard: limit(entry.ihardlimit),
            soft: limit(entry.isoftlimit),
            time: entry.itime,
            ..self.inodes
        };
    }

    /// Sets for how long soft limits may be exceeded from now on.
    pub(super) fn set_grace(&mut self, grace: Grace) {
        self.grace = grace;
    }

    /// Tokens for a shard beside what is `wanted`; None if that is to be counted exactly.
    pub(super) fn tokens(&self, wanted: Usage) -> Option<Usage> {
        let space = self.space.tokens(wanted.space, TOKENS_MAX.space, TOKENS_MIN.space)?;
        let inodes = self.inodes.tokens(wanted.inodes, TOKENS_MAX.inodes, TOKENS_MIN.inodes)?;
        Some(Usage { space, inodes })
    }

    /// Takes more, or gives some back, whatever the limits are.
    pub(super) fn take(&mut self, usage: Usage, now: u64) {
        self.space.take(usage.space, now, self.grace.space_seconds);
        self.inodes.take(usage.inodes, now, self.grace.inode_seconds);
    }

    /// Takes more if the limits allow it. No shard may hold tokens.
    ///
    /// # Errors
    /// `QuotaExceeded`, and nothing is taken.
    pub(super) fn try_take(&mut self, usage: Usage, check: LimitCheck) -> Result<()> {
        let fits = |limit: Limit, amount: i64| amount <= 0 || amount <= limit.room(check.now);
        let is_within = fits(self.space, usage.space) && fits(self.inodes, usage.inodes);
        if check.is_subject && !is_within {
            return Err(Error::QuotaExceeded);
        }
        self.take(usage, check.now);
        Ok(())
    }

    /// Bytes that may still be taken by a caller that can be refused. No shard may hold tokens.
    pub(super) fn space_room(&self, now: u64) -> i64 {
        self.space.room(now)
    }

    /// When the grace times end.
    pub(super) fn times(&self) -> LimitTimes {
        LimitTimes { space: self.space.time, inodes: self.inodes.time }
    }

    /// The limits, and what is taken as if it were used. No shard may hold tokens.
    pub(super) fn entry(&self, id: u32) -> Dqblk {
        let amount = |amount: i64| u64::try_from(amount).unwrap_or(0);
        Dqblk {
            bhardlimit: amount(self.space.hard) / LIMIT_UNIT,
            bsoftlimit: amount(self.space.soft) / LIMIT_UNIT,
            curspace: amount(self.space.taken),
            ihardlimit: amount(self.inodes.hard),
            isoftlimit: amount(self.inodes.soft),
            curinodes: amount(self.inodes.taken),
            ..Dqblk::new(id)
        }
    }
}
