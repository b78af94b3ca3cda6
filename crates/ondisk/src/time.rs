//! Time stamps of inodes: seconds and nanoseconds in 64 bits, from 1901 to 2446.
//!
//! Source: kernel `ext4_encode_extra_time`, `ext4_decode_extra_time`.

/// A moment, relative to the start of 1970 in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Whole seconds, rounded down.
    pub seconds: i64,
    /// Nanoseconds beyond them, below 10⁹.
    pub nanoseconds: u32,
}

const NANOSECONDS_MAX: u32 = 999_999_999;
const EPOCH_BITS: u32 = 2;

impl Timestamp {
    /// The earliest moment an inode can hold.
    pub const MIN: Self = Self { seconds: i32::MIN as i64, nanoseconds: 0 };
    /// The latest moment an inode can hold, if it has room for the upper bits.
    pub const MAX: Self = Self { seconds: i32::MAX as i64 + (3 << 32), nanoseconds: NANOSECONDS_MAX };
    /// The latest moment an inode of 128 bytes can hold.
    pub const MAX_WITHOUT_EXTRA: Self = Self { seconds: i32::MAX as i64, nanoseconds: 0 };

    /// From the base field and, where the inode has it, the extra field.
    #[must_use]
    pub fn decode(base: u32, extra: Option<u32>) -> Self {
        let seconds = i64::from(base as i32);
        let Some(extra) = extra else {
            return Self { seconds, nanoseconds: 0 };
        };
        let epoch = i64::from(extra & ((1 << EPOCH_BITS) - 1));
        Self { seconds: seconds + (epoch << 32), nanoseconds: (extra >> EPOCH_BITS).min(NANOSECONDS_MAX) }
    }

    /// The base and the extra field. Moments out of range become the nearest in range.
    #[must_use]
    pub fn encode(self) -> (u32, u32) {
        let time = self.clamp(Self::MIN, Self::MAX);
        let base = time.seconds as i32;
        let epoch = (time.seconds - i64::from(base)) >> 32;
        (base as u32, time.nanoseconds.min(NANOSECONDS_MAX) << EPOCH_BITS | epoch as u32)
    }

    /// The base field of an inode that has no extra field. Moments out of range become the nearest in range.
    #[must_use]
    pub fn encode_without_extra(self) -> u32 {
        self.clamp(Self::MIN, Self::MAX_WITHOUT_EXTRA).seconds as i32 as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_from_1901_to_2446_survive() {
        let edges =
            [-0x8000_0000, -1, 0, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 0x1_0000_0000, 0x1_7FFF_FFFF];
        let later = [0x1_8000_0000, 0x2_7FFF_FFFF, 0x2_8000_0000, 0x3_7FFF_FFFF];
        for seconds in edges.into_iter().chain(later) {
            for nanoseconds in [0, 1, 999_999_999] {
                let time = Timestamp { seconds, nanoseconds };
                let (base, extra) = time.encode();
                assert_eq!(Timestamp::decode(base, Some(extra)), time);
            }
        }
    }

    #[test]
    fn fields_are_those_of_the_kernel_documentation() {
        // Documentation/filesystems/ext4/inodes.rst: extra epoch bits, MSB of the base, first second of the range.
        let table = [
            (0, 0x8000_0000_u32, -0x8000_0000_i64),
            (0, 0, 0),
            (1, 0x8000_0000, 0x8000_0000),
            (1, 0, 0x1_0000_0000),
            (2, 0x8000_0000, 0x1_8000_0000),
            (2, 0, 0x2_0000_0000),
            (3, 0x8000_0000, 0x2_8000_0000),
            (3, 0, 0x3_0000_0000),
        ];
        for (epoch, base, seconds) in table {
            assert_eq!(Timestamp::decode(base, Some(epoch)), Timestamp { seconds, nanoseconds: 0 });
            assert_eq!(Timestamp { seconds, nanoseconds: 0 }.encode(), (base, epoch));
        }
    }

    #[test]
    fn moments_out_of_range_are_clamped() {
        let late = Timestamp { seconds: i64::MAX, nanoseconds: 5 };
        let (base, extra) = late.encode();
        assert_eq!(Timestamp::decode(base, Some(extra)), Timestamp::MAX);
        assert_eq!(late.encode_without_extra(), i32::MAX as u32);
        let early = Timestamp { seconds: i64::MIN, nanoseconds: 5 };
        assert_eq!(early.encode(), (i32::MIN as u32, 0));
        assert_eq!(early.encode_without_extra(), i32::MIN as u32);
        assert_eq!(Timestamp::decode(0, Some(u32::MAX)).nanoseconds, 999_999_999);
    }
}
