//! How files and free space lie after many writers, beside the kernel's ext4 on the same image.
//!
//! The load is that by which the kernel's series on group allocation was judged, scaled to the disk: files that grow
//! beside each other by fallocate of 4 KiB, one append each in turns, all to one size or each to its own. It runs on a
//! fresh disk and on disks that are aged to four fifths. Who laid out what is read from the unmounted image by
//! e2fsprogs.

use std::path::Path;
use std::process::Command;

use extant::Mount;

use self::side::{Engine, Side};
use self::witness::{Layout, layout};
use crate::Result;
use crate::kernel::KernelMount;
use crate::report::Series;
use crate::scratch::{Scratch, run};
use extant_loads::Random;
use extant_loads::ageing::{Aged, Ageing, Step};

mod side;
mod witness;

const APPEND_BYTES: u64 = 4 << 10;
const WRITERS: u64 = 64;
/// Where files end that all end alike, and the least and most of others.
const EQUAL_BYTES: u64 = 4 << 20;
const LEAST_BYTES: u64 = 1 << 20;
const SINGLE_BYTES: u64 = 1 << 30;
/// Percent of the disk in use when it is aged, and how often its bytes have come and gone by then.
const FULL_PERCENT: u64 = 80;
const CHURN: u64 = 5;
/// Sizes of the ageing's files, in the middle and at most.
const MIDDLE_BYTES: u64 = 32 << 10;
const MOST_BYTES: u64 = 64 << 20;
/// Directories of the ageing's files.
const AGED_DIRS: u32 = 64;

/// Whose work is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Extant,
    Kernel,
}

/// A state that disks are in before the writers come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Fresh,
    /// The kernel aged it; both sides write to copies.
    AgedByKernel,
    /// Each side aged its own.
    AgedByEach,
}

/// What the writers make of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writers {
    Equal,
    Odd,
    Single,
}

const POINTS: [(State, Writers, &str); 7] = [
    (State::Fresh, Writers::Equal, "fresh, 64 writers of 4 MiB"),
    (State::AgedByKernel, Writers::Equal, "aged by the kernel, 64 writers of 4 MiB"),
    (State::AgedByEach, Writers::Equal, "aged by each side, 64 writers of 4 MiB"),
    (State::Fresh, Writers::Odd, "fresh, 64 writers of 1 to 4 MiB"),
    (State::AgedByKernel, Writers::Odd, "aged by the kernel, 64 writers of 1 to 4 MiB"),
    (State::AgedByEach, Writers::Odd, "aged by each side, 64 writers of 1 to 4 MiB"),
    (State::Fresh, Writers::Single, "fresh, one writer of 1 GiB"),
];

/// Mounts `image` as one side and has it work there.
fn with_side(who: Who, scratch: &Scratch, image: &Path, work: impl Work) -> Result<()> {
    match who {
        Who::Extant => work.done_by(Engine::new(image)?),
        Who::Kernel => work.done_by(KernelMount::new(image, &scratch.path("kernel"))?),
    }
}

/// What any side can do.
trait Work {
    /// Does it and unmounts.
    fn done_by(self, side: impl Side) -> Result<()>;
}

impl Work for Ageing {
    fn done_by(self, side: impl Side) -> Result<()> {
        for dir in 0..AGED_DIRS {
            side.create_dir(&format!("aged-{dir}"))?;
        }
        let path = |file: u32| format!("aged-{}/{file}", file % AGED_DIRS);
        for step in self {
            match step {
                Step::Create { file, bytes } => side.allocate(&side.create(&path(file))?, 0, bytes)?,
                Step::Remove { file } => side.remove(&path(file))?,
                Step::Sync => side.sync()?,
            }
        }
        side.finish()
    }
}

/// Files that grow in turns, each to its size.
struct Growth {
    sizes: Vec<u64>,
}

impl Growth {
    fn new(writers: Writers, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut odd = || {
            let steps = (EQUAL_BYTES - LEAST_BYTES) / APPEND_BYTES;
            LEAST_BYTES + APPEND_BYTES * random.below(steps + 1)
        };
        let sizes = match writers {
            Writers::Equal => vec![EQUAL_BYTES; WRITERS as usize],
            Writers::Odd => (0..WRITERS).map(|_| odd()).collect(),
            Writers::Single => vec![SINGLE_BYTES],
        };
        Self { sizes }
    }

    fn paths(&self) -> Vec<String> {
        (0..self.sizes.len()).map(|index| format!("grown/{index}")).collect()
    }
}

impl Work for &Growth {
    fn done_by(self, side: impl Side) -> Result<()> {
        side.create_dir("grown")?;
        let files = self.paths().iter().map(|path| side.create(path)).collect::<Result<Vec<_>>>()?;
        let mut open: Vec<_> = files.into_iter().zip(&self.sizes).collect();
        let mut at = 0;
        while !open.is_empty() {
            for (file, _) in &open {
                side.allocate(file, at, APPEND_BYTES)?;
            }
            at += APPEND_BYTES;
            // Who is done closes.
            open.retain(|(_, size)| at < **size);
        }
        drop(open);
        side.finish()
    }
}

/// Bytes that files take of a fresh image until it is as full as it is to be, and all its bytes.
fn room(image: &Path) -> Result<(u64, u64)> {
    let statistics = Mount::new().read_only(true).open(image)?.statistics();
    let block = u64::from(statistics.block_size);
    let (all, free) = (statistics.blocks * block, statistics.free_blocks * block);
    Ok((free.saturating_sub(all * (100 - FULL_PERCENT) / 100), all))
}

/// The images of one seed.
struct Images<'a> {
    scratch: &'a Scratch,
    seed: u64,
}

impl Images<'_> {
    /// Makes the fresh one, and those that each side aged.
    fn prepare(&self) -> Result<()> {
        let fresh = self.scratch.image("fresh.img")?;
        let (full, all) = room(&fresh)?;
        for who in [Who::Kernel, Who::Extant] {
            let image = self.scratch.path(aged_by(who));
            copy(&fresh, &image)?;
            let aged = Aged {
                block_bytes: APPEND_BYTES,
                middle_bytes: MIDDLE_BYTES,
                most_bytes: MOST_BYTES,
                full_bytes: full,
                churn_bytes: CHURN * all,
            };
            with_side(who, self.scratch, &image, Ageing::new(self.seed, aged))?;
        }
        Ok(())
    }

    /// Lays out what the writers of one side leave.
    fn measure(&self, who: Who, state: State, writers: Writers) -> Result<Layout> {
        let from = match state {
            State::Fresh => "fresh.img",
            State::AgedByKernel => aged_by(Who::Kernel),
            State::AgedByEach => aged_by(who),
        };
        let image = self.scratch.path("work.img");
        copy(&self.scratch.path(from), &image)?;
        let growth = Growth::new(writers, self.seed);
        with_side(who, self.scratch, &image, &growth)?;
        layout(&image, &growth.paths())
    }
}

const fn aged_by(who: Who) -> &'static str {
    match who {
        Who::Extant => "aged-extant.img",
        Who::Kernel => "aged-kernel.img",
    }
}

/// Copies an image, holes as holes.
fn copy(from: &Path, to: &Path) -> Result<()> {
    Ok(run(Command::new("cp").arg("--sparse=always").arg(from).arg(to))?)
}

/// A figure of both sides by seed.
#[derive(Default)]
struct Both {
    extant: Series,
    kernel: Series,
}

impl Both {
    fn push(&mut self, extant: f64, kernel: f64) {
        self.extant.push(extant);
        self.kernel.push(kernel);
    }

    fn print(&self, name: &str, unit: &str) {
        println!("  {}", self.extant.line(&format!("{name}, extant"), 1.0, unit));
        println!("  {}", self.kernel.line(&format!("{name}, kernel ext4"), 1.0, unit));
        println!("  {}", self.extant.over(&self.kernel).ratio_line("extant / kernel"));
    }
}

/// See [`crate::What::Layout`].
pub fn compare(seeds: u64, dir: &Path) -> Result<()> {
    let scratch = Scratch::new(dir)?;
    let mut aged = Both::default();
    let mut points: [(Both, Both); POINTS.len()] = Default::default();
    for seed in 1..=seeds {
        let images = Images { scratch: &scratch, seed };
        images.prepare()?;
        let aged_free = |who| layout(&scratch.path(aged_by(who)), &[]).map(|layout| layout.free_kib);
        aged.push(aged_free(Who::Extant)?, aged_free(Who::Kernel)?);
        for ((extents, free), (state, writers, _)) in points.iter_mut().zip(POINTS) {
            let extant = images.measure(Who::Extant, state, writers)?;
            let kernel = images.measure(Who::Kernel, state, writers)?;
            extents.push(extant.extents_per_file, kernel.extents_per_file);
            free.push(extant.free_kib, kernel.free_kib);
        }
    }
    println!("layout after appends of 4 KiB by fallocate in turns, seeds 1 to {seeds}");
    println!("aged to {FULL_PERCENT}% by {CHURN} times the disk's bytes");
    aged.print("mean free extent", "KiB");
    for ((extents, free), (_, _, name)) in points.iter().zip(POINTS) {
        println!("{name}");
        extents.print("extents per file", "");
        free.print("mean free extent", "KiB");
    }
    Ok(())
}
