//! Many files that grow at once: locks of groups and groups looked at for each append.

use extant_alloc::{MballocStatistics, Tuning};
use extant_ondisk::InodeNumber;
use extant_rt::{Arc, AtomicUsize, Ordering, yield_now};

use super::disk::{assert_clean, format, has_e2fsprogs, has_threads};
use super::names::new;
use crate::file::fallocate::Fallocate;
use crate::mount::Options;
use crate::mount::Volume;
use crate::namespace::NewKind;

const WRITERS: usize = 16;
const APPENDS: u64 = 1024;
const APPEND_BYTES: u64 = 8 << 10;
const FILE_BYTES: u64 = 1 << 20;

/// The cost of each append: locks of groups taken, and groups examined by searches.
struct Cost {
    locks: f64,
    considered: f64,
}

/// Threads, each in its own directory, allocate 8 KiB at the end of a file again and again, cut it at 1 MiB and go on. They come in
/// turns, so that what they cost depends on no scheduler.
fn cost_of_an_append(tuning: Tuning) -> Cost {
    let device = Arc::new(format(&["-b", "4096", "-g", "4096", "-J", "size=16"], 1 << 19, &[]).0);
    let options = Options { background: false, tuning, ..Options::default() };
    let volume = Volume::mount(device.clone(), &options).expect("a clean disk").0;
    let root = volume.inode(InodeNumber::ROOT).expect("the root");
    let make = |index: usize| {
        volume.create(&root, format!("d{index}").as_bytes(), &new(NewKind::Directory)).expect("a directory")
    };
    let dirs: Vec<_> = (0..WRITERS).map(make).collect();
    let before = volume.allocator.statistics();
    let turn = AtomicUsize::new(0);
    extant_rt::parallel(WRITERS, |thread| {
        let file = volume.create(&dirs[thread], b"file", &new(NewKind::File)).expect("a file");
        for append in 0..APPENDS {
            while turn.load(Ordering::Acquire) % WRITERS != thread {
                yield_now();
            }
            let at = append * APPEND_BYTES % FILE_BYTES;
            if at == 0 {
                volume.set_size(&file, 0).expect("cut");
            }
            let grow = Fallocate::Allocate { keep_size: false };
            volume.fallocate(&file, grow, at, APPEND_BYTES, true).expect("room");
            turn.fetch_add(1, Ordering::Release);
        }
    });
    let after = volume.allocator.statistics();
    drop((root, dirs));
    volume.unmount().expect("unmounted");
    assert_clean(&*device, "appended by many");
    let per_append = |count: &dyn Fn(&MballocStatistics) -> u64| {
        (count(&after) - count(&before)) as f64 / (WRITERS as u64 * APPENDS) as f64
    };
    Cost {
        locks: per_append(&|statistics| statistics.locks + statistics.other_locks),
        considered: per_append(&|statistics| statistics.at_goal + statistics.considered.iter().sum::<u64>()),
    }
}

#[test]
fn an_append_takes_one_lock_of_a_group_and_looks_at_hardly_any() {
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    let cost = cost_of_an_append(Tuning::default());
    let searching = cost_of_an_append(Tuning { group_prealloc: 0, ..Tuning::default() });
    println!("{:.3} locks and {:.3} groups for each append", cost.locks, cost.considered);
    println!("without chunks {:.3} locks and {:.3} groups", searching.locks, searching.considered);
    // One to mark the blocks; searches for chunks, and cuts that free them, serve many appends.
    assert!(cost.locks <= 1.05 && cost.considered <= 0.05);
    assert!(searching.locks >= 2.0, "an append does not need a search anyway");
}
