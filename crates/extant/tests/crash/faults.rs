//! Tests of the explorer: with a fault on the way to the disk it finds bad images, and none without.

use extant_block::{Event, MemoryDevice, Mutation, Recorder, Tearing};
use extant_ondisk::fast_commit::{Record, Tag};
use extant_ondisk::jbd2::MAGIC;

use crate::disk::{Checker, DiskKind};
use crate::explore::{Base, Crash, Outcome, Plan, Recording, Scenario, Survival, explore, tree_as_is};
use crate::fault::{Fault, FaultyDevice};
use crate::generate::nameless_beginnings;
use crate::op::{HELD, Op};
use crate::sequences::{log_end_scenario, pages};
use crate::session::{Pages, mount};

const PLAN: Plan = Plan { trees: 400, checked: 5, compared: 0 };

/// jbd2's numbers of blocks.
const COMMIT_BLOCK: u32 = 2;
const SUPERBLOCK: u32 = 4;

fn base(name: &str) -> Base {
    Base::new(DiskKind::named(name).expect("a disk"))
}

fn scenario(base: &Base, ops: Vec<Op>) -> Scenario<'_> {
    Scenario { base, ops, fault: Fault::None, commits: 0, seed: 1, pages: Pages::default() }
}

/// Asserts that one of the sequences leaves bad images with the fault, and none without.
fn assert_found<'b>(fault: Fault, scenarios: impl IntoIterator<Item = Scenario<'b>>) {
    let mut checker = Checker::new();
    let mut total = Outcome::default();
    for scenario in scenarios {
        let without = explore(&scenario, PLAN, &mut checker);
        assert!(without.bad.is_empty(), "without a fault: {:?}\n{scenario}", without.bad.first());
        let with = explore(&Scenario { fault, ..scenario }, PLAN, &mut checker);
        // The operations must not notice, or it is not the crash that shows the fault.
        assert!(with.bad.iter().all(|finding| finding.crash.is_some()), "{fault:?}: {:?}", with.bad.first());
        total.add(with);
        if let Some(first) = total.bad.first() {
            println!("{fault:?}: {total}, the first: {}", first.what.lines().next().unwrap_or_default());
            return;
        }
    }
    panic!("{fault:?} was not found: {total}");
}

/// Every kind of sync, after overwriting in place, allocating, and renaming over a file.
fn synced_operations(block: u64) -> Vec<Op> {
    vec![
        Op::Create("c"),
        Op::Write { file: "c", at: 0, bytes: 3 * block },
        Op::Fsync("c"),
        Op::Write { file: "a", at: 10, bytes: 2 * block },
        Op::Fdatasync("a"),
        Op::Rename { from: "c", to: "a" },
        Op::Fsync("a"),
        Op::Unlink("d/a"),
        Op::Append { file: "a", bytes: 700 },
        Op::Sync,
    ]
}

/// Indices of the flushes that a write of such a block of the journal follows.
fn flushes_before(recording: &Recording, block_type: u32) -> Vec<u64> {
    let header: Vec<u8> = [MAGIC, block_type].into_iter().flat_map(u32::to_be_bytes).collect();
    flushes_before_such(recording, |bytes| bytes.starts_with(&header))
}

/// Indices of the flushes that a durable write of such a block follows.
fn flushes_before_such(recording: &Recording, is_block: impl Fn(&[u8]) -> bool) -> Vec<u64> {
    let is_such = |event: &Event| matches!(event, Event::Write { bytes, fua: true, .. } if is_block(bytes));
    let events = recording.log.events();
    let flushes = events.iter().enumerate().filter(|(_, event)| **event == Event::Flush);
    let before_such = |at: usize| {
        let next = events[at..].iter().find(|event| !matches!(event, Event::Flush | Event::Mark(_)));
        at >= recording.start && next.is_some_and(&is_such)
    };
    (0..).zip(flushes).filter(|(_, (at, _))| before_such(*at)).map(|(index, _)| index).collect()
}

/// J2, E2.
#[test]
fn a_device_that_ignores_flushes_is_found() {
    if !extant_testing::has_e2fsprogs() {
        return;
    }
    for name in ["1k-checksums", "4k-group-checksums"] {
        let base = base(name);
        let ops = synced_operations(base.kind.block_size);
        assert_found(Fault::Recording(Mutation::DropAllFlushes), [scenario(&base, ops)]);
    }
}

/// J3, E2.
#[test]
fn each_flush_before_a_commit_block_is_needed() {
    if !extant_testing::has_e2fsprogs() {
        return;
    }
    // Without checksums in the log, or the commit with copies missing would not count.
    let base = base("1k-plain");
    let scenario = scenario(&base, synced_operations(base.kind.block_size));
    let flushes = flushes_before(&scenario.record().expect("a recording"), COMMIT_BLOCK);
    assert!(flushes.len() >= 3, "{flushes:?}");
    for flush in flushes {
        assert_found(Fault::Recording(Mutation::DropFlush(flush)), [scenario.clone()]);
    }
}

/// J13.
#[test]
fn the_flush_between_home_writes_and_the_tail_is_needed() {
    if !extant_testing::has_e2fsprogs() {
        return;
    }
    let base = base("1k-checksums");
    let scenario = log_end_scenario(&base, 3);
    let flushes = flushes_before(&scenario.record().expect("a recording"), SUPERBLOCK);
    let first = flushes.first().expect("a checkpoint");
    assert_found(Fault::Recording(Mutation::DropFlush(*first)), [scenario.clone()]);
}

/// J5, E4. A commit that no sync asked for, but a full transaction: nothing but the commit block itself makes it durable
/// before freed blocks are used again.
#[test]
fn a_commit_block_that_is_not_durable_is_found() {
    if !extant_testing::has_e2fsprogs() {
        return;
    }
    let base = base("1k-plain");
    let mut ops = vec![Op::Write { file: "b", at: 0, bytes: 300 << 10 }, Op::Sync, Op::Unlink("b")];
    ops.extend([Op::Fill { dir: "e", count: 120 }; 5]);
    ops.extend(files_of_a_block(0));
    assert_found(Fault::Recording(Mutation::DropFua), [scenario(&base, ops)]);
}

/// New files of one block each at the byte `at`. From 64 KiB on they are too large for a chunk of small files, and take
/// the first free blocks that there are.
fn files_of_a_block(at: u64) -> Vec<Op> {
    ["c", "d/b", "e/b", "d/c", "e/c", "d/d", "e/e", "d/e"]
        .into_iter()
        .flat_map(|file| [Op::Create(file), Op::Write { file, at, bytes: 1000 }])
        .collect()
}

/// A block of metadata that went through the journal is freed and becomes a file's; the crash comes before the
/// checkpoint.
fn assert_revoke_needed(base: &Base, mut ops: Vec<Op>) {
    ops.push(Op::Sync);
    ops.extend(files_of_a_block(80 << 10));
    ops.push(Op::Sync);
    assert_found(Fault::NoRevokes, [scenario(base, ops)]);
}

/// J9, E3.
#[test]
fn a_missing_revoke_of_an_attribute_block_is_found() {
    if !extant_testing::has_e2fsprogs() {
        return;
    }
    let ops =
        vec![Op::SetXattr { path: "b", key: 1, bytes: 650 }, Op::Sync, Op::RemoveXattr { path: "b", key: 1 }];
    assert_revoke_needed(&base("1k-plain"), ops);
}

/// J9, E3.
#[test]
fn a_missing_revoke_of_a_directory_block_is_found() {
    if !extant_testing::has_e2fsprogs() {
        return;
    }
    let ops = vec![Op::Mkdir("c"), Op::Sync, Op::Rmdir("c")];
    assert_revoke_needed(&base("1k-plain"), ops);
}

/// J9, E3.
#[test]
fn a_missing_revoke_of_a_symbolic_link_is_found() {
    if !extant_testing::has_e2fsprogs() {
        return;
    }
    let ops = vec![Op::Symlink { link: "c", bytes: 300 }, Op::Sync, Op::Unlink("c")];
    assert_revoke_needed(&base("1k-plain"), ops);
}

/// J9, E3.
#[test]
fn a_missing_revoke_of_an_extent_node_is_found() {
    if !extant_testing::has_e2fsprogs() {
        return;
    }
    // `fallocate` makes no preallocation, so that the node is among the first free ones afterwards.
    let allocate = |at| Op::Allocate { file: "a", at, bytes: 1024, keep_size: false };
    let mut ops: Vec<_> = (10_u64..20).step_by(2).map(|block| allocate(block << 10)).collect();
    ops.extend([Op::Sync, Op::Truncate { file: "a", bytes: 4096 }]);
    assert_revoke_needed(&base("1k-plain"), ops);
}

/// E8. The log has no checksums of its blocks, so that the superblock in it can be changed.
#[test]
fn an_orphan_that_the_superblock_does_not_name_is_found() {
    if !extant_testing::has_e2fsprogs() {
        return;
    }
    let base = base("1k-plain");
    let truncated = Op::Truncate { file: HELD, bytes: 1100 };
    for beginning in nameless_beginnings(1024) {
        let ops = [beginning, vec![truncated, Op::Fsync("d"), Op::Create("c"), Op::Sync]].concat();
        assert_found(Fault::NoOrphans, [scenario(&base, ops)]);
    }
}

/// E2.
#[test]
fn data_that_arrives_after_its_commit_is_found() {
    if !extant_testing::has_e2fsprogs() {
        return;
    }
    for name in ["1k-checksums", "4k-checksums"] {
        let base = base(name);
        let ops = synced_operations(base.kind.block_size);
        assert_found(Fault::LateWrites, [scenario(&base, ops)]);
    }
}

/// New blocks of a file, synced again and again: each sync is a fast commit.
fn growing_file(block: u64) -> Vec<Op> {
    let mut ops = vec![Op::Create("c"), Op::Fsync("c")];
    for turn in 0..4 {
        ops.extend([Op::Write { file: "c", at: turn * 3 * block, bytes: 2 * block }, Op::Fsync("c")]);
    }
    ops
}

fn is_fast_commit(bytes: &[u8]) -> bool {
    let mut at = 0;
    while let Some(record) = Record::at(bytes, at) {
        if record.tag == Tag::Tail {
            return true;
        }
        at += record.bytes.len();
    }
    false
}

/// J30, E2.
#[test]
fn each_flush_before_a_fast_commit_is_needed() {
    if !extant_testing::has_e2fsprogs() {
        return;
    }
    let base = base("4k-fast-commits");
    let scenario = scenario(&base, growing_file(base.kind.block_size));
    let flushes = flushes_before_such(&scenario.record().expect("a recording"), is_fast_commit);
    assert!(flushes.len() >= 4, "{flushes:?}");
    // The last ones are of syncs after which new blocks have data.
    for flush in &flushes[flushes.len() - 4..] {
        assert_found(Fault::Recording(Mutation::DropFlush(*flush)), [scenario.clone()]);
    }
}

/// J30.
#[test]
fn a_fast_commit_that_is_not_durable_is_found() {
    if !extant_testing::has_e2fsprogs() {
        return;
    }
    let base = base("4k-fast-commits");
    assert_found(Fault::Recording(Mutation::DropFua), [scenario(&base, growing_file(base.kind.block_size))]);
}

/// J30, E2.
#[test]
fn data_that_arrives_after_its_fast_commit_is_found() {
    if !extant_testing::has_e2fsprogs() {
        return;
    }
    for name in ["4k-fast-commits", "1k-fast-commits"] {
        let base = base(name);
        assert_found(Fault::LateWrites, [scenario(&base, growing_file(base.kind.block_size))]);
    }
}

/// J29, J31: a change that is missing in a fast commit, of each kind.
#[test]
fn a_change_that_no_record_says_is_found() {
    if !extant_testing::has_e2fsprogs() {
        return;
    }
    let base = base("4k-fast-commits");
    let block = base.kind.block_size;
    let made = [Op::Create("c"), Op::Write { file: "c", at: 0, bytes: 3 * block }, Op::Sync];
    let changes = [
        (Tag::AddRange, Op::Write { file: "c", at: 5 * block, bytes: block }, "c"),
        (Tag::DelRange, Op::Punch { file: "c", at: block, bytes: block }, "c"),
        (Tag::Inode, Op::Chmod { path: "c", mode: 0o600 }, "c"),
        // Half of an update, as if a handle were open while the records are collected.
        (Tag::Link, Op::Rename { from: "c", to: "d/c" }, "d/c"),
        (Tag::Unlink, Op::Rename { from: "c", to: "d/c" }, "d/c"),
        (Tag::Creat, Op::Create("d/c"), "d/c"),
    ];
    for (tag, change, changed) in changes {
        let ops = made.into_iter().chain([change, Op::Fsync(changed), Op::Create("e/c")]);
        assert_found(Fault::NoRecords(tag), [scenario(&base, ops.collect())]);
    }
}

/// J23: a fast commit that would be replayed over the transaction that it is part of.
#[test]
fn a_fast_commit_of_another_transaction_is_found() {
    if !extant_testing::has_e2fsprogs() {
        return;
    }
    let base = base("4k-fast-commits");
    let mut ops = growing_file(base.kind.block_size);
    ops.extend([Op::Truncate { file: "c", bytes: 10 }, Op::Sync]);
    assert_found(Fault::LaterFastCommits, [scenario(&base, ops)]);
}

/// Invariant 1 of `docs/design/writeback.md`.
#[test]
fn delayed_data_that_arrives_after_its_commit_is_found() {
    if !extant_testing::has_e2fsprogs() {
        return;
    }
    for name in ["1k-checksums", "4k-checksums"] {
        let base = base(name);
        let ops = synced_operations(base.kind.block_size);
        assert_found(Fault::LateWrites, [Scenario { pages: pages(0), ..scenario(&base, ops) }]);
    }
}

/// How many crashes of a recovery leave another tree than the recovery gives.
fn bad_crashes_of_recovery(base: &Base, image: &MemoryDevice, fault: Fault) -> usize {
    let recorder = Recorder::over(image.snapshot());
    let device = FaultyDevice::new(recorder, fault, base.kind.block_size, base.journal.clone());
    device.arm();
    let fs = mount(device.clone(), false).expect("mount");
    let log = device.recorder.log();
    drop(fs);
    let tree = tree_as_is(image).expect("a tree");
    let mut bad = 0;
    for (events, seed) in (0..=log.events().len()).flat_map(|events| (0..20).map(move |seed| (events, seed)))
    {
        let survival = Survival::Some { seed, odds: seed % 4, tearing: Tearing::Sectors };
        let image = Crash { events, survival }.image(&mut log.cursor(), false);
        bad += usize::from(tree_as_is(&image).ok().as_ref() != Some(&tree));
    }
    bad
}

/// J18.
#[test]
fn the_flush_between_replay_and_emptying_the_log_is_needed() {
    if !extant_testing::has_e2fsprogs() {
        return;
    }
    let base = base("1k-checksums");
    let recording = scenario(&base, synced_operations(1024)).record().expect("a recording");
    let crash = Crash { events: recording.log.events().len(), survival: Survival::None };
    let image = crash.image(&mut recording.log.cursor(), false);
    assert_eq!(bad_crashes_of_recovery(&base, &image, Fault::None), 0);
    assert!(bad_crashes_of_recovery(&base, &image, Fault::Recording(Mutation::DropAllFlushes)) > 0);
}

/// Mounts a disk of which a crash left one sector of the superblock as the unmount wrote it.
fn mount_torn(name: &str, keeps_first: bool) -> extant::Result<extant::Filesystem> {
    let base = base(name);
    let recording = scenario(&base, vec![Op::Chmod { path: "a", mode: 0o600 }, Op::Remount])
        .record()
        .expect("a recording");
    let events = recording.log.events();
    let is_superblock = |event: &Event| matches!(event, Event::Write { offset: 1024, bytes, fua: false } if bytes.len() == 1024);
    let at = (recording.start..events.len()).find(|at| is_superblock(&events[*at])).expect("a superblock");
    let torn = recording.log.crash_image(at + 1, Tearing::Sectors, |part| {
        part.event != at || (part.offset == 1024) == keeps_first
    });
    mount(extant_rt::Arc::new(torn.expect("an image")), false)
}

#[test]
fn a_superblock_that_is_torn_is_believed_if_its_copy_says_so() {
    if !extant_testing::has_e2fsprogs() {
        return;
    }
    for keeps_first in [true, false] {
        for name in ["1k-checksums", "4k-checksums", "1k-plain"] {
            let fs = mount_torn(name, keeps_first).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(fs.metadata("/a").expect("a file").mode & 0o777, 0o600);
            fs.unmount().expect("unmount");
        }
    }
    let refused = mount_torn("own-mkfs", true).expect_err("no copy");
    assert!(refused.to_string().contains("checksum"), "{refused}");
}
