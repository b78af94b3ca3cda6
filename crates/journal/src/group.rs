//! Group commit: how many threads a commit should be made for, and how long it may wait for them.
//!
//! Threads that sync again and again come back soon after a commit that they waited for. A commit that starts with the first of them makes
//! the others wait for the next one. So it waits until as many threads ask for it as waited in and during the last commit, but from the
//! last one's end on no longer than a commit takes on average. If they do not come, the next two commits wait for none, then four, up to 64.
//! A thread that syncs alone never waits.
//!
//! Source: the batching of `jbd2_journal_stop` (`fs/jbd2/transaction.c`) and `ext4_mount_opts`' `max_batch_time`; Linux waits for the average
//! time as soon as two threads sync in turn, whether the others have come or not, and not if the last commit took longer than that.

use std::time::Duration;

use extant_rt::Monotonic;

/// As long as a thread waits for others at most: Linux's default `max_batch_time`.
pub const WAIT_MAX: Duration = Duration::from_millis(15);

/// A commit that takes less is short: to sleep and be woken on another CPU takes as long.
pub const SHORT: Duration = Duration::from_micros(100);

/// The binary logarithm of the most commits that wait for none.
const MISSES_MAX: u32 = 6;

/// Threads that wait for commits. Protected by the state lock.
#[derive(Debug, Default)]
pub struct Group {
    /// Threads that wait for the commit under way.
    in_commit: u32,
    /// Threads that wait for the next one.
    joined: u32,
    /// Threads that waited in and during the last commit.
    expected: u32,
    /// How long commits take on average.
    commit_time: Duration,
    /// When the last one ended.
    ended: Option<Monotonic>,
    /// Commits in a row that waited in vain.
    misses: u32,
    /// So many commits wait for none.
    at_once: u32,
}

impl Group {
    /// A thread waits for the commit under way if `in_commit`, else for the next one. Whether it is the first that waits for the next one.
    #[must_use]
    pub fn join(&mut self, in_commit: bool) -> bool {
        let threads = if in_commit { &mut self.in_commit } else { &mut self.joined };
        *threads = threads.saturating_add(1);
        !in_commit && self.joined == 1
    }

    /// Whether commits are so short that waiting for one costs less than sleeping until it has ended.
    pub fn is_short(&self) -> bool {
        self.commit_time < SHORT
    }

    /// How long a thread that joined then has waited for others, which come after the last commit's end.
    pub fn waited(&self, joined: Monotonic) -> Duration {
        self.ended.map_or(joined, |ended| ended.max(joined)).elapsed()
    }

    /// How long the next commit waits from now on, if the first of its threads has waited so long.
    pub fn wait(&self, waited: Duration) -> Option<Duration> {
        let left = self.commit_time.min(WAIT_MAX).checked_sub(waited).filter(|left| !left.is_zero());
        left.filter(|_| self.joined < self.expected && self.at_once == 0)
    }

    /// A commit starts.
    pub fn started(&mut self) {
        if self.at_once > 0 {
            self.at_once -= 1;
        } else if (1..self.expected).contains(&self.joined) {
            self.misses = (self.misses + 1).min(MISSES_MAX);
            self.at_once = 1 << self.misses;
        } else {
            self.misses = 0;
        }
        self.in_commit = std::mem::take(&mut self.joined);
    }

    /// A commit has ended that took `time`.
    pub fn ended(&mut self, time: Duration) {
        self.expected = self.in_commit.saturating_add(self.joined);
        self.in_commit = 0;
        self.ended = Some(Monotonic::now());
        self.commit_time = match self.commit_time {
            Duration::ZERO => time,
            average => (3 * average + time) / 4,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: Duration = Duration::from_millis(4);

    fn join(group: &mut Group, threads: u32) {
        for _ in 0..threads {
            let _ = group.join(false);
        }
    }

    /// A commit that `threads` wait for and that `later` join while it is under way.
    fn commit(group: &mut Group, threads: u32, later: u32) {
        join(group, threads);
        group.started();
        join(group, later);
        group.ended(COMMIT);
    }

    #[test]
    fn a_thread_alone_never_waits() {
        let mut group = Group::default();
        for _ in 0..3 {
            join(&mut group, 1);
            assert_eq!(group.wait(Duration::ZERO), None);
            group.started();
            group.ended(COMMIT);
        }
    }

    #[test]
    fn a_commit_waits_for_the_threads_of_the_last_one_and_no_longer_than_a_commit_takes() {
        let mut group = Group::default();
        commit(&mut group, 1, 7);
        assert_eq!(group.wait(Duration::ZERO), Some(COMMIT), "one is to come back");
        assert_eq!(group.wait(Duration::from_millis(1)), Some(Duration::from_millis(3)));
        assert_eq!(group.wait(COMMIT), None);
        join(&mut group, 1);
        assert_eq!(group.wait(Duration::ZERO), None, "all are there");
        group.started();
        group.ended(COMMIT);
        join(&mut group, 7);
        assert!(group.wait(Duration::ZERO).is_some());
        group.started();
        group.ended(COMMIT);
        // Those that wait for none, because the last one waited in vain.
        commit(&mut group, 7, 0);
        commit(&mut group, 7, 0);
        join(&mut group, 6);
        assert!(group.wait(Duration::ZERO).is_some());
        join(&mut group, 1);
        assert_eq!(group.wait(Duration::ZERO), None, "the one that did not come is not expected again");
    }

    #[test]
    fn a_short_commit_waits_no_longer_than_one_takes() {
        let mut group = Group::default();
        join(&mut group, 2);
        group.started();
        group.ended(SHORT / 2);
        join(&mut group, 1);
        assert!(group.is_short());
        assert_eq!(group.wait(Duration::ZERO), Some(SHORT / 2));
        assert_eq!(group.wait(SHORT / 2), None);
    }

    #[test]
    fn commits_that_waited_in_vain_are_followed_by_more_and_more_that_do_not_wait() {
        let mut group = Group::default();
        commit(&mut group, 2, 1);
        // Two threads, each of which comes back while the other one's commit is under way.
        let mut waits = Vec::new();
        for number in 0..200 {
            waits.extend(group.wait(Duration::ZERO).map(|_| number));
            commit(&mut group, 0, 1);
        }
        assert_eq!(waits, [0, 3, 8, 17, 34, 67, 132, 197]);
        // Once both have come in time, commits wait again.
        for _ in 0..100 {
            commit(&mut group, 2, 0);
        }
        join(&mut group, 1);
        assert!(group.wait(Duration::ZERO).is_some());
    }

    #[test]
    fn the_time_before_the_last_commits_end_does_not_count() {
        let mut group = Group::default();
        let joined = Monotonic::now();
        std::thread::sleep(Duration::from_millis(2));
        assert!(group.waited(joined) >= Duration::from_millis(2));
        group.ended(COMMIT);
        assert!(group.waited(joined) <= group.ended.unwrap().elapsed());
    }

    #[test]
    fn a_commit_waits_for_15_ms_at_most() {
        let mut group = Group::default();
        join(&mut group, 2);
        group.started();
        group.ended(Duration::from_secs(1));
        assert_eq!(group.wait(Duration::ZERO), Some(WAIT_MAX));
    }
}
