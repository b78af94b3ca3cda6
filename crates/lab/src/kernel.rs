//! What Linux's ext4 takes for an operation, lock by lock and line by line, on virtual CPUs: for figures of loads whose cost is that of the
//! kernel's VFS, page cache and journal, which the engine does not have.
//!
//! Leaves out: what a CPU has for itself, which is in the computation; sleeping, so that a lock goes to the next CPU at once; writeback, commits
//! and the device.
//!
//! Source: Linux 4.9 to 4.11, the functions that the table names.
//! Test: `tests/reproduction.rs`.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use extant_loads::{Random, mix};
use extant_rt::{AtomicU64, LockClass, Monotonic, Mutex, Ordering, Padded, count_anew, work};

use crate::machine::Model;
use crate::run::{LockShare, on_each};

use Line::{Freed, Journal, LastInode, NextOrphan, Page, PreviousOrphan, RawInode, Superblock, Transaction};
use Lock::{IRwsem, InodeHash, InodeList, Md, NextGeneration, Orphans, Rename};
use Place::{All, Own};
use Touch::{Change, Compute, Locked, Read, Start, Stop};

/// A part of an operation.
#[derive(Clone, Copy, Debug)]
enum Touch {
    Read(Place, Line),
    Change(Place, Line),
    /// Does something with a lock held.
    Locked(Place, Lock, &'static [Self]),
    /// A handle of the journal, if there is one: `start_this_handle`.
    Start,
    /// `jbd2_journal_stop`.
    Stop,
    /// All that an operation does beside its touches.
    Compute,
}

/// Whether each CPU has one of its own, or all have the same.
#[derive(Clone, Copy, Debug)]
enum Place {
    Own,
    All,
}

/// Cache lines that an operation changes, or reads while others change them.
#[derive(Clone, Copy, Debug)]
enum Line {
    /// `struct page`: its flags and its reference count.
    Page,
    /// The first of `journal_t`: `j_flags` and `j_state_lock`.
    Journal,
    /// That of `transaction_t` with `t_updates` and `t_outstanding_credits`.
    Transaction,
    /// `s_last_orphan`, in the block of the superblock.
    Superblock,
    /// The inodes beside one on the list of orphans.
    PreviousOrphan,
    NextOrphan,
    /// The first of them in its block.
    RawInode,
    /// The tail of the transaction's list of freed extents.
    Freed,
    /// The inode that was made last, on the superblock's list.
    LastInode,
}

/// Lines, in the order of [`Line`].
type Lines = [Padded<AtomicU64>; 9];

#[derive(Clone, Copy, Debug)]
enum Lock {
    Rename,
    IRwsem,
    Orphans,
    Md,
    InodeList,
    InodeHash,
    NextGeneration,
}

/// In the order of [`Lock`], outer ones first.
static CLASSES: [LockClass; 7] = [
    LockClass { name: "s_vfs_rename_mutex", rank: 1 },
    LockClass { name: "i_rwsem", rank: 2 },
    LockClass { name: "s_orphan_lock", rank: 3 },
    LockClass { name: "s_md_lock", rank: 4 },
    LockClass { name: "s_inode_list_lock", rank: 5 },
    LockClass { name: "inode_hash_lock", rank: 6 },
    LockClass { name: "s_next_gen_lock", rank: 7 },
];

type Locks = [Padded<Mutex<()>>; CLASSES.len()];

/// The journal is looked at for whether it was aborted (`ext4_journal_check_start`), its state is locked to read, credits are added, then the
/// handle is counted, and the lock is released. What follows one on the other on a line is one change, as in the machines' `handle`.
const START: [Touch; 5] = [
    Read(All, Journal),
    Change(All, Journal),
    Change(All, Transaction),
    Change(All, Transaction),
    Change(All, Journal),
];
/// `is_handle_aborted`, whether the transaction has handles, and this one leaves it.
const STOP: [Touch; 3] = [Read(All, Journal), Read(All, Transaction), Change(All, Transaction)];

/// `find_get_entry` reads the count and then changes it (`get_page_unless_zero`); so does `put_page` after the copy (`compound_head`).
const fn read(place: Place) -> [Touch; 5] {
    [Read(place, Page), Change(place, Page), Compute, Read(place, Page), Change(place, Page)]
}

/// `ext4_da_write_begin` to `ext4_da_write_end`, with the inode locked (`ext4_file_write_iter`).
const WRITE: &[Touch] = &[Start, Compute, Stop];

/// `ext4_setattr`, and `ext4_truncate` with `ext4_free_blocks`. The list's head and the inodes beside this one are those of other CPUs;
/// taking one off changes the one before it in its block, as the list on disk is linked one way.
const TRUNCATE: &[Touch] = &[
    Start,
    Locked(All, Orphans, &[Change(All, Superblock), Change(All, NextOrphan)]),
    Stop,
    Start,
    Compute,
    Locked(All, Md, &[Change(All, Freed)]),
    Locked(All, Orphans, &[Change(All, PreviousOrphan), Change(All, NextOrphan), Change(All, RawInode)]),
    Stop,
];

/// `inode_sb_list_add`, `insert_inode_locked`, and the inode's generation.
const CREATE: &[Touch] = &[
    Locked(All, InodeList, &[Change(All, LastInode)]),
    Start,
    Compute,
    Locked(All, InodeHash, &[]),
    Locked(All, NextGeneration, &[]),
    Stop,
];

/// What operations take, by the names of FxMark's loads.
static OPERATIONS: [(&str, &[Touch]); 11] = [
    ("drbl", &read(Own)),
    ("drbm", &read(Own)),
    ("drbh", &read(All)),
    ("dwol", &[Locked(Own, IRwsem, WRITE)]),
    ("dwom", &[Locked(All, IRwsem, WRITE)]),
    ("dwal", &[Locked(Own, IRwsem, WRITE)]),
    ("dwtl", &[Locked(Own, IRwsem, TRUNCATE)]),
    ("mwcl", &[Locked(Own, IRwsem, CREATE)]),
    // `lock_rename`.
    ("mwrm", &[Locked(All, Rename, &[Locked(All, IRwsem, WRITE)])]),
    // `ext4_orphan_del` of an inode that is on no list.
    ("fchown", &[Compute, Locked(All, Orphans, &[])]),
    ("fchown-patched", &[Compute]),
];

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    pub operation: &'a str,
    pub journal: bool,
    pub cpus: usize,
    /// See [`Compute`].
    pub compute: Duration,
    /// So long it warms up, and so long again it is measured.
    pub time: Duration,
    /// By which CPUs begin at times of their own, in the first half of the warm-up.
    pub seed: u64,
}

/// What a run showed.
#[derive(Debug)]
pub struct Run {
    /// Operations per second of all CPUs.
    pub per_second: f64,
    /// By lock class, per operation.
    pub locks: BTreeMap<String, LockShare>,
}

/// What CPUs have in common, or one for itself.
struct Objects {
    lines: Lines,
    locks: Locks,
}

impl Default for Objects {
    fn default() -> Self {
        let locks = std::array::from_fn(|lock| Padded(Mutex::new(&CLASSES[lock], ())));
        Self { lines: Lines::default(), locks }
    }
}

struct Cpu<'a> {
    common: &'a Objects,
    own: Objects,
    journal: bool,
    compute: Duration,
}

impl Cpu<'_> {
    fn objects(&self, place: Place) -> &Objects {
        match place {
            Own => &self.own,
            All => self.common,
        }
    }

    fn does(&self, touches: &[Touch]) {
        for touch in touches {
            match *touch {
                Read(place, line) => {
                    self.objects(place).lines[line as usize].load(Ordering::Relaxed);
                }
                Change(place, line) => {
                    self.objects(place).lines[line as usize].fetch_add(1, Ordering::Relaxed);
                }
                Locked(place, lock, touches) => {
                    let _held = self.objects(place).locks[lock as usize].lock();
                    self.does(touches);
                }
                Start if self.journal => self.does(&START),
                Stop if self.journal => self.does(&STOP),
                Start | Stop => (),
                Compute => work(self.compute),
            }
        }
    }
}

/// The parts of an operation.
fn touches(operation: &str) -> Result<&'static [Touch], String> {
    let found = OPERATIONS.iter().find(|(name, _)| *name == operation);
    found.map(|(_, touches)| *touches).ok_or_else(|| format!("{operation}: no such operation of the kernel"))
}

/// What an operation takes on one CPU besides its computation, in nanoseconds.
///
/// # Errors
/// If there is no such operation.
pub fn charge_ns(operation: &str, journal: bool, model: &Model) -> Result<f64, Box<dyn Error>> {
    // An operation may have no touches, and then no time would go by without a computation.
    let compute = Duration::from_micros(1);
    let setup = Setup { operation, journal, cpus: 1, compute, time: 1000 * compute, seed: 0 };
    Ok(1e9 / run(setup, model)?.per_second - compute.as_nanos() as f64)
}

/// Runs it.
///
/// # Errors
/// If there is no such operation.
pub fn run(setup: Setup<'_>, model: &Model) -> Result<Run, Box<dyn Error>> {
    let Setup { journal, cpus, compute, time: half, seed, operation } = setup;
    let touches = touches(operation)?;
    let (common, is_counted) = (Objects::default(), Cell::new(false));
    let (done, report) = on_each(model, cpus, move |number| {
        let cpu = Cpu { common: &common, own: Objects::default(), journal, compute };
        let begin = Monotonic::now();
        work(Duration::from_nanos(
            Random::new(mix(seed) ^ number as u64).below(half.as_nanos() as u64 / 2 + 1),
        ));
        let mut measured = 0_u64;
        loop {
            cpu.does(touches);
            let now = begin.elapsed();
            if now >= half && !is_counted.replace(true) {
                count_anew();
            }
            if now >= 2 * half {
                return Ok(measured);
            }
            measured += u64::from(now >= half);
        }
    })?;
    let operations = done.iter().sum();
    let locks =
        report.locks.iter().map(|(class, counts)| ((*class).to_owned(), LockShare::of(counts, operations)));
    Ok(Run { per_second: operations as f64 / half.as_secs_f64(), locks: locks.collect() })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::published::{How, posts};

    #[test]
    fn each_operation_is_that_of_a_published_table() {
        let tables: Vec<_> = posts().expect("the data").into_iter().flat_map(|post| post.table).collect();
        let published = tables.iter().filter_map(|table| match table.how()? {
            How::Kernel(how, _) => Some(how.operation.as_str()),
            _ => None,
        });
        assert_eq!(
            published.collect::<BTreeSet<_>>(),
            OPERATIONS.iter().map(|(name, _)| *name).collect::<BTreeSet<_>>()
        );
    }
}
