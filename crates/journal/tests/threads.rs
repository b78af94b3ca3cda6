//! Real threads: handles against commits, checkpoints and revokes.

mod common;

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

use common::{PlainClient, format_log, read_block};
use extant_block::{BlockDevice, MemoryDevice, REQUESTS_IN_FLIGHT};
use extant_journal::{BoxError, Client, Error, FinalBlock, Journal, Options, recovery};
use extant_ondisk::{FsBlock, TransactionId};
use extant_rt::{Arc, AtomicBool, AtomicU64, Condvar, HAS_THREADS, LockClass, Mutex, Ordering, Weak, apart};
use extant_testing::Random;

const BLOCK: u32 = 1024;
const HOME: u64 = 200;
const BLOCKS: u64 = 400;

/// Pairs of blocks with one counter each, which every handle raises together.
struct Pairs {
    counters: Vec<[Mutex<u64>; 2]>,
    touched: Vec<AtomicBool>,
    frozen: AtomicU64,
    committed: AtomicU64,
}

const PAIRS: usize = 8;

impl Pairs {
    fn new() -> Self {
        let counter = || Mutex::new(LockClass::BUFFER, 0);
        Self {
            counters: (0..PAIRS).map(|_| [counter(), counter()]).collect(),
            touched: (0..PAIRS).map(|_| AtomicBool::new(false)).collect(),
            frozen: AtomicU64::new(0),
            committed: AtomicU64::new(0),
        }
    }
}

fn counter_block(value: u64) -> Arc<[u8]> {
    let mut bytes = vec![0; BLOCK as usize];
    bytes[..8].copy_from_slice(&value.to_be_bytes());
    bytes.into()
}

impl Client for Pairs {
    fn freeze(
        &self,
        _tid: TransactionId,
    ) -> Box<dyn FnOnce() -> Result<Vec<FinalBlock>, BoxError> + Send + '_> {
        let mut values = Vec::new();
        for (pair, [left, right]) in self.counters.iter().enumerate() {
            let left = *left.lock();
            let right = *right.lock();
            assert_eq!(left, right, "a handle is open in a freeze");
            if self.touched[pair].swap(false, Ordering::SeqCst) {
                values.push((pair, left));
            }
        }
        self.frozen.fetch_add(1, Ordering::SeqCst);
        Box::new(move || {
            let sides = values.into_iter().flat_map(|(pair, value)| {
                [0, 1].map(|side| FinalBlock {
                    block: FsBlock(HOME + 2 * pair as u64 + side),
                    bytes: counter_block(value),
                })
            });
            Ok(sides.collect())
        })
    }

    fn committed(&self, _tid: TransactionId) {
        self.committed.fetch_add(1, Ordering::SeqCst);
    }

    fn aborted(&self, error: &Error) {
        eprintln!("aborted: {error}");
    }
}

fn attach(journal: &Journal) -> Arc<Pairs> {
    let pairs = Arc::new(Pairs::new());
    let client: Arc<dyn Client> = pairs.clone();
    let weak: Weak<dyn Client> = Arc::downgrade(&client);
    journal.set_client(weak);
    pairs
}

fn raise(journal: &Journal, pairs: &Pairs, pair: usize) -> TransactionId {
    let handle = journal.start(2).expect("start");
    *pairs.counters[pair][0].lock() += 1;
    extant_rt::yield_now();
    *pairs.counters[pair][1].lock() += 1;
    pairs.touched[pair].store(true, Ordering::SeqCst);
    let tid = handle.tid();
    handle.finish();
    tid
}

/// Raises counters on six threads, or six times over where the host has none.
fn race(journal: &Journal, pairs: &Pairs, rounds: u64) -> [u64; PAIRS] {
    let raised = extant_rt::parallel(6, |thread| {
        let mut rng = Random::new(thread as u64);
        let mut raised = [0; PAIRS];
        for _ in 0..rounds {
            let pair = rng.below(PAIRS as u64) as usize;
            let tid = raise(journal, pairs, pair);
            raised[pair] += 1;
            if rng.one_in(20) {
                journal.commit(tid).expect("commit");
                assert!(journal.is_durable(tid));
            }
            if rng.one_in(100) {
                journal.checkpoint().expect("checkpoint");
            }
        }
        raised
    });
    std::array::from_fn(|pair| raised.iter().map(|of_thread| of_thread[pair]).sum())
}

#[test]
fn handles_never_straddle_a_freeze_and_nothing_is_lost() {
    if !extant_testing::has_threads() {
        return;
    }
    let device = Arc::new(MemoryDevice::new(BLOCKS * u64::from(BLOCK)));
    let map = format_log(&*device, BLOCK, 1, 60);
    let journal =
        Journal::open(device.clone(), device.clone(), BLOCK, map.clone(), Options::default()).expect("open");
    let pairs = attach(&journal);
    journal.spawn_background(Duration::from_millis(1)).expect("thread");
    let total = race(&journal, &pairs, 2000);
    journal.close().expect("close");
    for (pair, raised) in total.iter().enumerate() {
        for side in 0..2 {
            let block = read_block(&*device, BLOCK, HOME + 2 * pair as u64 + side);
            assert_eq!(block[..], counter_block(*raised)[..], "pair {pair}");
        }
    }
    assert_eq!(pairs.frozen.load(Ordering::SeqCst), pairs.committed.load(Ordering::SeqCst));
    assert!(matches!(journal.start(1), Err(Error::Closed)));
    let replay = recovery::replay(&*device, &map, BLOCK, BLOCKS).expect("replay");
    assert!(replay.is_empty());
}

#[test]
fn a_journal_without_a_log_writes_home_at_commit() {
    let device = Arc::new(MemoryDevice::new(BLOCKS * u64::from(BLOCK)));
    let journal = Journal::without_log(device.clone(), BLOCK, Options::default());
    let pairs = attach(&journal);
    let total = race(&journal, &pairs, 500);
    journal.commit_running().expect("commit");
    let mut found = HashMap::new();
    for pair in 0..PAIRS {
        let block = read_block(&*device, BLOCK, HOME + 2 * pair as u64);
        found.insert(pair, u64::from_be_bytes(block[..8].try_into().unwrap()));
    }
    assert!(total.iter().enumerate().all(|(pair, raised)| found[&pair] == *raised));
}

/// A device whose flush takes a millisecond.
struct SlowFlush(MemoryDevice);

impl BlockDevice for SlowFlush {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buf)
    }
    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.0.write_vectored_at(offset, bufs)
    }
    fn flush(&self) -> io::Result<()> {
        std::thread::sleep(Duration::from_millis(1));
        self.0.flush()
    }
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.0.discard(offset, bytes)
    }
    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.0.write_zeroes(offset, bytes)
    }
}

#[test]
fn commits_of_many_threads_are_shared() {
    for is_slow in [true, false] {
        let memory = MemoryDevice::new(4096 * u64::from(BLOCK));
        let device: Arc<dyn BlockDevice> =
            if is_slow { Arc::new(SlowFlush(memory)) } else { Arc::new(memory) };
        let map = format_log(&*device, BLOCK, 1000, 2000);
        let journal = Journal::open(device.clone(), device, BLOCK, map, Options::default()).expect("open");
        let pairs = attach(&journal);
        let (each, asked) = if is_slow { (50, 8 * 50) } else { (2000, 8 * 2000) };
        let threads: Vec<_> = (0..8)
            .map(|pair| {
                let (journal, pairs) = (Arc::clone(&journal), Arc::clone(&pairs));
                std::thread::spawn(move || {
                    for _ in 0..each {
                        let tid = raise(&journal, &pairs, pair);
                        journal.commit(tid).expect("commit");
                        assert!(journal.is_durable(tid));
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("thread");
        }
        let commits = journal.stats().commits;
        assert!(commits < asked / 5, "{commits} commits for {asked} calls");
        assert_eq!(pairs.committed.load(Ordering::SeqCst), commits);
    }
}

#[test]
fn the_background_thread_commits_and_checkpoints_by_itself() {
    if !extant_testing::has_threads() {
        return;
    }
    let device = Arc::new(MemoryDevice::new(BLOCKS * u64::from(BLOCK)));
    let map = format_log(&*device, BLOCK, 1, 60);
    let journal = Journal::open(device.clone(), device, BLOCK, map, Options::default()).expect("open");
    let pairs = attach(&journal);
    journal.spawn_background(Duration::from_millis(2)).expect("thread");
    for _ in 0..11 {
        let tid = raise(&journal, &pairs, 0);
        eventually("the transaction is durable", || journal.is_durable(tid));
    }
    eventually("the log is half empty again", || journal.stats().checkpoints > 0);
}

#[test]
fn the_background_thread_commits_before_its_time_when_asked() {
    if !extant_testing::has_threads() {
        return;
    }
    let device = Arc::new(MemoryDevice::new(BLOCKS * u64::from(BLOCK)));
    let map = format_log(&*device, BLOCK, 1, 60);
    let journal = Journal::open(device.clone(), device, BLOCK, map, Options::default()).expect("open");
    let pairs = attach(&journal);
    journal.spawn_background(Duration::from_secs(3600)).expect("thread");
    for _ in 0..3 {
        let tid = raise(&journal, &pairs, 0);
        journal.ask_for_commit();
        eventually("the transaction is durable", || journal.is_durable(tid));
    }
}

/// A client that owns its journal and closes it when it is dropped.
struct Owner {
    journal: Arc<Journal>,
    closed: Arc<AtomicBool>,
    freezing: Arc<AtomicBool>,
}

impl Client for Owner {
    fn freeze(
        &self,
        _tid: TransactionId,
    ) -> Box<dyn FnOnce() -> Result<Vec<FinalBlock>, BoxError> + Send + '_> {
        self.freezing.store(true, Ordering::SeqCst);
        Box::new(|| {
            std::thread::sleep(Duration::from_millis(30));
            Ok(vec![FinalBlock { block: FsBlock(HOME), bytes: counter_block(9) }])
        })
    }
    fn committed(&self, _tid: TransactionId) {}
    fn aborted(&self, _error: &Error) {}
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.closed.store(self.journal.close().is_ok(), Ordering::SeqCst);
    }
}

#[test]
fn a_client_dropped_by_the_background_thread_may_close_the_journal() {
    if !extant_testing::has_threads() {
        return;
    }
    let device = Arc::new(MemoryDevice::new(BLOCKS * u64::from(BLOCK)));
    let map = format_log(&*device, BLOCK, 1, 60);
    let journal = Journal::open(device.clone(), device, BLOCK, map, Options::default()).expect("open");
    let (closed, freezing) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let owner = Arc::new(Owner {
        journal: journal.clone(),
        closed: Arc::clone(&closed),
        freezing: Arc::clone(&freezing),
    });
    let as_client: Arc<dyn Client> = owner.clone();
    let weak: Weak<dyn Client> = Arc::downgrade(&as_client);
    journal.set_client(weak);
    drop(as_client);
    journal.start(1).expect("start").finish();
    journal.spawn_background(Duration::from_millis(1)).expect("thread");
    eventually("the thread commits", || freezing.load(Ordering::SeqCst));
    drop(owner);
    eventually("the journal is closed", || closed.load(Ordering::SeqCst));
    assert!(matches!(journal.start(1), Err(Error::Closed)));
}

/// What is done in the midst of a request.
type Meanwhile = Mutex<Option<Box<dyn FnOnce() + Send>>>;

/// A device that holds back checkpoint writes until the test lets them through, and does something at the first.
struct Slow {
    inner: MemoryDevice,
    /// Where checkpoint writes begin, in bytes.
    home: u64,
    held: Mutex<bool>,
    arrived: AtomicBool,
    changed: Condvar,
    meanwhile: Meanwhile,
}

impl Slow {
    fn new(blocks: u64, home: u64) -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryDevice::new(blocks * u64::from(BLOCK)),
            home: home * u64::from(BLOCK),
            held: Mutex::new(LockClass::DEVICE_LAYER, false),
            arrived: AtomicBool::new(false),
            changed: Condvar::new(),
            meanwhile: Mutex::new(LockClass::DEVICE_LAYER, None),
        })
    }

    fn hold(&self, held: bool) {
        *self.held.lock() = held;
        self.changed.notify_all();
    }
}

impl BlockDevice for Slow {
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        if offset >= self.home {
            self.arrived.store(true, Ordering::SeqCst);
            let meanwhile = self.meanwhile.lock().take();
            meanwhile.map(apart);
            let mut held = self.held.lock();
            while *held {
                held = self.changed.wait(held);
            }
            drop(held);
        }
        self.inner.write_vectored_at(offset, bufs)
    }
    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.discard(offset, bytes)
    }
    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.write_zeroes(offset, bytes)
    }
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..5000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("never: {what}");
}

#[test]
fn a_commit_waits_for_checkpoint_writes_of_what_it_revokes() {
    let slow = Slow::new(BLOCKS, HOME);
    let map = format_log(&slow.inner, BLOCK, 1, 60);
    let journal = Journal::open(slow.clone(), slow.clone(), BLOCK, map, Options::default()).expect("open");
    let client = PlainClient::attach(&journal);
    let handle = journal.start(1).expect("start");
    client.change(HOME, &[1; BLOCK as usize]);
    handle.finish();
    journal.commit_running().expect("commit");
    slow.hold(true);
    let checkpoint = std::thread::spawn({
        let journal = Arc::clone(&journal);
        move || journal.checkpoint()
    });
    eventually("the checkpoint write begins", || slow.arrived.load(Ordering::SeqCst));
    let handle = journal.start(1).expect("start");
    handle.revoke(FsBlock(HOME));
    handle.finish();
    let commit = std::thread::spawn({
        let journal = Arc::clone(&journal);
        move || journal.commit_running()
    });
    eventually("the revoked block is no committed block any more", || {
        journal.committed_block(FsBlock(HOME)).is_none()
    });
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(
        client.committed.lock().len(),
        1,
        "freed blocks came back before their checkpoint write had ended"
    );
    slow.hold(false);
    commit.join().expect("thread").expect("commit");
    checkpoint.join().expect("thread").expect("checkpoint");
    assert_eq!(client.committed.lock().len(), 2);
}

/// A client that makes the final bytes of a transaction when it may.
struct Patient {
    last: AtomicU64,
}

impl Client for Patient {
    fn freeze(
        &self,
        tid: TransactionId,
    ) -> Box<dyn FnOnce() -> Result<Vec<FinalBlock>, BoxError> + Send + '_> {
        Box::new(move || {
            eventually("the transaction may be written", || {
                self.last.load(Ordering::SeqCst) >= u64::from(tid.0)
            });
            Ok(vec![FinalBlock { block: FsBlock(HOME), bytes: counter_block(9) }])
        })
    }
    fn committed(&self, _tid: TransactionId) {}
    fn aborted(&self, error: &Error) {
        panic!("{error}");
    }
}

fn patient() -> (Arc<Journal>, Arc<Patient>) {
    let device = Arc::new(MemoryDevice::new(BLOCKS * u64::from(BLOCK)));
    let map = format_log(&*device, BLOCK, 1, 60);
    let journal = Journal::open(device.clone(), device, BLOCK, map, Options::default()).expect("open");
    let patient = Arc::new(Patient { last: AtomicU64::new(0) });
    let as_client: Weak<Patient> = Arc::downgrade(&patient);
    journal.set_client(as_client);
    (journal, patient)
}

#[test]
fn handles_open_on_the_next_transaction_while_a_full_one_is_written() {
    if !extant_testing::has_threads() {
        return;
    }
    let (journal, patient) = patient();
    let handle = journal.start(1).expect("start");
    let first = handle.tid();
    handle.finish();
    let (full, opened) = (first.next(), AtomicU64::new(0));
    let may_write = |tid: TransactionId| patient.last.store(u64::from(tid.0), Ordering::SeqCst);
    let before = std::thread::scope(|scope| {
        scope.spawn(|| journal.commit(first).expect("a commit"));
        eventually("the first transaction is frozen", || journal.running_tid() == full);
        journal.start(journal.max_credits()).expect("start").finish();
        for _ in 0..3 {
            scope.spawn(|| {
                let handle = journal.start(1).expect("start");
                assert_eq!(handle.tid(), full.next());
                handle.finish();
                opened.fetch_add(1, Ordering::SeqCst);
            });
        }
        eventually("all find the transaction full", || journal.stats().start_waits == 3);
        std::thread::sleep(Duration::from_millis(20));
        // One of them commits the full one then.
        may_write(first);
        let begun = Instant::now();
        while opened.load(Ordering::SeqCst) < 2 && begun.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let before = (opened.load(Ordering::SeqCst), journal.is_durable(full));
        may_write(full.next());
        before
    });
    assert_eq!((before, journal.is_durable(full)), ((2, false), true));
}

#[test]
fn a_handle_that_finds_the_transaction_full_has_the_background_thread_commit_it() {
    if !extant_testing::has_threads() {
        return;
    }
    let (journal, patient) = patient();
    journal.spawn_background(Duration::from_secs(3600)).expect("threads");
    let full = journal.running_tid();
    journal.start(journal.max_credits()).expect("start").finish();
    let handle = journal.start(1).expect("start");
    assert_eq!((handle.tid(), journal.is_durable(full)), (full.next(), false));
    handle.finish();
    patient.last.store(u64::MAX, Ordering::SeqCst);
    journal.close().expect("close");
}

/// Counts the requests that are in flight at once, each of which takes a while.
struct Counting {
    memory: MemoryDevice,
    has_latency: bool,
    in_flight: AtomicU64,
    most: AtomicU64,
    requests: AtomicU64,
    /// A write to this block fails.
    bad: FsBlock,
}

impl BlockDevice for Counting {
    fn size(&self) -> u64 {
        self.memory.size()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.wait();
        self.memory.read_at(offset, buf)
    }
    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.wait();
        if offset == self.bad.0 * u64::from(BLOCK) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.memory.write_vectored_at(offset, bufs)
    }
    fn flush(&self) -> io::Result<()> {
        assert_eq!(self.in_flight.load(Ordering::SeqCst), 0, "a flush while writes are in flight");
        self.memory.flush()
    }
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.memory.discard(offset, bytes)
    }
    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.memory.write_zeroes(offset, bytes)
    }
    fn has_latency(&self) -> bool {
        self.has_latency
    }
}

impl Counting {
    fn new(blocks: u64, has_latency: bool, bad: FsBlock) -> Arc<Self> {
        let memory = MemoryDevice::new(blocks * u64::from(BLOCK));
        let [in_flight, most, requests] = [const { AtomicU64::new(0) }; 3];
        Arc::new(Self { memory, has_latency, in_flight, most, requests, bad })
    }

    fn wait(&self) {
        let now = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        self.requests.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(2));
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn a_log_is_replayed_with_several_reads_in_flight_where_they_take_time() {
    const LOG: u32 = 1200;
    let replayed = |has_latency: bool| {
        let device = Counting::new(2000, has_latency, FsBlock(2000));
        let map = format_log(&*device, BLOCK, 1, LOG);
        let journal = Journal::open(device.clone(), device.clone(), BLOCK, map.clone(), Options::default())
            .expect("open");
        let client = PlainClient::attach(&journal);
        for transaction in 0..10_u64 {
            let handle = journal.start(64).expect("start");
            (0..64).for_each(|number| client.change(1300 + number, &[transaction as u8; BLOCK as usize]));
            handle.finish();
            journal.commit_running().expect("commit");
        }
        device.most.store(0, Ordering::SeqCst);
        device.requests.store(0, Ordering::SeqCst);
        let replay = recovery::replay(&*device, &map, BLOCK, 2000).expect("replay");
        assert_eq!(replay.report.transactions, 10);
        assert!(
            replay.blocks.values().all(|bytes| bytes[..] == [9; BLOCK as usize]) && replay.blocks.len() == 64
        );
        (device.requests.load(Ordering::SeqCst), device.most.load(Ordering::SeqCst))
    };
    let (one_by_one, alone) = replayed(false);
    let (requests, most) = replayed(true);
    let said = format!("{requests} reads, {most} at once; {one_by_one} one by one");
    assert_eq!(alone, 1);
    match HAS_THREADS {
        true => assert!(most > 4 && requests * 10 < one_by_one, "{said}"),
        // What is replayed is the same.
        false => assert_eq!(most, 1, "{said}"),
    }
}

#[test]
fn a_checkpoint_keeps_several_writes_in_flight_where_they_take_time() {
    for (has_latency, bad) in [(false, None), (true, None), (true, Some(FsBlock(HOME + 40)))] {
        let device = Counting::new(BLOCKS, has_latency, bad.unwrap_or(FsBlock(BLOCKS)));
        let map = format_log(&*device, BLOCK, 1, 190);
        let journal =
            Journal::open(device.clone(), device.clone(), BLOCK, map, Options::default()).expect("open");
        let client = PlainClient::attach(&journal);
        // Two in a row are one request.
        let block = |number: u64| HOME + number / 2 * 4 + number % 2;
        let handle = journal.start(48).expect("start");
        (0..48).for_each(|number| client.change(block(number), &[number as u8; BLOCK as usize]));
        handle.finish();
        journal.commit_running().expect("commit");
        device.most.store(0, Ordering::SeqCst);
        let done = journal.checkpoint();
        let most = device.most.load(Ordering::SeqCst);
        assert!(
            most <= REQUESTS_IN_FLIGHT as u64 && (most > 1) == (has_latency && HAS_THREADS),
            "{most} requests in flight"
        );
        if bad.is_some() {
            let error = done.expect_err("a block that takes no writes").to_string();
            assert!(error.contains("no storage space"), "{error}");
            assert!(matches!(journal.checkpoint(), Err(Error::Aborted(_))));
            continue;
        }
        done.expect("checkpoint");
        for number in 0..48 {
            assert_eq!(read_block(&*device, BLOCK, block(number))[..], [number as u8; BLOCK as usize]);
        }
    }
}

#[test]
fn a_checkpoint_leaves_out_what_is_revoked_meanwhile_and_keeps_what_is_committed_meanwhile() {
    let home = 2000;
    let place = move |index: u64| home + 3 * index;
    let slow = Slow::new(4000, home);
    let map = format_log(&slow.inner, BLOCK, 1, 1999);
    let journal =
        Journal::open(slow.clone(), slow.clone(), BLOCK, map.clone(), Options::default()).expect("open");
    let client = PlainClient::attach(&journal);
    let handle = journal.start(300).expect("start");
    for index in 0..300 {
        client.change(place(index), &[1; BLOCK as usize]);
    }
    handle.finish();
    journal.commit_running().expect("commit");
    // The write of the last blocks has not begun, that of the first has.
    let meanwhile = {
        let (journal, client, slow) = (journal.clone(), client.clone(), slow.clone());
        move || {
            let handle = journal.start(3).expect("start");
            handle.revoke(FsBlock(place(299)));
            for index in [0, 298, 400] {
                client.change(place(index), &[2; BLOCK as usize]);
            }
            handle.finish();
            journal.commit_running().expect("commit");
            slow.inner.write_at(place(299) * u64::from(BLOCK), &[7; BLOCK as usize]).expect("content");
        }
    };
    *slow.meanwhile.lock() = Some(Box::new(meanwhile));
    journal.checkpoint().expect("checkpoint");
    assert!(slow.meanwhile.lock().is_none(), "no checkpoint write began");
    let crashed = slow.inner.snapshot();
    let replay = recovery::replay(&crashed, &map, BLOCK, 4000).expect("replay");
    assert_eq!(replay.report.transactions, 1, "the tail moved to the second transaction");
    replay.checkpoint(&crashed, &crashed, &map).expect("checkpoint");
    let byte = |index| read_block(&crashed, BLOCK, place(index))[0];
    assert_eq!([0, 1, 298, 299, 400].map(byte), [2, 1, 2, 7, 2]);
    assert_eq!(journal.committed_block(FsBlock(place(0))).expect("a committed block")[0], 2);
}

#[test]
#[cfg(debug_assertions)]
#[cfg_attr(panic = "unwind", should_panic = "lock order: HANDLE 0 taken while HANDLE 0 is held")]
fn a_second_handle_of_a_thread_is_a_breach_of_order() {
    println!("expects a panic: lock order: HANDLE 0 taken while HANDLE 0 is held");
    let journal = Journal::without_log(Arc::new(MemoryDevice::new(4096)), BLOCK, Options::default());
    let _first = journal.start(1).expect("start");
    let _second = journal.start(1);
}
