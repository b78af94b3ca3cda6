//! The blocks of the log as the passes of recovery read them: from memory where the device takes time, in which they come in growing windows,
//! several requests at once.
//!
//! Invariants: a block is read once; a window is not longer than what was read before it, or [`WINDOW_FIRST`], so that of what is read at most
//! half lies behind the end of the log.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;

use extant_block::{BlockDevice, REQUESTS_IN_FLIGHT};
use extant_ondisk::FsBlock;
use extant_rt::{Arc, share_work};

use super::Ring;
use crate::Result;
use crate::log::{self, LogMap};

/// Blocks of the first window.
const WINDOW_FIRST: u32 = 16;
/// Blocks of a window at most.
const WINDOW_MAX: u32 = 1024;
/// Blocks that are read at once.
const REQUEST_BLOCKS: u32 = 64;

/// The blocks of the log.
pub(super) struct LogBlocks<'a> {
    device: &'a dyn BlockDevice,
    map: &'a LogMap,
    ring: Ring,
    block_bytes: usize,
    /// What was read ahead, by its place in the log.
    read: RefCell<HashMap<u32, Arc<[u8]>>>,
    window: Cell<u32>,
}

impl<'a> LogBlocks<'a> {
    pub(super) fn new(device: &'a dyn BlockDevice, map: &'a LogMap, ring: Ring, block_bytes: usize) -> Self {
        Self { device, map, ring, block_bytes, read: RefCell::default(), window: Cell::new(WINDOW_FIRST) }
    }

    /// The content of a block of the ring.
    pub(super) fn get(&self, log_block: u32) -> Result<Arc<[u8]>> {
        if self.device.has_latency() {
            if !self.read.borrow().contains_key(&log_block) {
                self.read_window(log_block);
            }
            if let Some(bytes) = self.read.borrow().get(&log_block) {
                return Ok(bytes.clone());
            }
        }
        let mut bytes = vec![0; self.block_bytes];
        log::read_block(self.device, self.map, log_block, &mut bytes)?;
        Ok(bytes.into())
    }

    /// Reads the blocks from one on. What cannot be read is read again, and reported, where it is needed.
    fn read_window(&self, start: u32) {
        let window = self.window.replace((self.window.get() * 2).min(WINDOW_MAX)).min(self.ring.len());
        let mut pieces = Vec::new();
        let mut done = 0;
        while done < window {
            let first = self.ring.advance(start, done);
            // The end of the ring is not followed by its begin.
            let len = REQUEST_BLOCKS.min(window - done).min(self.ring.end - first);
            let Some((block, len)) = self.map.run(first, len) else { break };
            pieces.push((first, block, len));
            done += len;
        }
        let (device, block_bytes) = (self.device, self.block_bytes);
        let read_piece = |(first, block, len): (u32, FsBlock, u32)| {
            let mut bytes = vec![0; len as usize * block_bytes];
            let at = block.0.checked_mul(block_bytes as u64);
            let is_read = at.is_some_and(|at| device.read_at(at, &mut bytes).is_ok());
            (first, if is_read { bytes } else { Vec::new() })
        };
        let read = share_work(REQUESTS_IN_FLIGHT, pieces.into_iter(), read_piece);
        let mut blocks = self.read.borrow_mut();
        for (first, bytes) in read {
            for (at, bytes) in (first..).zip(bytes.chunks_exact(self.block_bytes)) {
                blocks.entry(at).or_insert_with(|| bytes.into());
            }
        }
    }
}
