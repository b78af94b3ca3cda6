//! Rules of order of growing, each broken on purpose: crashes must find it.

use extant_block::Mutation;
use extant_ondisk::Superblock;

use crate::crash::{Explorer, ONE_GROUP, PLAIN_LOG, Recorded, record};
use crate::disk::Plan;
use crate::order::{self, BLOCK_BYTES, Requests};

const PLAN: Plan = Plan { rounds: 1, judged_of: 400, from: 0 };
/// For what few crashes show.
const RARE: Plan = Plan { rounds: 20, ..PLAN };
/// For what e2fsck alone sees.
const JUDGED: Plan = Plan { judged_of: 3, ..PLAN };

/// Asserts that crashes find what `break_rule` does to the requests of a case.
fn assert_found(case: usize, plan: Plan, break_rule: impl FnOnce(&Recorded, &mut Requests) -> usize) {
    let Some(recorded) = record(case, Mutation::None) else { return };
    let run = (&recorded.image, &recorded.base, &recorded.log);
    order::assert_found(
        run,
        |requests| break_rule(&recorded, requests),
        |log, from| {
            let mut explorer = Explorer::default();
            explorer.explore(&recorded, log, Plan { from, ..plan });
            (explorer.images, explorer.bad.pop())
        },
    );
}

/// The superblock that a request writes at its place.
fn superblock(requests: &Requests, at: usize) -> Option<Superblock> {
    let (offset, bytes) = requests.written(at)?;
    Superblock::parse(bytes.get(1024_u64.checked_sub(offset)? as usize..)?).ok()
}

/// E9.
#[test]
fn new_groups_whose_bitmaps_arrive_after_the_transaction_are_found() {
    assert_found(PLAIN_LOG, JUDGED, |recorded, requests| {
        let is_outside =
            |requests: &Requests, at| requests.is_before_commit(at) && requests.start(at) >= recorded.before;
        requests.delay(is_outside, Requests::is_commit)
    });
}

/// E9.
#[test]
fn a_superblock_that_is_at_its_place_before_its_descriptors_is_found() {
    assert_found(PLAIN_LOG, RARE, |recorded, requests| {
        let is_larger = |requests: &Requests, at| {
            let blocks = superblock(requests, at).map_or(0, |superblock| superblock.blocks_count());
            blocks * BLOCK_BYTES > recorded.before
        };
        let placed = (0..requests.count()).find(|at| is_larger(requests, *at)).expect("a superblock");
        let flush = (0..placed).rev().find(|at| requests.is_flush(*at)).expect("a flush");
        requests.drop(|_, at| at == flush)
    });
}

/// E9.
#[test]
fn descriptors_that_are_not_part_of_the_transaction_are_found() {
    assert_found(PLAIN_LOG, PLAN, |_, requests| requests.make_stale(|block, _, _| block == 2));
}

/// E9.
#[test]
fn a_map_of_reserved_blocks_that_is_not_part_of_the_transaction_is_found() {
    assert_found(PLAIN_LOG, JUDGED, |_, requests| requests.make_stale(|block, _, _| block > 2 && block < 60));
}

/// E9.
#[test]
fn a_second_group_without_its_copy_of_the_superblock_is_found() {
    assert_found(ONE_GROUP, RARE, |_, requests| {
        let copy = 8193 * BLOCK_BYTES;
        requests.delay(|requests, at| requests.start(at) <= copy && requests.end(at) > copy, |_, _| false)
    });
}
