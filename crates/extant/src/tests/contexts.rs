//! Several writeback contexts: nothing is lost while their count changes, and each writes what is in its groups.

use std::time::Duration;

use extant_block::MemoryDevice;
use extant_ondisk::InodeNumber;
use extant_rt::{Arc, AtomicBool, AtomicU64, Monotonic, Ordering, parallel, sleep};

use super::disk::{Random, assert_clean, format, has_e2fsprogs, has_threads};
use super::names::new;
use crate::error::Error;
use crate::incore::inode_cache::InodeRef;
use crate::mount::Options;
use crate::mount::Volume;
use crate::namespace::NewKind;

const BLOCK: u64 = 1024;
const FILE_BLOCKS: u64 = 3000;

/// Groups of 256 KiB: four bands in 64 MiB, and 64 ranges.
fn disk() -> Arc<MemoryDevice> {
    Arc::new(format(&["-b", "1024", "-g", "256", "-G", "4", "-J", "size=4", "-N", "4096"], 64 << 10, &[]).0)
}

fn mount(device: &Arc<MemoryDevice>, bytes: u64) -> Arc<Volume> {
    let options = Options { page_cache_bytes: Some(bytes), ..Options::default() };
    Volume::mount(device.clone(), &options).unwrap().0
}

/// A file in a directory of its own.
fn file(volume: &Arc<Volume>, name: &str) -> InodeRef {
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    let dir = volume.create(&root, name.as_bytes(), &new(NewKind::Directory)).unwrap();
    volume.create(&dir, b"file", &new(NewKind::File)).unwrap()
}

/// Blocks with random content at random places, all known.
fn write_on(
    volume: &Volume,
    inode: &InodeRef,
    seed: u64,
    is_over: &AtomicBool,
    longest: &AtomicU64,
) -> Vec<u8> {
    let (mut random, mut content) = (Random::new(seed), Vec::new());
    while !is_over.load(Ordering::Relaxed) {
        let at = (random.below(FILE_BLOCKS) * BLOCK) as usize;
        let bytes = 1 + random.below(16 * BLOCK);
        let buf = random.bytes(bytes as usize);
        let begun = Monotonic::now();
        assert_eq!(volume.write_at(inode, Some(at as u64), &buf, true).unwrap(), buf.len());
        longest.fetch_max(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
        content.resize(content.len().max(at + buf.len()), 0);
        content[at..at + buf.len()].copy_from_slice(&buf);
        if random.below(500) == 0 {
            volume.sync_inode(inode, false).unwrap();
        }
    }
    content
}

#[test]
fn nothing_is_lost_while_the_count_of_contexts_changes_under_writers() {
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    let device = disk();
    // Little memory: the writers meet the limit all the time.
    let volume = mount(&device, 8 << 20);
    let pages = volume.pages.as_ref().unwrap();
    assert_eq!(pages.writeback().contexts_max(), 64);
    let files: Vec<_> = (0..4).map(|index| file(&volume, &format!("d{index}"))).collect();
    let (is_over, longest) = (AtomicBool::new(false), AtomicU64::new(0));
    let written = parallel(6, |task| match task {
        0 => {
            for turn in 0..300 {
                volume.set_writeback_contexts([1, 4, 64, 3][turn % 4]).unwrap();
                sleep(Duration::from_millis(5));
            }
            is_over.store(true, Ordering::Relaxed);
            Vec::new()
        }
        1 => {
            while !is_over.load(Ordering::Relaxed) {
                volume.sync().unwrap();
                sleep(Duration::from_millis(40));
            }
            Vec::new()
        }
        _ => write_on(&volume, &files[task - 2], task as u64, &is_over, &longest),
    });
    let statistics = pages.writeback().statistics();
    let all: u64 = statistics.contexts.iter().map(|context| context.written_bytes).sum();
    assert!(all > 8 << 20, "{statistics:?}");
    for count in [0, 65] {
        let refused = volume.set_writeback_contexts(count).unwrap_err();
        assert!(matches!(refused, Error::OutOfRange { min: 1, max: 64, .. }), "{refused}");
        assert_eq!(refused.to_string(), "invalid argument: the count of writeback contexts is from 1 to 64");
    }
    let numbers: Vec<_> = files.iter().map(|file| file.number).collect();
    drop(files);
    volume.unmount().unwrap();
    assert_eq!(pages.writeback().dirty_bytes(), 0);
    assert_clean(&*device, "after an unmount");
    let again = mount(&device, 0);
    for (number, content) in numbers.iter().zip(&written[2..]) {
        let inode = again.inode(*number).unwrap();
        let mut read = vec![0; content.len() + 1];
        assert_eq!(again.read_at(&inode, 0, &mut read).unwrap(), content.len());
        assert!(read[..content.len()] == content[..], "inode {number:?}");
    }
}

#[test]
fn contexts_write_the_files_of_their_groups() {
    if !has_threads() || !has_e2fsprogs() {
        return;
    }
    let device = disk();
    let volume = mount(&device, 16 << 20);
    let writeback = volume.pages.as_ref().unwrap().writeback();
    let files: Vec<_> = (0..16).map(|index| file(&volume, &format!("d{index}"))).collect();
    for file in &files {
        assert_eq!(volume.write_at(file, Some(0), &[7; 4096], true).unwrap(), 4096);
    }
    let mut wanted = Vec::new();
    for count in [64, 4] {
        volume.set_writeback_contexts(count).unwrap();
        wanted = vec![0; count];
        for file in &files {
            let group = (file.number.0 - 1) / volume.geometry.inodes_per_group;
            wanted[group as usize * count / 256] += 4096;
        }
        let contexts = writeback.statistics().contexts;
        assert_eq!(contexts.iter().map(|context| context.dirty_bytes).collect::<Vec<_>>(), wanted);
        let used = wanted.iter().filter(|bytes| **bytes > 0).count();
        assert!(used > count / 8, "directories at the top lie in {used} of {count} contexts");
    }
    volume.sync().unwrap();
    let statistics = writeback.statistics();
    let written: Vec<_> = statistics.contexts.iter().map(|context| context.written_bytes).collect();
    assert_eq!(written, wanted);
    assert_eq!(writeback.dirty_bytes(), 0);
}
