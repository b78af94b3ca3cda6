//! `extant frag`.

use std::collections::HashSet;
use std::path::PathBuf;

use clap::Args;
use extant::{File, FileType, Filesystem};
use serde_json::{Value, json};

use super::Outcome;
use crate::disks::{Reading, open_for_reading};
use crate::failure::Failure;
use crate::output::Output;
use crate::size;

/// The longest extent of written blocks; a file needs at least one for each that many.
const EXTENT_BLOCKS_MAX: u64 = 32_768;
/// Above this score e4defrag says that files are worth rewriting.
const SCORE_FAIR: u64 = 55;
/// Columns of the longest bar.
const BAR_MAX: u64 = 32;

/// Tell how free space and files are broken up
#[derive(Args)]
#[command(after_help = "\
The score is that of e4defrag: 0 to 30 good, 31 to 55 fair, more: files are worth rewriting, as `extant defrag` does.

Examples:
  extant frag disk.img
  extant frag --json disk.img")]
pub struct Frag {
    #[command(flatten)]
    reading: Reading,
    /// The image
    image: PathBuf,
}

/// Runs of blocks by the power of two of their length.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    classes: Vec<Class>,
}

#[derive(Clone, Debug, Default)]
struct Class {
    runs: u64,
    blocks: u64,
}

impl Histogram {
    fn add(&mut self, blocks: u64) {
        let Some(order) = blocks.checked_ilog2().map(|order| order as usize) else { return };
        if self.classes.len() <= order {
            self.classes.resize(order + 1, Class::default());
        }
        self.classes[order].runs += 1;
        self.classes[order].blocks += blocks;
    }

    /// How many runs there are.
    pub(super) fn runs(&self) -> u64 {
        self.classes.iter().map(|class| class.runs).sum()
    }

    fn blocks(&self) -> u64 {
        self.classes.iter().map(|class| class.blocks).sum()
    }

    fn average(&self) -> u64 {
        self.blocks().checked_div(self.runs()).unwrap_or(0)
    }

    fn document(&self, block_bytes: u64) -> Value {
        let class = |(order, class): (usize, &Class)| json!({ "least_bytes": block_bytes << order, "runs": class.runs, "bytes": class.blocks * block_bytes });
        json!({
            "runs": self.runs(),
            "bytes": self.blocks() * block_bytes,
            "average_bytes": self.average() * block_bytes,
            "classes": self.classes.iter().enumerate().map(class).collect::<Vec<_>>(),
        })
    }

    fn lines(&self, block_bytes: u64, output: &mut Output) -> Result<(), Failure> {
        let all = self.blocks().max(1);
        output.line(format!("  {:>9}  {:>9}  {:>9}  share", "from", "runs", "bytes"))?;
        for (order, class) in self.classes.iter().enumerate().filter(|(_, class)| class.runs > 0) {
            let share = class.blocks * 100 / all;
            let bar = "#".repeat((class.blocks * BAR_MAX).div_ceil(all) as usize);
            let (from, bytes) = (size::show(block_bytes << order), size::show(class.blocks * block_bytes));
            output.line(format!("  {from:>9}  {:>9}  {bytes:>9}  {share:>3}% {bar}", class.runs))?;
        }
        Ok(())
    }
}

/// How a disk is broken up.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) free: Histogram,
    /// The blocks of the longest free run.
    pub(super) longest: u64,
    pub(super) extents: Histogram,
    /// Files and directories with blocks.
    files: u64,
    /// Those with more extents than they need.
    fragmented: u64,
    /// Extents that the files need at least: for each part without a hole, and for each 32,768 blocks of one.
    pub(super) needed: u64,
}

impl Layout {
    /// Reads the bitmaps and the maps of all files.
    pub(super) fn of(fs: &Filesystem) -> extant::Result<Self> {
        let mut layout = Self::default();
        let mut run = (0, 0);
        // Runs that touch across the border of two groups are one.
        fs.free_runs(|start, len| {
            if run.0 + run.1 == start {
                run.1 += u64::from(len);
            } else {
                layout.add_free(run.1);
                run = (start, u64::from(len));
            }
        })?;
        layout.add_free(run.1);
        let mut seen = HashSet::new();
        let mut dirs = vec![fs.root()?];
        while let Some(dir) = dirs.pop() {
            layout.add_file(&dir)?;
            for entry in dir.entries()? {
                let file = dir.lookup(&entry.name)?;
                if !seen.insert(file.number()) {
                    continue;
                }
                match file.metadata().file_type {
                    FileType::Directory => dirs.push(file.into_dir()?),
                    FileType::Regular => layout.add_file(&file)?,
                    _ => {}
                }
            }
        }
        Ok(layout)
    }

    fn add_free(&mut self, blocks: u64) {
        self.free.add(blocks);
        self.longest = self.longest.max(blocks);
    }

    fn add_file(&mut self, file: &File) -> extant::Result<()> {
        // Logical block, block and length; and the blocks of a part without a hole.
        let (mut runs, mut needed, mut last, mut part) = (0, 0_u64, (0, 0, 0), 0_u64);
        file.visit_extents(0, u64::MAX, &mut |extent| {
            let (logical, start, len) = (u64::from(extent.logical.0), extent.start.0, u64::from(extent.len));
            if last.0 + last.2 != logical {
                needed += part.div_ceil(EXTENT_BLOCKS_MAX);
                part = 0;
            }
            part += len;
            // One run of blocks, however the tree cuts it.
            if last.2 > 0 && last.0 + last.2 == logical && last.1 + last.2 == start {
                last.2 += len;
            } else {
                self.extents.add(last.2);
                runs += 1;
                last = (logical, start, len);
            }
        })?;
        self.extents.add(last.2);
        needed += part.div_ceil(EXTENT_BLOCKS_MAX);
        if needed == 0 {
            return Ok(());
        }
        self.files += 1;
        self.needed += needed;
        self.fragmented += u64::from(runs > needed);
        Ok(())
    }

    /// For programs.
    pub(super) fn document(&self, block_bytes: u64) -> Value {
        json!({
            "free": self.free.document(block_bytes),
            "files": self.files,
            "fragmented_files": self.fragmented,
            "extents": self.extents.document(block_bytes),
            "extents_needed": self.needed,
            "score": self.score(),
        })
    }

    /// As e4defrag scores: by the superfluous extents per 100 blocks.
    pub(super) fn score(&self) -> u64 {
        let superfluous = self.extents.runs().saturating_sub(self.needed);
        let ratio = (superfluous * 100).checked_div(self.extents.blocks()).unwrap_or(0);
        if ratio > 10 { 80 + 20 * ratio / 100 } else { 8 * ratio }
    }
}

impl Frag {
    /// Tells.
    pub fn run(self) -> Outcome {
        let fs = open_for_reading(&self.image, self.reading)?;
        let failed = |error: extant::Error| Failure::disk(self.image.display(), &error);
        let layout = Layout::of(&fs).map_err(failed)?;
        let block_bytes = u64::from(fs.statistics().block_size);
        let mut output = Output::new();
        if self.reading.json {
            let mut document = layout.document(block_bytes);
            document["image"] = self.image.display().to_string().into();
            output.json(&document)?;
        } else {
            let free = &layout.free;
            let average = |histogram: &Histogram| size::show(histogram.average() * block_bytes);
            output.line(format!("free space: {} runs, {} on average", free.runs(), average(free)))?;
            free.lines(block_bytes, &mut output)?;
            let (files, extents) = (layout.files, &layout.extents);
            output.line(format!(
                "files: {files} with {} extents, {} on average; {} in more than they need",
                extents.runs(),
                average(extents),
                layout.fragmented
            ))?;
            extents.lines(block_bytes, &mut output)?;
            let score = layout.score();
            let advice =
                if score > SCORE_FAIR { "; `extant defrag` brings files into fewer extents" } else { "" };
            output.line(format!("score: {score}{advice}"))?;
        }
        output.finish()?;
        Ok(0)
    }
}
