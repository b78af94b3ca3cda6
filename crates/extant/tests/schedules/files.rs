//! Threads that read, write, allocate and free ranges of one file, and threads that append to it, at its end or by offset.

use std::io::Write;

use extant::{Fallocate, File, Mount};
use extant_rt::{explore, parallel};

use super::{CLOCK, Random, SCHEDULES, device, disk, mount, plan, remounted};

const TASKS: usize = 3;
const STEPS: u64 = 6;
const BLOCK: u64 = 1024;
/// Blocks that each task has, every third of the file; the file has half of them at first.
const BLOCKS: u64 = 4;
const FIRST_BYTES: usize = (BLOCK * BLOCKS * TASKS as u64 / 2) as usize;

fn block_of(task: usize, number: u64) -> u64 {
    (number * TASKS as u64 + task as u64) * BLOCK
}

/// Changes a task's own blocks; what they have at the end, and where the last write of it ends.
fn change(file: &File, task: usize, seed: u64) -> (Vec<Vec<u8>>, u64) {
    let mut random = Random::new(seed, task);
    let first = |at: u64| if (at as usize) < FIRST_BYTES { 7 } else { 0 };
    let mut blocks: Vec<Vec<u8>> = (0..BLOCKS)
        .map(|number| (block_of(task, number)..).take(BLOCK as usize).map(first).collect())
        .collect();
    let mut end = 0;
    for step in 0..STEPS {
        let number = random.below(BLOCKS);
        let (at, block) = (block_of(task, number), &mut blocks[number as usize]);
        match random.below(8) {
            0..4 => {
                let start = random.below(BLOCK);
                let bytes = 1 + random.below(BLOCK - start);
                let new = vec![(task as u64 * STEPS + step + 10) as u8; bytes as usize];
                file.write_all_at(&new, at + start).expect("written");
                block[start as usize..(start + bytes) as usize].copy_from_slice(&new);
                end = end.max(at + start + bytes);
            }
            4 => {
                file.allocate(Fallocate::PunchHole, at, BLOCK).expect("a hole");
                block.fill(0);
            }
            5 => file.allocate(Fallocate::Allocate { keep_size: true }, at, BLOCK).expect("allocated"),
            6 => {
                file.allocate(Fallocate::ZeroRange { keep_size: true }, at, BLOCK).expect("zeroes");
                block.fill(0);
            }
            _ => {
                let mut found = vec![0; BLOCK as usize];
                file.read_at(&mut found, at).expect("read");
                assert!(found == *block, "seed {seed}: block {number} of task {task}");
            }
        }
    }
    (blocks, end)
}

#[test]
fn ranges_of_a_shared_file() {
    if !extant_testing::has_threads() {
        return;
    }
    let content = disk(|fs| fs.write("/f", [7; FIRST_BYTES]).expect("a file"));
    explore(&plan::exploration(SCHEDULES), move |seed| {
        let device = device(&content);
        let fs = mount(device.clone());
        let file = fs.options().read(true).write(true).open("/f").expect("the file");
        let changed = parallel(TASKS, |task| change(&file, task, seed));
        let end = changed.iter().map(|(_, end)| *end).max().unwrap_or(0).max(FIRST_BYTES as u64);
        let number =
            |number: u64| changed.iter().flat_map(move |(blocks, _)| blocks[number as usize].clone());
        let expected: Vec<u8> = (0..BLOCKS).flat_map(number).take(end as usize).collect();
        assert!(fs.read("/f").expect("read") == expected, "seed {seed}");
        drop(file);
        let fs = remounted(fs, device, seed);
        assert!(fs.read("/f").expect("read") == expected, "seed {seed}: on the disk");
    });
}

/// Rows of two blocks, one for each step, that all tasks write at once.
const ROWS: u64 = BLOCK * BLOCKS * TASKS as u64;
const ROW_BYTES: u64 = 2 * BLOCK;

/// Fills blocks of a task's own, which there are none of at first, and those of all: how many times each of its own was written.
fn fill(file: &File, task: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed, task);
    let mut blocks = vec![0_u8; BLOCKS as usize];
    let mut end = 0;
    for step in 0..STEPS {
        let number = random.below(BLOCKS);
        let (at, times) = (block_of(task, number), &mut blocks[number as usize]);
        match random.below(8) {
            0 => file.sync_data().expect("synced"),
            1 => assert!(file.metadata().size >= end, "seed {seed}: shorter than was written"),
            2 => {
                let mut found = vec![0; BLOCK as usize];
                let read = file.read_at(&mut found, at).expect("read");
                assert!(found[..read].iter().all(|byte| byte == times), "seed {seed}: {number} of {task}");
                assert!(
                    at + BLOCK > end || read as u64 == BLOCK,
                    "seed {seed}: the file ends before {number} of {task}"
                );
            }
            3..5 => {
                let row = [task as u8 + 1; ROW_BYTES as usize];
                file.write_all_at(&row, ROWS + step * ROW_BYTES).expect("written");
            }
            _ => {
                *times += 1;
                file.write_all_at(&[*times; BLOCK as usize], at).expect("written");
                end = end.max(at + BLOCK);
            }
        }
    }
    blocks
}

#[test]
fn holes_of_a_shared_file_are_filled() {
    if !extant_testing::has_threads() {
        return;
    }
    let content = disk(|fs| fs.write("/f", []).expect("a file"));
    explore(&plan::exploration(SCHEDULES), move |seed| {
        let device = device(&content);
        let options = Mount::new().clock(CLOCK).background(false).cache_bytes(1 << 20);
        let fs = options.page_cache_bytes(1 << 20).open_device(device.clone()).expect("a file system");
        let file = fs.options().read(true).write(true).open("/f").expect("the file");
        let filled = parallel(TASKS, |task| fill(&file, task, seed));
        let number = |number: u64| filled.iter().flat_map(move |own| [own[number as usize]; BLOCK as usize]);
        let mut expected: Vec<u8> = (0..BLOCKS).flat_map(number).collect();
        let found = fs.read("/f").expect("read");
        let rows = &found[found.len().min(ROWS as usize)..];
        let is_whole = |row: &[u8]| row.iter().all(|byte| *byte == row[0]);
        assert!(rows.chunks(ROW_BYTES as usize).all(is_whole), "seed {seed}: parts of two writes");
        expected.extend(rows);
        // The file ends with the last block that was written.
        expected.truncate(expected.iter().rposition(|byte| *byte > 0).map_or(0, |last| last + 1));
        assert!(fs.read("/f").expect("read") == expected, "seed {seed}");
        drop(file);
        let fs = remounted(fs, device, seed);
        assert!(fs.read("/f").expect("read") == expected, "seed {seed}: on the disk");
    });
}

/// The record `number` of a task: its bytes are the same, and tell which it is.
fn record(task: usize, number: u64) -> Vec<u8> {
    let tag = 1 + task as u64 * STEPS + number;
    vec![tag as u8; (tag * 379 % 1500 + 1) as usize]
}

/// Takes whole records off the front, and asserts that those of a task follow each other.
fn assert_records(mut content: &[u8], seed: u64) -> Vec<Vec<u64>> {
    let mut found = vec![Vec::new(); TASKS];
    while let Some(tag) = content.first() {
        let tag = u64::from(*tag) - 1;
        let (task, number) = ((tag / STEPS) as usize, tag % STEPS);
        let whole = record(task, number);
        assert!(content.starts_with(&whole), "seed {seed}: record {number} of task {task} is torn");
        content = &content[whole.len()..];
        found[task].push(number);
    }
    for numbers in &found {
        assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "seed {seed}: {found:?}");
    }
    found
}

#[test]
fn records_that_are_appended() {
    if !extant_testing::has_threads() {
        return;
    }
    let content = disk(|fs| fs.write("/f", []).expect("a file"));
    explore(&plan::exploration(SCHEDULES), move |seed| {
        let device = device(&content);
        let fs = mount(device.clone());
        // In half of the schedules one of them makes the file empty between two records.
        let cuts = seed % 2 == 1;
        parallel(TASKS, |task| {
            let mut file = fs.options().append(true).open("/f").expect("the file");
            for number in 0..STEPS {
                if cuts && task == 0 && number == STEPS / 2 {
                    file.set_len(0).expect("empty");
                }
                let written = file.write(&record(task, number)).expect("appended");
                assert_eq!(written, record(task, number).len());
            }
        });
        let content = fs.read("/f").expect("read");
        let found = assert_records(&content, seed);
        let all: Vec<_> = (0..STEPS).collect();
        let own = if cuts { &all[STEPS as usize / 2..] } else { &all[..] };
        assert_eq!(found[0], own, "seed {seed}");
        for numbers in &found[1..] {
            assert!(all.ends_with(numbers) && (cuts || numbers.len() == all.len()), "seed {seed}: {found:?}");
        }
        let fs = remounted(fs, device, seed);
        assert!(fs.read("/f").expect("read") == content, "seed {seed}: on the disk");
    });
}
