//! The tree of directories: each has one parent, names it as `..`, and is reachable from the root.

use std::collections::BTreeSet;

use extant_ondisk::{InodeNumber, Structure};

use super::Checker;
use crate::error::Location;

impl Checker<'_> {
    pub(super) fn check_connections(&mut self) {
        if !self.directories.contains_key(&InodeNumber::ROOT) {
            self.findings
                .add(Location::of(Structure::Inode).inode(InodeNumber::ROOT), "there is no root directory");
            return;
        }
        let mut connected = BTreeSet::from([InodeNumber::ROOT]);
        let numbers: Vec<InodeNumber> = self.directories.keys().copied().collect();
        for number in numbers {
            self.check_dotdot_target(number);
            self.follow_parents(number, &mut connected);
        }
    }

    fn check_dotdot_target(&mut self, number: InodeNumber) {
        let Some(directory) = self.directories.get(&number) else { return };
        let parent = if number == InodeNumber::ROOT { Some(number) } else { directory.parent };
        if let (Some(parent), Some(dotdot)) = (parent, directory.dotdot)
            && parent != dotdot
        {
            let location = Location::of(Structure::DirectoryBlock).inode(number);
            self.findings.add(location, format!("`..` names inode {dotdot}, but the parent is {parent}"));
        }
    }

    /// Goes up from a directory to one that is known to hang below the root; each directory is passed once in all.
    fn follow_parents(&mut self, number: InodeNumber, connected: &mut BTreeSet<InodeNumber>) {
        let mut way = BTreeSet::new();
        let mut at = number;
        while !connected.contains(&at) {
            if !way.insert(at) {
                self.findings.add(Location::of(Structure::Inode).inode(at), "a cycle of directories");
                break;
            }
            // A directory without a name is the link counts' to report, and an orphan has none.
            let Some(parent) = self.directories.get(&at).and_then(|directory| directory.parent) else {
                break;
            };
            at = parent;
        }
        // Directories in a cycle or without a root are reported once, not again from each of them.
        connected.extend(way);
    }
}
