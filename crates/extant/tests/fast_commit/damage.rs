//! Records that say anything, under right checksums.

use extant::Mount;
use extant_block::{BlockDevice, MemoryDevice};
use extant_ondisk::crc32c;
use extant_ondisk::fast_commit::{Record, Tag};
use extant_rt::Arc;
use extant_testing::{Random, crash_scale};

use crate::crash::crashed_disk;

const BLOCK: usize = 4096;

fn read(device: &MemoryDevice, at: usize) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    device.read_at((at * BLOCK) as u64, &mut block).expect("read");
    block
}

/// The blocks of the area in use: those that begin with its HEAD and what follows.
fn area(device: &MemoryDevice) -> Vec<usize> {
    let starts_with = |at: usize, tag: Tag| Record::at(&read(device, at), 0).is_some_and(|r| r.tag == tag);
    let blocks = device.size() as usize / BLOCK;
    let head = (0..blocks).find(|at| starts_with(*at, Tag::Head)).expect("an area");
    (head..blocks).take_while(|at| Record::at(&read(device, *at), 0).is_some()).collect()
}

/// Changes a byte of a value, and sums the fast commits anew.
fn damage(device: &MemoryDevice, area: &[usize], random: &mut Random) -> String {
    let chosen = random.below(area.len() as u64) as usize;
    let mut what = String::new();
    let mut sum = 0;
    for (index, at) in area.iter().enumerate() {
        let mut block = read(device, *at);
        let mut records = Vec::new();
        let mut from = 0;
        while let Some(record) = Record::at(&block, from) {
            records.push((from, record.tag, record.bytes.len()));
            from += record.bytes.len();
        }
        let values: Vec<_> =
            records.iter().filter(|record| !matches!(record.1, Tag::Head | Tag::Tail | Tag::Pad)).collect();
        if index == chosen
            && let Some((from, tag, len)) = values.get(random.below(values.len().max(1) as u64) as usize)
        {
            // The numbers come first, and matter most.
            let len = *len as u64 - 4;
            let end = if random.below(2) == 0 { len.min(16) } else { len };
            let within = 4 + random.below(end) as usize;
            let byte = [0, 1, 0xFF, random.below(256) as u8][random.below(4) as usize];
            what = format!("{tag:?}, byte {within}: {} becomes {byte}", block[from + within]);
            block[from + within] = byte;
        }
        for (from, tag, len) in &records {
            if *tag == Tag::Tail {
                sum = crc32c(sum, &block[*from..from + 8]);
                block[from + 8..from + 12].copy_from_slice(&sum.to_le_bytes());
                sum = 0;
            } else {
                sum = crc32c(sum, &block[*from..from + len]);
            }
        }
        device.write_at((at * BLOCK) as u64, &block).expect("write");
    }
    what
}

#[test]
fn records_that_say_anything_are_replayed_or_refused() {
    let (mut replayed, mut refused) = (0, 0);
    for seed in 0..4 {
        let Some(crashed) = crashed_disk(seed) else { return };
        let area = area(&crashed);
        let mut random = Random::new(seed);
        for _ in 0..50 * crash_scale() {
            let device = crashed.snapshot();
            let mut what = String::new();
            for _ in 0..1 + random.below(3) {
                what += &damage(&device, &area, &mut random);
            }
            let before = device.snapshot();
            let device = Arc::new(device);
            match Mount::new().background(false).open_device(device.clone()) {
                Ok(fs) => {
                    replayed += 1;
                    let _ = fs.unmount();
                }
                Err(error) => {
                    refused += 1;
                    assert!(!error.to_string().is_empty());
                    // Nothing is lost: without the damage, all is there.
                    for at in &area {
                        assert!(read(&device, *at) == read(&before, *at), "{what}: {error}");
                    }
                }
            }
        }
    }
    println!("{replayed} replayed, {refused} refused");
    assert!(replayed > 20 && refused > 20);
}
