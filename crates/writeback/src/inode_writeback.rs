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

impl InodeWriteback {
    /// The state of a clean inode.
    #[must_use]
    pub const fn new() -> Self {
        let clean =
            State { bytes: 0, times: false, listed: None, unthrottled: 0, early: false, in_flight: false };
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
