//! Replies that the polling reader on the caller's CPU sends, whichever reader answered the request.
//!
//! A reply that wakes a caller on another CPU interrupts that CPU, which on virtual machines costs ten times what a short request
//! costs. `/dev/fuse` gives all CPUs' requests to any reader and does not say where a caller runs, and `/proc` must not be asked
//! (`placement`). So it is found by the time that replies take: a caller whose reply took long is looked for at the next reader.
//!
//! Locks: `READERS`, over nothing.

use std::time::Duration;

use extant_rt::{AtomicBool, AtomicUsize, LockClass, Mutex, Ordering, Padded};
use rustix::time::{ClockId, clock_gettime};

use super::codec::Outcome;
use super::device::Received;
use super::exchange::Exchange;

/// Entries of the table of callers; those whose numbers differ by a multiple share one.
const CALLERS: usize = 256;
/// A reply that takes this much of its thread's time interrupted another CPU.
const FAR: Duration = Duration::from_micros(12);
/// Replies of a reader from one whose time is taken to the next: that costs a tenth of a short request.
const TIMED_EVERY: u32 = 4;

/// An answered request.
type Answered = (Received, Outcome);

#[derive(Debug)]
struct Outbox {
    /// There may be replies, so that a reader that looks again and again takes no lock.
    has_replies: AtomicBool,
    /// None without a polling reader.
    replies: Mutex<Option<Vec<Answered>>>,
}

/// The outboxes of all readers, by the numbers of their roles.
#[derive(Debug)]
pub(super) struct Outboxes {
    all: Box<[Padded<Outbox>]>,
    /// The reader on each caller's CPU, as a hint.
    homes: Box<[AtomicUsize]>,
}

impl Outboxes {
    /// All closed.
    pub(super) fn new(roles_max: usize) -> Self {
        let closed =
            || Outbox { has_replies: AtomicBool::new(false), replies: Mutex::new(LockClass::READERS, None) };
        Self {
            all: (0..roles_max).map(|_| Padded(closed())).collect(),
            homes: (0..CALLERS).map(|_| AtomicUsize::new(usize::MAX)).collect(),
        }
    }

    fn home(&self, request: &Received) -> &AtomicUsize {
        &self.homes[request.header.pid as usize % CALLERS]
    }

    /// Opens the outbox of a role whose reader begins to poll.
    pub(super) fn open(&self, role: usize) {
        self.all[role].0.replies.lock().get_or_insert_default();
    }

    /// Closes it and sends what is in it.
    pub(super) fn close(&self, role: usize) {
        let replies = self.all[role].0.replies.lock().take();
        for (request, outcome) in replies.into_iter().flatten() {
            request.finish(outcome);
        }
    }

    /// Sends what is in the outbox of the calling thread's role.
    pub(super) fn flush(&self, role: usize, sent: &mut u32) {
        let outbox = &self.all[role].0;
        if !outbox.has_replies.load(Ordering::Acquire) {
            return;
        }
        outbox.has_replies.store(false, Ordering::Relaxed);
        let replies = outbox.replies.lock().as_mut().map(std::mem::take);
        for (request, outcome) in replies.into_iter().flatten() {
            self.send(role, request, outcome, sent);
        }
    }

    /// Sends the reply to a request that the reader of `role` answered, or has its caller's reader send it; whether that is another
    /// one.
    pub(super) fn reply(&self, role: usize, request: Received, outcome: Outcome, sent: &mut u32) -> bool {
        if request.is_forget() {
            request.finish(outcome);
            return false;
        }
        // Relaxed, here and below: a hint.
        let home = self.home(&request).load(Ordering::Relaxed);
        if home != role
            && let Some(Padded(outbox)) = self.all.get(home)
            && let Some(replies) = &mut *outbox.replies.lock()
        {
            replies.push((request, outcome));
            outbox.has_replies.store(true, Ordering::Release);
            return true;
        }
        self.send(role, request, outcome, sent);
        false
    }

    /// Sends a reply from the reader of `role`, and now and then notes how far it went.
    fn send(&self, role: usize, request: Received, outcome: Outcome, sent: &mut u32) {
        *sent = sent.wrapping_add(1);
        let home = self.home(&request);
        if home.load(Ordering::Relaxed) == role && !sent.is_multiple_of(TIMED_EVERY) {
            return request.finish(outcome);
        }
        let start = thread_time();
        request.finish(outcome);
        let is_far = thread_time().saturating_sub(start) > FAR;
        home.store(if is_far { self.next(role) } else { role }, Ordering::Relaxed);
    }

    /// The polling reader behind that of `role`, in turns.
    fn next(&self, role: usize) -> usize {
        let is_open = |role: &usize| self.all[*role].0.replies.lock().is_some();
        (role + 1..self.all.len()).chain(0..role).find(is_open).unwrap_or(role)
    }
}

/// The time that the calling thread has run.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::UnixStream;

    use extant_rt::Arc;
    use zerocopy::IntoBytes;

    use super::super::device::Device;
    use super::super::wire::{InHeader, opcode};
    use super::*;

    const CALLER: u32 = 7;

    /// A device and its other end.
    fn device() -> (Arc<Device>, UnixStream) {
        let (kernel, own) = UnixStream::pair().expect("sockets");
        kernel.set_nonblocking(true).expect("a socket");
        (Arc::new(Device::new(own.into(), 0)), kernel)
    }

    fn request(device: &Arc<Device>, kernel: &mut UnixStream, opcode: u32) -> Received {
        let len = size_of::<InHeader>() as u32;
        let header = InHeader { len, opcode, unique: 2, pid: CALLER, ..InHeader::default() };
        kernel.write_all(header.as_bytes()).expect("a request");
        device.receive().expect("a request").expect("mounted")
    }

    fn has_reply(kernel: &mut UnixStream) -> bool {
        match kernel.read(&mut [0; 64]) {
            Ok(bytes) => bytes > 0,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                false
            }
        }
    }

    #[test]
    fn callers_reader_sends_the_reply_and_none_is_lost_when_it_ends() {
        let (device, mut kernel) = device();
        let outboxes = Outboxes::new(2);
        (0..2).for_each(|role| outboxes.open(role));
        outboxes.homes[CALLER as usize].store(1, Ordering::Relaxed);
        let (mut sent, mut sent_by_other) = (0, 0);
        let mut reply = |kernel: &mut UnixStream, opcode| {
            let request = request(&device, kernel, opcode);
            outboxes.reply(0, request, Outcome::Done(0), &mut sent)
        };
        assert!(reply(&mut kernel, opcode::GETATTR));
        assert!(!has_reply(&mut kernel));
        outboxes.flush(1, &mut sent_by_other);
        assert!(has_reply(&mut kernel));
        assert!(reply(&mut kernel, opcode::GETATTR));
        outboxes.close(1);
        assert!(has_reply(&mut kernel));
        outboxes.homes[CALLER as usize].store(1, Ordering::Relaxed);
        assert!(!reply(&mut kernel, opcode::GETATTR), "the other reader does not poll");
        assert!(has_reply(&mut kernel));
        assert_eq!((sent, sent_by_other), (1, 1));
    }

    #[test]
    fn caller_is_looked_for_at_polling_readers_alone() {
        let outboxes = Outboxes::new(4);
        assert_eq!(outboxes.next(2), 2);
        outboxes.open(1);
        outboxes.open(2);
        assert_eq!([1, 2].map(|role| outboxes.next(role)), [2, 1]);
    }
}
