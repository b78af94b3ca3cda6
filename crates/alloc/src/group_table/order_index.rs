//! The groups by what they have: all summaries side by side, and above them a tree of what is to be found where.
//!
//! A word of the tree has the marks of the eight words below it, which share a cache line; so a search reads a line per
//! level, from its goal upwards and down to what it finds, whatever number of orders suffices, and one word tells what no
//! group has. The bottom line is a window of eight groups around the goal. Eight divides the groups of a band
//! ([`crate::bands`]), so groups of different bands share neither a line of summaries nor the one above it.
//!
//! Marks are hints that are read without a lock: whoever acts on one looks again under the group's. A summary changes under
//! its group's lock only. A word never lacks a mark of a word below for longer than a change takes: who takes a mark away
//! looks again below afterwards, and puts it back if another put one there meanwhile. A mark too many costs a search a few
//! lines, once: the search takes it away. So a group that loses marks leaves them in the words above, which other groups share.

use std::ops::Range;

use extant_ondisk::GroupNumber;
use extant_rt::{AtomicU64, Ordering};

use crate::group::summary::{OrderMask, Summary};
use crate::parts::Parts;

/// Bitmap64 below a word.
const FANOUT: u32 = 8;
const FANOUT_SHIFT: u32 = FANOUT.ilog2();

/// Bitmap64 below one word, on a cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Line([AtomicU64; FANOUT as usize]);

/// Of one part of the groups.
#[derive(Debug)]
struct Tree {
    /// Packed [`Summary`]s, then per level [`OrderMask`], up to a single word.
    levels: Box<[Box<[Line]>]>,
    groups: u32,
}

impl Tree {
    /// Of `groups` groups, none with free blocks.
    fn new(groups: u32) -> Self {
        let line = |_| Line(std::array::from_fn(|_| AtomicU64::new(0)));
        let mut levels: Vec<Box<[Line]>> = Vec::new();
        let mut words = groups.max(1);
        loop {
            levels.push((0..words.div_ceil(FANOUT)).map(line).collect());
            if words == 1 {
                break;
            }
            words = words.div_ceil(FANOUT);
        }
        Self { levels: levels.into(), groups }
    }

    /// Of `groups` groups that all have the same.
    fn full(groups: u32, summary: Summary) -> Self {
        let index = Self::new(groups);
        let (mut word, mut words) = (summary.pack(), groups);
        for level in &index.levels {
            let all = level.iter().flat_map(|line| &line.0);
            all.take(words as usize).for_each(|place| place.store(word, Ordering::Relaxed));
            (word, words) = (summary.marks().0, words.div_ceil(FANOUT));
        }
        index
    }

    fn get(&self, group: u32) -> Summary {
        let word = self.word(0, group);
        word.map_or(Summary::NONE, |word| Summary::unpack(word.load(Ordering::Relaxed)))
    }

    fn set(&self, group: u32, to: Summary) {
        let Some(word) = self.word(0, group) else { return };
        let (old, new) = (OrderMask::of(word.load(Ordering::Relaxed)), to.marks());
        if old == new {
            word.store(to.pack(), Ordering::Relaxed);
            return;
        }
        // SeqCst, with `lower`: of two that change neighbours one sees what the other did.
        word.store(to.pack(), Ordering::SeqCst);
        self.raise(1, group, new.without(old));
    }

    /// Puts marks into the words above a word of the level below `level`.
    fn raise(&self, level: usize, mut index: u32, marks: OrderMask) {
        if marks.is_empty() {
            return;
        }
        for level in level..self.levels.len() {
            index >>= FANOUT_SHIFT;
            let Some(word) = self.word(level, index) else { return };
            if !marks.without(OrderMask(word.load(Ordering::SeqCst))).is_empty() {
                word.fetch_or(marks.0, Ordering::SeqCst);
            }
        }
    }

    /// Takes marks that a word no longer has out of the words above it, from `level` on, as far up as no other has them.
    fn lower(&self, level: usize, mut index: u32, mut marks: OrderMask) {
        for level in level..self.levels.len() {
            index >>= FANOUT_SHIFT;
            let Some(word) = self.word(level, index) else { return };
            marks = marks.and(OrderMask(word.load(Ordering::SeqCst)));
            if marks.is_empty() {
                return;
            }
            marks = marks.without(self.below(level, index));
            if marks.is_empty() {
                return;
            }
            word.fetch_and(!marks.0, Ordering::SeqCst);
            let back = marks.and(self.below(level, index));
            if !back.is_empty() {
                self.raise(level, index << FANOUT_SHIFT, back);
                marks = marks.without(back);
            }
        }
    }

    /// What the words below a word have.
    fn below(&self, level: usize, index: u32) -> OrderMask {
        let line = self.levels.get(level - 1).and_then(|lines| lines.get(index as usize));
        let marks = |word: &AtomicU64| Self::marks(level - 1, word.load(Ordering::SeqCst));
        line.map_or(OrderMask::NONE, |line| line.0.iter().map(marks).fold(OrderMask::NONE, OrderMask::or))
    }

    fn word(&self, level: usize, index: u32) -> Option<&AtomicU64> {
        let line = self.levels.get(level)?.get((index / FANOUT) as usize)?;
        line.0.get((index % FANOUT) as usize)
    }

    fn marks(level: usize, word: u64) -> OrderMask {
        if level == 0 { OrderMask::of(word) } else { OrderMask(word) }
    }

    fn is_empty(&self) -> bool {
        (0..self.groups).all(|group| self.get(group).free == 0)
    }

    fn all(&self) -> OrderMask {
        self.below(self.levels.len(), 0)
    }

    fn may_have(&self, wanted: OrderMask) -> bool {
        self.first_in_line(self.levels.len() - 1, 0, wanted).is_some()
    }

    /// The first group in a range that has one of the marks.
    fn first(&self, wanted: OrderMask, range: Range<u32>) -> Option<u32> {
        if !self.may_have(wanted) {
            return None;
        }
        let top = self.levels.len() - 1;
        let (mut level, mut at) = (0, range.start);
        loop {
            if u64::from(at) << (FANOUT_SHIFT * level as u32) >= u64::from(range.end) {
                return None;
            }
            match self.first_in_line(level, at, wanted) {
                Some(found) if level == 0 => return (found < range.end).then_some(found),
                Some(found) => {
                    level -= 1;
                    at = found << FANOUT_SHIFT;
                }
                None => {
                    // A mark that leads here may be one too many.
                    self.lower(level + 1, at, wanted);
                    level += 1;
                    at = (at >> FANOUT_SHIFT) + 1;
                    // At the start of a line the word above it tells whether that is worth reading.
                    while at.is_multiple_of(FANOUT) && level < top {
                        level += 1;
                        at >>= FANOUT_SHIFT;
                    }
                    if level > top {
                        return None;
                    }
                }
            }
        }
    }

    /// The first word at or behind `at`, of its line, with one of the marks.
    fn first_in_line(&self, level: usize, at: u32, wanted: OrderMask) -> Option<u32> {
        let line = self.levels.get(level)?.get((at / FANOUT) as usize)?;
        let slot = (at % FANOUT) as usize;
        let found = line.0[slot..]
            .iter()
            .position(|word| !Self::marks(level, word.load(Ordering::Relaxed)).and(wanted).is_empty())?;
        Some(at + found as u32)
    }
}

/// See the module. Of each part of the groups, one tree.
#[derive(Debug)]
pub(crate) struct OrderIndex(Parts<Tree>);

impl OrderIndex {
    /// Of `groups` groups, none with free blocks.
    #[cfg(test)]
    pub fn new(groups: u32) -> Self {
        Self(Parts::new(groups, Tree::new(groups)))
    }

    /// Of `groups` groups that all have the same.
    pub fn full(groups: u32, summary: Summary) -> Self {
        Self(Parts::new(groups, Tree::full(groups, summary)))
    }

    /// Of more groups, which have no free blocks yet. To be called by one thread at a time.
    pub fn extend(&self, groups: u32) {
        self.0.append(groups, Tree::new(groups.saturating_sub(self.0.groups())));
    }

    /// How many groups there are.
    pub fn groups(&self) -> u32 {
        self.0.groups()
    }

    /// A group's free space. May be stale without its lock.
    pub fn get(&self, group: GroupNumber) -> Summary {
        self.0.of(group).map_or(Summary::NONE, |(tree, index)| tree.get(index))
    }

    /// A group's free space changes. To be called with its lock held.
    pub fn set(&self, group: GroupNumber, to: Summary) {
        if let Some((tree, index)) = self.0.of(group) {
            tree.set(index, to);
        }
    }

    /// Whether no group has free blocks. Looks at every group, because a mark may be missing for a moment.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|(_, tree)| tree.is_empty())
    }

    /// What any group may have.
    pub fn all(&self) -> OrderMask {
        self.0.iter().fold(OrderMask::NONE, |all, (_, tree)| all.or(tree.all()))
    }

    /// Whether any group may have one of the marks.
    pub fn may_have(&self, wanted: OrderMask) -> bool {
        self.0.iter().any(|(_, tree)| tree.may_have(wanted))
    }

    /// The first group in a range that has one of the marks.
    pub fn first(&self, wanted: OrderMask, range: Range<u32>) -> Option<GroupNumber> {
        let mut parts =
            self.0.iter().filter(|(groups, _)| range.start < groups.end && groups.start < range.end);
        parts.find_map(|(groups, tree)| {
            let range = range.start.saturating_sub(groups.start)..range.end - groups.start;
            Some(GroupNumber(groups.start + tree.first(wanted, range)?))
        })
    }
}

/// The groups from a goal rightwards, then those from 0 to it, so that searches which begin at different goals do not
/// meet in the lowest groups (post B).
#[derive(Clone, Debug)]
pub(crate) struct GroupsFromGoal {
    now: Range<u32>,
    then: Range<u32>,
}

impl GroupsFromGoal {
    pub fn new(index: &OrderIndex, goal: GroupNumber) -> Self {
        let groups = index.groups();
        let goal = goal.0.min(groups);
        Self { now: goal..groups, then: 0..goal }
    }

    /// The next group of these that has one of the marks.
    pub fn next(&mut self, index: &OrderIndex, wanted: OrderMask) -> Option<GroupNumber> {
        loop {
            match index.first(wanted, self.now.clone()) {
                Some(group) => {
                    self.now.start = group.0 + 1;
                    return Some(group);
                }
                None if self.then.is_empty() => return None,
                None => self.now = std::mem::take(&mut self.then),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testing::Random;

    fn known(order: u8) -> Summary {
        Summary { free: 3 << order, fragments: 2, largest: Some(order) }
    }

    #[test]
    fn a_search_finds_what_a_look_at_every_group_finds() {
        for (groups, at_first) in [(1, 1), (8, 8), (9, 9), (64, 1), (200, 200), (200, 77), (5000, 5000)] {
            let index = OrderIndex::new(at_first);
            index.extend((at_first + groups) / 2);
            index.extend(groups);
            let mut plain = vec![Summary::NONE; groups as usize];
            let mut random = Random::new(u64::from(groups));
            for _ in 0..4000 {
                let at = random.next() as u32 % groups;
                let order = random.below(14) as u8;
                let summary = match random.below(8) {
                    0..4 => Summary::NONE,
                    4 => Summary::unread(1 << order, 13),
                    _ => known(order),
                };
                index.set(GroupNumber(at), summary);
                plain[at as usize] = summary;
                let wanted = OrderMask::of_chunk(order, random.one_in(2));
                let (start, end) = (random.next() as u32 % groups, random.next() as u32 % (groups + 1));
                let expected = (start..end).find(|at| !plain[*at as usize].marks().and(wanted).is_empty());
                assert_eq!(index.first(wanted, start..end), expected.map(GroupNumber), "{start}..{end}");
                assert_eq!(index.get(GroupNumber(at)), summary);
            }
            for at in 0..groups {
                index.set(GroupNumber(at), Summary::NONE);
            }
            assert_eq!(index.first(OrderMask::ANY, 0..groups), None);
            let words =
                index.0.iter().flat_map(|(_, tree)| tree.levels.iter().flatten()).flat_map(|line| &line.0);
            assert!(words.into_iter().all(|word| word.load(Ordering::Relaxed) == 0), "a mark stays behind");
        }
    }

    #[test]
    fn who_looks_in_vain_is_led_there_once() {
        let index = OrderIndex::new(64 * 3);
        let top = || index.all().0;
        (0..64 * 3).for_each(|group| index.set(GroupNumber(group), known(9)));
        index.set(GroupNumber(70), known(4));
        let both = top();
        // Whoever changes the group again leaves the mark to those who look for it.
        index.set(GroupNumber(70), known(3));
        assert_eq!(top() & both, both);
        assert_eq!(index.first(OrderMask(known(4).marks().0 & !known(3).marks().0), 0..64 * 3), None);
        assert_eq!(top(), known(9).marks().or(known(3).marks()).0);
    }

    #[test]
    fn a_full_index_is_one_whose_groups_were_set() {
        for groups in [1, 8, 9, 65, 5000] {
            let (full, set) = (OrderIndex::full(groups, known(5)), OrderIndex::new(groups));
            (0..groups).for_each(|group| set.set(GroupNumber(group), known(5)));
            let words = |index: &OrderIndex| {
                let words = index
                    .0
                    .iter()
                    .flat_map(|(_, tree)| tree.levels.iter().flatten())
                    .flat_map(|line| &line.0);
                words.map(|word| word.load(Ordering::Relaxed)).collect::<Vec<_>>()
            };
            assert_eq!(words(&full), words(&set), "{groups} groups");
        }
    }

    #[test]
    fn a_round_meets_every_group_once() {
        let index = OrderIndex::new(200);
        for group in [0, 5, 63, 64, 130, 199] {
            index.set(GroupNumber(group), known(3));
        }
        let round = |from| {
            let mut round = GroupsFromGoal::new(&index, GroupNumber(from));
            std::iter::from_fn(|| Some(round.next(&index, OrderMask::of_chunk(2, false))?.0))
                .collect::<Vec<_>>()
        };
        assert_eq!(round(64), [64, 130, 199, 0, 5, 63]);
        assert_eq!(round(0), [0, 5, 63, 64, 130, 199]);
        assert_eq!(round(1000), [0, 5, 63, 64, 130, 199]);
    }

    #[test]
    fn threads_lose_no_mark() {
        let index = OrderIndex::new(64 * 3);
        extant_rt::parallel(4, |thread| {
            for round in 0..20_000_u32 {
                // All on a line and its neighbours, each thread its own groups.
                let group = GroupNumber(thread as u32 + 4 * (round % 2) + 64 * (round % 3));
                index.set(group, known(5));
                assert!(!index.is_empty());
                // Missing for no longer than another's change takes.
                let is_found =
                    || index.first(OrderMask::of_chunk(5, false), group.0..group.0 + 1) == Some(group);
                let found = (0..10_000).any(|_| {
                    is_found() || {
                        extant_rt::yield_now();
                        false
                    }
                });
                assert!(found, "set and not found");
                index.set(group, Summary::NONE);
            }
        });
        assert_eq!(index.first(OrderMask::ANY, 0..192), None);
    }
}
