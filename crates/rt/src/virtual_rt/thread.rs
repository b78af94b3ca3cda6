//! Threads as virtual CPUs, and the virtual clock.

use std::io;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::world::{self, with};

/// Seconds after 1970 at which every simulation begins: 2026-01-01.
const EPOCH_SECONDS: u64 = 1_767_225_600;

/// A thread that can be waited for.
#[derive(Debug)]
pub struct JoinHandle<T>(Thread<T>);

#[derive(Debug)]
enum Thread<T> {
    Host(std::thread::JoinHandle<T>),
    Virtual(usize),
}

impl JoinHandle<()> {
    /// Waits for the end of the thread.
    ///
    /// # Errors
    /// The panic of the thread; one of a virtual thread ends the simulation instead.
    pub fn join(self) -> std::thread::Result<()> {
        match self.0 {
            Thread::Host(thread) => thread.join(),
            Thread::Virtual(cpu) => {
                wait_for(cpu);
                Ok(())
            }
        }
    }

    /// Whether the thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Thread::Host(thread) => thread.is_finished(),
            Thread::Virtual(cpu) => with(|world| world.is_done(*cpu)).unwrap_or(true),
        }
    }
}

/// Looks at the CPU again and again, a microsecond apart.
fn wait_for(cpu: usize) {
    while with(|world| world.is_done(cpu)) == Some(false) {
        sleep(Duration::from_micros(1));
    }
}

/// Starts a thread called `name`; in a simulation, on a CPU of its own from the present time on.
///
/// # Errors
/// If the host gives no thread.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    if with(|_| ()).is_none() {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        return Ok(JoinHandle(Thread::Host(thread)));
    }
    let cpu = with(|world| world.add(Box::new(run))).unwrap_or_default();
    Ok(JoinHandle(Thread::Virtual(cpu)))
}

/// Whether `thread` is the one that asks, which cannot join itself.
#[must_use]
pub fn is_current<T>(thread: &JoinHandle<T>) -> bool {
    match &thread.0 {
        Thread::Host(thread) => thread.thread().id() == std::thread::current().id(),
        Thread::Virtual(cpu) => with(|world| world.is_current(*cpu)).unwrap_or(false),
    }
}

/// Whether the caller is a virtual CPU.
pub(crate) fn is_simulated() -> bool {
    with(|_| ()).is_some()
}

/// Calls `run` with each index below `count`, each on a thread of its own, and returns the results in that order
/// once all have ended.
///
/// # Panics
/// As `run` does; in a simulation, that ends it.
pub fn parallel<T: Send>(count: usize, run: impl Fn(usize) -> T + Sync) -> Vec<T> {
    if with(|_| ()).is_none() {
        return std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = (0..count).map(|index| scope.spawn(move || run(index))).collect();
            let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
            joined.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
    }
    let mut results: Vec<_> = (0..count).map(|_| None).collect();
    let run = &run;
    let tasks = results.iter_mut().enumerate();
    run_all(
        tasks
            .map(|(index, result)| Box::new(move || *result = Some(run(index))) as Box<dyn FnOnce()>)
            .collect(),
    );
    results.into_iter().flatten().collect()
}

/// Runs each task on a CPU of its own and returns when all are done.
#[expect(unsafe_code, reason = "what the tasks borrow outlives them, but the type of a task cannot say so")]
fn run_all<'a>(tasks: Vec<Box<dyn FnOnce() + 'a>>) {
    let add = |task| {
        // SAFETY: what the task borrows outlives this call, which returns when the task is done. If the simulation
        // ends before, coroutines are dropped younger first, hence the task before the frames of its caller.
        let task = unsafe { std::mem::transmute::<Box<dyn FnOnce() + 'a>, world::Task>(task) };
        with(|world| world.add(task))
    };
    let cpus: Vec<_> = tasks.into_iter().filter_map(add).collect();
    cpus.into_iter().for_each(wait_for);
}

/// Whether a wait with a timeout ends by itself.
pub const HAS_TIMEOUTS: bool = true;

/// How many threads run at once without taking turns; in a simulation, as many as it began with.
#[must_use]
pub fn available_parallelism() -> usize {
    with(|world| world.task_count)
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// A number of the calling thread to choose a shard by: the lowest that no other thread had when it began.
#[must_use]
pub fn thread_slot() -> usize {
    with(|world| world.place(world.current)).unwrap_or(0)
}

/// Waits for at least `time`.
pub fn sleep(time: Duration) {
    match with(|world| world.now().saturating_add(nanoseconds(time))) {
        Some(until) => world::block(Some(until)),
        None => std::thread::sleep(time),
    }
}

/// Lets others run.
pub fn yield_now() {
    if with(|_| ()).is_some() { world::pass() } else { std::thread::yield_now() }
}

pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A point on a clock that never goes back: the current CPU's, or the host's outside a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Monotonic(Duration);

impl Monotonic {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        static START: OnceLock<Instant> = OnceLock::new();
        let simulated = with(|world| Duration::from_nanos(world.now()));
        Self(simulated.unwrap_or_else(|| START.get_or_init(Instant::now).elapsed()))
    }

    /// How long ago it was.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

/// The time after 1970, of the same begin in every simulation.
pub(crate) fn since_epoch() -> Duration {
    Duration::from_secs(EPOCH_SECONDS) + Monotonic::now().0
}
