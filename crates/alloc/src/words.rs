//! A bitmap of 64-bit words, searched by words.
//!
//! A set bit means "not to be given out". Bits past `len` do not exist; a search never returns them.

use std::ops::Range;

/// Bits in words, least significant first, as in a little-endian bitmap on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    words: Box<[u64]>,
    len: u32,
}

/// A run of clear bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gap {
    /// The first bit.
    pub start: u32,
    /// How many.
    pub len: u32,
}

impl Gap {
    /// Its bits.
    pub fn range(self) -> Range<u32> {
        self.start..self.start + self.len
    }
}

impl Words {
    /// The first `len` bits of `bytes`; missing bytes read as ones, so that nothing is given out of them.
    pub fn from_bytes(bytes: &[u8], len: u32) -> Self {
        let words = (0..(len as usize).div_ceil(64))
            .map(|word| {
                let mut eight = [0xff; 8];
                let from = bytes.get(word * 8..).unwrap_or_default();
                let held = from.len().min(8);
                eight[..held].copy_from_slice(&from[..held]);
                u64::from_le_bytes(eight)
            })
            .collect();
        Self { words, len }
    }

    /// How many bits are clear.
    pub fn count_clear(&self) -> u32 {
        let mut clear = 0;
        self.masks(0, self.len, |word, mask| clear += (!word & mask).count_ones());
        clear
    }

    /// Whether every bit of the range is set.
    pub fn is_set(&self, start: u32, len: u32) -> bool {
        let mut set = true;
        self.masks(start, len, |word, mask| set &= word & mask == mask);
        set
    }

    /// Sets the bits of the range.
    pub fn set(&mut self, start: u32, len: u32) {
        for_masks(start, len, |at, mask| self.words[at] |= mask);
    }

    /// Clears the bits of the range.
    pub fn clear(&mut self, start: u32, len: u32) {
        for_masks(start, len, |at, mask| self.words[at] &= !mask);
    }

    /// The first clear bit at or after `from`, or `len`.
    pub fn next_clear(&self, from: u32) -> u32 {
        self.next(from, |word| !word)
    }

    /// The first set bit at or after `from`, or `len`.
    pub fn next_set(&self, from: u32) -> u32 {
        self.next(from, |word| word)
    }

    /// The first bit of the run of clear bits that `at` belongs to.
    pub fn gap_start(&self, at: u32) -> u32 {
        let mut index = (at / 64) as usize;
        // Bits above `at` are masked away, so the highest set bit left is the last one before the run.
        let mut word = self.words[index] & (u64::MAX >> (63 - at % 64));
        loop {
            if word != 0 {
                return index as u32 * 64 + (64 - word.leading_zeros());
            }
            if index == 0 {
                return 0;
            }
            index -= 1;
            word = self.words[index];
        }
    }

    /// The first gap in `from..to` of at least `want` bits, or else the longest there. Gaps are cut at `from`
    /// and at `to`.
    pub fn find_gap(&self, from: u32, to: u32, want: u32) -> Gap {
        let mut longest = Gap::default();
        let to = to.min(self.len);
        let mut at = self.next_clear(from);
        while at < to {
            let end = self.next_set(at).min(to);
            if end - at > longest.len {
                longest = Gap { start: at, len: end - at };
                if longest.len >= want {
                    break;
                }
            }
            at = self.next_clear(end);
        }
        longest
    }

    fn next(&self, from: u32, pick: impl Fn(u64) -> u64) -> u32 {
        if from >= self.len {
            return self.len;
        }
        let mut index = (from / 64) as usize;
        let mut word = pick(self.words[index]) & (u64::MAX << (from % 64));
        while word == 0 {
            index += 1;
            match self.words.get(index) {
                Some(next) => word = pick(*next),
                None => return self.len,
            }
        }
        (index as u32 * 64 + word.trailing_zeros()).min(self.len)
    }

    fn masks(&self, start: u32, len: u32, mut each: impl FnMut(u64, u64)) {
        for_masks(start, len, |at, mask| each(self.words[at], mask));
    }
}

/// Calls `each(word, mask)` for the words that a range of bits touches.
fn for_masks(start: u32, len: u32, mut each: impl FnMut(usize, u64)) {
    let (mut at, end) = (start, start + len);
    while at < end {
        let bits = (64 - at % 64).min(end - at);
        each((at / 64) as usize, (u64::MAX >> (64 - bits)) << (at % 64));
        at += bits;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_found_across_words_and_cut_at_the_ends() {
        let mut words = Words::from_bytes(&[0; 32], 200);
        words.set(0, 60);
        words.set(70, 30);
        assert_eq!(words.next_clear(0), 60);
        assert_eq!(words.find_gap(0, 200, 11), Gap { start: 100, len: 100 });
        assert_eq!(words.find_gap(0, 200, 10), Gap { start: 60, len: 10 });
        assert_eq!(words.find_gap(62, 100, 9), Gap { start: 62, len: 8 });
        assert_eq!(words.find_gap(0, 200, 150), Gap { start: 100, len: 100 });
        assert_eq!((words.gap_start(199), words.gap_start(69), words.next_set(100)), (100, 60, 200));
        assert_eq!(words.count_clear(), 110);
        words.clear(0, 64);
        assert_eq!(words.gap_start(65), 0);
    }

    #[test]
    fn missing_bytes_are_never_free() {
        let words = Words::from_bytes(&[0; 3], 64);
        assert_eq!(words.count_clear(), 24);
        assert_eq!(words.find_gap(0, 64, 64), Gap { start: 0, len: 24 });
    }
}
