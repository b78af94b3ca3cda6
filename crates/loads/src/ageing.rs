//! Files that come and go until a disk is as broken up as one long in use, as Geriatrix ages disks: sizes of the
//! log-normal distribution, each file in one piece by fallocate, any file as likely to go as another.

use extant::{Dir, Error, Filesystem};

use crate::{Directory, Random};

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
        let path = format!("/aged-{number}");
        fs.create_dir(&path)?;
        fs.dir(&path)
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

    fn size(&mut self) -> u64 {
        let Aged { block_bytes, middle_bytes, most_bytes, .. } = self.aged;
        let bytes = (middle_bytes as f64 * (DEVIATION * self.random.normal()).exp()) as u64;
        bytes.clamp(1, most_bytes).next_multiple_of(block_bytes)
    }
}

impl Iterator for Ageing {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.left < self.next {
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
