//! Files into fewer runs.
//!
//! Of each stretch of short runs without a hole, as many runs side by side as a free run can hold become one, again and again while that
//! leaves fewer. The free run is the shortest that is long enough, so that long ones remain.
//!
//! Invariant: each move leaves the file with fewer runs, so this ends.

use extant_ondisk::{InodeFlags, RawInode};
use extant_rt::Arc;

use super::Defrag;
use super::layout::{BlockRun, Window, moved, runs_of, stretches, window};
use crate::error::Result;
use crate::incore::inode::Inode;
use crate::resize::shrink::map::Map;

/// Where the signature of a swap area ends, by the pages of the kernel that uses it.
const SWAP_PAGES: [u64; 3] = [4 << 10, 16 << 10, 64 << 10];
const SWAP_SIGNATURE: &[u8] = b"SWAPSPACE2";

/// What became of a file.
pub(super) struct FileResult {
    /// Its runs before.
    pub(super) before: u64,
    pub(super) runs: Vec<BlockRun>,
    pub(super) moved_blocks: u64,
    /// Why it has to stay where it is.
    pub(super) fixed: Option<&'static str>,
}

impl FileResult {
    /// Whether fewer runs could hold it, if there were longer free runs.
    pub(super) fn lacks_room(&self) -> bool {
        self.fixed.is_none() && stretches(&self.runs).next().is_some()
    }
}

impl Defrag<'_, '_> {
    /// Brings a file into fewer runs.
    ///
    /// # Errors
    /// As [`Defrag::move_run`]; the moves before stay done.
    pub(super) fn defrag_file(&mut self, inode: &Arc<Inode>) -> Result<FileResult> {
        let mut runs = self.file_runs(inode)?;
        let (before, moved_before) = (runs.len() as u64, self.moved_blocks);
        if stretches(&runs).next().is_none() {
            return Ok(FileResult { before, runs, moved_blocks: 0, fixed: None });
        }
        let fixed = self.fixed_reason(inode)?;
        if fixed.is_some() {
            return Ok(FileResult { before, runs, moved_blocks: 0, fixed });
        }
        while let Some((window, to)) = self.next_window(&runs) {
            let is_moved = !self.is_dry_run || self.space.take(to, window.len as u32)?;
            if !is_moved || !self.move_run(inode, window.first.logical, window.len, to)? {
                break;
            }
            if self.is_dry_run {
                let after = self.free_window(&runs, window, to);
                self.planned.insert(inode.number, after);
            }
            let after = self.file_runs(inode)?;
            let is_better = after.len() < runs.len();
            runs = after;
            if !is_better {
                break;
            }
        }
        Ok(FileResult { before, runs, moved_blocks: self.moved_blocks - moved_before, fixed: None })
    }

    /// The runs of a file now, or as a dry run would have them.
    pub(super) fn file_runs(&self, inode: &Arc<Inode>) -> Result<Vec<BlockRun>> {
        if let Some(planned) = self.planned.get(&inode.number) {
            return Ok(planned.clone());
        }
        let _content = inode.content.read();
        Ok(runs_of(&Map::read(self.volume, inode.number, &inode.raw())?.pieces))
    }

    /// The next runs to become one, and where. What is left of the free blocks has room for the file's new map.
    fn next_window(&self, runs: &[BlockRun]) -> Option<(Window, u64)> {
        // A block of a map has more than 64 entries, and above those of a file's blocks are few others.
        let map_blocks = runs.iter().map(|run| run.len).sum::<u64>() / 64 + 8;
        let longest =
            self.space.longest().min(self.space.blocks().saturating_sub(map_blocks)).min(u64::from(u32::MAX));
        stretches(runs).find_map(|stretch| {
            let window = window(stretch, longest)?;
            self.space.fitting(window.len).next().map(|(_, to)| (window, to))
        })
    }

    /// Counts the runs of a window as free.
    fn free_window(&mut self, runs: &[BlockRun], window: Window, to: u64) -> Vec<BlockRun> {
        let inside = window.first.logical..window.first.logical + window.len;
        for run in runs.iter().filter(|run| inside.contains(&run.logical)) {
            self.space.free(run.start, run.len);
        }
        moved(runs, window, to)
    }

    /// Why the blocks of a file have to stay where they are; None if they need not.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    pub(super) fn fixed_reason(&self, inode: &Inode) -> Result<Option<&'static str>> {
        let raw = inode.raw();
        Ok(match raw.flags() {
            // A boot loader may have the numbers of its blocks.
            flags if flags.contains(InodeFlags::IMMUTABLE) => Some("it is immutable"),
            flags if flags.intersects(InodeFlags::COMPR) => Some("it is marked as compressed"),
            _ if self.is_swap_area(inode, &raw)? => Some("it is a swap file, whose blocks a kernel may have"),
            _ => None,
        })
    }

    fn is_swap_area(&self, inode: &Inode, raw: &RawInode) -> Result<bool> {
        let mut found = [0; SWAP_SIGNATURE.len()];
        for page in SWAP_PAGES {
            let at = page - SWAP_SIGNATURE.len() as u64;
            if raw.size() < page || raw.flags().contains(InodeFlags::ENCRYPT) {
                return Ok(false);
            }
            if self.volume.read_content(inode, at, &mut found)? == found.len() && found == SWAP_SIGNATURE {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
