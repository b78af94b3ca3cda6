//! Time stamps of inodes: seconds and nanoseconds in 64 bits, from 1901 to 2446.
//!
//! Source: kernel `ext4_encode_extra_time`, `ext4_decode_extra_time`.

use std::time::{Duration, SystemTime};

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

    /// Date and time in UTC, to the second: `2026-01-02 03:04:05`.
    #[must_use]
    pub fn date_time(self) -> String {
        let days = self.seconds.div_euclid(86_400);
        let second = self.seconds.rem_euclid(86_400);
        // Days since 0000-03-01, in eras of 400 years (Howard Hinnant, "chrono-compatible low-level date algorithms").
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        format!(
            "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}",
            second / 3600,
            second / 60 % 60,
            second % 60
        )
    }

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

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let (since, is_before) = match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => (since, false),
            Err(before) => (before.duration(), true),
        };
        // The host's seconds are an i64 as these are.
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        match (is_before, since.subsec_nanos()) {
            (false, nanoseconds) => Self { seconds, nanoseconds },
            (true, 0) => Self { seconds: -seconds, nanoseconds: 0 },
            (true, nanoseconds) => Self { seconds: -seconds - 1, nanoseconds: 1_000_000_000 - nanoseconds },
        }
    }
}

impl From<Timestamp> for SystemTime {
    /// Moments that no inode can hold become the nearest that one can.
    fn from(time: Timestamp) -> Self {
        let time = time.clamp(Timestamp::MIN, Timestamp::MAX);
        let seconds = Duration::from_secs(time.seconds.unsigned_abs());
        let whole = if time.seconds < 0 { Self::UNIX_EPOCH - seconds } else { Self::UNIX_EPOCH + seconds };
        whole + Duration::from_nanos(time.nanoseconds.min(NANOSECONDS_MAX).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_and_inodes_have_the_same_moments() {
        // Windows counts in 100 ns.
        const TICK_NS: u32 = if cfg!(windows) { 100 } else { 1 };
        let in_ticks =
            |time: Timestamp| Timestamp { nanoseconds: time.nanoseconds / TICK_NS * TICK_NS, ..time };
        let epoch = SystemTime::UNIX_EPOCH;
        let early = epoch - Duration::from_nanos(TICK_NS.into());
        assert_eq!(Timestamp::from(early), Timestamp { seconds: -1, nanoseconds: 1_000_000_000 - TICK_NS });
        assert_eq!(
            Timestamp::from(epoch - Duration::from_secs(2)),
            Timestamp { seconds: -2, nanoseconds: 0 }
        );
        for time in [Timestamp::MIN, Timestamp::MAX, Timestamp::default(), Timestamp::from(early)] {
            assert_eq!(Timestamp::from(SystemTime::from(time)), in_ticks(time));
        }
        let late = Timestamp { seconds: i64::MAX, nanoseconds: u32::MAX };
        assert_eq!(Timestamp::from(SystemTime::from(late)), in_ticks(Timestamp::MAX));
    }

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

    #[test]
    fn dates_are_right_around_leap_days_and_centuries() {
        let date = |seconds| Timestamp { seconds, nanoseconds: 0 }.date_time();
        assert_eq!(date(0), "1970-01-01 00:00:00");
        assert_eq!(date(-1), "1969-12-31 23:59:59");
        assert_eq!(date(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(date(1_767_323_045), "2026-01-02 03:04:05");
        assert_eq!(date(15_032_385_535), "2446-05-10 22:38:55");
    }
}
