//! Disks filled to the last block and to the last inode: no thread is refused what `dumpe2fs` still finds, all of it can
//! be removed, and then the counts are what they were.

use extant::mkfs::Mkfs;
use extant::{Credentials, Error, Filesystem, Mount};
use extant_testing::Random;

use crate::tools::{Image, assert_clean, has};
use crate::usage::Usage;
use crate::{alone, number};

const THREADS: u64 = 8;
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Is refused the blocks kept for root.
const USER: u32 = 1000;

/// Makes files of all sizes until not even a byte can be written. Gives how often it was refused.
fn fill_blocks(fs: &Filesystem, directory: &str, random: &mut Random) -> u64 {
    let (mut most, mut made, mut refused) = (FILE_BYTES_MAX, 0, 0);
    loop {
        let count = 1 + random.below(most) as usize;
        let bytes = random.bytes(count);
        match fs.write(format!("{directory}/{made}"), &bytes).map_err(Error::into_cause) {
            Ok(()) => made += 1,
            Err(Error::NoSpace) => {
                refused += 1;
                if bytes.len() == 1 {
                    return refused;
                }
                most = bytes.len() as u64 / 2;
                // The file is there, with a part of its content or none.
                made += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Makes empty files until there is no inode.
fn fill_inodes(fs: &Filesystem, directory: &str) -> u64 {
    for made in 0.. {
        match fs.write(format!("{directory}/{made}"), b"").map_err(Error::into_cause) {
            Ok(()) => {}
            Err(Error::NoInodes) => return 1,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("inodes without end")
}

/// Calls `fill` on threads, or one after the other where the host has none, each in a directory of its own; `of_users` of them are not
/// root's.
fn on_threads(
    fs: &Filesystem,
    of_users: u64,
    random: &mut Random,
    fill: impl Fn(&Filesystem, &str, &mut Random) -> u64 + Sync,
) -> u64 {
    let directory = |thread| format!("/{thread}");
    for thread in 0..THREADS {
        fs.create_dir(directory(thread)).expect("an empty disk");
        fs.set_owner(directory(thread), USER, USER).expect("an owner");
    }
    let seeds: Vec<u64> = (0..THREADS).map(|_| random.next()).collect();
    let refused = extant_rt::parallel(seeds.len(), |index| {
        let thread = index as u64;
        fill(&view(fs, thread < of_users), &directory(thread), &mut Random::new(seeds[index]))
    });
    refused.into_iter().sum()
}

fn view(fs: &Filesystem, is_user: bool) -> Filesystem {
    let user = Credentials { uid: USER, gid: USER, groups: Vec::new() };
    if is_user { fs.as_user(user) } else { fs.clone() }
}

fn remove_all(fs: &Filesystem) {
    for thread in 0..THREADS {
        fs.remove_dir_all(format!("/{thread}")).expect("removing needs no space");
    }
}

fn fill(seed: u64, page_cache_bytes: u64) {
    let mut random = Random::new(seed);
    let image = Image::new((8 + random.below(57)) << 20);
    let block_size = [1024, 2048, 4096][random.below(3) as usize];
    let mut mkfs = Mkfs::new().block_size(block_size).reserved_percent(random.below(8) as f64);
    if random.below(4) == 0 {
        mkfs = mkfs.features("^has_journal").expect("a feature");
    }
    mkfs.format(&image.device()).expect("an empty disk");
    let fresh = Usage::of(&image.path);

    let fs = Mount::new().open(&image.path).expect("a mount");
    on_threads(&fs, THREADS / 2, &mut random, |fs, directory, _| fill_inodes(fs, directory));
    fs.unmount().expect("an unmount");
    assert_eq!(Usage::of(&image.path).free_inodes, 0, "seed {seed}: refused with inodes left");
    let fs = Mount::new().open(&image.path).expect("a mount");
    remove_all(&fs);
    fs.unmount().expect("an unmount");
    assert_clean(&image.path, &format!("seed {seed}, without inodes"));
    assert_eq!(Usage::of(&image.path), fresh, "seed {seed}: something is lost with the inodes");

    let cache_bytes = random.below(2) << 26;
    let fs = Mount::new()
        .cache_bytes(cache_bytes)
        .page_cache_bytes(page_cache_bytes)
        .open(&image.path)
        .expect("a mount");
    let of_users = [0, THREADS / 2, THREADS][random.below(3) as usize];
    let refused = on_threads(&fs, of_users, &mut random, fill_blocks);
    fs.unmount().expect("an unmount");
    let full = Usage::of(&image.path);
    let of_root = if of_users == THREADS { full.reserved_blocks } else { 0 };
    // 2 % or 4096 blocks stay for tree blocks.
    let left = of_root + (full.blocks / 50).min(4096);
    println!(
        "seed {seed}: {} blocks of {block_size}, {of_users} users, refused {refused} times",
        fresh.free_blocks
    );
    assert_eq!(full.free_blocks, left, "seed {seed}: refused with blocks left");
    let fs = Mount::new().open(&image.path).expect("a mount");
    remove_all(&fs);
    fs.unmount().expect("an unmount");
    assert_clean(&image.path, &format!("seed {seed}, without blocks"));
    assert_eq!(Usage::of(&image.path), fresh, "seed {seed}: something is lost with the blocks");
}

#[test]
fn disks_are_filled_to_the_last_block_and_inode_and_emptied_again() {
    if !has("e2fsck") || !has("dumpe2fs") {
        return;
    }
    let _alone = alone();
    let first = number("EXTANT_SEED", 1);
    (first..first + number("EXTANT_FILL_SEEDS", 3)).for_each(|seed| fill(seed, 0));
}

#[test]
fn disks_are_filled_to_the_last_block_with_delayed_blocks() {
    if !has("e2fsck") || !has("dumpe2fs") {
        return;
    }
    let _alone = alone();
    let first = number("EXTANT_SEED", 1);
    for seed in first..first + number("EXTANT_FILL_SEEDS", 3) {
        fill(seed, [16 << 20, 1 << 20][seed as usize % 2]);
    }
}
