//! The holders of a lock in virtual time, and the CPUs that wait for it.
//!
//! The value itself is under a lock of the standard library, which the gate keeps free of waiting: a virtual CPU
//! tries that one only once the gate has let it through.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};

use super::lines::LineAccess;
use super::world::{self, AccessSite};
use crate::{LockClass, OnceBox, Rank};

/// How a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Shared,
    Exclusive,
}

#[derive(Debug, Default)]
struct Queue {
    readers: u32,
    is_written: bool,
    /// The CPU that held it exclusively last.
    last: Option<usize>,
    /// CPU, mode, and its clock when it began to wait; the longest first.
    waiting: VecDeque<(usize, Mode, u64)>,
}

/// A lock's place in the order of locks, and its queue: apart from the lock, so that what the lock guards begins on its line, as it does where
/// threads are real.
#[derive(Debug)]
pub struct Gate {
    class: &'static LockClass,
    #[cfg(debug_assertions)]
    key: u64,
    queue: OnceBox<Mutex<Queue>>,
}

/// Leave to use what the gate guards; dropping it hands the lock on.
#[derive(Debug)]
pub struct Pass<'a> {
    /// `None` outside a simulation.
    held: Option<(&'a Gate, Mode)>,
    site: AccessSite,
}

impl Queue {
    fn admits(&self, mode: Mode) -> bool {
        !self.is_written && (mode == Mode::Shared || self.readers == 0)
    }

    fn admit(&mut self, mode: Mode) {
        match mode {
            Mode::Shared => self.readers += 1,
            Mode::Exclusive => self.is_written = true,
        }
    }
}

impl Gate {
    /// A lock's of `class`, that orders by `key` among its kind.
    #[cfg_attr(not(debug_assertions), expect(unused_variables, reason = "the order is not checked"))]
    pub const fn new(class: &'static LockClass, key: u64) -> Self {
        Self {
            class,
            #[cfg(debug_assertions)]
            key,
            queue: OnceBox::new(),
        }
    }

    const fn key(&self) -> u64 {
        #[cfg(debug_assertions)]
        return self.key;
        #[cfg(not(debug_assertions))]
        0
    }

    /// Enters its place in the order of locks.
    pub fn enter_rank(&self) -> Rank {
        Rank::enter(self.class, self.key())
    }

    /// As [`Gate::enter_rank`] without a check.
    pub fn entered_rank(&self) -> Rank {
        Rank::entered(self.class, self.key())
    }

    fn queue(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the lock is the current CPU's.
    #[track_caller]
    pub fn enter(&self, mode: Mode) -> Pass<'_> {
        let site = self.site(Location::caller());
        world::reach();
        let must_wait = world::with(|world| {
            let mut queue = self.queue();
            let free = queue.waiting.is_empty() && queue.admits(mode);
            if free {
                queue.admit(mode);
                world.count(self.class, None);
            } else {
                queue.waiting.push_back((world.current, mode, world.now()));
            }
            world.access(self.address(), LineAccess::Write, site);
            !free
        });
        if must_wait == Some(true) {
            // The CPU that wakes this one has let it through.
            world::block(None);
        }
        Pass { held: must_wait.map(|_| (self, mode)), site }
    }

    fn site(&self, location: &'static Location<'static>) -> AccessSite {
        AccessSite { location, class: Some(self.class) }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Enters if no CPU inside or waiting excludes it; else it changes nothing.
    #[track_caller]
    pub fn try_enter(&self, mode: Mode) -> Option<Pass<'_>> {
        let site = self.site(Location::caller());
        world::reach();
        let entered = world::with(|world| {
            let mut queue = self.queue();
            let free = queue.waiting.is_empty() && queue.admits(mode);
            if free {
                queue.admit(mode);
                world.count(self.class, None);
            }
            world.access(self.address(), if free { LineAccess::Write } else { LineAccess::Read }, site);
            free
        });
        match entered {
            Some(false) => None,
            Some(true) => Some(Pass { held: Some((self, mode)), site }),
            None => Some(Pass { held: None, site }),
        }
    }

    /// Whether a CPU is inside.
    #[track_caller]
    pub fn is_held(&self) -> bool {
        let site = self.site(Location::caller());
        world::reach();
        let ask = || {
            let queue = self.queue();
            queue.is_written || queue.readers > 0
        };
        let asked = world::with(|world| {
            world.access(self.address(), LineAccess::Read, site);
            ask()
        });
        asked.unwrap_or_else(ask)
    }

    fn leave(&self, mode: Mode, site: AccessSite) {
        world::reach();
        self.leave_now(mode, site);
    }

    /// Releases the lock and admits the CPUs that have waited longest and may hold it together.
    fn leave_now(&self, mode: Mode, site: AccessSite) {
        world::with(|world| {
            world.access(self.address(), LineAccess::Write, site);
            let mut queue = self.queue();
            match mode {
                Mode::Shared => queue.readers -= 1,
                Mode::Exclusive => queue.is_written = false,
            }
            while let Some(&(cpu, mode, since)) = queue.waiting.front()
                && queue.admits(mode)
            {
                queue.waiting.pop_front();
                queue.admit(mode);
                let waited_ns = world.hand_over(cpu, site) - since;
                world.count(self.class, Some(waited_ns));
            }
        });
    }
}

impl Pass<'_> {
    /// Whether a virtual CPU holds it.
    pub fn is_virtual(&self) -> bool {
        self.held.is_some()
    }

    /// The CPU that goes through gets what the lock guards: to change it, or beside other readers.
    pub fn fetch<T>(&self, guarded: &T) {
        let Some((gate, mode)) = self.held else { return };
        let access = if mode == Mode::Shared { LineAccess::Read } else { LineAccess::Write };
        let address = std::ptr::from_ref(guarded).addr();
        world::with(|world| {
            if mode == Mode::Exclusive {
                let last = gate.queue().last.replace(world.current);
                if world.fetch_behind(gate.class, self.site, last.unwrap_or(world.current)) {
                    return;
                }
            }
            world.access_data(address, size_of::<T>(), access, self.site);
        });
    }

    /// Gives the lock up without letting others run first.
    pub fn give_up_now(mut self) {
        if let Some((gate, mode)) = self.held.take() {
            gate.leave_now(mode, self.site);
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if let Some((gate, mode)) = self.held {
            gate.leave(mode, self.site);
        }
    }
}
