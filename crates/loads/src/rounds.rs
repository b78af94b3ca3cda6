//! What each load does: once before it is measured, in rounds, and once after.

use std::ops::Range;

use crate::{
    APPEND_BYTES, APPENDED_BYTES_MAX, BATCH, BLOCK_BYTES, BURST_BYTES, Directory, FILE_BYTES, Load,
    OVERWRITTEN_BYTES, OVERWRITTEN_LARGE_BYTES, Part, ROUND, Random, Runner, SEQUENTIAL, SMALL_BYTES,
    SPARSE_STEP_BYTES, Silent, Step, script,
};

/// Writes of [`Load::OverwriteFsync`] before each fsync.
const WRITES_PER_FSYNC: u64 = 4096;
const CONTENT: [u8; BLOCK_BYTES as usize] = [7; BLOCK_BYTES as usize];

impl Load {
    /// Makes what must be there first.
    ///
    /// # Errors
    /// The file system's.
    pub fn prepare<D: Directory>(self, part: &Part<'_, D>) -> Result<(), D::Error> {
        if let Some(script) = script::of(self) {
            return script.prepare(part);
        }
        match self {
            Self::CreateUnlink | Self::Create | Self::SmallFiles => Ok(()),
            Self::Stat | Self::Unlink => part.create_all(&part.names(part.made(self)), &mut Silent),
            Self::OverwriteLarge => part.fill_file(OVERWRITTEN_LARGE_BYTES),
            Self::Overwrite | Self::OverwriteFsync | Self::OverwriteFdatasync => {
                part.fill_file(OVERWRITTEN_BYTES)
            }
            Self::ReadRandom | Self::ReadInOrder => part.fill_file(OVERWRITTEN_BYTES),
            _ => part.dir.create(&part.file()).map(drop),
        }
    }

    /// Goes on in rounds until the runner wants no more or there is nothing left to do.
    ///
    /// # Errors
    /// The file system's.
    pub fn run<D: Directory>(self, part: &Part<'_, D>, runner: &mut dyn Runner) -> Result<(), D::Error> {
        if let Some(script) = script::of(self) {
            return script.run(part, runner);
        }
        match self {
            Self::CreateUnlink => {
                let names = part.names(part.made(self));
                while runner.goes_on() {
                    part.create_all(&names, runner)?;
                    part.unlink_all(&names, runner)?;
                }
                Ok(())
            }
            Self::Stat => {
                let names = part.names(part.made(self));
                while runner.goes_on() {
                    for name in &names {
                        part.dir.stat(name)?;
                        runner.did(Step::Stat);
                    }
                }
                Ok(())
            }
            Self::Create => {
                part.by_rounds(runner, |indices, runner| part.create_all(&part.names(indices), runner))
            }
            Self::Unlink => {
                part.by_rounds(runner, |indices, runner| part.unlink_all(&part.names(indices), runner))
            }
            Self::SmallFiles => {
                part.by_rounds(runner, |indices, runner| part.write_files(&part.names(indices), runner))
            }
            Self::Fallocate2 => part.append(FILE_BYTES, runner),
            Self::Append => part.append(APPENDED_BYTES_MAX, runner),
            Self::Overwrite => part.overwrite(OVERWRITTEN_BYTES, false, runner),
            Self::OverwriteLarge => part.overwrite(OVERWRITTEN_LARGE_BYTES, false, runner),
            Self::OverwriteFsync => part.overwrite(OVERWRITTEN_BYTES, true, runner),
            Self::SparseWrites => part.burst(|index| index * SPARSE_STEP_BYTES, runner),
            Self::RandomFill => part.fill(1, runner),
            Self::RandomFillBySequences => part.fill(SEQUENTIAL, runner),
            Self::ReadRandom => part.read(true, runner),
            Self::ReadInOrder => part.read(false, runner),
            Self::AppendFsync => part.append_fsync(runner),
            _ => part.overwrite_fdatasync(runner),
        }
    }

    /// Takes away what is left; `steps` is what the runner counted.
    ///
    /// # Errors
    /// The file system's.
    pub fn clean<D: Directory>(self, part: &Part<'_, D>, steps: u64) -> Result<(), D::Error> {
        if let Some(script) = script::of(self) {
            return script.clean(part);
        }
        match self {
            Self::CreateUnlink => Ok(()),
            Self::Create | Self::SmallFiles => part.unlink_all(&part.names(0..steps), &mut Silent),
            Self::Stat => part.unlink_all(&part.names(part.made(self)), &mut Silent),
            Self::Unlink => part.unlink_all(&part.names(steps..part.steps_max), &mut Silent),
            _ => part.dir.unlink(&part.file()),
        }
    }
}

impl<D: Directory> Part<'_, D> {
    /// The files that are there at once.
    fn made(&self, load: Load) -> Range<u64> {
        0..if load.ends() { self.steps_max } else { BATCH as u64 }
    }

    fn names(&self, indices: Range<u64>) -> Vec<String> {
        indices.map(|index| format!("file-{}-{index}", self.thread)).collect()
    }

    /// The name of the file of a load that has but one.
    #[must_use]
    pub fn file(&self) -> String {
        format!("file-{}", self.thread)
    }

    fn create_all(&self, names: &[String], runner: &mut dyn Runner) -> Result<(), D::Error> {
        for name in names {
            self.dir.create(name)?;
            runner.did(Step::Create);
        }
        Ok(())
    }

    fn unlink_all(&self, names: &[String], runner: &mut dyn Runner) -> Result<(), D::Error> {
        for name in names {
            self.dir.unlink(name)?;
            runner.did(Step::Unlink);
        }
        Ok(())
    }

    fn write_files(&self, names: &[String], runner: &mut dyn Runner) -> Result<(), D::Error> {
        for name in names {
            let file = self.dir.create(name)?;
            runner.did(Step::Create);
            D::write(&file, 0, &CONTENT[..SMALL_BYTES as usize])?;
            runner.did(Step::Write);
        }
        Ok(())
    }

    /// Does each [`ROUND`] of the steps up to the last one, while the runner wants more.
    fn by_rounds(
        &self,
        runner: &mut dyn Runner,
        mut round: impl FnMut(Range<u64>, &mut dyn Runner) -> Result<(), D::Error>,
    ) -> Result<(), D::Error> {
        let mut next = 0;
        while runner.goes_on() && next < self.steps_max {
            let end = (next + ROUND).min(self.steps_max);
            round(next..end, runner)?;
            next = end;
        }
        Ok(())
    }

    /// Appends up to so many bytes, then from the start again; a round is [`FILE_BYTES`].
    fn append(&self, bytes_max: u64, runner: &mut dyn Runner) -> Result<(), D::Error> {
        let file = self.dir.open(&self.file())?;
        let mut end = 0;
        while runner.goes_on() {
            for _ in 0..FILE_BYTES / APPEND_BYTES {
                D::allocate(&file, end, APPEND_BYTES)?;
                runner.did(Step::Append);
                end += APPEND_BYTES;
            }
            if end == bytes_max {
                D::truncate(&file, 0)?;
                runner.did(Step::Truncate);
                end = 0;
            }
        }
        Ok(())
    }

    fn fill_file(&self, bytes: u64) -> Result<(), D::Error> {
        let file = self.dir.create(&self.file())?;
        (0..bytes).step_by(CONTENT.len()).try_for_each(|at| D::write(&file, at, &CONTENT))
    }

    /// Writes at random places of the file's first `bytes`, with an fsync after [`WRITES_PER_FSYNC`] if wanted.
    fn overwrite(&self, bytes: u64, is_synced: bool, runner: &mut dyn Runner) -> Result<(), D::Error> {
        let file = self.dir.open(&self.file())?;
        let mut random = Random::new(self.thread as u64);
        let writes = if is_synced { WRITES_PER_FSYNC } else { ROUND };
        while runner.goes_on() {
            for _ in 0..writes {
                D::write(&file, random.below(bytes / BLOCK_BYTES) * BLOCK_BYTES, &CONTENT)?;
                runner.did(Step::Write);
            }
            if is_synced {
                D::fsync(&file)?;
            }
        }
        Ok(())
    }

    /// Reads by [`BLOCK_BYTES`]; a round is [`ROUND`] of them.
    fn read(&self, is_random: bool, runner: &mut dyn Runner) -> Result<(), D::Error> {
        let file = self.dir.open(&self.file())?;
        let mut random = Random::new(self.thread as u64);
        let (mut buf, mut next) = (CONTENT, 0);
        while runner.goes_on() {
            for _ in 0..ROUND {
                let block = if is_random { random.below(OVERWRITTEN_BYTES / BLOCK_BYTES) } else { next };
                D::read(&file, block * BLOCK_BYTES, &mut buf)?;
                runner.did(Step::Read);
                next = (next + 1) % (OVERWRITTEN_BYTES / BLOCK_BYTES);
            }
        }
        Ok(())
    }

    /// Appends up to [`APPENDED_BYTES_MAX`], then from the start again.
    fn append_fsync(&self, runner: &mut dyn Runner) -> Result<(), D::Error> {
        let file = self.dir.open(&self.file())?;
        let mut end = 0;
        while runner.goes_on() {
            D::write(&file, end, &CONTENT)?;
            runner.did(Step::Write);
            D::fsync(&file)?;
            runner.did(Step::Sync);
            end += BLOCK_BYTES;
            if end == APPENDED_BYTES_MAX {
                D::truncate(&file, 0)?;
                runner.did(Step::Truncate);
                end = 0;
            }
        }
        Ok(())
    }

    fn overwrite_fdatasync(&self, runner: &mut dyn Runner) -> Result<(), D::Error> {
        let file = self.dir.open(&self.file())?;
        let mut random = Random::new(self.thread as u64);
        while runner.goes_on() {
            D::write(&file, random.below(OVERWRITTEN_BYTES / BLOCK_BYTES) * BLOCK_BYTES, &CONTENT)?;
            runner.did(Step::Write);
            D::fdatasync(&file)?;
            runner.did(Step::Sync);
        }
        Ok(())
    }

    /// Writes to the place of each index.
    fn burst(&self, place: impl Fn(u64) -> u64, runner: &mut dyn Runner) -> Result<(), D::Error> {
        let file = self.dir.open(&self.file())?;
        self.by_rounds(runner, |indices, runner| {
            for index in indices {
                D::write(&file, place(index), &CONTENT[..BURST_BYTES as usize])?;
                runner.did(Step::Write);
            }
            Ok(())
        })
    }

    /// Fills the file, so many bursts in a row at each place.
    fn fill(&self, in_a_row: u64, runner: &mut dyn Runner) -> Result<(), D::Error> {
        let mut places: Vec<u64> = (0..self.steps_max.div_ceil(in_a_row)).collect();
        Random::new(1).shuffle(&mut places);
        let place = |index| (places[(index / in_a_row) as usize] * in_a_row + index % in_a_row) * BURST_BYTES;
        self.burst(place, runner)
    }
}
