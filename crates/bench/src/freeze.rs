//! How long a commit keeps new handles out, by the number of metadata blocks that its transaction changed and of groups that they lie in.
//!
//! The blocks are those of inode tables: of each one file gets another mode. The disk is in memory, with blocks of 1 KiB, so that it has
//! many small groups.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use extant::mkfs::Mkfs;
use extant::{File, Filesystem, Mount, SetAttributes};
use extant_block::MemoryDevice;
use plotters::prelude::*;

use crate::Result;
use crate::report::Series;

const BLOCK_BYTES: u32 = 1024;
const INODE_BYTES: u16 = 256;
const INODES_PER_BLOCK: u32 = BLOCK_BYTES / INODE_BYTES as u32;
const GROUPS: u32 = 512;
const GROUP_BLOCKS: u32 = 8192;
const INODES_PER_GROUP: u32 = 512;
/// So many that no group stays empty, wherever the directories go.
const FILES_PER_DIRECTORY: u32 = INODES_PER_GROUP - 2;
const LOG_MEGABYTES: u32 = 256;
const CACHE_BYTES: u64 = 1 << 30;
/// Blocks of a transaction, and the groups that they are spread over.
const SIZES: [(usize, usize); 7] =
    [(1_250, 500), (2_500, 500), (5_000, 500), (10_000, 500), (20_000, 500), (20_000, 250), (20_000, 200)];

/// Prints the times, and draws those of the widest spread.
pub fn measure(rounds: usize, plot: Option<&Path>) -> Result<()> {
    let fs = disk()?;
    let by_group = files(&fs)?;
    let mut rows = Vec::new();
    let mut mode = 0o600;
    println!("| changed blocks | groups | handles kept out, us | ns a block |\n|--:|--:|--:|--:|");
    for (blocks, groups) in SIZES {
        let chosen = choose(&by_group, blocks, groups)?;
        let mut times = Series::default();
        // The first has the caches ready.
        for round in 0..=rounds {
            mode ^= 0o011;
            let time = freeze(&fs, &chosen, mode)?;
            if round > 0 {
                times.push(time);
            }
        }
        println!("| {blocks} | {groups} | {} | {} |", times.cell(1e3, 0), times.cell(blocks as f64, 0));
        rows.push((blocks, groups, times));
    }
    fs.unmount()?;
    plot.map_or(Ok(()), |plot| draw(plot, &rows))
}

fn disk() -> Result<Filesystem> {
    let device = Arc::new(MemoryDevice::new(u64::from(GROUPS * GROUP_BLOCKS) * u64::from(BLOCK_BYTES)));
    Mkfs::new()
        .block_size(BLOCK_BYTES)
        .inode_size(INODE_BYTES)
        .inodes(GROUPS * INODES_PER_GROUP)
        .features("^flex_bg")?
        .journal_megabytes(LOG_MEGABYTES)
        .format(&*device)?;
    Ok(Mount::new().background(false).cache_bytes(CACHE_BYTES).open_device(device)?)
}

/// A file of each block of the inode tables, by group.
fn files(fs: &Filesystem) -> Result<Vec<Vec<File>>> {
    let mut by_block: BTreeMap<(u32, u32), File> = BTreeMap::new();
    for directory in 0..GROUPS {
        let path = format!("/{directory}");
        fs.create_dir(&path)?;
        for file in 0..FILES_PER_DIRECTORY {
            let file = fs.options().create_new(true).write(true).open(format!("{path}/{file}"))?;
            let index = file.number().0 - 1;
            let (group, within) = (index / INODES_PER_GROUP, index % INODES_PER_GROUP);
            by_block.entry((group, within / INODES_PER_BLOCK)).or_insert(file);
        }
        fs.sync()?;
    }
    let mut by_group: BTreeMap<u32, Vec<File>> = BTreeMap::new();
    by_block.into_iter().for_each(|((group, _), file)| by_group.entry(group).or_default().push(file));
    Ok(by_group.into_values().collect())
}

/// So many files, evenly of so many groups.
fn choose(by_group: &[Vec<File>], blocks: usize, groups: usize) -> Result<Vec<&File>> {
    let each = blocks.div_ceil(groups);
    let full = by_group.iter().filter(|files| files.len() >= each).take(groups);
    let mut chosen: Vec<&File> = full.flat_map(|files| &files[..each]).collect();
    if chosen.len() < blocks {
        return Err(format!("{groups} groups with {each} blocks of inodes each are not to be had").into());
    }
    chosen.truncate(blocks);
    Ok(chosen)
}

/// Nanoseconds in which no handle could open, while a transaction that changed all these files was committed.
fn freeze(fs: &Filesystem, files: &[&File], mode: u16) -> Result<f64> {
    fs.sync()?;
    for file in files {
        file.set_attributes(&SetAttributes { mode: Some(mode), ..SetAttributes::default() })?;
    }
    let statistics = || fs.journal_statistics().ok_or("the disk has no journal");
    let before = statistics()?;
    fs.sync()?;
    let after = statistics()?;
    if after.commits != before.commits + 1 || after.copies - before.copies < files.len() as u64 {
        return Err("the changes were not committed by one transaction".into());
    }
    Ok((after.locked_ns - before.locked_ns) as f64)
}

/// Draws the medians over the number of blocks.
fn draw(path: &Path, rows: &[(usize, usize, Series)]) -> Result<()> {
    let area = SVGBackend::new(path, (640, 400)).into_drawing_area();
    area.fill(&WHITE)?;
    let widest = rows.iter().map(|(_, groups, _)| *groups).max().unwrap_or(0);
    let points: Vec<_> = rows.iter().filter(|(_, groups, _)| *groups == widest).collect();
    let time = |times: &Series| times.median() / 1e6;
    let most = points.iter().map(|(_, _, times)| time(times)).fold(0.0, f64::max);
    let blocks_max = points.iter().map(|(blocks, ..)| *blocks).max().unwrap_or(1);
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("milliseconds in which no handle opens, {widest} groups"), ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..blocks_max as f64 * 1.05, 0.0..most * 1.2)?;
    chart.configure_mesh().x_desc("metadata blocks that the transaction changed").draw()?;
    let line = points.iter().map(|(blocks, _, times)| (*blocks as f64, time(times)));
    chart.draw_series(LineSeries::new(line, RGBColor(40, 110, 200).stroke_width(2)).point_size(3))?;
    area.present()?;
    Ok(())
}
