//! Files that come and go until a disk is as broken up as one long in use, as Geriatrix ages disks: sizes of the
//! log-normal distribution, each file in one piece by fallocate, any file as likely to go as another.

use extant_loads::Random;

/// What happens next to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A file of this number comes.
    Create { file: u32, bytes: u64 },
    /// It goes.
    Remove { file: u32 },
    /// What went is given back.
    Settle,
}

/// The size in the middle, the deviation of its logarithm, and the largest.
const MIDDLE_BYTES: f64 = (32 << 10) as f64;
const DEVIATION: f64 = 2.0;
const MOST_BYTES: u64 = 64 << 20;
/// Removals pile up to this part of what is live.
const SETTLE_PART: u64 = 32;

/// The steps; the same for all sides.
#[derive(Debug)]
pub struct Ageing {
    random: Random,
    block_bytes: u64,
    /// Bytes that files hold when the disk is full enough.
    full: u64,
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
    /// Fills the disk with `full` bytes of files, then creates and removes until `churn` bytes more have come.
    pub fn new(seed: u64, block_bytes: u64, full: u64, churn: u64) -> Self {
        let mut ageing = Self {
            random: Random::new(seed),
            block_bytes,
            full,
            left: full + churn,
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
        let bytes = (MIDDLE_BYTES * (DEVIATION * self.random.normal()).exp()) as u64;
        bytes.clamp(1, MOST_BYTES).next_multiple_of(self.block_bytes)
    }
}

impl Iterator for Ageing {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.left < self.next {
            return None;
        }
        if self.unsettled > self.full / SETTLE_PART {
            self.unsettled = 0;
            return Some(Step::Settle);
        }
        if self.used + self.next > self.full {
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
