//! The locks of a file's content while it is in memory: it is written to while it is written back.
//!
//! `INODE` says that the content stays as it is for whoever holds it alone. Beside each other, holding it shared, are: who
//! reads a file through memory and who writes into memory, with `STEP` shared and alone; and one who writes back, with
//! `FLUSH`, who takes `STEP` for the moments at which he looks at pages, takes blocks and names them, and not while the
//! device works. So a writer waits for copies and for updates, and not for the device.
//!
//! Order: `INODE`, `FLUSH`, `STEP`.

use extant_rt::{LockClass, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::node::Node;

/// The locks inside `INODE`.
#[derive(Debug)]
pub(crate) struct ContentLocks {
    flush: Mutex<()>,
    step: RwLock<()>,
}

impl ContentLocks {
    /// Of the inode of a number.
    pub(crate) fn new(number: u64) -> Self {
        Self {
            flush: Mutex::with_key(LockClass::FLUSH, number, ()),
            step: RwLock::with_key(LockClass::STEP, number, ()),
        }
    }
}

/// Holds a content for reading through memory.
#[derive(Debug)]
pub(crate) struct View<'a> {
    _step: RwLockReadGuard<'a, ()>,
    _content: RwLockReadGuard<'a, ()>,
}

/// Holds a content for writing into memory.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    _step: RwLockWriteGuard<'a, ()>,
    _content: RwLockReadGuard<'a, ()>,
}

/// Holds a content for writing back.
#[derive(Debug)]
pub(crate) enum Flush<'a> {
    /// The caller holds `INODE` alone.
    Alone,
    /// Beside others, but at its steps.
    Beside { step: &'a RwLock<()>, _flush: MutexGuard<'a, ()>, _content: RwLockReadGuard<'a, ()> },
}

impl Node {
    /// Holds the content beside others who read and one who writes back.
    pub(crate) fn view(&self) -> View<'_> {
        let content = self.content.read();
        View { _step: self.content_locks().step.read(), _content: content }
    }

    /// Holds the content beside one who writes back.
    pub(crate) fn change(&self) -> Change<'_> {
        let content = self.content.read();
        Change { _step: self.content_locks().step.write(), _content: content }
    }

    /// Holds the content beside those who read and write in memory.
    pub(crate) fn flush(&self) -> Flush<'_> {
        let content = self.content.read();
        let ContentLocks { flush, step } = self.content_locks();
        Flush::Beside { step, _flush: flush.lock(), _content: content }
    }

    /// As [`Node::flush`], unless somebody holds it alone or writes back.
    pub(crate) fn try_flush(&self) -> Option<Flush<'_>> {
        let content = self.content.try_read()?;
        let ContentLocks { flush, step } = self.content_locks();
        Some(Flush::Beside { step, _flush: flush.try_lock()?, _content: content })
    }
}

impl<'a> Flush<'a> {
    /// Nobody else reads or writes in memory until it is dropped.
    pub(crate) fn step(&self) -> Option<RwLockWriteGuard<'a, ()>> {
        match self {
            Self::Alone => None,
            Self::Beside { step, .. } => Some(step.write()),
        }
    }
}
