//! Clusters of 16 and 64 KiB: which blocks share one, when it is free again, and what counts by clusters.

use extant_block::{BlockDevice, MemoryDevice};
use extant_ondisk::InodeNumber;
use extant_rt::Arc;

use super::disk::{assert_clean, format, has_e2fsprogs, mount, mount_with_pages};
use super::names::new;
use crate::error::Error;
use crate::file::fallocate::Fallocate;
use crate::incore::inode_cache::InodeRef;
use crate::mount::{Options, Volume};
use crate::namespace::NewKind;
use crate::resize::shrink::ShrinkTo;
use crate::resize::{self, shrink};
use crate::tune::Tune;

/// Block size and cluster size.
const SIZES: [(u64, u64); 2] = [(1024, 16 << 10), (4096, 64 << 10)];

fn disk((block, cluster): (u64, u64), mebibytes: u32) -> Arc<MemoryDevice> {
    let (block, cluster) = (block.to_string(), cluster.to_string());
    let arguments = ["-b", &block, "-J", "size=4", "-N", "256", "-O", "bigalloc", "-C", &cluster];
    Arc::new(format(&arguments, mebibytes << 10, &[]).0)
}

fn create(volume: &Arc<Volume>, name: &str) -> InodeRef {
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    volume.create(&root, name.as_bytes(), &new(NewKind::File)).unwrap()
}

fn punch(volume: &Arc<Volume>, file: &InodeRef, at: u64, bytes: u64) {
    volume.fallocate(file, Fallocate::PunchHole, at, bytes, true).unwrap();
}

/// Clusters that an inode counts.
fn clusters_of(volume: &Arc<Volume>, file: &InodeRef) -> u64 {
    let block_size = volume.geometry.block_size;
    file.raw().blocks_bytes(block_size) / volume.geometry.cluster_bytes()
}

/// Unmounts, and looks at the disk.
fn finish(volume: Arc<Volume>, device: &Arc<MemoryDevice>, what: &str) {
    volume.unmount().unwrap();
    assert_clean(&**device, what);
}

#[test]
fn a_cluster_is_free_with_the_last_block_that_is_mapped_in_it() {
    if !has_e2fsprogs() {
        return;
    }
    for (block, cluster) in SIZES {
        for pages in [0, 32 << 20] {
            let device = disk((block, cluster), 24);
            let volume = mount_with_pages(&device, pages, true);
            let file = create(&volume, "file");
            volume.sync().unwrap();
            let free = || volume.allocator.free_blocks() + volume.allocator.preallocated_blocks();
            let before = free();
            // The first, the third and the last block of a cluster, each in an extent of its own, the third one unwritten.
            let content = vec![7; block as usize];
            volume.write_at(&file, Some(cluster), &content, true).unwrap();
            volume.write_at(&file, Some(2 * cluster - block), &content, true).unwrap();
            let third = Fallocate::Allocate { keep_size: true };
            volume.fallocate(&file, third, cluster + 2 * block, block, true).unwrap();
            volume.sync().unwrap();
            assert_eq!((before - free(), clusters_of(&volume, &file)), (1, 1));
            for at in [cluster, 2 * cluster - block] {
                punch(&volume, &file, at, block);
                volume.sync().unwrap();
                assert_eq!((before - free(), clusters_of(&volume, &file)), (1, 1), "punched at {at}");
            }
            // Only the unwritten block is left.
            punch(&volume, &file, cluster + 2 * block, block);
            volume.sync().unwrap();
            assert_eq!((before - free(), clusters_of(&volume, &file)), (0, 0));
            drop(file);
            finish(volume, &device, "punched");
        }
    }
}

#[test]
fn extents_of_two_leaves_share_a_cluster() {
    if !has_e2fsprogs() {
        return;
    }
    for (block, cluster) in SIZES {
        let device = disk((block, cluster), 24);
        let volume = mount(&device);
        let file = create(&volume, "file");
        // Every other block: a leaf ends within a cluster.
        let pieces = 400;
        for index in 0..pieces {
            volume.write_at(&file, Some(2 * index * block), &[1; 100], true).unwrap();
        }
        let raw = file.raw();
        let (nodes, extents) = volume.whole_tree(file.owner(), raw.i_block()).unwrap();
        drop(raw);
        assert!(nodes.len() > 1 && extents.len() as u64 == pieces, "{} nodes", nodes.len());
        let content = (2 * pieces * block).div_ceil(cluster);
        assert_eq!(clusters_of(&volume, &file), content + nodes.len() as u64);
        volume.sync().unwrap();
        let copy = Arc::new(device.snapshot());
        finish(mount(&copy), &copy, "with clusters in two leaves");
        // Each cluster loses its blocks one after the other, in one order and the other.
        for index in 0..pieces {
            let at = if index % 3 == 0 { 2 * (pieces - 1 - index / 3) } else { 2 * (index - index / 3 - 1) };
            punch(&volume, &file, at * block, block);
            if index % 64 == 0 {
                volume.sync().unwrap();
                let copy = Arc::new(device.snapshot());
                finish(mount(&copy), &copy, &format!("{index} pieces punched"));
            }
        }
        assert_eq!(clusters_of(&volume, &file), 0);
        drop(file);
        finish(volume, &device, "all punched");
    }
}

/// What is free is taken to the last cluster, and what lies in clusters that a file has needs none.
#[test]
fn the_last_cluster_can_be_taken_and_blocks_in_it_need_no_other() {
    if !has_e2fsprogs() {
        return;
    }
    for (block, cluster) in SIZES {
        for pages in [0, 32 << 20] {
            let device = disk((block, cluster), 24);
            let volume = mount_with_pages(&device, pages, true);
            let half = create(&volume, "half");
            volume.write_at(&half, Some(0), &vec![1; block as usize], true).unwrap();
            let full = create(&volume, "full");
            let all = vec![2; 4 * cluster as usize];
            while let Ok(written @ 1..) = volume.write_at(&full, None, &all, true) {
                assert!(written.is_multiple_of(cluster as usize) || written < all.len());
            }
            // A further extent of that file may take a block of its tree too; one of another file does not.
            let last = create(&volume, "last");
            while let Ok(1..) = volume.write_at(&last, None, &all[..cluster as usize], true) {}
            drop(last);
            volume.sync().unwrap();
            let left = volume.allocator.free_blocks() + volume.allocator.preallocated_blocks();
            assert_eq!(left, volume.reserved_clusters, "{pages} bytes of pages");
            let refused = volume.write_at(&full, None, &all, true);
            assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
            // The rest of the first file's cluster, in pieces.
            for index in 1..cluster / block {
                let written = volume.write_at(&half, Some(index * block), &vec![3; block as usize], true);
                assert_eq!(written.unwrap(), block as usize, "block {index}");
            }
            let refused = volume.write_at(&half, None, &[4], true);
            assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
            volume.sync().unwrap();
            let mut bytes = vec![0; cluster as usize];
            assert_eq!(volume.read_at(&half, 0, &mut bytes).unwrap(), bytes.len());
            assert!(bytes[..block as usize].iter().all(|byte| *byte == 1));
            assert!(bytes[block as usize..].iter().all(|byte| *byte == 3));
            drop((half, full));
            finish(volume, &device, "full");
        }
    }
}

#[test]
fn blocks_of_a_directory_share_clusters_which_go_with_it() {
    if !has_e2fsprogs() {
        return;
    }
    for (block, cluster) in SIZES {
        let device = disk((block, cluster), 24);
        let volume = mount(&device);
        let root = volume.inode(InodeNumber::ROOT).unwrap();
        volume.sync().unwrap();
        let before = volume.allocator.free_blocks();
        let directory = volume.create(&root, b"dir", &new(NewKind::Directory)).unwrap();
        let name = |index: u64| format!("{index:0100}");
        let names = 40 * block / 112;
        let first = volume.create(&directory, b"first", &new(NewKind::File)).unwrap();
        for index in 0..names {
            volume.link(&first, &directory, name(index).as_bytes()).unwrap();
        }
        let blocks = directory.size() / block;
        assert!(blocks > 32, "{blocks} blocks");
        assert_eq!(clusters_of(&volume, &directory), directory.size().div_ceil(cluster));
        volume.sync().unwrap();
        let copy = Arc::new(device.snapshot());
        finish(mount(&copy), &copy, "with a directory");
        for index in 0..names {
            volume.unlink(&directory, name(index).as_bytes()).unwrap();
        }
        volume.unlink(&directory, b"first").unwrap();
        drop((directory, first));
        volume.rmdir(&root, b"dir").unwrap();
        drop(root);
        volume.evict_unlinked();
        volume.sync().unwrap();
        assert_eq!(volume.allocator.free_blocks(), before);
        finish(volume, &device, "without the directory");
    }
}

#[test]
fn ranges_move_by_whole_clusters_only() {
    if !has_e2fsprogs() {
        return;
    }
    let (block, cluster) = SIZES[0];
    let device = disk((block, cluster), 24);
    let volume = mount(&device);
    let file = create(&volume, "file");
    volume.write_at(&file, Some(0), &vec![1; 8 * cluster as usize], true).unwrap();
    for what in [Fallocate::CollapseRange, Fallocate::InsertRange] {
        for (at, bytes) in [(block, cluster), (cluster, block)] {
            let refused = volume.fallocate(&file, what, at, bytes, true);
            assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{what:?}: {refused:?}");
        }
        volume.fallocate(&file, what, cluster, 2 * cluster, true).unwrap();
    }
    assert_eq!((file.size(), clusters_of(&volume, &file)), (8 * cluster, 6));
    drop(file);
    finish(volume, &device, "moved");
}

#[test]
fn another_size_is_refused_by_name_and_nothing_changes() {
    if !has_e2fsprogs() {
        return;
    }
    let device: Arc<dyn BlockDevice> = disk(SIZES[0], 24);
    let options = Options { background: false, ..Options::default() };
    let mut before = vec![0; device.size() as usize];
    device.read_at(0, &mut before).unwrap();
    let grown = resize::grow(&device, &options, 24 << 20).map(drop);
    let to = ShrinkTo::Minimum;
    let planned = shrink::plan(&device, &options, to).map(drop);
    let shrunk = shrink::shrink(&device, &options, to, &mut |_| true).map(drop);
    for refused in [grown, planned, shrunk] {
        let said = refused.expect_err("refused").to_string();
        assert!(said.contains("bigalloc") && said.contains("resize2fs"), "{said}");
    }
    assert_clean(&*device, "after refusals");
}

/// Usage counts whole clusters, for e2fsck too.
#[test]
fn quota_files_are_added_and_usage_counts_clusters() {
    if !has_e2fsprogs() {
        return;
    }
    for (block, cluster) in SIZES {
        let device = disk((block, cluster), 32);
        let volume = mount(&device);
        let before = create(&volume, "before");
        volume.write_at(&before, Some(5 * block), &[1; 100], true).unwrap();
        drop(before);
        finish(volume, &device, "without quotas");
        Tune::new().features("quota,project").unwrap().apply(device.clone()).unwrap();
        assert_clean(&*device, "with quota files");
        let volume = mount_with_pages(&device, 32 << 20, true);
        let file = create(&volume, "file");
        for index in 0..40 {
            volume.write_at(&file, Some(3 * index * block), &[1; 100], true).unwrap();
        }
        punch(&volume, &file, 0, 3 * cluster + block);
        drop(file);
        finish(volume, &device, "with usage");
        Tune::new().features("^quota,^project").unwrap().apply(device.clone()).unwrap();
        assert_clean(&*device, "without quota files again");
    }
}
