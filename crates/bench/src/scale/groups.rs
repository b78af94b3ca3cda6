//! What groups cost in memory, and an allocation by their number.
//!
//! Of the groups 16 have room, evenly over the disk, and all others a few single blocks; goals are anywhere. So each search has to
//! find the next of the 16 in the index of all groups. Beside it, searches whose goal's group has room. Bitmaps are
//! in memory.

use std::path::Path;
use std::time::Instant;

use extant_alloc::{
    Allocator, BitmapSummary, BoxError, ClusterRun, GroupStore, MayUse, Purpose, Request, Setup,
};
use extant_ondisk::{
    Cluster, FsBlock, Geometry, GroupDescriptor, GroupFlags, GroupNumber, IncompatFeatures, RoCompatFeatures,
    Superblock, bitmap,
};
use plotters::prelude::*;

use super::memory;
use crate::Result;
use crate::report::Series;
use extant_loads::Random;

const COUNTS: [u32; 6] = [16, 256, 4096, 65_536, 1 << 20, 4_915_200];
const GROUP_BLOCKS: u32 = 32_768;
const FLEX: u32 = 16;
/// What a flex group keeps in its first group, and a group for superblock and descriptors.
const SYSTEM_BLOCKS: u32 = 64;
const WITH_ROOM: u32 = 16;
/// Free blocks of a group without room: too few to look for a request there.
const POOR: u32 = 8;
/// Blocks of a request.
const LEN: u32 = 16;
const REQUESTS: u32 = 8192;

/// Groups as mke2fs lays them out in flex groups.
struct Store {
    roomy: Box<[u8]>,
    poor: Box<[u8]>,
    /// Groups from one with room to the next.
    distance: u32,
    /// As never used: nothing but descriptors.
    is_unused: bool,
}

impl Store {
    fn new(groups: u32, is_unused: bool) -> Self {
        let mut roomy = vec![0; GROUP_BLOCKS as usize / 8].into_boxed_slice();
        bitmap::set_range(&mut roomy, 0..SYSTEM_BLOCKS);
        let mut poor = vec![0xff; GROUP_BLOCKS as usize / 8].into_boxed_slice();
        (1..=POOR).for_each(|at| bitmap::clear(&mut poor, at * 500));
        Self { roomy, poor, distance: groups.div_ceil(WITH_ROOM), is_unused }
    }

    fn bits(&self, group: GroupNumber) -> &[u8] {
        if group.0.is_multiple_of(self.distance) { &self.roomy } else { &self.poor }
    }
}

impl GroupStore for Store {
    fn load_descriptors(
        &self,
        _: &Geometry,
        first: GroupNumber,
        count: u32,
    ) -> Result<Vec<GroupDescriptor>, BoxError> {
        let descriptor = |group: GroupNumber| {
            let place = u64::from(group.0 - group.0 % FLEX) * u64::from(GROUP_BLOCKS) + 4;
            let within = u64::from(group.0 % FLEX);
            let mut descriptor = GroupDescriptor::new(64)?;
            descriptor.set_block_bitmap(FsBlock(place + within));
            descriptor.set_inode_bitmap(FsBlock(place + u64::from(FLEX) + within));
            descriptor.set_inode_table(FsBlock(place + 2 * u64::from(FLEX) + within));
            descriptor.set_free_blocks_count(bitmap::count_zeros(self.bits(group), 0..GROUP_BLOCKS));
            descriptor.set_free_inodes_count(16);
            if self.is_unused {
                descriptor.set_flags(GroupFlags::BLOCK_UNINIT | GroupFlags::INODE_UNINIT);
            }
            Ok(descriptor)
        };
        (first.0..first.0 + count).map(GroupNumber).map(descriptor).collect()
    }

    fn load_block_bitmap(&self, group: GroupNumber, _: &GroupDescriptor) -> Result<Box<[u8]>, BoxError> {
        Ok(self.bits(group).into())
    }

    fn load_inode_bitmap(&self, _: GroupNumber, _: &GroupDescriptor) -> Result<Box<[u8]>, BoxError> {
        Err("no inodes here".into())
    }
}

fn geometry(groups: u32) -> Result<Geometry> {
    let mut superblock = Superblock::new_zeroed();
    superblock.set_s_rev_level(1);
    superblock.set_s_log_block_size(2);
    superblock.set_s_log_cluster_size(2);
    superblock.set_s_inode_size(256);
    superblock.set_s_first_ino(11);
    superblock.set_s_blocks_per_group(GROUP_BLOCKS);
    superblock.set_s_clusters_per_group(GROUP_BLOCKS);
    superblock.set_s_inodes_per_group(16);
    superblock.set_s_log_groups_per_flex(FLEX.ilog2() as u8);
    superblock.set_s_desc_size(64);
    superblock.set_incompat(IncompatFeatures::FLEX_BG | IncompatFeatures::META_BG | IncompatFeatures::BIT64);
    superblock.set_ro_compat(RoCompatFeatures::SPARSE_SUPER);
    superblock.set_blocks_count(u64::from(groups) * u64::from(GROUP_BLOCKS));
    superblock.set_s_inodes_count(groups * 16);
    Ok(Geometry::new(&superblock)?)
}

fn allocator(groups: u32, is_unused: bool) -> Result<Allocator> {
    let free_blocks = u64::from(groups) * u64::from(GROUP_BLOCKS);
    let setup = Setup { free_blocks, bitmap_bytes_max: 64 << 20, ..Setup::default() };
    Ok(Allocator::new(geometry(groups)?, &setup, Box::new(Store::new(groups, is_unused))))
}

/// Measures and draws.
pub fn measure(rounds: usize, plot: Option<&Path>) -> Result<()> {
    print_memory()?;
    let mut rows = Vec::new();
    println!("{LEN} blocks out of a disk of so many groups, {WITH_ROOM} of them with room");
    for groups in COUNTS {
        let alloc = study(groups)?;
        let mut figures = <[Series; 2]>::default();
        for _ in 0..rounds {
            for (series, is_near) in figures.iter_mut().zip([false, true]) {
                series.push(nanoseconds(&alloc, groups, is_near)?);
            }
        }
        println!("{}", figures[0].line(&format!("  {groups} groups, goal anywhere"), 1.0, "ns"));
        println!("{}", figures[1].line(&format!("  {groups} groups, goal in a group with room"), 1.0, "ns"));
        rows.push((groups, figures));
    }
    match plot {
        Some(plot) => draw(plot, &rows),
        None => Ok(()),
    }
}

/// What groups cost that were never touched: their descriptors not read, and read.
fn print_memory() -> Result<()> {
    let groups = COUNTS[COUNTS.len() - 1];
    let before = memory("VmRSS:")?;
    let alloc = allocator(groups, true)?;
    let unread = memory("VmRSS:")? - before;
    alloc.count_exactly();
    let read = memory("VmRSS:")? - before;
    let per_group = |mebibytes: f64| mebibytes * 1024.0 * 1024.0 / f64::from(groups);
    println!("memory of {groups} groups never touched, bytes each:");
    println!("  descriptors not read {:.1}, read {:.1}", per_group(unread), per_group(read));
    Ok(())
}

/// All groups known, and the bitmaps of those with room in memory.
fn study(groups: u32) -> Result<Allocator> {
    let mut alloc = allocator(groups, false)?;
    let store = Store::new(groups, false);
    let [roomy, poor] = [&store.roomy, &store.poor].map(|bits| BitmapSummary::new(alloc.geometry(), bits));
    for group in (0..groups).map(GroupNumber) {
        let sample = if group.0.is_multiple_of(store.distance) { &roomy } else { &poor };
        alloc.assume(group, sample, true)?;
    }
    nanoseconds(&alloc, groups, true)?;
    Ok(alloc)
}

/// What an allocation takes on average; everything is given back afterwards.
fn nanoseconds(alloc: &Allocator, groups: u32, is_near: bool) -> Result<f64> {
    let distance = groups.div_ceil(WITH_ROOM);
    let mut random = Random::new(u64::from(groups));
    let mut reservation = alloc.reserve(u64::from(LEN * REQUESTS), MayUse::RootBlocks)?;
    let mut taken: Vec<ClusterRun> = Vec::with_capacity(REQUESTS as usize);
    let goals = (0..REQUESTS).map(|_| {
        let group = random.below(u64::from(groups)) as u32;
        let group = if is_near { group - group % distance } else { group };
        Cluster(u64::from(group) * u64::from(GROUP_BLOCKS) + 500)
    });
    let goals: Vec<_> = goals.collect();
    let start = Instant::now();
    for goal in goals {
        let request = Request { goal, len: LEN, least: 1, ahead: 0, purpose: Purpose::Metadata };
        taken.push(alloc.allocate(&mut reservation, &request)?);
    }
    let elapsed = start.elapsed().as_nanos() as f64 / f64::from(REQUESTS);
    if taken.iter().any(|run| run.len != LEN) {
        return Err("a run shorter than asked for".into());
    }
    taken.into_iter().for_each(|run| alloc.free_unmarked(run));
    Ok(elapsed)
}

/// Draws the medians over the number of groups.
fn draw(path: &Path, rows: &[(u32, [Series; 2])]) -> Result<()> {
    let area = SVGBackend::new(path, (640, 400)).into_drawing_area();
    area.fill(&WHITE)?;
    let most = rows.iter().flat_map(|(_, figures)| figures.iter().map(Series::median)).fold(0.0, f64::max);
    let order = |groups: u32| f64::from(groups).log2();
    let mut chart = ChartBuilder::on(&area)
        .caption("nanoseconds of an allocation", ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d(order(COUNTS[0])..order(COUNTS[COUNTS.len() - 1]), 0.0..most * 1.2)?;
    chart
        .configure_mesh()
        .x_labels(8)
        .x_label_formatter(&|at| format!("{:.0}", at.exp2()))
        .x_desc("groups, on a logarithmic scale")
        .draw()?;
    let lines =
        [("goal anywhere", RGBColor(200, 60, 40)), ("goal in a group with room", RGBColor(40, 110, 200))];
    for (at, (name, colour)) in lines.into_iter().enumerate() {
        let points = rows.iter().map(|(groups, figures)| (order(*groups), figures[at].median()));
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)).point_size(3))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw()?;
    area.present()?;
    Ok(())
}
