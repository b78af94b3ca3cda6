//! Directories: which blocks they have, and what each must hold by their index.

use std::collections::BTreeSet;

use extant_ondisk::{FsBlock, IncompatFeatures, InodeFlags, InodeNumber, RawInode, Structure, dirent};

use super::maps::Run;
use super::reading::{Reading, Role};
use super::{Checker, Pass, Progress};
use crate::error::{Location, Result};

/// The record of a directory between the passes.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    pub(super) generation: u32,
    pub(super) is_indexed: bool,
    pub(super) folds_case: bool,
    pub(super) is_encrypted: bool,
    /// Its blocks, until its entries were read.
    pub(super) runs: Vec<Run>,
    /// The content of its inode instead, if that can be read.
    pub(super) inline: Option<Vec<u8>>,
    /// The directory that names it.
    pub(super) parent: Option<InodeNumber>,
    /// Its `..`.
    pub(super) dotdot: Option<InodeNumber>,
}

impl Directory {
    pub(super) fn new(inode: &RawInode, runs: Vec<Run>, inline: Option<Vec<u8>>) -> Self {
        let is_indexed = inode.flags().contains(InodeFlags::INDEX);
        let folds_case = inode.flags().contains(InodeFlags::CASEFOLD);
        let is_encrypted = inode.flags().contains(InodeFlags::ENCRYPT);
        Self {
            generation: inode.generation(),
            is_indexed,
            folds_case,
            is_encrypted,
            runs,
            inline,
            parent: None,
            dotdot: None,
        }
    }
}

impl Checker<'_> {
    pub(super) fn check_directories(&mut self, progress: &mut dyn FnMut(Progress)) -> Result<()> {
        let numbers: Vec<InodeNumber> = self.directories.keys().copied().collect();
        let total = numbers.len() as u64;
        for (done, &number) in (1..).zip(&numbers) {
            if self.findings.is_full() {
                self.names_incomplete = true;
                break;
            }
            if let Some(first) = self.blocks_of_directory(number).next() {
                let next = numbers.iter().skip(done as usize - 1);
                self.read_window(first, next.flat_map(|number| self.blocks_of_directory(*number)));
            }
            self.check_directory(number)?;
            progress(Progress { pass: Pass::Directories, done, total });
        }
        Ok(())
    }

    /// The blocks of a directory whose entries were not read yet.
    fn blocks_of_directory(&self, number: InodeNumber) -> impl Iterator<Item = FsBlock> {
        self.directories.get(&number).into_iter().flat_map(|directory| blocks_of_runs(&directory.runs, 0))
    }

    fn check_directory(&mut self, number: InodeNumber) -> Result<()> {
        let Some(directory) = self.directories.get_mut(&number) else { return Ok(()) };
        let Directory { generation, is_indexed, folds_case, is_encrypted, .. } = *directory;
        let runs = std::mem::take(&mut directory.runs);
        if let Some(content) = directory.inline.take() {
            self.check_inline_directory(number, generation, &content);
            return Ok(());
        }
        let names = BTreeSet::new();
        let mut reading =
            Reading { number, generation, folds_case, is_encrypted, runs: &runs, index: None, names };
        if is_indexed && folds_case && is_encrypted {
            // Its hashes need the key; without the index it is not known which blocks hold names.
            self.names_incomplete = true;
            return Ok(());
        }
        if is_indexed {
            reading.index = self.read_index(&reading)?;
        }
        let may_have_holes = self.superblock.incompat().contains(IncompatFeatures::LARGEDIR);
        let mut expected = 0;
        for (index, run) in runs.iter().enumerate() {
            let rest = runs.get(index..).unwrap_or_default();
            if run.logical != expected && !may_have_holes {
                self.findings.add(reading.location(), format!("has no block {expected}"));
            }
            for offset in 0..run.len {
                if self.findings.is_full() {
                    return Ok(());
                }
                let block = FsBlock(run.start.0 + offset);
                self.read_window(block, blocks_of_runs(rest, offset));
                self.check_block(&mut reading, run.logical + offset, block)?;
            }
            expected = run.logical + run.len;
        }
        if let Some(index) = &reading.index {
            for logical in index.missing() {
                let location = Location { structure: Structure::HtreeNode, ..reading.location() };
                self.findings.add(location, format!("names block {logical}, which the directory has not"));
            }
        }
        Ok(())
    }

    fn check_block(&mut self, reading: &mut Reading<'_>, logical: u64, block: FsBlock) -> Result<()> {
        let location = reading.location().block(block);
        let role = match &mut reading.index {
            Some(index) => index.take_role(logical),
            None => Some(Role::linear()),
        };
        let role = role.unwrap_or_else(|| {
            self.findings.add(location, format!("the directory's block {logical} is not in its index"));
            Role::linear()
        });
        let bytes = self.read(block, location)?;
        let usable = match role {
            // Looked at with the index; it shows no entry.
            Role::Inode => return Ok(()),
            Role::Root => bytes.len(),
            Role::Leaf(_) => {
                if !self.checksums.verify_dir_block(reading.number, reading.generation, &bytes) {
                    self.findings.add(location, "bad checksum");
                }
                let has_tail = self.checksums.has_metadata_checksums() && dirent::has_tail(&bytes);
                dirent::usable_bytes(bytes.len(), has_tail)
            }
        };
        if reading.index.is_some() {
            reading.names.clear();
        }
        self.check_entries(reading, logical, &bytes, usable, role, location);
        Ok(())
    }
}

/// The blocks of runs, from one of the first run on.
fn blocks_of_runs(runs: &[Run], offset: u64) -> impl Iterator<Item = FsBlock> {
    let blocks = |run: &Run| run.start.0..run.start.0 + run.len;
    runs.iter().flat_map(blocks).skip(offset as usize).map(FsBlock)
}
