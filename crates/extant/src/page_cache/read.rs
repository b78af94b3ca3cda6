//! Reading through the page cache.
//!
//! A read of blocks that are all in memory looks at nothing else. A read that misses where the last one that missed ended grows the
//! read-ahead window, up to 256 KiB; any other has none. Holes take no memory.

use extant_ondisk::{LogicalBlock, Structure};
use extant_rt::Arc;

use super::Pages;
use super::write::HIT_BYTES_MAX;
use crate::error::{Location, Result};
use crate::incore::folios::Block;
use crate::incore::inode::Inode;
use crate::mapping::Mapping;
use crate::page_cache::PageCache;

/// Bytes that are read into memory at once.
const READ_BYTES_MAX: u64 = 1 << 20;

impl PageCache {
    /// A read of blocks that are all in memory: how many bytes, or None. It needs no lock but that of the pages, because they are dropped
    /// before a file's blocks change.
    pub(crate) fn read_hit(&self, inode: &Inode, offset: u64, buf: &mut [u8]) -> Option<usize> {
        let inode_pages = inode.cached_pages()?.read();
        let folios = inode_pages.folios.as_ref()?;
        let bytes = inode.size().saturating_sub(offset).min(buf.len() as u64) as usize;
        let block_bits = self.geometry.block_size.ilog2();
        let block = u32::try_from(offset >> block_bits).ok().filter(|_| bytes <= HIT_BYTES_MAX)?;
        let within = (offset - (u64::from(block) << block_bits)) as usize;
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
            let ahead = self.blocks_of(inode_pages.read_ahead.window(logical.0).min(READ_BYTES_MAX)) as u32;
            let len_max = wanted.max(ahead).min(before_end as u32).max(1);
            inode_pages.folios.as_ref().map_or(len_max, |folios| folios.gap(logical.0, len_max))
        };
        let mapping = self.map(inode, &inode.raw(), logical, gap.max(1))?;
        let len = mapping.len();
        let Mapping::Data { start, unwritten: false, .. } = mapping else {
            let bytes = self.bytes_in(len, within, buf.len());
            buf[..bytes].fill(0);
            inode.pages().write().read_ahead.read_to(logical.0.saturating_add(len));
            return Ok(bytes);
        };
        if !pages.keeps_clean {
            let bytes = self.bytes_in(len.min(wanted), within, buf.len());
            self.read_data(start, within, &mut buf[..bytes], location)?;
            return Ok(bytes);
        }
        let len = len.min(self.blocks_of(READ_BYTES_MAX) as u32).max(1);
        let block_size = u64::from(self.geometry.block_size);
        let mut content = vec![0; (u64::from(len) * block_size) as usize];
        self.read_data(start, 0, &mut content, location)?;
        let inside = size.saturating_sub(u64::from(logical.0) * block_size).min(content.len() as u64);
        content[inside as usize..].fill(0);
        let bytes = self.bytes_in(len, within, buf.len());
        buf[..bytes].copy_from_slice(&content[within as usize..within as usize + bytes]);
        let mut inode_pages = inode.pages().write();
        let folios = inode_pages.folios_of(inode, pages, self.geometry.block_size);
        let (mut block, end) = (logical.0, logical.0 + len);
        while block < end {
            // Others may have read some of it meanwhile.
            match folios.gap(block, end - block) {
                0 => block += 1,
                gap => {
                    let from = (u64::from(block - logical.0) * block_size) as usize;
                    let own = &content[from..from + (u64::from(gap) * block_size) as usize];
                    folios.insert(block, own, Block::Clean);
                    block += gap;
                }
            }
        }
        inode_pages.read_ahead.read_to(end);
        inode_pages.account(pages, inode);
        drop(inode_pages);
        if pages.memory.is_exhausted() {
            pages.make_room(u64::from(inode.number.0));
        }
        Ok(bytes)
    }
}
