//! Threads that fill holes of one file, and append to it, beside each other.

use extant_block::MemoryDevice;
use extant_ondisk::InodeNumber;
use extant_rt::{Arc, AtomicUsize, Ordering, parallel, yield_now};

use super::disk::{Random, assert_clean, format, has_e2fsprogs, has_threads, mount_with_pages};
use crate::error::Error;
use crate::file::fallocate::Fallocate;
use crate::incore::inode_cache::InodeRef;
use crate::mount::Options;
use crate::mount::Volume;

const BLOCK: u64 = 1024;
/// Bytes of a page cache that is large enough for windows.
const PAGES: u64 = 32 << 20;

/// A disk of `mebibytes` with an empty file.
fn disk(mebibytes: u32) -> (Arc<MemoryDevice>, InodeNumber) {
    let (device, inodes) = format(&["-b", "1024", "-J", "size=4", "-N", "64"], mebibytes << 10, &["a"]);
    (Arc::new(device), inodes[0])
}

fn write(volume: &Volume, inode: &InodeRef, block: u64, bytes: &[u8]) {
    assert_eq!(volume.write_at(inode, Some(block * BLOCK), bytes, true).expect("room"), bytes.len());
}

/// Has two threads write in turns, from a block on: how many blocks.
pub(super) fn share_in_turns(volume: &Volume, inode: &InodeRef, first: u64) -> u64 {
    const TURNS: u64 = 40;
    let turn = AtomicUsize::new(0);
    parallel(2, |thread| {
        for number in (thread as u64..TURNS).step_by(2) {
            while turn.load(Ordering::Acquire) as u64 != number {
                yield_now();
            }
            write(volume, inode, first + number, &[9; BLOCK as usize]);
            turn.fetch_add(1, Ordering::Release);
        }
    });
    TURNS
}

fn content(volume: &Volume, inode: &InodeRef) -> Vec<u8> {
    let mut bytes = vec![0; volume.attributes(inode).size as usize];
    assert_eq!(volume.read_at(inode, 0, &mut bytes).expect("read"), bytes.len());
    bytes
}

#[test]
fn what_is_filled_is_counted_read_sought_and_cut_at_once() {
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    let (device, number) = disk(16);
    let volume = mount_with_pages(&device, PAGES, true);
    let inode = volume.inode(number).expect("the file");
    let end = share_in_turns(&volume, &inode, 0);
    assert!(inode.is_filled(), "two threads append and none waits for the other");
    let sectors = |blocks: u64| blocks * BLOCK / 512;
    // Out of order, and a hole stays.
    let far = end + 700;
    write(&volume, &inode, far, &[1; 2 * BLOCK as usize]);
    write(&volume, &inode, end + 1, &[2; BLOCK as usize]);
    write(&volume, &inode, end + 1, &[3; BLOCK as usize]);
    assert!(inode.is_filled());
    let attributes = volume.attributes(&inode);
    assert_eq!(attributes.size, (far + 2) * BLOCK);
    assert_eq!(attributes.blocks_512, sectors(end + 3));
    assert_eq!(inode.size(), attributes.size);
    let mut read = [7; 3 * BLOCK as usize];
    volume.read_at(&inode, (end + 1) * BLOCK, &mut read[..BLOCK as usize]).expect("read");
    assert!(inode.is_filled(), "a read of what is there ends nothing");
    assert_eq!(read[..BLOCK as usize], [3; BLOCK as usize]);
    volume.read_at(&inode, end * BLOCK, &mut read).expect("read");
    let expected = [[0; BLOCK as usize], [3; BLOCK as usize], [0; BLOCK as usize]].concat();
    assert!(read[..] == expected[..], "a hole on both sides");
    // An append at the end, wherever that is.
    write(&volume, &inode, far + 5, &[4; BLOCK as usize]);
    volume.write_at(&inode, None, b"end", true).expect("room");
    assert_eq!(volume.attributes(&inode).size, (far + 6) * BLOCK + 3);
    // Cut while more may be filled.
    volume.set_size(&inode, (far + 6) * BLOCK).expect("cut");
    share_in_turns(&volume, &inode, far + 6);
    write(&volume, &inode, far + 100, &[5; BLOCK as usize]);
    assert!(inode.is_filled());
    volume.set_size(&inode, (end + 2) * BLOCK + 5).expect("cut");
    assert_eq!(volume.attributes(&inode).size, (end + 2) * BLOCK + 5);
    assert_eq!(volume.attributes(&inode).blocks_512, sectors(end + 1));
    // In a file that ends inside a block holes before that are filled beside each other, and what is behind it is not.
    volume.set_size(&inode, (far + 50) * BLOCK + 5).expect("grown");
    share_in_turns(&volume, &inode, end + 10);
    assert!(inode.is_filled());
    write(&volume, &inode, far + 49, &[6; BLOCK as usize]);
    assert!(inode.is_filled());
    assert_eq!(volume.attributes(&inode).size, (far + 50) * BLOCK + 5);
    write(&volume, &inode, far + 60, &[6; BLOCK as usize]);
    assert_eq!(volume.attributes(&inode).size, (far + 61) * BLOCK);
    let before = content(&volume, &inode);
    volume.sync_inode(&inode, true).expect("synced");
    assert!(!inode.is_filled());
    assert!(content(&volume, &inode) == before);
    drop(inode);
    volume.unmount().expect("unmounted");
    assert_clean(&*device, "filled");
    let volume = mount_with_pages(&device, 0, true);
    assert!(content(&volume, &volume.inode(number).expect("the file")) == before);
}

const THREADS: usize = 4;
/// Blocks in a row that a thread has of the file, and how many times it has so many.
const STRIPE: u64 = 5;
const STRIPES: u64 = 60;

/// The file's block of a thread's own `number`.
fn own_block(thread: usize, number: u64) -> u64 {
    (number / STRIPE * THREADS as u64 + thread as u64) * STRIPE + number % STRIPE
}

/// Changes a thread's own blocks: what they have then; and whether it saw that holes are filled.
fn change(volume: &Volume, inode: &InodeRef, thread: usize, seed: u64) -> (Vec<Vec<u8>>, bool) {
    let mut random = Random::new(seed << 8 | thread as u64);
    let mut blocks = vec![vec![0; BLOCK as usize]; (STRIPE * STRIPES) as usize];
    let mut was_filled = false;
    for step in 0..600_u64 {
        let number = random.below(STRIPE * STRIPES);
        let in_a_row = 1 + random.below(STRIPE - number % STRIPE);
        let own = &mut blocks[number as usize..(number + in_a_row) as usize];
        let at = own_block(thread, number) * BLOCK;
        match random.below(100) {
            0 => volume.sync_inode(inode, step % 2 == 0).expect("synced"),
            1 => {
                volume.fallocate(inode, Fallocate::PunchHole, at, in_a_row * BLOCK, true).expect("a hole");
                own.iter_mut().for_each(|block| block.fill(0));
            }
            2 => {
                let keep = Fallocate::Allocate { keep_size: true };
                volume.fallocate(inode, keep, at, in_a_row * BLOCK, true).expect("room");
            }
            3..6 => {
                let (from, new) = (random.below(BLOCK - 9), random.bytes(9));
                volume.write_at(inode, Some(at + from), &new, true).expect("room");
                own[0][from as usize..][..9].copy_from_slice(&new);
            }
            6..20 => {
                let mut found = vec![0; (in_a_row * BLOCK) as usize];
                let bytes = volume.read_at(inode, at, &mut found).expect("read");
                assert!(found[..bytes] == own.concat()[..bytes], "seed {seed}: {number} of {thread}");
                assert!(own.concat()[bytes..].iter().all(|byte| *byte == 0), "seed {seed}: cut");
            }
            _ => {
                let new = random.bytes((in_a_row * BLOCK) as usize);
                volume.write_at(inode, Some(at), &new, true).expect("room");
                own.iter_mut()
                    .zip(new.chunks(BLOCK as usize))
                    .for_each(|(own, new)| own.copy_from_slice(new));
                was_filled |= inode.is_filled();
                assert!(volume.attributes(inode).size >= at + in_a_row * BLOCK);
            }
        }
    }
    (blocks, was_filled)
}

#[test]
fn threads_fill_one_file_as_if_one_came_after_the_other() {
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    let (fresh, number) = disk(16);
    let mut filled = 0;
    for seed in 0..6 {
        let device = Arc::new(fresh.snapshot());
        let pages =
            Options { keep_clean_pages: seed % 2 == 0, background: seed % 3 == 0, ..Options::default() };
        let options = Options { page_cache_bytes: Some(PAGES), ..pages };
        let volume = Volume::mount(device.clone(), &options).expect("a clean disk").0;
        let inode = volume.inode(number).expect("the file");
        // Several have written into it since it came into memory.
        share_in_turns(&volume, &inode, 0);
        volume.set_size(&inode, 0).expect("empty");
        let changed = parallel(THREADS, |thread| change(&volume, &inode, thread, seed));
        filled += changed.iter().filter(|(_, was_filled)| *was_filled).count();
        let assert_content = |volume: &Volume, inode: &InodeRef, when: &str| {
            let mut found = content(volume, inode);
            found.resize((STRIPE * STRIPES * BLOCK) as usize * THREADS, 0);
            for (thread, (blocks, _)) in changed.iter().enumerate() {
                for (own, block) in (0..).zip(blocks) {
                    let at = (own_block(thread, own) * BLOCK) as usize;
                    assert!(
                        found[at..at + BLOCK as usize] == block[..],
                        "seed {seed}, {when}: {own} of {thread}"
                    );
                }
            }
        };
        assert_content(&volume, &inode, "in memory");
        drop(inode);
        volume.unmount().expect("unmounted");
        assert_clean(&*device, "filled by threads");
        let volume = mount_with_pages(&device, 0, true);
        assert_content(&volume, &volume.inode(number).expect("the file"), "on the disk");
    }
    assert!(filled >= THREADS, "{filled} threads saw that holes are filled beside each other");
}

#[test]
fn writes_over_each_other_in_a_hole_are_whole() {
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    const ROW: usize = 8;
    let (device, number) = disk(16);
    let volume = mount_with_pages(&device, PAGES, true);
    let inode = volume.inode(number).expect("the file");
    let first = share_in_turns(&volume, &inode, 0);
    for round in 0..200 {
        let at = first + round * ROW as u64;
        parallel(THREADS, |thread| write(&volume, &inode, at, &[thread as u8 + 1; ROW * BLOCK as usize]));
        let mut found = vec![0; ROW * BLOCK as usize];
        volume.read_at(&inode, at * BLOCK, &mut found).expect("read");
        assert!(found.iter().all(|byte| *byte == found[0] && *byte > 0), "round {round} is mixed");
    }
    drop(inode);
    volume.unmount().expect("unmounted");
    assert_clean(&*device, "written over each other");
}

/// Asserts that what is kept suffices for all that is delayed, and its tree.
fn assert_promises(volume: &Volume, inode: &InodeRef) {
    let pages = inode.pages().write();
    let folios = pages.folios.as_ref().expect("pages");
    let need = volume.need_of(inode, folios.delayed(), folios.delayed_runs()).expect("a tree");
    assert!(pages.kept >= need, "{} kept of {need}", pages.kept);
}

#[test]
fn what_is_kept_for_batches_suffices_for_runs_of_a_block() {
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    let (device, number) = disk(16);
    let volume = mount_with_pages(&device, PAGES, true);
    let inode = volume.inode(number).expect("the file");
    let first = share_in_turns(&volume, &inode, 0);
    for block in (first + 1..first + 3_000).step_by(2) {
        write(&volume, &inode, block, &[1; BLOCK as usize]);
    }
    assert!(inode.is_filled());
    assert_promises(&volume, &inode);
}

#[test]
fn what_threads_were_promised_on_a_full_disk_they_get() {
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    let (device, number) = disk(16);
    // Without the reserved pool, so that each reservation must suffice alone.
    let options = Options { page_cache_bytes: Some(PAGES), reserved_pool_max: 0, ..Options::default() };
    let volume =
        Volume::mount(device.clone(), &Options { background: false, ..options }).expect("a clean disk").0;
    let inode = volume.inode(number).expect("the file");
    let first = share_in_turns(&volume, &inode, 0);
    assert!(inode.is_filled());
    let written = parallel(THREADS, |thread| {
        let mut written = Vec::new();
        // Each second block, so that the map becomes as large as it can.
        for block in (first + 2 * thread as u64..).step_by(2 * THREADS) {
            match volume.write_at(&inode, Some(block * BLOCK), &[thread as u8 + 1; BLOCK as usize], false) {
                Ok(_) => written.push(block),
                Err(Error::NoSpace) => return written,
                Err(error) => panic!("{error}"),
            }
        }
        written
    });
    assert!(written.iter().map(Vec::len).sum::<usize>() > 8_000, "most of the disk");
    assert_promises(&volume, &inode);
    volume.sync_inode(&inode, true).expect("synced: each write was promised its block");
    drop(inode);
    volume.unmount().expect("unmounted");
    assert_clean(&*device, "full");
    let volume = mount_with_pages(&device, 0, true);
    let found = content(&volume, &volume.inode(number).expect("the file"));
    for (thread, blocks) in written.iter().enumerate() {
        for block in blocks {
            let own = &found[(block * BLOCK) as usize..][..BLOCK as usize];
            assert!(own.iter().all(|byte| usize::from(*byte) == thread + 1), "block {block}");
        }
    }
}
