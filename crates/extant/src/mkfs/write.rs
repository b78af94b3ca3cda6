//! Writes a planned file system.

use std::io;

use extant_block::BlockDevice;
use extant_ondisk::{
    Checksums, FsBlock, GroupFlags, GroupNumber, SUPERBLOCK_OFFSET, State, Superblock, bitmap,
};

use super::inodes::Contents;
use super::layout::{Layout, used_inodes};
use super::{Error, Mkfs, Result};

/// The end of a device, where other formats keep signatures (RAID superblocks) by which they would be detected.
const TAIL_BYTES: u64 = 64 << 10;
const BACKUP_COPIES: &str = "backup superblocks and descriptors";

/// A device and how much was written to it.
struct Sink<'a> {
    device: &'a dyn BlockDevice,
    block_size: u64,
    written_bytes: u64,
}

impl Sink<'_> {
    fn write(&mut self, what: &'static str, block: FsBlock, bytes: &[u8]) -> Result<()> {
        self.written_bytes += bytes.len() as u64;
        self.device.write_at(block.0 * self.block_size, bytes).map_err(io_error(what))
    }

    fn zero(&mut self, what: &'static str, start: u64, blocks: u64) -> Result<()> {
        self.device.write_zeroes(start * self.block_size, blocks * self.block_size).map_err(io_error(what))
    }

    fn flush(&self) -> Result<()> {
        self.device.flush().map_err(io_error("flush"))
    }
}

fn io_error(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Io { what, source }
}

/// Writes everything; the primary superblock last, when the rest is durable.
pub(super) fn write(layout: &mut Layout, options: &Mkfs, device: &dyn BlockDevice) -> Result<()> {
    let block_size = u64::from(layout.geometry.block_size);
    let mut sink = Sink { device, block_size, written_bytes: 0 };
    clear(layout, options, &sink)?;
    let checksums = Checksums::new(&layout.superblock);
    write_zeros(layout, options, &mut sink)?;
    write_contents(layout, options, checksums, &mut sink)?;
    write_bitmaps(layout, &checksums, &mut sink)?;
    for (group, descriptor) in layout.descriptors.iter_mut().enumerate() {
        descriptor.update_checksum(&checksums, GroupNumber(group as u32));
    }
    write_descriptors(layout, &mut sink)?;
    let written = sink.written_bytes + extant_ondisk::SUPERBLOCK_SIZE as u64;
    layout.superblock.set_s_kbytes_written(written.div_ceil(1024));
    write_backups(layout, &mut sink)?;
    sink.flush()?;
    layout.superblock.update_checksum();
    device.write_at(SUPERBLOCK_OFFSET, layout.superblock.as_bytes()).map_err(io_error("superblock"))?;
    sink.flush()
}

/// Makes what was there unrecognisable.
fn clear(layout: &Layout, options: &Mkfs, sink: &Sink<'_>) -> Result<()> {
    let bytes = layout.geometry.blocks_count * sink.block_size;
    if options.extended.discard {
        match sink.device.discard(0, bytes) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {}
            discarded => discarded.map_err(io_error("discard"))?,
        }
    }
    let head = bytes.min(SUPERBLOCK_OFFSET + extant_ondisk::SUPERBLOCK_SIZE as u64);
    sink.device.write_zeroes(0, head).map_err(io_error("start of the device"))?;
    let tail = bytes.saturating_sub(TAIL_BYTES) / sink.block_size * sink.block_size;
    sink.device.write_zeroes(tail, bytes - tail).map_err(io_error("end of the device"))
}

/// Zeroes inode tables, unless that is left to the kernel, and the journal.
fn write_zeros(layout: &Layout, options: &Mkfs, sink: &mut Sink<'_>) -> Result<()> {
    if options.extended.assume_storage_prezeroed {
        return Ok(());
    }
    if !layout.is_lazy(options) {
        let len = u64::from(layout.geometry.inode_table_blocks_per_group);
        let mut tables: Vec<u64> = layout.descriptors.iter().map(|d| d.inode_table().0).collect();
        tables.sort_unstable();
        for adjacent in tables.chunk_by(|a, b| a + len == *b) {
            if let Some(first) = adjacent.first() {
                sink.zero("inode tables", *first, adjacent.len() as u64 * len)?;
            }
        }
    }
    if let Some(journal) = layout.files.journal.as_ref().filter(|_| !options.extended.lazy_journal_init) {
        for (start, len) in &journal.runs {
            sink.zero("journal", *start, *len)?;
        }
    }
    Ok(())
}

/// Writes inodes and files, adjacent blocks at once.
fn write_contents(layout: &Layout, options: &Mkfs, checksums: Checksums, sink: &mut Sink<'_>) -> Result<()> {
    let blocks = Contents::blocks(layout, options, checksums)?;
    let mut run: Option<(FsBlock, u64, Vec<u8>)> = None;
    for (block, bytes) in blocks {
        match &mut run {
            Some((start, len, joined)) if start.0 + *len == block.0 => {
                joined.extend_from_slice(&bytes);
                *len += 1;
            }
            _ => {
                if let Some((start, _, joined)) = run.replace((block, 1, bytes.into_vec())) {
                    sink.write("inodes and directories", start, &joined)?;
                }
            }
        }
    }
    run.map_or(Ok(()), |(start, _, joined)| sink.write("inodes and directories", start, &joined))
}

/// Writes the bitmaps of initialised groups and puts their checksums into the descriptors.
fn write_bitmaps(layout: &mut Layout, checksums: &Checksums, sink: &mut Sink<'_>) -> Result<()> {
    let geometry = &layout.geometry;
    let all = geometry.block_size * 8;
    for (index, descriptor) in layout.descriptors.iter_mut().enumerate() {
        let group = GroupNumber(index as u32);
        let flags = descriptor.flags();
        if !flags.contains(GroupFlags::BLOCK_UNINIT) {
            let mut bits = vec![0; geometry.block_size as usize];
            for (start, len) in layout.space.in_group(geometry, group) {
                bitmap::set_range(&mut bits, start..start + len);
            }
            bitmap::set_range(&mut bits, geometry.clusters_in_group(group)..all);
            checksums.update_block_bitmap(descriptor, &bits);
            sink.write("block bitmaps", descriptor.block_bitmap(), &bits)?;
        }
        if !flags.contains(GroupFlags::INODE_UNINIT) {
            let mut bits = vec![0; geometry.block_size as usize];
            bitmap::set_range(&mut bits, 0..used_inodes(geometry, &layout.files, group));
            bitmap::set_range(&mut bits, geometry.inodes_per_group..all);
            checksums.update_inode_bitmap(descriptor, &bits);
            sink.write("inode bitmaps", descriptor.inode_bitmap(), &bits)?;
        }
    }
    Ok(())
}

/// The blocks of all descriptors.
fn descriptor_bytes(layout: &Layout) -> Result<Vec<u8>> {
    let geometry = &layout.geometry;
    let mut bytes = vec![0; geometry.descriptor_block_count() as usize * geometry.block_size as usize];
    for (index, descriptor) in layout.descriptors.iter().enumerate() {
        let (block, offset) = geometry.descriptor_index(GroupNumber(index as u32));
        let start = block as usize * geometry.block_size as usize + offset as usize;
        descriptor.write(bytes.get_mut(start..).unwrap_or_default())?;
    }
    Ok(bytes)
}

/// Writes the descriptors and their copies: all of them behind each superblock, or, with `meta_bg`, each block in
/// three groups of its own.
fn write_descriptors(layout: &Layout, sink: &mut Sink<'_>) -> Result<()> {
    let geometry = &layout.geometry;
    let bytes = descriptor_bytes(layout)?;
    if !layout.features.incompat.contains(extant_ondisk::IncompatFeatures::META_BG) {
        for group in (0..geometry.group_count).map(GroupNumber) {
            if let Some(superblock) = geometry.super_block(group) {
                sink.write(BACKUP_COPIES, FsBlock(superblock.0 + 1), &bytes)?;
            }
        }
        return Ok(());
    }
    for (index, block) in bytes.chunks_exact(geometry.block_size as usize).enumerate() {
        let first = index as u32 * geometry.desc_per_block;
        let place = geometry.descriptor_block(index as u32);
        sink.write("descriptors", place, block)?;
        for group in [first + 1, first + geometry.desc_per_block - 1].map(GroupNumber) {
            if group.0 < geometry.group_count && group.0 != first {
                let shift = u64::from(geometry.has_super(group));
                sink.write(BACKUP_COPIES, FsBlock(geometry.group_first_block(group).0 + shift), block)?;
            }
        }
    }
    Ok(())
}

/// Writes the copies of the superblock. They do not claim to be valid: a user of one has to check the disk.
fn write_backups(layout: &Layout, sink: &mut Sink<'_>) -> Result<()> {
    let geometry = &layout.geometry;
    let mut copy: Superblock = layout.superblock.clone();
    copy.set_state(State::empty());
    for group in (1..geometry.group_count).map(GroupNumber) {
        if let Some(block) = geometry.super_block(group) {
            copy.set_s_block_group_nr(group.0 as u16);
            copy.update_checksum();
            sink.write(BACKUP_COPIES, block, copy.as_bytes())?;
        }
    }
    Ok(())
}
