//! A structure by group on a disk that becomes larger: a part of the groups at mount, and one for each growth since.
//!
//! A part is never moved or changed in size, so that threads work in it without a lock while others are added. Groups are counted from
//! a part's first one inside it.

use std::ops::Range;

use extant_ondisk::GroupNumber;
use extant_rt::OnceBox;

/// See the module.
#[derive(Debug)]
pub(crate) struct Parts<T> {
    groups: Range<u32>,
    part: T,
    next: OnceBox<Self>,
}

impl<T> Parts<T> {
    /// The part of the first `groups` groups.
    pub fn new(groups: u32, part: T) -> Self {
        Self { groups: 0..groups, part, next: OnceBox::new() }
    }

    /// The groups of all parts.
    pub fn groups(&self) -> u32 {
        self.iter().last().map_or(0, |(groups, _)| groups.end)
    }

    /// The part that a group is in, and its number there; nothing for a group of none.
    #[inline]
    pub fn of(&self, group: GroupNumber) -> Option<(&T, u32)> {
        let mut at = self;
        while group.0 >= at.groups.end {
            at = at.next.get()?;
        }
        Some((&at.part, group.0 - at.groups.start))
    }

    /// The parts with their groups, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u32>, &T)> {
        let mut next = Some(self);
        std::iter::from_fn(move || {
            let at = next?;
            next = at.next.get();
            Some((at.groups.clone(), &at.part))
        })
    }

    /// The part of the first groups, for the only holder.
    pub fn first_mut(&mut self) -> &mut T {
        &mut self.part
    }
}

impl<T: Send + Sync> Parts<T> {
    /// Adds the part of the groups up to `groups`. To be called by one thread at a time.
    pub fn append(&self, groups: u32, part: T) {
        let mut last = self;
        while let Some(next) = last.next.get() {
            last = next;
        }
        let groups = last.groups.end..groups.max(last.groups.end);
        last.next.get_or_init(|| Self { groups, part, next: OnceBox::new() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_in_the_part_that_it_came_with() {
        let parts = Parts::new(3, 'a');
        let of = |group| parts.of(GroupNumber(group)).map(|(part, index)| (*part, index));
        assert_eq!((of(2), of(3), parts.groups()), (Some(('a', 2)), None, 3));
        parts.append(4, 'b');
        parts.append(10, 'c');
        assert_eq!(
            (of(2), of(3), of(4), of(9), of(10)),
            (Some(('a', 2)), Some(('b', 0)), Some(('c', 0)), Some(('c', 5)), None)
        );
        assert_eq!(parts.iter().map(|(groups, _)| groups).collect::<Vec<_>>(), [0..3, 3..4, 4..10]);
    }
}
