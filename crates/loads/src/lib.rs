//! What threads do to a file system, written once: threads of the host run it to be measured, virtual CPUs in the lab.
//!
//! Leaves out: clocks, threads, and the same loads as system calls.
#![forbid(unsafe_code)]

use clap::ValueEnum;
use extant::{Dir, Fallocate, New, NewKind, Result};

/// Files that exist at once: those of one round of creating, then of one of unlinking.
pub const BATCH: usize = 1000;
/// Bytes of an append, and at which a file is truncated.
pub const APPEND_BYTES: u64 = 8 << 10;
/// See [`APPEND_BYTES`].
pub const FILE_BYTES: u64 = 1 << 20;

/// What each thread does in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Load {
    /// Creates and unlinks empty files; both count.
    CreateUnlink,
    /// will-it-scale's fallocate2: appends 8 KiB by fallocate until 1 MiB, truncates to 0; the appends count.
    Fallocate2,
    /// Asks for empty files by name; the answers count.
    Stat,
}

/// What a thread has just done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// A file was made.
    Create,
    /// A name was taken away, and with it the file.
    Unlink,
    /// A file was found by its name and its attributes read.
    Stat,
    /// 8 KiB were allocated at the end of a file.
    Append,
    /// A file was cut to nothing.
    Truncate,
}

/// Who runs a load.
pub trait Runner {
    /// Told after each step.
    fn did(&mut self, step: Step);
    /// Asked between rounds: whether there is to be another.
    fn goes_on(&mut self) -> bool;
}

impl Load {
    /// In words.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::CreateUnlink => "create + unlink of empty files",
            Self::Fallocate2 => "append 8 KiB by fallocate to 1 MiB, truncate",
            Self::Stat => "stat of empty files",
        }
    }

    /// Whether a step is one of the operations that its figures count.
    #[must_use]
    pub fn counts(self, step: Step) -> bool {
        match self {
            Self::CreateUnlink => matches!(step, Step::Create | Step::Unlink),
            Self::Fallocate2 => step == Step::Append,
            Self::Stat => step == Step::Stat,
        }
    }

    /// Runs in a directory, which it leaves as it was; threads are told apart by their number.
    ///
    /// # Errors
    /// As the file system's.
    pub fn run(self, dir: &Dir, thread: usize, runner: &mut dyn Runner) -> Result<()> {
        match self {
            Self::CreateUnlink => {
                let names = names(thread);
                while runner.goes_on() {
                    create_all(dir, &names, runner)?;
                    unlink_all(dir, &names, runner)?;
                }
                Ok(())
            }
            Self::Fallocate2 => {
                let name = format!("appended-{thread}");
                let file = dir.create(name.as_bytes(), &NEW)?;
                while runner.goes_on() {
                    for at in (0..FILE_BYTES).step_by(APPEND_BYTES as usize) {
                        file.allocate(Fallocate::Allocate { keep_size: false }, at, APPEND_BYTES)?;
                        runner.did(Step::Append);
                    }
                    file.set_len(0)?;
                    runner.did(Step::Truncate);
                }
                drop(file);
                dir.unlink(name.as_bytes())
            }
            Self::Stat => {
                let names = names(thread);
                create_all(dir, &names, runner)?;
                while runner.goes_on() {
                    for name in &names {
                        std::hint::black_box(dir.lookup(name.as_bytes())?.metadata());
                        runner.did(Step::Stat);
                    }
                }
                unlink_all(dir, &names, runner)
            }
        }
    }
}

const NEW: New<'static> = New { kind: NewKind::File, mode: 0o644, uid: 0, gid: 0, times: None, xattrs: &[] };

fn names(thread: usize) -> Vec<String> {
    (0..BATCH).map(|index| format!("file-{thread}-{index}")).collect()
}

fn create_all(dir: &Dir, names: &[String], runner: &mut dyn Runner) -> Result<()> {
    names.iter().try_for_each(|name| {
        dir.create(name.as_bytes(), &NEW)?;
        runner.did(Step::Create);
        Ok(())
    })
}

fn unlink_all(dir: &Dir, names: &[String], runner: &mut dyn Runner) -> Result<()> {
    names.iter().try_for_each(|name| {
        dir.unlink(name.as_bytes())?;
        runner.did(Step::Unlink);
        Ok(())
    })
}
