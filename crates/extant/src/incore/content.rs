//! The locks of a file's content in memory, which let a file be written to while it is written back.
//!
//! A thread that holds `INODE` alone excludes all other changes of the content. Three kinds of threads hold it shared: readers
//! through memory, which hold `MAPPING` shared; writers into memory, which hold `MAPPING` alone; and one thread that writes
//! back, which holds `WRITEBACK`, and `MAPPING` only while it looks at pages, allocates blocks and maps them, not while the
//! device works. So a writer waits for copies and for updates, and not for the device. A writer over blocks that are dirty already holds
//! `MAPPING` shared, as a reader does: it changes what they hold and nothing else.
//!
//! Threads that share a content share no cache line for it: its locks become biased towards them ([`BiasedRwLock`]).
//!
//! Order: `INODE`, `WRITEBACK`, `MAPPING`.

use extant_rt::{BiasedReadGuard, BiasedRwLock, BiasedWriteGuard, LockClass, Mutex, MutexGuard};

/// The locks inside `INODE`.
#[derive(Debug)]
pub(crate) struct ContentLocks {
    pub(super) writeback: Mutex<()>,
    pub(super) mapping: BiasedRwLock<()>,
}

impl ContentLocks {
    /// The locks of the inode of a number.
    pub(crate) fn new(number: u64) -> Self {
        Self {
            writeback: Mutex::with_key(LockClass::WRITEBACK, number, ()),
            mapping: BiasedRwLock::with_key(LockClass::MAPPING, number, ()),
        }
    }
}

/// Holds a content for reading through memory.
#[derive(Debug)]
pub(crate) struct ReadGuard<'a> {
    pub(super) _mapping: BiasedReadGuard<'a, ()>,
    pub(super) _content: BiasedReadGuard<'a, ()>,
}

/// Holds a content for writing into memory.
#[derive(Debug)]
pub(crate) struct WriteGuard<'a> {
    pub(super) _mapping: BiasedWriteGuard<'a, ()>,
    pub(super) _content: BiasedReadGuard<'a, ()>,
}

/// Holds a content for writing back.
#[derive(Debug)]
pub(crate) enum WritebackGuard<'a> {
    /// The caller holds `INODE` alone.
    Alone,
    /// Beside others; alone with the pages while it holds `MAPPING`.
    Beside {
        mapping: &'a BiasedRwLock<()>,
        _writeback: MutexGuard<'a, ()>,
        _content: BiasedReadGuard<'a, ()>,
    },
}

impl<'a> WritebackGuard<'a> {
    /// No other thread reads or writes in memory until it is dropped.
    pub(crate) fn mapping(&self) -> Option<BiasedWriteGuard<'a, ()>> {
        match self {
            Self::Alone => None,
            Self::Beside { mapping, .. } => Some(mapping.write()),
        }
    }
}
