//! The simulation: CPUs, their clocks, and which runs next.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::panic::Location;
use std::time::Duration;

use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::by_address::ByAddress;
use super::lines::{LineAccess, Lines, Topology, Transfer, Visit};
use crate::LockClass;
#[cfg(debug_assertions)]
use crate::rank::order;

/// The costs of operations besides the transfers of the lines that they touch, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Reading an atomic.
    pub read_ns: u64,
    /// Changing an atomic; taking and releasing a lock.
    pub write_ns: u64,
    /// From a notification until the CPU that waited goes on.
    pub wake_ns: u64,
    /// The rate that [`copied`] charges.
    pub copy_bytes_per_us: u64,
    /// The cost that [`checksummed`] charges; 0: none.
    pub checksum_ns_per_kib: u64,
    /// Transfers of a contended lock's line until the CPU that waited has the lock.
    pub hand_over_transfers: u64,
}

impl Default for Costs {
    /// A small server. Copies into memory that is taken for it: `extant-bench page-work` measured 555 to 606 ns for 4 KiB.
    fn default() -> Self {
        Self {
            read_ns: 1,
            write_ns: 7,
            wake_ns: 2000,
            copy_bytes_per_us: 7000,
            checksum_ns_per_kib: 0,
            hand_over_transfers: 2,
        }
    }
}

/// A machine to run on. Every thread has a CPU of its own until its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The costs of operations.
    pub costs: Costs,
    /// The times of transfers of lines.
    pub topology: Topology,
    /// The data behind locks, by the name of a lock class.
    pub behind: BTreeMap<String, Behind>,
    /// Names of lock classes that the modelled program has not: taking such a lock costs nothing.
    pub without: HashSet<String>,
    /// A class of locks, or a source file that touches atomics: their lines come, their locks are handed over, and what lies
    /// behind these is done, in half of the time. What is gained says what that class costs.
    pub halved: Option<String>,
}

/// The cost of holding a lock exclusively, instead of that of its value: for a program whose values are others, or lie
/// behind pointers and are not seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// Nanoseconds of work in each hold.
    pub work_ns: u64,
    /// Lines that come from the previous holder of the lock, two in the time of one.
    pub lines: u64,
}

/// The costs of the locks of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockReport {
    /// How often one was taken.
    pub acquired: u64,
    /// How often a CPU waited for one.
    pub contended: u64,
    /// Nanoseconds waited in all.
    pub waited_ns: u64,
}

/// The costs of accesses to lines from one place in the source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineReport {
    /// How often it touched one.
    pub accesses: u64,
    /// How often another CPU had it.
    pub shared: u64,
    /// Nanoseconds waited for those in all.
    pub waited_ns: u64,
    /// The class of the lock, if that is what it touches.
    pub class: Option<&'static str>,
}

/// The times and counts of a simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Each CPU's clock at its end, in nanoseconds: first those of the tasks, then those of spawned threads.
    pub cpus_ns: Vec<u64>,
    /// The costs of locks, by the name of the lock class.
    pub locks: BTreeMap<&'static str, LockReport>,
    /// The costs of lines, by the place of the access: atomics, and locks with what they hold.
    pub lines: BTreeMap<&'static Location<'static>, LineReport>,
}

impl Report {
    /// When the last CPU ended, in nanoseconds.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.cpus_ns.iter().copied().max().unwrap_or(0)
    }
}

/// Where in the source an access is made.
#[derive(Clone, Copy, Debug)]
pub struct AccessSite {
    pub location: &'static Location<'static>,
    /// The class of the lock that is accessed.
    pub class: Option<&'static LockClass>,
}

/// The code that a virtual thread runs.
pub type Task = Box<dyn FnOnce()>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    /// Until another CPU wakes it, or, if a time is given, until then.
    Blocked(Option<u64>),
    Done,
}

struct Cpu {
    clock: u64,
    /// Its number in the topology, which another thread's CPU has after its end.
    place: usize,
    state: State,
    /// How its coroutine gives control back; null before it has started.
    yielder: *const Yielder<(), ()>,
}

/// The running simulation of this thread of the host.
pub struct World {
    pub costs: Costs,
    behind: BTreeMap<String, Behind>,
    without: HashSet<String>,
    halved: Option<String>,
    locks: ByAddress<(&'static LockClass, LockReport)>,
    lines: Lines,
    places: ByAddress<(&'static Location<'static>, LineReport)>,
    pub current: usize,
    /// With how many CPUs it began.
    pub task_count: usize,
    cpus: Vec<Cpu>,
    /// How many numbers in the topology threads have had.
    place_count: usize,
    /// Those of them that no thread has any more.
    left_places: BTreeSet<usize>,
    /// When each CPU but the current one goes on, unless it waits for another.
    due: BTreeSet<(u64, usize)>,
    /// Threads that have a CPU but no coroutine yet.
    born: Vec<Task>,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

/// The simulation, if one runs on this thread and a virtual CPU has called.
pub fn with<T>(ask: impl FnOnce(&mut World) -> T) -> Option<T> {
    WORLD.try_with(|world| world.borrow_mut().as_mut().map(ask)).ok().flatten()
}

/// No CPU has the lines of memory that was freed; memory of the simulation itself has no lines.
pub fn forget(address: usize, bytes: usize) {
    let _ = WORLD.try_with(|world| {
        if let Ok(Some(world)) = world.try_borrow_mut().as_deref_mut().map(Option::as_mut) {
            world.lines.forget(address, bytes);
        }
    });
}

impl World {
    /// The current CPU's clock.
    pub fn now(&self) -> u64 {
        self.cpus[self.current].clock
    }

    pub fn charge(&mut self, ns: u64) {
        self.cpus[self.current].clock += ns;
    }

    /// Adds a CPU that begins now.
    pub fn add(&mut self, task: Task) -> usize {
        let clock = self.cpus.get(self.current).map_or(0, |cpu| cpu.clock);
        let place = self.left_places.pop_first().unwrap_or(self.place_count);
        self.place_count = self.place_count.max(place + 1);
        self.cpus.push(Cpu { clock, place, state: State::Ready, yielder: std::ptr::null() });
        self.born.push(task);
        self.due.insert((clock, self.cpus.len() - 1));
        self.cpus.len() - 1
    }

    /// The number of a thread's CPU in the topology: the lowest that no other thread had when it began.
    pub fn place(&self, cpu: usize) -> usize {
        self.cpus[cpu].place
    }

    pub fn is_done(&self, cpu: usize) -> bool {
        self.cpus[cpu].state == State::Done
    }

    pub fn is_current(&self, cpu: usize) -> bool {
        self.current == cpu
    }

    /// The current CPU accesses the line of an atomic or, with its class, of a lock.
    pub fn access(&mut self, address: usize, access: LineAccess, site: AccessSite) {
        if self.is_without(site) {
            return;
        }
        let own_ns = match access {
            LineAccess::Read => self.costs.read_ns,
            LineAccess::Write => self.costs.write_ns,
        };
        let transfer = self.lines.access(address, self.visit(site), access);
        self.arrive(transfer, site);
        self.charge(own_ns);
    }

    /// The current CPU accesses data that no CPU changes meanwhile.
    pub fn access_data(&mut self, address: usize, bytes: usize, access: LineAccess, site: AccessSite) {
        if self.is_without(site) {
            return;
        }
        let transfer = self.lines.access_data(address, bytes, self.visit(site), access);
        self.arrive(transfer, site);
    }

    fn visit(&self, site: AccessSite) -> Visit {
        Visit { cpu: self.place(self.current), now: self.now(), is_halved: self.is_halved(site) }
    }

    fn is_halved(&self, AccessSite { location, class }: AccessSite) -> bool {
        let is = |halved: &String| halved == class.map_or(location.file(), |class| class.name);
        self.halved.as_ref().is_some_and(is)
    }

    fn is_without(&self, site: AccessSite) -> bool {
        // Few, and looked for at each access: quicker one by one than by a hash.
        site.class.is_some_and(|class| self.without.iter().any(|without| without == class.name))
    }

    fn arrive(&mut self, transfer: Transfer, AccessSite { location, class }: AccessSite) {
        let fresh =
            || (location, LineReport { class: class.map(|class| class.name), ..LineReport::default() });
        let (_, counts) = self.places.entry(std::ptr::from_ref(location).addr()).or_insert_with(fresh);
        counts.accesses += 1;
        counts.shared += u64::from(transfer.is_shared);
        counts.waited_ns += transfer.ns;
        self.charge(transfer.ns);
    }

    /// Charges the current CPU for the data behind a lock, which comes from the previous holder; false if the machine does
    /// not specify that data.
    pub fn fetch_behind(&mut self, class: &LockClass, site: AccessSite, from: usize) -> bool {
        let Some(Behind { work_ns, lines }) = self.behind.get(class.name).copied() else { return false };
        let ns = work_ns + lines * self.lines.transfer_ns(self.place(from), self.place(self.current)) / 2;
        self.charge(if self.is_halved(site) { ns / 2 } else { ns });
        true
    }

    /// Hands a lock to a blocked CPU, which gets its line and what it needs to see of it; returns its new clock.
    pub fn hand_over(&mut self, cpu: usize, site: AccessSite) -> u64 {
        if self.is_without(site) {
            return self.wake_at(cpu, self.now());
        }
        let ns = self.costs.hand_over_transfers
            * self.lines.transfer_ns(self.place(self.current), self.place(cpu));
        self.wake_at(cpu, self.now() + if self.is_halved(site) { ns / 2 } else { ns })
    }

    /// Lets a blocked CPU go on after a notification.
    pub fn wake(&mut self, cpu: usize) {
        self.wake_at(cpu, self.now() + self.costs.wake_ns);
    }

    fn wake_at(&mut self, cpu: usize, at: u64) -> u64 {
        let woken = &mut self.cpus[cpu];
        if let State::Blocked(Some(until)) = woken.state {
            self.due.remove(&(until.max(woken.clock), cpu));
        }
        woken.state = State::Ready;
        woken.clock = woken.clock.max(at);
        self.due.insert((woken.clock, cpu));
        woken.clock
    }

    /// Whether another CPU's clock is behind the current one's.
    fn is_ahead(&self) -> bool {
        self.due.first().is_some_and(|due| *due < (self.now(), self.current))
    }

    /// The current CPU stops until it is due.
    fn stop(&mut self, state: State) {
        let cpu = &mut self.cpus[self.current];
        cpu.state = state;
        match state {
            State::Ready => self.due.insert((cpu.clock, self.current)),
            State::Blocked(Some(until)) => self.due.insert((until.max(cpu.clock), self.current)),
            State::Blocked(None) | State::Done => false,
        };
    }
}

/// A scheduling point: returns once no other CPU's clock is behind. A panic takes no scheduling points, for a
/// coroutine that unwinds cannot be left.
pub fn reach() {
    while !std::thread::panicking() && with(|world| world.is_ahead()) == Some(true) {
        with(|world| world.stop(State::Ready));
        suspend();
    }
}

/// As [`reach`], and lets a moment go by, so that a loop that polls comes to an end.
pub fn pass() {
    reach();
    with(|world| world.charge(world.costs.write_ns.max(1)));
}

/// As [`reach`], and then accesses the line of `what`.
#[track_caller]
pub fn touch<T>(what: &T, access: LineAccess) {
    let site = AccessSite { location: Location::caller(), class: None };
    reach();
    with(|world| world.access(std::ptr::from_ref(what).addr(), access, site));
}

/// Has the current CPU fetch what a lock guards that it got otherwise than through a gate.
#[track_caller]
pub fn guarded<T>(value: &T, alone: bool) {
    let site = AccessSite { location: Location::caller(), class: None };
    let access = if alone { LineAccess::Write } else { LineAccess::Read };
    with(|world| world.access_data(std::ptr::from_ref(value).addr(), size_of::<T>(), access, site));
}

/// Stops the current CPU until it is woken, or until its clock shows `until`.
pub fn block(until: Option<u64>) {
    with(|world| world.stop(State::Blocked(until)));
    suspend();
}

/// Spends `time` of the current CPU. Outside a simulation it is nothing.
pub fn work(time: Duration) {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    with(|world| world.charge(ns));
}

/// Spends the time of a copy of so many bytes from one place in memory to another.
pub fn copied(bytes: usize) {
    with(|world| world.charge(bytes as u64 * 1000 / world.costs.copy_bytes_per_us.max(1)));
}

/// Spends the time of a checksum over so many bytes.
pub fn checksummed(bytes: usize) {
    with(|world| world.charge(bytes as u64 * world.costs.checksum_ns_per_kib / 1024));
}

/// Counts of locks and lines begin anew, so that a report leaves out what was before. A scheduling point.
pub fn count_anew() {
    reach();
    with(|world| {
        world.locks.clear();
        world.places.clear();
    });
}

#[expect(unsafe_code, reason = "the coroutine's yielder is kept beside it")]
fn suspend() {
    if let Some(yielder) = with(|world| world.cpus[world.current].yielder) {
        // SAFETY: `current` is the CPU whose coroutine runs this very code, on whose stack the yielder lives.
        unsafe { &*yielder }.suspend(());
    }
}

/// The coroutines, by CPU, with the locks that each holds.
#[derive(Default)]
struct Coroutines {
    list: Vec<Coroutine<(), (), ()>>,
    #[cfg(debug_assertions)]
    held: Vec<order::Held>,
}

impl Coroutines {
    /// Gives a coroutine to each CPU that has none.
    fn adopt(&mut self, born: Vec<Task>) {
        for task in born {
            self.list.push(Coroutine::new(|yielder: &Yielder<(), ()>, ()| {
                with(|world| world.cpus[world.current].yielder = std::ptr::from_ref(yielder));
                task();
            }));
            #[cfg(debug_assertions)]
            self.held.push(Vec::new());
        }
    }

    /// Runs a CPU up to its next suspension; true at its end.
    fn resume(&mut self, cpu: usize) -> bool {
        #[cfg(debug_assertions)]
        order::exchange(&mut self.held[cpu]);
        let result = self.list[cpu].resume(());
        #[cfg(debug_assertions)]
        order::exchange(&mut self.held[cpu]);
        matches!(result, CoroutineResult::Return(()))
    }
}

impl Drop for Coroutines {
    fn drop(&mut self) {
        // Younger first: what a thread borrows belongs to an older one (`parallel`).
        while self.list.pop().is_some() {}
        WORLD.with_borrow_mut(|world| *world = None);
    }
}

impl Machine {
    /// Runs the tasks, each on a CPU of its own from time 0, until they and all threads they spawned have ended.
    ///
    /// # Panics
    /// If a simulation already runs on this thread of the host; if every CPU waits for another; and as a task
    /// does, which ends the simulation.
    pub fn run(self, tasks: Vec<Task>) -> Report {
        assert!(with(|_| ()).is_none(), "a simulation within a simulation");
        let mut world = World {
            costs: self.costs,
            behind: self.behind,
            without: self.without,
            halved: self.halved,
            locks: ByAddress::default(),
            lines: Lines::new(self.topology),
            places: ByAddress::default(),
            current: usize::MAX,
            task_count: tasks.len(),
            cpus: Vec::new(),
            place_count: 0,
            left_places: BTreeSet::new(),
            due: BTreeSet::new(),
            born: Vec::new(),
        };
        for task in tasks {
            world.add(task);
        }
        WORLD.with_borrow_mut(|site| *site = Some(world));
        let mut coroutines = Coroutines::default();
        loop {
            coroutines.adopt(with(|world| std::mem::take(&mut world.born)).unwrap_or_default());
            let Some(cpu) = with(World::start_next).flatten() else { break };
            if coroutines.resume(cpu) {
                with(|world| {
                    world.stop(State::Done);
                    world.left_places.insert(world.place(cpu));
                });
            }
        }
        with(World::report).unwrap_or_default()
    }
}

impl World {
    /// Makes the CPU that is due the current one.
    fn start_next(&mut self) -> Option<usize> {
        let (clock, cpu) = self.due.pop_first()?;
        self.current = cpu;
        self.cpus[cpu].clock = clock;
        self.cpus[cpu].state = State::Ready;
        Some(cpu)
    }

    fn report(&mut self) -> Report {
        let stuck: Vec<_> = (0..self.cpus.len()).filter(|cpu| !self.is_done(*cpu)).collect();
        assert!(stuck.is_empty(), "deadlock: the virtual CPUs {stuck:?} wait for each other");
        let cpus_ns = self.cpus.iter().map(|cpu| cpu.clock).collect();
        let mut report = Report { cpus_ns, ..Report::default() };
        // A class or a place may have several addresses.
        for (class, LockReport { acquired, contended, waited_ns }) in
            std::mem::take(&mut self.locks).into_values()
        {
            let sum = report.locks.entry(class.name).or_default();
            sum.acquired += acquired;
            sum.contended += contended;
            sum.waited_ns += waited_ns;
        }
        for (site, LineReport { accesses, shared, waited_ns, class }) in
            std::mem::take(&mut self.places).into_values()
        {
            let sum = report.lines.entry(site).or_default();
            sum.class = class;
            sum.accesses += accesses;
            sum.shared += shared;
            sum.waited_ns += waited_ns;
        }
        report
    }

    /// Counts that a lock of `class` was taken, after a wait if there was one.
    pub fn count(&mut self, class: &'static LockClass, waited_ns: Option<u64>) {
        let (_, counts) = self
            .locks
            .entry(std::ptr::from_ref(class).addr())
            .or_insert_with(|| (class, LockReport::default()));
        counts.acquired += 1;
        counts.contended += u64::from(waited_ns.is_some());
        counts.waited_ns += waited_ns.unwrap_or(0);
    }
}
