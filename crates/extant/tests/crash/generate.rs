//! Sequences of operations.

use extant_testing::Random;

use crate::model::Model;
use crate::op::{DIRECTORIES, FILES, HELD, Name, Op};
use crate::random::hash;

/// The content of a disk before each sequence: files that are small, that span blocks, that have a tree of extents; attributes in
/// the inode and in a block; a directory of several blocks.
pub fn preparation(block: u64) -> Vec<Op> {
    vec![
        Op::Mkdir("d"),
        Op::Mkdir("e"),
        Op::Mkdir("e/d"),
        Op::Create("a"),
        Op::Write { file: "a", at: 0, bytes: 3 * block + 100 },
        Op::Create("b"),
        Op::Write { file: "b", at: 0, bytes: 200 },
        Op::Create("d/a"),
        Op::Write { file: "d/a", at: 0, bytes: 2 * block },
        Op::Create("e/a"),
        Op::Sparse { file: "e/a", block: 0, count: 6 },
        Op::SetXattr { path: "a", key: 0, bytes: 20 },
        Op::SetXattr { path: "b", key: 1, bytes: 700 },
        Op::Fill { dir: "e/d", count: 12 },
    ]
}

/// The operations of which all sequences of length 1 and 2 are tried.
pub fn alphabet(block: u64) -> Vec<Op> {
    let keep_size = true;
    let mut ops = vec![
        Op::Create("c"),
        Op::Write { file: "a", at: 10, bytes: 100 },
        Op::Write { file: "a", at: block / 2, bytes: 2 * block },
        Op::Write { file: "a", at: 2 * block, bytes: 4 * block },
        Op::Write { file: "a", at: 9 * block + 7, bytes: 30 },
        Op::Write { file: "b", at: 0, bytes: 5 * block },
        Op::Append { file: "a", bytes: block + 1 },
        Op::Append { file: "b", bytes: 9 },
        Op::Truncate { file: "a", bytes: 0 },
        Op::Truncate { file: "a", bytes: block + 5 },
        Op::Truncate { file: "a", bytes: 8 * block },
        Op::Truncate { file: "e/a", bytes: 3 * block },
        Op::Allocate { file: "a", at: 2 * block, bytes: 5 * block, keep_size: false },
        Op::Allocate { file: "b", at: 0, bytes: 6 * block, keep_size },
        Op::Zero { file: "a", at: 50, bytes: 2 * block, keep_size },
        Op::Zero { file: "a", at: block, bytes: 6 * block, keep_size: false },
        Op::Punch { file: "a", at: block, bytes: block },
        Op::Punch { file: "a", at: 100, bytes: 2 * block },
        Op::Punch { file: "e/a", at: 2 * block, bytes: 6 * block },
        Op::Collapse { file: "a", block: 1, len: 1 },
        Op::Collapse { file: "e/a", block: 1, len: 3 },
        Op::Insert { file: "a", block: 1, len: 2 },
        Op::Insert { file: "e/a", block: 3, len: 1 },
        Op::Sparse { file: "a", block: 20, count: 5 },
        Op::Sparse { file: "b", block: 262, count: 5 },
        Op::Unlink("a"),
        Op::Unlink("e/a"),
        Op::Unlink("b"),
        Op::Rename { from: "a", to: "c" },
        Op::Rename { from: "a", to: "b" },
        Op::Rename { from: "b", to: "d/a" },
        Op::Rename { from: "d", to: "e/d" },
        Op::Rename { from: "e/d", to: "c" },
        Op::Exchange { from: "a", to: "d/a" },
        Op::Exchange { from: "d", to: "e/a" },
        Op::Link { from: "a", to: "c" },
        Op::Link { from: "a", to: "d/b" },
        Op::Symlink { link: "c", bytes: 20 },
        Op::Symlink { link: "c", bytes: 300 },
        Op::Mkdir("c"),
        Op::Rmdir("d"),
        Op::Fill { dir: "d", count: 10 },
        Op::Drain { dir: "e/d", count: 12 },
        Op::SetXattr { path: "a", key: 1, bytes: 600 },
        Op::SetXattr { path: "d", key: 0, bytes: 10 },
        Op::SetXattr { path: "b", key: 1, bytes: 30 },
        Op::RemoveXattr { path: "b", key: 1 },
        Op::Chmod { path: "a", mode: 0o600 },
        Op::Hold("a"),
        Op::Append { file: HELD, bytes: 2 * block },
        Op::Tmpfile { bytes: 3 * block },
        Op::LinkTmp("c"),
        Op::Release,
        Op::Sync,
        Op::Remount,
    ];
    ops.extend(["a", "b", "c", "d", "d/a"].map(Op::Fsync));
    ops.extend(["a", "b"].map(Op::Fdatasync));
    ops
}

/// Attributes that are set on a disk of blocks of 1 KiB after [`preparation`]: a file with one value that is too large for a block,
/// several that have the same, two of these with a block that they share, and a file with more than one update releases.
pub fn large_values() -> Vec<(Name, u8, Vec<u8>)> {
    let value = |byte: u8, bytes| vec![byte; bytes];
    let mut set = vec![("a", 2, value(1, 1500)), ("b", 2, value(2, 3000)), ("d", 2, value(2, 3000))];
    for file in ["d/a", "e/a"] {
        // After the first there is no room in the inode.
        set.extend([(file, 0, value(3, 60)), (file, 1, value(4, 300)), (file, 2, value(2, 3000))]);
    }
    set.extend((0..20).map(|index| ("d/b", 10 + index, value(100 + index, 1100))));
    set
}

/// The operations of which all sequences of length 1 and 2 are tried on a disk with [`large_values`].
pub fn value_alphabet() -> Vec<Op> {
    let mut ops = vec![
        Op::SetXattr { path: "a", key: 2, bytes: 30 },
        Op::SetXattr { path: "a", key: 1, bytes: 500 },
        // There is no room for it: nothing changes.
        Op::SetXattr { path: "a", key: 1, bytes: 5000 },
        Op::SetXattr { path: "b", key: 2, bytes: 10 },
        Op::SetXattr { path: "e/a", key: 3, bytes: 10 },
        Op::SetXattr { path: "d/b", key: 11, bytes: 300 },
        Op::Rename { from: "a", to: "b" },
        Op::Rename { from: "c", to: "d/a" },
        Op::Rename { from: "b", to: "d/b" },
        Op::Exchange { from: "a", to: "d/a" },
        Op::Link { from: "a", to: "c" },
        Op::Create("c"),
        Op::Write { file: "a", at: 10, bytes: 5000 },
        Op::Truncate { file: "e/a", bytes: 3000 },
        Op::Chmod { path: "a", mode: 0o600 },
        Op::Hold("a"),
        Op::Hold("d/b"),
        Op::Release,
        Op::Fill { dir: "e", count: 10 },
        Op::Fsync("a"),
        Op::Sync,
        Op::Remount,
    ];
    ops.extend(["a", "b", "d", "d/a", "e/a"].map(|path| Op::RemoveXattr { path, key: 2 }));
    ops.extend(["a", "b", "d/a", "d/b", "e/a"].map(Op::Unlink));
    ops
}

/// How a file without a name comes to be open: it lost its name, another file took its name, or it was made without one.
pub fn nameless_beginnings(block: u64) -> Vec<Vec<Op>> {
    vec![
        vec![Op::Hold("a"), Op::Unlink("a")],
        vec![Op::Hold("e/a"), Op::Unlink("e/a")],
        vec![Op::Hold("b"), Op::Rename { from: "d/a", to: "b" }],
        vec![Op::Tmpfile { bytes: 3 * block + 100 }],
    ]
}

/// The operations of which one and two follow each of the [`nameless_beginnings`].
pub fn held_alphabet(block: u64) -> Vec<Op> {
    let (file, keep_size) = (HELD, true);
    vec![
        Op::Write { file, at: 10, bytes: 100 },
        Op::Write { file, at: 9 * block + 7, bytes: 30 },
        Op::Append { file, bytes: 2 * block + 1 },
        Op::Sparse { file, block: 20, count: 5 },
        Op::Truncate { file, bytes: 0 },
        Op::Truncate { file, bytes: 70 },
        Op::Truncate { file, bytes: block + 5 },
        Op::Truncate { file, bytes: 8 * block },
        Op::Allocate { file, at: 0, bytes: 12 * block, keep_size },
        Op::Zero { file, at: 50, bytes: 2 * block, keep_size: false },
        Op::Punch { file, at: 100, bytes: 2 * block },
        Op::Collapse { file, block: 0, len: 1 },
        Op::Insert { file, block: 0, len: 2 },
        Op::SetXattr { path: file, key: 0, bytes: 10 },
        Op::SetXattr { path: file, key: 1, bytes: 600 },
        Op::RemoveXattr { path: file, key: 1 },
        Op::Chmod { path: file, mode: 0o600 },
        Op::Fsync(file),
        Op::Fdatasync(file),
        Op::Fsync("d"),
        Op::Link { from: file, to: "c" },
        Op::Unlink("c"),
        Op::Rename { from: "c", to: "d/b" },
        Op::Create("a"),
        Op::Tmpfile { bytes: 50 },
        Op::Hold("d/a"),
        Op::Close,
    ]
}

/// Every one and two operations of the [`held_alphabet`] after each of the [`nameless_beginnings`], ended by a commit.
pub fn held_sequences(block: u64) -> Vec<Vec<Op>> {
    let followed = sequences_of_two(&held_alphabet(block));
    let beginnings = nameless_beginnings(block);
    followed
        .iter()
        .flat_map(|ops| beginnings.iter().map(|beginning| [beginning.as_slice(), ops].concat()))
        .collect()
}

/// A random sequence of operations on held files, for a thread that shares the disk.
pub fn random_held_sequence(block: u64, len: usize, seed: u64) -> Vec<Op> {
    let mut random = Random::new(seed);
    let ops = held_alphabet(block);
    let mut sequence = Vec::new();
    while sequence.len() < len {
        sequence.extend(match random.below(4) {
            0 => vec![Op::Tmpfile { bytes: 1 + random.below(40 * block) }],
            1 => vec![
                Op::Create("b"),
                Op::Write { file: "b", at: 0, bytes: 9 * block },
                Op::Hold("b"),
                Op::Unlink("b"),
            ],
            _ => Vec::new(),
        });
        sequence.extend((0..3).map(|_| random.pick(&ops)));
    }
    sequence
}

/// Every sequence of one and of two operations of the [`alphabet`], ended by a commit.
pub fn short_sequences(block: u64) -> Vec<Vec<Op>> {
    sequences_of_two(&alphabet(block))
}

/// Every sequence of one and of two of the operations, ended by a commit.
pub fn sequences_of_two(ops: &[Op]) -> Vec<Vec<Op>> {
    let mut sequences: Vec<Vec<Op>> = ops.iter().map(|op| vec![*op, Op::Sync]).collect();
    for first in ops {
        sequences.extend(ops.iter().map(|second| vec![*first, *second, Op::Sync]));
    }
    sequences
}

/// A sample of the sequences of three operations, ended by a commit.
pub fn sequences_of_three(block: u64, count: u64) -> Vec<Vec<Op>> {
    let ops = alphabet(block);
    let sequence = |seed| {
        let mut random = Random::new(hash(&[seed, 3]));
        let mut sequence: Vec<Op> = (0..3).map(|_| random.pick(&ops)).collect();
        sequence.push(Op::Sync);
        sequence
    };
    (0..count).map(sequence).collect()
}

/// A random sequence after what `model` holds.
pub fn random_sequence(model: &Model, len: usize, seed: u64) -> Vec<Op> {
    sequence_of(model, len, seed, random_op)
}

/// A random sequence of changes of content, and a sync now and then.
pub fn random_content_sequence(model: &Model, len: usize, seed: u64) -> Vec<Op> {
    sequence_of(model, len, seed, |model, random| match random.below(6) {
        0 => Op::Fsync(file(model, random)),
        _ => random_content_op(model, random),
    })
}

/// A random sequence that never syncs and changes many blocks of metadata: transactions end where they are full, which
/// may be in the midst of an operation.
pub fn random_unsynced_sequence(model: &Model, len: usize, seed: u64) -> Vec<Op> {
    /// Files beyond which the disks have no inodes left.
    const FILES_MAX: u32 = 800;
    sequence_of(model, len, seed, |model, random| {
        let count = 40 + random.below(60) as u32;
        let dir = random.pick(&DIRECTORIES);
        match random.below(5) {
            0 | 1 if model.serials().0 + count < FILES_MAX => Op::Fill { dir, count },
            2 => Op::Drain { dir, count },
            3 => Op::Sparse { file: file(model, random), block: random.below(40), count },
            _ => match random_op(model, random) {
                Op::Sync | Op::Fsync(_) | Op::Fdatasync(_) | Op::Remount => {
                    Op::Truncate { file: file(model, random), bytes: 70 }
                }
                other => other,
            },
        }
    })
}

fn sequence_of(model: &Model, len: usize, seed: u64, next: impl Fn(&Model, &mut Random) -> Op) -> Vec<Op> {
    let mut random = Random::new(seed);
    let mut model = model.clone();
    let mut ops = Vec::new();
    while ops.len() < len {
        let op = next(&model, &mut random);
        // Mostly those that do something.
        if model.apply(op).is_ok() || random.one_in(4) {
            ops.push(op);
        }
    }
    ops
}

fn file(model: &Model, random: &mut Random) -> Name {
    let files: Vec<Name> = FILES.into_iter().filter(|path| model.is_file(path)).collect();
    if files.is_empty() { random.pick(&FILES) } else { random.pick(&files) }
}

fn anything(model: &Model, random: &mut Random) -> Name {
    if random.one_in(3) { random.pick(&DIRECTORIES) } else { file(model, random) }
}

/// The file whose content and attributes are changed: sometimes the one that is held open, with or without a name.
fn open_file(model: &Model, random: &mut Random) -> Name {
    if model.has_held() && random.one_in(3) { HELD } else { file(model, random) }
}

fn anything_open(model: &Model, random: &mut Random) -> Name {
    if model.has_held() && random.one_in(4) { HELD } else { anything(model, random) }
}

fn random_op(model: &Model, random: &mut Random) -> Op {
    let free = random.pick(&FILES);
    match random.below(100) {
        0..10 => Op::Create(free),
        10..38 => random_content_op(model, random),
        38..43 => Op::Unlink(file(model, random)),
        43..49 => match random.below(4) {
            0 => Op::Rename { from: random.pick(&DIRECTORIES), to: random.pick(&DIRECTORIES) },
            1 => Op::Rename { from: random.pick(&DIRECTORIES), to: free },
            _ => Op::Rename { from: file(model, random), to: free },
        },
        49..52 => Op::Exchange { from: anything(model, random), to: anything(model, random) },
        52..55 => Op::Link { from: file(model, random), to: free },
        55..58 => Op::Symlink { link: free, bytes: random.pick(&[1, 59, 60, 61, 300]) },
        58..61 => Op::Mkdir(random.pick(&DIRECTORIES)),
        61..63 => Op::Rmdir(random.pick(&DIRECTORIES)),
        63..66 => Op::Fill { dir: random.pick(&DIRECTORIES), count: 1 + random.below(30) as u32 },
        66..69 => Op::Drain { dir: random.pick(&DIRECTORIES), count: 1 + random.below(30) as u32 },
        69..75 => {
            let key = random.below(3) as u8;
            let bytes = random.pick(&[0, 8, 60, 200, 600]);
            Op::SetXattr {
                path: anything_open(model, random),
                key,
                bytes: if key == 1 { bytes } else { bytes % 64 },
            }
        }
        75..78 => Op::RemoveXattr { path: anything_open(model, random), key: random.below(3) as u8 },
        78..80 => {
            Op::Chmod { path: anything_open(model, random), mode: random.pick(&[0o600, 0o755, 0o4711]) }
        }
        80..87 => Op::Fsync(anything_open(model, random)),
        87..89 => Op::Fdatasync(open_file(model, random)),
        89..92 => Op::Sync,
        92..94 => Op::Hold(file(model, random)),
        94..95 => Op::Close,
        95..96 if model.has_held() => Op::Link { from: HELD, to: free },
        96..97 => Op::Tmpfile { bytes: 1 + random.below(3 * model.block_size()) },
        97..98 if model.has_unnamed() => Op::LinkTmp(free),
        98..99 => Op::Release,
        99 if random.one_in(3) => Op::Remount,
        _ => Op::Fsync(file(model, random)),
    }
}

fn random_content_op(model: &Model, random: &mut Random) -> Op {
    let block = model.block_size();
    let file = open_file(model, random);
    let size = model.size_of(file);
    let at = if random.one_in(3) { random.below(12) * block } else { random.below(size + block) };
    let bytes = if random.one_in(3) { (1 + random.below(6)) * block } else { 1 + random.below(3 * block) };
    let keep_size = random.one_in(2);
    let blocks = size / block + 1;
    match random.below(20) {
        0..7 => Op::Write { file, at, bytes },
        7..9 => Op::Append { file, bytes },
        9..12 => Op::Truncate { file, bytes: if random.one_in(4) { 0 } else { at } },
        12..13 => Op::Allocate { file, at, bytes, keep_size },
        13..15 => Op::Zero { file, at, bytes, keep_size },
        15..17 => Op::Punch { file, at, bytes },
        17 => Op::Collapse { file, block: random.below(blocks), len: 1 + random.below(3) },
        18 => Op::Insert { file, block: random.below(blocks), len: 1 + random.below(3) },
        _ => {
            let block = if random.one_in(4) { 250 + random.below(40) } else { random.below(40) };
            Op::Sparse { file, block, count: 1 + random.below(12) as u32 }
        }
    }
}
