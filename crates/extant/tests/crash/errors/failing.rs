//! A device that fails at requests of one kind, of one thread or on certain blocks.
//!
//! The order of several threads' requests differs from run to run. So the failing request is chosen by its kind, its thread, the blocks
//! that it touches, and the count of such requests before it.

use std::io::{self, IoSlice};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use extant_block::{BlockDevice, Fault, FaultDevice, MemoryDevice, Operation, Recorder, Request, Tearing};
use extant_ondisk::{Geometry, GroupDescriptor, GroupNumber, Superblock};
use extant_rt::Arc;

use super::Manner;
use crate::explore::Base;

/// The delay of a late error: long enough for requests of other threads.
const LATE: Duration = Duration::from_millis(3);

/// The thread that makes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Caller,
    Journal,
    Tables,
    Writeback,
}

impl Who {
    fn asks() -> Self {
        match thread::current().name() {
            Some("extant-journal" | "extant-checkpoint") => Self::Journal,
            Some("extant-tables") => Self::Tables,
            Some(name) if name.starts_with("writeback-") => Self::Writeback,
            _ => Self::Caller,
        }
    }
}

/// The use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    Superblock,
    Journal,
    Tables,
    Rest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Write,
    Flush,
    Discard,
}

impl Kind {
    fn of(operation: Operation) -> Option<Self> {
        match operation {
            Operation::Read => None,
            Operation::Write | Operation::WriteFua | Operation::WriteZeroes => Some(Self::Write),
            Operation::Flush => Some(Self::Flush),
            Operation::Discard => Some(Self::Discard),
        }
    }
}

/// A set of requests, one of which fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    pub kind: Kind,
    pub by: Option<Who>,
    pub at: Option<Area>,
}

const fn target(kind: Kind, by: Option<Who>, at: Option<Area>) -> Target {
    Target { kind, by, at }
}

pub const TARGETS: [Target; 16] = [
    target(Kind::Flush, None, None),
    target(Kind::Flush, Some(Who::Tables), None),
    target(Kind::Flush, Some(Who::Journal), None),
    target(Kind::Flush, Some(Who::Caller), None),
    target(Kind::Write, None, None),
    target(Kind::Write, None, Some(Area::Superblock)),
    target(Kind::Write, None, Some(Area::Journal)),
    target(Kind::Write, None, Some(Area::Tables)),
    target(Kind::Write, None, Some(Area::Rest)),
    target(Kind::Write, Some(Who::Tables), None),
    target(Kind::Write, Some(Who::Journal), Some(Area::Tables)),
    target(Kind::Write, Some(Who::Journal), Some(Area::Rest)),
    target(Kind::Write, Some(Who::Journal), Some(Area::Journal)),
    target(Kind::Write, Some(Who::Writeback), None),
    target(Kind::Write, Some(Who::Caller), Some(Area::Rest)),
    target(Kind::Discard, None, None),
];

/// How the device reports a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    AtOnce,
    /// After a delay, during which it serves other requests.
    Late,
    /// A failed flush succeeds for this thread: a planted fault.
    HiddenFrom(Who),
}

/// The use of every block of a disk.
pub struct Map {
    block_size: u64,
    areas: Vec<Area>,
}

impl Map {
    pub fn of(base: &Base) -> Self {
        let block_size = base.kind.block_size;
        let read = |offset: u64, bytes: usize| {
            let mut buf = vec![0; bytes];
            base.image.read_at(offset, &mut buf).expect("a range of the disk");
            buf
        };
        let superblock = Superblock::parse(&read(1024, 1024)).expect("a superblock");
        let geometry = Geometry::new(&superblock).expect("a geometry");
        let mut areas = vec![Area::Rest; (base.image.size() / block_size) as usize];
        areas[(1024 / block_size) as usize] = Area::Superblock;
        base.journal.iter().for_each(|block| areas[*block as usize] = Area::Journal);
        for group in (0..geometry.group_count).map(GroupNumber) {
            let (block, offset) = geometry.descriptor_location(group);
            let bytes = read(block.0 * block_size + u64::from(offset), usize::from(geometry.desc_size));
            let descriptor = GroupDescriptor::parse(&bytes, geometry.desc_size).expect("a descriptor");
            let first = descriptor.inode_table().0 as usize;
            areas[first..first + geometry.inode_table_blocks_per_group as usize].fill(Area::Tables);
        }
        Self { block_size, areas }
    }

    /// Whether a block of the area is among those of a request.
    pub fn touches(&self, request: &Request, area: Area) -> bool {
        let blocks =
            request.offset / self.block_size..(request.offset + request.bytes).div_ceil(self.block_size);
        self.areas[blocks.start as usize..blocks.end as usize].contains(&area)
    }
}

/// The request that fails, and how.
#[derive(Clone, Copy, Debug)]
pub struct Failure {
    pub target: Target,
    /// The index of one of the target's requests, counted from 0; none if none fails.
    pub index: Option<u64>,
    pub manner: Manner,
    pub answer: Answer,
}

impl Failure {
    /// Whether every thread gets the error of its request.
    pub fn is_reported(self) -> bool {
        self.manner != Manner::Unsaid && !matches!(self.answer, Answer::HiddenFrom(_))
    }
}

/// Requests of a run.
#[derive(Default)]
pub struct Seen {
    is_armed: AtomicBool,
    /// By target.
    counts: [AtomicU64; TARGETS.len()],
    failed: Mutex<Vec<Request>>,
}

impl Seen {
    /// Begins to count requests and to fail.
    pub fn arm(&self) {
        self.is_armed.store(true, Ordering::SeqCst);
    }

    /// The counts of requests, by target.
    pub fn counts(&self) -> Vec<u64> {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    pub fn failures(&self) -> usize {
        self.failed.lock().expect("failures").len()
    }

    pub fn has_failed(&self, is_such: impl Fn(&Request) -> bool) -> bool {
        self.failed.lock().expect("failures").iter().any(is_such)
    }
}

/// The fault of a request.
fn plan(request: &Request, map: &Map, failure: Failure, seen: &Seen) -> Fault {
    let Some(kind) = Kind::of(request.operation).filter(|_| seen.is_armed.load(Ordering::SeqCst)) else {
        return Fault::None;
    };
    let by = Who::asks();
    let is_such = |target: &Target| {
        target.kind == kind
            && target.by.is_none_or(|who| who == by)
            && target.at.is_none_or(|area| map.touches(request, area))
    };
    let mut is_hit = false;
    for (target, count) in TARGETS.iter().zip(&seen.counts).filter(|(target, _)| is_such(target)) {
        let at = count.fetch_add(1, Ordering::Relaxed);
        let is_chosen = |index| at == index || at > index && failure.manner == Manner::FromThenOn;
        is_hit |= *target == failure.target && failure.index.is_some_and(is_chosen);
    }
    if !is_hit {
        return Fault::None;
    }
    seen.failed.lock().expect("failures").push(*request);
    match failure.manner {
        // No mount can use half of a superblock.
        Manner::InPart if !map.touches(request, Area::Superblock) => {
            Fault::Short(request.bytes / 1024 * 512, io::ErrorKind::Other)
        }
        Manner::Unsaid => Fault::Dropped,
        _ => Fault::Error(io::ErrorKind::Other),
    }
}

/// The device as the engine sees it.
pub struct Front {
    device: Recorder<FaultDevice<MemoryDevice>>,
    failure: Failure,
}

impl Front {
    pub fn new(
        base: &Base,
        map: &std::sync::Arc<Map>,
        failure: Failure,
    ) -> (Arc<Self>, std::sync::Arc<Seen>) {
        let seen = std::sync::Arc::new(Seen::default());
        let (map, known) = (map.clone(), seen.clone());
        let below =
            FaultDevice::new(base.image.snapshot(), move |request| plan(request, &map, failure, &known));
        let device = Recorder::with_base(base.image.snapshot(), below);
        (Arc::new(Self { device, failure }), seen)
    }

    /// The images of a crash now: with all writes, and with the durable writes only.
    pub fn images(&self) -> Vec<(&'static str, MemoryDevice)> {
        let mut images = vec![("all writes", self.device.inner().inner().snapshot())];
        // The recording has no parts of writes that failed.
        if self.failure.manner != Manner::InPart {
            let log = self.device.log();
            let kept = log.crash_image(log.events().len(), Tearing::Requests, |_| false);
            images.push(("the durable writes", kept.expect("a recorded range")));
        }
        images
    }

    fn report(&self, answered: io::Result<()>) -> io::Result<()> {
        if answered.is_err() && self.failure.answer == Answer::Late {
            thread::sleep(LATE);
        }
        answered
    }
}

impl BlockDevice for Front {
    fn size(&self) -> u64 {
        self.device.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.device.read_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.report(self.device.write_vectored_at(offset, bufs))
    }

    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.report(self.device.write_fua(offset, buf))
    }

    fn flush(&self) -> io::Result<()> {
        let flushed = self.report(self.device.flush());
        if self.failure.answer == Answer::HiddenFrom(Who::asks()) { Ok(()) } else { flushed }
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.report(self.device.discard(offset, bytes))
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.report(self.device.write_zeroes(offset, bytes))
    }
}
