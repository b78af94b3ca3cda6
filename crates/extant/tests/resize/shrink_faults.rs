//! Rules of order of shrinking, each broken on purpose: crashes must find it, or the tests that find nothing prove nothing.

use std::collections::BTreeSet;

use extant_block::Mutation;
use extant_ondisk::jbd2::BlockType;
use extant_ondisk::{Superblock, dirent};

use crate::disk::{Image, Plan, run, text};
use crate::order::{self, BLOCK_BYTES, Requests, end};
use crate::shrink_crash::{
    BITMAPS, Explorer, JOURNAL, JOURNAL_IN_PARTS, PLAIN_LOG, QUOTAS, Recorded, SPREAD_TABLES, record,
};

const PLAN: Plan = Plan { rounds: 3, judged_of: 400, from: 0 };
/// For what few crashes show.
const RARE: Plan = Plan { rounds: 20, ..PLAN };
/// For what e2fsck alone sees.
const JUDGED: Plan = Plan { judged_of: 4, ..PLAN };

/// The last two bytes of the number that a node of an extent tree begins with, as they lie there.
const NODE: &[u8] = &[0x0A, 0xF3];
/// The number that a block of attributes begins with.
const XATTR: &[u8] = &[0, 0, 2, 0xEA];

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

/// The place of the last request of a kind before another one.
fn last(requests: &Requests, before: usize, is_such: impl Fn(&Requests, usize) -> bool) -> usize {
    (0..before).rev().find(|at| is_such(requests, *at)).expect("such a request")
}

fn is_node(requests: &Requests, at: usize) -> bool {
    requests.written(at).is_some_and(|(_, bytes)| bytes.starts_with(NODE))
}

fn is_tail(requests: &Requests, at: usize) -> bool {
    requests.is_durable(at, BlockType::SuperblockV2)
}

/// E11.
#[test]
fn content_that_arrives_after_its_inode_moved_is_found() {
    let is_content = |requests: &Requests, at| requests.is_before_commit(at) && !is_node(requests, at);
    assert_found(0, PLAN, |_, requests| requests.delay(is_content, Requests::is_commit));
}

/// E11.
#[test]
fn a_map_that_arrives_after_its_inode_moved_is_found() {
    let is_map = |requests: &Requests, at| requests.is_before_commit(at) && is_node(requests, at);
    assert_found(JOURNAL_IN_PARTS, PLAN, |_, requests| requests.delay(is_map, Requests::is_commit));
}

/// E11.
#[test]
fn a_name_that_changes_after_its_inode_got_another_number_is_found() {
    let entries = |block: &[u8]| {
        let all = dirent::live_entries(block, block.len());
        all.map(|entry| entry.ok().map(|entry| (entry.name.to_vec(), entry.inode)))
            .collect::<Option<Vec<_>>>()
    };
    assert_found(PLAIN_LOG, PLAN, |_, requests| {
        requests.make_stale(|_, old, new| {
            let Some((old, new)) = entries(old).zip(entries(new)) else { return false };
            let names = |entries: &[(Vec<u8>, _)]| entries.iter().map(|it| it.0.clone()).collect::<Vec<_>>();
            !new.is_empty() && names(&old) == names(&new)
        })
    });
}

/// E11.
#[test]
fn a_block_of_attributes_that_is_not_part_of_the_update_is_found() {
    assert_found(PLAIN_LOG, PLAN, |_, requests| requests.make_stale(|_, _, new| new.starts_with(XATTR)));
}

/// E11.
#[test]
fn a_block_of_a_quota_file_that_is_not_part_of_the_update_is_found() {
    let blocks = |image: &Image| -> BTreeSet<u64> {
        let all = [3, 4].map(|inode| {
            run("debugfs", &["-R", &format!("blocks <{inode}>"), text(&image.path)]).expect("debugfs")
        });
        all.iter().flat_map(|blocks| blocks.split_whitespace()).filter_map(|it| it.parse().ok()).collect()
    };
    assert_found(QUOTAS, JUDGED, |recorded, requests| {
        let before = blocks(&recorded.image);
        recorded.image.store(&end(&recorded.log));
        let new: BTreeSet<u64> = blocks(&recorded.image).difference(&before).copied().collect();
        requests.make_stale(|block, _, _| new.contains(&block))
    });
}

/// E11.
#[test]
fn a_bitmap_that_arrives_after_its_descriptor_is_found() {
    assert_found(BITMAPS, JUDGED, |recorded, requests| {
        let bitmaps = |image: &Image| -> BTreeSet<u64> {
            let said = run("dumpe2fs", &[text(&image.path)]).expect("dumpe2fs");
            let places = said.lines().filter_map(|line| line.trim().split_once(" bitmap at "));
            places.filter_map(|(_, place)| place.split(' ').next()?.parse().ok()).collect()
        };
        let before = bitmaps(&recorded.image);
        recorded.image.store(&end(&recorded.log));
        let new: BTreeSet<u64> = bitmaps(&recorded.image).difference(&before).copied().collect();
        let is_bitmap = |requests: &Requests, at| {
            new.contains(&(requests.start(at) / BLOCK_BYTES)) && requests.is_before_commit(at)
        };
        requests.delay(is_bitmap, Requests::is_commit)
    });
}

/// E11.
#[test]
fn a_superblock_that_is_cut_after_its_groups_is_found() {
    let blocks = |bytes: &[u8]| Superblock::parse(bytes).map_or(0, |superblock| superblock.blocks_count());
    assert_found(PLAIN_LOG, JUDGED, |_, requests| {
        requests.make_stale(|block, old, new| block == 1 && blocks(old) > blocks(new))
    });
}

/// E11: a replay that writes behind the new end.
#[test]
fn a_cut_without_a_checkpoint_before_it_is_found() {
    assert_found(SPREAD_TABLES, PLAN, |_, requests| {
        let cut = last(requests, requests.count(), Requests::is_commit);
        let tail = last(requests, cut, is_tail);
        requests.drop(|_, at| at == tail)
    });
}

/// E11.
#[test]
fn a_journal_that_is_exchanged_before_its_new_blocks_are_durable_is_found() {
    assert_found(JOURNAL, RARE, |_, requests| {
        let zeroed = last(requests, requests.count(), Requests::is_zeroes);
        let flush = (zeroed..requests.count()).find(|at| requests.is_flush(*at)).expect("a flush");
        requests.drop(|_, at| at == flush)
    });
}

/// E11.
#[test]
fn blocks_of_the_journals_old_map_that_are_used_before_its_inode_is_checkpointed_are_found() {
    assert_found(JOURNAL_IN_PARTS, PLAN, |_, requests| {
        // The commit that cuts off the old blocks, and the checkpoint behind it.
        let exchanged = last(requests, requests.count(), Requests::is_zeroes);
        let commit = (exchanged..requests.count()).find(|at| requests.is_commit(*at)).expect("a commit");
        let tail = (commit..requests.count()).find(|at| is_tail(requests, *at)).expect("a checkpoint");
        let next = (tail..requests.count()).find(|at| requests.is_commit(*at)).expect("a commit");
        requests.delay(|_, at| (commit + 1..=tail).contains(&at), |_, at| at == next)
    });
}
