//! The time of day that is written to inodes.

/// Where the times written to inodes come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WallClock {
    /// The runtime's clock: the host's, or the virtual one.
    #[default]
    System,
    /// Always this many seconds and nanoseconds after 1970, so that the same work gives the same bytes.
    Fixed(i64, u32),
}

impl WallClock {
    /// Seconds and nanoseconds after 1970.
    #[must_use]
    pub fn now(self) -> (i64, u32) {
        match self {
            Self::Fixed(seconds, nanoseconds) => (seconds, nanoseconds),
            Self::System => {
                let since = crate::since_epoch();
                (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
            }
        }
    }
}
