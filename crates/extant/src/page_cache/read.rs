//! Reading through the page cache.
//!
//! A read of blocks that are all in memory looks at nothing else. Where the device takes no time, a read that misses where the last one that
//! missed ended grows the read-ahead window, up to 256 KiB; any other has none. Where it does, other threads read ahead
//! ([`read_ahead`](super::read_ahead)). Holes take no memory.

use std::ops::Range;

use extant_block::{BUFFER_BYTES, Buffer};
use extant_ondisk::{FsBlock, LogicalBlock, Structure};
use extant_rt::Arc;

use super::Pages;
use super::write::HIT_BYTES_MAX;
use crate::error::{Location, Result};
use crate::incore::folios::folio_len;
use crate::incore::inode::Inode;
use crate::mapping::Mapping;
use crate::page_cache::PageCache;

/// The largest window of a read that reads ahead itself.
const WINDOW_BYTES_MAX: u64 = 256 << 10;
/// Bytes that are read into memory at once.
const READ_BYTES_MAX: u64 = 1 << 20;

impl PageCache {
    /// A read of blocks that are all in memory: how many bytes, or None. It needs no lock but that of the pages, because they are dropped
    /// before a file's blocks change.
    pub(crate) fn read_hit(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Option<usize> {
        let inode_pages = inode.cached_pages()?.read();
        let folios = inode_pages.folios.as_ref()?;
        let bytes = inode.size().saturating_sub(offset).min(buf.len() as u64) as usize;
        let (first, within) = self.block_at(offset).ok().filter(|_| bytes <= HIT_BYTES_MAX)?;
        let (block, within) = (first.0, within as usize);
        let end = block.saturating_add(((within + bytes) >> self.geometry.block_size.ilog2()) as u32 + 1);
        if inode_pages.read_ahead.is_reached(&(block..end)) {
            return None;
        }
        folios.read(block, within, &mut buf[..bytes]).then_some(bytes)
    }

    /// Reads all of `buf`, which lies inside the file, which ends at `size`.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    ///
    /// # Locks
    /// `INODE` is held.
    pub(crate) fn read_pages(
        &self,
        pages: &Arc<Pages>,
        inode: &Arc<Inode>,
        offset: u64,
        buf: &mut [u8],
        size: u64,
    ) -> Result<()> {
        let location = Location::of(Structure::Inode).inode(inode.number);
        let too_large = |_| location.corrupt("larger than the format allows");
        let mut rest = buf;
        let mut at = offset;
        while !rest.is_empty() {
            let (logical, within) = self.block_at(at).map_err(too_large)?;
            let part = {
                let inode_pages = inode.pages().read();
                let folios = inode_pages.folios.as_ref();
                folios.and_then(|folios| folios.part(logical.0, within as usize, rest.len()))
            };
            let bytes = match part {
                Some(part) => {
                    let bytes = part.bytes();
                    rest[..bytes.len()].copy_from_slice(bytes);
                    bytes.len()
                }
                None => self.read_missing(pages, inode, (logical, within), rest, size)?,
            };
            at += bytes as u64;
            rest = &mut rest[bytes..];
        }
        Ok(())
    }

    /// Reads what is not in memory from a byte of a block on, up to what is: how many bytes.
    fn read_missing(
        &self,
        pages: &Arc<Pages>,
        inode: &Arc<Inode>,
        (logical, within): (LogicalBlock, u64),
        buf: &mut [u8],
        size: u64,
    ) -> Result<usize> {
        let location = Location::of(Structure::Inode).inode(inode.number);
        let wanted = self.block_count(within, buf.len());
        let before_end = self.blocks_of(size).saturating_sub(u64::from(logical.0)).min(u64::from(u32::MAX));
        let gap = {
            let mut inode_pages = inode.pages().write();
            let window = match self.device.has_latency() {
                true => 0,
                false => inode_pages.read_ahead.window(logical.0, WINDOW_BYTES_MAX),
            };
            let len_max = wanted.max(self.blocks_of(window) as u32).min(before_end as u32).max(1);
            inode_pages.folios.as_ref().map_or(len_max, |folios| folios.gap(logical.0, len_max))
        };
        let mapping = self.map(inode, &inode.raw(), logical, gap.max(1))?;
        let len = mapping.len();
        let Mapping::Data { start, unwritten: false, .. } = mapping else {
            let bytes = self.bytes_in(len, within, buf.len());
            buf[..bytes].fill(0);
            self.note_read(inode, logical.0.saturating_add(len));
            return Ok(bytes);
        };
        if !pages.keeps_clean {
            let bytes = self.bytes_in(len.min(wanted), within, buf.len());
            self.read_data(start, within, &mut buf[..bytes], location)?;
            return Ok(bytes);
        }
        let len_max = self.blocks_of(READ_BYTES_MAX) as u32;
        let blocks = logical.0..logical.0 + len.min(len_max).max(1);
        let folios = self.read_folios(pages, inode, blocks, (start, size))?;
        let (mut done, mut skipped) = (0, within as usize);
        for (_, folio) in &folios {
            let own = &folio[skipped.min(folio.len())..];
            let own = &own[..own.len().min(buf.len() - done)];
            buf[done..done + own.len()].copy_from_slice(own);
            (done, skipped) = (done + own.len(), skipped.saturating_sub(folio.len()));
        }
        let end = folios
            .last()
            .map_or(logical.0, |(first, folio)| first + self.blocks_of(folio.len() as u64) as u32);
        self.insert_folios(pages, inode, folios);
        self.note_read(inode, end);
        Ok(done)
    }

    /// Notes where a read that missed has ended, if reads are to read ahead themselves.
    fn note_read(&self, inode: &Inode, end: u32) {
        if !self.device.has_latency() {
            inode.pages().write().read_ahead.read_to(end);
        }
    }

    /// Keeps what was read from the disk.
    ///
    /// # Locks
    /// `INODE` is held, and has been since before the reading.
    pub(super) fn insert_folios(&self, pages: &Arc<Pages>, inode: &Arc<Inode>, folios: Vec<(u32, Buffer)>) {
        let mut inode_pages = inode.pages().write();
        let own = inode_pages.folios_of(inode, pages, self.geometry.block_size);
        for (first, folio) in folios {
            // Others may have read some of it meanwhile.
            own.insert_clean(first, folio);
        }
        inode_pages.account(pages, inode);
        drop(inode_pages);
        if pages.memory.is_exhausted() {
            pages.make_room(u64::from(inode.number.0));
        }
    }

    /// Reads adjacent blocks of a file that ends at `size` from the disk, the first of which lies at `start`: by folios with their first blocks,
    /// up to one that cannot be read.
    ///
    /// # Errors
    /// Why the first one could not.
    pub(super) fn read_folios(
        &self,
        pages: &Pages,
        inode: &Inode,
        blocks: Range<u32>,
        (start, size): (FsBlock, u64),
    ) -> Result<Vec<(u32, Buffer)>> {
        let location = Location::of(Structure::Inode).inode(inode.number);
        let block_size = u64::from(self.geometry.block_size);
        let mut places = Vec::new();
        let mut at = blocks.start;
        while at < blocks.end {
            let len = folio_len(at, blocks.end - at, block_size.ilog2());
            places.push((at, len));
            at += len;
        }
        let bytes_of = |len: u32| (u64::from(len) * block_size) as usize;
        let read = |first: u32, buf: &mut [u8]| -> Result<()> {
            self.read_data(FsBlock(start.0 + u64::from(first - blocks.start)), 0, buf, location)?;
            let inside = size.saturating_sub(u64::from(first) * block_size).min(buf.len() as u64);
            buf[inside as usize..].fill(0);
            Ok(())
        };
        // One request for as much as a folio has, though it belongs to several.
        if places.len() > 1 && bytes_of(blocks.end - blocks.start) <= BUFFER_BYTES {
            let mut content = vec![0; bytes_of(blocks.end - blocks.start)];
            read(blocks.start, &mut content)?;
            let part = |(first, len)| (first, &content[bytes_of(first - blocks.start)..][..bytes_of(len)]);
            let folio = |(first, part)| (first, pages.buffers.copy(part));
            return Ok(places.into_iter().map(part).map(folio).collect());
        }
        let read_folio = |(first, len): (u32, u32)| {
            let mut folio = pages.buffers.to_fill(bytes_of(len));
            read(first, &mut folio).map(|()| (first, folio))
        };
        let mut folios = places.into_iter().map(read_folio);
        let first = folios.next().transpose()?;
        Ok(first.into_iter().chain(folios.map_while(Result::ok)).collect())
    }
}
