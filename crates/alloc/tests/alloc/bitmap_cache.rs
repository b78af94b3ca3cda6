//! Bitmaps in memory: as many as there is room for and as are in use, and read again as they are on the disk.

use std::sync::{Arc, OnceLock};

use crate::disk::{Disk, Platter, request};
use extant_alloc::{Allocator, BoxError, ClusterRun, Error, GroupStore, MayUse, Tuning};
use extant_ondisk::{Geometry, GroupDescriptor, GroupNumber, TransactionId};

const TID: TransactionId = TransactionId(7);
const GROUPS: u32 = 32;
/// Of blocks of a kibibyte: a block bitmap with its buddy counts as three.
const BYTES_PER_GROUP: u64 = 3 << 10;
/// Commits after which what is not in use was looked for.
const COMMITS: u32 = 4;
/// Groups that there is room for.
const ROOM: u64 = 4;

fn disk() -> Disk {
    Disk::new(1 + 256 * u64::from(GROUPS), 256, false)
}

fn first_block(alloc: &Allocator, group: u32) -> u64 {
    alloc.geometry().group_first_block(GroupNumber(group)).0
}

/// Takes the last block of a group.
fn take(alloc: &Allocator, group: u32) -> ClusterRun {
    let mut reservation = alloc.reserve(1, MayUse::RootBlocks).expect("free blocks");
    let run =
        alloc.allocate(&mut reservation, &request(first_block(alloc, group) + 255, 1)).expect("reserved");
    assert_eq!(run.start.0, first_block(alloc, group) + 255);
    run
}

#[test]
fn bitmaps_stay_within_their_bound_but_for_those_in_use() {
    let platter = Platter::new(&disk());
    let alloc = platter.open(0, ROOM * BYTES_PER_GROUP, Tuning::default());
    for group in (0..GROUPS).map(GroupNumber) {
        alloc.trim(group, 0..u32::MAX, 1, |_| Ok::<_, Error>(())).expect("a bitmap");
        assert!(alloc.bitmap_bytes() <= (ROOM + 1) * BYTES_PER_GROUP, "{} bytes", alloc.bitmap_bytes());
    }
    let held: Vec<ClusterRun> = (0..GROUPS).map(|group| take(&alloc, group)).collect();
    assert_eq!(alloc.bitmap_bytes(), u64::from(GROUPS) * BYTES_PER_GROUP, "all are in use");
    // Half of them are marked: in use until that is durable, and as they were before for the others.
    let (marked, taken) = held.split_at(GROUPS as usize / 2);
    marked.iter().for_each(|run| assert!(alloc.mark_used(TID, *run).is_ok()));
    taken.iter().for_each(|run| alloc.free_unmarked(*run));
    let frozen = alloc.freeze(TID);
    (0..COMMITS).for_each(|_| alloc.committed(TransactionId(TID.0 - 1)));
    assert!(alloc.bitmap_bytes() >= marked.len() as u64 * BYTES_PER_GROUP, "read before they are written");
    platter.write(&frozen);
    (0..COMMITS).for_each(|_| alloc.committed(TID));
    assert!(alloc.bitmap_bytes() <= ROOM * BYTES_PER_GROUP, "{} bytes", alloc.bitmap_bytes());
    for (runs, is_used) in [(marked, true), (taken, false)] {
        assert!(runs.iter().all(|run| alloc.is_used(*run).expect("a bitmap") == is_used));
    }
}

/// Does something while a bitmap of group 1 is on its way for the first time.
#[derive(Clone)]
struct Slow {
    platter: Platter,
    alloc: Arc<OnceLock<Arc<Allocator>>>,
    is_done: Arc<OnceLock<ClusterRun>>,
}

impl Slow {
    /// Another thread is quicker, changes the bitmap, commits that, and needs room for others.
    fn meanwhile(&self) {
        let Some(alloc) = self.alloc.get() else { return };
        self.is_done.get_or_init(|| {
            let run = take(alloc, 1);
            alloc.mark_used(TID, run).expect("taken");
            self.platter.write(&alloc.freeze(TID));
            (0..COMMITS).for_each(|_| alloc.committed(TID));
            assert_eq!(alloc.bitmap_bytes(), 0, "it is dropped");
            run
        });
    }
}

impl GroupStore for Slow {
    fn load_descriptors(
        &self,
        geometry: &Geometry,
        first: GroupNumber,
        count: u32,
    ) -> Result<Vec<GroupDescriptor>, BoxError> {
        self.platter.load_descriptors(geometry, first, count)
    }

    fn load_block_bitmap(
        &self,
        group: GroupNumber,
        descriptor: &GroupDescriptor,
    ) -> Result<Box<[u8]>, BoxError> {
        let bits = self.platter.load_block_bitmap(group, descriptor);
        // The calls that this makes find it initialised, or they would come back here.
        if group == GroupNumber(1) && self.platter.reads() == 1 {
            self.meanwhile();
        }
        bits
    }

    fn load_inode_bitmap(
        &self,
        group: GroupNumber,
        descriptor: &GroupDescriptor,
    ) -> Result<Box<[u8]>, BoxError> {
        self.platter.load_inode_bitmap(group, descriptor)
    }
}

#[test]
fn a_bitmap_that_was_changed_and_dropped_while_it_was_read_is_read_again() {
    let platter = Platter::new(&disk());
    let slow = Slow { platter: platter.clone(), alloc: Arc::default(), is_done: Arc::default() };
    let alloc = Arc::new(platter.open_on(Box::new(slow.clone()), 0, Tuning::default()));
    assert!(slow.alloc.set(alloc.clone()).is_ok());
    let last = ClusterRun { start: extant_ondisk::Cluster(first_block(&alloc, 1) + 255), len: 1 };
    assert!(alloc.is_used(last).expect("a bitmap"), "an old bitmap came into memory");
    assert_eq!(slow.is_done.get(), Some(&last));
}
