//! A queue between two threads, and buffers that come back through it.
//!
//! Invariants: at most [`QUEUE_BYTES_MAX`] wait, and one item more, so memory is bounded whatever the tree. The
//! consumer takes all waiting items at once, and is woken for many items only: a wake-up costs more than a small file does. The end of either
//! side ends the other's waiting.
//!
//! Locks: `PIPE`, held for no I/O. Test: `tests/pipe.rs`, `tests/disk.rs`.

use extant_rt::{Condvar, LockClass, Mutex, MutexGuard};

use crate::flow::PIECE_BYTES;

/// What may wait, in bytes, and buffers that may wait for their next use.
const QUEUE_BYTES_MAX: usize = 4 * PIECE_BYTES;

/// A sleeping consumer is woken for so much, for half of the items that may wait, or at the end.
const WAKING_ITEMS_MAX: usize = 256;
const WAKING_BYTES: usize = QUEUE_BYTES_MAX / 2;

/// The other end of a queue is gone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Gone;

/// A queue between a producer and a consumer.
pub(crate) struct Queue<T> {
    items_max: usize,
    state: Mutex<State<T>>,
    filled: Condvar,
    emptied: Condvar,
}

struct State<T> {
    items: Vec<T>,
    bytes: usize,
    is_producer_gone: bool,
    is_producer_waiting: bool,
    is_consumer_gone: bool,
    is_consumer_waiting: bool,
    spare: Spare,
}

/// Buffers for their next use.
#[derive(Default)]
struct Spare {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spare {
    fn put(&mut self, buffer: Vec<u8>) {
        if buffer.capacity() > 0 && self.bytes + buffer.capacity() <= QUEUE_BYTES_MAX {
            self.bytes += buffer.capacity();
            self.buffers.push(buffer);
        }
    }

    fn pop(&mut self) -> Vec<u8> {
        let buffer = self.buffers.pop().unwrap_or_default();
        self.bytes -= buffer.capacity();
        buffer
    }
}

impl<T> Queue<T> {
    /// An empty queue, in which so many items may wait.
    pub fn new(items_max: usize) -> Self {
        let state = State {
            items: Vec::new(),
            bytes: 0,
            is_producer_gone: false,
            is_producer_waiting: false,
            is_consumer_gone: false,
            is_consumer_waiting: false,
            spare: Spare::default(),
        };
        Self {
            items_max,
            state: Mutex::new(LockClass::PIPE, state),
            filled: Condvar::new(),
            emptied: Condvar::new(),
        }
    }

    /// Puts an item in that keeps `bytes` of memory, once there is room for it.
    ///
    /// # Errors
    /// The consumer is gone.
    pub fn put(&self, item: T, bytes: usize) -> Result<(), Gone> {
        self.put_and(item, bytes, |_| ())
    }

    /// As [`Queue::put`]. A buffer comes back, empty or one that was used.
    ///
    /// # Errors
    /// As there.
    pub fn put_buffer(&self, item: T, bytes: usize) -> Result<Vec<u8>, Gone> {
        self.put_and(item, bytes, |state| state.spare.pop())
    }

    /// Puts an item in as [`Queue::put`] does, if there is room for it; else it comes back.
    ///
    /// # Errors
    /// As there.
    pub fn offer(&self, item: T, bytes: usize) -> Result<Option<T>, Gone> {
        let state = self.state.lock();
        if state.is_consumer_gone {
            return Err(Gone);
        }
        if self.is_full(&state) {
            return Ok(Some(item));
        }
        self.push(state, item, bytes, |_| ());
        Ok(None)
    }

    fn put_and<R>(&self, item: T, bytes: usize, and: impl FnOnce(&mut State<T>) -> R) -> Result<R, Gone> {
        let mut state = self.state.lock();
        while !state.is_consumer_gone && self.is_full(&state) {
            state.is_producer_waiting = true;
            state = self.emptied.wait(state);
        }
        if state.is_consumer_gone {
            return Err(Gone);
        }
        Ok(self.push(state, item, bytes, and))
    }

    fn is_full(&self, state: &State<T>) -> bool {
        state.items.len() >= self.items_max || state.bytes >= QUEUE_BYTES_MAX
    }

    fn push<R>(
        &self,
        mut state: MutexGuard<'_, State<T>>,
        item: T,
        bytes: usize,
        and: impl FnOnce(&mut State<T>) -> R,
    ) -> R {
        state.items.push(item);
        state.bytes += bytes;
        let result = and(&mut state);
        let is_worth_waking =
            state.items.len() >= WAKING_ITEMS_MAX.min(self.items_max / 2) || state.bytes >= WAKING_BYTES;
        if is_worth_waking && std::mem::take(&mut state.is_consumer_waiting) {
            drop(state);
            self.filled.notify_one();
        }
        result
    }

    /// Returns once the consumer has done everything that was put in.
    ///
    /// # Errors
    /// The consumer is gone.
    pub fn wait_until_done(&self) -> Result<(), Gone> {
        let mut state = self.state.lock();
        loop {
            if state.is_consumer_gone {
                return Err(Gone);
            }
            if state.items.is_empty() && state.is_consumer_waiting {
                return Ok(());
            }
            if std::mem::take(&mut state.is_consumer_waiting) {
                self.filled.notify_one();
            }
            state.is_producer_waiting = true;
            state = self.emptied.wait(state);
        }
    }

    /// Takes everything that waits, once there is something; none when the producer is gone. Buffers that are `used` go back.
    pub fn take(&self, used: &mut Vec<Vec<u8>>) -> Option<Vec<T>> {
        let mut state = self.state.lock();
        used.drain(..).for_each(|buffer| state.spare.put(buffer));
        while state.items.is_empty() {
            if state.is_producer_gone {
                return None;
            }
            state.is_consumer_waiting = true;
            if std::mem::take(&mut state.is_producer_waiting) {
                self.emptied.notify_one();
            }
            state = self.filled.wait(state);
        }
        state.is_consumer_waiting = false;
        state.bytes = 0;
        let items = std::mem::take(&mut state.items);
        if std::mem::take(&mut state.is_producer_waiting) {
            drop(state);
            self.emptied.notify_one();
        }
        Some(items)
    }

    /// Nothing more is put in.
    pub fn end(&self) {
        self.state.lock().is_producer_gone = true;
        self.filled.notify_all();
    }

    /// Nothing more is taken out.
    pub fn abandon(&self) {
        self.state.lock().is_consumer_gone = true;
        self.emptied.notify_all();
    }
}
