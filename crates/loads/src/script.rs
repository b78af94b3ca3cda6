//! Loads as a table of short operations: FxMark's 19, mdtest in one directory, links, filebench's varmail, dbench, and IOR in one file.
//!
//! Leaves out, of dbench, renames (1 of 24 opens), locks, and queries of the whole file system.
//!
//! Source: FxMark (ATC 2016) and its programs (github.com/sslab-gatech/fxmark, `src/*.c`); filebench's `varmail.f`; the operations of
//! dbench 4's `client.txt`, counted; IOR's segments of a shared file (its user guide).

use std::fmt::Write as _;

use crate::{
    APPENDED_BYTES_MAX, BATCH, BLOCK_BYTES, Directory, Load, Part, ROUND, Random, Runner, Silent, Step,
};

use Before::{BlockForEach, Common, CommonEmpty, Deep, FileForEach, Files, Nothing};
use File::{Any, AnyOfAll, Next, Turn};
use Operation::{
    Append, Create, LinkInShared, List, Mkdir, MoveToShared, Open, Read, ReadAll, RenameToNext, Rmdir,
    Shrink, Stat, StatDeep, Sync, Unlink, Write,
};
use Place::{Own, Shared};

/// A load.
#[derive(Debug)]
pub(crate) struct Script {
    load: Load,
    pub title: &'static str,
    before: Before,
    /// What is done once, and not counted.
    first: &'static [Operation],
    /// What is done again and again, each operation so many times before the next.
    round: &'static [(Operation, u64)],
    /// What its figures count.
    pub counts: &'static [Step],
}

/// What is there before the first operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    /// So many files of each thread, of so many bytes.
    Files(Place, u64, u64),
    /// A file for each operation that is to come.
    FileForEach(Place),
    /// A file with a block for each operation that is to come.
    BlockForEach,
    /// The file that all threads have, with a block for each.
    Common,
    /// The same with nothing in it.
    CommonEmpty,
    /// A file below four directories, see [`deep`].
    Deep,
}

/// What a thread does. Operations that name no file go to the one that was opened or created last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Create(File),
    Open(File),
    Stat(File),
    StatDeep,
    Unlink(File),
    RenameToNext,
    MoveToShared,
    /// Gives the thread's own file a further name.
    LinkInShared,
    Mkdir(File),
    Rmdir(File),
    List(Place),
    Read(Block),
    ReadAll,
    Write(Block),
    Append(u64),
    /// Cuts the last block off.
    Shrink,
    Sync,
}

/// A directory of the thread's own, or the one that all have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Own,
    Shared,
}

/// A file of the thread, but for the last two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum File {
    /// A new one each time.
    Next(Place),
    /// Those that were there before, in turn.
    Turn(Place),
    /// Any of those.
    Any(Place),
    /// Any that any thread has in the directory of all.
    AnyOfAll,
    /// The one file that all have.
    Common,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    First,
    /// Of the thread's number.
    Own,
    /// The next: each thread has [`STRIPE`] blocks in a row, and then each again.
    Striped,
}

/// Bytes that varmail appends, and of its files at first (`meanappendsize`, `meanfilesize`).
const MAIL_BYTES: u64 = 16 << 10;
/// Files in a directory that is listed, or among which one is asked for.
const LISTED: u64 = BATCH as u64;
/// Files of a thread in varmail (1000 of 16 threads) and in dbench.
const KEPT: u64 = 64;
const COMMON: &str = "common";
/// Blocks of a thread in a row (IOR's `-b 1m` with `-t 4k`).
const STRIPE: u64 = (1 << 20) / BLOCK_BYTES;
/// Bytes of a read of a whole file.
const READ_BYTES: usize = 64 << 10;

const fn fxmark(
    load: Load,
    title: &'static str,
    before: Before,
    first: &'static [Operation],
    round: &'static [(Operation, u64)],
    counts: &'static [Step],
) -> Script {
    Script { load, title, before, first, round, counts }
}

#[rustfmt::skip]
static FXMARK: [Script; 19] = [
    fxmark(Load::Drbl, "FxMark: read a block of a file of one's own", Files(Own, 1, BLOCK_BYTES), &[Open(Any(Own))], &[(Read(Block::First), 1)], &[Step::Read]),
    fxmark(Load::Drbm, "FxMark: read a block of one's own of a file of all", Common, &[Open(File::Common)], &[(Read(Block::Own), 1)], &[Step::Read]),
    fxmark(Load::Drbh, "FxMark: read the same block of a file of all", Common, &[Open(File::Common)], &[(Read(Block::First), 1)], &[Step::Read]),
    fxmark(Load::Dwol, "FxMark: overwrite a block of a file of one's own", Files(Own, 1, BLOCK_BYTES), &[Open(Any(Own))], &[(Write(Block::First), 1)], &[Step::Write]),
    fxmark(Load::Dwom, "FxMark: overwrite a block of one's own of a file of all", Common, &[Open(File::Common)], &[(Write(Block::Own), 1)], &[Step::Write]),
    fxmark(Load::Dwal, "FxMark: append a block to a file of one's own", Files(Own, 1, 0), &[Open(Any(Own))], &[(Append(BLOCK_BYTES), 1)], &[Step::Write]),
    fxmark(Load::Dwtl, "FxMark: cut a block off a file of one's own", BlockForEach, &[Open(Any(Own))], &[(Shrink, 1)], &[Step::Truncate]),
    fxmark(Load::Dwsl, "FxMark: overwrite a block of a file of one's own, fsync", Files(Own, 1, BLOCK_BYTES), &[Open(Any(Own))], &[(Write(Block::First), 1), (Sync, 1)], &[Step::Sync]),
    fxmark(Load::Mrpl, "FxMark: stat of a file of one's own, below five directories", Deep, &[], &[(StatDeep, 1)], &[Step::Stat]),
    fxmark(Load::Mrpm, "FxMark: stat of any file in a directory of all", Files(Shared, LISTED, 0), &[], &[(Stat(AnyOfAll), 1)], &[Step::Stat]),
    fxmark(Load::Mrph, "FxMark: stat of the same file in a directory of all", Common, &[], &[(Stat(File::Common), 1)], &[Step::Stat]),
    fxmark(Load::Mrdl, "FxMark: list a directory of one's own", Files(Own, LISTED, 0), &[], &[(List(Own), 1)], &[Step::List]),
    fxmark(Load::Mrdm, "FxMark: list a directory of all", Files(Shared, LISTED, 0), &[], &[(List(Shared), 1)], &[Step::List]),
    fxmark(Load::Mwcl, "FxMark: create in a directory of one's own", Nothing, &[], &[(Create(Next(Own)), 1)], &[Step::Create]),
    fxmark(Load::Mwcm, "FxMark: create in a directory of all", Nothing, &[], &[(Create(Next(Shared)), 1)], &[Step::Create]),
    fxmark(Load::Mwul, "FxMark: unlink in a directory of one's own", FileForEach(Own), &[], &[(Unlink(Next(Own)), 1)], &[Step::Unlink]),
    fxmark(Load::Mwum, "FxMark: unlink in a directory of all", FileForEach(Shared), &[], &[(Unlink(Next(Shared)), 1)], &[Step::Unlink]),
    fxmark(Load::Mwrl, "FxMark: rename in a directory of one's own", Files(Own, 1, 0), &[], &[(RenameToNext, 1)], &[Step::Rename]),
    fxmark(Load::Mwrm, "FxMark: rename from a directory of one's own into one of all", FileForEach(Own), &[], &[(MoveToShared, 1)], &[Step::Rename]),
];

static OTHERS: [Script; 6] = [
    Script {
        load: Load::MdtestShared,
        title: "mdtest: create, stat, unlink of 1000 files each in a directory of all",
        before: Files(Shared, 0, 0),
        first: &[],
        round: &[
            (Create(Next(Shared)), LISTED),
            (Stat(Next(Shared)), LISTED),
            (Unlink(Next(Shared)), LISTED),
        ],
        counts: &[Step::Create, Step::Stat, Step::Unlink],
    },
    Script {
        load: Load::MdtestDirs,
        title: "mdtest: mkdir, stat, rmdir of 1000 directories each in a directory of all",
        before: Files(Shared, 0, 0),
        first: &[],
        round: &[(Mkdir(Next(Shared)), LISTED), (Stat(Next(Shared)), LISTED), (Rmdir(Next(Shared)), LISTED)],
        counts: &[Step::Create, Step::Stat, Step::Unlink],
    },
    Script {
        load: Load::LinkShared,
        title: "link of a file of one's own in a directory of all, 1000 times, and unlink",
        before: Files(Own, 1, 0),
        first: &[],
        round: &[(LinkInShared, LISTED), (Unlink(Next(Shared)), LISTED)],
        counts: &[Step::Link, Step::Unlink],
    },
    Script {
        load: Load::Varmail,
        title: "filebench: varmail in a directory of all",
        before: Files(Shared, KEPT, MAIL_BYTES),
        first: &[],
        round: &[
            (Unlink(Turn(Shared)), 1),
            (Create(Turn(Shared)), 1),
            (Append(MAIL_BYTES), 1),
            (Sync, 1),
            (Open(Any(Shared)), 1),
            (ReadAll, 1),
            (Append(MAIL_BYTES), 1),
            (Sync, 1),
            (Open(Any(Shared)), 1),
            (ReadAll, 1),
        ],
        counts: &[Step::Unlink, Step::Create, Step::Write, Step::Sync, Step::Open, Step::Read],
    },
    Script {
        load: Load::Dbench,
        title: "dbench: operations of a file server in a directory of one's own",
        before: Files(Own, KEPT, BLOCK_BYTES),
        first: &[],
        round: &[
            (Unlink(Turn(Own)), 4),
            (Create(Turn(Own)), 4),
            (Append(BLOCK_BYTES), 4),
            (Stat(Any(Own)), 18),
            (List(Own), 7),
            (Open(Any(Own)), 16),
            (Read(Block::First), 31),
            (Write(Block::First), 6),
            (Sync, 1),
        ],
        counts: &[
            Step::Unlink,
            Step::Create,
            Step::Write,
            Step::Stat,
            Step::List,
            Step::Open,
            Step::Read,
            Step::Sync,
        ],
    },
    Script {
        load: Load::IorShared,
        title: "IOR: append blocks to a file of all, 1 MiB in a row by each in turn",
        before: CommonEmpty,
        first: &[Open(File::Common)],
        round: &[(Write(Block::Striped), 1)],
        counts: &[Step::Write],
    },
];

/// The table's row of a load, if it has one: both have the order of [`Load`], so that this costs nothing in each step.
pub(crate) fn of(load: Load) -> Option<&'static Script> {
    let index = (load as usize).checked_sub(Load::Drbl as usize)?;
    let script = FXMARK.get(index).or_else(|| OTHERS.get(index - FXMARK.len()))?;
    (script.load == load).then_some(script)
}

impl Script {
    /// See [`Load::ends`].
    pub fn ends(&self) -> bool {
        matches!(self.before, Nothing | FileForEach(_) | BlockForEach | CommonEmpty)
    }

    /// See [`Load::is_shared`].
    pub fn is_shared(&self) -> bool {
        let is_of_all =
            |file| matches!(file, Next(Shared) | Turn(Shared) | Any(Shared) | AnyOfAll | File::Common);
        let operations = self.first.iter().chain(self.round.iter().map(|(operation, _)| operation));
        operations.copied().any(|operation| match operation {
            Create(file) | Open(file) | Stat(file) | Unlink(file) | Mkdir(file) | Rmdir(file) => {
                is_of_all(file)
            }
            List(place) => place == Shared,
            LinkInShared | MoveToShared => true,
            _ => false,
        })
    }

    /// Files of each thread that are there before.
    fn files(&self, steps_max: u64) -> u64 {
        match self.before {
            Files(_, files, _) => files,
            FileForEach(_) => steps_max,
            BlockForEach => 1,
            Nothing | Common | CommonEmpty | Deep => 0,
        }
    }

    pub fn prepare<D: Directory>(&self, part: &Part<'_, D>) -> Result<(), D::Error> {
        let mut thread = Thread::new(self, part);
        match self.before {
            Files(place, ..) | FileForEach(place) => {
                let bytes = if let Files(_, _, bytes) = self.before { bytes } else { 0 };
                for index in 0..self.files(part.steps_max) {
                    let file = thread.directory(place).create(thread.name(index))?;
                    if bytes > 0 {
                        D::write(&file, 0, &vec![7; bytes as usize])?;
                    }
                }
            }
            BlockForEach => D::allocate(&part.dir.create(thread.name(0))?, 0, part.steps_max * BLOCK_BYTES)?,
            CommonEmpty if part.thread == 0 => drop(part.shared.create(COMMON)?),
            Common if part.thread == 0 => {
                let file = part.shared.create(COMMON)?;
                D::write(&file, 0, &vec![7; part.threads * BLOCK_BYTES as usize])?;
            }
            Deep => make_path(part.dir, &deep(part.thread))?,
            Nothing | Common | CommonEmpty => (),
        }
        Ok(())
    }

    pub fn run<D: Directory>(&self, part: &Part<'_, D>, runner: &mut dyn Runner) -> Result<(), D::Error> {
        let mut thread = Thread::new(self, part);
        self.first.iter().try_for_each(|operation| thread.does(*operation, &mut Silent))?;
        let operations: u64 = self.round.iter().map(|(_, times)| times).sum();
        let rounds = (ROUND / operations).max(1);
        let mut left = if self.ends() { part.steps_max } else { u64::MAX };
        while left > 0 && runner.goes_on() {
            for _ in 0..rounds.min(left) {
                let begin = thread.index;
                for (operation, times) in self.round {
                    thread.index = begin;
                    for _ in 0..*times {
                        thread.does(*operation, runner)?;
                        thread.index += 1;
                    }
                }
                // The first operation is the one on the files in turn.
                thread.index = begin + self.round.first().map_or(1, |(_, times)| *times);
            }
            left -= rounds.min(left);
        }
        Ok(())
    }

    pub fn clean<D: Directory>(&self, part: &Part<'_, D>) -> Result<(), D::Error> {
        if self.before == Deep {
            return clean_path(part.dir, &deep(part.thread));
        }
        let own = format!("file-{}-", part.thread);
        for dir in [part.dir, part.shared] {
            let mut names = Vec::new();
            dir.list(&mut |name| {
                if name.starts_with(&own) || name == COMMON && part.thread == 0 {
                    names.push(name.to_owned());
                }
            })?;
            names.iter().try_for_each(|name| dir.unlink(name))?;
        }
        Ok(())
    }
}

/// The path of the file of [`Load::Mrpl`] in the thread's directory.
fn deep(thread: usize) -> String {
    format!("deep-{thread}/0/0/0/file")
}

/// Makes a file, and the directories above it.
fn make_path<D: Directory>(dir: &D, path: &str) -> Result<(), D::Error> {
    match path.split_once('/') {
        None => dir.create(path).map(drop),
        Some((name, rest)) => make_path(&dir.subdirectory(name)?, rest),
    }
}

/// Takes away what [`make_path`] made.
fn clean_path<D: Directory>(dir: &D, path: &str) -> Result<(), D::Error> {
    match path.split_once('/') {
        None => dir.unlink(path),
        Some((name, rest)) => {
            clean_path(&dir.subdirectory(name)?, rest)?;
            dir.remove_dir(name)
        }
    }
}

/// A thread in the middle of a load.
struct Thread<'a, D: Directory> {
    script: &'a Script,
    part: &'a Part<'a, D>,
    random: Random,
    /// Of the operation, counted over all rounds.
    index: u64,
    /// The file that was opened or created last, and where it ends once that was asked.
    file: Option<(D::File, Option<u64>)>,
    name: String,
    /// See [`deep`].
    deep: String,
    block: Vec<u8>,
}

impl<'a, D: Directory> Thread<'a, D> {
    fn new(script: &'a Script, part: &'a Part<'a, D>) -> Self {
        let random = Random::new(part.thread as u64);
        let (name, deep, block) = (String::new(), deep(part.thread), vec![7; READ_BYTES]);
        Self { script, part, random, index: 0, file: None, name, deep, block }
    }

    fn directory(&self, place: Place) -> &'a D {
        match place {
            Own => self.part.dir,
            Shared => self.part.shared,
        }
    }

    /// The name of one of the thread's own files.
    fn name(&mut self, index: u64) -> &str {
        self.name_of(self.part.thread, index)
    }

    fn name_of(&mut self, thread: usize, index: u64) -> &str {
        self.name.clear();
        let _ = write!(self.name, "file-{thread}-{index}");
        &self.name
    }

    /// Where a file is, and its name.
    fn find(&mut self, file: File) -> (&'a D, &str) {
        let files = self.script.files(u64::MAX).max(1);
        match file {
            Next(place) => (self.directory(place), self.name(self.index)),
            Turn(place) => (self.directory(place), self.name(self.index % files)),
            Any(place) => {
                let index = self.random.below(files);
                (self.directory(place), self.name(index))
            }
            AnyOfAll => {
                let thread = self.random.below(self.part.threads as u64) as usize;
                let index = self.random.below(files);
                (self.part.shared, self.name_of(thread, index))
            }
            File::Common => (self.part.shared, COMMON),
        }
    }

    fn does(&mut self, operation: Operation, runner: &mut dyn Runner) -> Result<(), D::Error> {
        let step = match operation {
            Create(file) => {
                let (dir, name) = self.find(file);
                self.file = Some((dir.create(name)?, Some(0)));
                Step::Create
            }
            Open(file) => {
                let (dir, name) = self.find(file);
                self.file = Some((dir.open(name)?, None));
                Step::Open
            }
            Stat(file) => {
                let (dir, name) = self.find(file);
                dir.stat(name)?;
                Step::Stat
            }
            StatDeep => {
                self.part.dir.stat_path(&self.deep)?;
                Step::Stat
            }
            Unlink(file) => {
                let (dir, name) = self.find(file);
                dir.unlink(name)?;
                Step::Unlink
            }
            LinkInShared => {
                let own = self.name(0).to_owned();
                self.part.dir.link(&own, self.part.shared, self.name(self.index))?;
                Step::Link
            }
            Mkdir(file) => {
                let (dir, name) = self.find(file);
                dir.subdirectory(name)?;
                Step::Create
            }
            Rmdir(file) => {
                let (dir, name) = self.find(file);
                dir.remove_dir(name)?;
                Step::Unlink
            }
            RenameToNext | MoveToShared => {
                let from = self.name(self.index).to_owned();
                let (place, index) =
                    if operation == MoveToShared { (Shared, self.index) } else { (Own, self.index + 1) };
                self.part.dir.rename(&from, self.directory(place), self.name(index))?;
                Step::Rename
            }
            List(place) => {
                let mut names = 0;
                self.directory(place).list(&mut |_| names += 1)?;
                std::hint::black_box(names);
                Step::List
            }
            _ => return self.does_to_file(operation, runner),
        };
        runner.did(step);
        Ok(())
    }

    /// What goes to the file that was opened or created last.
    fn does_to_file(&mut self, operation: Operation, runner: &mut dyn Runner) -> Result<(), D::Error> {
        let Some((file, end)) = &mut self.file else { return Ok(()) };
        let (thread, threads) = (self.part.thread as u64, self.part.threads as u64);
        let place = |block| match block {
            Block::First => 0,
            Block::Own => thread * BLOCK_BYTES,
            Block::Striped => {
                let (segment, block) = (self.index / STRIPE, self.index % STRIPE);
                ((segment * threads + thread) * STRIPE + block) * BLOCK_BYTES
            }
        };
        let ends_at = |file: &D::File, end: &mut Option<u64>| match *end {
            Some(end) => Ok(end),
            None => D::bytes(file).inspect(|bytes| *end = Some(*bytes)),
        };
        let step = match operation {
            Read(block) => {
                D::read(file, place(block), &mut self.block[..BLOCK_BYTES as usize])?;
                Step::Read
            }
            ReadAll => {
                for at in (0..ends_at(file, end)?).step_by(READ_BYTES) {
                    D::read(file, at, &mut self.block)?;
                }
                Step::Read
            }
            Write(block) => {
                D::write(file, place(block), &self.block[..BLOCK_BYTES as usize])?;
                Step::Write
            }
            Append(bytes) => {
                let mut at = ends_at(file, end)?;
                if at + bytes > APPENDED_BYTES_MAX {
                    D::truncate(file, 0)?;
                    runner.did(Step::Truncate);
                    at = 0;
                }
                D::write(file, at, &self.block[..bytes as usize])?;
                *end = Some(at + bytes);
                Step::Write
            }
            Shrink => {
                let bytes = ends_at(file, end)?.saturating_sub(BLOCK_BYTES);
                D::truncate(file, bytes)?;
                *end = Some(bytes);
                Step::Truncate
            }
            _ => {
                D::fsync(file)?;
                Step::Sync
            }
        };
        runner.did(step);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    #[test]
    fn each_row_is_that_of_its_load() {
        let rows = Load::value_variants().iter().filter_map(|load| Some((*load, of(*load)?.load)));
        assert!(rows.clone().all(|(load, row)| load == row));
        assert_eq!(rows.count(), FXMARK.len() + OTHERS.len());
    }
}
