//! The index of a directory: each block's counts, order and checksum, and which hashes belong into which leaf.

use std::collections::BTreeMap;

use extant_ondisk::dir_hash::DirHasher;
use extant_ondisk::htree::{DxKind, DxNode, RootInfo};
use extant_ondisk::{IncompatFeatures, Structure, SuperFlags};

use super::Checker;
use super::reading::{HashRange, Index, Reading, Role};
use crate::error::{Location, Result};

impl Checker<'_> {
    /// Reads the index of a directory; `None` if it has no readable root.
    pub(super) fn read_index(&mut self, reading: &Reading<'_>) -> Result<Option<Index>> {
        let location = Location { structure: Structure::HtreeNode, ..reading.location() };
        let Some(block) = reading.block(0) else {
            self.findings.add(location, "has no root");
            return Ok(None);
        };
        let location = location.block(block);
        let bytes = self.read(block, location)?;
        if !self.checksums.verify_htree_node(reading.number, reading.generation, &bytes) {
            self.findings.add(location, "bad checksum");
        }
        let large_dir = self.superblock.incompat().contains(IncompatFeatures::LARGEDIR);
        let has_csum = self.checksums.has_metadata_checksums();
        let root = RootInfo::parse(&bytes, large_dir)
            .and_then(|info| Ok((info, DxNode::parse(&bytes, DxKind::Root, has_csum)?)));
        let (info, node) = match root {
            Ok(root) => root,
            Err(error) => {
                self.findings.add_format(location, error);
                return Ok(None);
            }
        };
        let unsigned = self.superblock.flags().contains(SuperFlags::UNSIGNED_HASH);
        let hasher = DirHasher::new(info.hash_version(unsigned), self.superblock.s_hash_seed());
        let mut index = Index { hasher, roles: BTreeMap::from([(0, Role::Root)]) };
        self.read_children(reading, node, info.indirect_levels, HashRange::ALL, &mut index, location)?;
        Ok(Some(index))
    }

    /// Recursion is as deep as the index, which the root's check bounds; a block is entered once, as its role is taken.
    fn read_children(
        &mut self,
        reading: &Reading<'_>,
        node: DxNode<'_>,
        levels: u8,
        range: HashRange,
        index: &mut Index,
        location: Location,
    ) -> Result<()> {
        if levels > 0 {
            let inner = (0..node.count()).filter_map(|position| node.child(position));
            self.read_ahead(inner.filter_map(|child| reading.block(u64::from(child.0))));
        }
        for position in 0..node.count() {
            let Some(child) = node.child(position).filter(|_| !self.findings.is_full()) else { break };
            let start = if position == 0 { range.start } else { node.hash(position) };
            let next = if position + 1 < node.count() { Some(node.hash(position + 1)) } else { range.next };
            if start < range.start || range.next.is_some_and(|end| start > end) {
                self.findings.add(location, format!("entry {position} is outside its parent's range"));
            }
            let logical = u64::from(child.0);
            let here = HashRange { start, next };
            let role = if levels == 0 { Role::Leaf(here) } else { Role::Inode };
            if index.roles.insert(logical, role).is_some() {
                self.findings.add(location, format!("block {logical} stands in the index twice"));
                continue;
            }
            if levels > 0 {
                self.read_inner(reading, logical, levels - 1, here, index)?;
            }
        }
        Ok(())
    }

    fn read_inner(
        &mut self,
        reading: &Reading<'_>,
        logical: u64,
        levels: u8,
        range: HashRange,
        index: &mut Index,
    ) -> Result<()> {
        // A block that the directory has not is reported when all its blocks were read.
        let Some(block) = reading.block(logical) else { return Ok(()) };
        let location = Location { structure: Structure::HtreeNode, ..reading.location() }.block(block);
        let bytes = self.read(block, location)?;
        if !self.checksums.verify_htree_node(reading.number, reading.generation, &bytes) {
            self.findings.add(location, "bad checksum");
        }
        match DxNode::parse(&bytes, DxKind::Node, self.checksums.has_metadata_checksums()) {
            Ok(node) => self.read_children(reading, node, levels, range, index, location),
            Err(error) => {
                self.findings.add_format(location, error);
                Ok(())
            }
        }
    }
}
