//! A bitmap of 64-bit words, searched by words.
//!
//! A set bit means "not to be given out". Bits past `len` do not exist; a search never returns them.

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

    /// Whether every bit of the range is clear.
    pub fn is_clear(&self, start: u32, len: u32) -> bool {
        let mut clear = true;
        self.masks(start, len, |word, mask| clear &= word & mask == 0);
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

/// The same over bytes: bits of a bitmap as it lies on the disk.
pub(crate) mod bytes {
    fn for_masks(start: u32, len: u32, mut each: impl FnMut(usize, u8)) {
        let (mut at, end) = (start, start + len);
        while at < end {
            let bits = (8 - at % 8).min(end - at);
            each((at / 8) as usize, (0xff >> (8 - bits)) << (at % 8));
            at += bits;
        }
    }

    /// Whether every bit of the range is clear; bits past the end are not.
    pub fn is_clear(bitmap: &[u8], start: u32, len: u32) -> bool {
        let mut clear = true;
        for_masks(start, len, |at, mask| clear &= bitmap.get(at).is_some_and(|byte| byte & mask == 0));
        clear
    }

    /// Whether every bit of the range is set; bits past the end are not.
    pub fn is_set(bitmap: &[u8], start: u32, len: u32) -> bool {
        let mut set = true;
        for_masks(start, len, |at, mask| set &= bitmap.get(at).is_some_and(|byte| byte & mask == mask));
        set
    }

    /// Sets the bits of the range that lie in the bitmap.
    pub fn set(bitmap: &mut [u8], start: u32, len: u32) {
        for_masks(start, len, |at, mask| {
            if let Some(byte) = bitmap.get_mut(at) {
                *byte |= mask;
            }
        });
    }

    /// Clears the bits of the range that lie in the bitmap.
    pub fn clear(bitmap: &mut [u8], start: u32, len: u32) {
        for_masks(start, len, |at, mask| {
            if let Some(byte) = bitmap.get_mut(at) {
                *byte &= !mask;
            }
        });
    }

    /// How many of the first `len` bits are clear; bits past the end count as set.
    pub fn count_clear(bitmap: &[u8], len: u32) -> u32 {
        let mut clear = 0;
        for_masks(0, len, |at, mask| {
            clear += bitmap.get(at).map_or(0, |byte| (!byte & mask).count_ones());
        });
        clear
    }

    /// The first clear bit in `from..to`.
    pub fn next_clear(bitmap: &[u8], from: u32, to: u32) -> Option<u32> {
        let mut at = from;
        while at < to {
            let byte = *bitmap.get((at / 8) as usize)?;
            let clear = !byte & (0xff << (at % 8));
            if clear != 0 {
                let found = at / 8 * 8 + clear.trailing_zeros();
                return (found < to).then_some(found);
            }
            at = (at / 8 + 1) * 8;
        }
        None
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
        assert_eq!(bytes::next_clear(&[0xff, 0x7f], 0, 16), Some(15));
        assert_eq!(bytes::next_clear(&[0xff, 0x7f], 0, 15), None);
        assert_eq!(bytes::next_clear(&[0xff], 0, 16), None);
    }
}
