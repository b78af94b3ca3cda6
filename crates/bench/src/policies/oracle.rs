//! The oracle: it knows every group and names the blocks at once, so that only taking them costs anything.
//!
//! It names what a request would best get: its goal, else the smallest run that suffices of the nearest group that has one,
//! else the longest run there is, of the nearest group that has it. It knows nothing of the allocator's index.

use std::collections::HashMap;

use extant_alloc::ClusterRun;
use extant_ondisk::{Cluster, GroupNumber, bitmap};

use super::disk::{GROUP_BLOCKS, GROUPS, sample_of};

/// A run inside a group: its first block and how many.
type Free = (u32, u32);

/// See the module.
pub struct Oracle {
    seed: u64,
    /// The free runs of each sample, and the length of its longest.
    samples: Vec<(Vec<Free>, u32)>,
    /// Groups of which something was taken, with what is left.
    touched: HashMap<u32, Vec<Free>>,
}

impl Oracle {
    pub fn new(seed: u64, samples: &[Box<[u8]>]) -> Self {
        let sample = |bits: &[u8]| {
            let runs = runs(bits);
            let longest = longest(&runs);
            (runs, longest)
        };
        Self { seed, samples: samples.iter().map(|bits| sample(bits)).collect(), touched: HashMap::new() }
    }

    /// Forgets what was taken.
    pub fn reset(&mut self) {
        self.touched.clear();
    }

    /// Names the blocks for a request, which are taken then.
    pub fn name(&mut self, goal: Cluster, len: u32) -> Option<ClusterRun> {
        let goal_group = (goal.0 / u64::from(GROUP_BLOCKS)) as u32;
        let bit = (goal.0 % u64::from(GROUP_BLOCKS)) as u32;
        let at_goal = |(start, free): &Free| *start <= bit && bit + len <= start + free;
        if goal_group < GROUPS && self.runs(goal_group).iter().any(at_goal) {
            return Some(self.take(goal_group, bit, len));
        }
        let most = self.samples.iter().map(|(_, longest)| *longest).max().unwrap_or(0);
        for want in [len, most].into_iter().filter(|want| (1..=most).contains(want)) {
            let found = (goal_group..GROUPS)
                .chain(0..goal_group.min(GROUPS))
                .find(|group| self.longest(*group) >= want);
            if let Some(group) = found {
                let sufficient = self.runs(group).iter().filter(|(_, free)| *free >= want);
                let (start, free) = *sufficient.min_by_key(|(_, free)| *free)?;
                return Some(self.take(group, start, free.min(len)));
            }
        }
        None
    }

    fn longest(&self, group: u32) -> u32 {
        match self.touched.get(&group) {
            Some(runs) => longest(runs),
            None => self.samples[sample_of(self.seed, GroupNumber(group))].1,
        }
    }

    fn runs(&self, group: u32) -> &[Free] {
        match self.touched.get(&group) {
            Some(runs) => runs,
            None => &self.samples[sample_of(self.seed, GroupNumber(group))].0,
        }
    }

    fn take(&mut self, group: u32, bit: u32, len: u32) -> ClusterRun {
        let left = self.runs(group).iter().flat_map(|(start, free)| {
            let (start, end) = (*start, start + free);
            if bit < start || bit >= end {
                return [(start, end - start), (0, 0)];
            }
            [(start, bit - start), (bit + len, end - bit - len)]
        });
        let left = left.filter(|(_, free)| *free > 0).collect();
        self.touched.insert(group, left);
        ClusterRun { start: Cluster(u64::from(group) * u64::from(GROUP_BLOCKS) + u64::from(bit)), len }
    }
}

fn longest(runs: &[Free]) -> u32 {
    runs.iter().map(|(_, free)| *free).max().unwrap_or(0)
}

/// The runs of clear bits of a group's bitmap.
fn runs(bits: &[u8]) -> Vec<Free> {
    let mut runs = Vec::new();
    let mut at = 0;
    while at < GROUP_BLOCKS {
        let is_free = !bitmap::is_set(bits, at);
        let end =
            (at + 1..GROUP_BLOCKS).find(|bit| bitmap::is_set(bits, *bit) == is_free).unwrap_or(GROUP_BLOCKS);
        if is_free {
            runs.push((at, end - at));
        }
        at = end;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::disk::samples;

    #[test]
    fn what_is_named_is_free_and_named_once() {
        let samples = samples(7, 95, 16);
        let mut oracle = Oracle::new(7, &samples);
        let mut named = std::collections::HashSet::new();
        let mut goal = Cluster(u64::from(GROUP_BLOCKS) * 1234);
        for _ in 0..200 {
            let run = oracle.name(goal, 16).expect("a run");
            assert_eq!(run.len, 16, "there are runs of 31");
            for block in run.start.0..run.start.0 + 16 {
                let group = GroupNumber((block / u64::from(GROUP_BLOCKS)) as u32);
                let bit = (block % u64::from(GROUP_BLOCKS)) as u32;
                assert!(!bitmap::is_set(&samples[sample_of(7, group)], bit) && named.insert(block));
            }
            goal = Cluster(run.start.0 + 16);
        }
        assert_eq!(oracle.name(goal, 256).map(|run| run.len), Some(31));
    }
}
