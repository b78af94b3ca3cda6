//! Files that come and go until a disk is as broken up as one long in use, as Geriatrix ages disks: sizes of the
//! log-normal distribution, each file in one piece by fallocate, any file as likely to go as another.

use extant::{Dir, Error, Filesystem};

use crate::{Directory, Random, layout};

/// What happens next to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A file of this number comes.
    Create {
        /// Which.
        file: u32,
        /// How large.
        bytes: u64,
    },
    /// It goes.
    Remove {
        /// Which.
        file: u32,
    },
    /// What went is given back.
    Sync,
}

/// The disk and its files, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aged {
    /// Of a block.
    pub block_bytes: u64,
    /// Of the file in the middle, and of the largest.
    pub middle_bytes: u64,
    /// See [`Aged::middle_bytes`].
    pub most_bytes: u64,
    /// Of all files together, when the disk is full enough.
    pub full_bytes: u64,
    /// That come after that, as others go.
    pub churn_bytes: u64,
}

/// Of files, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Of the file in the middle.
    pub middle_bytes: u64,
    /// Of the largest.
    pub most_bytes: u64,
}

/// Directories of the files by which [`age`] ages.
const DIRS: u32 = 64;

/// Ages a disk until `percent` of it are in use, and as many bytes again have come and gone as it has.
///
/// # Errors
/// The file system's.
pub fn age(fs: &Filesystem, seed: u64, percent: u64, sizes: Sizes) -> Result<(), Error> {
    let dirs = (0..DIRS).map(|number| {
        fs.create_dir(path(number))?;
        fs.dir(path(number))
    });
    let dirs: Vec<_> = dirs.collect::<Result<_, _>>()?;
    let statistics = fs.statistics();
    let block_bytes = u64::from(statistics.block_size);
    let (all, free) = (statistics.blocks * block_bytes, statistics.free_blocks * block_bytes);
    let full_bytes = free.saturating_sub(all / 100 * (100 - percent.min(100)));
    let Sizes { middle_bytes, most_bytes } = sizes;
    let aged = Aged { block_bytes, middle_bytes, most_bytes, full_bytes, churn_bytes: all };
    for step in Ageing::new(seed, aged) {
        let of = |file: u32| (&dirs[(file % DIRS) as usize], file.to_string());
        match step {
            Step::Create { file, bytes } => {
                let (dir, name) = of(file);
                Dir::allocate(&Directory::create(dir, &name)?, 0, bytes)?;
            }
            Step::Remove { file } => {
                let (dir, name) = of(file);
                Directory::unlink(dir, &name)?;
            }
            Step::Sync => fs.sync()?,
        }
    }
    fs.sync()
}

/// In how many pieces each of the files lies, on average, by which [`age`] left the disk full.
///
/// # Errors
/// The file system's.
pub fn extents_per_file(fs: &Filesystem) -> Result<f64, Error> {
    let (mut files, mut pieces) = (0_u64, 0);
    for number in 0..DIRS {
        let dir = fs.dir(path(number))?;
        for entry in dir.entries()? {
            pieces += layout::pieces(&dir.lookup(&entry.name)?)?;
            files += 1;
        }
    }
    Ok(pieces as f64 / files.max(1) as f64)
}

fn path(number: u32) -> String {
    format!("/aged-{number}")
}

/// The deviation of the logarithm of sizes.
const DEVIATION: f64 = 2.0;
/// Removals pile up to this part of what is live.
const SETTLE_PART: u64 = 32;

/// The steps; the same for all sides.
#[derive(Debug)]
pub struct Ageing {
    random: Random,
    aged: Aged,
    /// Bytes still to be created.
    left: u64,
    live: Vec<(u32, u64)>,
    used: u64,
    unsettled: u64,
    files: u32,
    /// The size of the file to come.
    next: u64,
}

impl Ageing {
    /// Fills the disk with files, then creates and removes until as many bytes as wished have come.
    #[must_use]
    pub fn new(seed: u64, aged: Aged) -> Self {
        let mut ageing = Self {
            random: Random::new(seed),
            aged,
            left: aged.full_bytes + aged.churn_bytes,
            live: Vec::new(),
            used: 0,
            unsettled: 0,
            files: 0,
            next: 0,
        };
        ageing.next = ageing.size();
        ageing
    }

    /// 0 if the disk is to have no block of a file.
    fn size(&mut self) -> u64 {
        let Aged { block_bytes, middle_bytes, most_bytes, full_bytes, .. } = self.aged;
        let bytes = (middle_bytes as f64 * (DEVIATION * self.random.normal()).exp()) as u64;
        bytes.clamp(1, most_bytes).next_multiple_of(block_bytes).min(full_bytes / block_bytes * block_bytes)
    }
}

impl Iterator for Ageing {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.next == 0 || self.left < self.next {
            return None;
        }
        if self.unsettled > self.aged.full_bytes / SETTLE_PART {
            self.unsettled = 0;
            return Some(Step::Sync);
        }
        if self.used + self.next > self.aged.full_bytes {
            let index = self.random.below(self.live.len().max(1) as u64) as usize;
            let (file, bytes) = self.live.swap_remove(index);
            self.used -= bytes;
            self.unsettled += bytes;
            return Some(Step::Remove { file });
        }
        let (file, bytes) = (self.files, self.next);
        self.files += 1;
        self.live.push((file, bytes));
        self.used += bytes;
        self.left -= bytes;
        self.next = self.size();
        Some(Step::Create { file, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_never_more_than_the_disk_is_to_have() {
        for full_bytes in [0, 4095, 4096, 100_000, 100 << 20] {
            let aged = Aged {
                block_bytes: 4096,
                middle_bytes: 2 << 20,
                most_bytes: 256 << 20,
                full_bytes,
                churn_bytes: 200 << 20,
            };
            let (mut live, mut most) = (std::collections::BTreeMap::new(), 0);
            for step in Ageing::new(1, aged) {
                match step {
                    Step::Create { file, bytes } => drop(live.insert(file, bytes)),
                    Step::Remove { file } => assert!(live.remove(&file).is_some()),
                    Step::Sync => {}
                }
                most = most.max(live.values().sum::<u64>());
            }
            assert!(most <= full_bytes && most >= full_bytes / 2 / 4096 * 4096, "{most} of {full_bytes}");
        }
    }
}
