//! Reservations alone: nobody is refused blocks that move from one thread's share to another's.

use extant_alloc::Error;
use extant_ondisk::TransactionId;
use extant_rt::{explore, parallel, yield_now};

use crate::blocks::{BLOCKS_PER_GROUP, fill};
use crate::disk::{Disk, Random};
use crate::ledger::Ledger;
use crate::{SCHEDULES, plan};

#[test]
fn nobody_is_refused_blocks_that_others_give_back() {
    let disk = Disk::new(1 + u64::from(BLOCKS_PER_GROUP), BLOCKS_PER_GROUP, true);
    explore(&plan::exploration(SCHEDULES), move |seed| {
        let mut random = Random(seed | 1);
        let (tasks, left, kept) = (3 + random.below(3) as usize, 2 + random.below(3), random.below(2) * 2);
        let mut disk = disk.clone();
        fill(&mut disk, left, &mut random);
        let ledger = Ledger::new(&disk, tasks, TransactionId(0));
        let alloc = disk.open_with(kept, Default::default());
        let seeds: Vec<u64> = (0..tasks).map(|_| 1 + random.below(u64::MAX - 1)).collect();
        parallel(tasks, |task| {
            let mut random = Random(seeds[task]);
            let mut held = None;
            for _ in 0..8 {
                if let Some((reservation, len)) = held.take() {
                    drop(reservation);
                    ledger.expect(len);
                    // Others may be sure of what came back.
                    yield_now();
                }
                let (len, privileged) = (1 + random.below(2) as i64, random.below(2) == 0);
                ledger.expect(-len);
                ledger.begin(task);
                let reserved = alloc.reserve(len as u64, privileged);
                let certain = ledger.end(task);
                match reserved {
                    Ok(reservation) => held = Some((reservation, len)),
                    Err(Error::NoSpace) => {
                        let kept = if privileged { 0 } else { kept as i64 };
                        assert!(certain < kept, "a false NoSpace: {len} wanted, {certain} more were there");
                        ledger.expect(len);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        });
        assert_eq!(alloc.free_blocks(), left);
    });
}
