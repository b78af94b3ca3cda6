//! Crashes of the host in the middle of writes.

use std::collections::BTreeSet;
use std::path::Path;

use extant_block::{BlockDevice, Event, Log, Mutation, Recorder, Tearing};
use extant_rt::Arc;
use extant_testing::scratch;

use super::common::{Random, in_memory, qemu_img, rounds, run, seed};

const DISK_BYTES: u64 = 1 << 20;
const FILE_BYTES: u64 = 4 << 20;
const SECTOR: u64 = 512;
/// What the first half of the disk has.
const FIRST: u8 = 255;

/// The flushes of a commit are for content, for tables where there are new ones, and for all: no refcount block is added.
const ONE_REFCOUNT_BLOCK: &str = "cluster_size=1024,refcount_bits=2";
const LAYOUTS: [&str; 4] =
    ["cluster_size=512", "cluster_size=4096", "cluster_size=65536", "compat=0.10,cluster_size=2048"];

/// What each sector of the disk may be: a number for what was written there, 0 for zeroes.
type Sectors = Vec<BTreeSet<u8>>;

/// A run of random requests, and what may be on the disk after each number of events.
struct Recording {
    dir: tempfile::TempDir,
    log: Log,
    histories: Vec<(usize, Sectors)>,
}

fn record(options: &str, seed: u64, mutation: Mutation) -> Recording {
    let mut random = Random(seed);
    let dir = scratch();
    // The first half of the disk has content that a snapshot shares.
    let mut latest = vec![0u8; (DISK_BYTES / SECTOR) as usize];
    latest[..(DISK_BYTES / SECTOR / 2) as usize].fill(FIRST);
    let content: Vec<u8> = latest.iter().flat_map(|value| [*value; SECTOR as usize]).collect();
    std::fs::write(dir.path().join("a.raw"), content).expect("the content");
    qemu_img(dir.path(), &["convert", "-f", "raw", "-O", "qcow2", "-o", options, "a.raw", "a.qcow2"]);
    qemu_img(dir.path(), &["snapshot", "-c", "s", "a.qcow2"]);
    let recorder = Arc::new(Recorder::over(in_memory(&dir.path().join("a.qcow2"), FILE_BYTES)));
    recorder.set_mutation(mutation);
    let mut histories: Vec<(usize, Sectors)> = Vec::new();
    let mut may_be: Sectors = latest.iter().map(|value| BTreeSet::from([*value])).collect();
    let image = extant_diskimage::open(Path::new(""), recorder.clone(), &[]).expect("an image");
    let device = &image.device;
    for step in 0..60u8 {
        let len = random.below(40) + 1;
        let start = random.below(may_be.len() as u64 - len);
        let sectors = start as usize..(start + len) as usize;
        match random.below(6) {
            0 => {
                recorder.mark(u64::from(step));
                device.flush().expect("a flush");
                recorder.mark(u64::from(step));
                may_be = latest.iter().map(|value| BTreeSet::from([*value])).collect();
            }
            kind => {
                let value = if kind == 1 { 0 } else { step + 1 };
                // A crash during the request may leave either.
                for sector in &mut may_be[sectors.clone()] {
                    sector.insert(value);
                }
                histories.push((recorder.event_count(), may_be.clone()));
                let (offset, bytes) = (start * SECTOR, len * SECTOR);
                match kind {
                    1 => device.write_zeroes(offset, bytes).expect("zeroes"),
                    _ => device.write_at(offset, &vec![value; bytes as usize]).expect("a write"),
                }
                latest[sectors].fill(value);
            }
        }
        histories.push((recorder.event_count(), may_be.clone()));
    }
    drop(image);
    Recording { dir, log: recorder.log(), histories }
}

impl Recording {
    /// The first crash after which the image is damaged or a sector is none of what it may be; with how many crashes were looked at.
    fn find_loss(&self, random: &mut Random) -> (Option<String>, u64) {
        let mut cursor = self.log.cursor();
        let mut crashes = 0;
        for events in 0..=self.log.events().len() {
            cursor.advance_to(events).expect("a place");
            // The events of a request lie between two histories: during a flush what was before it may still be.
            let during = self.histories.partition_point(|(count, _)| *count < events).saturating_sub(1);
            let allowed: Vec<&Sectors> =
                self.histories[during..].iter().take(2).map(|(_, sectors)| sectors).collect();
            for choice in 0..2 {
                let keep = random.below(4);
                let survives =
                    |_: &_| choice == 0 && random.below(4) > keep || choice == 1 && random.below(2) == 0;
                let crashed = cursor.crash_image(Tearing::Sectors, survives).expect("a crash");
                crashes += 1;
                let loss = loss(&crashed, &allowed);
                let damage = || if crashes % 40 == 0 { qemu_finds(self.dir.path(), &crashed) } else { None };
                if let Some(loss) = loss.or_else(damage) {
                    return (Some(format!("after {events} events: {loss}")), crashes);
                }
            }
        }
        (None, crashes)
    }

    /// What each flush makes durable, in order: data and refcounts, tables, or all.
    fn flushes(&self) -> Vec<Durable> {
        let mut kinds = Vec::new();
        let mut since_mark = 0;
        for event in self.log.events() {
            match event {
                Event::Flush => since_mark += 1,
                Event::Mark(_) => {
                    kinds.extend(match since_mark {
                        0 => &[][..],
                        1 => &[Durable::All],
                        2 => &[Durable::Content, Durable::All],
                        _ => &[Durable::Content, Durable::Tables, Durable::All],
                    });
                    since_mark = 0;
                }
                _ => {}
            }
        }
        kinds
    }
}

/// What a flush is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durable {
    /// Before the tables that refer to it are written.
    Content,
    /// Before the table that refers to them is written.
    Tables,
    /// Before the caller's flush returns.
    All,
}

fn loss(crashed: &extant_block::MemoryDevice, allowed: &[&Sectors]) -> Option<String> {
    let file = Arc::new(crashed.snapshot());
    let image = match extant_diskimage::open(Path::new(""), file, &[]) {
        Ok(image) => image,
        Err(error) => return Some(error.to_string()),
    };
    let mut found = vec![0; DISK_BYTES as usize];
    if let Err(error) = image.device.read_at(0, &mut found) {
        return Some(error.to_string());
    }
    for (number, sector) in found.chunks(SECTOR as usize).enumerate() {
        let is_whole = sector.iter().all(|byte| *byte == sector[0]);
        if !is_whole || !allowed.iter().any(|may_be| may_be[number].contains(&sector[0])) {
            return Some(format!("sector {number} is {}", sector[0]));
        }
    }
    None
}

/// What QEMU finds; leaked clusters are none of it.
fn qemu_finds(dir: &Path, crashed: &extant_block::MemoryDevice) -> Option<String> {
    let mut bytes = vec![0; FILE_BYTES as usize];
    crashed.read_at(0, &mut bytes).expect("a read");
    std::fs::write(dir.join("crashed.qcow2"), bytes).expect("a write");
    let output = run("qemu-img", &["check", "-f", "qcow2", "crashed.qcow2"], dir);
    let is_sound = matches!(output.status.code(), Some(0 | 3));
    (!is_sound).then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn crash_leaves_a_whole_image_with_all_that_was_flushed() {
    let seed = seed("crash");
    let mut all = 0;
    for round in 0..rounds(2) {
        for options in LAYOUTS {
            let seed = seed + round + 1;
            let (loss, crashes) = record(options, seed, Mutation::None).find_loss(&mut Random(seed));
            assert_eq!(loss, None, "{options}, round {round}");
            assert!(crashes > 100, "{options}: {crashes}");
            all += crashes;
        }
    }
    println!("{all} crashes");
}

#[test]
fn each_flush_that_is_left_out_is_found() {
    let seed = seed("crash without a flush");
    for kind in [Durable::Content, Durable::Tables, Durable::All] {
        let is_found = (1..20).any(|round| {
            let seed = seed + round;
            let flushes = record(ONE_REFCOUNT_BLOCK, seed, Mutation::None).flushes();
            let mut of_kind = (0..).zip(flushes).filter(|(_, found)| *found == kind).map(|(index, _)| index);
            of_kind.any(|index| {
                let recording = record(ONE_REFCOUNT_BLOCK, seed, Mutation::DropFlush(index));
                recording.find_loss(&mut Random(seed)).0.is_some()
            })
        });
        assert!(is_found, "{kind:?}");
    }
}
