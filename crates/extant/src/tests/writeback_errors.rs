//! Writeback that fails: what is lost with it, and which calls report it.

use std::io;
use std::sync::mpsc;

use extant_block::{BlockDevice, Fault, FaultDevice, MemoryDevice, Operation};
use extant_ondisk::extent::Entries;
use extant_ondisk::{Extent, ExtentNode, FsBlock, InodeNumber, LogicalBlock};
use extant_rt::{Arc, AtomicBool, AtomicU64, Ordering, apart};

use super::disk::{Random, assert_clean, format, has_e2fsprogs, has_threads};
use super::names::new;
use crate::Mount;
use crate::error::Error;
use crate::file::fallocate::Fallocate;
use crate::incore::inode::Inode;
use crate::incore::inode_cache::InodeRef;
use crate::mount::Options;
use crate::mount::Volume;
use crate::namespace::NewKind;
use crate::page_cache::writeback_extents::BATCH_RUNS_MAX;

const BLOCK: u64 = 4096;

type Device = Arc<FaultDevice<Arc<MemoryDevice>>>;

fn disk() -> (Arc<MemoryDevice>, Device) {
    let memory = Arc::new(format(&["-b", "4096", "-J", "size=4", "-N", "256"], 64 << 10, &[]).0);
    (memory.clone(), Arc::new(FaultDevice::new(memory, |_| Fault::None)))
}

fn mount(device: &Device, background: bool) -> Arc<Volume> {
    let options = Options { background, page_cache_bytes: Some(64 << 20), ..Options::default() };
    let volume = Volume::mount(device.clone(), &options).unwrap().0;
    volume.start_threads(Arc::downgrade(&volume) as _);
    volume
}

fn create(volume: &Arc<Volume>, name: &str) -> InodeRef {
    let root = volume.inode(InodeNumber::ROOT).unwrap();
    volume.create(&root, name.as_bytes(), &new(NewKind::File)).unwrap()
}

/// Writes blocks, each filled with its number and `round`.
fn write(volume: &Volume, file: &InodeRef, blocks: std::ops::Range<u64>, round: u8) {
    for block in blocks {
        let bytes = [pattern(block), round].repeat(BLOCK as usize / 2);
        assert_eq!(volume.write_at(file, Some(block * BLOCK), &bytes, true).unwrap(), bytes.len());
    }
}

fn pattern(block: u64) -> u8 {
    1 + (block % 251) as u8
}

/// The round in which each block of a file was written last that the disk has; 0 in a hole.
fn rounds(volume: &Volume, file: &InodeRef) -> Vec<u8> {
    let mut bytes = vec![0; volume.attributes(file).size as usize];
    assert_eq!(volume.read_at(file, 0, &mut bytes).unwrap(), bytes.len());
    let blocks = bytes.chunks(BLOCK as usize).zip(0..);
    let round = |(bytes, block): (&[u8], u64)| {
        let is_whole = bytes.chunks(2).all(|pair| pair == &bytes[..2]);
        assert!(is_whole && (bytes[0] == 0 || bytes[0] == pattern(block)), "block {block}");
        bytes[1]
    };
    blocks.map(round).collect()
}

/// Fails writes that touch one of the bytes.
fn break_at(device: &Device, bad: Vec<u64>) {
    device.set_plan(move |request| {
        let range = request.offset..request.offset + request.bytes;
        match request.operation == Operation::Write && bad.iter().any(|bad| range.contains(bad)) {
            true => Fault::Error(io::ErrorKind::Other),
            false => Fault::None,
        }
    });
}

#[test]
fn small_files_are_written_by_one_request_and_a_bad_block_costs_its_file_alone() {
    if !has_e2fsprogs() {
        return;
    }
    const FILES: usize = 8;
    let (memory, device) = disk();
    let volume = mount(&device, false);
    let files: Vec<_> = (0..FILES).map(|index| create(&volume, &index.to_string())).collect();
    // Of which files the writeback succeeds.
    let write_back = |round: u8| {
        files.iter().for_each(|file| write(&volume, file, 0..1, round));
        let inodes: Vec<&Arc<Inode>> = files.iter().map(|file| &**file).collect();
        let held: Vec<_> =
            inodes.iter().map(|inode| (*inode, inode.try_lock_for_writeback().unwrap())).collect();
        let flushed = volume.flush_together(volume.pages.as_ref().unwrap(), &held);
        flushed.iter().map(|(_, result)| result.is_ok()).collect::<Vec<_>>()
    };
    let requests = Arc::new(AtomicU64::new(0));
    let seen = requests.clone();
    device.set_plan(move |request| {
        seen.fetch_add(u64::from(request.operation == Operation::Write), Ordering::Relaxed);
        Fault::None
    });
    assert_eq!(write_back(1), [true; FILES]);
    assert_eq!(requests.load(Ordering::Relaxed), 1);

    let place = |file: &InodeRef| volume.all_extents(file.number, &file.raw()).unwrap()[0].start.0 * BLOCK;
    break_at(&device, vec![place(&files[2])]);
    let is_other = std::array::from_fn::<_, FILES, _>(|index| index != 2);
    assert_eq!(write_back(2), is_other);

    // A failure that does not come again is reported all the same.
    let is_first = AtomicBool::new(true);
    device.set_plan(move |request| {
        match request.operation == Operation::Write && is_first.swap(false, Ordering::Relaxed) {
            true => Fault::Error(io::ErrorKind::Other),
            false => Fault::None,
        }
    });
    assert_eq!(write_back(3).iter().filter(|is_written| **is_written).count(), FILES - 1);
    assert!(files.iter().all(|file| rounds(&volume, file) == [3]));
    assert!(matches!(volume.sync(), Err(Error::Io { .. })));
    volume.unmount().unwrap();
    assert_clean(&*memory, "after failures");
}

#[test]
fn a_bad_block_costs_only_itself_and_the_rest_is_written() {
    if !has_e2fsprogs() {
        return;
    }
    const BLOCKS: u64 = 3000;
    for seed in 1..6 {
        let mut random = Random::new(seed);
        let (memory, device) = disk();
        let volume = mount(&device, false);
        let file = create(&volume, "file");
        // Mapped blocks first.
        write(&volume, &file, 0..BLOCKS, 1);
        volume.sync().unwrap();
        let extents = volume.all_extents(file.number, &file.raw()).unwrap();
        let start = |block: u64| {
            let extent = extents.iter().find(|extent| block < extent.end()).unwrap();
            (extent.start.0 + block - u64::from(extent.logical.0)) * BLOCK
        };
        let bad: Vec<u64> = (0..4).map(|_| random.below(BLOCKS)).collect();
        break_at(&device, bad.iter().map(|block| start(*block) + random.below(BLOCK)).collect());
        let cursor = file.writeback_error.sample();
        write(&volume, &file, 0..BLOCKS, 2);
        assert!(matches!(volume.sync_inode(&file, true), Err(Error::Io { .. })), "seed {seed}");
        assert!(file.writeback_error.check_and_advance(&cursor));
        let expected = |block: u64| if bad.contains(&block) { 1 } else { 2 };
        assert_eq!(rounds(&volume, &file), (0..BLOCKS).map(expected).collect::<Vec<_>>(), "seed {seed}");

        // Then new ones: which blocks they get is not known before.
        let from = BLOCKS + 10;
        let first = AtomicU64::new(u64::MAX);
        let bad: Vec<u64> = (0..4).map(|_| random.below(BLOCKS - 1)).collect();
        let lost = bad.clone();
        device.set_plan(move |request| {
            let blocks = request.offset / BLOCK..(request.offset + request.bytes) / BLOCK;
            // The first large write shows where they are.
            if request.operation == Operation::Write && request.bytes > 1 << 20 {
                let _ = first.compare_exchange(u64::MAX, blocks.start, Ordering::Relaxed, Ordering::Relaxed);
            }
            let is_bad = |bad: &u64| blocks.contains(&first.load(Ordering::Relaxed).wrapping_add(*bad));
            match request.operation == Operation::Write && bad.iter().any(is_bad) {
                true => Fault::Error(io::ErrorKind::Other),
                false => Fault::None,
            }
        });
        write(&volume, &file, from..from + BLOCKS, 3);
        assert!(matches!(volume.sync_inode(&file, true), Err(Error::Io { .. })), "seed {seed}");
        device.set_plan(|_| Fault::None);
        let found = rounds(&volume, &file);
        assert_eq!(found.len() as u64, from + BLOCKS, "seed {seed}: it grew over what was lost");
        for block in 0..2048 {
            let expected = if lost.contains(&block) { 0 } else { 3 };
            assert_eq!(
                found[(from + block) as usize],
                expected,
                "seed {seed}: block {block} of the new ones"
            );
        }
        volume.sync_inode(&file, true).unwrap();
        assert!(matches!(volume.sync(), Err(Error::Io { .. })), "who syncs all learns of it once");
        volume.sync().unwrap();
        drop(file);
        volume.unmount().unwrap();
        assert_clean(&*memory, "after losses");
    }
}

#[test]
fn blocks_whose_map_is_damaged_cost_no_others_of_their_run() {
    if !has_e2fsprogs() {
        return;
    }
    const BLOCKS: u64 = 200;
    let (memory, device) = disk();
    let volume = mount(&device, false);
    let file = create(&volume, "file");
    write(&volume, &file, 0..BLOCKS, 1);
    volume.sync().unwrap();
    write(&volume, &file, 0..BLOCKS, 2);
    let intact = *file.raw().i_block();
    let mut root = ExtentNode::parse(&intact, None).unwrap();
    let Entries::Leaf(extents) = &mut root.entries else { panic!("a small file") };
    let first = extents[0];
    assert!(first.logical.0 == 0 && first.len >= 60, "{first:?}");
    let behind = |from: u16| Extent {
        logical: LogicalBlock(from.into()),
        len: first.len - from,
        start: FsBlock(first.start.0 + u64::from(from)),
        ..first
    };
    extents[0].len = 40;
    extents.insert(1, behind(50));
    root.write(Arc::make_mut(&mut file.state_mut().raw).i_block_mut()).unwrap();
    assert!(matches!(volume.sync_inode(&file, true), Err(Error::Corrupt { .. })));
    *Arc::make_mut(&mut file.state_mut().raw).i_block_mut() = intact;
    volume.drop_pages(&file, 0..u32::MAX);
    let expected = |block: u64| if (40..50).contains(&block) { 1 } else { 2 };
    assert_eq!(rounds(&volume, &file), (0..BLOCKS).map(expected).collect::<Vec<_>>());
    write(&volume, &file, 0..BLOCKS, 3);
    volume.sync_inode(&file, true).unwrap();
    drop(file);
    let _ = volume.sync();
    volume.unmount().unwrap();
    assert_clean(&*memory, "after a loss");
}

/// Calls `meanwhile` in the midst of one write of data; those before it fail, and it does if it `fails`.
fn interrupt(device: &Device, number: u64, fails: bool, meanwhile: impl FnOnce() + Send + 'static) {
    let mut writes = 0;
    let mut meanwhile = Some(meanwhile);
    device.set_plan(move |request| {
        if request.operation != Operation::Write {
            return Fault::None;
        }
        writes += 1;
        if writes == number {
            meanwhile.take().map(apart);
        }
        if fails && writes == number || writes < number {
            Fault::Error(io::ErrorKind::Other)
        } else {
            Fault::None
        }
    });
}

#[test]
fn an_error_is_recorded_before_its_blocks_are_clean() {
    if !has_e2fsprogs() {
        return;
    }
    let (_memory, device) = disk();
    let volume = mount(&device, false);
    let file = create(&volume, "file");
    // Runs of one block: a batch of them fails, and the one behind it is held up.
    (0..=BATCH_RUNS_MAX as u64).for_each(|run| write(&volume, &file, 2 * run..2 * run + 1, 1));
    let cursor = file.writeback_error.sample();
    let (sender, seen) = mpsc::channel();
    let look = {
        let (volume, file) = (volume.clone(), file.clone());
        move || {
            let dirty = volume.pages.as_ref().unwrap().used().1;
            let is_recorded = file.writeback_error.check_and_advance(&cursor);
            sender.send((dirty, is_recorded, volume.check_writeback_error().is_err())).unwrap();
        }
    };
    interrupt(&device, BATCH_RUNS_MAX as u64 + 1, false, look);
    assert!(volume.sync_inode(&file, true).is_err());
    let (dirty, is_recorded, is_reported) = seen.recv().expect("it was written");
    assert_eq!(dirty, BLOCK, "the first runs are clean");
    assert!(is_recorded && is_reported, "and nobody learns why");
}

#[test]
fn what_is_written_over_a_run_that_fails_is_written_back_again() {
    if !has_e2fsprogs() {
        return;
    }
    for is_mapped in [false, true] {
        let (memory, device) = disk();
        let volume = mount(&device, false);
        let file = create(&volume, "file");
        if is_mapped {
            write(&volume, &file, 0..1, 1);
            volume.sync().unwrap();
        }
        write(&volume, &file, 0..1, 2);
        let beside = (volume.clone(), file.clone());
        interrupt(&device, 1, true, move || write(&beside.0, &beside.1, 0..1, 3));
        assert!(volume.sync_inode(&file, true).is_err());
        // Acknowledged, so it is there.
        volume.sync_inode(&file, true).unwrap();
        volume.drop_pages(&file, 0..u32::MAX);
        assert_eq!(rounds(&volume, &file), [3], "mapped before: {is_mapped}");
        drop(file);
        let _ = volume.sync();
        volume.unmount().unwrap();
        assert_clean(&*memory, "after a loss");
    }
}

/// A device that fails writes of content, as [`write`] makes it, while it is broken.
struct ContentFails {
    inner: Arc<MemoryDevice>,
    is_broken: AtomicBool,
}

impl BlockDevice for ContentFails {
    fn size(&self) -> u64 {
        self.inner.size()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }
    fn write_vectored_at(&self, offset: u64, bufs: &[io::IoSlice<'_>]) -> io::Result<()> {
        let is_content = bufs.iter().all(|buf| buf[0] != 0 && buf.chunks(2).all(|pair| pair == &buf[..2]));
        if is_content && self.is_broken.load(Ordering::Relaxed) {
            return Err(io::Error::other("broken"));
        }
        self.inner.write_vectored_at(offset, bufs)
    }
    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.discard(offset, bytes)
    }
    fn write_zeroes(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.write_zeroes(offset, bytes)
    }
}

/// Appends blocks to a file, each with an `fsync`; gives how often that failed.
fn append_and_sync(volume: &Arc<Volume>, device: &ContentFails, name: &str) -> u64 {
    const ROUNDS: u64 = 150;
    let file = create(volume, name);
    let cursor = file.writeback_error.sample();
    let mut failures = 0;
    for round in 0..ROUNDS {
        device.is_broken.store(round % 2 == 0, Ordering::Relaxed);
        write(volume, &file, round..round + 1, 1);
        let synced = volume.sync_inode(&file, true);
        let is_told = file.writeback_error.check_and_advance(&cursor) || synced.is_err();
        volume.drop_pages(&file, 0..u32::MAX);
        let is_there = rounds(volume, &file).get(round as usize) == Some(&1);
        assert!(is_there || is_told, "{name}: block {round} is lost unseen");
        failures += u64::from(is_told);
    }
    failures
}

/// Writers, background threads and syncs of the whole side by side: what an `fsync` acknowledged is on the disk.
#[test]
fn no_fsync_acknowledges_what_was_lost() {
    if !has_threads() {
        return;
    }
    const THREADS: u64 = 3;
    if !has_e2fsprogs() {
        return;
    }
    let memory = disk().0;
    let device = Arc::new(ContentFails { inner: memory.clone(), is_broken: AtomicBool::new(false) });
    let options = Options { page_cache_bytes: Some(64 << 20), ..Options::default() };
    let volume = Volume::mount(device.clone(), &options).unwrap().0;
    volume.start_threads(Arc::downgrade(&volume) as _);
    let (done, failures) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (volume, device, done, failures) = (&volume, &device, &done, &failures);
            scope.spawn(move || {
                let failed = append_and_sync(volume, device, &format!("f{thread}"));
                failures.fetch_add(failed, Ordering::Relaxed);
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        scope.spawn(|| {
            while done.load(Ordering::Relaxed) < THREADS {
                let _ = volume.sync();
            }
        });
    });
    assert!(failures.load(Ordering::Relaxed) > 0, "nothing was lost");
    device.is_broken.store(false, Ordering::Relaxed);
    let _ = volume.sync();
    volume.sync().expect("only data was lost");
    volume.unmount().unwrap();
    assert_clean(&*memory, "after losses");
}

/// A file that is closed when its data is lost, and evicted from memory before the next `fsync` of it.
#[test]
fn a_loss_is_reported_to_a_file_that_was_evicted_meanwhile() {
    const OTHERS: u32 = 200;
    if !has_e2fsprogs() {
        return;
    }
    let (memory, device) = disk();
    let mount = Mount::new().background(false).cache_bytes(0).page_cache_bytes(64 << 20);
    let fs = mount.open_device(device.clone()).unwrap();
    for other in 0..OTHERS {
        fs.write(format!("/{other}"), b"").unwrap();
    }
    fs.write("/lost", [1; 2 * BLOCK as usize]).unwrap();
    fs.write("/deleted", [1; 2 * BLOCK as usize]).unwrap();
    // Content is written before any metadata.
    let mut left = 6;
    device.set_plan(move |request| {
        let is_content = request.operation == Operation::Write && left > 0;
        left -= u32::from(is_content);
        if is_content { Fault::Error(io::ErrorKind::Other) } else { Fault::None }
    });
    assert!(matches!(fs.sync(), Err(Error::Io { .. })), "a sync of all reports it");
    device.set_plan(|_| Fault::None);
    fs.sync().unwrap();
    fs.remove_file("/deleted").unwrap();
    for other in 0..OTHERS {
        fs.lookup(format!("/{other}")).unwrap();
        fs.write(format!("/new-{other}"), b"").unwrap_or_default();
    }
    let lost = fs.open("/lost").unwrap();
    assert!(matches!(lost.sync_all(), Err(Error::Io { .. })), "an fsync acknowledges lost data");
    lost.sync_all().unwrap();
    for other in 0..OTHERS {
        fs.open(format!("/{other}")).unwrap().sync_all().unwrap();
        let _ = fs.open(format!("/new-{other}")).map(|file| file.sync_all().unwrap());
    }
    fs.open("/lost").unwrap().sync_all().expect("it was reported");
    drop(lost);
    fs.unmount().unwrap();
    assert_clean(&*memory, "after a loss");
}

/// A file that lost its last blocks is shorter than its writer knows, so that ranges which the writer may name are refused.
#[test]
fn a_range_that_is_refused_after_a_loss_tells_of_the_loss() {
    if !has_e2fsprogs() {
        return;
    }
    let (memory, device) = disk();
    let mount = Mount::new().background(false).page_cache_bytes(64 << 20);
    let fs = mount.open_device(device.clone()).unwrap();
    let file = fs.create("/lost").unwrap();
    file.write_all_at(&[1; 8 * BLOCK as usize], 0).unwrap();
    let insert = |from: u64| file.allocate(Fallocate::InsertRange, from * BLOCK, BLOCK);
    assert!(matches!(insert(8), Err(Error::InvalidArgument(_))), "nothing was lost yet");
    fs.sync().unwrap();
    file.write_all_at(&[1; BLOCK as usize], 8 * BLOCK).unwrap();
    // Content is written before any metadata.
    let mut is_first = true;
    device.set_plan(move |request| {
        match request.operation == Operation::Write && std::mem::take(&mut is_first) {
            true => Fault::Error(io::ErrorKind::Other),
            false => Fault::None,
        }
    });
    assert!(matches!(fs.sync(), Err(Error::Io { .. })), "a sync of all reports it");
    assert_eq!(file.metadata().len(), 8 * BLOCK);
    for _ in 0..2 {
        assert!(matches!(insert(8), Err(Error::Io { .. })), "{:?}", insert(8));
    }
    assert!(matches!(file.sync_all(), Err(Error::Io { .. })), "an fsync acknowledges lost data");
    assert!(matches!(insert(8), Err(Error::InvalidArgument(_))), "it was reported");
    insert(4).unwrap();
    drop(file);
    fs.unmount().unwrap();
    assert_clean(&*memory, "after a loss");
}
