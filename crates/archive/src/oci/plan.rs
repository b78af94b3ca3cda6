//! What of an image is poured: the names that its tree has, in the order of the members that describe their files.

use super::names::{FileRef, Kind, MemberId, Names, ROOT};
use crate::path::TreePath;

/// The names that are poured.
#[derive(Debug)]
pub(super) struct Plan {
    pub names: Names,
    /// Their numbers, those of a member together.
    pub order: Vec<u32>,
}

impl Plan {
    /// All names; the root is one if a member describes it.
    pub fn new(mut names: Names, root: Option<MemberId>) -> Self {
        let mut depths = vec![0_u32; names.nodes_count()];
        let mut pending = vec![ROOT];
        while let Some(directory) = pending.pop() {
            for child in names.children(directory) {
                if let FileRef::Node(number) = names.name(child).file
                    && let Kind::Directory { .. } = names.node(number).kind
                {
                    depths[number as usize] = depths[directory as usize] + 1;
                    pending.push(number);
                }
            }
        }
        names.node_mut(ROOT).member = root.unwrap_or_default();
        let mut order: Vec<u32> = names.numbers().filter(|name| *name != ROOT || root.is_some()).collect();
        // Directories above a file come before it, the outermost first.
        order.sort_unstable_by_key(|name| {
            let depth = depths[names.name(*name).directory as usize];
            (names.member(*name), !names.is_implied(*name), depth, *name)
        });
        Self { names, order }
    }
}

/// Spells the paths of names; those in one directory share its path.
pub(super) struct PlanPaths<'a> {
    names: &'a Names,
    /// The directories on the way to the last name, with their paths.
    way: Vec<(u32, TreePath)>,
}

impl<'a> PlanPaths<'a> {
    pub fn new(names: &'a Names) -> Self {
        Self { names, way: vec![(ROOT, TreePath::root())] }
    }

    /// The path of a name.
    pub fn path(&mut self, name: u32) -> TreePath {
        let path = self.directory(self.names.name(name).directory);
        if name == ROOT { path } else { path.below(self.names.text(name)) }
    }

    fn directory(&mut self, directory: u32) -> TreePath {
        if self.way.last().is_none_or(|(last, _)| *last != directory) {
            let above = |directory: &u32| match self.names.node(*directory).kind {
                Kind::Directory { name, .. } if name != ROOT => Some(self.names.name(name).directory),
                _ => None,
            };
            let mut way: Vec<u32> = std::iter::successors(Some(directory), above).collect();
            way.reverse();
            let shared = self.way.iter().zip(&way).take_while(|((a, _), b)| a == *b).count();
            self.way.truncate(shared);
            for directory in &way[shared..] {
                let parent = self.way.last().map_or_else(TreePath::root, |(_, path)| path.clone());
                let path = match self.names.node(*directory).kind {
                    Kind::Directory { name, .. } if name != ROOT => parent.below(self.names.text(name)),
                    _ => parent,
                };
                self.way.push((*directory, path));
            }
        }
        self.way.last().map_or_else(TreePath::root, |(_, path)| path.clone())
    }
}
