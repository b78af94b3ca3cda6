//! The journal's gate under many schedules: handles against transactions that close, credits in shards, revokes,
//! checkpoints. Threads of shuttle's in the checked runtime, threads of the host in the native one. The virtual runtime has none to explore.
#![cfg(not(extant_rt = "virtual"))]

mod common;
#[path = "../../rt/tests/common/plan.rs"]
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};
use std::time::Duration;

use common::{empty_log, format_log, read_block};
use extant_block::{BlockDevice, MemoryDevice};
use extant_journal::{BoxError, Client, Error, FinalBlock, Journal, LogMap, Options, recovery};
use extant_ondisk::fast_commit::{Change, Dentry};
use extant_ondisk::jbd2::Incompat;
use extant_ondisk::{FsBlock, InodeNumber, TransactionId};
use extant_rt::{Arc, HAS_THREADS, Weak, explore, parallel, yield_now};
use extant_testing::Random;

/// Schedules of each kind in a run of all tests: a few seconds.
const SCHEDULES: usize = 500;

const BLOCK: u32 = 1024;
const LOG: u64 = 1;
const LOG_BLOCKS: u32 = 48;
const HOME: u64 = 60;
const COUNTERS: u64 = 3;

/// The tasks' own record, kept apart from the journal. A handle is noted after it opened and crossed out before it
/// closes.
#[derive(Default)]
struct Books {
    /// For each transaction: open handles, and the credits that they hold or used.
    open: BTreeMap<u32, (u32, u32)>,
    /// The content of the metadata blocks.
    values: BTreeMap<u64, u64>,
    /// Changed in the running transaction.
    changed: BTreeSet<u64>,
    frozen: u32,
    committed: Vec<u32>,
}

struct Counters {
    books: std::sync::Mutex<Books>,
    credits_max: u32,
}

impl Counters {
    fn books(&self) -> std::sync::MutexGuard<'_, Books> {
        self.books.lock().expect("no task panicked with the books")
    }

    /// Handles that are open on `tid`, and their credits, change by so many.
    fn count(&self, tid: TransactionId, (handles, credits): (i32, i64)) {
        let mut books = self.books();
        assert!(tid.0 > books.frozen, "a handle is open on {tid}, which is frozen");
        let open = books.open.entry(tid.0).or_default();
        open.0 = open.0.checked_add_signed(handles).expect("as many ends as begins");
        open.1 = u32::try_from(i64::from(open.1) + credits).expect("credits");
        assert!(open.1 <= self.credits_max, "{} credits of {} are taken", open.1, self.credits_max);
    }
}

fn bytes_of(value: u64) -> Arc<[u8]> {
    let mut bytes = vec![0; BLOCK as usize];
    bytes[..8].copy_from_slice(&value.to_be_bytes());
    bytes.into()
}

impl Client for Counters {
    fn freeze(
        &self,
        tid: TransactionId,
    ) -> Box<dyn FnOnce() -> Result<Vec<FinalBlock>, BoxError> + Send + '_> {
        let mut books = self.books();
        assert_eq!(books.open.get(&tid.0).map_or(0, |open| open.0), 0, "a handle is open in a freeze");
        assert!(tid.0 > books.frozen);
        books.frozen = tid.0;
        let changed = std::mem::take(&mut books.changed);
        let values: Vec<_> = changed.into_iter().map(|block| (block, books.values[&block])).collect();
        Box::new(move || {
            let block = |(block, value)| FinalBlock { block: FsBlock(block), bytes: bytes_of(value) };
            Ok(values.into_iter().map(block).collect())
        })
    }

    fn committed(&self, tid: TransactionId) {
        yield_now();
        self.books().committed.push(tid.0);
    }

    fn aborted(&self, error: &Error) {
        panic!("aborted: {error}");
    }
}

/// One operation: opens a handle, perhaps extends it, changes a counter, closes. Gives its transaction, if that has to be
/// written for it.
fn count(journal: &Journal, counters: &Counters, random: &mut Random) -> Option<TransactionId> {
    let max = journal.max_credits();
    let mut credits =
        1 + if random.one_in(4) { random.below(u64::from(max)) } else { random.below(4) } as u32;
    let handle = journal.start(credits).expect("a handle");
    let tid = handle.tid();
    counters.count(tid, (1, i64::from(credits)));
    let more = random.below(4) as u32;
    if more > 0 && handle.extend(more) {
        counters.count(tid, (0, i64::from(more)));
        credits += more;
    }
    let changes = !random.one_in(5);
    if changes {
        let block = HOME + random.below(COUNTERS);
        let mut books = counters.books();
        *books.values.entry(block).or_default() += 1;
        books.changed.insert(block);
    }
    let used = if random.one_in(2) { credits } else { u32::from(changes) };
    if used < credits {
        handle.charge(used);
    }
    counters.count(tid, (-1, i64::from(used) - i64::from(credits)));
    handle.finish();
    (used > 0).then_some(tid)
}

/// A block that is metadata, then freed, then the content of a file, which no older copy may overwrite.
fn reuse(journal: &Journal, counters: &Counters, block: u64, device: &MemoryDevice, value: u64) {
    let handle = journal.start(1).expect("a handle");
    {
        let mut books = counters.books();
        books.values.insert(block, value);
        books.changed.insert(block);
    }
    let logged = handle.tid();
    handle.finish();
    if value.is_multiple_of(2) {
        journal.commit(logged).expect("commit");
    }
    let handle = journal.start(1).expect("a handle");
    counters.books().changed.remove(&block);
    handle.revoke(FsBlock(block));
    let freed = handle.tid();
    handle.finish();
    journal.commit(freed).expect("commit");
    assert_eq!(journal.committed_block(FsBlock(block)).map(drop), None, "a copy of a freed block");
    device.write_at(block * u64::from(BLOCK), &bytes_of(value + 1)).expect("memory");
}

/// Gives what the task's own block holds as the content of a file.
fn task(
    journal: &Journal,
    counters: &Counters,
    own: u64,
    device: &MemoryDevice,
    random: &mut Random,
) -> Option<u64> {
    let (mut changed, mut content) = (Vec::new(), None);
    for _ in 0..2 + random.below(4) {
        match random.below(10) {
            0..6 => changed.extend(count(journal, counters, random)),
            6..8 => {
                let Some(tid) = changed.pop() else { continue };
                journal.commit(tid).expect("commit");
                assert!(journal.is_durable(tid), "{tid} is committed");
            }
            8 => journal.checkpoint().expect("checkpoint"),
            _ => {
                let value = random.below(1 << 40);
                reuse(journal, counters, own, device, value);
                content = Some(value + 1);
            }
        }
        for tid in changed.iter().filter(|tid| journal.is_durable(**tid)) {
            assert!(
                counters.books().committed.contains(&tid.0),
                "{tid} is durable and its client was not told"
            );
        }
    }
    content
}

#[test]
fn no_handle_is_open_in_a_freeze_and_no_freed_block_is_written_over() {
    explore(&plan::exploration(SCHEDULES), |seed| {
        let mut random = Random::new(seed);
        let device = Arc::new(MemoryDevice::new(128 * u64::from(BLOCK)));
        let map = format_log(&*device, BLOCK, LOG, LOG_BLOCKS);
        let journal = Journal::open(device.clone(), device.clone(), BLOCK, map.clone(), Options::default());
        let journal = journal.expect("an empty log");
        let credits_max = journal.max_credits();
        let counters = Arc::new(Counters { books: std::sync::Mutex::default(), credits_max });
        let client: Arc<dyn Client> = counters.clone();
        let weak: Weak<dyn Client> = Arc::downgrade(&client);
        journal.set_client(weak);
        if HAS_THREADS && random.one_in(2) {
            journal.spawn_background(Duration::from_secs(3600)).expect("threads");
        }
        let seeds: Vec<u64> = (0..2 + random.below(5)).map(|_| random.next()).collect();
        let own = |index: usize| HOME + COUNTERS + index as u64;
        let contents = parallel(seeds.len(), |index| {
            task(&journal, &counters, own(index), &device, &mut Random::new(seeds[index]))
        });
        journal.close().expect("close");
        for (index, value) in
            contents.into_iter().enumerate().filter_map(|(index, value)| Some((index, value?)))
        {
            let found = read_block(&*device, BLOCK, own(index));
            assert_eq!(found[..], bytes_of(value)[..], "a freed block was written over");
        }
        let books = counters.books();
        for (block, value) in books.values.range(..HOME + COUNTERS) {
            assert_eq!(read_block(&*device, BLOCK, *block)[..], bytes_of(*value)[..], "counter {block}");
        }
        assert!(books.committed.is_sorted(), "{:?}", books.committed);
        let replay = recovery::replay(&*device, &map, BLOCK, 128).expect("a clean log");
        assert!(replay.is_empty());
    });
}

/// A handle that waits for room which the background thread is to make does not wait for ever if that thread stops meanwhile.
#[test]
fn handles_that_wait_for_a_commit_open_or_learn_that_the_journal_is_closed() {
    explore(&plan::exploration(SCHEDULES), |_| {
        let device = Arc::new(MemoryDevice::new(128 * u64::from(BLOCK)));
        let map = format_log(&*device, BLOCK, LOG, LOG_BLOCKS);
        let journal = Journal::open(device.clone(), device, BLOCK, map, Options::default());
        let journal = journal.expect("an empty log");
        let credits_max = journal.max_credits();
        let counters = Arc::new(Counters { books: std::sync::Mutex::default(), credits_max });
        let client: Arc<dyn Client> = counters.clone();
        journal.set_client(Arc::downgrade(&client));
        if HAS_THREADS {
            journal.spawn_background(Duration::from_secs(3600)).expect("threads");
        }
        parallel(3, |index| match index {
            0 => journal.close().expect("close"),
            _ => {
                for _ in 0..3 {
                    match journal.start(credits_max) {
                        Ok(handle) => {
                            // Full, until it closes without a change.
                            handle.charge(0);
                            yield_now();
                        }
                        Err(Error::Closed) => return,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        });
        assert!(matches!(journal.start(1), Err(Error::Closed)));
    });
}

/// A device that holds writes back until a flush. One flush fails, drops them, and is answered late.
struct Forgetful {
    memory: MemoryDevice,
    held_back: std::sync::Mutex<HeldBack>,
}

struct HeldBack {
    writes: Vec<u64>,
    durable: BTreeSet<u64>,
    /// Flushes before the one that fails.
    flushes_left: u64,
}

impl BlockDevice for Forgetful {
    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.memory.read_at(offset, buf)
    }

    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.held_back.lock().expect("no panic").writes.push(offset);
        self.memory.write_vectored_at(offset, bufs)
    }

    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.memory.write_at(offset, buf)
    }

    fn flush(&self) -> io::Result<()> {
        yield_now();
        let is_lost = {
            let mut held_back = self.held_back.lock().expect("no panic");
            let writes = std::mem::take(&mut held_back.writes);
            let is_lost = held_back.flushes_left == 0;
            held_back.flushes_left = held_back.flushes_left.wrapping_sub(1);
            if !is_lost {
                held_back.durable.extend(writes);
            }
            is_lost
        };
        yield_now();
        if is_lost { Err(io::Error::other("writes were dropped")) } else { Ok(()) }
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.memory.discard(offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.memory.write_zeroes(offset, bytes)
    }
}

#[test]
fn no_flush_succeeds_over_writes_that_another_one_was_told_of() {
    const THREADS: usize = 3;
    const FLUSHES: u64 = 2;
    explore(&plan::exploration(SCHEDULES), |seed| {
        let mut random = Random::new(seed);
        // However the threads' flushes are combined, there are as many as one thread makes.
        let flushes_left = random.below(FLUSHES);
        let held_back = HeldBack { writes: Vec::new(), durable: BTreeSet::new(), flushes_left };
        let memory = MemoryDevice::new(128 * u64::from(BLOCK));
        let map = format_log(&memory, BLOCK, LOG, LOG_BLOCKS);
        let device = Arc::new(Forgetful { memory, held_back: std::sync::Mutex::new(held_back) });
        let journal = Journal::open(device.clone(), device.clone(), BLOCK, map, Options::default());
        let journal = journal.expect("an empty log");
        let acknowledged = parallel(THREADS, |thread| {
            let mut acknowledged = Vec::new();
            for round in 0..FLUSHES {
                let offset = (HOME + thread as u64 * FLUSHES + round) * u64::from(BLOCK);
                device.write_at(offset, &bytes_of(round)).expect("a write");
                if journal.flush().is_err() {
                    break;
                }
                acknowledged.push(offset);
            }
            acknowledged
        });
        assert!(journal.is_aborted(), "a flush failed");
        let held_back = device.held_back.lock().expect("no panic");
        for offset in acknowledged.into_iter().flatten() {
            assert!(held_back.durable.contains(&offset), "{offset} was lost and acknowledged");
        }
    });
}

/// Counts in two steps, of which a fast commit or a freeze may never see one.
#[derive(Default)]
struct TwoSteps {
    books: std::sync::Mutex<Steps>,
}

#[derive(Default)]
struct Steps {
    first: u64,
    second: u64,
    /// Changed since the last commit of either kind.
    is_changed: bool,
    /// A fast commit was refused after its changes were taken: the transaction is to be committed.
    is_refused: bool,
    /// Refusals are decided by it.
    turns: u64,
    fast_commits: u64,
}

impl TwoSteps {
    fn books(&self) -> std::sync::MutexGuard<'_, Steps> {
        self.books.lock().expect("no task panicked with the books")
    }

    /// The count; no update is half done.
    fn take(&self) -> (u64, bool) {
        let mut books = self.books();
        assert_eq!(books.first, books.second, "an update is half in a commit");
        (books.first, std::mem::take(&mut books.is_changed))
    }
}

impl Client for TwoSteps {
    fn freeze(
        &self,
        _tid: TransactionId,
    ) -> Box<dyn FnOnce() -> Result<Vec<FinalBlock>, BoxError> + Send + '_> {
        let (value, _) = self.take();
        self.books().is_refused = false;
        Box::new(move || {
            yield_now();
            Ok(vec![FinalBlock { block: FsBlock(HOME), bytes: bytes_of(value) }])
        })
    }

    fn fast_commit(&self, _tid: TransactionId) -> Option<Vec<Vec<u8>>> {
        let (value, is_changed) = self.take();
        let mut books = self.books();
        assert!(!books.is_refused, "another fast commit after one that was refused with its changes taken");
        books.turns += 1;
        // As many records as do not fit the area, or none.
        let copies = match books.turns % 5 {
            3 => {
                books.is_refused = true;
                return None;
            }
            4 => 400,
            _ => usize::from(is_changed),
        };
        books.is_refused = copies > 1;
        books.fast_commits += u64::from(copies == 1);
        let name = format!("{value:0>40}");
        let dentry = Dentry { parent: InodeNumber(2), inode: InodeNumber(12), name: name.as_bytes() };
        let mut record = Vec::new();
        Change::Link(dentry).write(&mut record).expect("a record");
        Some(vec![record; copies])
    }

    fn committed(&self, _tid: TransactionId) {
        yield_now();
    }

    fn aborted(&self, error: &Error) {
        panic!("aborted: {error}");
    }
}

/// The count that a recovery finds on a device that is as after a crash now.
fn recovered(device: &MemoryDevice, map: &LogMap) -> u64 {
    let device = device.snapshot();
    let replay = recovery::replay(&device, map, BLOCK, 128).expect("a log");
    let home = || read_block(&device, BLOCK, HOME).into();
    let block: Arc<[u8]> = replay.blocks.get(&FsBlock(HOME)).cloned().unwrap_or_else(home);
    let committed = u64::from_be_bytes(block[..8].try_into().expect("8 bytes"));
    let said = replay.fast_commit_records.last().map(|record| {
        let name = std::str::from_utf8(&record.value[8..]).expect("a number");
        name.parse().expect("a number")
    });
    said.unwrap_or(committed)
}

/// Updates of several tasks, made durable by fast commits, by commits of the transaction, or by both at once: an update is whole in
/// either, and what a task was told is durable is there after a crash at any moment.
#[test]
fn an_update_is_whole_in_a_fast_commit_or_not_in_it() {
    explore(&plan::exploration(SCHEDULES), |seed| {
        let mut random = Random::new(seed);
        let device = Arc::new(MemoryDevice::new(128 * u64::from(BLOCK)));
        let mut sb = empty_log(BLOCK, LOG_BLOCKS);
        (sb.s_feature_incompat, sb.s_num_fc_blks) = (Incompat::FAST_COMMIT, 8);
        let mut block = vec![0; BLOCK as usize];
        sb.write(&mut block);
        device.write_at(LOG * u64::from(BLOCK), &block).expect("memory");
        let map = LogMap::contiguous(FsBlock(LOG), LOG_BLOCKS).expect("a map");
        let options = Options { fast_commits: true, ..Options::default() };
        let journal = Journal::open(device.clone(), device.clone(), BLOCK, map.clone(), options);
        let journal = journal.expect("an empty log");
        let steps = Arc::new(TwoSteps::default());
        let client: Arc<dyn Client> = steps.clone();
        journal.set_client(Arc::downgrade(&client));
        let seeds: Vec<u64> = (0..2 + random.below(3)).map(|_| random.next()).collect();
        parallel(seeds.len(), |index| {
            let mut random = Random::new(seeds[index]);
            for _ in 0..2 + random.below(3) {
                let handle = journal.start(1).expect("a handle");
                let tid = handle.tid();
                handle.begin_change();
                steps.books().first += 1;
                yield_now();
                let mine = {
                    let mut books = steps.books();
                    (books.second, books.is_changed) = (books.second + 1, true);
                    books.second
                };
                handle.charge(1);
                handle.finish();
                match random.below(6) {
                    0 => continue,
                    1 => journal.commit(tid).expect("a commit"),
                    2 => journal.commit_running().expect("a commit"),
                    _ => journal.fast_commit(tid).expect("a commit"),
                }
                let found = recovered(&device, &map);
                assert!(found >= mine, "{mine} is durable, and {found} is there after a crash");
            }
        });
        let count = steps.books().second;
        journal.close().expect("close");
        assert_eq!(recovered(&device, &map), count);
    });
}
