//! A disk of 600 TB whose groups are made from a seed on demand.

use std::sync::{Arc, Mutex, PoisonError};

use extant_alloc::{Allocator, BoxError, GroupStore, Setup, Tuning};
use extant_ondisk::{
    FsBlock, Geometry, GroupDescriptor, GroupNumber, IncompatFeatures, RoCompatFeatures, Superblock, bitmap,
};

use crate::Result;
use extant_loads::mix;

/// 600 TB in groups of 32768 blocks of 4 KiB.
pub const GROUPS: u32 = 4_900_000;
pub const GROUP_BLOCKS: u32 = 32_768;
/// Blocks at the start of a group that are the file system's own.
const SYSTEM_BLOCKS: u32 = 32;
/// Of these, what a superblock and descriptors may take.
const SUPER_BLOCKS: u32 = 2;
/// Inodes of the table in the rest.
const INODES: u32 = (SYSTEM_BLOCKS - SUPER_BLOCKS - 2) * 16;
/// Bitmaps that groups share.
const SAMPLES: usize = 1024;
/// A search is broken off that asks for more bitmaps.
const READS_MAX: usize = 1024;

/// Which sample a group is.
pub fn sample_of(seed: u64, group: GroupNumber) -> usize {
    mix(seed ^ u64::from(group.0)) as usize % SAMPLES
}

/// The bitmap of a group with about so many free blocks in runs of about `run`.
fn bits(free: u32, run: u32, seed: u64) -> Box<[u8]> {
    let usable = GROUP_BLOCKS - SYSTEM_BLOCKS;
    let mut bits = vec![0; GROUP_BLOCKS as usize / 8].into_boxed_slice();
    if free >= usable {
        bitmap::set_range(&mut bits, 0..SYSTEM_BLOCKS);
        return bits;
    }
    bitmap::set_range(&mut bits, 0..GROUP_BLOCKS);
    let (mut at, mut left, mut step) = (SYSTEM_BLOCKS, free, seed);
    let mut below = |end: u32| {
        step += 1;
        (mix(step) % u64::from(end.max(1))) as u32
    };
    while left > 0 && at < GROUP_BLOCKS {
        let len = (1 + below(2 * run - 1)).min(left);
        // What is in use is dealt out evenly over the runs to come; one block at least lies between two.
        let used = GROUP_BLOCKS - at - left.min(GROUP_BLOCKS - at);
        let gap = (f64::from(used) * f64::from(run) / f64::from(left.max(run))) as u32;
        at += 1 + below(2 * gap);
        let end = (at + len).min(GROUP_BLOCKS);
        if at < end {
            bitmap::clear_range(&mut bits, at..end);
        }
        left -= len;
        at = end;
    }
    bits
}

/// The bitmaps of a disk so full. A group's free share is a power of a uniform number: most groups of a full disk are
/// full, some half, few empty.
pub fn samples(seed: u64, full: u32, run: u32) -> Vec<Box<[u8]>> {
    let exponent = f64::from(full) / f64::from(100 - full);
    let sample = |index: usize| {
        let share = ((index as f64 + 0.5) / SAMPLES as f64).powf(exponent);
        let free = (share * f64::from(GROUP_BLOCKS - SYSTEM_BLOCKS)) as u32;
        bits(free, run, mix(seed ^ index as u64) >> 1)
    };
    (0..SAMPLES).map(sample).collect()
}

/// The groups' bitmaps, and which were asked for since the last measurement.
#[derive(Default)]
pub struct Groups {
    seed: u64,
    pub samples: Vec<Box<[u8]>>,
    pub read: Vec<GroupNumber>,
}

/// See [`Groups`].
#[derive(Clone, Default)]
pub struct Store(Arc<Mutex<Groups>>);

impl Store {
    /// Without samples; the seed deals them out.
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Groups { seed, ..Groups::default() })))
    }

    pub fn with<T>(&self, act: impl FnOnce(&mut Groups) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a search is broken off with that would read without end.
struct TooManyReads;

impl GroupStore for Store {
    fn load_descriptors(
        &self,
        _: &Geometry,
        first: GroupNumber,
        count: u32,
    ) -> Result<Vec<GroupDescriptor>, BoxError> {
        let free = |group| {
            self.with(|groups| {
                bitmap::count_zeros(&groups.samples[sample_of(groups.seed, group)], 0..GROUP_BLOCKS)
            })
        };
        (first.0..first.0 + count).map(GroupNumber).map(|group| descriptor(group, free(group))).collect()
    }

    fn load_block_bitmap(&self, group: GroupNumber, _: &GroupDescriptor) -> Result<Box<[u8]>, BoxError> {
        let bits = self.with(|groups| {
            groups.read.push(group);
            (groups.read.len() <= READS_MAX).then(|| groups.samples[sample_of(groups.seed, group)].clone())
        });
        Ok(bits.unwrap_or_else(|| std::panic::resume_unwind(Box::new(TooManyReads))))
    }

    fn load_inode_bitmap(&self, _: GroupNumber, _: &GroupDescriptor) -> Result<Box<[u8]>, BoxError> {
        Err("no inodes here".into())
    }
}

/// The allocator of the whole disk, every group as good as empty.
pub fn allocator(store: &Store) -> Result<Allocator> {
    let mut superblock = Superblock::new_zeroed();
    superblock.set_s_rev_level(1);
    superblock.set_s_log_block_size(2);
    superblock.set_s_inode_size(256);
    superblock.set_s_first_ino(11);
    superblock.set_s_blocks_per_group(GROUP_BLOCKS);
    superblock.set_s_clusters_per_group(GROUP_BLOCKS);
    superblock.set_s_log_cluster_size(2);
    superblock.set_s_inodes_per_group(INODES);
    superblock.set_s_log_groups_per_flex(4);
    superblock.set_s_desc_size(64);
    superblock.set_incompat(IncompatFeatures::FLEX_BG | IncompatFeatures::META_BG | IncompatFeatures::BIT64);
    superblock.set_ro_compat(RoCompatFeatures::SPARSE_SUPER);
    superblock.set_blocks_count(u64::from(GROUPS) * u64::from(GROUP_BLOCKS));
    superblock.set_s_inodes_count(GROUPS.saturating_mul(INODES));
    let geometry = Geometry::new(&superblock)?;
    let tuning = Tuning { stream_goals: false, ..Tuning::default() };
    let free_blocks = u64::from(GROUPS) * u64::from(GROUP_BLOCKS - SYSTEM_BLOCKS);
    let setup = Setup { free_blocks, bitmap_bytes_max: u64::MAX, tuning, ..Setup::default() };
    Ok(Allocator::new(geometry, &setup, Box::new(store.clone())))
}

/// Of a group whose own blocks are its first ones.
fn descriptor(group: GroupNumber, free_blocks: u32) -> Result<GroupDescriptor> {
    let own = |place: u32| FsBlock(u64::from(group.0) * u64::from(GROUP_BLOCKS) + u64::from(place));
    let mut descriptor = GroupDescriptor::new(64)?;
    descriptor.set_block_bitmap(own(SUPER_BLOCKS));
    descriptor.set_inode_bitmap(own(SUPER_BLOCKS + 1));
    descriptor.set_inode_table(own(SUPER_BLOCKS + 2));
    descriptor.set_free_blocks_count(free_blocks);
    Ok(descriptor)
}
