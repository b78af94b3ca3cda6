//! Who answers a request: whoever got it, or the pool if such requests wait for the disk.

use extant_rt::{Arc, Monotonic};

use super::codec::{Message, Outcome};
use super::pool::{Pace, Pool};
use super::wire::opcode;
use crate::ops::Ops;

/// A request with its memory, as a form of the transport holds it.
pub(super) trait Exchange: Send + 'static {
    /// What is asked.
    fn message(&mut self) -> Message<'_>;
    /// Replies, and gives the memory back to whom it came from.
    fn finish(self, outcome: Outcome);
}

/// What answers, and how long it lately took.
#[derive(Debug)]
pub(super) struct Service<T> {
    ops: T,
    read: Pace,
    write: Pace,
    sync: Pace,
    allocate: Pace,
    find_block: Pace,
}

impl<T: Ops> Service<T> {
    pub(super) fn new(ops: T) -> Self {
        Self {
            ops,
            read: Pace::default(),
            write: Pace::default(),
            sync: Pace::slow(),
            allocate: Pace::slow(),
            find_block: Pace::slow(),
        }
    }

    pub(super) const fn ops(&self) -> &T {
        &self.ops
    }

    /// The pace of what may wait for the disk.
    const fn pace(&self, kind: u32) -> Option<&Pace> {
        match kind {
            opcode::READ => Some(&self.read),
            opcode::WRITE => Some(&self.write),
            opcode::FSYNC | opcode::FSYNCDIR | opcode::SYNCFS => Some(&self.sync),
            opcode::FALLOCATE => Some(&self.allocate),
            opcode::BMAP => Some(&self.find_block),
            _ => None,
        }
    }

    fn answer(&self, message: &mut Message<'_>) -> Outcome {
        let Some(pace) = self.pace(message.header.opcode) else { return message.answer(&self.ops) };
        let start = Monotonic::now();
        let outcome = message.answer(&self.ops);
        let replied = if let Outcome::Done(bytes) = outcome { bytes } else { 0 };
        pace.note(start.elapsed(), message.body_bytes.max(replied));
        outcome
    }

    /// Answers here, and gives the request back with what is to be sent; or by the pool, which sends it.
    pub(super) fn serve<E: Exchange>(self: &Arc<Self>, pool: &Pool, mut request: E) -> Option<(E, Outcome)> {
        let mut message = request.message();
        let waits = message.is_trim() || self.pace(message.header.opcode).is_some_and(Pace::is_slow);
        if !waits {
            let outcome = self.answer(&mut message);
            return Some((request, outcome));
        }
        let service = self.clone();
        pool.submit(move || {
            let outcome = service.answer(&mut request.message());
            request.finish(outcome);
        });
        None
    }
}
