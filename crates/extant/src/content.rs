//! The locks of a file's content in memory, which let a file be written to while it is written back.
//!
//! A thread that holds `INODE` alone excludes all other changes of the content. Three kinds of threads hold it shared: readers
//! through memory, which hold `MAPPING` shared; writers into memory, which hold `MAPPING` alone; and one thread that writes
//! back, which holds `WRITEBACK`, and `MAPPING` only while it looks at pages, allocates blocks and maps them, not while the
//! device works. So a writer waits for copies and for updates, and not for the device.
//!
//! Order: `INODE`, `WRITEBACK`, `MAPPING`.

use extant_rt::{LockClass, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::inode::Inode;

/// The locks inside `INODE`.
#[derive(Debug)]
pub(crate) struct ContentLocks {
    writeback: Mutex<()>,
    mapping: RwLock<()>,
}

impl ContentLocks {
    /// The locks of the inode of a number.
    pub(crate) fn new(number: u64) -> Self {
        Self {
            writeback: Mutex::with_key(LockClass::WRITEBACK, number, ()),
            mapping: RwLock::with_key(LockClass::MAPPING, number, ()),
        }
    }
}

/// Holds a content for reading through memory.
#[derive(Debug)]
pub(crate) struct ReadGuard<'a> {
    _mapping: RwLockReadGuard<'a, ()>,
    _content: RwLockReadGuard<'a, ()>,
}

/// Holds a content for writing into memory.
#[derive(Debug)]
pub(crate) struct WriteGuard<'a> {
    _mapping: RwLockWriteGuard<'a, ()>,
    _content: RwLockReadGuard<'a, ()>,
}

/// Holds a content for writing back.
#[derive(Debug)]
pub(crate) enum WritebackGuard<'a> {
    /// The caller holds `INODE` alone.
    Alone,
    /// Beside others; alone with the pages while it holds `MAPPING`.
    Beside { mapping: &'a RwLock<()>, _writeback: MutexGuard<'a, ()>, _content: RwLockReadGuard<'a, ()> },
}

impl Inode {
    /// Holds the content beside readers and one thread that writes back.
    pub(crate) fn lock_for_reading(&self) -> ReadGuard<'_> {
        let content = self.content.read();
        ReadGuard { _mapping: self.content_locks().mapping.read(), _content: content }
    }

    /// Holds the content beside one thread that writes back.
    pub(crate) fn lock_for_writing(&self) -> WriteGuard<'_> {
        let content = self.content.read();
        WriteGuard { _mapping: self.content_locks().mapping.write(), _content: content }
    }

    /// Holds the content beside threads that read and write in memory.
    pub(crate) fn lock_for_writeback(&self) -> WritebackGuard<'_> {
        let content = self.content.read();
        let ContentLocks { writeback, mapping } = self.content_locks();
        WritebackGuard::Beside { mapping, _writeback: writeback.lock(), _content: content }
    }

    /// As [`Inode::lock_for_writeback`], unless another thread holds it alone or writes back.
    pub(crate) fn try_lock_for_writeback(&self) -> Option<WritebackGuard<'_>> {
        let content = self.content.try_read()?;
        let ContentLocks { writeback, mapping } = self.content_locks();
        Some(WritebackGuard::Beside { mapping, _writeback: writeback.try_lock()?, _content: content })
    }
}

impl<'a> WritebackGuard<'a> {
    /// No other thread reads or writes in memory until it is dropped.
    pub(crate) fn mapping(&self) -> Option<RwLockWriteGuard<'a, ()>> {
        match self {
            Self::Alone => None,
            Self::Beside { mapping, .. } => Some(mapping.write()),
        }
    }
}
