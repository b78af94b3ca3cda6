//! Errors, aborts, limits, and the order of requests.

mod common;

use std::io::{self, IoSlice};

use common::{PlainClient, empty_log, format_log, read_block};
use extant_block::{BlockDevice, FaultDevice, MemoryDevice, Operation};
use extant_journal::{Corrupt, Error, Journal, LogMap, Options, recovery};
use extant_ondisk::FsBlock;
use extant_ondisk::jbd2::{Incompat, Superblock};
use extant_rt::{Arc, LockClass, Mutex};

const BLOCK: u32 = 1024;
const LOG: u64 = 1;
const LOG_LEN: u32 = 100;
const HOME: u64 = 200;
const BLOCKS: u64 = 400;

fn change(journal: &Journal, client: &PlainClient, block: u64, byte: u8) {
    let handle = journal.start(1).expect("start");
    client.change(block, &[byte; BLOCK as usize]);
    handle.finish();
}

fn superblock(device: &dyn BlockDevice) -> Superblock {
    Superblock::parse(&read_block(device, BLOCK, LOG)).expect("superblock")
}

fn fresh() -> (Arc<MemoryDevice>, LogMap) {
    let device = Arc::new(MemoryDevice::new(BLOCKS * u64::from(BLOCK)));
    let map = format_log(&*device, BLOCK, LOG, LOG_LEN);
    (device, map)
}

fn open(device: &Arc<MemoryDevice>, map: &LogMap) -> Arc<Journal> {
    Journal::open(device.clone(), device.clone(), BLOCK, map.clone(), Options::default()).expect("open")
}

#[test]
fn an_error_of_any_request_aborts_once_and_loses_nothing_durable() {
    for operation in [Operation::Write, Operation::WriteFua, Operation::Flush] {
        for index in 0..12 {
            let device = Arc::new(MemoryDevice::new(BLOCKS * u64::from(BLOCK)));
            let map = format_log(&*device, BLOCK, LOG, LOG_LEN);
            let faulty = Arc::new(FaultDevice::failing_once(Shared(device.clone()), operation, index));
            let journal =
                Journal::open(faulty.clone(), faulty.clone(), BLOCK, map.clone(), Options::default())
                    .expect("open");
            let client = PlainClient::attach(&journal);
            let mut durable = 0;
            let mut failed = false;
            for byte in 1..20 {
                let Ok(handle) = journal.start(1) else { break };
                client.change(HOME, &[byte; BLOCK as usize]);
                handle.finish();
                let mut done = journal.commit_running();
                if done.is_ok() {
                    durable = byte;
                    if byte % 3 == 0 {
                        done = journal.checkpoint();
                    }
                }
                if let Err(error) = done {
                    assert!(matches!(error, Error::Aborted(_)), "{error:?}");
                    failed = true;
                }
            }
            assert!(failed, "{operation:?} {index} did not fail");
            assert!(matches!(journal.start(1), Err(Error::Aborted(_))));
            assert!(matches!(journal.commit_running(), Err(Error::Aborted(_))));
            assert!(matches!(journal.checkpoint(), Err(Error::Aborted(_))));
            assert_eq!(client.aborts.lock().len(), 1);
            assert_eq!(superblock(&*device).s_errno, -5);
            let replay = recovery::replay(&*device, &map, BLOCK, BLOCKS).expect("replay");
            assert_eq!(replay.superblock.s_errno, -5);
            replay.checkpoint(&*device, &*device, &map).expect("checkpoint");
            let found = read_block(&*device, BLOCK, HOME)[0];
            assert!(found >= durable, "{operation:?} {index}: {durable} was durable, found {found}");
        }
    }
}

/// A memory device behind an `Arc`.
struct Shared(Arc<MemoryDevice>);

impl BlockDevice for Shared {
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
        self.0.flush()
    }
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.0.discard(offset, bytes)
    }
    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.0.write_zeroes(offset, bytes)
    }
}

/// A device that records the requests to it.
struct Noting {
    name: &'static str,
    inner: MemoryDevice,
    notes: Arc<Mutex<Vec<String>>>,
}

impl Noting {
    fn note(&self, what: &str) {
        self.notes.lock().push(format!("{} {what}", self.name));
    }
}

impl BlockDevice for Noting {
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_vectored_at(&self, offset: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.note("write");
        self.inner.write_vectored_at(offset, bufs)
    }
    fn write_fua(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.note("fua");
        self.inner.write_at(offset, buf)
    }
    fn flush(&self) -> io::Result<()> {
        self.note("flush");
        self.inner.flush()
    }
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.discard(offset, bytes)
    }
    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.write_zeroes(offset, bytes)
    }
}

#[test]
fn an_external_journal_flushes_the_file_system_before_the_commit_block_and_before_the_tail() {
    let notes = Arc::new(Mutex::new(LockClass::DEVICE, Vec::new()));
    let device = |name| {
        let inner = MemoryDevice::new(BLOCKS * u64::from(BLOCK));
        Arc::new(Noting { name, inner, notes: Arc::clone(&notes) })
    };
    let (home, log) = (device("home"), device("log"));
    let map = format_log(&log.inner, BLOCK, LOG, LOG_LEN);
    let journal = Journal::open(home, log, BLOCK, map, Options::default()).expect("open");
    let client = PlainClient::attach(&journal);
    change(&journal, &client, HOME, 1);
    assert!(notes.lock().is_empty(), "opening writes nothing");
    journal.commit_running().expect("commit");
    let expected = ["log write", "log write", "home flush", "log flush", "log fua"];
    assert_eq!(std::mem::take(&mut *notes.lock()), expected);
    journal.checkpoint().expect("checkpoint");
    assert_eq!(std::mem::take(&mut *notes.lock()), ["home write", "home flush", "log fua"]);
    journal.commit_running().expect("commit");
    journal.checkpoint().expect("checkpoint");
    assert!(notes.lock().is_empty(), "nothing to commit, nothing to checkpoint");
}

#[test]
fn the_flush_of_a_commit_covers_what_was_written_before_it() {
    let notes = Arc::new(Mutex::new(LockClass::DEVICE, Vec::new()));
    let inner = MemoryDevice::new(BLOCKS * u64::from(BLOCK));
    let device = Arc::new(Noting { name: "disk", inner, notes: Arc::clone(&notes) });
    let map = format_log(&device.inner, BLOCK, LOG, LOG_LEN);
    let journal =
        Journal::open(device.clone(), device.clone(), BLOCK, map, Options::default()).expect("open");
    let client = PlainClient::attach(&journal);
    device.write_at(0, &[1; BLOCK as usize]).expect("write");
    let before = journal.flush_epoch();
    change(&journal, &client, HOME, 1);
    journal.commit_running().expect("commit");
    notes.lock().clear();
    journal.flush_since(before).expect("covered");
    assert!(notes.lock().is_empty(), "the commit has flushed it");
    let after = journal.flush_epoch();
    journal.flush_since(after).expect("flush");
    assert_eq!(*notes.lock(), ["disk flush"], "no flush began since");
}

#[test]
fn closing_checkpoints_everything_and_marks_the_log_empty() {
    let (device, map) = fresh();
    let journal = open(&device, &map);
    let client = PlainClient::attach(&journal);
    for byte in 1..=9 {
        change(&journal, &client, HOME + u64::from(byte % 3), byte);
        journal.commit_running().expect("commit");
    }
    assert_eq!(journal.committed_block(FsBlock(HOME)).expect("a committed block")[0], 9);
    change(&journal, &client, HOME + 7, 77);
    journal.close().expect("close");
    journal.close().expect("close again");
    assert!(journal.committed_block(FsBlock(HOME)).is_none());
    assert_eq!(read_block(&*device, BLOCK, HOME)[0], 9);
    assert_eq!(read_block(&*device, BLOCK, HOME + 7)[0], 77);
    let sb = superblock(&*device);
    assert_eq!((sb.s_start, sb.s_sequence.0), (0, 11));
    assert_eq!(sb.s_feature_incompat, Incompat::REVOKE | Incompat::BIT64 | Incompat::CSUM_V3);
    assert!(!open(&device, &map).is_aborted());
}

#[test]
fn an_unused_journal_stays_as_it_was_byte_for_byte() {
    let (device, map) = fresh();
    let before = read_block(&*device, BLOCK, LOG);
    let journal = open(&device, &map);
    let _client = PlainClient::attach(&journal);
    journal.close().expect("close");
    assert_eq!(read_block(&*device, BLOCK, LOG), before);
}

#[test]
fn credits_bound_a_transaction_and_come_back() {
    let (device, map) = fresh();
    let journal = open(&device, &map);
    let client = PlainClient::attach(&journal);
    let max = journal.max_credits();
    assert!((20..LOG_LEN / 3).contains(&max), "{max}");
    assert!(matches!(journal.start(max + 1), Err(Error::TooManyCredits { .. })));
    let handle = journal.start(max).expect("start");
    let first = handle.tid();
    assert!(!handle.extend(1));
    handle.charge(max - 3);
    handle.finish();
    let handle = journal.start(2).expect("start");
    assert_eq!(handle.tid(), first, "credits that were not used came back");
    assert!(handle.extend(1));
    assert!(!handle.extend(1));
    handle.finish();
    client.change(HOME, &[1; BLOCK as usize]);
    let handle = journal.start(1).expect("start");
    assert_eq!(handle.tid(), first.next(), "a full transaction is committed by who wants to join");
    handle.finish();
    assert!(journal.is_durable(first));
    assert_eq!(journal.stats().commits, 1);
}

#[test]
fn a_handle_that_changed_nothing_leaves_nothing_to_commit() {
    let (device, map) = fresh();
    let journal = open(&device, &map);
    let client = PlainClient::attach(&journal);
    let handle = journal.start(5).expect("start");
    handle.charge(0);
    handle.finish();
    journal.commit_running().expect("commit");
    assert_eq!(journal.stats().commits, 0);
    let handle = journal.start(5).expect("start");
    handle.charge(0);
    handle.revoke(FsBlock(HOME));
    handle.finish();
    journal.commit_running().expect("commit");
    assert_eq!((journal.stats().commits, journal.stats().revokes), (1, 1));
    assert_eq!(client.committed.lock().len(), 1);
}

#[test]
fn many_revokes_close_the_transaction_for_new_handles() {
    let (device, map) = fresh();
    let journal = open(&device, &map);
    let _client = PlainClient::attach(&journal);
    let handle = journal.start(1).expect("start");
    let first = handle.tid();
    for block in 0..1000 {
        handle.revoke(FsBlock(block));
    }
    assert!(!handle.extend(1));
    handle.finish();
    let handle = journal.start(1).expect("start");
    assert_eq!(handle.tid(), first.next());
    handle.finish();
    let replay = recovery::replay(&*device, &map, BLOCK, 1000).expect("replay");
    assert_eq!((replay.report.transactions, replay.report.revokes), (1, 1000));
}

#[test]
fn a_transaction_larger_than_the_log_aborts() {
    let (device, map) = fresh();
    let journal = open(&device, &map);
    let client = PlainClient::attach(&journal);
    let handle = journal.start(1).expect("start");
    for block in 0..LOG_LEN {
        client.change(HOME + u64::from(block), &[1; BLOCK as usize]);
    }
    handle.finish();
    let error = journal.commit_running().expect_err("too large");
    assert!(
        matches!(&error, Error::Aborted(cause) if matches!(**cause, Error::TransactionTooLarge { .. })),
        "{error}"
    );
}

#[test]
fn superblocks_that_contradict_are_refused() {
    let refused = |change: &dyn Fn(&mut Superblock), map_len| {
        let device = Arc::new(MemoryDevice::new(BLOCKS * u64::from(BLOCK)));
        let mut sb = empty_log(BLOCK, LOG_LEN);
        change(&mut sb);
        let mut block = vec![0; BLOCK as usize];
        sb.write(&mut block);
        device.write_at(LOG * u64::from(BLOCK), &block).expect("write");
        let map = LogMap::contiguous(FsBlock(LOG), map_len).expect("map");
        let replay = recovery::replay(&*device, &map, BLOCK, BLOCKS).map(|_| ());
        let open = Journal::open(device.clone(), device, BLOCK, map, Options::default()).map(|_| ());
        replay.and(open).expect_err("refused")
    };
    let field = |error| match error {
        Error::Corrupt(Corrupt::Field(field)) => field,
        other => panic!("{other}"),
    };
    assert_eq!(field(refused(&|sb| sb.s_blocksize = 4096, LOG_LEN)), "s_blocksize");
    assert_eq!(field(refused(&|_| (), LOG_LEN - 1)), "s_maxlen");
    assert_eq!(field(refused(&|sb| sb.s_maxlen = 0, LOG_LEN)), "s_first");
    assert_eq!(field(refused(&|sb| sb.s_first = 0, LOG_LEN)), "s_first");
    assert_eq!(field(refused(&|sb| sb.s_first = LOG_LEN, LOG_LEN)), "s_first");
    assert_eq!(field(refused(&|sb| sb.s_start = LOG_LEN, LOG_LEN)), "s_start");
    let fast_commit = |sb: &mut Superblock| sb.s_feature_incompat = Incompat::FAST_COMMIT;
    assert_eq!(field(refused(&fast_commit, LOG_LEN)), "s_num_fc_blks");
    assert!(matches!(refused(&|sb| sb.s_feature_ro_compat = 2, LOG_LEN), Error::Incompatible(2)));
    assert!(matches!(refused(&|sb| sb.s_start = 1, LOG_LEN), Error::NeedsRecovery));
    assert!(matches!(refused(&|sb| sb.s_maxlen = 5, LOG_LEN), Error::TooShort(5)));
    assert!(matches!(
        refused(&|sb| sb.s_feature_incompat = Incompat::from_bits_retain(0x40), LOG_LEN),
        Error::Incompatible(0x40)
    ));
}

#[test]
fn maps_with_gaps_overlaps_or_shared_blocks_are_refused() {
    let bad = |extents: &[(u32, u64, u32)]| {
        LogMap::new(extents.iter().map(|(at, block, len)| (*at, FsBlock(*block), *len)).collect()).is_err()
    };
    assert!(bad(&[]));
    assert!(bad(&[(0, 5, 0)]));
    assert!(bad(&[(1, 5, 3)]));
    assert!(bad(&[(0, 5, 3), (4, 20, 3)]));
    assert!(bad(&[(0, 5, 3), (2, 20, 3)]));
    assert!(bad(&[(0, 5, 3), (3, 7, 3)]));
    assert!(bad(&[(0, u64::MAX, 2)]));
    assert!(bad(&[(0, 0, u32::MAX), (u32::MAX, 1 << 40, 2)]));
    let map = LogMap::new(vec![(3, FsBlock(40), 2), (0, FsBlock(90), 3)]).expect("map");
    let places: Vec<_> = (0..6).map(|at| map.get(at).map(|block| block.0)).collect();
    assert_eq!(places, [Some(90), Some(91), Some(92), Some(40), Some(41), None]);
    let device = MemoryDevice::new(80 * u64::from(BLOCK));
    assert!(matches!(recovery::replay(&device, &map, BLOCK, 80), Err(Error::BadMap(_))));
}

#[test]
fn a_version_1_superblock_becomes_version_2_with_the_first_commit() {
    let (device, map) = fresh();
    let mut block = read_block(&*device, BLOCK, LOG);
    block[7] = 3;
    block[0x24..].fill(0xAA);
    device.write_at(LOG * u64::from(BLOCK), &block).expect("write");
    let journal = open(&device, &map);
    let client = PlainClient::attach(&journal);
    change(&journal, &client, HOME, 5);
    journal.commit_running().expect("commit");
    let sb = superblock(&*device);
    assert_eq!(sb.s_feature_incompat, Incompat::REVOKE | Incompat::BIT64 | Incompat::CSUM_V3);
    assert_eq!((sb.s_nr_users, sb.s_uuid), (1, [0; 16]));
    let replay = recovery::replay(&*device, &map, BLOCK, BLOCKS).expect("replay");
    assert_eq!(replay.blocks[&FsBlock(HOME)][0], 5);
}

#[test]
fn every_rule_of_the_document_names_tests_that_exist() {
    let document = include_str!("../../../docs/design/journal.md");
    let rules: Vec<_> = document.lines().filter(|line| line.starts_with("| J")).collect();
    assert!(rules.len() > 20);
    for rule in rules {
        let names: Vec<_> = rule.split('`').filter(|word| word.contains("::")).collect();
        assert!(!names.is_empty(), "no test: {rule}");
        for name in names {
            let (file, function) = name.split_once("::").expect("a path");
            let path = format!("{}/tests/{file}.rs", env!("CARGO_MANIFEST_DIR"));
            let source = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(source.contains(&format!("fn {function}()")), "{name} is missing");
        }
    }
}

#[test]
fn a_handle_given_up_after_a_change_aborts_the_journal() {
    for panics in [false, true] {
        if panics && cfg!(panic = "abort") {
            continue;
        }
        let (device, map) = fresh();
        let journal = open(&device, &map);
        let client = PlainClient::attach(&journal);
        change(&journal, &client, HOME, 1);
        journal.commit_running().expect("commit");
        let half = std::panic::AssertUnwindSafe(|| {
            let handle = journal.start(2).expect("start");
            client.change(HOME, &[2; BLOCK as usize]);
            assert!(!panics, "in the midst");
            drop(handle);
        });
        assert_eq!(std::panic::catch_unwind(half).is_err(), panics);
        let error = journal.commit_running().expect_err("half an operation");
        let Error::Aborted(cause) = &error else { panic!("{error}") };
        assert!(matches!(**cause, Error::Unfinished { panicked, .. } if panicked == panics), "{cause}");
        assert!(cause.to_string().contains("states.rs"), "{cause}");
        assert!(journal.close().is_err());
        assert_eq!(client.aborts.lock().len(), 1);
        assert_eq!(superblock(&*device).s_errno, -5);
        let replay = recovery::replay(&*device, &map, BLOCK, BLOCKS).expect("replay");
        replay.checkpoint(&*device, &*device, &map).expect("checkpoint");
        assert_eq!(read_block(&*device, BLOCK, HOME)[0], 1, "half an operation was committed");
    }
}

#[test]
fn a_handle_given_up_before_its_first_change_costs_nothing() {
    let (device, map) = fresh();
    let journal = open(&device, &map);
    let client = PlainClient::attach(&journal);
    let handle = journal.start(5).expect("start");
    handle.charge(0);
    drop(handle);
    let handle = journal.start(5).expect("start");
    handle.charge(0);
    assert!(!handle.begin_change());
    handle.cancel_change();
    drop(handle);
    change(&journal, &client, HOME, 1);
    journal.close().expect("close");
    assert_eq!(journal.stats().commits, 1);
}

#[test]
fn a_long_log_is_used_as_far_as_memory_allows() {
    const LONG: u32 = 6000;
    const USED_MAX: u64 = 1024;
    let home = LOG + u64::from(LONG) + 1;
    let device = Arc::new(MemoryDevice::new((home + 2 * USED_MAX) * u64::from(BLOCK)));
    let map = format_log(&*device, BLOCK, LOG, LONG);
    let options = Options { used_bytes_max: USED_MAX * u64::from(BLOCK), ..Options::default() };
    let journal = Journal::open(device.clone(), device.clone(), BLOCK, map.clone(), options).expect("open");
    let client = PlainClient::attach(&journal);
    assert!(u64::from(journal.max_credits()) < USED_MAX / 3);
    let waiting =
        || (home..home + 2 * USED_MAX).filter(|block| journal.committed_block(FsBlock(*block)).is_some());
    let mut most = 0;
    for block in home..home + 2 * USED_MAX {
        change(&journal, &client, block, 7);
        journal.commit_running().expect("commit");
        if block % 64 == 0 || journal.stats().checkpoints > 0 {
            most = most.max(waiting().count() as u64);
        }
    }
    assert!(journal.stats().checkpoints > 0);
    // Each has a descriptor and a commit block beside it.
    assert!((USED_MAX / 6..=USED_MAX / 3).contains(&most), "{most}");
}
