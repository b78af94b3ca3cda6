//! Moments.

use extant::Timestamp;

use crate::error::Failure;

/// In place of nanoseconds: `extant_utimens` leaves this time, and an inode has no room for this one.
pub const EXTANT_TIME_OMIT: u32 = 0xffff_ffff;

const NANOSECONDS: u32 = 1_000_000_000;

/// A moment after the start of 1970, in UTC.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct extant_time {
    /// Whole seconds, rounded down.
    pub seconds: i64,
    /// Nanoseconds beyond them, below 10^9.
    pub nanoseconds: u32,
    /// 0.
    pub reserved: u32,
}

impl extant_time {
    /// A moment of the engine's.
    pub(crate) fn of(time: Timestamp) -> Self {
        Self { seconds: time.seconds, nanoseconds: time.nanoseconds, reserved: 0 }
    }

    /// The moment, for the engine.
    pub(crate) fn to_engine(self) -> Result<Timestamp, Failure> {
        if self.nanoseconds >= NANOSECONDS {
            return Err(Failure::argument("nanoseconds are not below 1000000000"));
        }
        Ok(Timestamp { seconds: self.seconds, nanoseconds: self.nanoseconds })
    }

    /// The moment, unless it is to be left.
    pub(crate) fn unless_omitted(self) -> Result<Option<Timestamp>, Failure> {
        if self.nanoseconds == EXTANT_TIME_OMIT { Ok(None) } else { self.to_engine().map(Some) }
    }
}
