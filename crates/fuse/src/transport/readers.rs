//! Threads that read `/dev/fuse`: one, and more only while requests queue.
//!
//! Readers wait in turns: with two, each request of a lone caller wakes the one that has slept longest, on another CPU.
//! So the first is alone, near its caller ([`Placement`]), until it twice in a row finds another request waiting behind the
//! one it has read; a further reader goes once it twice in a row finds none. Several float.
//!
//! Locks: `REQUESTS`, over nothing.

use std::io;
use std::time::Duration;

use extant_rt::{Arc, Condvar, JoinHandle, LockClass, Monotonic, Mutex};

use super::device::Device;
use super::placement::{Home, LOOK_EVERY, Placement};
use super::pool::Pool;
use super::service::{Exchange, Service};
use crate::ops::Ops;

/// Looks in a row that must agree.
const STREAK: i32 = 2;
/// What holds up those behind it: after an answer that took so long, one look suffices, at the next request.
const LONG: Duration = Duration::from_millis(1);

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
            state: Mutex::new(LockClass::REQUESTS, State { active: 1, ..State::default() }),
            changed: Condvar::new(),
        })
    }

    /// Answers requests until it is unmounted and all others have ended.
    ///
    /// # Errors
    /// Those of reading requests.
    pub(super) fn run(self: &Arc<Self>) -> io::Result<()> {
        let end = self.read(0, &self.device);
        let threads = {
            let mut state = self.state.lock();
            state.ends = true;
            std::mem::take(&mut state.threads)
        };
        self.changed.notify_all();
        for thread in threads {
            // A panic has been told where it happened.
            let _ = thread.join();
        }
        end
    }

    fn read(self: &Arc<Self>, index: usize, device: &Arc<Device>) -> io::Result<()> {
        let mut placement = Placement::new(self.home);
        let (mut until_look, mut streak) = (LOOK_EVERY, 0_i32);
        while let Some(request) = device.receive()? {
            until_look -= 1;
            let looks = until_look == 0;
            if looks {
                until_look = LOOK_EVERY;
                streak = if device.has_more() { streak.max(0) + 1 } else { streak.min(0) - 1 };
                if streak >= STREAK {
                    self.add();
                    streak = 0;
                }
                // Before the reply: afterwards the caller runs.
                if self.is_one() { placement.follow(request.header.pid) } else { placement.float() }
            }
            let start = Monotonic::now();
            if let Some((request, outcome)) = self.service.serve(&self.pool, request) {
                request.finish(outcome);
            }
            if start.elapsed() >= LONG {
                (until_look, streak) = (1, STREAK - 1);
            }
            if looks && streak <= -STREAK {
                streak = 0;
                if !self.stay(index) {
                    break;
                }
            }
        }
        Ok(())
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
        self.home.float();
        // Where the device cannot be opened again, one descriptor serves for all.
        let device = self.device.duplicate().map_or_else(|_| self.device.clone(), Arc::new);
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
