//! Inodes: each is given out once, none is lost, and nobody is refused one that is there.

use std::sync::Mutex;

use extant_alloc::{Allocator, Error, InodeKind, LastGroup, Parent, Tuning};
use extant_ondisk::{GroupNumber, InodeNumber, TransactionId};
use extant_rt::{LockClass, RwLock, explore, parallel, yield_now};
use extant_testing::Random;

use crate::disk::{Disk, INODES_PER_GROUP};
use crate::{SCHEDULES, plan};

const GROUPS: u32 = 4;
/// Reserved ones at the start of the disk.
const RESERVED: usize = 10;

struct Books {
    /// What each inode is in use as, from number 1.
    used: Vec<Option<InodeKind>>,
    /// Free, but for those that others may be about to get.
    certain: i64,
    /// For each task that allocates, the least of those since it began.
    least: Vec<Option<i64>>,
}

struct Stage {
    alloc: Allocator,
    /// Of two directories.
    last: [LastGroup; 2],
    books: Mutex<Books>,
    /// Stands in for the journal: handles hold it shared, a freeze alone.
    running: RwLock<TransactionId>,
    durable: extant_rt::Mutex<Disk>,
}

impl Books {
    fn expect(&mut self, inodes: i64) {
        self.certain += inodes;
        for least in self.least.iter_mut().flatten() {
            *least = self.certain.min(*least);
        }
    }
}

#[cfg(not(extant_linux_model))]
fn older(_: &mut Random, tuning: Tuning) -> Tuning {
    tuning
}

/// The same with a search of older kernels.
#[cfg(extant_linux_model)]
fn older(random: &mut Random, mut tuning: Tuning) -> Tuning {
    use extant_alloc::linux_model::InodeSearch;
    let searches = [InodeSearch::Hold, InodeSearch::Locked, InodeSearch::Recheck, InodeSearch::Repeat];
    tuning.linux_model.inode_search = searches[random.below(4) as usize];
    tuning
}

impl Stage {
    fn new(disk: &Disk, tasks: usize, random: &mut Random) -> Self {
        let used = vec![None; (GROUPS * INODES_PER_GROUP) as usize];
        let certain = (used.len() - RESERVED) as i64;
        let tuning = Tuning {
            reuse_inodes: random.below(2) == 0,
            spread_directories: random.below(2) == 0,
            ..Tuning::default()
        };
        let stage = Self {
            alloc: disk.open_with(0, older(random, tuning)),
            last: Default::default(),
            books: Mutex::new(Books { used, certain, least: vec![None; tasks] }),
            running: RwLock::new(LockClass::HANDLE, TransactionId(1)),
            durable: extant_rt::Mutex::new(LockClass::RENAME, disk.clone()),
        };
        let left = random.below(5);
        while stage.alloc.free_inodes() > left {
            stage.allocate(0, random);
        }
        stage
    }

    fn books(&self) -> std::sync::MutexGuard<'_, Books> {
        self.books.lock().expect("no task panicked with the books")
    }

    /// A task looks for an inode from now on.
    fn begin(&self, task: usize) {
        let mut books = self.books();
        books.expect(-1);
        books.least[task] = Some(books.certain);
    }

    fn allocate(&self, task: usize, random: &mut Random) {
        let kinds = [InodeKind::TopDirectory, InodeKind::Directory, InodeKind::Other, InodeKind::Other];
        let kind = kinds[random.below(4) as usize];
        let last = self.last.get(random.below(3) as usize);
        let group = GroupNumber(random.below(u64::from(GROUPS)) as u32);
        let parent = Parent { number: InodeNumber(random.below(3) as u32), group, last, is_shared: false };
        let tid = self.running.read();
        self.begin(task);
        let made = self.alloc.allocate_inode(*tid, parent, kind);
        let certain = self.books().least[task].take().expect("it began");
        match made {
            Ok(made) => {
                let place = made.number.0 as usize - 1;
                assert!(place >= RESERVED, "a reserved inode");
                let before = self.books().used[place].replace(kind);
                assert_eq!(before, None, "inode {} is given out twice", made.number);
            }
            Err(Error::NoInodes) => {
                assert!(certain < 0, "a false NoInodes: {certain} more were there");
                self.books().expect(1);
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn free(&self, random: &mut Random) {
        let tid = self.running.read();
        let (number, kind) = {
            let mut books = self.books();
            let used: Vec<_> = (0..books.used.len()).filter(|place| books.used[*place].is_some()).collect();
            let Some(last) = used.len().checked_sub(1) else { return };
            let place = used[random.below(last as u64 + 1) as usize];
            (InodeNumber(place as u32 + 1), books.used[place].take().expect("in use"))
        };
        self.alloc.free_inode(*tid, number, kind).expect("an inode in use");
        self.books().expect(1);
    }

    fn commit(&self) {
        let mut durable = self.durable.lock();
        let (tid, frozen) = {
            let mut running = self.running.write();
            let tid = *running;
            *running = tid.next();
            (tid, self.alloc.freeze(tid))
        };
        durable.write(&frozen);
        durable.check();
        self.alloc.committed(tid);
        let free: u64 = durable.descriptors.iter().map(|group| u64::from(group.free_inodes_count())).sum();
        assert_eq!(frozen.free_inodes, free, "the superblock and the descriptors");
    }

    fn task(&self, task: usize, random: &mut Random) {
        for _ in 0..3 + random.below(5) {
            match random.below(12) {
                0..4 => self.allocate(task, random),
                4..6 => self.free(random),
                // Free ones move from group to group while others look for them.
                6..10 => {
                    self.free(random);
                    yield_now();
                    self.allocate(task, random);
                }
                10 => self.commit(),
                _ => drop(self.alloc.is_inode_allocated(InodeNumber(1 + random.below(128) as u32))),
            }
        }
    }

    fn check(self) {
        self.commit();
        let books = self.books();
        for (place, used) in books.used.iter().enumerate() {
            let number = InodeNumber(place as u32 + 1);
            let is_used = self.alloc.is_inode_allocated(number).expect("a bitmap");
            assert_eq!(is_used, used.is_some() || place < RESERVED, "inode {number}");
        }
        let durable = self.durable.lock();
        for (group, used) in books.used.chunks(INODES_PER_GROUP as usize).enumerate() {
            let directories = used.iter().flatten().filter(|kind| **kind != InodeKind::Other).count();
            assert_eq!(durable.descriptors[group].used_dirs_count(), directories as u32, "group {group}");
        }
        let free = books.used.iter().skip(RESERVED).filter(|used| used.is_none()).count();
        assert_eq!(self.alloc.free_inodes(), free as u64);
        for left in (0..free).rev() {
            let made = self.alloc.allocate_inode(*self.running.read(), GroupNumber(0), InodeKind::Other);
            made.unwrap_or_else(|_| panic!("{} inodes are lost", left + 1));
        }
    }
}

#[test]
fn inodes_are_given_out_once_and_none_is_lost() {
    let disk = Disk::new(1 + 64 * u64::from(GROUPS), 64, true);
    explore(&plan::exploration(SCHEDULES), move |seed| {
        let mut random = Random::new(seed);
        let tasks = 2 + random.below(7) as usize;
        let stage = Stage::new(&disk, tasks, &mut random);
        let seeds: Vec<u64> = (0..tasks).map(|_| 1 + random.below(u64::MAX - 1)).collect();
        parallel(tasks, |task| stage.task(task, &mut Random::new(seeds[task])));
        stage.check();
    });
}
