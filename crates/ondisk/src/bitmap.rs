//! Bitmaps as stored on the disk: bit `n` is bit `n % 8` of byte `n / 8`.
//!
//! Reading beyond the bytes gives ones ("taken"), writing there does nothing: a number out of range never
//! becomes a free block.

use std::ops::Range;

const WORD_BITS: u32 = u64::BITS;

/// Whether a bit is one.
#[inline]
#[must_use]
pub fn is_set(bits: &[u8], index: u32) -> bool {
    bits.get(index as usize / 8).is_none_or(|byte| byte >> (index % 8) & 1 == 1)
}

/// Makes a bit one.
#[inline]
pub fn set(bits: &mut [u8], index: u32) {
    if let Some(byte) = bits.get_mut(index as usize / 8) {
        *byte |= 1 << (index % 8);
    }
}

/// Makes a bit zero.
#[inline]
pub fn clear(bits: &mut [u8], index: u32) {
    if let Some(byte) = bits.get_mut(index as usize / 8) {
        *byte &= !(1 << (index % 8));
    }
}

/// Makes the bits of a range ones.
pub fn set_range(bits: &mut [u8], range: Range<u32>) {
    change_range(bits, range, |byte, mask| byte | mask);
}

/// Makes the bits of a range zeros.
pub fn clear_range(bits: &mut [u8], range: Range<u32>) {
    change_range(bits, range, |byte, mask| byte & !mask);
}

fn change_range(bits: &mut [u8], range: Range<u32>, change: impl Fn(u8, u8) -> u8) {
    let range = within(bits, &range);
    if range.is_empty() {
        return;
    }
    let (first, last) = (range.start as usize / 8, (range.end as usize - 1) / 8);
    for (index, byte) in bits[first..=last].iter_mut().enumerate() {
        let mut mask = 0xFF;
        if index == 0 {
            mask &= 0xFF << (range.start % 8);
        }
        if index == last - first {
            mask &= 0xFF >> (7 - (range.end - 1) % 8);
        }
        *byte = change(*byte, mask);
    }
}

/// The part of a range that there are bits for.
fn within(bits: &[u8], range: &Range<u32>) -> Range<u32> {
    let len = u32::try_from(bits.len().saturating_mul(8)).unwrap_or(u32::MAX);
    range.start..range.end.min(len)
}

/// The first zero of a range.
#[must_use]
pub fn find_zero(bits: &[u8], range: Range<u32>) -> Option<u32> {
    find_one_of(bits, &range, |word| !word)
}

/// The first one of a range. Bits beyond the bytes are not looked at.
#[must_use]
pub fn find_one(bits: &[u8], range: Range<u32>) -> Option<u32> {
    find_one_of(bits, &range, |word| word)
}

fn find_one_of(bits: &[u8], range: &Range<u32>, view: impl Fn(u64) -> u64) -> Option<u32> {
    let range = within(bits, range);
    let mut at = range.start;
    while at < range.end {
        let found = view(word(bits, at / WORD_BITS)) & u64::MAX << (at % WORD_BITS);
        let start = at - at % WORD_BITS;
        if found != 0 {
            let index = start + found.trailing_zeros();
            return (index < range.end).then_some(index);
        }
        at = start.checked_add(WORD_BITS)?;
    }
    None
}

/// The `index`th 64 bits; zeros beyond the bytes.
fn word(bits: &[u8], index: u32) -> u64 {
    let rest = bits.get(index as usize * 8..).unwrap_or_default();
    if let Some(whole) = rest.first_chunk() {
        return u64::from_le_bytes(*whole);
    }
    let mut bytes = [0; 8];
    for (to, from) in bytes.iter_mut().zip(rest) {
        *to = *from;
    }
    u64::from_le_bytes(bytes)
}

/// Ones of a range. Bits beyond the bytes are not counted.
#[must_use]
pub fn count_ones(bits: &[u8], range: Range<u32>) -> u32 {
    let range = within(bits, &range);
    let mut count = 0;
    let mut at = range.start;
    while at < range.end {
        let start = at - at % WORD_BITS;
        let end = start.saturating_add(WORD_BITS).min(range.end);
        let mask = u64::MAX << (at - start) & u64::MAX >> (WORD_BITS - (end - start));
        count += (word(bits, at / WORD_BITS) & mask).count_ones();
        at = end;
    }
    count
}

/// Zeros of a range. Bits beyond the bytes are not counted.
#[must_use]
pub fn count_zeros(bits: &[u8], range: Range<u32>) -> u32 {
    let range = within(bits, &range);
    let len = range.end.saturating_sub(range.start);
    len - count_ones(bits, range)
}

/// Whether a range has no one, and all its bits exist.
#[must_use]
pub fn is_range_clear(bits: &[u8], range: Range<u32>) -> bool {
    within(bits, &range) == range && find_one(bits, range).is_none()
}

/// Whether a range has no zero; bits beyond the bytes are ones.
#[must_use]
pub fn is_range_set(bits: &[u8], range: Range<u32>) -> bool {
    find_zero(bits, range).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a seeded stream, sparse and dense by turns.
    fn bytes(seed: u64, count: usize) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            (state >> 33) as u8
        };
        (0..count)
            .map(|_| match next() % 4 {
                0 => next(),
                1 => 0xFF,
                _ => 0,
            })
            .collect()
    }

    fn model(bits: &[u8]) -> Vec<bool> {
        (0..bits.len() * 8).map(|index| bits[index / 8] & 1 << (index % 8) != 0).collect()
    }

    #[test]
    fn every_range_agrees_with_a_list_of_booleans() {
        for seed in 0..30 {
            let bits = bytes(seed, 1 + seed as usize);
            let len = bits.len() as u32 * 8;
            let model = model(&bits);
            for start in 0..len {
                for end in (start..=len).step_by(5) {
                    let part = &model[start as usize..end as usize];
                    let first = |value| part.iter().position(|&bit| bit == value).map(|at| start + at as u32);
                    let context = format!("seed {seed}, {start}..{end}");
                    assert_eq!(find_zero(&bits, start..end), first(false), "{context}");
                    assert_eq!(find_one(&bits, start..end), first(true), "{context}");
                    let ones = part.iter().filter(|bit| **bit).count() as u32;
                    assert_eq!(count_ones(&bits, start..end), ones, "{context}");
                    assert_eq!(count_zeros(&bits, start..end), end - start - ones, "{context}");
                    assert_eq!(is_range_clear(&bits, start..end), ones == 0, "{context}");
                    assert_eq!(is_range_set(&bits, start..end), ones == end - start, "{context}");
                }
            }
        }
    }

    #[test]
    fn changes_touch_their_range_alone() {
        for (start, end) in (0..70).flat_map(|start| (start..=72).map(move |end| (start, end))) {
            for (fill, change) in [(0, set_range as fn(&mut [u8], Range<u32>)), (0xFF, clear_range)] {
                let mut bits = [fill; 9];
                change(&mut bits, start..end);
                for index in 0..72 {
                    let changed = is_set(&bits, index) != (fill != 0);
                    assert_eq!(changed, (start..end).contains(&index), "bit {index} of {start}..{end}");
                }
            }
        }
        let mut bits = [0; 2];
        set(&mut bits, 9);
        assert_eq!(bits, [0, 2]);
        clear(&mut bits, 9);
        assert_eq!(bits, [0, 0]);
    }

    #[test]
    fn bits_that_do_not_exist_are_taken() {
        let mut bits = [0; 2];
        set(&mut bits, 16);
        clear(&mut bits, u32::MAX);
        set_range(&mut bits, 12..u32::MAX);
        assert_eq!(bits, [0, 0xF0]);
        assert!(is_set(&bits, 16) && is_set(&bits, u32::MAX));
        assert_eq!(find_zero(&bits, 12..u32::MAX), None);
        assert_eq!(find_one(&bits, 16..u32::MAX), None);
        assert!(!is_range_clear(&bits, 0..17));
        assert_eq!(count_zeros(&bits, 20..30), 0);
    }
}
