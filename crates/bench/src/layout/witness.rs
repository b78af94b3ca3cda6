//! How an unmounted disk is laid out, as e2fsprogs sees it, held against the library's own reading.

use std::path::Path;
use std::process::Command;

use extant::Mount;
use extant_loads::layout::{self, Free, count_pieces};

use crate::Result;
use crate::scratch::output;

/// The layout of a disk and of the files of one directory.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Runs of blocks of a file on average. Where the tree cuts a run that goes on, it is one.
    pub extents_per_file: f64,
    /// KiB of a run of free blocks on average.
    pub free_kib: f64,
}

/// Reads the layout of `files` and of the free blocks of `image`.
///
/// # Errors
/// Also if e2fsprogs and the library see different layouts.
pub fn layout(image: &Path, files: &[String]) -> Result<Layout> {
    let fs = Mount::new().read_only(true).open(image)?;
    let (mut numbers, mut runs) = (Vec::new(), 0);
    for path in files {
        let file = fs.lookup(path)?;
        numbers.push(file.number().0);
        runs += layout::pieces(&file)?;
    }
    let dumped = dumped_runs(image, &numbers)?;
    if dumped != runs {
        return Err(format!("debugfs sees {dumped} extents, the library {runs}").into());
    }
    let free = free_runs(image)?;
    let own = layout::free(&fs)?;
    if own != free {
        return Err(format!("e2freefrag sees {free:?}, the library {own:?}").into());
    }
    let free_bytes = free.blocks * u64::from(fs.statistics().block_size);
    let free_kib = free_bytes as f64 / 1024.0 / free.runs.max(1) as f64;
    let extents_per_file = if files.is_empty() { 0.0 } else { runs as f64 / files.len() as f64 };
    Ok(Layout { extents_per_file, free_kib })
}

/// The runs of inodes' blocks, counted in what `debugfs` dumps.
fn dumped_runs(image: &Path, inodes: &[u32]) -> Result<usize> {
    let mut runs = 0;
    for inode in inodes {
        let dumped =
            output(Command::new("debugfs").arg("-R").arg(format!("dump_extents -l <{inode}>")).arg(image))?;
        // Level, Entries, Logical, Physical, Length, Flags: " 0/ 0   1/ 3     0 -   126  34816 - 34942    127 Uninit".
        let extents = dumped.lines().skip(1).map(|line| {
            let line = line.replace(['/', '-'], " ");
            let fields: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
            match fields[..] {
                [_, _, _, _, logical, _, start, _, len] => Ok((logical, start, len)),
                _ => Err(format!("debugfs says {line:?}")),
            }
        });
        runs += count_pieces(extents.collect::<Result<Vec<_>, _>>()?.into_iter());
    }
    Ok(runs)
}

/// The runs of free blocks, as `e2freefrag` says.
fn free_runs(image: &Path) -> Result<Free> {
    let said = output(Command::new("e2freefrag").arg(image))?;
    let number = |name: &str| -> Result<u64> {
        let words = said.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next());
        Ok(words.ok_or_else(|| format!("e2freefrag says {said:?}"))?.parse()?)
    };
    Ok(Free { runs: number("Num. free extent:")?, blocks: number("Free blocks:")? })
}
