//! A set of groups that threads change and walk without a lock.

use std::ops::Range;

use extant_ondisk::GroupNumber;
use extant_rt::{AtomicU64, Ordering};

use crate::parts::Parts;

/// A tree of words: a bit per group at the bottom, and above it a bit per word that may have a member below.
///
/// A member's meaning is checked again under the group's lock, and its bit is only changed under it (or, for
/// [`GroupSet::drain`], when nobody else inserts), so a stale bit costs a visit. A thread that empties a word clears its bit
/// above and then looks at the word again: if another thread put a member in meanwhile, the bit is set again, but for an
/// instant it was missing. Such removals are counted when they begin and when they end, and a search beside which one was
/// under way looks at the words of the bottom, whose bits are always right.
#[derive(Debug)]
struct Words {
    /// From the bottom to the top, which is one word.
    levels: Box<[Box<[AtomicU64]>]>,
    /// Removals that emptied a word of the bottom, before they clear bits above.
    begun: AtomicU64,
    /// Of those, the ones that are done.
    ended: AtomicU64,
}

impl Words {
    /// No member; room for groups below `count`.
    fn new(count: u32) -> Self {
        let mut levels: Vec<Box<[AtomicU64]>> = Vec::new();
        let mut words = count.max(1);
        while words > 1 || levels.is_empty() {
            words = words.div_ceil(64);
            levels.push((0..words).map(|_| AtomicU64::new(0)).collect());
        }
        Self { levels: levels.into(), begun: AtomicU64::new(0), ended: AtomicU64::new(0) }
    }

    /// All groups below `count` are members.
    fn full(count: u32) -> Self {
        let set = Self::new(count);
        let mut members = count;
        for words in &set.levels {
            for (word, first) in words.iter().zip((0..members).step_by(64)) {
                word.store(u64::MAX >> (64 - (members - first).min(64)), Ordering::Relaxed);
            }
            members = members.div_ceil(64);
        }
        set
    }

    fn set_from(&self, level: usize, mut index: u32) {
        for words in &self.levels[level..] {
            let (word, bit) = (&words[(index / 64) as usize], 1 << (index % 64));
            // SeqCst, with `remove`: one of the two sees what the other did.
            if word.load(Ordering::SeqCst) & bit == 0 {
                word.fetch_or(bit, Ordering::SeqCst);
            }
            index /= 64;
        }
    }

    fn remove(&self, index: u32) {
        if self.clear(0, index) && self.levels.len() > 1 {
            self.begun.fetch_add(1, Ordering::SeqCst);
            self.clear_above(index / 64);
            self.ended.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Clears a bit; whether that emptied its word.
    fn clear(&self, level: usize, index: u32) -> bool {
        let (word, bit) = (&self.levels[level][(index / 64) as usize], 1 << (index % 64));
        word.load(Ordering::SeqCst) & bit != 0 && word.fetch_and(!bit, Ordering::SeqCst) == bit
    }

    /// Clears the bit of an emptied word of the bottom, and those above that it empties.
    fn clear_above(&self, mut index: u32) {
        for level in 1..self.levels.len() {
            let is_emptied = self.clear(level, index);
            // Somebody put a member below in again before the bit went.
            if self.levels[level - 1][index as usize].load(Ordering::SeqCst) != 0 {
                return self.set_from(level, index);
            }
            if !is_emptied {
                return;
            }
            index /= 64;
        }
    }

    /// The first member at or after `from`. One that was put in before the call is not missed.
    fn next(&self, from: u32) -> Option<u32> {
        let ended = self.ended.load(Ordering::SeqCst);
        let found = self.search(0, from, u32::MAX);
        if self.begun.load(Ordering::SeqCst) == ended { found } else { self.next_at_bottom(from, found) }
    }

    /// As [`Words::next`], without the words above; `found` is a member, if there is none before it.
    fn next_at_bottom(&self, from: u32, found: Option<u32>) -> Option<u32> {
        let words = self.levels.first()?;
        let (first, last) = (from / 64, found.map_or(words.len() as u32, |found| found / 64 + 1));
        let nearer = (first..last).find_map(|index| {
            let mask = if index == first { u64::MAX << (from % 64) } else { u64::MAX };
            let members = words.get(index as usize)?.load(Ordering::SeqCst) & mask;
            (members != 0).then(|| index * 64 + members.trailing_zeros())
        });
        nearer.or(found)
    }

    /// The first member at or after `from`, if it is before `end`.
    fn next_before(&self, from: u32, end: u32) -> Option<u32> {
        // The words above are few and at hand in a cache; most of those at the bottom are not, and are empty.
        let word = from / 64;
        let above = self.levels.get(1).and_then(|words| words.get((word / 64) as usize));
        let is_empty = above.is_some_and(|above| above.load(Ordering::Relaxed) >> (word % 64) & 1 == 0);
        if is_empty { self.search(1, word + 1, end) } else { self.search(0, from, end) }
    }

    fn search(&self, mut level: usize, mut index: u32, end: u32) -> Option<u32> {
        loop {
            let words = self.levels.get(level)?;
            let word = words.get((index / 64) as usize)?.load(Ordering::Acquire) & (u64::MAX << (index % 64));
            if word == 0 {
                // Nothing more in this word: on with the next, from one level above.
                index = index / 64 + 1;
                level += 1;
                if u64::from(index) << (6 * level) >= u64::from(end) {
                    return None;
                }
            } else {
                index = index / 64 * 64 + word.trailing_zeros();
                match level.checked_sub(1) {
                    None => return Some(index).filter(|index| *index < end),
                    Some(below) => {
                        level = below;
                        index *= 64;
                    }
                }
            }
        }
    }

    fn contains(&self, index: u32) -> bool {
        let word = self.levels.first().and_then(|words| words.get((index / 64) as usize));
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (index % 64) & 1 == 1)
    }
}

/// The members among the groups, which may become more. See the module.
#[derive(Debug)]
pub(crate) struct GroupSet(Parts<Words>);

impl GroupSet {
    /// No member; room for groups below `count`.
    pub fn new(count: u32) -> Self {
        Self(Parts::new(count, Words::new(count)))
    }

    /// All groups below `count` are members.
    pub fn full(count: u32) -> Self {
        Self(Parts::new(count, Words::full(count)))
    }

    /// Room for groups below `count`, which are no members. To be called by one thread at a time.
    pub fn extend(&self, count: u32) {
        self.0.append(count, Words::new(count.saturating_sub(self.0.groups())));
    }

    /// As [`GroupSet::extend`], and the new groups are members.
    pub fn extend_full(&self, count: u32) {
        self.0.append(count, Words::full(count.saturating_sub(self.0.groups())));
    }

    /// Puts the group in. Writes nothing if it is in already.
    pub fn insert(&self, group: GroupNumber) {
        if let Some((words, index)) = self.0.of(group) {
            words.set_from(0, index);
        }
    }

    /// Takes the group out.
    pub fn remove(&self, group: GroupNumber) {
        if let Some((words, index)) = self.0.of(group) {
            words.remove(index);
        }
    }

    /// The first member at or after `from`. One that was put in before the call is not missed.
    pub fn next(&self, from: GroupNumber) -> Option<GroupNumber> {
        let mut parts = self.0.iter().filter(|(groups, _)| from.0 < groups.end);
        parts.find_map(|(groups, words)| {
            let found = words.next(from.0.saturating_sub(groups.start))?;
            Some(GroupNumber(groups.start + found))
        })
    }

    /// The first member at or after `from`, if it is before `end`: the nearer the end, the less is looked at. A member that
    /// another thread just put in may be missed.
    pub fn next_before(&self, from: GroupNumber, end: GroupNumber) -> Option<GroupNumber> {
        let mut parts = self.0.iter().filter(|(groups, _)| from.0 < groups.end && groups.start < end.0);
        parts.find_map(|(groups, words)| {
            let found = words.next_before(from.0.saturating_sub(groups.start), end.0 - groups.start)?;
            Some(GroupNumber(groups.start + found))
        })
    }

    /// Whether the group is a member.
    pub fn contains(&self, group: GroupNumber) -> bool {
        self.0.of(group).is_some_and(|(words, index)| words.contains(index))
    }

    /// The members of a range of groups, in order.
    pub fn range(&self, range: Range<u32>) -> impl Iterator<Item = GroupNumber> + '_ {
        let mut from = range.start;
        std::iter::from_fn(move || {
            let found = self.next_before(GroupNumber(from), GroupNumber(range.end))?;
            from = found.0 + 1;
            Some(found)
        })
    }

    /// Takes all members out, in order.
    pub fn drain(&self) -> Vec<GroupNumber> {
        let mut members = Vec::new();
        let mut from = GroupNumber(0);
        while let Some(group) = self.next(from) {
            self.remove(group);
            members.push(group);
            from = GroupNumber(group.0.saturating_add(1));
        }
        members
    }

    /// The members from `from` rightwards, then those left of it from 0: a walk that meets each once, as long as
    /// it stays a member.
    pub fn walk(&self, from: GroupNumber) -> impl Iterator<Item = GroupNumber> + '_ {
        let mut next = Some(from);
        let mut wrapped = false;
        std::iter::from_fn(move || {
            loop {
                let found = next.and_then(|at| self.next(at));
                match found {
                    Some(group) if !wrapped || group < from => {
                        next = group.0.checked_add(1).map(GroupNumber);
                        return Some(group);
                    }
                    None if !wrapped => {
                        wrapped = true;
                        next = Some(GroupNumber(0));
                    }
                    _ => return None,
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_meets_every_member_once_from_the_start_and_round() {
        let set = GroupSet::new(200);
        for group in [0, 5, 63, 64, 130, 199] {
            set.insert(GroupNumber(group));
        }
        let walk = |from| set.walk(GroupNumber(from)).map(|g| g.0).collect::<Vec<_>>();
        assert_eq!(walk(64), [64, 130, 199, 0, 5, 63]);
        assert_eq!(walk(0), [0, 5, 63, 64, 130, 199]);
        assert_eq!(walk(199), [199, 0, 5, 63, 64, 130]);
        set.remove(GroupNumber(130));
        assert_eq!(set.drain(), [0, 5, 63, 64, 199].map(GroupNumber));
        assert_eq!(walk(3), []);
    }

    #[test]
    fn a_full_set_has_every_group() {
        for count in [0, 1, 63, 64, 65, 4096, 4097, 300_000] {
            let set = GroupSet::full(count);
            assert!(set.walk(GroupNumber(0)).map(|group| group.0).eq(0..count), "{count}");
            assert_eq!(set.drain().len(), count as usize);
        }
    }

    #[test]
    fn a_set_of_millions_is_walked_as_a_plain_one() {
        const COUNT: u32 = 4_900_000;
        let set = GroupSet::new(COUNT);
        let mut plain = std::collections::BTreeSet::new();
        let mut at = 1_u32;
        for round in 0..20_000 {
            at = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let group = if round % 3 == 0 { at % 300 } else { at % COUNT };
            if round % 7 == 0 {
                set.remove(GroupNumber(group))
            } else {
                set.insert(GroupNumber(group))
            }
            if round % 7 == 0 {
                plain.remove(&group)
            } else {
                plain.insert(group)
            };
            let from = at.rotate_left(9) % COUNT;
            let expected = plain.range(from..).next().copied();
            assert_eq!(set.next(GroupNumber(from)).map(|group| group.0), expected, "from {from}");
            for end in [from, from + 1, from + 90, expected.unwrap_or(from), expected.unwrap_or(from) + 1] {
                let found = set.next_before(GroupNumber(from), GroupNumber(end)).map(|group| group.0);
                assert_eq!(found, expected.filter(|group| *group < end), "from {from} before {end}");
            }
        }
        assert_eq!(set.drain().into_iter().map(|group| group.0).collect::<Vec<_>>(), Vec::from_iter(plain));
        assert_eq!(set.next(GroupNumber(0)), None);
    }

    #[test]
    fn threads_lose_no_member() {
        let set = GroupSet::new(64 * 64 * 3);
        extant_rt::parallel(4, |thread| {
            for round in 0..20_000_u32 {
                // All in one word and its neighbours, each thread its own bits.
                let group = GroupNumber(thread as u32 + 4 * (round % 5) + 64 * (round % 3));
                set.insert(group);
                assert!(set.next(group) == Some(group), "inserted and not found");
                set.remove(group);
            }
        });
        assert_eq!(set.next(GroupNumber(0)), None);
    }

    /// A search that comes from another word is led by the words above.
    #[test]
    fn a_member_is_found_from_afar_while_others_leave_its_word() {
        let set = GroupSet::new(64 * 64 * 3);
        extant_rt::parallel(2, |thread| {
            let group = GroupNumber(64 * 70 + thread as u32);
            for _ in 0..2_000_000 {
                set.insert(group);
                let found = set.next(GroupNumber(0));
                assert!(found.is_some_and(|found| found <= group), "inserted, and found is {found:?}");
                set.remove(group);
            }
        });
        assert_eq!(set.next(GroupNumber(0)), None);
    }

    #[test]
    fn groups_that_came_later_are_members_like_the_others() {
        let set = GroupSet::full(70);
        set.extend(71);
        set.extend_full(200);
        let members = || set.walk(GroupNumber(69)).map(|group| group.0).collect::<Vec<_>>();
        assert_eq!(members(), (69..70).chain(71..200).chain(0..69).collect::<Vec<_>>());
        set.insert(GroupNumber(70));
        set.remove(GroupNumber(71));
        assert_eq!([69, 70, 71].map(|group| set.contains(GroupNumber(group))), [true, true, false]);
        let range = |range: Range<u32>| set.range(range).map(|group| group.0).collect::<Vec<_>>();
        assert_eq!(
            (range(68..73), range(199..300), range(75..75)),
            (vec![68, 69, 70, 72], vec![199], vec![])
        );
        assert_eq!(set.drain().len(), 199);
        assert_eq!(set.next(GroupNumber(0)), None);
    }
}
