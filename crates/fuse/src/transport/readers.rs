//! Threads that read `/dev/fuse`: one, and more only while requests queue.
//!
//! Readers wait in turns: with two, each request of a lone caller wakes the one that has slept longest, on another CPU.
//! So the first is alone until it twice in a row finds another request waiting behind the one it has read; a further
//! reader goes once it twice in a row finds none. While the machine is quiet ([`Quiet`]), the first gives its turn to the
//! near one ([`Near`]), which keeps to the CPU of its caller ([`Seat`]).
//!
//! Locks: `REQUESTS`, over nothing.

use std::io;
use std::time::Duration;

use extant_rt::{Arc, Condvar, JoinHandle, LockClass, Monotonic, Mutex};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::device::{Device, Received};
use super::near::{Near, PUT_OFF_EVERY};
use super::placement::{Home, Seat};
use super::pool::Pool;
use super::quiet::{Policy, Quiet};
use super::service::{Exchange, Service};
use crate::ops::Ops;

/// Requests from one look at what waits and what runs to the next: a look costs as much as a short request.
const LOOK_EVERY: u32 = 16;
/// The near reader looks less often: it is watched.
const NEAR_LOOK_EVERY: u32 = 64;
/// Looks in a row that must agree.
const STREAK: i32 = 2;
/// What holds up those behind it: after an answer that took so long, one look suffices, at the next request.
const LONG: Duration = Duration::from_millis(1);
/// How long the near reader waits for a request before it looks whether it still is its turn.
const NEAR_WAIT: Duration = Duration::from_millis(20);
/// Requests in a row that were waited for, until the caller is looked for on the next CPU. Each costs as much as ten that
/// were not.
const WAITS_MAX: u32 = 3;
/// A caller that is away for so long sleeps, wherever it is.
const SLEEP: Duration = Duration::from_millis(1);

#[derive(Debug, Default)]
struct State {
    /// Readers that read; the others wait.
    active: usize,
    threads: Vec<JoinHandle<()>>,
    ends: bool,
}

/// The readers of a mount.
#[derive(Debug)]
pub(super) struct Readers<T> {
    service: Arc<Service<T>>,
    pool: Pool,
    device: Arc<Device>,
    home: Home,
    readers_max: usize,
    near: Near,
    state: Mutex<State>,
    changed: Condvar,
}

impl<T: Ops> Readers<T> {
    pub(super) fn new(service: Arc<Service<T>>, device: Arc<Device>, home: Home) -> Arc<Self> {
        Arc::new(Self {
            service,
            pool: Pool::new(home),
            device,
            home,
            readers_max: extant_rt::available_parallelism(),
            near: Near::new(),
            state: Mutex::new(LockClass::REQUESTS, State { active: 1, ..State::default() }),
            changed: Condvar::new(),
        })
    }

    /// Answers requests until it is unmounted and all others have ended.
    ///
    /// # Errors
    /// Those of reading requests.
    pub(super) fn run(self: &Arc<Self>) -> io::Result<()> {
        let readers = self.clone();
        let near = extant_rt::spawn("extant-near", move || {
            readers.read_near();
            readers.near.end();
        });
        let end = self.read(0, &self.device);
        self.near.end();
        let mut threads = {
            let mut state = self.state.lock();
            state.ends = true;
            std::mem::take(&mut state.threads)
        };
        self.changed.notify_all();
        threads.extend(near);
        for thread in threads {
            // A panic has been told where it happened.
            let _ = thread.join();
        }
        end
    }

    fn read(self: &Arc<Self>, index: usize, device: &Arc<Device>) -> io::Result<()> {
        let mut quiet = Quiet::new();
        let (mut until_look, mut streak) = (LOOK_EVERY, 0_i32);
        while let Some(request) = device.receive()? {
            // The next request stands behind a FORGET, for which nobody waits.
            until_look -= u32::from(!request.is_forget());
            let looks = until_look == 0;
            let mut is_quiet = false;
            if looks {
                until_look = LOOK_EVERY;
                streak = if device.has_more(Duration::ZERO) { streak.max(0) + 1 } else { streak.min(0) - 1 };
                if streak >= STREAK {
                    self.add();
                    streak = 0;
                }
                is_quiet = self.is_one() && quiet.look();
            }
            let start = Monotonic::now();
            self.answer(request);
            if start.elapsed() >= LONG {
                (until_look, streak) = (1, STREAK - 1);
            }
            if is_quiet && self.near.begin() {
                self.near.watch(self.home);
                quiet.assume(false);
            } else if looks && streak <= -STREAK {
                streak = 0;
                if !self.stay(index) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn answer(&self, request: Received) {
        if let Some((request, outcome)) = self.service.serve(&self.pool, request) {
            request.finish(outcome);
        }
    }

    /// Reads whenever it is the near reader's turn. Ends if the host does not let it, or with the mount.
    fn read_near(&self) {
        let Ok(device) = self.device.duplicate(OFlags::NONBLOCK).map(Arc::new) else { return };
        let mut quiet = Quiet::new();
        let mut seat = Seat::new(self.home);
        while self.near.wait() {
            if Policy::Idle.give(None).is_err() {
                return;
            }
            quiet.assume(true);
            seat.take();
            let (mut taken, mut waited_since, mut waits) = (0_u32, None, 0);
            while self.near.has_turn() {
                let request = match device.receive() {
                    Ok(Some(request)) => request,
                    Err(Errno::AGAIN) => {
                        waited_since.get_or_insert_with(Monotonic::now);
                        device.has_more(NEAR_WAIT);
                        continue;
                    }
                    // The others meet the same.
                    Ok(None) | Err(_) => return,
                };
                taken = taken.wrapping_add(1);
                if taken.is_multiple_of(PUT_OFF_EVERY) {
                    self.near.put_off();
                }
                if taken.is_multiple_of(NEAR_LOOK_EVERY) && !quiet.look() {
                    self.near.give_back();
                }
                // On one CPU the caller's next request is mostly there as soon as this thread runs again.
                if !request.is_forget() {
                    let has_waited =
                        waited_since.take().is_some_and(|since: Monotonic| since.elapsed() < SLEEP);
                    waits = if has_waited { waits + 1 } else { 0 };
                    if waits == WAITS_MAX {
                        waits = 0;
                        seat.change();
                    }
                }
                self.answer(request);
            }
        }
    }

    fn is_one(&self) -> bool {
        self.state.lock().active == 1
    }

    /// One reader more, if they are not too many.
    fn add(self: &Arc<Self>) {
        let mut state = self.state.lock();
        if state.active == self.readers_max || state.ends {
            return;
        }
        if state.threads.len() < state.active {
            let (readers, index) = (self.clone(), state.active);
            let Ok(thread) = extant_rt::spawn("extant-read", move || readers.further(index)) else { return };
            state.threads.push(thread);
        }
        state.active += 1;
        drop(state);
        self.changed.notify_all();
    }

    fn further(self: Arc<Self>, index: usize) {
        // Where the device cannot be opened again, one descriptor serves for all.
        let device = self.device.duplicate(OFlags::empty()).map_or_else(|_| self.device.clone(), Arc::new);
        // The first reader meets the same error and tells it.
        let _ = self.read(index, &device);
    }

    /// Has the last reader wait until it is needed again; false once it is no more.
    fn stay(&self, index: usize) -> bool {
        let mut state = self.state.lock();
        if index == 0 || index + 1 != state.active {
            return true;
        }
        state.active = index;
        while state.active <= index && !state.ends {
            state = self.changed.wait(state);
        }
        !state.ends
    }
}
