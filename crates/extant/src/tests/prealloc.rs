//! Files that grow beside each other: few extents, nothing lost, and no block withheld.

use extant_alloc::Tuning;
use extant_block::MemoryDevice;
use extant_ondisk::{FsBlock, GroupNumber, InodeNumber};
use extant_rt::Arc;

use super::disk::{Random, assert_clean, dumped, format, has_e2fsprogs, has_threads};
use super::names::new;
use crate::error::Error;
use crate::file::fallocate::Fallocate;
use crate::incore::inode_cache::InodeRef;
use crate::mount::Options;
use crate::mount::Volume;
use crate::namespace::NewKind;

const BLOCK: u64 = 4096;

/// The tunings by which an inode's preallocations are kept: a tree, and in builds with forms of older kernels a list.
fn forms() -> Vec<(&'static str, Tuning)> {
    let tree = ("tree", Tuning::default());
    #[cfg(extant_linux_model)]
    {
        let mut list = Tuning::default();
        list.linux_model.preallocation_list = true;
        vec![tree, ("list", list)]
    }
    #[cfg(not(extant_linux_model))]
    vec![tree]
}

fn mount(device: &Arc<MemoryDevice>, tuning: Tuning) -> Arc<Volume> {
    let options = Options { background: false, tuning, ..Options::default() };
    Volume::mount(device.clone(), &options).unwrap().0
}

fn disk(kilobytes: u32, more: &[&str]) -> Arc<MemoryDevice> {
    let arguments = [&["-b", "4096", "-J", "size=4", "-N", "256"], more].concat();
    Arc::new(format(&arguments, kilobytes, &[]).0)
}

fn create(volume: &Arc<Volume>, count: u32) -> Vec<InodeRef> {
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    (0..count)
        .map(|index| volume.create(&root, format!("f{index}").as_bytes(), &new(NewKind::File)).unwrap())
        .collect()
}

fn append(volume: &Volume, file: &InodeRef, bytes: &[u8]) {
    assert_eq!(volume.write_at(file, None, bytes, true).unwrap(), bytes.len());
}

/// Runs of blocks that do not go on where the last one ended.
fn run_count(volume: &Volume, file: &InodeRef) -> usize {
    let extents = volume.all_extents(file.number, &file.raw()).unwrap();
    let goes_on = |pair: &[extant_ondisk::Extent]| {
        pair[0].end() == u64::from(pair[1].logical.0)
            && FsBlock(pair[0].start.0 + u64::from(pair[0].len)) == pair[1].start
    };
    extents.len() - extents.windows(2).filter(|pair| goes_on(pair)).count()
}

/// Blocks that the buddies would allocate.
fn free_in_buddies(volume: &Volume) -> u64 {
    (0..volume.geometry.group_count)
        .flat_map(|group| volume.allocator.free_runs(GroupNumber(group)).unwrap())
        .map(|run| u64::from(run.len))
        .sum()
}

/// Buddy = bitmap ∪ preallocations ∪ pending frees.
fn assert_nothing_lost(volume: &Volume) {
    let allocator = &volume.allocator;
    let ahead = allocator.preallocated_blocks();
    assert_eq!(free_in_buddies(volume), allocator.free_blocks());
    assert_eq!(free_in_buddies(volume) + ahead + allocator.pending_free(), allocator.disk_free_blocks());
}

#[test]
fn files_that_grow_in_turns_have_long_extents() {
    if !has_e2fsprogs() {
        return;
    }
    for (writers, more) in [(2, &[][..]), (64, &[][..]), (8, &["-O", "^extents,^64bit"][..])] {
        let mut most = Vec::new();
        let off = ("off", Tuning { preallocation: false, ..Tuning::default() });
        for (form, tuning) in std::iter::once(off).chain(forms()) {
            let device = disk(256 << 10, more);
            let volume = mount(&device, tuning);
            let files = create(&volume, writers);
            for turn in 0..256_u64 {
                for (index, file) in files.iter().enumerate() {
                    append(&volume, file, &[turn as u8 ^ index as u8; BLOCK as usize]);
                }
            }
            most.push(files.iter().map(|file| run_count(&volume, file)).max().unwrap());
            assert_nothing_lost(&volume);
            let numbers: Vec<_> = files.iter().map(|file| file.number).collect();
            drop(files);
            volume.unmount().unwrap();
            assert_eq!(volume.allocator.preallocated_blocks(), 0);
            assert_clean(&*device, &format!("{writers} writers, {form}"));
            let content = dumped(&*device, numbers[1]);
            assert!((0..256).all(|turn| content[turn * BLOCK as usize] == turn as u8 ^ 1), "content");
        }
        println!("{writers} writers of 1 MiB {more:?}: runs per file at most {most:?} (off, tree, list)");
        assert!(most[0] > 128, "without preallocation files lie in one piece: {most:?}");
        // 64 KiB on average.
        assert!(most[1..].iter().all(|most| *most <= 16), "{most:?}");
    }
}

#[test]
fn what_was_taken_ahead_goes_with_the_last_user_and_before_cuts() {
    if !has_e2fsprogs() {
        return;
    }
    let device = disk(64 << 10, &[]);
    let volume = mount(&device, Tuning::default());
    let free = volume.allocator.free_blocks();
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    let ahead = || volume.allocator.prealloc_statistics().blocks;
    let grow = |file: &InodeRef| {
        append(&volume, file, &[1; 5 * BLOCK as usize]);
        append(&volume, file, &[2; BLOCK as usize]);
        append(&volume, file, &[3; BLOCK as usize]);
        assert!(ahead() > 0);
        assert_eq!(
            file.raw().blocks_512(4096) * 512,
            file.raw().size(),
            "st_blocks counts what was taken ahead"
        );
        let full = volume.statistics();
        assert_eq!(full.free_blocks, volume.allocator.disk_free_blocks());
    };
    let size = 7 * BLOCK;
    let cuts: [&dyn Fn(&InodeRef); 5] = [
        &|file| volume.set_size(file, size - 1).unwrap(),
        &|file| volume.fallocate(file, Fallocate::PunchHole, BLOCK, BLOCK, true).unwrap(),
        &|file| volume.fallocate(file, Fallocate::CollapseRange, BLOCK, BLOCK, true).unwrap(),
        &|file| volume.fallocate(file, Fallocate::InsertRange, BLOCK, BLOCK, true).unwrap(),
        &|file| {
            volume
                .fallocate(file, Fallocate::ZeroRange { keep_size: false }, BLOCK, 9 * BLOCK, true)
                .unwrap();
        },
    ];
    for (index, cut) in cuts.iter().enumerate() {
        let name = format!("cut{index}").into_bytes();
        let file = volume.create(&root, &name, &new(NewKind::File)).unwrap();
        grow(&file);
        cut(&file);
        assert_eq!(ahead(), 0, "cut {index}");
        grow_again(&volume, &file);
        // A second user, then none.
        let other = file.clone();
        drop(file);
        volume.evict_unlinked();
        assert!(ahead() > 0, "given back with a user left");
        drop(other);
        volume.evict_unlinked();
        assert_eq!(ahead(), 0, "kept without users");
        volume.unlink(&root, &name).unwrap();
        volume.evict_unlinked();
        assert_nothing_lost(&volume);
    }
    // Without its last name, while it is in use.
    let file = volume.create(&root, b"unlinked", &new(NewKind::File)).unwrap();
    grow(&file);
    volume.unlink(&root, b"unlinked").unwrap();
    append(&volume, &file, &[4; BLOCK as usize]);
    drop(file);
    volume.evict_unlinked();
    assert_eq!(ahead(), 0);
    // Written once, in one piece or with its size known.
    let file = volume.create(&root, b"once", &new(NewKind::File)).unwrap();
    append(&volume, &file, &[5; 3 * BLOCK as usize]);
    let sized = volume.create(&root, b"sized", &new(NewKind::File)).unwrap();
    volume.set_size(&sized, 9 * BLOCK).unwrap();
    for at in 0..9 {
        volume.write_at(&sized, Some(at * BLOCK), &[6; BLOCK as usize], true).unwrap();
    }
    assert_eq!(ahead(), 0);
    drop((file, sized));
    for name in [&b"once"[..], b"sized"] {
        volume.unlink(&root, name).unwrap();
    }
    volume.evict_unlinked();
    volume.sync().unwrap();
    assert_eq!(volume.statistics().free_blocks, free);
    assert!(volume.allocator.prealloc_statistics().local_blocks > 0, "no chunk is kept for small files");
    drop(root);
    volume.unmount().unwrap();
    assert_clean(&*device, "cut");
}

fn grow_again(volume: &Volume, file: &InodeRef) {
    // Beyond what zeroing allocated behind the end.
    for turn in 0..20 {
        append(volume, file, &[turn; BLOCK as usize]);
        if volume.allocator.prealloc_statistics().blocks > 0 {
            return;
        }
    }
    panic!("nothing taken ahead");
}

#[test]
fn writers_are_refused_only_when_the_disk_is_full() {
    if !has_e2fsprogs() {
        return;
    }
    for (_, tuning) in forms() {
        let device = disk(48 << 10, &["-m", "5"]);
        let volume = mount(&device, tuning);
        let files = create(&volume, 16);
        let mut most_ahead = 0;
        let refuse = |privileged: bool, most_ahead: &mut u64| {
            let mut open: Vec<_> = files.iter().collect();
            let mut random = Random::new(3);
            while !open.is_empty() {
                let at = random.below(open.len() as u64) as usize;
                match volume.write_at(open[at], None, &[7; BLOCK as usize], privileged) {
                    Ok(_) => *most_ahead = volume.allocator.preallocated_blocks().max(*most_ahead),
                    Err(Error::NoSpace) => {
                        let root = if privileged { 0 } else { volume.superblock.lock().r_blocks_count() };
                        let kept = root + volume.reserved_clusters;
                        let left = volume.allocator.free_blocks() + volume.allocator.preallocated_blocks();
                        // The write itself and what the map may need.
                        let end = volume.block_at(open[at].raw().size()).unwrap().0;
                        let least = 1 + volume.hole(open[at], &open[at].raw(), end).unwrap().growth();
                        assert!(
                            left < kept + u64::from(least),
                            "refused with {left} blocks left, {kept} kept"
                        );
                        open.swap_remove(at);
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        };
        refuse(false, &mut most_ahead);
        assert!(most_ahead > 0, "nothing was taken ahead");
        refuse(true, &mut most_ahead);
        assert_nothing_lost(&volume);
        drop(files);
        volume.unmount().unwrap();
        assert_clean(&*device, "full");
    }
}

#[test]
fn threads_fill_the_disk_to_its_last_block() {
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    let device = disk(48 << 10, &["-m", "0"]);
    let volume = mount(&device, Tuning::default());
    let files = create(&volume, 4);
    std::thread::scope(|scope| {
        for file in &files {
            let volume = &volume;
            scope.spawn(move || {
                loop {
                    match volume.write_at(file, None, &[9; BLOCK as usize], true) {
                        Ok(_) => {}
                        Err(Error::NoSpace) => break,
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let left = volume.allocator.free_blocks() + volume.allocator.preallocated_blocks();
    // The last of them was refused with the others' reservations gone; its map may have needed a block.
    assert!(left <= volume.reserved_clusters + 1, "{left} blocks left");
    assert_nothing_lost(&volume);
    drop(files);
    volume.unmount().unwrap();
    assert_clean(&*device, "full");
}

#[test]
fn a_crash_knows_nothing_of_what_was_taken_ahead() {
    if !has_e2fsprogs() {
        return;
    }
    let device = disk(64 << 10, &[]);
    let volume = mount(&device, Tuning::default());
    let files = create(&volume, 5);
    for turn in 0..40 {
        files.iter().for_each(|file| append(&volume, file, &[turn; BLOCK as usize]));
    }
    volume.sync().unwrap();
    assert!(volume.allocator.preallocated_blocks() > 0);
    let copy = Arc::new(device.snapshot());
    let again = mount(&copy, Tuning::default());
    assert_eq!(again.allocator.free_blocks(), volume.statistics().free_blocks);
    again.unmount().unwrap();
    assert_clean(&*copy, "after a crash");
}

#[test]
fn what_sparse_writes_left_is_found_fast_by_the_tree_and_is_in_few_items_of_the_list() {
    if !has_e2fsprogs() {
        return;
    }
    let mut visits = Vec::new();
    for (_, tuning) in forms() {
        let device = disk(512 << 10, &[]);
        let volume = mount(&device, tuning);
        let file = &create(&volume, 1)[0];
        append(&volume, file, &[1; BLOCK as usize]);
        for at in 1..5_000_u64 {
            volume.write_at(file, Some(at * 3 * BLOCK), &[at as u8; BLOCK as usize], true).unwrap();
        }
        let sparse = volume.allocator.prealloc_statistics();
        assert!(sparse.hits > 4_000, "{sparse:?}");
        let mut random = Random::new(5);
        for _ in 0..2_000 {
            let at = random.below(5_000) * 3 + 1;
            volume.write_at(file, Some(at * BLOCK), &[at as u8; BLOCK as usize], true).unwrap();
        }
        let filled = volume.allocator.prealloc_statistics();
        visits.push((filled.visits - sparse.visits) as f64 / (filled.lookups - sparse.lookups) as f64);
        assert_nothing_lost(&volume);
        volume.unmount().unwrap();
        assert_clean(&*device, "sparse");
    }
    println!("visits per look-up when gaps are filled (tree, list): {visits:.1?}");
    // An item of the list for each 8 MiB, which a look-up that finds nothing goes through three times.
    let items = (15_000 * BLOCK).div_ceil(8 << 20) as f64;
    for (visits, most) in visits.into_iter().zip([2.0 * 5_000_f64.log2(), 3.0 * items]) {
        assert!(visits <= most, "{visits} of {most}");
    }
}
