//! Discarding free space: on demand, or at each commit what it freed.
//!
//! Invariant: what is discarded is free in the last durable transaction too, so that no crash brings back a use of it. The
//! allocator holds no other free blocks: freed blocks come to it when the transaction that freed them is durable.
//!
//! Source: `ext4_trim_fs`. Tests: `tests/trim.rs`; `tests/resize/trim.rs` crashes between requests.

use std::io::ErrorKind;
use std::ops::Range;

use extant_ondisk::{FsBlock, GroupNumber, Run, Structure, TransactionId};
use extant_rt::Ordering;

use crate::error::{Error, Location, Result};
use crate::metadata::SbInfo;

impl SbInfo {
    /// Discards the free runs of at least `least` bytes in the bytes `range` of the disk: how many bytes. As in the kernel
    /// the beginning of the range is rounded down to a block, its length and `least` too.
    ///
    /// # Errors
    /// `InvalidArgument`; `Unsupported`; `ReadOnly`; `Io`; `Corrupt`.
    pub(crate) fn trim(&self, range: Range<u64>, least: u64) -> Result<u64> {
        let block_size = u64::from(self.geometry.block_size);
        let bytes = range.end.saturating_sub(range.start);
        let start = range.start / block_size;
        if start >= self.geometry.blocks_count || bytes < block_size {
            return Err(Error::InvalidArgument("no such blocks"));
        }
        // As the kernel rounds it, up to whole clusters.
        let least = self.geometry.clusters_of(least / block_size);
        let least = u32::try_from(least).unwrap_or(u32::MAX);
        if least > self.geometry.clusters_per_group {
            return Err(Error::InvalidArgument("no run is longer than a group"));
        }
        let first = start.max(u64::from(self.geometry.first_data_block));
        let last = start.saturating_add(bytes / block_size).min(self.geometry.blocks_count) - 1;
        let (Some((from, bit)), Some((to, bit_last))) =
            (self.geometry.group_of(FsBlock(first)), self.geometry.group_of(FsBlock(last)))
        else {
            return Ok(0);
        };
        let ratio_bits = self.geometry.cluster_bits;
        let mut clusters = 0;
        for group in (from.0..=to.0).map(GroupNumber) {
            let begin = if group == from { bit >> ratio_bits } else { 0 };
            let end = if group == to { (bit_last >> ratio_bits) + 1 } else { u32::MAX };
            clusters += self.allocator.trim(group, begin..end, least, |clusters| {
                self.writable()?;
                self.discard(self.to_blocks(clusters))
            })?;
        }
        Ok(clusters * self.geometry.cluster_bytes())
    }

    /// Discards what `tid` freed, which is durable and not yet allocated again, if mounted with `discard`. A discard that fails
    /// costs space on the device and nothing else; a device that cannot discard is not asked again.
    pub(crate) fn discard_freed(&self, tid: TransactionId) {
        if !self.discards.load(Ordering::Relaxed) {
            return;
        }
        for clusters in self.allocator.freed(tid) {
            if let Err(Error::Unsupported(_)) = self.discard(self.to_blocks(clusters)) {
                self.discards.store(false, Ordering::Relaxed);
                return;
            }
        }
    }

    fn discard(&self, run: Run) -> Result<()> {
        let block_size = u64::from(self.geometry.block_size);
        let discarded = self.device.discard(run.start.0 * block_size, u64::from(run.len) * block_size);
        discarded.map_err(|error| match error.kind() {
            ErrorKind::Unsupported => Error::Unsupported("discard"),
            _ => Location::of(Structure::BlockBitmap).block(run.start).io(error),
        })
    }
}
