//! The choice of the thread that answers a request: its reader, or one of the pool if such requests wait for the disk.

use std::panic::AssertUnwindSafe;

use extant_rt::{Arc, Monotonic};
use rustix::io::Errno;

use super::codec::{Message, Outcome};
use super::exchange::Exchange;
use super::placement::Affinity;
use super::pool::Pool;
use super::slot::Class;
use super::slots::Slots;
use super::wire::opcode;
use crate::latency::LatencyEwma;
use crate::ops::Ops;

/// The [`Ops`] that answer requests, and how long recent answers took.
#[derive(Debug)]
pub(super) struct Service<T> {
    ops: T,
    /// The latencies of requests over rings, by [`Class`].
    latencies: [LatencyEwma; Class::COUNT],
    /// The slots of the threads that answer those requests.
    slots: Slots,
}

/// Threads for requests over rings that wait, for each class its own: throttled writers take none of those that reads need.
#[derive(Debug)]
pub(super) struct Pools([Pool; Class::COUNT]);

impl Pools {
    /// Threads that run where `affinity` says.
    pub(super) fn new(affinity: Affinity) -> Self {
        Self(std::array::from_fn(|_| Pool::new(affinity)))
    }
}

impl<T: Ops> Service<T> {
    pub(super) fn new(ops: T) -> Self {
        let latencies = [
            LatencyEwma::default(),
            LatencyEwma::default(),
            LatencyEwma::default(),
            LatencyEwma::slow(),
            LatencyEwma::default(),
        ];
        Self { ops, latencies, slots: Slots::new() }
    }

    pub(super) const fn ops(&self) -> &T {
        &self.ops
    }

    /// Answers a request. A panic, which is a fault of the server, gives the caller `EIO`: what it held is released, and half a
    /// change has stopped the journal.
    pub(super) fn answer(&self, message: &mut Message<'_>) -> Outcome {
        let answer = AssertUnwindSafe(|| message.answer(&self.ops));
        std::panic::catch_unwind(answer).unwrap_or(Outcome::Failed(Errno::IO))
    }

    /// The caller of a request that came over a ring was sent a signal.
    pub(super) fn interrupt(&self, unique: u64) {
        self.slots.interrupt(unique);
    }

    /// Answers a request over a ring and notes how long that took.
    fn answer_timed(&self, class: Class, message: &mut Message<'_>) -> Outcome {
        let start = Monotonic::now();
        let header = message.header;
        let outcome = self.slots.answer(&header, || self.answer(message));
        let outcome = outcome.unwrap_or(Outcome::Failed(Errno::INTR));
        let replied = if let Outcome::Done(bytes) = outcome { bytes } else { 0 };
        self.latencies[class as usize].note(start.elapsed(), message.body_bytes.max(replied));
        outcome
    }

    /// Answers a ring's request here, and gives it back with what is to be sent; or by a pool, which sends it.
    pub(super) fn serve<E: Exchange>(
        self: &Arc<Self>,
        pools: &Pools,
        mut request: E,
    ) -> Option<(E, Outcome)> {
        let mut message = request.message();
        let kind = message.header.opcode;
        let class = Class::of(kind);
        // Some have the kernel write pages back before they are answered, by requests for which a ring's thread is needed.
        let is_long = matches!(kind, opcode::FALLOCATE | opcode::LSEEK | opcode::BMAP | opcode::IOCTL);
        if !is_long && !self.latencies[class as usize].is_slow() {
            let outcome = self.answer_timed(class, &mut message);
            return Some((request, outcome));
        }
        let service = self.clone();
        pools.0[class as usize].submit(move || {
            let outcome = service.answer_timed(class, &mut request.message());
            request.finish(outcome);
        });
        None
    }
}
