//! Crashes at arbitrary points against a model.
//!
//! The disk describes itself: one metadata block, the *table*, says of every other block whether it is metadata,
//! file content or free, and what it holds. After recovery the table must be that of the last durable transaction
//! or of a later one that was complete, and every block must hold what the table says. That covers the content of
//! files in blocks that were metadata before (revoke), the order of data before names, and the log's tail.

mod common;

use std::collections::BTreeMap;
use std::io::{self, IoSlice};

use common::{format_log, read_block};
use extant_block::{BlockDevice, Event, Log, MemoryDevice, Mutation, Recorder, Tearing};
use extant_journal::{BoxError, Client, Error, FinalBlock, Journal, LogMap, Options, recovery};
use extant_ondisk::jbd2::MAGIC;
use extant_ondisk::{FsBlock, TransactionId};
use extant_rt::{Arc, AtomicBool, LockClass, Mutex, Ordering, Weak, share_work};
use extant_testing::Random;

const BLOCK: u32 = 1024;
const LOG_START: u64 = 4;
const TABLE: u64 = 100;
/// The blocks that the table describes follow it.
const HOMES: usize = 40;
const DEVICE_BLOCKS: u64 = 256;
const SEEDS: u64 = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Free = 0,
    Metadata = 1,
    Content = 2,
}

/// The kind of each block and the seed of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Table {
    tid: u32,
    entries: Vec<(Kind, u64)>,
}

impl Table {
    fn encode(&self) -> Arc<[u8]> {
        let mut bytes = vec![0; BLOCK as usize];
        bytes[..4].copy_from_slice(&self.tid.to_be_bytes());
        for ((kind, seed), to) in self.entries.iter().zip(bytes[16..].chunks_exact_mut(16)) {
            to[0] = *kind as u8;
            to[8..].copy_from_slice(&seed.to_be_bytes());
        }
        bytes.into()
    }

    fn decode(bytes: &[u8]) -> Self {
        let tid = u32::from_be_bytes(bytes[..4].try_into().unwrap());
        let entry = |from: &[u8]| {
            let kind = match from[0] {
                0 => Kind::Free,
                1 => Kind::Metadata,
                _ => Kind::Content,
            };
            (kind, u64::from_be_bytes(from[8..16].try_into().unwrap()))
        };
        Self { tid, entries: bytes[16..].chunks_exact(16).take(HOMES).map(entry).collect() }
    }
}

/// The content of a block with this seed; one in five looks like a block of the log.
fn content(seed: u64) -> Arc<[u8]> {
    let mut bytes = Random::new(seed).bytes(BLOCK as usize);
    if seed.is_multiple_of(5) {
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
    }
    bytes.into()
}

/// A fault of the journal or its client that the crashes must bring to light.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// The client does not revoke what it frees.
    NoRevoke,
    /// The flush before the commit block does nothing.
    NoFlushBeforeCommit,
    /// The flush before the tail moves does nothing.
    NoFlushBeforeTail,
    /// The commit block and the superblock are written as ordinary blocks.
    NoFua,
}

/// A device before the recorder that leaves out flushes as the fault says.
struct Lossy {
    recorder: Recorder<MemoryDevice>,
    fault: Fault,
    last_write_in_log: AtomicBool,
}

impl BlockDevice for Lossy {
    fn size(&self) -> u64 {
        self.recorder.size()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.recorder.read_at(offset, buf)
    }
    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.last_write_in_log.store(offset < TABLE * u64::from(BLOCK), Ordering::Relaxed);
        self.recorder.write_vectored_at(offset, bufs)
    }
    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.recorder.write_fua(offset, buf)
    }
    fn flush(&self) -> io::Result<()> {
        let dropped = match self.fault {
            Fault::NoFlushBeforeCommit => self.last_write_in_log.load(Ordering::Relaxed),
            Fault::NoFlushBeforeTail => !self.last_write_in_log.load(Ordering::Relaxed),
            _ => false,
        };
        if dropped { Ok(()) } else { self.recorder.flush() }
    }
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.recorder.discard(offset, bytes)
    }
    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.recorder.write_zeroes(offset, bytes)
    }
}

struct Live {
    table: Table,
    /// Blocks that the running transaction changed.
    changed: BTreeMap<usize, ()>,
    /// Freed by the running transaction, or by one that is committing.
    freed: Vec<(u32, usize)>,
    /// The tables of frozen transactions.
    frozen: BTreeMap<u32, Table>,
}

/// The client: the table and the blocks it describes.
struct Model {
    live: Mutex<Live>,
}

impl Client for Model {
    fn freeze(
        &self,
        tid: TransactionId,
    ) -> Box<dyn FnOnce() -> Result<Vec<FinalBlock>, BoxError> + Send + '_> {
        let mut live = self.live.lock();
        live.table.tid = tid.0;
        let table = live.table.clone();
        let changed = std::mem::take(&mut live.changed);
        live.frozen.insert(tid.0, table.clone());
        Box::new(move || {
            let mut blocks = vec![FinalBlock { block: FsBlock(TABLE), bytes: table.encode() }];
            for index in changed.into_keys().filter(|index| table.entries[*index].0 == Kind::Metadata) {
                blocks.push(FinalBlock { block: home(index), bytes: content(table.entries[index].1) });
            }
            Ok(blocks)
        })
    }

    fn committed(&self, tid: TransactionId) {
        self.live.lock().freed.retain(|(freed_in, _)| *freed_in != tid.0);
    }

    fn aborted(&self, error: &Error) {
        panic!("aborted: {error}");
    }
}

fn home(index: usize) -> FsBlock {
    FsBlock(TABLE + 1 + index as u64)
}

fn write_content(device: &dyn BlockDevice, index: usize, seed: u64) {
    device.write_at(home(index).0 * u64::from(BLOCK), &content(seed)).expect("write content");
}

/// The result of one life of the journal: the recording and the tables it may recover to.
struct Life {
    log: Log,
    tables: BTreeMap<u32, Table>,
    stats: extant_journal::Stats,
}

fn live(image: MemoryDevice, table: Table, map: &LogMap, rng: &mut Random, fault: Fault) -> Life {
    let recorder = Recorder::over(image);
    if fault == Fault::NoFua {
        recorder.set_mutation(Mutation::DropFua);
    }
    let device = Arc::new(Lossy { recorder, fault, last_write_in_log: AtomicBool::new(false) });
    let options =
        Options { checksums: rng.one_in(2), block_numbers_64bit: rng.one_in(2), ..Options::default() };
    let journal =
        Journal::open(device.clone(), device.clone(), BLOCK, map.clone(), options).expect("open the journal");
    let first = table.clone();
    let state = Live { table, changed: BTreeMap::new(), freed: Vec::new(), frozen: BTreeMap::new() };
    let model = Arc::new(Model { live: Mutex::new(LockClass::BUFFER, state) });
    let as_client: Arc<dyn Client> = model.clone();
    let weak: Weak<dyn Client> = Arc::downgrade(&as_client);
    journal.set_client(weak);
    for _ in 0..60 + rng.below(120) {
        step(&journal, &device, &model, rng, fault);
    }
    let mut tables = std::mem::take(&mut model.live.lock().frozen);
    tables.insert(first.tid, first);
    Life { log: device.recorder.log(), tables, stats: journal.stats() }
}

fn step(journal: &Journal, device: &Lossy, model: &Model, rng: &mut Random, fault: Fault) {
    match rng.below(20) {
        0..2 => {
            let tid = journal.running_tid();
            journal.commit(tid).expect("commit");
            if journal.is_durable(tid) {
                device.recorder.mark(u64::from(tid.0));
            }
        }
        2 => journal.checkpoint().expect("checkpoint"),
        3..7 => {
            // Data first, in blocks that no other operation can allocate, then the handle that names them.
            let Some(index) = pick(model, rng, Kind::Free) else { return };
            let seed = rng.next();
            write_content(device, index, seed);
            let handle = journal.start(1).expect("start");
            model.live.lock().table.entries[index] = (Kind::Content, seed);
            handle.charge(1);
            handle.finish();
        }
        7..12 => {
            let from = if rng.one_in(3) { Kind::Free } else { Kind::Metadata };
            let Some(index) = pick(model, rng, from) else { return };
            let handle = journal.start(2).expect("start");
            let mut live = model.live.lock();
            live.table.entries[index] = (Kind::Metadata, rng.next());
            live.changed.insert(index, ());
            drop(live);
            handle.finish();
        }
        12..16 => {
            let Some(index) = pick(model, rng, Kind::Metadata) else { return };
            let handle = journal.start(1).expect("start");
            let seed = rng.next();
            if fault != Fault::NoRevoke {
                handle.revoke(home(index));
            }
            let mut live = model.live.lock();
            if rng.one_in(4) {
                // Freed and taken again by the same operation: its copy counts.
                live.table.entries[index] = (Kind::Metadata, seed);
                live.changed.insert(index, ());
                drop(live);
            } else {
                live.table.entries[index] = (Kind::Free, 0);
                live.freed.push((handle.tid().0, index));
                drop(live);
            }
            handle.finish();
        }
        16..18 => {
            let Some(index) = pick(model, rng, Kind::Content) else { return };
            let handle = journal.start(1).expect("start");
            let mut live = model.live.lock();
            live.table.entries[index] = (Kind::Free, 0);
            live.freed.push((handle.tid().0, index));
            drop(live);
            handle.finish();
        }
        _ => {
            let handle = journal.start(1).expect("start");
            handle.charge(u32::from(handle.extend(1)));
            model.live.lock().table.entries[HOMES - 1] = (Kind::Free, rng.next());
            handle.finish();
        }
    }
}

/// A block of that kind which no transaction in the making has freed.
fn pick(model: &Model, rng: &mut Random, kind: Kind) -> Option<usize> {
    let live = model.live.lock();
    let free = |index: &usize| {
        *index != HOMES - 1
            && live.table.entries[*index].0 == kind
            && live.freed.iter().all(|(_, f)| f != index)
    };
    let all: Vec<usize> = (0..HOMES).filter(free).collect();
    (!all.is_empty()).then(|| all[rng.below(all.len() as u64) as usize])
}

/// Recovers; also after a crash in the midst of recovery.
fn recover(image: MemoryDevice, map: &LogMap, rng: &mut Random) -> Result<MemoryDevice, String> {
    let replay = |device: &dyn BlockDevice| {
        recovery::replay(device, map, BLOCK, DEVICE_BLOCKS).map_err(|error| format!("recovery: {error}"))
    };
    let recorder = Recorder::over(image);
    replay(&recorder)?.checkpoint(&recorder, &recorder, map).map_err(|error| error.to_string())?;
    let log = recorder.log();
    let at = rng.below(log.events().len() as u64 + 1) as usize;
    let again = log.crash_image(at, Tearing::Sectors, |_| rng.one_in(2)).expect("image");
    replay(&again)?.checkpoint(&again, &again, map).map_err(|error| error.to_string())?;
    let (once, twice) = (content_of(recorder.inner()), content_of(&again));
    if once != twice {
        return Err("a second recovery gave something else".into());
    }
    Ok(again)
}

fn content_of(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; (BLOCK as usize) * (HOMES + 1)];
    device.read_at(TABLE * u64::from(BLOCK), &mut bytes).expect("read");
    bytes
}

/// The table of a recovered image, if everything is as it must be.
fn judge(image: &MemoryDevice, life: &Life, events: usize) -> Result<Table, String> {
    let durable = life.log.events()[..events].iter().rev().find_map(|event| match event {
        Event::Mark(tid) => Some(*tid as u32),
        _ => None,
    });
    let table = Table::decode(&read_block(image, BLOCK, TABLE));
    if life.tables.get(&table.tid) != Some(&table) {
        return Err(format!("no transaction left the table of {}", table.tid));
    }
    if let Some(durable) = durable.filter(|durable| *durable > table.tid) {
        return Err(format!("transaction {durable} was durable, recovered is {}", table.tid));
    }
    for (index, (kind, seed)) in table.entries.iter().enumerate() {
        if *kind != Kind::Free && read_block(image, BLOCK, home(index).0)[..] != content(*seed)[..] {
            return Err(format!("{kind:?} block {} has other content at {}", home(index), table.tid));
        }
    }
    Ok(table)
}

/// Several lives of one disk, each ended by a crash. Returns what is wrong, and whether the log wrapped.
fn explore(seed: u64, fault: Fault) -> Result<bool, String> {
    let mut rng = Random::new(seed);
    let mut image = MemoryDevice::new(DEVICE_BLOCKS * u64::from(BLOCK));
    let log_len = 28 + rng.below(24) as u32;
    let map = format_log(&image, BLOCK, LOG_START, log_len);
    let mut table = Table { tid: 0, entries: vec![(Kind::Free, 0); HOMES] };
    image.write_at(TABLE * u64::from(BLOCK), &table.encode()).expect("write");
    let mut wrapped = false;
    for _ in 0..3 {
        let life = live(image, table, &map, &mut rng, fault);
        wrapped |= life.stats.log_blocks > u64::from(log_len);
        let mut recovered = None;
        for _ in 0..12 {
            let events = rng.below(life.log.events().len() as u64 + 1) as usize;
            let tearing = if rng.one_in(2) { Tearing::Sectors } else { Tearing::Requests };
            let odds = rng.below(5);
            let crashed = life.log.crash_image(events, tearing, |_| rng.below(4) < odds).expect("image");
            let crashed = recover(crashed, &map, &mut rng)?;
            let table = judge(&crashed, &life, events)?;
            recovered = Some((crashed, table));
        }
        (image, table) = recovered.expect("crashes");
    }
    Ok(wrapped)
}

#[test]
fn every_crash_recovers_the_last_durable_transaction() {
    let wrapped: u64 = share_work(2, 0..SEEDS as u32, |seed| match explore(seed.into(), Fault::None) {
        Ok(did) => u64::from(did),
        Err(what) => panic!("seed {seed}: {what}"),
    })
    .into_iter()
    .sum();
    assert!(wrapped > SEEDS / 2, "the log wrapped in {wrapped} of {SEEDS} runs only");
}

/// How many seeds until a fault shows.
fn found(fault: Fault) -> Option<u64> {
    (0..100).find(|seed| explore(*seed, fault).is_err())
}

#[test]
fn a_missing_revoke_is_found() {
    assert!(found(Fault::NoRevoke).is_some());
}

#[test]
fn a_missing_flush_before_the_commit_block_is_found() {
    assert!(found(Fault::NoFlushBeforeCommit).is_some());
}

#[test]
fn a_missing_flush_before_the_tail_moves_is_found() {
    assert!(found(Fault::NoFlushBeforeTail).is_some());
}

#[test]
fn a_commit_block_that_is_not_durable_is_found() {
    assert!(found(Fault::NoFua).is_some());
}
