//! A source on a thread of its own, so that reading a tree and writing it overlap.
//!
//! Invariants: at most [`QUEUE_BYTES_MAX`] of content and entries, and one more of them, and [`QUEUE_ITEMS_MAX`] items wait, so memory is
//! bounded whatever the tree. The consumer takes all waiting items at once, and is woken for many items only: a wake-up costs more than a
//! small file does. An error of either end stops the other.
//!
//! Locks: `PIPE`, held for no I/O. Test: `tests/pipe.rs`.

use extant_rt::{Arc, Condvar, HAS_THREADS, LockClass, Mutex, spawn};

use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::flow::{Extent, PIECE_BYTES, REUSED_BYTES, Sink, Source};

/// Content and entries that may wait, in bytes.
const QUEUE_BYTES_MAX: usize = 4 * PIECE_BYTES;

/// Items that may wait.
const QUEUE_ITEMS_MAX: usize = 8192;

/// A sleeping consumer is woken for so much, or at the end.
const WAKING_ITEMS: usize = 256;
const WAKING_BYTES: usize = 2 * PIECE_BYTES;

enum Item {
    Entry(Box<Entry>),
    Content(u64, Vec<u8>),
    Finish,
}

#[derive(Default)]
struct State {
    items: Vec<Item>,
    bytes: usize,
    producer_gone: bool,
    producer_waits: bool,
    consumer_gone: bool,
    consumer_waits: bool,
    failure: Option<Error>,
    /// Buffers whose content is written; no more than were once in use.
    spare: Vec<Vec<u8>>,
}

struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    emptied: Condvar,
}

/// Pours `source` into `sink`, reading on another thread, where the host has threads, while `sink` works on the caller's.
///
/// # Errors
/// The source's or the sink's, whichever failed first; [`Error::Stream`] if the host gives no thread.
pub fn pour_concurrently(
    mut source: impl Source + Send + 'static,
    sink: &mut dyn Sink,
    extent: Extent,
) -> Result<()> {
    if !HAS_THREADS {
        return source.pour(sink, extent);
    }
    let queue = Arc::new(Queue {
        state: Mutex::new(LockClass::PIPE, State::default()),
        filled: Condvar::new(),
        emptied: Condvar::new(),
    });
    let producer = Producer { queue: queue.clone() };
    let reader = spawn("extant-read", move || {
        let mut producer = producer;
        if let Err(error) = source.pour(&mut producer, extent) {
            producer.queue.state.lock().failure = Some(error);
        }
    })
    .map_err(Error::Stream)?;
    let consumed = queue.drain(sink);
    queue.state.lock().consumer_gone = true;
    queue.emptied.notify_all();
    if let Err(panic) = reader.join() {
        std::panic::resume_unwind(panic);
    }
    consumed
}

impl Queue {
    fn put(&self, item: Item, bytes: usize) -> Result<()> {
        let mut state = self.state.lock();
        while state.items.len() >= QUEUE_ITEMS_MAX || state.bytes >= QUEUE_BYTES_MAX {
            if state.consumer_gone {
                return Err(Error::Cancelled);
            }
            state.producer_waits = true;
            state = self.emptied.wait(state);
            state.producer_waits = false;
        }
        if state.consumer_gone {
            return Err(Error::Cancelled);
        }
        state.items.push(item);
        state.bytes += bytes;
        let is_worth_waking = state.items.len() >= WAKING_ITEMS || state.bytes >= WAKING_BYTES;
        if is_worth_waking && std::mem::take(&mut state.consumer_waits) {
            drop(state);
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Everything that waits; none when the producer is gone and nothing does.
    fn take(&self) -> Result<Option<Vec<Item>>> {
        let mut state = self.state.lock();
        while state.items.is_empty() {
            if state.producer_gone {
                return state.failure.take().map_or(Ok(None), Err);
            }
            state.consumer_waits = true;
            state = self.filled.wait(state);
        }
        state.consumer_waits = false;
        state.bytes = 0;
        let items = std::mem::take(&mut state.items);
        if std::mem::take(&mut state.producer_waits) {
            drop(state);
            self.emptied.notify_one();
        }
        Ok(Some(items))
    }

    fn drain(&self, sink: &mut dyn Sink) -> Result<()> {
        while let Some(items) = self.take()? {
            for item in items {
                match item {
                    Item::Entry(entry) => sink.entry(*entry)?,
                    Item::Content(offset, bytes) => {
                        let used = sink.content(offset, bytes)?;
                        if used.capacity() >= REUSED_BYTES {
                            self.state.lock().spare.push(used);
                        }
                    }
                    Item::Finish => sink.finish()?,
                }
            }
        }
        Ok(())
    }
}

/// The source's end. Dropping it, be it by a panic, ends the consumer's waiting.
struct Producer {
    queue: Arc<Queue>,
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.queue.state.lock().producer_gone = true;
        self.queue.filled.notify_all();
    }
}

impl Sink for Producer {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        let bytes = entry.memory_bytes();
        self.queue.put(Item::Entry(Box::new(entry)), bytes)
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let (len, is_reused) = (bytes.len(), bytes.capacity() >= REUSED_BYTES);
        self.queue.put(Item::Content(offset, bytes), len)?;
        Ok(if is_reused { self.queue.state.lock().spare.pop().unwrap_or_default() } else { Vec::new() })
    }

    fn finish(&mut self) -> Result<()> {
        self.queue.put(Item::Finish, 0)
    }
}
