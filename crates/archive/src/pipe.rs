//! A source on a thread of its own, so that reading a tree and writing it overlap.
//!
//! An error of either end stops the other.
//!
//! Test: `tests/pipe.rs`.

use extant_rt::{Arc, HAS_THREADS, spawn};

use crate::entry::Entry;
use crate::error::{Error, Result};
use crate::flow::{Extent, Sink, Source};
use crate::queue::{Gone, Queue};

/// Items that may wait.
const QUEUE_ITEMS_MAX: usize = 8192;

enum Item {
    Entry(Box<Entry>),
    Content(u64, Vec<u8>),
    Finish,
    /// The source failed.
    Failed(Error),
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
    let queue = Arc::new(Queue::new(QUEUE_ITEMS_MAX));
    let mut producer = Producer(queue.clone());
    let reader = spawn("extant-read", move || {
        if let Err(error) = source.pour(&mut producer, extent) {
            // A consumer that is gone has its own.
            let _ = producer.0.put(Item::Failed(error), 0);
        }
    })
    .map_err(Error::Stream)?;
    let consumed = drain(&queue, sink);
    queue.abandon();
    if let Err(panic) = reader.join() {
        std::panic::resume_unwind(panic);
    }
    consumed
}

fn drain(queue: &Queue<Item>, sink: &mut dyn Sink) -> Result<()> {
    let mut used = Vec::new();
    while let Some(items) = queue.take(&mut used) {
        for item in items {
            match item {
                Item::Entry(entry) => sink.entry(*entry)?,
                Item::Content(offset, bytes) => used.push(sink.content(offset, bytes)?),
                Item::Finish => sink.finish()?,
                Item::Failed(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// The source's end. Dropping it, be it by a panic, ends the consumer's waiting.
struct Producer(Arc<Queue<Item>>);

impl Drop for Producer {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Sink for Producer {
    fn entry(&mut self, entry: Entry) -> Result<()> {
        let bytes = entry.memory_bytes();
        self.0.put(Item::Entry(Box::new(entry)), bytes).map_err(cancelled)
    }

    fn content(&mut self, offset: u64, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let kept = bytes.capacity();
        self.0.put_buffer(Item::Content(offset, bytes), kept).map_err(cancelled)
    }

    fn finish(&mut self) -> Result<()> {
        self.0.put(Item::Finish, 0).map_err(cancelled)
    }
}

fn cancelled(_: Gone) -> Error {
    Error::Cancelled
}
