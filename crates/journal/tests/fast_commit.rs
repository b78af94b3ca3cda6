//! The fast-commit area: which of its records count, and until when.

mod common;

use common::{PlainClient, empty_log, read_block};
use extant_block::{BlockDevice, Event, MemoryDevice, Recorder, Tearing};
use extant_journal::{Error, Journal, LogMap, Options, recovery};
use extant_ondisk::fast_commit::{Change, Dentry, put_checksum, put_head, put_tail};
use extant_ondisk::jbd2::{Incompat, Superblock};
use extant_ondisk::{FsBlock, InodeNumber, TransactionId, crc32c};
use extant_rt::Arc;
use extant_testing::Random;

const BLOCK: u32 = 1024;
const BLOCKS: u64 = 4096;
const LOG: u64 = 100;
const LOG_LEN: u32 = 1024;
const AREA_LEN: u32 = 40;
/// The first block of the area: the kernel leaves one out.
const AREA: u64 = LOG + (LOG_LEN - AREA_LEN) as u64 + 1;

/// A disk whose log has an area and one transaction, of number 1.
fn disk() -> (Arc<MemoryDevice>, LogMap) {
    let device = Arc::new(MemoryDevice::new(BLOCKS * u64::from(BLOCK)));
    let mut sb = empty_log(BLOCK, LOG_LEN);
    sb.s_feature_incompat = Incompat::FAST_COMMIT;
    sb.s_num_fc_blks = AREA_LEN;
    let mut block = vec![0; BLOCK as usize];
    sb.write(&mut block);
    device.write_at(LOG * u64::from(BLOCK), &block).expect("write");
    let map = LogMap::contiguous(FsBlock(LOG), LOG_LEN).expect("a map");
    let (journal, client) = open(&device, &map, false);
    change(&journal, &client, 1);
    (device, map)
}

fn open(device: &Arc<MemoryDevice>, map: &LogMap, replays: bool) -> (Arc<Journal>, Arc<PlainClient>) {
    let options = Options { replays_fast_commits: replays, ..Options::default() };
    let journal = Journal::open(device.clone(), device.clone(), BLOCK, map.clone(), options).expect("open");
    let client = PlainClient::attach(&journal);
    (journal, client)
}

fn change(journal: &Journal, client: &PlainClient, byte: u8) {
    let handle = journal.start(1).expect("start");
    client.change(50, &[byte; BLOCK as usize]);
    handle.finish();
    journal.commit_running().expect("commit");
}

/// A block with the records of names and the end of a fast commit.
fn fast_commit(tid: u32, is_first: bool, names: &[&[u8]]) -> Vec<u8> {
    let mut block = Vec::new();
    if is_first {
        put_head(TransactionId(tid), &mut block);
    }
    for name in names {
        let dentry = Dentry { parent: InodeNumber(2), inode: InodeNumber(12), name };
        Change::Link(dentry).write(&mut block).expect("a record");
    }
    put_tail(TransactionId(tid), BLOCK as usize, &mut block);
    let sum = crc32c(0, &block);
    put_checksum(sum, BLOCK as usize, &mut block);
    block
}

fn write(device: &MemoryDevice, index: u64, block: &[u8]) {
    device.write_at((AREA + index) * u64::from(BLOCK), block).expect("write");
}

fn names(replay: &recovery::Replay) -> Vec<&[u8]> {
    replay.fast_commit_records.iter().map(|record| &record.value[8..]).collect()
}

fn replay(device: &MemoryDevice, map: &LogMap) -> recovery::Replay {
    recovery::replay(device, map, BLOCK, BLOCKS).expect("replay")
}

#[test]
fn records_count_up_to_the_last_sound_tail_of_the_next_transaction() {
    let (device, map) = disk();
    assert!(!replay(&device, &map).has_fast_commits());
    write(&device, 0, &fast_commit(1, true, &[b"old"]));
    assert!(!replay(&device, &map).has_fast_commits(), "of a transaction that is durable");
    write(&device, 0, &fast_commit(2, false, &[b"headless"]));
    assert!(!replay(&device, &map).has_fast_commits(), "without a HEAD");
    write(&device, 0, &fast_commit(2, true, &[]));
    let empty = replay(&device, &map);
    assert!(!empty.has_fast_commits() && empty.next_sequence == TransactionId(3), "nothing to replay");
    write(&device, 0, &fast_commit(2, true, &[b"a"]));
    write(&device, 1, &fast_commit(2, false, &[b"b", b"c"]));
    write(&device, 2, &fast_commit(1, false, &[b"stale"]));
    write(&device, 3, &fast_commit(2, false, &[b"behind"]));
    let found = replay(&device, &map);
    assert_eq!((names(&found), found.report.fast_commits), (vec![&b"a"[..], b"b", b"c"], 2));
    assert_eq!(found.next_sequence, TransactionId(2), "they become that transaction");
    for byte in 0..BLOCK as usize {
        let mut damaged = fast_commit(2, false, &[b"b", b"c"]);
        damaged[byte] ^= 0x10;
        write(&device, 1, &damaged);
        let found = replay(&device, &map);
        // Nothing sums the bytes behind the checksum.
        let sound = fast_commit(2, false, &[b"b", b"c"]);
        let end = sound.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        assert_eq!(names(&found).len(), if byte < end { 1 } else { 3 }, "byte {byte}");
    }
    for len in 0..BLOCK as usize {
        let mut cut = fast_commit(2, true, &[b"a"]);
        cut[len..].fill(0);
        write(&device, 0, &cut);
        replay(&device, &map);
    }
}

#[test]
fn unknown_features_of_fast_commits_are_refused_by_name() {
    let (device, map) = disk();
    let mut block = fast_commit(2, true, &[b"a"]);
    block[4] = 2;
    write(&device, 0, &block);
    let error = recovery::replay(&*device, &map, BLOCK, BLOCKS).expect_err("unknown");
    assert!(matches!(error, Error::FastCommitFeatures(2)), "{error}");
    assert!(error.to_string().contains("features 0x2 of the fast commits"), "{error}");
    block[8] = 1;
    write(&device, 0, &block);
    assert!(!replay(&device, &map).has_fast_commits(), "features of what is obsolete do not matter");
}

#[test]
fn fast_commits_stay_to_be_replayed_until_their_transaction_is_durable() {
    let (device, map) = disk();
    write(&device, 0, &fast_commit(2, true, &[b"a"]));
    // A commit block that would end a transaction of that number.
    let left_over = replay(&device, &map).superblock.format().commit(TransactionId(2), 0, 0);
    device.write_at((LOG + 9) * u64::from(BLOCK), &left_over).expect("write");
    let found = replay(&device, &map);
    found.checkpoint(&*device, &*device, &map).expect("checkpoint");
    assert_eq!(
        read_block(&*device, BLOCK, LOG + 9)[..4],
        [0; 4],
        "no block ends a transaction of that number"
    );
    assert_eq!(read_block(&*device, BLOCK, 50)[0], 1, "the transactions before are at their final location");
    let again = replay(&device, &map);
    assert_eq!((names(&again), again.blocks.len()), (vec![&b"a"[..]], 0));
    let options = Options::default();
    let opened = Journal::open(device.clone(), device.clone(), BLOCK, map.clone(), options);
    assert!(matches!(opened, Err(Error::NeedsRecovery)));
    let (journal, client) = open(&device, &map, true);
    change(&journal, &client, 2);
    let found = replay(&device, &map);
    assert!(!found.has_fast_commits());
    assert_eq!((found.report.transactions, found.blocks[&FsBlock(50)][0]), (1, 2));
    assert_eq!(read_block(&*device, BLOCK, AREA)[..4], [0; 4], "e2fsck would stop at an old HEAD");
    journal.close().expect("close");
    let sb = Superblock::parse(&read_block(&*device, BLOCK, LOG)).expect("a superblock");
    assert_eq!((sb.s_start, sb.s_sequence), (0, TransactionId(3)));
}

#[test]
fn transactions_leave_the_area_alone() {
    let (device, map) = disk();
    write(&device, 4, &[9; BLOCK as usize]);
    let found = replay(&device, &map);
    found.checkpoint(&*device, &*device, &map).expect("checkpoint");
    let (journal, client) = open(&device, &map, false);
    for byte in 1..=250 {
        for _ in 0..3 {
            change(&journal, &client, byte);
        }
    }
    assert!(journal.stats().log_blocks > u64::from(LOG_LEN), "the log did not wrap");
    assert_eq!(read_block(&*device, BLOCK, AREA + 4)[0], 9);
}

/// e2fsck (1.47.0) takes the end of the area for that of the ring, and loses what is around it.
#[test]
fn a_log_with_an_area_does_not_go_around_its_end() {
    let (device, map) = disk();
    let found = replay(&device, &map);
    found.checkpoint(&*device, &*device, &map).expect("checkpoint");
    let (journal, client) = open(&device, &map, false);
    let mut starts = std::collections::BTreeSet::new();
    let mut random = Random::new(1);
    for round in 0..900_u32 {
        let handle = journal.start(9).expect("start");
        for block in 0..=random.below(8) {
            client.change(50 + block, &[round as u8; BLOCK as usize]);
        }
        handle.finish();
        journal.commit_running().expect("commit");
        let found = replay(&device, &map);
        let (start, end) = (found.superblock.s_start, found.report.end_block);
        assert!(start < end, "after {round} commits the log is from {start} to {end}");
        assert_eq!(found.blocks[&FsBlock(50)][0], round as u8, "the last transaction is found");
        starts.insert(start);
        if random.one_in(150) {
            journal.checkpoint().expect("checkpoint");
        }
    }
    assert!(journal.stats().log_blocks > 3 * u64::from(LOG_LEN), "the log was not filled several times");
    assert!(starts.contains(&1), "it begins at the front again");
    journal.close().expect("close");
}

/// A record of `bytes` bytes that says `number`.
fn record(number: u32, bytes: usize) -> Vec<u8> {
    let name = [&number.to_le_bytes()[..], &vec![b'x'; bytes - 16]].concat();
    let mut record = Vec::new();
    let dentry = Dentry { parent: InodeNumber(2), inode: InodeNumber(12), name: &name };
    Change::Link(dentry).write(&mut record).expect("a record");
    record
}

fn recorded() -> (Arc<Recorder<MemoryDevice>>, LogMap, Arc<Journal>, Arc<PlainClient>) {
    let (device, map) = disk();
    replay(&device, &map).checkpoint(&*device, &*device, &map).expect("checkpoint");
    let recorder = Arc::new(Recorder::over(device.snapshot()));
    let options = Options { fast_commits: true, ..Options::default() };
    let journal =
        Journal::open(recorder.clone(), recorder.clone(), BLOCK, map.clone(), options).expect("open");
    let client = PlainClient::attach(&journal);
    (recorder, map, journal, client)
}

/// Changes a block, and makes that durable by records, or by a commit without.
fn sync(journal: &Journal, client: &PlainClient, records: Option<Vec<Vec<u8>>>) {
    let handle = journal.start(1).expect("start");
    let tid = handle.tid();
    client.change(50, &[1; BLOCK as usize]);
    *client.records.lock() = records;
    handle.finish();
    journal.fast_commit(tid).expect("a commit");
}

#[test]
fn a_fast_commit_costs_one_flush_and_one_durable_block() {
    let (recorder, map, journal, client) = recorded();
    sync(&journal, &client, Some(vec![record(1, 40)]));
    let before = recorder.event_count();
    sync(&journal, &client, Some(vec![record(2, 40), record(3, 200)]));
    let log = recorder.log();
    let [Event::Flush, Event::Write { offset, bytes, fua: true }] = &log.events()[before..] else {
        panic!("{:?}", &log.events()[before..]);
    };
    assert_eq!((*offset, bytes.len()), ((AREA + 1) * u64::from(BLOCK), BLOCK as usize));
    let found = recovery::replay(recorder.inner(), &map, BLOCK, BLOCKS).expect("replay");
    assert_eq!((found.report.fast_commits, found.fast_commit_records.len()), (2, 3));
    assert_eq!((journal.stats().fast_commits, journal.stats().fast_commit_blocks), (2, 2));
    assert!(!journal.is_durable(journal.running_tid()), "the transaction goes on");
    let before = recorder.event_count();
    *client.records.lock() = Some(Vec::new());
    journal.fast_commit(journal.running_tid()).expect("nothing");
    assert_eq!(recorder.event_count(), before, "nothing changed since");
}

#[test]
fn what_records_cannot_say_is_committed_and_empties_the_area() {
    let (recorder, map, journal, client) = recorded();
    for number in 0..3 {
        sync(&journal, &client, Some(vec![record(number, 40)]));
    }
    sync(&journal, &client, None);
    let found = recovery::replay(recorder.inner(), &map, BLOCK, BLOCKS).expect("replay");
    assert_eq!((found.report.fast_commits, found.report.transactions), (0, 1));
    assert_eq!(read_block(recorder.inner(), BLOCK, AREA)[..4], [0; 4], "e2fsck would stop at an old HEAD");
    // Of so many, all but one fit: a block in front of the area and its last one are left out, and the last is of the next area.
    for number in 0..AREA_LEN {
        sync(&journal, &client, Some(vec![record(number, 40)]));
    }
    let stats = journal.stats();
    assert_eq!(
        (stats.commits, stats.fast_commits),
        (2, 3 + u64::from(AREA_LEN) - 1),
        "a full area is committed"
    );
    sync(&journal, &client, Some((0..300).map(|number| record(number, 200)).collect()));
    assert_eq!(journal.stats().commits, 3, "more than the area holds is committed");
}

#[test]
fn every_crash_keeps_the_fast_commits_that_returned() {
    for seed in 0..6 {
        let mut rng = Random::new(seed);
        let (recorder, map, journal, client) = recorded();
        let mut number = 0;
        let mut expected = Vec::new();
        for _ in 0..12 {
            let records: Vec<_> = (0..1 + rng.below(14))
                .map(|_| {
                    number += 1;
                    record(number, 20 + rng.below(240) as usize)
                })
                .collect();
            let is_fast = !rng.one_in(6);
            sync(&journal, &client, is_fast.then_some(records));
            // Those before a commit are part of it.
            expected.push(if is_fast { number } else { 0 });
            recorder.mark(expected.len() as u64);
        }
        let log = recorder.log();
        let mut cursor = log.cursor();
        for events in 0..=log.events().len() {
            cursor.advance_to(events).expect("advance");
            let returned = log.events()[..events].iter().rev().find_map(|event| match event {
                Event::Mark(mark) => Some(*mark as usize),
                _ => None,
            });
            for odds in 0..6 {
                let survives = |_: &_| odds > 3 || odds > 0 && rng.one_in(2);
                let image = cursor.crash_image(Tearing::Sectors, survives).expect("an image");
                let found = recovery::replay(&image, &map, BLOCK, BLOCKS).expect("replay");
                let last = found.fast_commit_records.last();
                let last =
                    last.map_or(0, |r| u32::from_le_bytes(r.value[8..12].try_into().expect("a number")));
                let numbers: Vec<u32> = found
                    .fast_commit_records
                    .iter()
                    .map(|r| u32::from_le_bytes(r.value[8..12].try_into().expect("a number")))
                    .collect();
                assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "seed {seed}: {numbers:?}");
                let least = returned.map_or(0, |count| expected[count - 1]);
                let is_committed = returned.is_some_and(|count| expected[count..].first() == Some(&0));
                assert!(
                    last >= least || is_committed && last == 0,
                    "seed {seed}, {events} events: up to {last} of {least}"
                );
            }
        }
    }
}

#[test]
fn what_e2fsck_reads_first_is_at_its_final_location_and_no_old_head_is_left() {
    let (recorder, _, journal, client) = recorded();
    let events = |act: &dyn Fn()| {
        let before = recorder.event_count();
        act();
        recorder.log().events()[before..].to_vec()
    };
    let is_write = |event: &Event, block: u64, is_durable: bool| matches!(event, Event::Write { offset, fua, .. } if *offset == block * u64::from(BLOCK) && *fua == is_durable);
    sync(&journal, &client, None);
    let first = events(&|| sync(&journal, &client, Some(vec![record(1, 40)])));
    let flush = first.iter().position(|event| *event == Event::Flush).expect("a flush");
    assert!(first[..flush].iter().any(|event| is_write(event, 50, false)), "{first:?}");
    let second = events(&|| sync(&journal, &client, Some(vec![record(2, 40)])));
    assert!(!second.iter().any(|event| is_write(event, 50, false)), "nothing was committed since");
    let commit = events(&|| sync(&journal, &client, None));
    assert!(commit.last().is_some_and(|last| is_write(last, AREA, true)), "{commit:?}");
    assert_eq!(read_block(recorder.inner(), BLOCK, AREA)[..4], [0; 4]);
}
