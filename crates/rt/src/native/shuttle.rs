//! The parts from shuttle: every access of an atomic or a lock is a chance for another thread to go on, and the
//! schedule chooses which. All threads share one of the host's.

pub use shuttle::{sync, thread};

use std::time::Duration;

use shuttle::rand::RngCore;
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use sync::PoisonError;
use sync::atomic::{AtomicBool, Ordering};

use crate::Exploration;

/// Seconds after 1970 at which every schedule begins: 2026-01-01.
const EPOCH_SECONDS: u64 = 1_767_225_600;
/// The stack of each thread; the host's default is 8 MiB.
const STACK_BYTES: usize = 1 << 20;
/// More would be an endless loop.
const STEPS_MAX: usize = 10_000_000;
/// The preemptions that a schedule by priorities has, and one: most races need no more.
const DEPTH: usize = 3;

/// A value that is made once.
#[derive(Debug)]
pub struct OnceLock<T> {
    is_made: AtomicBool,
    making: sync::Mutex<()>,
    value: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    /// Not made yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            is_made: AtomicBool::new(false),
            making: sync::Mutex::new(()),
            value: std::sync::OnceLock::new(),
        }
    }

    /// The value, if it was made.
    pub fn get(&self) -> Option<&T> {
        if self.is_made.load(Ordering::SeqCst) { self.value.get() } else { None }
    }

    /// The value, which `make` makes if it was not.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        let value = self.value.get_or_init(make);
        self.is_made.store(true, Ordering::SeqCst);
        value
    }

    /// Sets the value.
    ///
    /// # Errors
    /// The value, if there is one already.
    pub fn set(&self, value: T) -> Result<(), T> {
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        self.value.set(value)?;
        self.is_made.store(true, Ordering::SeqCst);
        Ok(())
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether a wait with a timeout ends by itself: here it ends by a notification alone.
pub const HAS_TIMEOUTS: bool = false;

/// How many threads run at once without taking turns: as if two.
#[must_use]
pub fn available_parallelism() -> usize {
    2
}

/// A number of the calling thread to choose a shard by: threads that begin one after the other have different ones.
#[must_use]
pub fn thread_slot() -> usize {
    shuttle::current::me().into()
}

/// A point on a clock that never goes back: a microsecond for each chance to switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Monotonic(Duration);

impl Monotonic {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        Self(Duration::from_micros(shuttle::current::context_switches() as u64))
    }

    /// How long ago it was.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

/// The time after 1970, of the same begin in every schedule.
pub(crate) fn since_epoch() -> Duration {
    Duration::from_secs(EPOCH_SECONDS) + Monotonic::now().0
}

/// Calls `body` under as many random schedules as asked for, and under as many by priorities (PCT), each with a random
/// number of its own. A schedule that fails is written to a file, which can be replayed.
///
/// # Panics
/// As `body` does; on a deadlock, and after ten million steps.
pub fn explore(exploration: &Exploration, body: impl Fn(u64) + Send + Sync + 'static) {
    let Exploration { schedules, seed, failures, replay } = exploration;
    let body = sync::Arc::new(move || body(shuttle::rand::thread_rng().next_u64()));
    let run = |scheduler: Box<dyn Scheduler + Send>| {
        let mut config = Config::new();
        config.stack_size = STACK_BYTES;
        config.failure_persistence = FailurePersistence::File(Some(failures.clone()));
        config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
        config.silence_warnings = true;
        let body = sync::Arc::clone(&body);
        Runner::new(scheduler, config).run(move || body());
    };
    if let Some(schedule) = replay {
        let replay = ReplayScheduler::new_from_file(schedule);
        return run(Box::new(replay.unwrap_or_else(|error| panic!("{}: {error}", schedule.display()))));
    }
    // Each kind has a thread of the host, and with it all threads of its schedules.
    std::thread::scope(|scope| {
        let random = scope.spawn(|| run(Box::new(RandomScheduler::new_from_seed(*seed, *schedules))));
        run(Box::new(PctScheduler::new_from_seed(*seed, DEPTH, *schedules)));
        random.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
