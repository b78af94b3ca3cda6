//! Throttling of writers: the delay grows with the dirty bytes, so that writers reach the device's pace before the limit.
//!
//! From the midpoint between the background limit and the dirty limit up to the dirty limit, a context's writers together
//! get a share of its measured bandwidth that falls in a straight line from twice it to nearly nothing: all of it half way,
//! which is the set point. Writers queue in order, and each waits as long as its bytes take at that rate. The distance that
//! counts is the longer one, the device's to its limit or the context's to its own. Above the device's limit no writer goes
//! on.
//!
//! Source: `balance_dirty_pages` and `wb_position_ratio` of Linux; the queue replaces the estimated number of writers.

use std::time::Duration;

use extant_rt::{Arc, Ordering, is_interrupted, sleep};

use crate::context::Context;
use crate::shared::Shared;
use crate::{Inode, Tuning};

/// A writer is looked at when it has dirtied so much of an inode, and at each write while much is dirty.
const RATELIMIT_BYTES: u64 = 256 << 10;
/// A dirty limit of which so much is still far from it that each context may have [`RATELIMIT_BYTES`] more.
const FREERUN_BYTES_MIN: u64 = 64 << 20;
/// No writer is stopped for longer at a time.
pub(crate) const PAUSE_MAX: Duration = Duration::from_millis(200);
/// Nor for less while too much is dirty.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// Writers get at least this part of the bandwidth, so that queued writers get on.
const SHARE_MIN: f64 = 1.0 / 16.0;

impl<I> Context<I> {
    /// Whether it has so much dirty that it gets a part of the dirty limit.
    fn is_sharer(&self) -> bool {
        self.dirty.load(Ordering::Relaxed) > RATELIMIT_BYTES
    }
}

impl<I: Inode> Shared<I> {
    /// Dirty bytes of all contexts.
    pub(crate) fn dirty(&self) -> u64 {
        // Relaxed: a sum of moving parts, whose inodes' locks order what must be ordered.
        self.contexts.iter().map(|context| context.dirty.load(Ordering::Relaxed)).sum()
    }

    /// The dirty limit of a context: an even part among those that have something dirty, so that one which is stuck does not
    /// stop the writers of others.
    ///
    /// Not by bandwidth: a context that may have little dirty writes it in small pieces, and would measure as slow for that.
    pub(crate) fn limit_of(&self, index: usize) -> u64 {
        let is_other = |(other, context): &(usize, &Context<I>)| *other != index && context.is_sharer();
        let others = self.contexts.iter().enumerate().filter(is_other).count() as u64;
        self.tuning.dirty_bytes_max / (1 + others)
    }

    /// The part of a limit above which contexts write without being asked.
    pub(crate) fn background_of(&self, limit: u64) -> u64 {
        let Tuning { background_bytes, dirty_bytes_max, .. } = self.tuning;
        (u128::from(limit) * u128::from(background_bytes) / u128::from(dirty_bytes_max.max(1))) as u64
    }

    /// Checks from time to time how much is dirty: `before` bytes of a context were dirty when a writer added `bytes`.
    pub(crate) fn check_dirty_limits(&self, before: u64, bytes: u64) {
        if before / RATELIMIT_BYTES == (before + bytes) / RATELIMIT_BYTES {
            return;
        }
        let dirty = self.dirty();
        if dirty > self.tuning.background_bytes {
            self.wake_all();
        }
        // Relaxed, and written only to be changed: hints for writers, which check the counts themselves.
        let sharers = self.contexts.iter().filter(|context| context.is_sharer()).count().max(1);
        if self.sharers.load(Ordering::Relaxed) != sharers {
            self.sharers.store(sharers, Ordering::Relaxed);
        }
        let is_over_freerun =
            dirty > self.background_of(self.tuning.dirty_bytes_max).midpoint(self.tuning.dirty_bytes_max);
        if self.is_over_freerun.load(Ordering::Relaxed) != is_over_freerun {
            self.is_over_freerun.store(is_over_freerun, Ordering::Relaxed);
        }
    }

    /// Whether more is dirty than may be. It reads what all contexts write, so while less than the freerun ceiling was dirty when it was last
    /// checked, and what may have come since is little, it is not looked at.
    pub(crate) fn is_over_limit(&self) -> bool {
        let is_small = self.tuning.dirty_bytes_max < FREERUN_BYTES_MIN;
        (is_small || self.is_over_freerun.load(Ordering::Relaxed))
            && self.dirty() > self.tuning.dirty_bytes_max
    }

    /// The position of `dirty` between the freerun ceiling (kernel `dirty_freerun_ceiling`) and a limit: from 0 to 1.
    fn dirty_position(&self, dirty: u64, limit: u64) -> f64 {
        let freerun = self.background_of(limit).midpoint(limit);
        (dirty.saturating_sub(freerun) as f64 / limit.saturating_sub(freerun).max(1) as f64).min(1.0)
    }

    /// [`crate::Writeback::throttle`].
    pub(crate) fn throttle(&self, inode: &Arc<I>) {
        if !self.has_threads() {
            return;
        }
        let (index, mut bytes) = {
            let mut state = inode.inode_writeback().lock();
            if state.unthrottled < RATELIMIT_BYTES
                && !(self.is_over_freerun.load(Ordering::Relaxed) && state.unthrottled > 0)
            {
                return;
            }
            (state.listed.map(|listed| listed.context), std::mem::take(&mut state.unthrottled))
        };
        // An inode that has become clean meanwhile is in no context's queue.
        let Some(index) = index else { return };
        let context = &self.contexts[index];
        // A writer whose caller was killed adds nothing more: it is released.
        while self.has_threads() && !is_interrupted() {
            let dirty = self.dirty();
            if dirty > self.tuning.background_bytes {
                self.wake_all();
            }
            let limit = self.tuning.dirty_bytes_max;
            let own = self.dirty_position(context.dirty.load(Ordering::Relaxed), self.limit_of(index));
            let position = self.dirty_position(dirty, limit).max(own);
            if position == 0.0 {
                return;
            }
            let bandwidth = context.bandwidth.load(Ordering::Relaxed) as f64;
            let rate = bandwidth * (2.0 * (1.0 - position)).max(SHARE_MIN);
            // The bandwidth of a context that has not written yet is unknown: the limit alone stops its writers.
            let seconds = if bandwidth > 0.0 { bytes as f64 / rate } else { 0.0 };
            // A writer that waited until all is written would find the context idle.
            let drained = context.dirty.load(Ordering::Relaxed) as f64 / bandwidth.max(1.0);
            let pause_max = Duration::from_secs_f64((drained / 2.0).min(PAUSE_MAX.as_secs_f64()));
            let mut pause = self.queue_pause(index, seconds, pause_max);
            if dirty > limit {
                pause = pause.max(PAUSE_MIN);
            }
            if !pause.is_zero() {
                context.counts.throttled.fetch_add(1, Ordering::Relaxed);
                context.counts.throttled_ns.fetch_add(pause.as_nanos() as u64, Ordering::Relaxed);
                sleep(pause);
            }
            if dirty <= limit {
                return;
            }
            // Paid for already.
            bytes = 0;
        }
    }

    /// Uses `seconds` of what a context can write, behind the writers before it; returns the length of the queue,
    /// `pause_max` at most.
    fn queue_pause(&self, index: usize, seconds: f64, pause_max: Duration) -> Duration {
        let now = self.now();
        let own = (seconds * 1e9) as u64;
        let last = now + pause_max.as_nanos() as u64;
        // Relaxed: no other memory depends on this time. No writer leaves a queue longer than a pause can be.
        let end = |paced_until: u64| paced_until.clamp(now, last).saturating_add(own);
        let paced_until = self.contexts[index].paced_until.fetch_update(
            Ordering::Relaxed,
            Ordering::Relaxed,
            |paced_until| Some(end(paced_until)),
        );
        Duration::from_nanos(end(paced_until.unwrap_or(now)).min(last).saturating_sub(now))
    }
}
