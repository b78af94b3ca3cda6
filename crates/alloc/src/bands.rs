//! The cut of the groups into bands, by which streams and writers keep apart.

use extant_ondisk::GroupNumber;

/// Bands at most.
const BANDS_MAX: u32 = 64;
/// Groups of a band at least, where there are so many: a word of the sets of groups, so that bands share none.
const GROUPS_MIN: u32 = 64;

/// Bands of equally many groups, but for the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bands {
    groups: u32,
    groups_per_band: u32,
}

impl Bands {
    /// The bands of `groups` groups.
    #[must_use]
    pub fn new(groups: u32) -> Self {
        let groups = groups.max(1);
        let groups_per_band = groups.div_ceil(BANDS_MAX).next_multiple_of(GROUPS_MIN);
        Self { groups, groups_per_band }
    }

    /// How many bands there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.groups.div_ceil(self.groups_per_band)
    }

    /// The groups of each band but the last: a multiple of 64.
    #[must_use]
    pub fn groups_per_band(&self) -> u32 {
        self.groups_per_band
    }

    /// The band of a group.
    #[must_use]
    pub fn of(&self, group: GroupNumber) -> u32 {
        (group.0 / self.groups_per_band).min(self.count() - 1)
    }

    /// The groups of a band: the first and how many.
    #[must_use]
    pub fn groups(&self, band: u32) -> (GroupNumber, u32) {
        let first = band.min(self.count() - 1) * self.groups_per_band;
        (GroupNumber(first), self.groups_per_band.min(self.groups - first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_cover_every_group_once() {
        for groups in [1, 8, 64, 65, 1000, 8192, 4_900_000] {
            let bands = Bands::new(groups);
            assert!(bands.count() <= BANDS_MAX);
            let mut next = 0;
            for band in 0..bands.count() {
                let (first, count) = bands.groups(band);
                assert_eq!((first.0, bands.of(first)), (next, band));
                assert_eq!(bands.of(GroupNumber(first.0 + count - 1)), band);
                next += count;
            }
            assert_eq!(next, groups);
        }
    }
}
