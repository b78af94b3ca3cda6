//! Crashes of the host in the middle of writes.

use std::collections::BTreeSet;

use extant_block::{BlockDevice, Mutation, Recorder, Tearing};
use extant_rt::Arc;

use super::common::{Random, in_memory, qemu_img, rounds, run, seed};

const DISK_BYTES: u64 = 1 << 20;
const FILE_BYTES: u64 = 4 << 20;
const SECTOR: u64 = 512;

/// What each sector of the disk may be: a number for what was written there, 0 for zeroes.
type Sectors = Vec<BTreeSet<u8>>;

/// The first crash after which the image is damaged or a sector is none of what it may be; with how many crashes were looked at.
fn find_loss(options: &str, seed: u64, mutation: Mutation) -> (Option<String>, u64) {
    let mut random = Random(seed);
    let dir = tempfile::tempdir().expect("a directory");
    let arguments = ["create", "-q", "-f", "qcow2", "-o", options, "a.qcow2", &DISK_BYTES.to_string()];
    qemu_img(dir.path(), &arguments);
    let recorder = Arc::new(Recorder::over(in_memory(&dir.path().join("a.qcow2"), FILE_BYTES)));
    recorder.set_mutation(mutation);
    // After each number of events what the sectors may be.
    let mut histories: Vec<(usize, Sectors)> = Vec::new();
    let mut may_be: Sectors = vec![BTreeSet::from([0]); (DISK_BYTES / SECTOR) as usize];
    let image = extant_diskimage::open(std::path::Path::new(""), recorder.clone(), &[]).expect("an image");
    let device = &image.device;
    let mut latest = vec![0u8; may_be.len()];
    for step in 0..60u8 {
        let len = random.below(40) + 1;
        let start = random.below(may_be.len() as u64 - len);
        let sectors = start as usize..(start + len) as usize;
        let value = step % 250 + 1;
        match random.below(6) {
            0 => {
                device.flush().expect("a flush");
                may_be = latest.iter().map(|value| BTreeSet::from([*value])).collect();
            }
            kind => {
                let value = if kind == 1 { 0 } else { value };
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
    let log = recorder.log();
    let mut cursor = log.cursor();
    let mut crashes = 0;
    for events in 0..=log.events().len() {
        cursor.advance_to(events).expect("a place");
        // The events of a request lie between two histories: during a flush what was before it may still be.
        let during = histories.partition_point(|(count, _)| *count < events).saturating_sub(1);
        let allowed: Vec<&Sectors> = histories[during..].iter().take(2).map(|(_, sectors)| sectors).collect();
        for choice in 0..2 {
            let keep = random.below(4);
            let survives =
                |_: &_| choice == 0 && random.below(4) > keep || choice == 1 && random.below(2) == 0;
            let crashed = cursor.crash_image(Tearing::Sectors, survives).expect("a crash");
            crashes += 1;
            if let Some(loss) = loss(&crashed, &allowed) {
                return (Some(format!("after {events} events: {loss}")), crashes);
            }
            if crashes % 40 == 0
                && let Some(damage) = qemu_finds(dir.path(), &crashed)
            {
                return (Some(format!("after {events} events: {damage}")), crashes);
            }
        }
    }
    (None, crashes)
}

fn loss(crashed: &extant_block::MemoryDevice, allowed: &[&Sectors]) -> Option<String> {
    let file = Arc::new(crashed.snapshot());
    let image = match extant_diskimage::open(std::path::Path::new(""), file, &[]) {
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
fn qemu_finds(dir: &std::path::Path, crashed: &extant_block::MemoryDevice) -> Option<String> {
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
    for round in 0..rounds(2) {
        for options in
            ["cluster_size=512", "cluster_size=4096", "cluster_size=65536", "compat=0.10,cluster_size=2048"]
        {
            let (loss, crashes) = find_loss(options, seed + round + 1, Mutation::None);
            assert_eq!(loss, None, "{options}, round {round}");
            assert!(crashes > 100, "{options}: {crashes}");
        }
    }
}

#[test]
fn crash_after_flushes_that_do_nothing_is_found() {
    let seed = seed("crash mutation");
    let found = (1..9)
        .filter(|round| find_loss("cluster_size=4096", seed + round, Mutation::DropAllFlushes).0.is_some());
    assert!(found.count() > 4);
}
