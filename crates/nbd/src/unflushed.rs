//! The newest content of what was written and not flushed since: it is written again if the server loses its memory.
//!
//! A server that is killed may lose each write that it has answered and that no flush has covered. Ranges do not overlap: a later
//! write takes the place of an earlier one, so that they can be written again in any order.
//!
//! The buffers of what was flushed or overwritten serve later writes of the same length, since the host gives and takes memory page by page.
//! All together take [`MEMORY_BYTES_MAX`], and what was written since that was exceeded.

use std::collections::BTreeMap;

use extant_rt::Arc;

/// Memory for what was written and not flushed, in bytes.
pub const MEMORY_BYTES_MAX: usize = 64 << 20;
/// Memory for a range beside its bytes.
const RANGE_OVERHEAD_BYTES: usize = 128;

/// What a range was filled with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filling {
    /// With bytes.
    Bytes(Arc<Vec<u8>>),
    /// With so many zeroes.
    Zeroes(u64),
}

impl Filling {
    /// How long it is.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Zeroes(bytes) => *bytes,
        }
    }

    /// A part of it.
    fn part(&self, from: u64, to: u64) -> Self {
        match self {
            Self::Bytes(bytes) => Self::Bytes(Arc::new(bytes[from as usize..to as usize].to_vec())),
            Self::Zeroes(_) => Self::Zeroes(to - from),
        }
    }

    /// Memory for it.
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len() + RANGE_OVERHEAD_BYTES,
            Self::Zeroes(_) => RANGE_OVERHEAD_BYTES,
        }
    }
}

/// The writes since the last flush.
#[derive(Debug, Default)]
pub struct Unflushed {
    /// By their start; with the number of the write.
    ranges: BTreeMap<u64, (Filling, u64)>,
    memory_bytes: usize,
    /// Of the last write.
    number: u64,
    /// Buffers for copies, by their length.
    spare: BTreeMap<usize, Vec<Arc<Vec<u8>>>>,
    spare_bytes: usize,
}

impl Unflushed {
    /// The memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The number of the last write.
    pub fn last_number(&self) -> u64 {
        self.number
    }

    /// Notes a write.
    pub fn note(&mut self, offset: u64, filling: Filling) {
        self.forget(offset, filling.bytes());
        self.number += 1;
        self.insert(offset, filling, self.number);
    }

    /// Forgets a range: it was discarded, or its newest content is durable.
    pub fn forget(&mut self, offset: u64, bytes: u64) {
        let end = offset.saturating_add(bytes);
        // Ranges do not overlap, so that their ends ascend too.
        let before = self.ranges.range(..end).rev();
        let touched = before.take_while(|(start, (filling, _))| *start + filling.bytes() > offset);
        let starts: Vec<u64> = touched.map(|(start, _)| *start).collect();
        for start in starts {
            let Some((filling, number)) = self.ranges.remove(&start) else { continue };
            let after = start + filling.bytes();
            let left = (start < offset).then(|| (start, filling.part(0, offset - start)));
            let right = (end < after).then(|| (end, filling.part(end - start, after - start)));
            self.drop_filling(filling);
            left.into_iter().chain(right).for_each(|(start, part)| self.insert(start, part, number));
        }
    }

    /// Forgets all up to a write: a flush has covered them.
    pub fn flushed(&mut self, number: u64) {
        let mut covered = Vec::new();
        self.ranges.retain(|_, (filling, own)| {
            let is_covered = *own <= number;
            covered.extend(is_covered.then(|| filling.clone()));
            !is_covered
        });
        covered.into_iter().for_each(|filling| self.drop_filling(filling));
    }

    /// A buffer of so many bytes, for a copy. One that serves for a repeated write still is shared.
    pub fn take_spare(&mut self, bytes: usize) -> Option<Arc<Vec<u8>>> {
        let spare = self.spare.get_mut(&bytes)?.pop()?;
        self.spare_bytes -= bytes;
        Some(spare)
    }

    /// Keeps the buffer of a range that is no longer needed.
    fn drop_filling(&mut self, filling: Filling) {
        self.memory_bytes -= filling.memory_bytes();
        let Filling::Bytes(bytes) = filling else { return };
        if self.memory_bytes + self.spare_bytes + bytes.len() <= MEMORY_BYTES_MAX {
            self.spare_bytes += bytes.len();
            self.spare.entry(bytes.len()).or_default().push(bytes);
        }
    }

    /// What is to be written again.
    pub fn ranges(&self) -> Vec<(u64, Filling)> {
        self.ranges.iter().map(|(start, (filling, _))| (*start, filling.clone())).collect()
    }

    fn insert(&mut self, start: u64, filling: Filling, number: u64) {
        if filling.bytes() > 0 {
            self.memory_bytes += filling.memory_bytes();
            self.ranges.insert(start, (filling, number));
            if self.memory_bytes + self.spare_bytes > MEMORY_BYTES_MAX {
                self.spare.clear();
                self.spare_bytes = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testing::Random;

    #[test]
    fn newest_content_of_what_no_flush_covered_is_kept() {
        const BYTES: usize = 200;
        for seed in 0..200 {
            let mut numbers = Random::new(seed);
            let mut unflushed = Unflushed::default();
            // Of each byte its newest content and the number of the write, none if it need not be kept.
            let mut model = [None; BYTES];
            for _ in 0..100 {
                let from = numbers.below(BYTES as u64);
                let bytes = numbers.below(BYTES as u64 - from + 1);
                let range = from as usize..(from + bytes) as usize;
                match numbers.below(8) {
                    0 => {
                        unflushed.forget(from, bytes);
                        model[range].fill(None);
                    }
                    1 => {
                        let number = numbers.below(unflushed.last_number() + 1);
                        unflushed.flushed(number);
                        for byte in &mut model {
                            *byte = byte.filter(|(_, own)| *own > number);
                        }
                    }
                    kind => {
                        let byte = numbers.below(255) as u8 + 1;
                        let (filling, byte) = match kind {
                            2 => (Filling::Zeroes(bytes), 0),
                            _ => (Filling::Bytes(Arc::new(vec![byte; bytes as usize])), byte),
                        };
                        unflushed.note(from, filling);
                        model[range].fill(Some((byte, unflushed.last_number())));
                    }
                }
                let mut kept = [None; BYTES];
                let mut memory_bytes = 0;
                for (start, filling) in unflushed.ranges() {
                    memory_bytes += filling.memory_bytes();
                    for at in 0..filling.bytes() as usize {
                        let byte = match &filling {
                            Filling::Bytes(bytes) => bytes[at],
                            Filling::Zeroes(_) => 0,
                        };
                        assert_eq!(
                            kept[start as usize + at].replace(byte),
                            None,
                            "seed {seed}: ranges overlap"
                        );
                    }
                }
                assert_eq!(kept, model.map(|byte| byte.map(|(byte, _)| byte)), "seed {seed}");
                assert_eq!(memory_bytes, unflushed.memory_bytes(), "seed {seed}");
                let spare: usize = unflushed.spare.iter().map(|(bytes, all)| bytes * all.len()).sum();
                assert_eq!(spare, unflushed.spare_bytes, "seed {seed}");
            }
        }
    }
}
