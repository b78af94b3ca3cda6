//! What an operation on a range of a cached file writes back and evicts: the range, and nothing else.

use std::ops::Range;

use extant_block::MemoryDevice;
use extant_ondisk::InodeNumber;
use extant_rt::Arc;

use super::disk::{assert_clean, format, has_e2fsprogs, mount_with_pages};
use super::names::new;
use crate::file::fallocate::Fallocate;
use crate::incore::inode_cache::InodeRef;
use crate::mount::Volume;
use crate::namespace::NewKind;

const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;
const FILE_BYTES: u64 = 8 * MIB;
/// Written over after the file was made durable, so that it is dirty.
const DIRTY: Range<u64> = 2 * MIB..3 * MIB;

/// A file all of which is in memory, and what it must contain.
struct Cached {
    device: Arc<MemoryDevice>,
    volume: Arc<Volume>,
    file: InodeRef,
    model: Vec<u8>,
}

impl Cached {
    fn new() -> Self {
        let device = Arc::new(format(&["-b", "4096", "-J", "size=4", "-N", "256"], 64 << 10, &[]).0);
        let volume = mount_with_pages(&device, 32 * MIB, true);
        let root = volume.inode(InodeNumber::ROOT).unwrap();
        let file = volume.create(&root, b"file", &new(NewKind::File)).unwrap();
        let mut cached = Self { device, volume, file, model: Vec::new() };
        cached.write(0..FILE_BYTES, 1);
        cached.volume.sync().unwrap();
        cached.write(DIRTY, 2);
        assert_eq!(cached.used(), (FILE_BYTES, DIRTY.end - DIRTY.start));
        cached
    }

    fn write(&mut self, range: Range<u64>, byte: u8) {
        let (start, end) = (range.start as usize, range.end as usize);
        self.model.resize(self.model.len().max(end), 0);
        self.model[start..end].fill(byte);
        let written = self.volume.write_at(&self.file, Some(range.start), &self.model[start..end], true);
        assert_eq!(written.unwrap(), end - start);
    }

    /// Bytes in memory, and those of them that are dirty.
    fn used(&self) -> (u64, u64) {
        self.volume.pages.as_ref().unwrap().used()
    }

    fn finish(self, what: &str) {
        let mut content = vec![0; self.model.len() + 1];
        let read = self.volume.read_at(&self.file, 0, &mut content).unwrap();
        assert!(content[..read] == self.model, "{what}: the content");
        drop(self.file);
        self.volume.unmount().unwrap();
        assert_clean(&*self.device, what);
    }
}

#[test]
fn an_operation_on_a_block_evicts_a_block() {
    if !has_e2fsprogs() {
        return;
    }
    let operations = [
        (Fallocate::PunchHole, 0),
        (Fallocate::ZeroRange { keep_size: true }, 0),
        (Fallocate::ZeroRange { keep_size: false }, 0),
        (Fallocate::Allocate { keep_size: false }, 1),
    ];
    for (operation, byte) in operations {
        let what = format!("{operation:?}");
        let mut cached = Cached::new();
        let at = FILE_BYTES / 2;
        cached.volume.fallocate(&cached.file, operation, at, BLOCK, true).unwrap();
        assert_eq!(cached.used(), (FILE_BYTES - BLOCK, DIRTY.end - DIRTY.start), "{what}");
        cached.model[at as usize..(at + BLOCK) as usize].fill(byte);
        cached.finish(&what);
    }
}

#[test]
fn an_operation_on_a_dirty_block_writes_a_block_back() {
    if !has_e2fsprogs() {
        return;
    }
    let mut cached = Cached::new();
    // Half a block on either side stays, and is written back for that.
    let punched = DIRTY.start + BLOCK / 2..DIRTY.start + BLOCK + BLOCK / 2;
    cached.volume.fallocate(&cached.file, Fallocate::PunchHole, punched.start, BLOCK, true).unwrap();
    let dirty = DIRTY.end - DIRTY.start;
    assert_eq!(cached.used(), (FILE_BYTES - 2 * BLOCK, dirty - 2 * BLOCK));
    cached.model[punched.start as usize..punched.end as usize].fill(0);
    cached.finish("punched");
}

#[test]
fn a_truncation_evicts_what_it_cuts() {
    if !has_e2fsprogs() {
        return;
    }
    for (size, kept) in [(5 * MIB, 5 * MIB), (5 * MIB + 1, 5 * MIB), (DIRTY.end - BLOCK, DIRTY.end - BLOCK)] {
        let mut cached = Cached::new();
        cached.volume.set_size(&cached.file, size).unwrap();
        let dirty = DIRTY.end.min(kept) - DIRTY.start;
        assert_eq!(cached.used(), (kept, dirty), "{size}");
        cached.model.truncate(size as usize);
        cached.finish(&format!("truncated to {size}"));
    }
}

#[test]
fn what_moves_is_evicted_and_what_lies_before_stays() {
    if !has_e2fsprogs() {
        return;
    }
    for operation in [Fallocate::CollapseRange, Fallocate::InsertRange] {
        let what = format!("{operation:?}");
        let mut cached = Cached::new();
        let at = (DIRTY.start + MIB / 2) as usize;
        cached.volume.fallocate(&cached.file, operation, at as u64, BLOCK, true).unwrap();
        assert_eq!(cached.used(), (at as u64, at as u64 - DIRTY.start), "{what}");
        match operation {
            Fallocate::CollapseRange => drop(cached.model.drain(at..at + BLOCK as usize)),
            _ => drop(cached.model.splice(at..at, [0; BLOCK as usize])),
        }
        cached.finish(&what);
    }
}

#[test]
fn a_range_behind_the_end_on_the_disk_has_all_written_back_and_itself_evicted() {
    if !has_e2fsprogs() {
        return;
    }
    let mut cached = Cached::new();
    cached.write(FILE_BYTES..FILE_BYTES + MIB, 3);
    let at = FILE_BYTES + MIB / 2;
    cached.volume.fallocate(&cached.file, Fallocate::PunchHole, at, BLOCK, true).unwrap();
    assert_eq!(cached.used(), (FILE_BYTES + MIB - BLOCK, 0));
    cached.model[at as usize..(at + BLOCK) as usize].fill(0);
    cached.finish("a range of an append");
}

/// Dirty bytes before a range that is taken out still said how far the file reached before.
#[test]
fn a_file_from_which_a_range_was_taken_ends_where_its_bytes_do() {
    if !has_e2fsprogs() {
        return;
    }
    let mut cached = Cached::new();
    cached.write(FILE_BYTES..FILE_BYTES + BLOCK, 3);
    cached.volume.set_size(&cached.file, FILE_BYTES).unwrap();
    cached.model.truncate(FILE_BYTES as usize);
    cached.volume.fallocate(&cached.file, Fallocate::CollapseRange, 4 * MIB, MIB, true).unwrap();
    drop(cached.model.drain(4 * MIB as usize..5 * MIB as usize));
    assert_eq!(cached.file.size(), FILE_BYTES - MIB);
    assert_eq!(cached.volume.write_at(&cached.file, None, &[4], true).unwrap(), 1);
    cached.model.push(4);
    cached.finish("taken out");
}
