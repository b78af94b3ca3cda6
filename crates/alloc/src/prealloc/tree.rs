//! The live ranges of an inode in a balanced tree by logical start (post E; an AVL tree: Adelson-Velsky and Landis, 1962).
//!
//! Invariants: no two ranges overlap, so the one before a block and the one behind it are all that a look-up must know; the
//! heights of a branch's two sides differ by at most one, so a way from the root has at most
//! 1.45 log2(n + 2) branches.

use std::cmp::Ordering;

use extant_ondisk::LogicalCluster;

use super::ranges::{Found, PaRange};

type Link = Option<Box<Branch>>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct PaTree {
    root: Link,
}

#[derive(Debug)]
struct Branch {
    range: PaRange,
    height: u8,
    left: Link,
    right: Link,
}

/// What stands around a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Around {
    /// The last range that starts at the block or before it.
    pub before: Option<PaRange>,
    /// The first that starts behind it.
    pub after: Option<PaRange>,
    /// Ranges looked at.
    pub visits: u64,
}

impl Around {
    /// Notes a range that was looked at; whether it starts at `logical` or before.
    fn visit(&mut self, range: PaRange, logical: LogicalCluster) -> bool {
        self.visits += 1;
        let is_before = range.logical <= logical;
        if is_before {
            if self.before.is_none_or(|before| before.logical < range.logical) {
                self.before = Some(range);
            }
        } else if self.after.is_none_or(|after| after.logical > range.logical) {
            self.after = Some(range);
        }
        is_before
    }

    /// The range that covers the block they stand around.
    pub fn covering(&self, logical: LogicalCluster) -> Option<PaRange> {
        self.before.filter(|range| range.covers(logical))
    }

    /// Blocks from `logical` to the range behind it.
    pub fn room(&self, logical: LogicalCluster) -> u32 {
        self.after.map_or(u32::MAX, |after| after.logical.0 - logical.0)
    }
}

impl PaTree {
    /// Takes up to `len` blocks for `logical`, with how many ranges were looked at.
    pub fn use_at(&mut self, logical: LogicalCluster, len: u32) -> (Found, u64) {
        let around = self.around(logical);
        let Some(range) = around.covering(logical) else {
            return (Found::Room(around.room(logical)), around.visits);
        };
        let (left, rest) = range.split(logical.0 - range.logical.0);
        let (taken, right) = rest.split(len.min(rest.run.len));
        // What stays keeps its place among the others, so that a file that grows changes one range and moves none.
        let (stays, added) = if left.run.len > 0 { (left, right) } else { (right, left) };
        if stays.run.len > 0 {
            self.change(range.logical, stays);
        } else {
            self.remove(range.logical);
        }
        if added.run.len > 0 {
            self.insert(added);
        }
        (Found::Run(taken.run), around.visits)
    }

    /// Whether a range overlaps none.
    pub fn is_apart(&self, range: PaRange) -> bool {
        let ends_before = |one: PaRange, other: PaRange| one.end() <= u64::from(other.logical.0);
        let Around { before, after, .. } = self.around(range.logical);
        before.into_iter().chain(after).all(|other| ends_before(other, range) || ends_before(range, other))
    }

    /// One way down: left of a range that starts behind the block, else right.
    pub fn around(&self, logical: LogicalCluster) -> Around {
        let mut around = Around::default();
        let mut link = &self.root;
        while let Some(branch) = link {
            link = if around.visit(branch.range, logical) { &branch.right } else { &branch.left };
        }
        around
    }

    /// Adds a range that overlaps none.
    pub fn insert(&mut self, range: PaRange) {
        self.root = Some(inserted(self.root.take(), range));
    }

    /// Puts a part of a range in its place: the order stays.
    fn change(&mut self, logical: LogicalCluster, part: PaRange) {
        let mut link = &mut self.root;
        while let Some(branch) = link {
            link = match logical.cmp(&branch.range.logical) {
                Ordering::Less => &mut branch.left,
                Ordering::Greater => &mut branch.right,
                Ordering::Equal => {
                    branch.range = part;
                    return;
                }
            };
        }
    }

    fn remove(&mut self, logical: LogicalCluster) {
        self.root = removed(self.root.take(), logical);
    }

    /// In order.
    pub fn into_ranges(self) -> Vec<PaRange> {
        let mut ranges = Vec::new();
        collect(self.root, &mut ranges);
        ranges
    }
}

fn height(link: &Link) -> u8 {
    link.as_ref().map_or(0, |branch| branch.height)
}

impl Branch {
    fn grow(&mut self) {
        self.height = 1 + height(&self.left).max(height(&self.right));
    }
}

fn inserted(link: Link, range: PaRange) -> Box<Branch> {
    let Some(mut branch) = link else {
        return Box::new(Branch { range, height: 1, left: None, right: None });
    };
    if range.logical < branch.range.logical {
        branch.left = Some(inserted(branch.left.take(), range));
    } else {
        branch.right = Some(inserted(branch.right.take(), range));
    }
    balanced(branch)
}

fn removed(link: Link, logical: LogicalCluster) -> Link {
    let mut branch = link?;
    match logical.cmp(&branch.range.logical) {
        Ordering::Less => branch.left = removed(branch.left.take(), logical),
        Ordering::Greater => branch.right = removed(branch.right.take(), logical),
        Ordering::Equal => match (branch.left.take(), branch.right.take()) {
            (Some(left), Some(right)) => {
                let (first, rest) = without_first(right);
                branch.range = first;
                (branch.left, branch.right) = (Some(left), rest);
            }
            (left, right) => return left.or(right),
        },
    }
    Some(balanced(branch))
}

/// The first range of a part of a tree, and what is left.
fn without_first(mut branch: Box<Branch>) -> (PaRange, Link) {
    match branch.left.take() {
        None => (branch.range, branch.right),
        Some(left) => {
            let (first, rest) = without_first(left);
            branch.left = rest;
            (first, Some(balanced(branch)))
        }
    }
}

/// Makes a branch whose sides' heights differ by at most two balanced.
fn balanced(mut branch: Box<Branch>) -> Box<Branch> {
    let (left, right) = (height(&branch.left), height(&branch.right));
    if left > right + 1 {
        branch.left = branch.left.map(|side| match height(&side.right) > height(&side.left) {
            true => turned_left(side),
            false => side,
        });
        turned_right(branch)
    } else if right > left + 1 {
        branch.right = branch.right.map(|side| match height(&side.left) > height(&side.right) {
            true => turned_right(side),
            false => side,
        });
        turned_left(branch)
    } else {
        branch.grow();
        branch
    }
}

/// The left side comes up.
fn turned_right(mut branch: Box<Branch>) -> Box<Branch> {
    let Some(mut top) = branch.left.take() else { return branch };
    branch.left = top.right.take();
    branch.grow();
    top.right = Some(branch);
    top.grow();
    top
}

/// The right side comes up.
fn turned_left(mut branch: Box<Branch>) -> Box<Branch> {
    let Some(mut top) = branch.right.take() else { return branch };
    branch.right = top.left.take();
    branch.grow();
    top.left = Some(branch);
    top.grow();
    top
}

fn collect(link: Link, ranges: &mut Vec<PaRange>) {
    if let Some(branch) = link {
        collect(branch.left, ranges);
        ranges.push(branch.range);
        collect(branch.right, ranges);
    }
}
