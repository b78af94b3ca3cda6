//! The tables of a qcow2 image that map the disk to clusters of the file.
//!
//! Tables that change stay in memory until `Map::commit`, which makes the clusters that they refer to durable first. So a crash shows
//! each cluster with its content of the last flush, or a later one, and never what the file had there before.

use std::collections::HashMap;
use std::io;
use std::ops::Range;

use extant_block::BlockDevice;
use extant_rt::{AtomicU64, Ordering};

use super::header::Header;
use super::refcounts::Refcounts;
use crate::Format;
use crate::error::damage;
use crate::field::{be64, read_padded, read_vec};

const COPIED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
const ZERO: u64 = 1;
const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;

/// Memory for L2 tables: those of 64 KiB clusters describe 256 GiB in it.
const TABLE_BYTES_MAX: u64 = 32 << 20;

/// Where a cluster of the disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cluster {
    /// In the backing file, or zero if there is none.
    Unallocated,
    Zero,
    /// At this offset of the file; others may refer to it too.
    Data {
        host: u64,
        is_shared: bool,
    },
    /// This many bytes at this offset, packed.
    Packed {
        host: u64,
        bytes: u64,
    },
}

/// A run of the disk that lies together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// That of its first cluster.
    pub cluster: Cluster,
    /// Bytes from the offset that was asked for.
    pub bytes: u64,
}

struct Table {
    entries: Vec<u64>,
    /// The entries that the file does not have yet.
    dirty: Option<Range<usize>>,
    /// When it was last used, to evict the one that was not for longest.
    used: AtomicU64,
}

/// The tables of an image.
pub(super) struct Map {
    cluster_bits: u32,
    version: u32,
    l1_offset: u64,
    l1: Vec<u64>,
    l1_dirty: Option<Range<usize>>,
    tables: HashMap<usize, Table>,
    uses: AtomicU64,
    /// Of an image that is written.
    pub refcounts: Option<Refcounts>,
    /// Clusters that nothing in memory refers to; the file still does.
    unreferenced: Vec<u64>,
}

fn widen(range: &mut Option<Range<usize>>, index: usize) {
    let range = range.get_or_insert(index..index + 1);
    *range = range.start.min(index)..range.end.max(index + 1);
}

fn damaged(reason: impl std::fmt::Display) -> io::Error {
    damage(Format::Qcow2, reason)
}

impl Map {
    pub(super) fn read(file: &dyn BlockDevice, header: &Header, is_read_only: bool) -> io::Result<Self> {
        let bytes = read_vec(file, header.l1_offset, u64::from(header.l1_entries) * 8)?.unwrap_or_default();
        let l1: Vec<u64> = bytes.chunks(8).map(|entry| be64(entry, 0)).collect();
        let tables = l1.iter().map(|entry| entry & OFFSET_MASK);
        let refcounts = if is_read_only { None } else { Some(Refcounts::read(file, header, tables)?) };
        Ok(Self {
            cluster_bits: header.cluster_bits,
            version: header.version,
            l1_offset: header.l1_offset,
            l1,
            l1_dirty: None,
            tables: HashMap::new(),
            uses: AtomicU64::new(0),
            refcounts,
            unreferenced: Vec::new(),
        })
    }

    /// Makes the level-1 table long enough for a disk of `bytes` bytes, if its clusters are: its entries. They are durable.
    pub(super) fn grow_l1(&mut self, file: &dyn BlockDevice, bytes: u64) -> io::Result<u32> {
        let table_covers = self.cluster_bytes() * (self.cluster_bytes() / 8);
        let entries = bytes.div_ceil(table_covers) as usize;
        let has = self.l1.len();
        if entries > has {
            if entries > (has * 8).next_multiple_of(self.cluster_bytes() as usize) / 8 {
                return Err(io::ErrorKind::Unsupported.into());
            }
            let offset = self.l1_offset + has as u64 * 8;
            file.grow(self.l1_offset + entries as u64 * 8)?;
            file.write_at(offset, &vec![0; (entries - has) * 8])?;
            file.flush()?;
            self.l1.resize(entries, 0);
        }
        Ok(self.l1.len() as u32)
    }

    pub(super) fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// The index of the table for `offset` and of its entry there.
    fn place(&self, offset: u64) -> (usize, usize) {
        let cluster = offset >> self.cluster_bits;
        let entries = self.cluster_bytes() / 8;
        ((cluster / entries) as usize, (cluster % entries) as usize)
    }

    /// Whether the table for `offset` is in memory, or there is none.
    pub(super) fn is_loaded(&self, offset: u64) -> bool {
        let (table, _) = self.place(offset);
        self.l1.get(table).is_none_or(|entry| entry & OFFSET_MASK == 0) || self.tables.contains_key(&table)
    }

    /// Has the table for `offset` in memory.
    pub(super) fn load(&mut self, file: &dyn BlockDevice, offset: u64) -> io::Result<()> {
        if self.is_loaded(offset) {
            return Ok(());
        }
        let (index, _) = self.place(offset);
        let host = self.l1[index] & OFFSET_MASK;
        if !host.is_multiple_of(self.cluster_bytes()) || host >= file.size() {
            return Err(damaged(format!("a level-2 table at {host}")));
        }
        self.make_room(file)?;
        let mut bytes = vec![0; self.cluster_bytes() as usize];
        read_padded(file, host, &mut bytes)?;
        let entries = bytes.chunks(8).map(|entry| be64(entry, 0)).collect();
        self.tables.insert(index, Table { entries, dirty: None, used: AtomicU64::new(self.tick()) });
        Ok(())
    }

    fn tick(&self) -> u64 {
        // An estimate of recency, which orders nothing.
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    /// Drops the table that was not used for longest, if there are too many.
    fn make_room(&mut self, file: &dyn BlockDevice) -> io::Result<()> {
        if (self.tables.len() as u64 + 1) * self.cluster_bytes() <= TABLE_BYTES_MAX {
            return Ok(());
        }
        if self.tables.values().all(|table| table.dirty.is_some()) {
            self.commit(file)?;
        }
        let clean = self.tables.iter().filter(|(_, table)| table.dirty.is_none());
        let oldest =
            clean.min_by_key(|(_, table)| table.used.load(Ordering::Relaxed)).map(|(index, _)| *index);
        if let Some(oldest) = oldest {
            self.tables.remove(&oldest);
        }
        Ok(())
    }

    fn decode(&self, entry: u64) -> io::Result<Cluster> {
        if entry & COMPRESSED != 0 {
            let sector_bits = self.cluster_bits - 8;
            let offset_bits = 62 - sector_bits;
            let host = entry & ((1 << offset_bits) - 1);
            let sectors = (entry & !(COPIED | COMPRESSED)) >> offset_bits;
            return Ok(Cluster::Packed { host, bytes: (sectors + 1) * 512 - (host & 511) });
        }
        if self.version >= 3 && entry & ZERO != 0 {
            return Ok(Cluster::Zero);
        }
        match entry & OFFSET_MASK {
            0 => Ok(Cluster::Unallocated),
            host if !host.is_multiple_of(self.cluster_bytes()) => {
                Err(damaged(format!("a cluster at {host}")))
            }
            host => Ok(Cluster::Data { host, is_shared: entry & COPIED == 0 }),
        }
    }

    /// The run at `offset` of at most `max` bytes. Its table is in memory.
    pub(super) fn run(&self, offset: u64, max: u64) -> io::Result<Run> {
        let (index, first) = self.place(offset);
        let (within, entries) = (offset & (self.cluster_bytes() - 1), (self.cluster_bytes() / 8) as usize);
        let run = |cluster, count: usize| {
            let bytes = ((count as u64) << self.cluster_bits) - within;
            Ok(Run { cluster, bytes: bytes.min(max) })
        };
        let Some(table) = self.tables.get(&index) else { return run(Cluster::Unallocated, entries - first) };
        table.used.store(self.tick(), Ordering::Relaxed);
        let wanted = (within + max).div_ceil(self.cluster_bytes()).min((entries - first) as u64) as usize;
        let cluster = self.decode(table.entries[first])?;
        let goes_on = |at: usize| -> io::Result<bool> {
            let next = self.decode(table.entries[first + at])?;
            Ok(match (cluster, next) {
                (Cluster::Unallocated, Cluster::Unallocated) | (Cluster::Zero, Cluster::Zero) => true,
                (Cluster::Data { host, is_shared }, Cluster::Data { host: next, is_shared: next_shared }) => {
                    next == host + ((at as u64) << self.cluster_bits) && is_shared == next_shared
                }
                _ => false,
            })
        };
        let mut count = 1;
        while count < wanted && goes_on(count)? {
            count += 1;
        }
        run(cluster, count)
    }

    /// Has a table for `offset` in memory that is this image's own.
    pub(super) fn own_table(&mut self, file: &dyn BlockDevice, offset: u64) -> io::Result<()> {
        self.load(file, offset)?;
        let (index, _) = self.place(offset);
        let entry = *self.l1.get(index).ok_or_else(|| damaged("a level-1 table that is too short"))?;
        let old = entry & OFFSET_MASK;
        if old != 0 && entry & COPIED != 0 {
            return Ok(());
        }
        self.make_room(file)?;
        // Making room may have dropped it.
        self.load(file, offset)?;
        let refcounts = self.refcounts.as_mut().ok_or(io::ErrorKind::PermissionDenied)?;
        let cluster = refcounts.allocate(file, 1)?.start;
        refcounts.set_metadata(cluster, true);
        let entries = (1usize << self.cluster_bits) / 8;
        let used = AtomicU64::new(self.tick());
        let table = self.tables.entry(index).or_insert_with(|| Table {
            entries: vec![0; entries],
            dirty: None,
            used,
        });
        table.dirty = Some(0..entries);
        self.l1[index] = cluster << self.cluster_bits | COPIED;
        widen(&mut self.l1_dirty, index);
        if old != 0 {
            self.unreferenced.push(old >> self.cluster_bits);
        }
        Ok(())
    }

    /// Maps the cluster at `offset`, whose table is this image's own, and releases what it was mapped to.
    pub(super) fn set(&mut self, offset: u64, cluster: Cluster) -> io::Result<()> {
        let (index, place) = self.place(offset);
        let (version, bits) = (self.version, self.cluster_bits);
        let entry = match cluster {
            Cluster::Unallocated => 0,
            Cluster::Zero if version >= 3 => ZERO,
            Cluster::Data { host, is_shared: false } => host | COPIED,
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        let old = self.entry(offset);
        let table = self.tables.get_mut(&index).ok_or_else(|| damaged("no level-2 table"))?;
        table.entries[place] = entry;
        widen(&mut table.dirty, place);
        let (first, last) = if old & COMPRESSED != 0 {
            match self.decode(old)? {
                Cluster::Packed { host, bytes } => (host >> bits, (host + bytes - 1) >> bits),
                _ => return Ok(()),
            }
        } else {
            // A zero cluster may have a place in the file too.
            let host = old & OFFSET_MASK;
            if host == 0 {
                return Ok(());
            }
            (host >> bits, host >> bits)
        };
        self.unreferenced.extend(first..=last);
        Ok(())
    }

    fn entry(&self, offset: u64) -> u64 {
        let (index, place) = self.place(offset);
        self.tables.get(&index).map_or(0, |table| table.entries[place])
    }

    /// Whether the file has all that is in memory.
    pub(super) fn is_clean(&self) -> bool {
        self.l1_dirty.is_none()
            && self.unreferenced.is_empty()
            && self.tables.values().all(|table| table.dirty.is_none())
            && self.refcounts.as_ref().is_none_or(|refcounts| !refcounts.is_dirty())
    }

    /// Makes everything durable, in an order in which the file is whole at every moment: data and refcounts, then the tables that refer
    /// to them, then the table of those; last what is not referred to any longer is free.
    pub(super) fn commit(&mut self, file: &dyn BlockDevice) -> io::Result<()> {
        let Some(refcounts) = self.refcounts.as_mut() else { return Ok(()) };
        refcounts.write(file)?;
        if self.l1_dirty.is_some() || self.tables.values().any(|table| table.dirty.is_some()) {
            file.flush()?;
            self.write_tables(file)?;
        }
        file.flush()?;
        self.free_unreferenced(file)
    }

    fn write_tables(&mut self, file: &dyn BlockDevice) -> io::Result<()> {
        let Some(refcounts) = self.refcounts.as_mut() else { return Ok(()) };
        for (index, table) in &mut self.tables {
            let Some(dirty) = table.dirty.clone() else { continue };
            let host = self.l1[*index] & OFFSET_MASK;
            let bytes: Vec<u8> =
                table.entries[dirty.clone()].iter().flat_map(|entry| entry.to_be_bytes()).collect();
            file.write_at(host + dirty.start as u64 * 8, &bytes)?;
            refcounts.note_written(host + dirty.end as u64 * 8);
            table.dirty = None;
        }
        if let Some(dirty) = self.l1_dirty.clone() {
            file.flush()?;
            let bytes: Vec<u8> =
                self.l1[dirty.clone()].iter().flat_map(|entry| entry.to_be_bytes()).collect();
            file.write_at(self.l1_offset + dirty.start as u64 * 8, &bytes)?;
            self.l1_dirty = None;
        }
        Ok(())
    }

    /// Frees the clusters that the file does not refer to any longer, and gives their space back to the host.
    fn free_unreferenced(&mut self, file: &dyn BlockDevice) -> io::Result<()> {
        let Some(refcounts) = self.refcounts.as_mut() else { return Ok(()) };
        if self.unreferenced.is_empty() {
            return Ok(());
        }
        let mut free = refcounts.release(file, std::mem::take(&mut self.unreferenced))?;
        refcounts.write(file)?;
        free.sort_unstable();
        for run in free.chunk_by(|left, right| left + 1 == *right) {
            let (start, len) = (run[0] << self.cluster_bits, (run.len() as u64) << self.cluster_bits);
            run.iter().for_each(|cluster| refcounts.set_metadata(*cluster, false));
            // A host that cannot has them reused all the same.
            match file.discard(start, len.min(file.size().saturating_sub(start))) {
                Err(error) if error.kind() != io::ErrorKind::Unsupported => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}
