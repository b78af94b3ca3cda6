//! Discards of free blocks: each once, and nobody is given a block meanwhile.

use crate::disk::{Disk, request};
use extant_alloc::{Allocator, ClusterRun, Error, MayUse};
use extant_ondisk::{GroupNumber, TransactionId};
use extant_rt::{AtomicBool, AtomicU64, Ordering};
use extant_testing::Random;

const TID: TransactionId = TransactionId(5);
const GROUP: GroupNumber = GroupNumber(1);

fn take(alloc: &Allocator, goal: u64, len: u32) -> ClusterRun {
    let mut reservation = alloc.reserve(u64::from(len), MayUse::RootBlocks).expect("free blocks");
    alloc.allocate(&mut reservation, &request(goal, len)).expect("a reserved block")
}

/// What a trim of a range of bits of the group discards: bits and lengths.
fn trim(alloc: &Allocator, range: std::ops::Range<u32>, least: u32) -> Vec<(u64, u32)> {
    let mut runs = Vec::new();
    let blocks = alloc.trim(GROUP, range, least, |run| {
        runs.push((run.start.0 - 257, run.len));
        Ok::<_, Error>(())
    });
    assert_eq!(blocks.expect("a bitmap"), runs.iter().map(|(_, len)| u64::from(*len)).sum::<u64>());
    runs
}

#[test]
fn runs_of_the_least_length_are_discarded_once_until_blocks_come_back() {
    let alloc = Disk::new(1 + 256 * 3, 256, false).open();
    let free = alloc.free_blocks();
    let held = [take(&alloc, 257 + 100, 1), take(&alloc, 257 + 103, 1), take(&alloc, 257 + 250, 6)];
    let start = (alloc.free_runs(GROUP).expect("a bitmap")[0].start.0 - 257) as u32;
    let first = (u64::from(start), 100 - start);
    assert_eq!(trim(&alloc, 90..200, 10), [(90, 10), (104, 96)], "cut to the range");
    assert_eq!(trim(&alloc, 0..u32::MAX, 3), [first, (104, 146)]);
    assert_eq!(trim(&alloc, 0..u32::MAX, 3), []);
    assert_eq!(trim(&alloc, 101..u32::MAX, 200), [], "shorter ones are not looked for either");
    assert_eq!(trim(&alloc, 0..u32::MAX, 0), [first, (101, 2), (104, 146)]);

    alloc.mark_used(TID, held[0]).expect("taken blocks");
    alloc.freeze(TID);
    alloc.mark_free(TID.next(), held[0]).expect("used blocks");
    alloc.freeze(TID.next());
    assert_eq!(trim(&alloc, 0..u32::MAX, 0), [], "what is not committed is not discarded");
    alloc.committed(TID.next());
    assert_eq!(trim(&alloc, 0..u32::MAX, 0), [(u64::from(start), 103 - start), (104, 146)]);
    held[1..].iter().for_each(|run| alloc.free_unmarked(*run));
    assert_eq!(alloc.free_blocks(), free);
}

#[test]
fn a_failed_discard_leaves_the_blocks_free_and_the_group_to_be_done_again() {
    let alloc = Disk::new(1 + 256 * 3, 256, false).open();
    let free = alloc.free_blocks();
    let refused = alloc.trim(GROUP, 0..u32::MAX, 1, |_| Err(Error::NoInodes));
    assert!(matches!(refused, Err(Error::NoInodes)));
    assert_eq!(alloc.free_blocks(), free);
    assert_eq!(trim(&alloc, 0..u32::MAX, 1).len(), 1);
    assert!(alloc.trim(GroupNumber(3), 0..u32::MAX, 1, |_| Ok::<_, Error>(())).is_err(), "no such group");
}

#[test]
fn a_run_is_nobodys_while_it_is_discarded() {
    let alloc = Disk::new(1 + 256, 256, false).open();
    let free = alloc.free_blocks();
    let mut promised = alloc.reserve(free - 10, MayUse::RootBlocks).expect("free blocks");
    let mut discarded = Vec::new();
    alloc
        .trim(GroupNumber(0), 0..u32::MAX, 1, |run| {
            let runs = alloc.free_runs(GroupNumber(0)).expect("a bitmap");
            let end = |run: &ClusterRun| run.start.0 + u64::from(run.len);
            assert!(runs.iter().all(|other| end(other) <= run.start.0 || end(&run) <= other.start.0));
            discarded.push(run.len);
            Ok::<_, Error>(())
        })
        .expect("a bitmap");
    assert!(discarded.iter().all(|len| *len <= 10), "what others have reserved stays: {discarded:?}");
    while promised.blocks() > 0 {
        alloc.allocate(&mut promised, &request(1, 64)).expect("a reserved block");
    }
}

#[test]
fn nobody_is_refused_a_block_for_a_discard_or_given_one_under_it() {
    const TRIMMER: u64 = 99;
    for seed in 1..=3 {
        println!("seed {seed}");
        let alloc = Disk::new(1 + 64 * 12, 64, true).open();
        let all = alloc.free_blocks();
        let owners: Vec<AtomicU64> = (0..=64 * 12).map(|_| AtomicU64::new(0)).collect();
        let own = |run: ClusterRun, from: u64, to: u64| {
            for block in run.start.0..run.start.0 + u64::from(run.len) {
                assert_eq!(owners[block as usize].swap(to, Ordering::SeqCst), from, "block {block}");
            }
        };
        let (stop, discarded) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let (alloc, own, stop, discarded) = (&alloc, &own, &stop, &discarded);
            scope.spawn(move || {
                for group in (0..12).cycle().map(GroupNumber) {
                    let blocks = alloc.trim(group, 0..u32::MAX, 1, |run| {
                        own(run, 0, TRIMMER);
                        std::thread::yield_now();
                        own(run, TRIMMER, 0);
                        Ok::<_, Error>(())
                    });
                    discarded.fetch_add(blocks.expect("a bitmap"), Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            let takers = [1, 2].map(|thread| {
                scope.spawn(move || {
                    let mut random = Random::new(seed * 10 + thread);
                    for _ in 0..300 {
                        // Two of them cannot ask for more than there is.
                        let len = all / 2 - random.below(8);
                        let mut reservation =
                            alloc.reserve(len, MayUse::RootBlocks).expect("half of the blocks");
                        let mut held = Vec::new();
                        while reservation.blocks() > 0 {
                            let len = 1 + random.below(64) as u32;
                            let run = alloc.allocate(&mut reservation, &request(random.below(768), len));
                            held.push(run.expect("a reserved block"));
                            own(held[held.len() - 1], 0, thread);
                        }
                        for run in held {
                            own(run, thread, 0);
                            alloc.free_unmarked(run);
                        }
                    }
                })
            });
            let ended = takers.map(|taker| taker.join());
            stop.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|end| end.expect("a taker"));
        });
        assert_eq!(alloc.free_blocks(), all);
        assert!(discarded.into_inner() > 0);
    }
}

#[test]
fn no_block_past_the_end_of_the_disk_is_discarded() {
    let alloc = Disk::new(1 + 256 + 100, 256, false).open();
    let last: Vec<_> = trim(&alloc, 0..u32::MAX, 1);
    assert_eq!(last.last().map(|(start, len)| start + u64::from(*len)), Some(100), "the end of the disk");
}
