//! Threads that read `/dev/fuse` and answer the requests that they read.
//!
//! A thread that reads has a role: one of up to as many as there are CPUs, each with a descriptor of its own. Mostly there is one,
//! for readers wait in turns: with two, each request of a lone caller wakes the one that has slept longest, on another CPU. A
//! further role is added once a reader twice in a row finds another request waiting behind the one that it has read, and removed
//! once its reader twice in a row finds none. While requests come densely, readers beside each other do not sleep ([`polling`]).
//!
//! **Leader and follower.** The thread that reads a request answers it, which costs no switch of threads. When it is about to wait
//! (for a lock, a condition, a slow device; [`extant_rt::before_wait`]), it leaves its role to another thread, which reads on. The
//! [`Watch`] finds a request that neither waits nor ends, and takes the role away. So no request holds up an unrelated one. There
//! is always one thread more than is needed.
//!
//! **Bound.** Of each [`Class`] at most [`WAITING_MAX`] requests wait at once, each with its thread. Further ones of the class
//! are kept until one of those has ended, and take over its thread. So there are at most [`Class::COUNT`] times as many
//! threads, and reads go on while writers are throttled.
//!
//! **Idle reader.** While the machine is quiet ([`LoadMonitor`]) the only reader keeps to the CPU of its caller ([`CpuPin`]) and is
//! [`SchedPolicy::Idle`]. It returns to its usual policy before it answers on a machine that it finds busy, and before it waits. If
//! other programs begin to want its CPU in between, the [`Watch`] gives the usual policy back. A thread that may not return to its
//! usual policy is never the idle reader.
//!
//! Locks: `READERS`, under any lock of the engine, over nothing.

mod polling;

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use extant_rt::{Arc, AtomicUsize, Condvar, LockClass, Monotonic, Mutex, MutexGuard, Ordering, Waiter};
use rustix::fs::OFlags;
use rustix::io::Errno;
use zerocopy::FromBytes;

use super::device::{Device, Received};
use super::exchange::Exchange;
use super::load_monitor::{LoadMonitor, Pace, SchedPolicy};
use super::outboxes::Outboxes;
use super::placement::{Affinity, CpuPin};
use super::service::Service;
use super::slot::{Class, Slot};
use super::watch::{PUT_OFF_EVERY, Watch};
use super::wire::{InterruptIn, opcode};
use crate::ops::Ops;

/// Requests of a class that wait at once, each with its thread.
const WAITING_MAX: usize = 96;
/// Threads that are kept without work.
const FREE_MAX: usize = 16;
/// Requests from one look at what waits and what runs to the next: a look costs as much as a short request.
const LOOK_EVERY: u32 = 16;
/// The idle reader looks less often: it is watched.
const IDLE_READER_LOOK_EVERY: u32 = 64;
/// Looks in a row that must agree.
const STREAK: i32 = 2;
/// How long the idle reader waits for a request before it looks whether it still is its turn.
const IDLE_READER_WAIT: Duration = Duration::from_millis(20);
/// Requests in a row that were waited for, until the caller is looked for on the next CPU. Each costs as much as ten that
/// were not.
const WAITS_MAX: u32 = 3;
/// Looks of readers for which none polls after a polling one had to wait.
const POLL_AGAIN: usize = 64;
/// A caller that is away for so long sleeps, wherever it is.
const SLEEP: Duration = Duration::from_millis(1);

/// Which thread reads.
#[derive(Debug, Default)]
struct State {
    /// A descriptor for each role there is, by the role's number.
    devices: Vec<Option<Arc<Device>>>,
    /// Roles that no thread has.
    vacant: Vec<Vacancy>,
    /// The CPUs of polling readers.
    cpus: Vec<usize>,
    /// All threads that answer requests.
    slots: Vec<Arc<Slot>>,
    /// Threads that have nothing to do, or are just being started.
    free: usize,
    /// Threads there are.
    alive: usize,
    /// The requests beyond those that may wait at once.
    kept: [VecDeque<Received>; Class::COUNT],
    ends: bool,
    failure: Option<io::Error>,
}

/// A role that no thread has.
#[derive(Clone, Copy, Debug)]
struct Vacancy {
    role: usize,
    /// The next reader begins by polling.
    polls: bool,
}

impl Vacancy {
    /// The role of a reader that is at a request still. The next one does not poll: what makes one wait may make each wait.
    const fn left(role: usize) -> Self {
        Self { role, polls: false }
    }
}

/// The readers of a mount.
#[derive(Debug)]
pub(super) struct Readers<T> {
    shared: Arc<Shared>,
    service: Arc<Service<T>>,
}

/// The state that readers share, independent of the [`Ops`].
#[derive(Debug)]
struct Shared {
    /// The one that was mounted.
    device: Arc<Device>,
    affinity: Affinity,
    roles_max: usize,
    /// Roles there are. Changed under the lock of the state.
    roles: AtomicUsize,
    outboxes: Outboxes,
    /// Looks of readers until one may poll again, after a polling one had to wait. A hint.
    until_polls: AtomicUsize,
    /// The host lets a thread that was [`SchedPolicy::Idle`] come back.
    can_be_idle_reader: bool,
    watch: Watch,
    /// Requests of each class whose thread has left its role. Changed under the lock of the state.
    waiting: [AtomicUsize; Class::COUNT],
    state: Mutex<State>,
    changed: Condvar,
}

/// A thread, for the locks and devices that it waits for.
struct Attendant {
    shared: Arc<Shared>,
    slot: Arc<Slot>,
}

impl Waiter for Attendant {
    fn before_wait(&self) {
        self.shared.leave(&self.slot);
    }

    fn is_interrupted(&self) -> bool {
        self.slot.is_abandoned()
    }
}

/// Counts a thread out when it ends, whichever way.
struct Alive<'s>(&'s Shared, &'s Arc<Slot>);

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.alive -= 1;
        state.slots.retain(|slot| !Arc::ptr_eq(slot, self.1));
        // After a panic another thread reads on.
        state.vacant.extend(self.1.take_role().map(Vacancy::left));
        drop(state);
        self.0.changed.notify_all();
    }
}

/// How an idle reader goes on.
enum IdleEnd {
    /// Not at all.
    Turn(Turn),
    /// As any other reader.
    Usual,
    /// As a polling one, beside another.
    Polls,
}

/// How a reader's turn has ended.
enum Turn {
    /// Another thread has its role.
    Left,
    /// Unmounted.
    Unmounted,
}

impl<T: Ops> Readers<T> {
    pub(super) fn new(service: Arc<Service<T>>, device: Arc<Device>, affinity: Affinity) -> Arc<Self> {
        Arc::new(Self { shared: Arc::new(Shared::new(device, affinity)), service })
    }

    /// Answers requests until it is unmounted and all threads have ended.
    ///
    /// # Errors
    /// The errors of reading requests.
    pub(super) fn run(self: &Arc<Self>) -> io::Result<()> {
        let shared = self.shared.clone();
        let watcher = extant_rt::spawn("extant-watch", move || shared.watch_readers());
        self.serve();
        if let Ok(watcher) = watcher {
            // A panic has been reported where it happened.
            let _ = watcher.join();
        }
        let mut state = self.shared.state.lock();
        while state.alive > 0 {
            state = self.shared.changed.wait(state);
        }
        state.failure.take().map_or(Ok(()), Err)
    }

    /// One thread more.
    fn add(self: &Arc<Self>, state: &mut State) {
        let readers = self.clone();
        let serve = move || {
            // The thread that starts it may be pinned to a CPU.
            readers.shared.affinity.free(None);
            readers.serve();
        };
        // Detached: it counts itself out. Where the host gives none, those there are do with what there is.
        if extant_rt::spawn("extant-serve", serve).is_ok() {
            state.free += 1;
            state.alive += 1;
        }
    }

    /// The work of a thread until the mount ends or there are enough others.
    fn serve(self: &Arc<Self>) {
        let shared = &self.shared;
        let slot = Arc::new(Slot::new());
        let _alive = Alive(shared, &slot);
        extant_rt::attend(Box::new(Attendant { shared: shared.clone(), slot: slot.clone() }));
        shared.state.lock().slots.push(slot.clone());
        while let Some(vacancy) = self.take_role(&slot) {
            let end = self.read(vacancy, &slot);
            // If the mount has ended, no other thread may take the role, and this thread may wait now.
            slot.take_role();
            let mut state = shared.state.lock();
            match end {
                Ok(Turn::Left) => {
                    if state.free >= FREE_MAX {
                        return;
                    }
                    state.free += 1;
                    continue;
                }
                Ok(Turn::Unmounted) => {}
                Err(error) => state.failure = Some(error),
            }
            state.ends = true;
            drop(state);
            shared.watch.ring();
            shared.changed.notify_all();
            return;
        }
    }

    /// Waits for a role; none once the mount has ended. The thread is free until then.
    fn take_role(self: &Arc<Self>, slot: &Slot) -> Option<Vacancy> {
        let mut state = self.shared.state.lock();
        loop {
            if state.ends {
                return None;
            }
            if let Some(vacancy) = state.vacant.pop() {
                slot.give_role(vacancy.role);
                state.free -= 1;
                if state.free == 0 {
                    self.add(&mut state);
                }
                return Some(vacancy);
            }
            state = self.shared.changed.wait(state);
        }
    }

    /// Reads and answers requests as long as the thread has its role.
    fn read(&self, Vacancy { role, mut polls }: Vacancy, slot: &Arc<Slot>) -> io::Result<Turn> {
        let device = self.shared.state.lock().devices[role].clone();
        let device = device.unwrap_or_else(|| self.shared.device.clone());
        slot.read_from(&device);
        // A polling reader may have left it.
        self.shared.outboxes.close(role);
        let (mut load_monitor, mut pace) = (LoadMonitor::new(), Pace::new());
        let (mut until_look, mut streak, mut dense) = (LOOK_EVERY, 0_i32, 0);
        loop {
            if std::mem::take(&mut polls) {
                if let Some(turn) = self.poll(role, &device, slot)? {
                    return Ok(turn);
                }
                slot.read_from(&device);
                load_monitor.assume(false);
                (pace, streak, dense) = (Pace::new(), 0, 0);
            }
            let Some(request) = device.receive()? else { return Ok(Turn::Unmounted) };
            // The next request is queued behind a FORGET, for which no caller waits.
            until_look -= u32::from(!request.is_forget());
            let looks = until_look == 0;
            if looks {
                until_look = LOOK_EVERY;
                self.shared.watch.put_off();
                streak = if device.has_more(Duration::ZERO) { streak.max(0) + 1 } else { streak.min(0) - 1 };
            }
            self.answer(slot, request);
            if self.has_left(slot) {
                return Ok(Turn::Left);
            }
            if !looks {
                continue;
            }
            dense = if pace.look(LOOK_EVERY) { dense + 1 } else { 0 };
            let is_dense = dense >= STREAK && self.shared.may_poll();
            if streak >= STREAK && self.shared.add_role(is_dense) {
                polls = is_dense;
                streak = 0;
            } else if self.shared.is_one() {
                if self.shared.can_be_idle_reader && load_monitor.look() {
                    match self.read_as_idle_reader(&device, slot)? {
                        IdleEnd::Turn(turn) => return Ok(turn),
                        IdleEnd::Usual => {}
                        IdleEnd::Polls => polls = true,
                    }
                    slot.read_from(&device);
                    load_monitor.assume(false);
                    pace = Pace::new();
                }
            } else if is_dense {
                polls = true;
            } else if streak <= -STREAK {
                streak = 0;
                if self.shared.remove_role(role, slot) {
                    return Ok(Turn::Left);
                }
            }
        }
    }

    /// Answers one request, unless it is kept.
    fn answer(&self, slot: &Slot, request: Received) {
        if request.header.opcode == opcode::INTERRUPT {
            return self.shared.interrupt(request);
        }
        slot.begin(&request.header);
        self.shared.watch.begin();
        if let Some(request) = self.shared.keep_or(slot, request) {
            self.answer_one(slot, request);
        }
    }

    /// Whether another thread has the role of this one, which then has answered the requests that were kept because no thread was
    /// free.
    fn has_left(&self, slot: &Slot) -> bool {
        if slot.has_role() {
            return false;
        }
        while let Some(kept) = self.shared.next_kept_or_end_wait(slot) {
            slot.read_from(kept.device());
            slot.begin(&kept.header);
            self.answer_one(slot, kept);
        }
        true
    }

    fn answer_one(&self, slot: &Slot, mut request: Received) {
        let outcome = self.service.answer(&mut request.message());
        request.finish(outcome);
        slot.end();
    }

    /// Reads as the idle reader as long as the machine is quiet and requests come one by one.
    fn read_as_idle_reader(&self, device: &Arc<Device>, slot: &Arc<Slot>) -> io::Result<IdleEnd> {
        let Ok(device) = device.duplicate(OFlags::NONBLOCK).map(Arc::new) else { return Ok(IdleEnd::Usual) };
        let mut load_monitor = LoadMonitor::new();
        load_monitor.assume(true);
        let mut cpu_pin = CpuPin::new(self.shared.affinity);
        slot.read_from(&device);
        slot.is_idle_reader.store(true, Ordering::SeqCst);
        cpu_pin.take(&[]);
        let _ = SchedPolicy::Idle.give(None);
        let (mut taken, mut waited_since, mut waits) = (0_u32, None, 0);
        let (mut pace, mut streak) = (Pace::new(), 0);
        let end = loop {
            if !slot.is_idle_reader.load(Ordering::SeqCst) {
                break IdleEnd::Usual;
            }
            let request = match device.receive() {
                Ok(Some(request)) => request,
                Err(Errno::AGAIN) => {
                    waited_since.get_or_insert_with(Monotonic::now);
                    device.has_more(IDLE_READER_WAIT);
                    continue;
                }
                Ok(None) => break IdleEnd::Turn(Turn::Unmounted),
                Err(error) => {
                    self.end_idle_reader(slot);
                    return Err(error.into());
                }
            };
            taken = taken.wrapping_add(1);
            let mut polls = false;
            if taken.is_multiple_of(PUT_OFF_EVERY) {
                self.shared.watch.put_off();
                let is_dense = pace.look(PUT_OFF_EVERY);
                streak = if is_dense && device.has_more(Duration::ZERO) { streak + 1 } else { 0 };
                polls = streak >= STREAK && self.shared.may_poll() && self.shared.add_role(true);
            }
            let is_loud = taken.is_multiple_of(IDLE_READER_LOOK_EVERY) && !load_monitor.look();
            if is_loud {
                self.end_idle_reader(slot);
            }
            // On one CPU the caller's next request is mostly there as soon as this thread runs again.
            if !request.is_forget() {
                let has_waited = waited_since.take().is_some_and(|since: Monotonic| since.elapsed() < SLEEP);
                waits = if has_waited { waits + 1 } else { 0 };
                if waits == WAITS_MAX {
                    waits = 0;
                    cpu_pin.change();
                }
            }
            self.answer(slot, request);
            if self.has_left(slot) {
                break IdleEnd::Turn(Turn::Left);
            }
            if polls {
                break IdleEnd::Polls;
            }
            if is_loud {
                break IdleEnd::Usual;
            }
        };
        self.end_idle_reader(slot);
        Ok(end)
    }

    /// The thread that calls reads as all others again.
    fn end_idle_reader(&self, slot: &Slot) {
        slot.is_idle_reader.store(false, Ordering::SeqCst);
        let _ = SchedPolicy::Normal.give(None);
        self.shared.affinity.free(None);
    }
}

impl Shared {
    fn new(device: Arc<Device>, affinity: Affinity) -> Self {
        let roles_max = extant_rt::available_parallelism();
        let state = State {
            devices: vec![Some(device.clone())],
            vacant: vec![Vacancy::left(0)],
            alive: 1,
            free: 1,
            ..State::default()
        };
        Self {
            device,
            affinity,
            roles_max,
            roles: AtomicUsize::new(1),
            outboxes: Outboxes::new(roles_max),
            until_polls: AtomicUsize::new(0),
            can_be_idle_reader: SchedPolicy::can_come_back(),
            watch: Watch::new(),
            waiting: Default::default(),
            state: Mutex::new(LockClass::READERS, state),
            changed: Condvar::new(),
        }
    }

    /// Whether no polling reader had to wait recently: to leave a role costs as much as many requests. Called at each look.
    fn may_poll(&self) -> bool {
        let left = self.until_polls.load(Ordering::Relaxed);
        self.until_polls.store(left.saturating_sub(1), Ordering::Relaxed);
        left == 0
    }

    /// Whether there is one role. Relaxed: a moment later there may be more.
    fn is_one(&self) -> bool {
        self.roles.load(Ordering::Relaxed) == 1
    }

    /// Pins the polling reader that calls to a CPU that no other one has.
    fn pin(&self, cpu_pin: &mut CpuPin) {
        let mut state = self.state.lock();
        cpu_pin.take(&state.cpus);
        state.cpus.push(cpu_pin.cpu());
    }

    /// Lets it run everywhere again.
    fn unpin(&self, cpu_pin: &CpuPin) {
        let mut state = self.state.lock();
        if let Some(at) = state.cpus.iter().position(|cpu| *cpu == cpu_pin.cpu()) {
            state.cpus.swap_remove(at);
        }
        drop(state);
        self.affinity.free(None);
    }

    /// One role more, if they are not too many; whether there is.
    fn add_role(&self, polls: bool) -> bool {
        let mut state = self.state.lock();
        let roles = self.roles.load(Ordering::Relaxed);
        if roles >= self.roles_max || state.ends {
            return false;
        }
        // Where the device cannot be opened again, one descriptor serves for all.
        let device = self.device.duplicate(OFlags::empty()).map(Arc::new);
        let device = Some(device.unwrap_or_else(|_| self.device.clone()));
        let role = match state.devices.iter().position(Option::is_none) {
            Some(role) => role,
            None => {
                state.devices.push(None);
                state.devices.len() - 1
            }
        };
        state.devices[role] = device;
        self.roles.store(roles + 1, Ordering::Relaxed);
        state.vacant.push(Vacancy { role, polls });
        drop(state);
        self.changed.notify_one();
        true
    }

    /// Takes a role away if it is not the only one; whether it was.
    fn remove_role(&self, role: usize, slot: &Slot) -> bool {
        let mut state = self.state.lock();
        let roles = self.roles.load(Ordering::Relaxed);
        let is_spare = roles > 1 && slot.take_role().is_some();
        if is_spare {
            state.devices[role] = None;
            self.roles.store(roles - 1, Ordering::Relaxed);
        }
        is_spare
    }

    /// Gives a thread's role to another one, for it is about to wait or does not end.
    fn leave(&self, slot: &Slot) {
        let Some(role) = slot.take_role() else { return };
        let mut state = self.state.lock();
        self.vacate(&mut state, role, slot);
        drop(state);
        self.changed.notify_one();
        if slot.is_idle_reader.swap(false, Ordering::SeqCst) {
            let _ = SchedPolicy::Normal.give(Some(slot.thread()));
            self.affinity.free(Some(slot.thread()));
        }
    }

    /// Offers the role that was taken from a thread, which is at a request still.
    fn vacate(&self, state: &mut State, role: usize, slot: &Slot) {
        state.vacant.push(Vacancy::left(role));
        // Relaxed, here and below: a thread that must not miss a change holds the lock.
        self.waiting[slot.wait_as_class()].fetch_add(1, Ordering::Relaxed);
    }

    /// The request, unless so many of its class wait that it is kept for later.
    fn keep_or(&self, slot: &Slot, request: Received) -> Option<Received> {
        let class = slot.class();
        let is_crowded = || self.waiting[class].load(Ordering::Relaxed) >= WAITING_MAX;
        if !is_crowded() {
            return Some(request);
        }
        let mut state = self.state.lock();
        if !is_crowded() {
            return Some(request);
        }
        state.kept[class].push_back(request);
        slot.end();
        None
    }

    /// A kept request of the class as which the thread counts, which it is to answer next; without one it counts no more. Under one
    /// lock: a request that is kept in between would have no thread.
    fn next_kept_or_end_wait(&self, slot: &Slot) -> Option<Received> {
        let mut state = self.state.lock();
        let class = slot.waits_as();
        let kept = state.kept[class].pop_front();
        if kept.is_none() {
            self.waiting[class].fetch_sub(1, Ordering::Relaxed);
        }
        kept
    }

    /// The caller of a request was sent a signal. What is not begun is not done; what is under way asks itself, and if it only
    /// reads its caller does not wait for that.
    fn interrupt(&self, request: Received) {
        let Ok((InterruptIn { unique }, _)) = InterruptIn::read_from_prefix(request.body()) else { return };
        let mut state = self.state.lock();
        if let Some(slot) = state.slots.iter().find(|slot| slot.signal(unique)).cloned() {
            drop(state);
            return slot.let_go(unique);
        }
        for kept in &mut state.kept {
            if let Some(at) = kept.iter().position(|kept| kept.header.unique == unique) {
                let kept = kept.remove(at);
                drop(state);
                if let Some(kept) = kept {
                    kept.refuse(Errno::INTR);
                }
                return;
            }
        }
        drop(state);
        // Another reader has just read it, or it is answered: then the kernel knows.
        request.refuse(Errno::AGAIN);
    }

    /// Takes the roles of readers that are stuck until the mount ends.
    fn watch_readers(&self) {
        let mut seen: Vec<u64> = Vec::new();
        while self.watch.wait() {
            let mut state = self.state.lock();
            if state.ends {
                return;
            }
            let stuck = self.look_at(&state, &mut seen);
            for slot in &stuck {
                if let Some(role) = slot.take_role() {
                    self.vacate(&mut state, role, slot);
                }
            }
            drop(state);
            if !stuck.is_empty() {
                self.changed.notify_all();
            }
        }
    }

    /// The readers that have been at one request since the last look, which are `seen`.
    fn look_at(&self, state: &MutexGuard<'_, State>, seen: &mut Vec<u64>) -> Vec<Arc<Slot>> {
        let before = std::mem::take(seen);
        let mut stuck = Vec::new();
        for slot in state.slots.iter().filter(|slot| slot.has_role()) {
            if slot.is_idle_reader.swap(false, Ordering::SeqCst) || self.can_be_idle_reader {
                // It may have been about to step back; if it has a request, it is looked at again.
                let _ = SchedPolicy::Normal.give(Some(slot.thread()));
                self.affinity.free(Some(slot.thread()));
            }
            let request = slot.request();
            if request == 0 {
                continue;
            }
            if before.contains(&request) {
                stuck.push(slot.clone());
            } else {
                seen.push(request);
            }
        }
        if !seen.is_empty() {
            self.watch.look_again();
        }
        stuck
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::InHeader;
    use super::*;

    #[test]
    fn a_thread_whose_role_is_taken_between_two_requests_leaves_no_count_behind() {
        let device = std::fs::File::open("/dev/null").expect("a file");
        let shared = Shared::new(Arc::new(Device::new(device.into(), 0)), Affinity::current());
        let slot = Slot::new();
        let begin = |opcode| slot.begin(&InHeader { opcode, unique: 2, ..InHeader::default() });
        begin(opcode::GETATTR);
        shared.vacate(&mut shared.state.lock(), 0, &slot);
        begin(opcode::LOOKUP);
        assert!(shared.next_kept_or_end_wait(&slot).is_none());
        let counts = shared.waiting.each_ref().map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [0; Class::COUNT]);
    }
}
