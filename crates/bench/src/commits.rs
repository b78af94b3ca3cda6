//! What a commit's time goes to while threads sync.
//!
//! On a modelled device, in real time, so that requests of several threads are under way at once.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use extant::{Filesystem, JournalStatistics, Mount};
use extant_block::{DeviceAccess, FileDevice, Model, ModelledDevice};
use extant_loads::Random;

use crate::Result;
use crate::report::Series;
use crate::scratch::Scratch;

const BLOCK: usize = 4096;
/// A file is begun again after so many blocks.
const BLOCKS: u64 = 4096;
/// What a thread sleeps between two syncs where it has other work, at most.
const OTHER_WORK_MAX_US: u64 = 1000;

/// What each thread does again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Appends,
    AppendsBesideWork,
    Mails,
}

const LOADS: [(&str, Load); 3] = [
    ("append, fsync", Load::Appends),
    ("append, fsync, other work of 0 to 1 ms", Load::AppendsBesideWork),
    ("a mail: a file of 4 KiB, fsync, a rename", Load::Mails),
];

/// A round of a load.
struct Round {
    syncs: u64,
    time: Duration,
    /// The time of all syncs together.
    in_syncs: Duration,
    /// The journal's counters before it and after.
    journal: [JournalStatistics; 2],
}

/// Prints, for each load and number of threads, what commits took.
pub fn measure(rounds: usize, threads: &[usize], device: &str, time: Duration, dir: &Path) -> Result<()> {
    if threads.contains(&0) {
        return Err("--threads: a load needs at least one thread".into());
    }
    let model = Model::kept(device)?;
    println!("{device}, {rounds} rounds of {} ms; us of a commit and of a sync\n", time.as_millis());
    println!(
        "| load | threads | syncs/s | of a commit | delay | locked | materialise | log | flush | sync |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    for (name, load) in LOADS {
        for count in threads {
            let mut columns: [Series; 8] = Default::default();
            for _ in 0..rounds {
                let Round { syncs, time, in_syncs, journal: [before, after] } =
                    round(load, *count, model, time, dir)?;
                let commits = (after.commits - before.commits) as f64;
                let us = |before: u64, after: u64| (after - before) as f64 / commits / 1e3;
                let figures = [
                    syncs as f64 / time.as_secs_f64(),
                    syncs as f64 / commits,
                    us(before.request_delay_ns, after.request_delay_ns),
                    us(before.locked_ns, after.locked_ns),
                    us(before.materialise_ns, after.materialise_ns),
                    us(before.logging_ns, after.logging_ns),
                    us(before.flushing_ns, after.flushing_ns),
                    in_syncs.as_secs_f64() * 1e6 / syncs as f64,
                ];
                columns.iter_mut().zip(figures).for_each(|(column, figure)| column.push(figure));
            }
            let cells: Vec<_> = columns
                .iter()
                .zip([0, 1, 0, 0, 0, 0, 0, 0])
                .map(|(column, places)| column.cell(1.0, places))
                .collect();
            println!("| {name} | {count} | {} |", cells.join(" | "));
        }
    }
    Ok(())
}

fn round(load: Load, threads: usize, model: Model, time: Duration, dir: &Path) -> Result<Round> {
    let scratch = Scratch::new(dir)?;
    let inner = FileDevice::open(scratch.image("image")?, DeviceAccess::read_write())?;
    let fs = Mount::new().open_device(Arc::new(ModelledDevice::new(inner, model)))?;
    for thread in 0..threads {
        fs.create_dir(format!("/{thread}"))?;
    }
    fs.sync()?;
    let statistics = || fs.journal_statistics().ok_or("the disk has no journal");
    let before = statistics()?;
    let start = Instant::now();
    let done: Vec<Result<(u64, Duration)>> = std::thread::scope(|scope| {
        let fs = &fs;
        let run = |thread| scope.spawn(move || work(fs, load, thread, start + time));
        let threads: Vec<_> = (0..threads).map(run).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or(Err("a thread panicked".into()))).collect()
    });
    let time = start.elapsed();
    let journal = [before, statistics()?];
    fs.unmount()?;
    let (mut syncs, mut in_syncs) = (0, Duration::ZERO);
    for done in done {
        let (count, time) = done?;
        syncs += count;
        in_syncs += time;
    }
    Ok(Round { syncs, time, in_syncs, journal })
}

/// One thread's syncs until `end`, and their time.
fn work(fs: &Filesystem, load: Load, thread: usize, end: Instant) -> Result<(u64, Duration)> {
    let (mut count, mut in_syncs) = (0, Duration::ZERO);
    let mut random = Random::new(thread as u64);
    let create = |path: &str| fs.options().write(true).create(true).truncate(true).open(path);
    let mut file = create(&format!("/{thread}/file"))?;
    while Instant::now() < end {
        let (arriving, arrived) = (format!("/{thread}/new-{count}"), format!("/{thread}/mail-{count}"));
        if load == Load::Mails {
            file = create(&arriving)?;
            file.write_all_at(&[5; BLOCK], 0)?;
        } else {
            file.write_all_at(&[5; BLOCK], count % BLOCKS * BLOCK as u64)?;
        }
        let began = Instant::now();
        file.sync_all()?;
        in_syncs += began.elapsed();
        match load {
            Load::Mails => fs.rename(&arriving, &arrived)?,
            Load::AppendsBesideWork => {
                std::thread::sleep(Duration::from_micros(random.below(OTHER_WORK_MAX_US)));
            }
            Load::Appends => {}
        }
        count += 1;
        if load != Load::Mails && count % BLOCKS == 0 {
            file.set_len(0)?;
        }
    }
    Ok((count, in_syncs))
}
