//! Requests over io_uring: a ring for each CPU, served by a thread on that CPU.
//!
//! The kernel gives a request to the ring of the CPU that its caller runs on, so that it costs a switch to another thread and
//! back, and wakes no other CPU. A reply and the fetch of the next request are one call. A request that waits for the disk goes
//! to the pool; its thread hands the reply back to the ring's own thread, which alone may submit.
//!
//! FORGET and INTERRUPT still come through `/dev/fuse`.
//!
//! The kernel owns an entry's memory from the submission of its command to the completion, and the server from then on.
//!
//! Locks: `REQUESTS`, over nothing.
//!
//! Source: `Documentation/filesystems/fuse/fuse-io-uring.rst`, `fs/fuse/dev_uring.c`.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use extant_rt::{Arc, AtomicBool, Condvar, JoinHandle, LockClass, Mutex, Ordering};
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, types};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use zerocopy::{FromBytes, IntoBytes};

use super::device::Device;
use super::exchange::Exchange;
use super::placement::{Affinity, pin};
use super::ring_entry::RingEntry;
use super::service::{Pools, Service};
use super::wire::{InterruptIn, RingCommand, opcode, ring};
use crate::ops::Ops;

/// Requests that a ring holds at once; more wait in the kernel.
const DEPTH: usize = 8;
/// The completion that is no request's.
const WAKE: u64 = u64::MAX;

type Ring = IoUring<Entry128, cqueue::Entry>;

/// Replies from the pool that a ring's thread is to submit.
#[derive(Debug)]
struct Returns {
    entries: Mutex<Vec<RingEntry>>,
    event: OwnedFd,
    ends: AtomicBool,
}

impl Returns {
    fn wake(&self) {
        // Its counter does not overflow by as many as there are entries.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

/// A request as a ring's thread holds it.
struct RingRequest {
    entry: RingEntry,
    returns: Arc<Returns>,
}

impl Exchange for RingRequest {
    fn message(&mut self) -> super::codec::Message<'_> {
        self.entry.message()
    }

    fn finish(mut self, outcome: super::codec::Outcome) {
        self.entry.reply(outcome);
        self.returns.entries.lock().push(self.entry);
        self.returns.wake();
    }
}

/// Where threads that start meet the one that starts them.
#[derive(Debug, Default)]
struct Start {
    made: Vec<Arc<Returns>>,
    failed: bool,
    /// The descriptor to serve; nothing before INIT is answered.
    device: Option<Option<Arc<Device>>>,
    /// Why a ring has ended before it was stopped.
    error: Option<io::Error>,
}

#[derive(Debug)]
struct Meeting {
    state: Mutex<Start>,
    changed: Condvar,
    /// Called once a ring has ended before it was stopped.
    broken: OwnedFd,
}

/// Reports, also after a panic, that a ring has ended.
struct Ending<'m>(&'m Meeting);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.0.broken, &1_u64.to_ne_bytes());
    }
}

/// Rings that are made and wait to be used.
#[derive(Debug)]
pub(super) struct Rings {
    meeting: Arc<Meeting>,
    threads: Vec<JoinHandle<()>>,
    pools: Arc<Pools>,
}

impl Rings {
    /// Makes a ring for each CPU; none if the host does not let us.
    pub(super) fn make<T: Ops>(
        service: &Arc<Service<T>>,
        payload_bytes: usize,
        affinity: Affinity,
    ) -> Option<Self> {
        let count = possible_cpus()?;
        let broken = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
        let state = Mutex::new(LockClass::REQUESTS, Start::default());
        let mut rings = Self {
            meeting: Arc::new(Meeting { state, changed: Condvar::new(), broken }),
            threads: Vec::new(),
            pools: Arc::new(Pools::new(affinity)),
        };
        for cpu in 0..count {
            let (service, meeting, pools) = (service.clone(), rings.meeting.clone(), rings.pools.clone());
            let run = move || serve(cpu, payload_bytes, service, &pools, &meeting);
            match extant_rt::spawn("extant-ring", run) {
                Ok(thread) => rings.threads.push(thread),
                Err(_) => rings.meeting.state.lock().failed = true,
            }
        }
        let mut state = rings.meeting.state.lock();
        while !state.failed && state.made.len() < usize::from(count) {
            state = rings.meeting.changed.wait(state);
        }
        let failed = state.failed;
        drop(state);
        // Dropping stops those that were made.
        (!failed).then_some(rings)
    }

    /// Serves requests until it is unmounted.
    ///
    /// # Errors
    /// The errors of reading FORGET, and of a ring that has ended before: its CPU's requests would wait for ever. When the caller
    /// lets the device go the kernel ends the mount.
    pub(super) fn run<T: Ops>(self, service: &Arc<Service<T>>, device: &Arc<Device>) -> io::Result<()> {
        self.meeting.state.lock().device = Some(Some(device.clone()));
        self.meeting.changed.notify_all();
        loop {
            let mut wanted =
                [PollFd::new(device.fd(), PollFlags::IN), PollFd::new(&self.meeting.broken, PollFlags::IN)];
            rustix::io::retry_on_intr(|| poll(&mut wanted, None))?;
            if !wanted[1].revents().is_empty() {
                let error = self.meeting.state.lock().error.take();
                return Err(error.unwrap_or_else(|| io::Error::other("a thread that serves a CPU has ended")));
            }
            let Some(request) = device.receive()? else { break };
            if request.header.opcode == opcode::INTERRUPT {
                if let Ok((InterruptIn { unique }, _)) = InterruptIn::read_from_prefix(request.body()) {
                    service.interrupt(unique);
                }
                continue;
            }
            if let Some((request, outcome)) = service.serve(&self.pools, request) {
                request.finish(outcome);
            }
        }
        Ok(())
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        let made = {
            let mut state = self.meeting.state.lock();
            state.device.get_or_insert(None);
            std::mem::take(&mut state.made)
        };
        self.meeting.changed.notify_all();
        for returns in made {
            // Seen after the event, which the thread reads first.
            returns.ends.store(true, Ordering::Release);
            returns.wake();
        }
        for thread in self.threads.drain(..) {
            // A panic has been reported where it happened.
            let _ = thread.join();
        }
    }
}

/// How many CPUs may ever run: the kernel has a queue for each.
fn possible_cpus() -> Option<u16> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    count_cpus(text.trim())
}

/// Counts a list as `0-3,8`.
fn count_cpus(list: &str) -> Option<u16> {
    let mut count = 0_u16;
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy
    )
}

/// The thread of a ring.
fn serve<T: Ops>(cpu: u16, payload_bytes: usize, service: Arc<Service<T>>, pools: &Pools, meeting: &Meeting) {
    // A CPU that is offline or not allowed to this process makes few requests or none.
    pin(usize::from(cpu));
    let made = Worker::make(cpu, payload_bytes);
    let mut state = meeting.state.lock();
    let Ok(mut worker) = made else {
        state.failed = true;
        meeting.changed.notify_all();
        return;
    };
    state.made.push(worker.returns.clone());
    meeting.changed.notify_all();
    let device = loop {
        match &state.device {
            Some(device) => break device.clone(),
            None => state = meeting.changed.wait(state),
        }
    };
    drop(state);
    if let Some(device) = device {
        worker.device = device.fd().as_raw_fd();
        let ending = Ending(meeting);
        match worker.run(&service, pools) {
            // Unmounted, or stopped.
            Ok(()) => std::mem::forget(ending),
            Err(error) => meeting.state.lock().error = Some(error),
        }
    }
}

/// A ring and its entries.
struct Worker {
    // Goes before the entries: the kernel lets go of them with it.
    ring: Ring,
    cpu: u16,
    device: RawFd,
    /// Entries that the kernel has, by their index.
    entries: Vec<Option<RingEntry>>,
    returns: Arc<Returns>,
}

impl Worker {
    fn make(cpu: u16, payload_bytes: usize) -> io::Result<Self> {
        let mut builder = Ring::builder();
        let builder = builder.setup_single_issuer().setup_defer_taskrun();
        // Each entry and the event at once, and as much again.
        let ring = builder.build((DEPTH as u32 + 1).next_power_of_two())?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let entries = Mutex::new(LockClass::REQUESTS, Vec::new());
        Ok(Self {
            ring,
            cpu,
            device: -1,
            entries: (0..DEPTH).map(|index| Some(RingEntry::new(index, payload_bytes))).collect(),
            returns: Arc::new(Returns { entries, event, ends: AtomicBool::new(false) }),
        })
    }

    /// Serves requests until the kernel has given all entries back, or it is stopped.
    fn run<T: Ops>(&mut self, service: &Arc<Service<T>>, pools: &Pools) -> io::Result<()> {
        for index in 0..DEPTH {
            if let Some(entry) = self.entries[index].take() {
                self.submit(entry, ring::REGISTER)?;
            }
        }
        self.await_event()?;
        let mut alive = DEPTH;
        while alive > 0 {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                // A signal; or the kernel wants completions taken first.
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
            loop {
                let Some(completion) = self.ring.completion().next() else { break };
                if completion.user_data() == WAKE {
                    if !self.take_returns()? {
                        return Ok(());
                    }
                    continue;
                }
                let entry = self.entries.get_mut(completion.user_data() as usize).and_then(Option::take);
                let Some(entry) = entry.filter(|_| completion.result() >= 0) else {
                    // Unmounted.
                    alive -= 1;
                    continue;
                };
                let request = RingRequest { entry, returns: self.returns.clone() };
                #[cfg(test)]
                let request = fail_at(request)?;
                if let Some((mut request, outcome)) = service.serve(pools, request) {
                    request.entry.reply(outcome);
                    self.submit(request.entry, ring::COMMIT_AND_FETCH)?;
                }
                if !self.ring.completion().is_empty() {
                    // This reply does not wait for the next request's.
                    self.ring.submit()?;
                }
            }
        }
        Ok(())
    }

    /// Sends what the pool has answered; false if it is to end.
    fn take_returns(&mut self) -> io::Result<bool> {
        let mut counter = [0; 8];
        // Empty if an earlier wake-up has seen all.
        let _ = rustix::io::read(&self.returns.event, &mut counter);
        if self.returns.ends.load(Ordering::Acquire) {
            return Ok(false);
        }
        self.await_event()?;
        let answered = std::mem::take(&mut *self.returns.entries.lock());
        for entry in answered {
            self.submit(entry, ring::COMMIT_AND_FETCH)?;
        }
        Ok(true)
    }

    fn await_event(&mut self) -> io::Result<()> {
        let event = types::Fd(self.returns.event.as_raw_fd());
        let poll = io_uring::opcode::PollAdd::new(event, PollFlags::IN.bits().into());
        self.push(&Entry128::from(poll.build().user_data(WAKE)))
    }

    /// Gives an entry to the kernel.
    fn submit(&mut self, mut entry: RingEntry, command: u32) -> io::Result<()> {
        let mut bytes = [0; 80];
        let request = RingCommand { commit_id: entry.commit_id(), qid: self.cpu, ..RingCommand::default() };
        bytes[..size_of::<RingCommand>()].copy_from_slice(request.as_bytes());
        let index = entry.index();
        let command = io_uring::opcode::UringCmd80::new(types::Fd(self.device), command).cmd(bytes);
        let command = entry.describe(command).user_data(index as u64);
        self.entries[index] = Some(entry);
        self.push(&command)
    }

    #[expect(unsafe_code, reason = "the ring reads what a command points to")]
    fn push(&mut self, command: &Entry128) -> io::Result<()> {
        // SAFETY: a command of an entry points to the entry's memory, which lives in `entries` until the completion,
        // and the ring goes before them; the other commands point to nothing.
        while unsafe { self.ring.submission().push(command) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }
}

/// The thread at whose request that of its ring fails; negative, panics.
#[cfg(test)]
pub(crate) static FAILS_AT: extant_rt::AtomicU64 = extant_rt::AtomicU64::new(0);

#[cfg(test)]
fn fail_at(mut request: RingRequest) -> io::Result<RingRequest> {
    let (caller, fails_at) =
        (i64::from(request.message().header.pid), FAILS_AT.load(Ordering::SeqCst).cast_signed());
    assert!(caller == 0 || caller != -fails_at, "a fault of the test's");
    if caller != 0 && caller == fails_at {
        Err(io::Error::other("a fault of the test's"))
    } else {
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::count_cpus;

    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!(count_cpus("0"), Some(1));
        assert_eq!(count_cpus("0-1"), Some(2));
        assert_eq!(count_cpus("0-3,8-11,15"), Some(9));
        for wrong in ["", "a", "3-1", "0-65535", "1-"] {
            assert_eq!(count_cpus(wrong), None, "{wrong}");
        }
    }
}
