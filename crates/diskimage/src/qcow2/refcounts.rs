//! The refcounts of a qcow2 image, and the allocation of clusters.
//!
//! Refcounts change in memory. `write` puts blocks into the file before anything that is durable refers to what they count, so that a
//! crash leaks clusters at worst.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;

use extant_block::BlockDevice;

use super::header::{Header, REFCOUNT_TABLE_BYTES_MAX, REFCOUNT_TABLE_OFFSET};
use crate::Format;
use crate::error::damage;
use crate::field::{be64, read_vec};

/// The file is made longer by at least so much at once.
const GROWTH_BYTES: u64 = 1 << 20;

/// Blocks that are kept in memory, unless they changed.
const BLOCK_BYTES_MAX: u64 = 16 << 20;

struct Block {
    bytes: Vec<u8>,
    is_dirty: bool,
}

/// The refcounts of an image that is written.
pub(super) struct Refcounts {
    cluster_bits: u32,
    order: u32,
    table_offset: u64,
    /// The offset of each block; 0 for none.
    table: Vec<u64>,
    /// Entries of the table that are not in the file yet.
    new_blocks: BTreeSet<usize>,
    blocks: BTreeMap<usize, Block>,
    /// No cluster before it is free.
    next_free: u64,
    /// Clusters of metadata, whose refcounts must not be 0.
    metadata: BTreeSet<u64>,
    /// Bytes from here on were never written, and read as zero.
    fresh_from: u64,
}

fn damaged(reason: impl std::fmt::Display) -> io::Error {
    damage(Format::Qcow2, reason)
}

impl Refcounts {
    /// Reads the table. `l1` are the offsets of the L2 tables.
    pub(super) fn read(
        file: &dyn BlockDevice,
        header: &Header,
        l1: impl Iterator<Item = u64>,
    ) -> io::Result<Self> {
        let bytes = u64::from(header.refcount_table_clusters) << header.cluster_bits;
        let bytes = read_vec(file, header.refcount_table_offset, bytes)?.unwrap_or_default();
        let table: Vec<u64> = bytes.chunks(8).map(|entry| be64(entry, 0)).collect();
        let mut metadata = BTreeSet::from([0]);
        let cluster = |offset: u64| offset >> header.cluster_bits;
        for &offset in table.iter().filter(|offset| **offset != 0) {
            let is_there = offset.is_multiple_of(header.cluster_bytes())
                && offset.checked_add(header.cluster_bytes()).is_some_and(|end| end <= file.size());
            if !is_there || !metadata.insert(cluster(offset)) {
                return Err(damaged(format!("a refcount block at {offset}")));
            }
        }
        metadata.extend(l1.filter(|offset| *offset != 0).map(cluster));
        let mut tables = vec![
            (header.l1_offset, u64::from(header.l1_entries) * 8),
            (header.refcount_table_offset, table.len() as u64 * 8),
        ];
        if header.snapshots > 0 {
            tables.push((header.snapshots_offset, 1));
        }
        for (offset, bytes) in tables {
            metadata
                .extend(cluster(offset)..cluster(offset.saturating_add(bytes + header.cluster_bytes() - 1)));
        }
        Ok(Self {
            cluster_bits: header.cluster_bits,
            order: header.refcount_order,
            table_offset: header.refcount_table_offset,
            table,
            new_blocks: BTreeSet::new(),
            blocks: BTreeMap::new(),
            next_free: 0,
            metadata,
            fresh_from: file.size().next_multiple_of(header.cluster_bytes()),
        })
    }

    fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Refcounts in a block.
    fn per_block(&self) -> u64 {
        (self.cluster_bytes() * 8) >> self.order
    }

    /// Whether nothing was written yet from `offset` on.
    pub(super) fn is_fresh(&self, offset: u64) -> bool {
        offset >= self.fresh_from
    }

    /// Something was written below `end`.
    pub(super) fn note_written(&mut self, end: u64) {
        self.fresh_from = self.fresh_from.max(end.next_multiple_of(self.cluster_bytes()));
    }

    /// Whether there are refcounts that the file does not have.
    pub(super) fn is_dirty(&self) -> bool {
        self.blocks.values().any(|block| block.is_dirty)
    }

    /// A cluster holds metadata, or no longer.
    pub(super) fn set_metadata(&mut self, cluster: u64, is_metadata: bool) {
        if is_metadata {
            self.metadata.insert(cluster);
        } else {
            self.metadata.remove(&cluster);
        }
    }

    fn block(&mut self, file: &dyn BlockDevice, index: usize) -> io::Result<Option<&mut Block>> {
        let offset = self.table.get(index).copied().unwrap_or(0);
        if offset == 0 {
            return Ok(None);
        }
        if !self.blocks.contains_key(&index) {
            let bytes = read_vec(file, offset, self.cluster_bytes())?;
            let bytes = bytes.ok_or_else(|| damaged(format!("a refcount block at {offset}")))?;
            if self.blocks.len() as u64 * self.cluster_bytes() >= BLOCK_BYTES_MAX {
                self.blocks.retain(|_, block| block.is_dirty);
            }
            self.blocks.insert(index, Block { bytes, is_dirty: false });
        }
        Ok(self.blocks.get_mut(&index))
    }

    fn place(&self, cluster: u64) -> (usize, u64) {
        ((cluster / self.per_block()) as usize, cluster % self.per_block())
    }

    fn get(&mut self, file: &dyn BlockDevice, cluster: u64) -> io::Result<u64> {
        let ((index, place), order) = (self.place(cluster), self.order);
        Ok(self.block(file, index)?.map_or(0, |block| refcount(&block.bytes, place, order)))
    }

    fn set(&mut self, file: &dyn BlockDevice, cluster: u64, value: u64) -> io::Result<()> {
        let ((index, place), order) = (self.place(cluster), self.order);
        let block = self.block(file, index)?;
        let block = block.ok_or_else(|| damaged(format!("no refcount of cluster {cluster}")))?;
        set_refcount(&mut block.bytes, place, order, value);
        block.is_dirty = true;
        Ok(())
    }

    /// Allocates up to `max` clusters that lie together, and makes the file long enough.
    pub(super) fn allocate(&mut self, file: &dyn BlockDevice, max: u64) -> io::Result<Range<u64>> {
        let mut start = self.next_free;
        loop {
            self.make_block(file, start)?;
            if self.get(file, start)? == 0 {
                break;
            }
            start += 1;
        }
        let mut end = start;
        // Within one block, which exists.
        let last = (start / self.per_block() + 1) * self.per_block();
        while end < last && end - start < max && self.get(file, end)? == 0 {
            if self.metadata.contains(&end) {
                return Err(damaged(format!(
                    "the metadata in cluster {end} counts as free; `qemu-img check -r all IMAGE` repairs it"
                )));
            }
            end += 1;
        }
        self.extend_file(file, end)?;
        for cluster in start..end {
            self.set(file, cluster, 1)?;
        }
        self.next_free = end;
        Ok(start..end)
    }

    /// Takes one reference to clusters away; those that have none left: they are free at once.
    pub(super) fn release(
        &mut self,
        file: &dyn BlockDevice,
        clusters: impl IntoIterator<Item = u64>,
    ) -> io::Result<Vec<u64>> {
        let mut free = Vec::new();
        for cluster in clusters {
            let count = self.get(file, cluster)?;
            let left = count.checked_sub(1).ok_or_else(|| {
                damaged(format!(
                    "cluster {cluster} is in use and counts as free; `qemu-img check -r all IMAGE` repairs it"
                ))
            })?;
            self.set(file, cluster, left)?;
            if left == 0 {
                self.next_free = self.next_free.min(cluster);
                free.push(cluster);
            }
        }
        Ok(free)
    }

    /// Makes the block for a cluster's refcount, if there is none: in that cluster itself.
    fn make_block(&mut self, file: &dyn BlockDevice, cluster: u64) -> io::Result<()> {
        let (index, _) = self.place(cluster);
        if index >= self.table.len() {
            self.grow_table(file, cluster)?;
        }
        if self.table[index] == 0 {
            self.add_block(index, cluster)?;
            self.extend_file(file, cluster + 1)?;
            self.set(file, cluster, 1)?;
        }
        Ok(())
    }

    fn extend_file(&self, file: &dyn BlockDevice, end: u64) -> io::Result<()> {
        let bytes = end << self.cluster_bits;
        if bytes <= file.size() {
            return Ok(());
        }
        match file.grow(bytes.next_multiple_of(GROWTH_BYTES)) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "the device has no room for more of the qcow2 image",
            )),
            grown => grown,
        }
    }

    /// Enters an empty block that lies in `cluster`.
    fn add_block(&mut self, index: usize, cluster: u64) -> io::Result<()> {
        if !self.metadata.insert(cluster) {
            return Err(damaged(format!("no refcount of the metadata in cluster {cluster}")));
        }
        self.table[index] = cluster << self.cluster_bits;
        self.new_blocks.insert(index);
        self.blocks.insert(index, Block { bytes: vec![0; self.cluster_bytes() as usize], is_dirty: true });
        Ok(())
    }

    /// Moves the table to `cluster`, from where on nothing is counted, twice as long: durable on return.
    fn grow_table(&mut self, file: &dyn BlockDevice, cluster: u64) -> io::Result<()> {
        let old_bytes = self.table.len() as u64 * 8;
        let new_bytes = (old_bytes * 2).max(self.cluster_bytes());
        if new_bytes > REFCOUNT_TABLE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "a qcow2 image cannot become longer"));
        }
        self.write(file)?;
        let table_clusters = new_bytes.div_ceil(self.cluster_bytes());
        let (first, _) = self.place(cluster);
        let mut blocks = 1;
        while (cluster + blocks + table_clusters).div_ceil(self.per_block()) > first as u64 + blocks {
            blocks += 1;
        }
        let end = cluster + blocks + table_clusters;
        self.table.resize((new_bytes / 8) as usize, 0);
        if end.div_ceil(self.per_block()) > self.table.len() as u64 {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "a qcow2 image cannot become longer"));
        }
        self.extend_file(file, end)?;
        for block in 0..blocks {
            self.add_block(first + block as usize, cluster + block)?;
        }
        for counted in cluster..end {
            self.set(file, counted, 1)?;
        }
        // The new table is written whole.
        self.new_blocks.clear();
        self.write_blocks(file)?;
        let new_offset = (cluster + blocks) << self.cluster_bits;
        let mut bytes: Vec<u8> = self.table.iter().flat_map(|offset| offset.to_be_bytes()).collect();
        bytes.resize((table_clusters << self.cluster_bits) as usize, 0);
        file.write_at(new_offset, &bytes)?;
        file.flush()?;
        let mut fields = new_offset.to_be_bytes().to_vec();
        fields.extend((table_clusters as u32).to_be_bytes());
        file.write_fua(REFCOUNT_TABLE_OFFSET, &fields)?;
        let old = self.table_offset >> self.cluster_bits;
        self.metadata.extend(cluster + blocks..end);
        self.table_offset = new_offset;
        let old_clusters = old..old + old_bytes.div_ceil(self.cluster_bytes());
        old_clusters.clone().for_each(|cluster| self.set_metadata(cluster, false));
        self.release(file, old_clusters)?;
        self.note_written(end << self.cluster_bits);
        Ok(())
    }

    fn write_blocks(&mut self, file: &dyn BlockDevice) -> io::Result<()> {
        let mut end = 0;
        for (index, block) in self.blocks.iter_mut().filter(|(_, block)| block.is_dirty) {
            file.write_at(self.table[*index], &block.bytes)?;
            block.is_dirty = false;
            end = end.max(self.table[*index] + block.bytes.len() as u64);
        }
        self.note_written(end);
        Ok(())
    }

    /// Puts the refcounts into the file. They are durable after its next flush.
    pub(super) fn write(&mut self, file: &dyn BlockDevice) -> io::Result<()> {
        self.write_blocks(file)?;
        if self.new_blocks.is_empty() {
            return Ok(());
        }
        // The table names no block that is not there.
        file.flush()?;
        for index in &self.new_blocks {
            file.write_at(self.table_offset + *index as u64 * 8, &self.table[*index].to_be_bytes())?;
        }
        self.new_blocks.clear();
        Ok(())
    }
}

fn refcount(block: &[u8], place: u64, order: u32) -> u64 {
    let bits = 1u64 << order;
    if bits < 8 {
        let byte = block[(place * bits / 8) as usize];
        let shift = place * bits % 8;
        return u64::from(byte) >> shift & ((1 << bits) - 1);
    }
    let (at, len) = ((place * bits / 8) as usize, (bits / 8) as usize);
    block[at..at + len].iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn set_refcount(block: &mut [u8], place: u64, order: u32, value: u64) {
    let bits = 1u64 << order;
    if bits < 8 {
        let shift = place * bits % 8;
        let byte = &mut block[(place * bits / 8) as usize];
        let mask = (((1u16 << bits) - 1) << shift) as u8;
        *byte = *byte & !mask | (value << shift) as u8 & mask;
        return;
    }
    let (at, len) = ((place * bits / 8) as usize, (bits / 8) as usize);
    block[at..at + len].copy_from_slice(&value.to_be_bytes()[8 - len..]);
}
