//! Damaged logs: recovery answers, whatever the bytes.

mod common;

use common::{PlainClient, format_log};
use extant_block::{BlockDevice, MemoryDevice, Model, ModelledDevice};
use extant_journal::{Journal, LogMap, Options, recovery};
use extant_ondisk::FsBlock;
use extant_rt::Arc;
use extant_testing::Random;

const BLOCK: u32 = 1024;
const LOG: u64 = 1;
const LOG_LEN: u32 = 60;
const HOME: u64 = 70;
const BLOCKS: u64 = 128;

/// A log of some transactions with revokes, not closed; wrapped or not.
fn dirty_log(rng: &mut Random, checksums: bool) -> (MemoryDevice, LogMap) {
    let device = Arc::new(MemoryDevice::new(BLOCKS * u64::from(BLOCK)));
    let map = format_log(&*device, BLOCK, LOG, LOG_LEN);
    let options = Options { checksums, block_numbers_64bit: rng.one_in(2), ..Options::default() };
    let journal = Journal::open(device.clone(), device.clone(), BLOCK, map.clone(), options).expect("open");
    let client = PlainClient::attach(&journal);
    for _ in 0..rng.below(20) + 1 {
        let handle = journal.start(4).expect("start");
        for _ in 0..rng.below(4) {
            let block = HOME + rng.below(20);
            if rng.one_in(5) {
                handle.revoke(FsBlock(block));
            } else {
                client.change(block, &rng.bytes(BLOCK as usize));
            }
        }
        handle.finish();
        journal.commit_running().expect("commit");
    }
    (device.snapshot(), map)
}

fn damage(device: &MemoryDevice, rng: &mut Random) {
    for _ in 0..1 + rng.below(3) {
        let block = if rng.one_in(3) { LOG } else { LOG + rng.below(u64::from(LOG_LEN)) };
        // Headers, tags and the superblock's fields are at the front.
        let within = if rng.one_in(4) { rng.below(u64::from(BLOCK)) } else { rng.below(0x60) };
        let value = match rng.below(4) {
            0 => vec![0xFF; 4],
            1 => vec![0, 0, 0, rng.below(8) as u8],
            2 => vec![rng.next() as u8],
            _ => rng.bytes(4),
        };
        let offset = block * u64::from(BLOCK) + within.min(u64::from(BLOCK) - 4);
        device.write_at(offset, &value).expect("damage");
    }
}

#[test]
fn damaged_logs_never_panic_and_never_leave_the_file_system() {
    let (mut replayed, mut refused) = (0, 0);
    // What is read ahead of a device that takes time changes nothing.
    let model = Model::kept("pmem").expect("a model");
    for seed in 0..60 {
        let mut rng = Random::new(seed);
        let (sound, map) = dirty_log(&mut rng, seed % 3 == 0);
        for _ in 0..200 {
            let device = sound.snapshot();
            damage(&device, &mut rng);
            let found = recovery::replay(&device, &map, BLOCK, BLOCKS);
            let read_ahead = recovery::replay(&ModelledDevice::new(&device, model), &map, BLOCK, BLOCKS);
            match (&found, &read_ahead) {
                (Ok(found), Ok(read_ahead)) => {
                    assert!(found.blocks == read_ahead.blocks, "seed {seed}");
                    assert_eq!(
                        format!("{:?}", found.report),
                        format!("{:?}", read_ahead.report),
                        "seed {seed}"
                    );
                }
                (Err(found), Err(read_ahead)) => assert_eq!(found.to_string(), read_ahead.to_string()),
                _ => panic!("seed {seed}: {:?} and {:?}", found.is_ok(), read_ahead.is_ok()),
            }
            match found {
                Ok(replay) => {
                    replayed += 1;
                    assert!(replay.blocks.keys().all(|block| block.0 < BLOCKS), "seed {seed}");
                    assert!(replay.blocks.len() <= LOG_LEN as usize, "seed {seed}");
                    replay.checkpoint(&device, &device, &map).expect("checkpoint");
                    let device: Arc<dyn BlockDevice> = Arc::new(device);
                    // Whatever recovery accepted, opening may only refuse.
                    let _ = Journal::open(device.clone(), device, BLOCK, map.clone(), Options::default());
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(replayed > 1000 && refused > 1000, "{replayed} replayed, {refused} refused");
}

#[test]
fn no_flipped_bit_of_a_checksummed_log_gives_other_content() {
    for seed in 0..30 {
        let mut rng = Random::new(seed);
        let (sound, map) = dirty_log(&mut rng, true);
        let expected = recovery::replay(&sound, &map, BLOCK, BLOCKS).expect("replay");
        for _ in 0..100 {
            let device = sound.snapshot();
            let bit = rng.below(u64::from(LOG_LEN) * u64::from(BLOCK) * 8);
            let mut byte = [0];
            let offset = LOG * u64::from(BLOCK) + bit / 8;
            device.read_at(offset, &mut byte).expect("read");
            device.write_at(offset, &[byte[0] ^ 1 << (bit % 8)]).expect("write");
            // Either it is refused, or the log ends early, or the bit was not in use. Copies of complete
            // transactions are never another content than they were.
            if let Ok(found) = recovery::replay(&device, &map, BLOCK, BLOCKS)
                && found.report.transactions == expected.report.transactions
            {
                assert_eq!(found.blocks, expected.blocks, "seed {seed}, bit {bit}");
            }
        }
    }
}

#[test]
fn a_log_of_nothing_but_descriptors_ends() {
    let (device, map) = dirty_log(&mut Random::new(1), false);
    let mut descriptor = vec![0; BLOCK as usize];
    // SAME_UUID everywhere and no last tag: the most tags a block can name.
    descriptor.fill(2);
    descriptor[..12].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 1, 0, 0, 0, 1]);
    for block in 1..u64::from(LOG_LEN) {
        device.write_at((LOG + block) * u64::from(BLOCK), &descriptor).expect("write");
    }
    if let Ok(replay) = recovery::replay(&device, &map, BLOCK, BLOCKS) {
        assert_eq!(replay.report.transactions, 0);
    }
}
