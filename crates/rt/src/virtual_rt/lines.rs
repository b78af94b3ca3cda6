//! Cache lines: the CPUs that have each, and the cost of a transfer.
//!
//! A line has one CPU that wrote it last, those that have read it since, and the time until which it is in transfer. A CPU that
//! reads a line that it lacks waits for one transfer. A CPU that changes a line that others have waits for a transfer, unless it
//! has the line, and then until the farthest of the other readers has lost it; such changes happen one after the other. Lines
//! are known by their real addresses, so that false sharing within an object is seen.
//!
//! Source: the MESI protocol; Linux's `cacheline_aligned` and 64 bytes as on x86 and Armv8.

use super::by_address::ByAddress;

/// Bytes of a line.
pub const LINE_BYTES: usize = 64;
/// Lines whose entries lie together.
const PAGE_LINES: usize = 64;

/// How far CPUs are from each other.
///
/// CPUs are numbered so that neighbours have adjacent numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// From the inside out.
    levels: Vec<Level>,
    /// The position of each CPU among its neighbours; CPUs beyond the end are in the order of their numbers.
    places: Vec<usize>,
}

/// CPUs that share something: a cluster, a die, a socket, a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// How many.
    pub cpus: usize,
    /// From one of them to another of them a line takes so long, in nanoseconds.
    pub transfer_ns: u64,
}

impl Topology {
    /// Levels from the inside out. CPUs that no level has together are as far apart as those of the last.
    ///
    /// # Panics
    /// If there is none, or one without CPUs.
    #[must_use]
    pub fn new(levels: &[Level]) -> Self {
        assert!(!levels.is_empty() && levels.iter().all(|level| level.cpus > 0), "levels of at least a CPU");
        Self { levels: levels.to_vec(), places: Vec::new() }
    }

    /// The same machine with CPUs numbered so that the first ones are as far apart as can be: one in each half of the
    /// outermost level, then one in each half of those, and so on, as a scheduler places threads that begin one after the other.
    #[must_use]
    pub fn spread(mut self) -> Self {
        let outermost = self.levels.last().map_or(0, |level| level.cpus);
        let site = |cpu: usize| {
            let (mut rest, mut site, mut within) = (cpu, 0, outermost);
            for inner in self.levels.iter().rev().skip(1).map(|level| level.cpus).chain([1]) {
                let parts = within / inner;
                site += rest % parts * inner;
                (rest, within) = (rest / parts, inner);
            }
            site
        };
        self.places = (0..outermost).map(site).collect();
        self
    }

    fn site(&self, cpu: usize) -> usize {
        self.places.get(cpu).copied().unwrap_or(cpu)
    }

    /// From one CPU to another, in nanoseconds; to itself nothing.
    #[must_use]
    pub fn transfer_ns(&self, from: usize, to: usize) -> u64 {
        if from == to {
            return 0;
        }
        let (from, to) = (self.site(from), self.site(to));
        let shared = self.levels.iter().find(|level| from / level.cpus == to / level.cpus);
        shared.or(self.levels.last()).map_or(0, |level| level.transfer_ns)
    }
}

impl Default for Topology {
    /// A small server: 30 ns between any two CPUs.
    fn default() -> Self {
        Self::new(&[Level { cpus: 1, transfer_ns: 30 }])
    }
}

/// The kind of access to a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineAccess {
    Read,
    Write,
}

/// The CPU that accesses a line, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    pub cpu: usize,
    pub now: u64,
    /// Lines come in half of their time.
    pub is_halved: bool,
}

/// The consequences of an access to a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// Nanoseconds until the line is there.
    pub ns: u64,
    /// Whether another CPU had it.
    pub is_shared: bool,
}

#[derive(Debug)]
struct Line {
    writer: usize,
    /// The other CPUs that have it.
    readers: Vec<usize>,
    /// Until then it is in transfer.
    busy_until: u64,
}

/// The lines of a page of memory.
type Page = [Option<Line>; PAGE_LINES];

/// All lines that were touched.
#[derive(Debug, Default)]
pub struct Lines {
    topology: Topology,
    pages: ByAddress<Box<Page>>,
}

impl Lines {
    pub fn new(topology: Topology) -> Self {
        Self { topology, pages: ByAddress::default() }
    }

    /// From one CPU to another, in nanoseconds.
    pub fn transfer_ns(&self, from: usize, to: usize) -> u64 {
        self.topology.transfer_ns(from, to)
    }

    /// No CPU has the lines of memory that was freed.
    pub fn forget(&mut self, address: usize, bytes: usize) {
        let (first, end) = (address / LINE_BYTES, (address + bytes).div_ceil(LINE_BYTES));
        let mut start = first;
        while start < end {
            let page = start / PAGE_LINES;
            let stop = end.min((page + 1) * PAGE_LINES);
            if stop - start == PAGE_LINES {
                self.pages.remove(&page);
            } else if let Some(lines) = self.pages.get_mut(&page) {
                lines[start % PAGE_LINES..=(stop - 1) % PAGE_LINES].fill_with(|| None);
            }
            start = stop;
        }
    }

    /// An access to the line of an address.
    pub fn access(&mut self, address: usize, visit: Visit, access: LineAccess) -> Transfer {
        let Visit { cpu, now, is_halved } = visit;
        let topology = &self.topology;
        let way_ns = |from| topology.transfer_ns(from, cpu) / if is_halved { 2 } else { 1 };
        let number = address / LINE_BYTES;
        let page =
            self.pages.entry(number / PAGE_LINES).or_insert_with(|| Box::new([const { None }; PAGE_LINES]));
        let site = &mut page[number % PAGE_LINES];
        let Some(line) = site else {
            *site = Some(Line { writer: cpu, readers: Vec::new(), busy_until: 0 });
            return Transfer::default();
        };
        let has = line.writer == cpu || line.readers.contains(&cpu);
        if has && (access == LineAccess::Read || line.readers.is_empty()) {
            return Transfer::default();
        }
        let fetch = if has { 0 } else { way_ns(line.writer) };
        let wait = line.busy_until.saturating_sub(now);
        let ns = match access {
            LineAccess::Read => {
                line.readers.push(cpu);
                wait + fetch
            }
            LineAccess::Write => {
                // The writer loses its copy by the transfer.
                let kept = has.then_some(line.writer);
                let losers = line.readers.iter().copied().chain(kept).filter(|holder| *holder != cpu);
                let farthest = losers.map(way_ns).max();
                line.writer = cpu;
                line.readers.clear();
                let ns = wait + fetch + farthest.unwrap_or(0);
                line.busy_until = now + ns;
                ns
            }
        };
        Transfer { ns, is_shared: true }
    }

    /// The lines of data that lies under a lock, or that no other CPU changes meanwhile: they come side by side, two in the time
    /// of one.
    pub fn access_data(
        &mut self,
        address: usize,
        bytes: usize,
        visit: Visit,
        access: LineAccess,
    ) -> Transfer {
        let mut all = Transfer::default();
        if bytes == 0 {
            return all;
        }
        for line in address / LINE_BYTES..=(address + bytes - 1) / LINE_BYTES {
            let transfer = self.access(line * LINE_BYTES, visit, access);
            all.ns += transfer.ns;
            all.is_shared |= transfer.is_shared;
        }
        all.ns /= 2;
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs at 10 ns, fours at 40 ns, all else at 100 ns.
    fn lines() -> Lines {
        let level = |cpus, transfer_ns| Level { cpus, transfer_ns };
        Lines::new(Topology::new(&[level(2, 10), level(4, 40), level(8, 100)]))
    }

    fn visit(cpu: usize, now: u64) -> Visit {
        Visit { cpu, now, is_halved: false }
    }

    #[test]
    fn distance_is_that_of_the_innermost_level_that_both_share() {
        let lines = lines();
        let from_zero: Vec<_> = (0..9).map(|cpu| lines.transfer_ns(0, cpu)).collect();
        assert_eq!(from_zero, [0, 10, 40, 40, 100, 100, 100, 100, 100]);
        assert_eq!(lines.transfer_ns(2, 3), 10);
        assert_eq!(lines.transfer_ns(5, 3), 100);
    }

    #[test]
    fn spread_cpus_fill_the_outermost_halves_in_turns() {
        let level = |cpus, transfer_ns| Level { cpus, transfer_ns };
        let spread = Topology::new(&[level(2, 10), level(4, 40), level(8, 100)]).spread();
        let from_zero: Vec<_> = (0..9).map(|cpu| spread.transfer_ns(0, cpu)).collect();
        assert_eq!(from_zero, [0, 100, 40, 100, 10, 100, 40, 100, 100]);
    }

    #[test]
    fn line_of_ones_own_costs_nothing_and_one_of_another_a_transfer() {
        let mut lines = lines();
        for _ in 0..2 {
            assert_eq!(lines.access(64, visit(0, 5), LineAccess::Write), Transfer::default());
        }
        assert_eq!(lines.access(100, visit(1, 20), LineAccess::Write), Transfer { ns: 10, is_shared: true });
        // Its neighbour is another line.
        assert_eq!(lines.access(128, visit(1, 40), LineAccess::Write), Transfer::default());
    }

    #[test]
    fn readers_share_and_the_next_writer_waits_for_the_farthest() {
        let mut lines = lines();
        lines.access(0, visit(0, 0), LineAccess::Write);
        assert_eq!(lines.access(0, visit(1, 0), LineAccess::Read).ns, 10);
        assert_eq!(lines.access(0, visit(7, 0), LineAccess::Read).ns, 100);
        assert!(!lines.access(0, visit(7, 200), LineAccess::Read).is_shared);
        // CPU 1 has it; CPU 7 is the farthest to lose it.
        assert_eq!(lines.access(0, visit(1, 300), LineAccess::Write).ns, 100);
        // CPU 2 lacks it: from CPU 1, which loses it with the transfer.
        assert_eq!(lines.access(0, visit(2, 500), LineAccess::Write).ns, 40);
    }

    #[test]
    fn changes_by_many_follow_one_another() {
        let mut lines = lines();
        lines.access(0, visit(0, 0), LineAccess::Write);
        assert_eq!(lines.access(0, visit(1, 0), LineAccess::Write).ns, 10);
        // It is in transfer to CPU 1 until 10, then 40 to CPU 2, then from there 10 to CPU 3.
        assert_eq!(lines.access(0, visit(2, 0), LineAccess::Write).ns, 50);
        assert_eq!(lines.access(0, visit(3, 0), LineAccess::Write).ns, 60);
        assert_eq!(lines.access(0, visit(1, 100), LineAccess::Read).ns, 40);
    }

    #[test]
    fn halved_ways_keep_a_line_busy_for_half_as_long() {
        let mut lines = lines();
        lines.access(0, visit(0, 0), LineAccess::Write);
        let halved = |cpu| Visit { is_halved: true, ..visit(cpu, 0) };
        assert_eq!(lines.access(0, halved(4), LineAccess::Write).ns, 50);
        assert_eq!(lines.access(0, halved(0), LineAccess::Write).ns, 100);
        assert_eq!(lines.access(0, visit(4, 0), LineAccess::Write).ns, 200);
    }

    #[test]
    fn lines_of_data_come_two_in_the_time_of_one() {
        let mut lines = lines();
        assert_eq!(lines.access_data(32, 64, visit(0, 0), LineAccess::Write), Transfer::default());
        assert_eq!(lines.access_data(33, 0, visit(4, 0), LineAccess::Write), Transfer::default());
        // Bytes 32 to 96 lie on two lines, 0 to 256 on four, of which two were CPU 0's.
        assert_eq!(
            lines.access_data(0, 256, visit(4, 0), LineAccess::Write),
            Transfer { ns: 100, is_shared: true }
        );
    }
}
