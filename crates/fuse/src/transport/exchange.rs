//! A request with its memory, of whatever source.

use super::codec::{Message, Outcome};
use super::device::Received;

/// A request with its memory, as a form of the transport holds it.
pub(super) trait Exchange: Send + 'static {
    /// The request.
    fn message(&mut self) -> Message<'_>;
    /// Replies, and returns the memory to its owner.
    fn finish(self, outcome: Outcome);
}

impl Exchange for Received {
    fn message(&mut self) -> Message<'_> {
        let header = self.header;
        let (body, body_bytes) = self.memory();
        Message { header, fixed: None, body, body_bytes }
    }

    fn finish(mut self, outcome: Outcome) {
        match outcome {
            Outcome::Done(bytes) => self.send(bytes),
            Outcome::Failed(error) => self.refuse(error),
            Outcome::Silent => {}
        }
        self.end();
    }
}
