//! What threads do to a file system, written once: threads of the host run it to be measured, beside the same as system
//! calls, and virtual CPUs in the lab.
//!
//! Leaves out: clocks and threads, but for what the host itself takes ([`way`]).
#![forbid(unsafe_code)]

pub mod ageing;
pub mod cacheline_latency;
mod directory;
pub mod ladder;
pub mod layout;
mod random;
mod rounds;
mod script;

use clap::ValueEnum;

pub use directory::Directory;
pub use random::{Random, mix};

/// Files that exist at once in [`Load::CreateUnlink`], and those that [`Load::Stat`] asks for.
pub const BATCH: usize = 1000;
/// Steps between two questions whether to go on, of loads that need not come back to where they began.
pub const ROUND: u64 = 100;
/// Bytes of an append, and at which a file of [`Load::Fallocate2`] is truncated.
pub const APPEND_BYTES: u64 = 8 << 10;
/// See [`APPEND_BYTES`].
pub const FILE_BYTES: u64 = 1 << 20;
/// Bytes at which a file of [`Load::Append`] is truncated, for disks to be large enough.
pub const APPENDED_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a sparse or a filling write, of a small file, of an overwrite, and of the file that is written over.
pub const BURST_BYTES: u64 = 1 << 10;
/// See [`BURST_BYTES`].
pub const SMALL_BYTES: u64 = 2 << 10;
/// See [`BURST_BYTES`].
pub const BLOCK_BYTES: u64 = 4 << 10;
/// See [`BURST_BYTES`].
pub const OVERWRITTEN_BYTES: u64 = 16 << 20;
/// Bytes of the large file that is written over.
pub const OVERWRITTEN_LARGE_BYTES: u64 = 1 << 30;
/// Bytes from one sparse write to the next: as many as are taken ahead, so that each has a preallocation of its own.
pub const SPARSE_STEP_BYTES: u64 = 8 << 20;
/// Writes at one place of the second filling.
pub const SEQUENTIAL: u64 = 4;

/// What each thread does in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Load {
    /// Creates and unlinks empty files; both count.
    CreateUnlink,
    /// mdtest's first phase: creates empty files.
    Create,
    /// mdtest's second phase: asks for empty files by name.
    Stat,
    /// mdtest's third phase: unlinks empty files.
    Unlink,
    /// will-it-scale's fallocate2: appends 8 KiB by fallocate until 1 MiB, truncates to 0; the appends count.
    Fallocate2,
    /// Appends 8 KiB by fallocate to a file that grows to 64 MiB, again and again.
    Append,
    /// Writes 4 KiB at random places of a file of 16 MiB.
    Overwrite,
    /// Writes 4 KiB at random places of a file of 1 GiB.
    OverwriteLarge,
    /// Writes 4 KiB at 4096 random places of a file of 16 MiB, then an fsync, again and again; the writes count.
    OverwriteFsync,
    /// Creates files of 2 KiB.
    SmallFiles,
    /// Writes 1 KiB each 8 MiB of a file.
    SparseWrites,
    /// Fills a file by 1 KiB in random order.
    RandomFill,
    /// Fills a file by 4 times 1 KiB in a row, in random order.
    RandomFillBySequences,
    /// Reads 4 KiB at random places of a file of 16 MiB.
    ReadRandom,
    /// Reads a file of 16 MiB by 4 KiB, in order, again and again.
    ReadInOrder,
    /// Appends 4 KiB to a file that grows to 64 MiB, each with an fsync.
    AppendFsync,
    /// Writes 4 KiB at random places of a file of 16 MiB, each with an fdatasync.
    OverwriteFdatasync,
    /// FxMark: reads the same block of a file of one's own.
    Drbl,
    /// FxMark: reads a block of one's own of a file that all have.
    Drbm,
    /// FxMark: reads the same block of a file that all have.
    Drbh,
    /// FxMark: overwrites a block of a file of one's own.
    Dwol,
    /// FxMark: overwrites a block of one's own of a file that all have.
    Dwom,
    /// FxMark: appends blocks to a file of one's own.
    Dwal,
    /// FxMark: cuts blocks off a file of one's own.
    Dwtl,
    /// FxMark: overwrites a block of a file of one's own, each with an fsync.
    Dwsl,
    /// FxMark: stats a file of one's own five directories deep.
    Mrpl,
    /// FxMark: stats any file in a directory that all have.
    Mrpm,
    /// FxMark: stats the same file in a directory that all have.
    Mrph,
    /// FxMark: lists a directory of one's own with 1000 files.
    Mrdl,
    /// FxMark: lists a directory that all have, with 1000 files of each.
    Mrdm,
    /// FxMark: creates files in a directory of one's own.
    Mwcl,
    /// FxMark: creates files in a directory that all have.
    Mwcm,
    /// FxMark: unlinks files in a directory of one's own.
    Mwul,
    /// FxMark: unlinks files in a directory that all have.
    Mwum,
    /// FxMark: renames a file in a directory of one's own.
    Mwrl,
    /// FxMark: renames files from a directory of one's own into one that all have.
    Mwrm,
    /// mdtest's three phases in a directory that all have.
    MdtestShared,
    /// mdtest's three phases of directories in a directory that all have.
    MdtestDirs,
    /// Gives a file of one's own further names in a directory that all have, and takes them away.
    LinkShared,
    /// filebench's varmail: a mail server, in a directory that all have.
    Varmail,
    /// The operations of dbench: a file server, in a directory of one's own.
    Dbench,
    /// IOR: appends blocks to a file that all have, 1 MiB in a row by each thread in turn.
    IorShared,
}

/// What a thread has just done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// A file or a directory was made.
    Create,
    /// A name was taken away, and with the last one the file or the directory.
    Unlink,
    /// A file or a directory was found by its name and its attributes read.
    Stat,
    /// 8 KiB were allocated at the end of a file.
    Append,
    /// A file was cut to nothing.
    Truncate,
    /// Up to 4 KiB were written into a file.
    Write,
    /// 4 KiB of a file were read.
    Read,
    /// A file was made durable.
    Sync,
    /// A file was opened by its name.
    Open,
    /// A name was replaced by another.
    Rename,
    /// A file was given a further name.
    Link,
    /// All names of a directory were read.
    List,
}

/// Who runs a load.
pub trait Runner {
    /// Told after each step.
    fn did(&mut self, step: Step);
    /// Asked between rounds: whether there is to be another.
    fn goes_on(&mut self) -> bool;
}

/// What is done before and after does not count.
struct Silent;

impl Runner for Silent {
    fn did(&mut self, _: Step) {}

    fn goes_on(&mut self) -> bool {
        false
    }
}

/// One thread's part in a load.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a, D> {
    /// Where it works, alone or with others.
    pub dir: &'a D,
    /// A directory that all threads have, for a load that [is shared](Load::is_shared).
    pub shared: &'a D,
    /// How many threads there are.
    pub threads: usize,
    /// By which its files are told from those of others.
    pub thread: usize,
    /// What counts is done so often at most by loads that come to an end.
    pub steps_max: u64,
}

impl Load {
    /// In words.
    #[must_use]
    pub fn title(self) -> &'static str {
        if let Some(script) = script::of(self) {
            return script.title;
        }
        match self {
            Self::CreateUnlink => "create + unlink of empty files",
            Self::Create => "create of empty files",
            Self::Stat => "stat of empty files",
            Self::Unlink => "unlink of empty files",
            Self::Fallocate2 => "append 8 KiB by fallocate to 1 MiB, truncate",
            Self::Append => "append 8 KiB by fallocate to a growing file",
            Self::Overwrite => "write 4 KiB at random over 16 MiB",
            Self::OverwriteLarge => "write 4 KiB at random over 1 GiB",
            Self::OverwriteFsync => "write 4 KiB at random over 16 MiB, fsync after 4096",
            Self::SmallFiles => "create of files of 2 KiB",
            Self::SparseWrites => "sparse writes of 1 KiB",
            Self::RandomFill => "random filling by 1 KiB",
            Self::RandomFillBySequences => "random filling by 4 times 1 KiB",
            Self::ReadRandom => "read 4 KiB at random over 16 MiB",
            Self::ReadInOrder => "read 4 KiB in order over 16 MiB",
            Self::AppendFsync => "append 4 KiB, fsync",
            Self::OverwriteFdatasync => "write 4 KiB at random over 16 MiB, fdatasync",
            _ => "",
        }
    }

    /// Whether it is of a published suite, as FxMark, and not one of this crate's own.
    #[must_use]
    pub fn is_of_suite(self) -> bool {
        script::of(self).is_some()
    }

    /// Whether threads work on files or in a directory that all have.
    #[must_use]
    pub fn is_shared(self) -> bool {
        script::of(self).is_some_and(script::Script::is_shared)
    }

    /// The step that its figures count; of [`Load::CreateUnlink`] also the unlinks, of suites' mixes all.
    #[must_use]
    pub fn counts(self, step: Step) -> bool {
        if let Some(script) = script::of(self) {
            return script.counts.contains(&step);
        }
        match self {
            Self::CreateUnlink => matches!(step, Step::Create | Step::Unlink),
            Self::Create => step == Step::Create,
            Self::Stat => step == Step::Stat,
            Self::Unlink => step == Step::Unlink,
            Self::Fallocate2 | Self::Append => step == Step::Append,
            Self::ReadRandom | Self::ReadInOrder => step == Step::Read,
            Self::AppendFsync | Self::OverwriteFdatasync => step == Step::Sync,
            _ => step == Step::Write,
        }
    }

    /// Whether it has nothing left to do after [`Part::steps_max`] steps; else it can go on without end.
    #[must_use]
    pub fn ends(self) -> bool {
        if let Some(script) = script::of(self) {
            return script.ends();
        }
        matches!(
            self,
            Self::Create
                | Self::Unlink
                | Self::SmallFiles
                | Self::SparseWrites
                | Self::RandomFill
                | Self::RandomFillBySequences
        )
    }
}
