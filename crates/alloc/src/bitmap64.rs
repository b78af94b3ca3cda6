//! A bitmap of 64-bit words, searched by words.
//!
//! A set bit means "not to be given out". Bits past `len` do not exist; a search never returns them.

use std::ops::Range;

/// Bits in words, least significant first, as in a little-endian bitmap on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bitmap64 {
    words: Box<[u64]>,
    len: u32,
}

/// A run of clear bits: free clusters of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeExtent {
    /// The first bit.
    pub start: u32,
    /// How many.
    pub len: u32,
}

impl FreeExtent {
    /// Its bits.
    pub fn range(self) -> Range<u32> {
        self.start..self.start + self.len
    }
}

impl Bitmap64 {
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

    /// So many set bits.
    pub fn all_set(len: u32) -> Self {
        Self { words: vec![u64::MAX; (len as usize).div_ceil(64)].into(), len }
    }

    /// The same with set bits behind, `len` in all.
    pub fn extended(&self, len: u32) -> Self {
        let mut all = Self::all_set(len.max(self.len));
        all.words.iter_mut().zip(&self.words).for_each(|(to, from)| *to = *from);
        // Bits past the end may be of any value.
        all.set(self.len, all.len - self.len);
        all
    }

    /// How many bits there are.
    pub fn len(&self) -> u32 {
        self.len
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

    /// The first bit of the run of clear bits that a clear bit belongs to.
    pub fn run_start(&self, bit: u32) -> u32 {
        let mut index = (bit / 64) as usize;
        let mut word = self.words[index] & !(u64::MAX << (bit % 64));
        while word == 0 {
            let Some(before) = index.checked_sub(1) else { return 0 };
            index = before;
            word = self.words[index];
        }
        index as u32 * 64 + 64 - word.leading_zeros()
    }

    /// The first set bit in `from..before`, or `before`, or `len` if that is less.
    pub fn next_set_before(&self, from: u32, before: u32) -> u32 {
        let before = before.min(self.len);
        let mut at = from;
        while at < before {
            let word = self.words[(at / 64) as usize] & (u64::MAX << (at % 64));
            let word_start = at - at % 64;
            if word != 0 {
                return (word_start + word.trailing_zeros()).min(before);
            }
            at = word_start + 64;
        }
        before
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
    fn an_extended_bitmap_keeps_its_bits_and_has_set_ones_behind() {
        for (len, to) in [(1, 1), (5, 64), (63, 200), (64, 128), (100, 101)] {
            // Bits past the end say that they are clear.
            let mut bits = Bitmap64::from_bytes(&[0; 32], len);
            bits.set(len / 2, 1);
            let all = bits.extended(to);
            assert_eq!(all.len(), to);
            assert!((0..len).all(|bit| all.is_set(bit, 1) == (bit == len / 2)), "{len} to {to}");
            assert!(all.is_set(len, to - len), "{len} to {to}");
        }
    }

    #[test]
    fn bits_are_found_across_words_and_at_the_ends() {
        let mut words = Bitmap64::from_bytes(&[0; 32], 200);
        words.set(0, 60);
        words.set(70, 130);
        assert_eq!([0, 60, 70].map(|from| words.next_clear(from)), [60, 60, 200]);
        assert_eq!([0, 60, 70, 199, 200].map(|from| words.next_set(from)), [0, 70, 70, 199, 200]);
        assert_eq!(
            [(60, 65), (60, 71), (60, 500)].map(|(from, to)| words.next_set_before(from, to)),
            [65, 70, 70]
        );
        assert_eq!([60, 63, 64, 69].map(|bit| words.run_start(bit)), [60; 4]);
        assert!(words.is_set(70, 130) && !words.is_set(69, 2));
        words.clear(64, 136);
        assert_eq!((words.next_set(60), words.next_set_before(60, 1000)), (200, 200));
        words.clear(0, 60);
        assert_eq!([0, 63, 199].map(|bit| words.run_start(bit)), [0; 3]);
    }

    #[test]
    fn missing_bytes_are_never_free() {
        let words = Bitmap64::from_bytes(&[0; 3], 64);
        assert_eq!((words.next_clear(0), words.next_set(0), words.next_clear(24)), (0, 24, 64));
    }
}
