//! A set of groups that threads change and walk without a lock.

use extant_ondisk::GroupNumber;
use extant_rt::{AtomicU64, Ordering};

/// A bit per group.
///
/// A member's meaning is checked again under the group's lock, and its bit is only changed under it (or, for
/// [`GroupSet::drain`], when nobody else inserts), so relaxed operations are enough: a stale bit costs a visit.
#[derive(Debug)]
pub(crate) struct GroupSet {
    words: Box<[AtomicU64]>,
}

impl GroupSet {
    /// No member; room for groups below `count`.
    pub fn new(count: u32) -> Self {
        Self { words: (0..count.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Puts the group in. Writes nothing if it is in already.
    pub fn insert(&self, group: GroupNumber) {
        let (word, bit) = self.place(group);
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Takes the group out.
    pub fn remove(&self, group: GroupNumber) {
        let (word, bit) = self.place(group);
        if word.load(Ordering::Relaxed) & bit != 0 {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// The first member at or after `from`.
    pub fn next(&self, from: GroupNumber) -> Option<GroupNumber> {
        let mut index = (from.0 / 64) as usize;
        let mut mask = u64::MAX << (from.0 % 64);
        loop {
            let word = self.words.get(index)?.load(Ordering::Relaxed) & mask;
            if word != 0 {
                return Some(GroupNumber(index as u32 * 64 + word.trailing_zeros()));
            }
            index += 1;
            mask = u64::MAX;
        }
    }

    /// Takes all members out, in order.
    pub fn drain(&self) -> Vec<GroupNumber> {
        let mut members = Vec::new();
        for (index, word) in self.words.iter().enumerate() {
            let mut left =
                if word.load(Ordering::Relaxed) == 0 { 0 } else { word.swap(0, Ordering::Relaxed) };
            while left != 0 {
                members.push(GroupNumber(index as u32 * 64 + left.trailing_zeros()));
                left &= left - 1;
            }
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

    fn place(&self, group: GroupNumber) -> (&AtomicU64, u64) {
        (&self.words[(group.0 / 64) as usize], 1 << (group.0 % 64))
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
}
