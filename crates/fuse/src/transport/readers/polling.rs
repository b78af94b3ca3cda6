//! Polling readers: several at once, each on a CPU of its own, while requests of several callers come densely.
//!
//! A reader that sleeps in `read` is woken by the next request on any CPU, and the callers wait for wake-ups of other CPUs most of
//! the time. A polling reader does not sleep: it asks for a request, and if there is none it lets the callers on its CPU run, whose
//! next request it finds when they wait. Its policy is the usual one, so that it needs no quiet machine. It ends when requests come
//! less densely, when another thread has kept its CPU, and when it sends no replies any more: then its CPU has no callers.

use std::io;
use std::time::Duration;

use extant_rt::{Arc, Monotonic, Ordering};
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::super::device::{Device, Received};
use super::super::exchange::Exchange;
use super::super::load_monitor::Pace;
use super::super::placement::CpuPin;
use super::super::slot::Slot;
use super::super::wire::opcode;
use super::{LOOK_EVERY, POLL_AGAIN, Readers, STREAK, Turn};
use crate::ops::Ops;

/// How long it looks for a request before it leaves reading to the others.
const SPIN: Duration = Duration::from_micros(200);
/// Looks in a row without dense requests, or without a reply of its own, after which it ends.
const LOOKS_MAX: u32 = 3;

impl<T: Ops> Readers<T> {
    /// Polls beside other readers as long as requests come densely and some are of callers on its CPU. None if it goes on as any
    /// other.
    pub(super) fn poll(
        &self,
        role: usize,
        device: &Arc<Device>,
        slot: &Arc<Slot>,
    ) -> io::Result<Option<Turn>> {
        let outboxes = &self.shared.outboxes;
        let Ok(device) = device.duplicate(OFlags::NONBLOCK).map(Arc::new) else {
            return Ok(None);
        };
        let mut cpu_pin = CpuPin::new(self.shared.affinity);
        self.shared.pin(&mut cpu_pin);
        slot.read_from(&device);
        outboxes.open(role);
        let end = self.poll_pinned(role, &device, slot);
        // Else its next reader does, or has by now.
        if slot.has_role() {
            outboxes.close(role);
        }
        self.shared.unpin(&cpu_pin);
        end
    }

    fn poll_pinned(&self, role: usize, device: &Arc<Device>, slot: &Arc<Slot>) -> io::Result<Option<Turn>> {
        let outboxes = &self.shared.outboxes;
        let (mut pace, mut streak, mut until_look) = (Pace::new(), 0, LOOK_EVERY);
        let (mut sent, mut sent_before, mut sparse, mut strange) = (0, 0, 0, 0);
        let mut waited_since = None;
        loop {
            outboxes.flush(role, &mut sent);
            let request = match device.receive() {
                Ok(Some(request)) => request,
                Err(Errno::AGAIN) => {
                    let since: Monotonic = *waited_since.get_or_insert_with(Monotonic::now);
                    if since.elapsed() > SPIN {
                        return Ok(self.leave_to_others(role, slot));
                    }
                    extant_rt::yield_now();
                    continue;
                }
                Ok(None) => return Ok(Some(Turn::Unmounted)),
                Err(error) => return Err(error.into()),
            };
            // Then another thread has had the CPU meanwhile: one that sleeps in `read` is given it sooner.
            let is_late = waited_since.take().is_some_and(|since: Monotonic| since.elapsed() > SPIN);
            until_look -= u32::from(!request.is_forget());
            let looks = until_look == 0;
            if looks {
                until_look = LOOK_EVERY;
                self.shared.watch.put_off();
                streak = if device.has_more(Duration::ZERO) { streak + 1 } else { 0 };
            }
            self.answer_polled(role, slot, request, &mut sent);
            if self.has_left(slot) {
                self.shared.until_polls.store(POLL_AGAIN, Ordering::Relaxed);
                return Ok(Some(Turn::Left));
            }
            if is_late {
                self.shared.until_polls.store(POLL_AGAIN, Ordering::Relaxed);
                return Ok(None);
            }
            if !looks {
                continue;
            }
            if streak >= STREAK {
                self.shared.add_role(true);
                streak = 0;
            }
            sparse = if pace.look(LOOK_EVERY) { 0 } else { sparse + 1 };
            strange = if sent == sent_before { strange + 1 } else { 0 };
            sent_before = sent;
            if strange == LOOKS_MAX {
                return Ok(self.leave_to_others(role, slot));
            }
            if sparse == LOOKS_MAX || self.shared.is_one() {
                return Ok(None);
            }
        }
    }

    /// Gives the role up, unless it is the only one: then none, and the reader goes on as any other.
    fn leave_to_others(&self, role: usize, slot: &Slot) -> Option<Turn> {
        // Before the role is another's.
        self.shared.outboxes.close(role);
        self.shared.remove_role(role, slot).then_some(Turn::Left)
    }

    /// Answers one request, unless it is kept. The reply may be another reader's to send.
    fn answer_polled(&self, role: usize, slot: &Slot, request: Received, sent: &mut u32) {
        if request.header.opcode == opcode::INTERRUPT {
            return self.shared.interrupt(request);
        }
        slot.begin(&request.header);
        self.shared.watch.begin();
        if let Some(mut request) = self.shared.keep_or(slot, request) {
            let outcome = self.service.answer(&mut request.message());
            self.shared.outboxes.reply(role, request, outcome, sent);
            slot.end();
        }
    }
}
