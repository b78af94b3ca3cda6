//! Files into fewer extents, directories into fewer blocks, and free space into longer runs; mounted, while others use it.
//!
//! A walk over the tree brings each directory ([`directories`]) and each file ([`files`]) into fewer runs of blocks, and then, of the
//! whole file system, moves of files join free runs ([`free_space`]). Each move is one transaction ([`blocks`]), after which the file
//! system is whole: a crash leaves the content where it was or where it was to be. Content, size, times, attributes and inode numbers stay.
//!
//! Nothing on the disk says that a run is under way; the next one begins with what it finds.
//!
//! Leaves out: inodes that the file system has for itself, files without a name, blocks of attributes, and disks whose blocks are
//! allocated in clusters.
//!
//! Invariants: what is written outside of transactions goes into blocks that are free; no move needs more free blocks than those it
//! copies and the nodes of one map; every loop of moves raises or lowers a stated measure, so it ends.
//!
//! Locks: `INODE` of one inode at a time; the journal's.
//!
//! Tests: `../tests/defrag`.

mod blocks;
mod directories;
mod files;
mod free_space;
mod layout;
mod space;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use extant_block::Defragmented;
use extant_ondisk::{FileType, InodeNumber};
use extant_rt::is_interrupted;

use self::directories::DirectoryResult;
use self::files::FileResult;
use self::free_space::OwnedRun;
use self::layout::BlockRun;
use self::space::Space;
use crate::error::{Error, Result};
use crate::incore::inode_cache::InodeRef;
use crate::mount::Volume;

/// How to defragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefragOptions {
    /// Only say what would be done. Nothing is written.
    pub dry_run: bool,
}

/// A number of runs or blocks before and after, and the bytes that were copied for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// How many there were.
    pub before: u64,
    /// How many there are.
    pub after: u64,
    /// Bytes that were copied.
    pub moved_bytes: u64,
}

/// What [`Filesystem::defrag`](crate::Filesystem::defrag) reports.
#[derive(Debug)]
#[non_exhaustive]
pub enum DefragEvent<'e> {
    /// So many bytes were copied so far.
    Moved {
        /// Bytes.
        moved_bytes: u64,
    },
    /// A file has fewer runs of blocks.
    File {
        /// Where it is.
        path: &'e Path,
        /// Its runs.
        runs: Changed,
    },
    /// A directory has fewer blocks or runs of them.
    Directory {
        /// Where it is.
        path: &'e Path,
        /// Its inode, which may have another size.
        inode: InodeNumber,
        /// Its blocks.
        blocks: Changed,
        /// Its runs.
        runs: Changed,
    },
    /// A file or directory stays as it is.
    Left {
        /// Where it is.
        path: &'e Path,
        /// Why.
        reason: &'static str,
    },
    /// An error kept a file or directory from being improved.
    Failed {
        /// Where it is.
        path: &'e Path,
        /// The error.
        error: &'e Error,
    },
    /// Runs of files moved so that free runs joined.
    FreeSpace {
        /// The runs that moved, and the bytes.
        runs: u64,
        /// Bytes that were copied.
        moved_bytes: u64,
    },
}

/// Hears what is done, and says whether to go on.
pub(crate) type Report<'r> = dyn FnMut(DefragEvent<'_>) -> bool + 'r;

/// A file that is tried again when free runs have been joined.
struct Waiting {
    inode: InodeNumber,
    path: PathBuf,
    /// Its runs at first, and what was moved since.
    before: u64,
    runs: u64,
    moved_blocks: u64,
}

/// A run of defragmenting.
struct Defrag<'v, 'r> {
    volume: &'v Volume,
    space: Space<'v>,
    is_dry_run: bool,
    buffer: Vec<u8>,
    moved_blocks: u64,
    done: Defragmented,
    /// Free runs are to be joined.
    joins: bool,
    /// The runs of all files that were visited then.
    owned: Vec<OwnedRun>,
    /// Files that more room would bring into fewer runs, then.
    waiting: Vec<Waiting>,
    /// The runs of files that a dry run would have moved.
    planned: HashMap<InodeNumber, Vec<BlockRun>>,
    report: &'r mut Report<'r>,
}

impl Volume {
    /// Defragments the file or the tree at an inode, which has the name `path`; of the root also the free space.
    ///
    /// # Errors
    /// `ReadOnly`; `Unsupported` of clusters; `Interrupted` if `report` says so; `Io` and `Corrupt` of what all have in common; the
    /// journal's. What was done stays done, and the file system is whole.
    ///
    /// # Locks
    /// None may be held.
    pub(crate) fn defrag<'r>(
        &self,
        start: InodeNumber,
        path: &Path,
        options: DefragOptions,
        report: &'r mut Report<'r>,
    ) -> Result<Defragmented> {
        if self.geometry.cluster_ratio > 1 {
            return Err(Error::Unsupported("defragmenting a disk with bigalloc"));
        }
        if !options.dry_run {
            // Blocks of removed files come back.
            self.writable()?.commit_running()?;
        }
        let is_dry_run = options.dry_run;
        let mut defrag = Defrag {
            volume: self,
            space: Space::new(self, is_dry_run)?,
            is_dry_run,
            buffer: Vec::new(),
            moved_blocks: 0,
            done: Defragmented::default(),
            joins: start == InodeNumber::ROOT,
            owned: Vec::new(),
            waiting: Vec::new(),
            planned: HashMap::new(),
            report,
        };
        defrag.tree(start, path)?;
        if defrag.joins {
            defrag.free_space()?;
        }
        if !is_dry_run {
            self.writable()?.commit_running()?;
        }
        defrag.done.moved_bytes = defrag.bytes(defrag.moved_blocks);
        Ok(defrag.done)
    }
}

impl Defrag<'_, '_> {
    fn bytes(&self, blocks: u64) -> u64 {
        blocks * u64::from(self.volume.geometry.block_size)
    }

    /// # Errors
    /// `Interrupted`.
    fn tell(&mut self, event: DefragEvent<'_>) -> Result<()> {
        if (self.report)(event) && !is_interrupted() { Ok(()) } else { Err(Error::Interrupted) }
    }

    /// Counts blocks that were copied.
    ///
    /// # Errors
    /// `Interrupted`.
    fn count_moved(&mut self, blocks: u64) -> Result<()> {
        self.moved_blocks += blocks;
        self.tell(DefragEvent::Moved { moved_bytes: self.bytes(self.moved_blocks) })
    }

    /// Goes over a tree, each directory before what is in it.
    fn tree(&mut self, start: InodeNumber, path: &Path) -> Result<()> {
        let mut seen = HashSet::from([start]);
        let mut next = vec![(start, path.to_owned())];
        while let Some((number, path)) = next.pop() {
            let found = self.visit(number, &path);
            let names = match found {
                Ok(names) => names,
                // It was removed meanwhile.
                Err(Error::Stale) => continue,
                Err(error) => {
                    self.fail(&path, &error)?;
                    continue;
                }
            };
            next.extend(names.into_iter().rev().filter(|(number, _)| seen.insert(*number)));
        }
        Ok(())
    }

    /// Improves one inode, and gives the names in it.
    fn visit(&mut self, number: InodeNumber, path: &Path) -> Result<Vec<(InodeNumber, PathBuf)>> {
        let inode = self.volume.inode(number)?;
        match inode.file_type() {
            FileType::Regular => {
                self.visit_file(&inode, path)?;
                Ok(Vec::new())
            }
            FileType::Directory => {
                // Empty blocks of `lost+found` are kept for what e2fsck puts there.
                let below_root = path.strip_prefix("/").unwrap_or(path);
                let is_lost_found = self.joins && below_root == Path::new("lost+found");
                if !is_lost_found && let Err(error) = self.visit_directory(&inode, path) {
                    self.fail(path, &error)?;
                }
                self.names_in(&inode, path)
            }
            _ => Ok(Vec::new()),
        }
    }

    fn visit_file(&mut self, inode: &InodeRef, path: &Path) -> Result<()> {
        let result = self.defrag_file(inode)?;
        let lacks_room = result.lacks_room();
        let FileResult { before, runs, moved_blocks, fixed } = result;
        let file = Waiting {
            inode: inode.number,
            path: path.to_owned(),
            before,
            runs: runs.len() as u64,
            moved_blocks,
        };
        if self.joins && fixed.is_none() {
            self.owned.extend(runs.into_iter().map(|run| OwnedRun { run, inode: inode.number }));
        }
        match fixed {
            Some(reason) => self.leave(path, reason),
            None if lacks_room && self.joins => {
                self.waiting.push(file);
                Ok(())
            }
            None => self.tell_of_file(&file, lacks_room),
        }
    }

    /// Reports a file that changed, or lacks room.
    fn tell_of_file(&mut self, file: &Waiting, lacks_room: bool) -> Result<()> {
        let path = &file.path;
        if file.moved_blocks > 0 {
            let moved_bytes = self.bytes(file.moved_blocks);
            self.done.files += 1;
            self.done.runs_before += file.before;
            self.done.runs_after += file.runs;
            let runs = Changed { before: file.before, after: file.runs, moved_bytes };
            self.tell(DefragEvent::File { path, runs })
        } else if lacks_room {
            self.leave(path, "no free run is long enough to hold two of its parts")
        } else {
            Ok(())
        }
    }

    fn visit_directory(&mut self, dir: &InodeRef, path: &Path) -> Result<()> {
        match self.defrag_directory(dir)? {
            DirectoryResult::Unchanged => Ok(()),
            DirectoryResult::Left(reason) => self.leave(path, reason),
            DirectoryResult::Changed { blocks, runs } => {
                self.done.directories += 1;
                self.done.runs_before += runs.before;
                self.done.runs_after += runs.after;
                self.tell(DefragEvent::Directory { path, inode: dir.number, blocks, runs })
            }
        }
    }

    fn names_in(&mut self, dir: &InodeRef, path: &Path) -> Result<Vec<(InodeNumber, PathBuf)>> {
        let mut names = Vec::new();
        self.volume.read_dir(dir, 0, &mut |item| {
            let is_wanted =
                matches!(item.file_type, None | Some(FileType::Regular) | Some(FileType::Directory));
            if is_wanted && !matches!(item.name, b"." | b"..") {
                names.push((item.inode, path.join(extant_block::os_string(item.name.to_vec()))));
            }
            true
        })?;
        Ok(names)
    }

    fn leave(&mut self, path: &Path, reason: &'static str) -> Result<()> {
        self.done.left += 1;
        self.tell(DefragEvent::Left { path, reason })
    }

    /// Reports an error of one file or directory; one that ends all work is given back.
    fn fail(&mut self, path: &Path, error: &Error) -> Result<()> {
        match error {
            Error::Interrupted => return Err(Error::Interrupted),
            Error::NoSpace => return self.leave(path, "too few blocks are free to copy a part of it"),
            _ => {}
        }
        self.volume.handle_error(error);
        if !self.is_dry_run {
            self.volume.writable()?;
        }
        self.done.failed += 1;
        self.tell(DefragEvent::Failed { path, error })
    }

    /// Joins free runs, brings files that lacked room into fewer runs, and so on until that brings none.
    fn free_space(&mut self) -> Result<()> {
        let mut joined_blocks = 0;
        loop {
            let before = self.moved_blocks;
            self.join_free_runs()?;
            joined_blocks += self.moved_blocks - before;
            if !self.try_again()? {
                break;
            }
        }
        for file in std::mem::take(&mut self.waiting) {
            self.tell_of_file(&file, true)?;
        }
        let (runs, moved_bytes) = (self.done.joined_runs, self.bytes(joined_blocks));
        if runs > 0 { self.tell(DefragEvent::FreeSpace { runs, moved_bytes }) } else { Ok(()) }
    }

    /// Tries files again that lacked room; whether any has fewer runs.
    fn try_again(&mut self) -> Result<bool> {
        let mut is_better = false;
        for mut file in std::mem::take(&mut self.waiting) {
            let tried = self.volume.inode(file.inode).and_then(|inode| self.defrag_file(&inode));
            let result = match tried {
                Ok(result) => result,
                Err(Error::Stale) => continue,
                Err(error) => {
                    self.fail(&file.path, &error)?;
                    continue;
                }
            };
            let lacks_room = result.lacks_room();
            let FileResult { runs, moved_blocks, .. } = result;
            is_better |= (runs.len() as u64) < file.runs;
            file.runs = runs.len() as u64;
            file.moved_blocks += moved_blocks;
            self.owned.retain(|own| own.inode != file.inode);
            self.owned.extend(runs.into_iter().map(|run| OwnedRun { run, inode: file.inode }));
            if lacks_room { self.waiting.push(file) } else { self.tell_of_file(&file, false)? }
        }
        Ok(is_better)
    }
}
