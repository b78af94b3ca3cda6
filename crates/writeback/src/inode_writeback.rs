//! The state of an inode in writeback.

use extant_rt::{LockClass, Mutex, MutexGuard};

use crate::context::Key;

/// The state of an inode in writeback, kept in the inode.
#[derive(Debug)]
pub struct InodeWriteback(Mutex<State>);

/// The state under an inode's lock.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Dirty bytes. With any, or with `times`, the inode is listed.
    pub bytes: u64,
    /// Those that its context counts: at least four fifths, and none only if none are dirty. Threads that append to different files of a
    /// context change its count seldom so.
    pub counted: u64,
    /// Its times are to be written.
    pub times: bool,
    /// Its place in a context's lists.
    pub listed: Option<Listed>,
    /// Bytes dirtied since its writer was last looked at.
    pub unthrottled: u64,
    /// It is written without waiting for more.
    pub early: bool,
    /// The thread that writes it has looked at it: its context's lists have it in flight until that thread has ended. One that
    /// was chosen just now is in flight there before.
    pub in_flight: bool,
}

/// The context and the key of an inode on one of its lists, or in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    pub context: usize,
    /// The count of contexts for which it was chosen.
    pub count: usize,
    pub key: Key,
}

/// Bytes of an inode that a context does not count, at most.
const UNCOUNTED_MAX: u64 = 64 << 10;

impl State {
    /// Dirties bytes; how many more the context is to count.
    pub fn dirty(&mut self, bytes: u64) -> u64 {
        self.bytes += bytes;
        self.unthrottled += bytes;
        let uncounted = self.bytes - self.counted;
        let more = if uncounted > (self.counted / 4).min(UNCOUNTED_MAX) { uncounted } else { 0 };
        self.counted += more;
        more
    }

    /// Cleans bytes; how many fewer the context is to count.
    ///
    /// # Panics
    /// In debug builds, if so many were not dirty.
    pub fn clean(&mut self, bytes: u64) -> u64 {
        debug_assert!(bytes <= self.bytes, "{bytes} of {} dirty bytes are cleaned", self.bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
        let fewer = self.counted.saturating_sub(self.bytes);
        self.counted -= fewer;
        fewer
    }
}

impl InodeWriteback {
    /// The state of a clean inode.
    #[must_use]
    pub const fn new() -> Self {
        let clean = State {
            bytes: 0,
            counted: 0,
            times: false,
            listed: None,
            unthrottled: 0,
            early: false,
            in_flight: false,
        };
        Self(Mutex::new(LockClass::INODE_WRITEBACK, clean))
    }

    /// Bytes that are dirty.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Whether anything is dirty, or in flight.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.lock().listed.is_some()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl Default for InodeWriteback {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_counts_most_of_what_is_dirty_and_seldom() {
        const BLOCK: u64 = 4096;
        let mut state = State::default();
        let (mut counted, mut changes) = (0, 0);
        for block in 1..=4096 {
            let more = state.dirty(BLOCK);
            (counted, changes) = (counted + more, changes + u64::from(more > 0));
            assert!(counted <= state.bytes && counted * 5 >= state.bytes * 4, "{counted} of {block} blocks");
            assert!(state.bytes - counted <= UNCOUNTED_MAX);
        }
        assert!((4096 / 17..=4096 / 16 + 32).contains(&changes), "{changes}");
        // In pieces that do not end where what was counted does.
        let mut blocks = 1;
        while state.bytes > 0 {
            counted -= state.clean(state.bytes.min(blocks * BLOCK));
            assert!(counted <= state.bytes && counted * 5 >= state.bytes * 4, "{counted} of {}", state.bytes);
            blocks += 1;
        }
        assert_eq!((counted, state.bytes), (0, 0));
        assert_eq!((state.dirty(1), state.clean(1)), (1, 1), "a byte is counted");
    }
}
