//! The pages of one file in memory: folios by their first block.
//!
//! A folio is 2^k blocks, naturally aligned, at most 64 blocks and 256 KiB; its size is chosen by the write or the read that
//! makes it. All of its bytes are the file's. Each block is clean (as on the disk), dirty (its place on the disk has older
//! bytes), or delayed (dirty, and it has no place yet).
//!
//! Invariants: folios do not overlap; a block that is not delayed is mapped on the disk, and its extent is marked written;
//! bytes behind the end of the file are zero.
//!
//! While threads fill holes beside each other, what they put in lies in a window ([`FillWindow`]). A thread that has `PAGES` alone has closed it.
//!
//! Locks: `FOLIO`, one per folio that threads write to beside each other, in ascending order, for a copy. The caller holds `PAGES`: shared to
//! read, and to write into such folios.

mod folio;

use std::fmt;
use std::ops::{Range, RangeInclusive};

use extant_block::{Buffer, Buffers};
use extant_rt::{Arc, AtomicBool};

use self::folio::{Bytes, Content, Folio, bits, touched};
use crate::incore::buffer::ZEROES;
use crate::incore::fill_window::{FillWindow, Missing};
use crate::incore::folio_map::FolioMap;

pub(crate) use self::folio::{Block, FolioSlice, folio_len};

/// Bytes in memory from which on a file's are mostly in no cache of a CPU.
const COLD_BYTES_MIN: u64 = 64 << 20;

/// Adjacent dirty blocks, all delayed or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirtyRun {
    pub(crate) block: u32,
    pub(crate) len: u32,
    pub(crate) is_delayed: bool,
}

/// The folios of a file.
pub(crate) struct Folios {
    /// The binary logarithm of a block's bytes.
    block_bits: u32,
    buffers: Arc<Buffers>,
    by_block: FolioMap<Folio>,
    /// Folios of a block, delayed and shared, of which the counts below do not know.
    window: Option<FillWindow<Folio>>,
    /// Where the search for memory goes on.
    hand: u32,
    bytes: u64,
    dirty: u64,
    /// All dirty blocks lie in here.
    dirty_within: Range<u32>,
    delayed: u64,
    /// Runs of delayed blocks with none on either side.
    delayed_runs: u64,
}

impl fmt::Debug for Folios {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, dirty, delayed, .. } = self;
        write!(f, "{bytes} bytes, {dirty} blocks dirty, {delayed} delayed")
    }
}

impl Folios {
    /// An empty set of folios, whose memory comes from `buffers`.
    pub(crate) fn new(block_size: u32, buffers: Arc<Buffers>) -> Self {
        Self {
            block_bits: block_size.ilog2(),
            buffers,
            by_block: FolioMap::new(),
            window: None,
            hand: 0,
            bytes: 0,
            dirty: 0,
            dirty_within: 0..0,
            delayed: 0,
            delayed_runs: 0,
        }
    }

    /// Bytes of all folios.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of dirty blocks.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty << self.block_bits
    }

    pub(crate) fn delayed(&self) -> u64 {
        self.delayed
    }

    pub(crate) fn delayed_runs(&self) -> u64 {
        self.delayed_runs
    }

    /// The folio of a block, with its first block.
    #[inline]
    fn find(&self, block: u32) -> Option<(u32, &Folio)> {
        match &self.window {
            None => self.find_in_map(block),
            Some(window) => self.find_in_map(block).or_else(|| Some((block, window.get(block)?))),
        }
    }

    /// [`Folios::find`], but in the window.
    #[inline]
    fn find_in_map(&self, block: u32) -> Option<(u32, &Folio)> {
        let (first, folio) = self.by_block.last_to(block)?;
        (block - first < folio.len).then_some((first, folio))
    }

    fn find_mut(&mut self, block: u32) -> Option<(u32, &mut Folio)> {
        let (first, folio) = self.by_block.last_to_mut(block)?;
        (block - first < folio.len).then_some((first, folio))
    }

    /// Bytes of so many blocks.
    pub(crate) fn bytes_of(&self, blocks: u32) -> usize {
        (blocks as usize) << self.block_bits
    }

    /// Whether a write comes to memory that the CPU's caches seldom have.
    fn is_cold(&self, buf: &[u8]) -> bool {
        self.bytes >= COLD_BYTES_MIN && buf.len() >= self.bytes_of(1)
    }

    /// The whole blocks in so many bytes.
    fn blocks_in(&self, bytes: usize) -> u32 {
        (bytes >> self.block_bits) as u32
    }

    fn is_delayed(&self, block: u32) -> bool {
        self.find(block).is_some_and(|(first, folio)| folio.delayed >> (block - first) & 1 != 0)
    }

    pub(crate) fn is_dirty(&self, block: u32) -> bool {
        self.find(block).is_some_and(|(first, folio)| folio.dirty >> (block - first) & 1 != 0)
    }

    /// How many blocks from `block` on, of `len`, are not in memory: 0 if the first one is.
    pub(crate) fn gap(&self, block: u32, len: u32) -> u32 {
        if self.find(block).is_some() {
            return 0;
        }
        let next = self.by_block.from(block).next().map_or(u32::MAX, |(first, _)| first);
        len.min(next - block)
    }

    /// Up to `bytes` bytes from the byte `within` of a block on, as far as its folio goes.
    pub(crate) fn part(&self, block: u32, within: usize, bytes: usize) -> Option<FolioSlice> {
        let (first, folio) = self.find(block)?;
        folio.note_use();
        let from = self.bytes_of(block - first) + within;
        let end = self.bytes_of(folio.len).min(from + bytes);
        Some(FolioSlice { bytes: folio.content.buffer(), from, end })
    }

    /// Fills `buf` from the byte `within` of a block on. False, and `buf` is anything, if not all of it is in memory.
    pub(crate) fn read(&self, block: u32, within: usize, buf: &mut [u8]) -> bool {
        let (mut block, mut within, mut rest) = (block, within, buf);
        while !rest.is_empty() {
            let Some((first, folio)) = self.find(block) else { return false };
            folio.note_use();
            let from = self.bytes_of(block - first) + within;
            let bytes = rest.len().min(self.bytes_of(folio.len) - from);
            let (own, behind) = rest.split_at_mut(bytes);
            folio.content.read(|content| own.copy_from_slice(&content.buffer[from..from + bytes]));
            (block, within, rest) = (first + folio.len, 0, behind);
        }
        true
    }

    /// Whether blocks are all in memory.
    pub(crate) fn has_all(&self, blocks: RangeInclusive<u32>) -> bool {
        let (mut block, last) = blocks.into_inner();
        while let Some((first, folio)) = self.find(block) {
            match first + (folio.len - 1) {
                end if end >= last => return true,
                end => block = end + 1,
            }
        }
        false
    }

    /// Writes from the byte `within` of a block on, where all is in memory.
    pub(crate) fn write_all(&mut self, block: u32, within: usize, buf: &[u8]) {
        let (mut block, mut within, mut rest) = (block, within, buf);
        while !rest.is_empty() {
            let written = self.write(block, within, rest);
            if written == 0 {
                return;
            }
            let end = within + written;
            block += self.blocks_in(end);
            (within, rest) = (end & (self.bytes_of(1) - 1), &rest[written..]);
        }
    }

    /// Has threads write beside each other into a block, in a folio of its own, until it is on the disk.
    pub(crate) fn share(&mut self, block: u32) {
        let Some((first, folio)) = self.find(block) else { return };
        if folio.len > 1 {
            self.split(first);
        }
        if let Some((_, folio)) = self.find_mut(block) {
            folio.content.share(block);
        }
    }

    /// Makes a folio into folios of a block.
    fn split(&mut self, first: u32) {
        let Some(mut folio) = self.by_block.remove(first) else { return };
        let Bytes { buffer, changed } = folio.content.get_mut();
        for index in 0..folio.len {
            let bit = |bits: u64| bits >> index & 1;
            let own = self.buffers.copy(&buffer[self.bytes_of(index)..self.bytes_of(index + 1)]);
            let part = Folio {
                content: Content::Alone(Bytes { buffer: Arc::new(own), changed: bit(*changed) }),
                len: 1,
                dirty: bit(folio.dirty),
                delayed: bit(folio.delayed),
                is_used: AtomicBool::new(true),
            };
            self.by_block.insert(first + index, part);
        }
    }

    /// Writes from the byte `within` of a block on, beside other threads, which see all or none of it: if all of it lies in shared folios whose
    /// blocks are dirty, and `may` agrees once that is known. False, and nothing is written, if not.
    pub(crate) fn write_shared(
        &self,
        block: u32,
        within: usize,
        buf: &[u8],
        may: &mut dyn FnMut() -> bool,
    ) -> bool {
        if buf.is_empty() {
            return may();
        }
        let Some((first, folio)) = self.find(block) else { return false };
        let Content::Shared(bytes) = &folio.content else { return false };
        let from = self.bytes_of(block - first) + within;
        let end = self.bytes_of(folio.len).min(from + buf.len());
        let blocks = touched(from..end, self.block_bits);
        if blocks & !folio.dirty != 0 {
            return false;
        }
        let (own, rest) = buf.split_at(end - from);
        let mut bytes = bytes.write();
        let is_written = self.write_shared(first + folio.len, 0, rest, may);
        if is_written {
            bytes.write(from, own, blocks, self.is_cold(own));
            folio.note_use();
        }
        is_written
    }

    /// Lets threads fill holes around a block beside each other, in a file that may have blocks up to `end`.
    pub(crate) fn open_window(&mut self, block: u32, end: u32) {
        self.window = Some(FillWindow::around(block, end));
    }

    pub(crate) fn window(&self) -> Option<&FillWindow<Folio>> {
        self.window.as_ref()
    }

    /// Checks that blocks can be filled beside other threads.
    ///
    /// # Errors
    /// The first that cannot, and why.
    pub(crate) fn check_fill(&self, mut blocks: Range<u32>) -> Result<(), (u32, Missing)> {
        blocks.try_for_each(|block| {
            let window = self.window.as_ref().filter(|_| self.find_in_map(block).is_none());
            let place = window.ok_or(Missing::Block).and_then(|window| window.place(block));
            place.map(drop).map_err(|missing| (block, missing))
        })
    }

    /// Writes whole blocks [that can be filled](Folios::check_fill), beside other threads, which see all or none of it: how many of them
    /// were not there.
    pub(crate) fn fill(&self, block: u32, buf: &[u8]) -> u32 {
        let Some(window) = &self.window else { return 0 };
        let block_bytes = self.bytes_of(1);
        let put = |block: u32, bytes: Buffer| {
            let mut folio = Folio::new(bytes, 1, Block::Delayed);
            folio.content.share(block);
            window.insert(block, folio)
        };
        if buf.len() == block_bytes && window.get(block).is_none() && put(block, self.buffers.copy(buf)) {
            return 1;
        }
        let blocks = (block..).take(buf.len() / block_bytes);
        let missing = blocks.filter(|block| window.get(*block).is_none());
        let added = missing.filter(|block| put(*block, self.buffers.copy(&ZEROES[..block_bytes]))).count();
        self.write_shared(block, 0, buf, &mut || true);
        added as u32
    }

    /// Ends that threads fill holes beside each other, and counts what they put in as all else.
    pub(crate) fn close_window(&mut self) {
        let mut run = 0..0;
        for (block, folio) in self.window.take().into_iter().flat_map(FillWindow::into_blocks) {
            self.by_block.insert(block, folio);
            self.bytes += self.bytes_of(1) as u64;
            if run.end != block {
                self.add_delayed(std::mem::replace(&mut run, block..block));
            }
            run.end += 1;
        }
        self.add_delayed(run);
    }

    /// Counts delayed blocks in a row, which may be none.
    fn add_delayed(&mut self, run: Range<u32>) {
        if run.is_empty() {
            return;
        }
        let before = run.start.checked_sub(1).is_some_and(|before| self.is_delayed(before));
        let behind = self.is_delayed(run.end);
        self.delayed_runs += 1;
        self.delayed_runs -= u64::from(before) + u64::from(behind);
        self.delayed += u64::from(run.end - run.start);
        self.add_dirty(run.clone(), run.end - run.start);
    }

    /// Notes that a dirty run sets off for the disk: what is written into it from now on is written back later.
    pub(crate) fn set_off(&mut self, run: DirtyRun) {
        let mut block = run.block;
        let end = run.block + run.len;
        while block < end {
            let Some((first, folio)) = self.find_mut(block) else { break };
            let len = (first + folio.len).min(end) - block;
            folio.content.get_mut().changed &= !bits(block - first, len);
            block += len;
        }
    }

    /// All parts of a dirty run.
    pub(crate) fn parts(&self, run: DirtyRun) -> Vec<FolioSlice> {
        let mut parts = Vec::new();
        let (mut block, mut rest) = (run.block, self.bytes_of(run.len));
        while let Some(part) = self.part(block, 0, rest).filter(|_| rest > 0) {
            rest -= part.bytes().len();
            block += self.blocks_in(part.bytes().len());
            parts.push(part);
        }
        parts
    }

    /// Writes into the folio of a block, as far as it goes: how many bytes. 0 if the block is not in memory.
    pub(crate) fn write(&mut self, block: u32, within: usize, buf: &[u8]) -> usize {
        let (block_bits, is_cold) = (self.block_bits, self.is_cold(buf));
        let Some((first, folio)) = self.find_mut(block) else { return 0 };
        let from = (((block - first) as usize) << block_bits) + within;
        let end = ((folio.len as usize) << block_bits).min(from + buf.len());
        let written = touched(from..end, block_bits);
        folio.content.get_mut().write(from, &buf[..end - from], written, is_cold);
        folio.note_use();
        let fresh = (written & !folio.dirty).count_ones();
        folio.dirty |= written;
        self.add_dirty(block..block + written.count_ones(), fresh);
        end - from
    }

    fn add_dirty(&mut self, blocks: Range<u32>, count: u32) {
        self.dirty_within = match self.dirty {
            0 => blocks,
            _ => self.dirty_within.start.min(blocks.start)..self.dirty_within.end.max(blocks.end),
        };
        self.dirty += u64::from(count);
    }

    /// Puts blocks in, as many as `bytes` holds; none of them may be in memory.
    pub(crate) fn insert(&mut self, block: u32, bytes: &[u8], what: Block) {
        let len = self.blocks_in(bytes.len());
        match what {
            Block::Delayed => self.add_delayed(block..block + len),
            Block::Dirty => self.add_dirty(block..block + len, len),
            Block::Clean => {}
        }
        self.bytes += bytes.len() as u64;
        let (mut at, mut rest) = (block, bytes);
        while !rest.is_empty() {
            let len = folio_len(at, self.blocks_in(rest.len()), self.block_bits);
            let (own, behind) = rest.split_at(self.bytes_of(len));
            self.by_block.insert(at, Folio::new(self.buffers.copy(own), len, what));
            (at, rest) = (at + len, behind);
        }
    }

    /// Puts a folio in whose blocks are as on the disk; those that are in memory stay.
    pub(crate) fn insert_clean(&mut self, first: u32, buffer: Buffer) {
        let len = self.blocks_in(buffer.len());
        if self.gap(first, len) == len {
            self.bytes += buffer.len() as u64;
            self.by_block.insert(first, Folio::new(buffer, len, Block::Clean));
            return;
        }
        let mut at = first;
        while at < first + len {
            let gap = self.gap(at, first + len - at);
            if gap > 0 {
                let own = &buffer[self.bytes_of(at - first)..][..self.bytes_of(gap)];
                self.insert(at, own, Block::Clean);
            }
            at += gap.max(1);
        }
    }

    /// The first dirty blocks from `from` on, at most `len_max`.
    pub(crate) fn next_dirty(&mut self, from: u32, len_max: u32) -> Option<DirtyRun> {
        let Range { start, end } = self.dirty_within;
        if self.dirty == 0 || from >= end {
            return None;
        }
        let found = self.find_dirty(from.max(start)..end, len_max);
        if let Some(run) = found.filter(|_| from <= start) {
            self.dirty_within.start = run.block;
        }
        found
    }

    fn find_dirty(&self, Range { start: from, end }: Range<u32>, len_max: u32) -> Option<DirtyRun> {
        let first = self.find(from).map_or(from, |(first, _)| first);
        let mut found: Option<DirtyRun> = None;
        for (first, folio) in self.by_block.from(first).take_while(|(first, _)| *first < end) {
            let mut index = from.saturating_sub(first);
            while index < folio.len {
                let block = first + index;
                let is_delayed = folio.delayed >> index & 1 != 0;
                match &mut found {
                    // Clean blocks in front.
                    None if folio.dirty >> index == 0 => break,
                    None if folio.dirty >> index & 1 == 0 => index += (folio.dirty >> index).trailing_zeros(),
                    None => {
                        found = Some(DirtyRun { block, len: 1, is_delayed });
                        index += 1;
                    }
                    Some(run)
                        if run.block + run.len == block
                            && folio.dirty >> index & 1 != 0
                            && run.is_delayed == is_delayed
                            && run.len < len_max =>
                    {
                        run.len += 1;
                        index += 1;
                    }
                    Some(run) => return Some(*run),
                }
            }
        }
        found
    }

    /// Notes that blocks of a dirty run, from its start on, are on the disk as they were in its [`Folios::parts`]. Those that
    /// were written to since stay dirty, with a place.
    pub(crate) fn clean(&mut self, run: DirtyRun) {
        let mut block = run.block;
        let end = run.block + run.len;
        while block < end {
            let Some((first, folio)) = self.find_mut(block) else { break };
            let len = (first + folio.len).min(end) - block;
            let mask = bits(block - first, len);
            folio.delayed &= !mask;
            let cleaned = folio.dirty & mask & !folio.content.get_mut().changed;
            folio.dirty &= !cleaned;
            if folio.dirty == 0 {
                folio.content.unshare();
            }
            self.dirty -= u64::from(cleaned.count_ones());
            block += len;
        }
        if run.is_delayed {
            self.delayed -= u64::from(run.len);
            let before = run.block.checked_sub(1).is_some_and(|before| self.is_delayed(before));
            self.delayed_runs += u64::from(before) + u64::from(self.is_delayed(run.block + run.len));
            self.delayed_runs -= 1;
        }
    }

    /// Behind the last block that may be dirty.
    pub(crate) fn dirty_end(&self) -> u32 {
        self.dirty_within.end
    }

    /// Drops all blocks of a range, dirty or not. Of folios that it cuts, the other blocks stay.
    pub(crate) fn drop_range(&mut self, range: Range<u32>) {
        let Range { start, end } = range;
        let had_delayed = self.delayed > 0;
        let first = self.find(start).map_or(start, |(first, _)| first);
        let touched: Vec<u32> =
            self.by_block.from(first).map(|(first, _)| first).take_while(|first| *first < end).collect();
        for first in touched {
            let Some((_, folio)) = self.find(first) else { continue };
            let (from, to) = (start.saturating_sub(first), (end - first).min(folio.len));
            let (len, dirty, delayed) = (folio.len, folio.dirty, folio.delayed);
            let bytes = (from > 0 || to < len).then(|| folio.content.buffer());
            self.remove(first);
            let Some(bytes) = bytes else { continue };
            let (before, behind) = (&bytes[..self.bytes_of(from)], &bytes[self.bytes_of(to)..]);
            self.split_in(first, before, dirty, delayed);
            if !behind.is_empty() {
                self.split_in(first + to, behind, dirty >> to, delayed >> to);
            }
        }
        if had_delayed {
            self.delayed_runs = self.count_delayed_runs();
        }
    }

    /// Drops blocks of a dirty run that could not be written, with the clean ones of their folios. Those that were written to
    /// since the write of the run began stay dirty: they are written back again.
    pub(crate) fn lose(&mut self, run: DirtyRun) {
        let mut block = run.block;
        let end = run.block + run.len;
        while block < end {
            let Some((first, folio)) = self.find(block) else {
                block += 1;
                continue;
            };
            let len = folio.len;
            let behind = (first + len).min(end);
            let (bytes, changed) = folio.content.read(|bytes| (bytes.buffer.clone(), bytes.changed));
            let lost = bits(block - first, behind - block) & !changed;
            let (dirty, delayed) = (folio.dirty & !lost, folio.delayed & !lost);
            self.remove(first);
            for index in (0..len).filter(|index| dirty != 0 && lost >> index & 1 == 0) {
                let own = &bytes[self.bytes_of(index)..self.bytes_of(index + 1)];
                self.split_in(first + index, own, dirty >> index & 1, delayed >> index & 1);
            }
            block = behind;
        }
        self.delayed_runs = self.count_delayed_runs();
    }

    /// Puts blocks in one by one, each as its bits say.
    fn split_in(&mut self, first: u32, bytes: &[u8], dirty: u64, delayed: u64) {
        for (index, own) in (0_u32..).zip(bytes.chunks(self.bytes_of(1))) {
            let what = match (dirty >> index & 1, delayed >> index & 1) {
                (0, _) => Block::Clean,
                (_, 0) => Block::Dirty,
                _ => Block::Delayed,
            };
            self.insert(first + index, own, what);
        }
    }

    fn remove(&mut self, first: u32) {
        let Some(folio) = self.by_block.remove(first) else { return };
        self.bytes -= self.bytes_of(folio.len) as u64;
        self.dirty -= u64::from(folio.dirty.count_ones());
        self.delayed -= u64::from(folio.delayed.count_ones());
    }

    fn count_delayed_runs(&self) -> u64 {
        let (mut runs, mut last_end) = (0, None);
        for (first, folio) in self.by_block.from(0).filter(|(_, folio)| folio.delayed != 0) {
            let continues = last_end == Some(first) && folio.delayed & 1 != 0;
            // A run begins at each bit whose lower neighbour is not set.
            runs += u64::from((folio.delayed & !(folio.delayed << 1)).count_ones()) - u64::from(continues);
            let len = folio.len;
            last_end = (folio.delayed >> (len - 1) & 1 != 0).then_some(first + len);
        }
        runs
    }

    /// How many looks a search for memory needs to find all that may go: once round, and the part before the hand again, as what was used
    /// is passed over once.
    pub(crate) fn looks_max(&self) -> usize {
        2 * self.by_block.len()
    }

    /// Drops clean folios that were not used since the last search, about `bytes` of them, among the next `looks_max` folios: how many
    /// bytes, and how many folios it looked at.
    pub(crate) fn evict(&mut self, bytes: u64, looks_max: usize) -> (u64, usize) {
        let (mut freed, mut looks) = (0, 0);
        while freed < bytes && looks < looks_max {
            let Some((first, folio)) = self.by_block.first_from_mut(self.hand) else {
                if self.hand == 0 {
                    break;
                }
                self.hand = 0;
                continue;
            };
            looks += 1;
            self.hand = first + 1;
            if folio.dirty == 0 && !std::mem::take(folio.is_used.get_mut()) {
                let len = folio.len;
                freed += self.bytes_of(len) as u64;
                self.remove(first);
            }
        }
        (freed, looks)
    }

    /// Drops all clean folios.
    pub(crate) fn drop_clean(&mut self) {
        let (bytes, block_bits) = (&mut self.bytes, self.block_bits);
        self.by_block.retain(|folio| {
            let stays = folio.dirty != 0;
            *bytes -= if stays { 0 } else { u64::from(folio.len) << block_bits };
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const BLOCK: usize = 1024;

    /// Each block independently.
    type Model = BTreeMap<u32, (Block, Vec<u8>)>;

    fn runs(model: &Model, from: u32, len_max: u32) -> Option<DirtyRun> {
        let mut run: Option<DirtyRun> = None;
        for (block, (what, _)) in model.range(from..).filter(|(_, (what, _))| *what != Block::Clean) {
            let is_delayed = *what == Block::Delayed;
            match &mut run {
                None => run = Some(DirtyRun { block: *block, len: 1, is_delayed }),
                Some(run)
                    if run.block + run.len == *block && run.is_delayed == is_delayed && run.len < len_max =>
                {
                    run.len += 1;
                }
                Some(_) => break,
            }
        }
        run
    }

    fn check(folios: &mut Folios, model: &Model, end: u32) {
        let count = |wanted: Block| model.values().filter(|(what, _)| *what == wanted).count() as u64;
        assert_eq!(folios.delayed(), count(Block::Delayed));
        assert_eq!(folios.dirty_bytes(), (count(Block::Delayed) + count(Block::Dirty)) * BLOCK as u64);
        assert_eq!(folios.bytes(), model.len() as u64 * BLOCK as u64);
        let delayed = |block: u32| model.get(&block).is_some_and(|(what, _)| *what == Block::Delayed);
        let starts = (0..end).filter(|block| delayed(*block) && (*block == 0 || !delayed(block - 1)));
        assert_eq!(folios.delayed_runs(), starts.count() as u64);
        for block in 0..end {
            let part = folios.part(block, 0, BLOCK);
            assert_eq!(part.as_ref().map(FolioSlice::bytes), model.get(&block).map(|(_, bytes)| &bytes[..]));
            assert_eq!(folios.next_dirty(block, 7), runs(model, block, 7), "from {block}");
            let gap = (block..end).take_while(|block| !model.contains_key(block)).count() as u32;
            assert_eq!(folios.gap(block, end - block), gap);
        }
    }

    #[test]
    fn a_file_too_large_for_the_caches_of_a_cpu_has_what_was_written() {
        const BLOCK: usize = 4096;
        let blocks = (COLD_BYTES_MIN / BLOCK as u64) as u32;
        let mut folios = Folios::new(BLOCK as u32, Buffers::new());
        (0..blocks).for_each(|block| folios.insert(block, &[1; BLOCK], Block::Clean));
        let mut block = [0; BLOCK];
        for step in 0..200_u32 {
            let (at, within) = (step * 77 % blocks, step as usize % 3 * 5);
            let len = BLOCK - within - step as usize % 2;
            let bytes = &mut block[..len];
            bytes.fill(step as u8 | 1 << 7);
            assert_eq!(folios.is_cold(bytes), len == BLOCK);
            assert_eq!(folios.write(at, within, bytes), len);
            let mut read = [0; BLOCK];
            assert!(folios.read(at, 0, &mut read));
            let expected = |index: usize| {
                if (within..within + len).contains(&index) { step as u8 | 1 << 7 } else { 1 }
            };
            assert!((0..BLOCK).all(|index| read[index] == expected(index)), "step {step}");
        }
    }

    #[test]
    fn search_for_memory_looks_at_so_many_folios_at_a_time_and_goes_on() {
        const FOLIOS: usize = 1000;
        let mut folios = Folios::new(BLOCK as u32, Buffers::new());
        for index in 0..FOLIOS as u32 {
            // The last ones are clean, and all are used.
            let what = if index < 900 { Block::Dirty } else { Block::Clean };
            folios.insert(2 * index, &[1; BLOCK], what);
        }
        let (mut freed, mut looks) = (0, Vec::new());
        for _ in 0..20 {
            let (bytes, looked) = folios.evict(u64::MAX, 100);
            freed += bytes;
            looks.push(looked);
        }
        assert_eq!(freed, 100 * BLOCK as u64, "the second time round");
        assert_eq!(looks, [100; 20]);
        assert_eq!(folios.evict(u64::MAX, 100), (0, 100));
    }

    #[test]
    fn folios_hold_what_a_block_each_would() {
        const END: u32 = 200;
        for seed in 1..60_u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
            let mut below = move |bound: u32| {
                state ^= state >> 12;
                state ^= state << 25;
                state ^= state >> 27;
                (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as u32 % bound
            };
            let (mut folios, mut model) = (Folios::new(BLOCK as u32, Buffers::new()), Model::new());
            for step in 0..120_u32 {
                let (block, fill) = (below(END), vec![step as u8; BLOCK]);
                // Of the thread alone, or beside others.
                let change = |folios: &mut Folios, block| match step % 2 {
                    0 => {
                        folios.share(block);
                        assert!(folios.write_shared(block, 0, &[step as u8 ^ 1], &mut || true));
                    }
                    _ => assert_eq!(folios.write(block, 0, &[step as u8 ^ 1]), 1),
                };
                match below(9) {
                    0..4 => {
                        let what = [Block::Clean, Block::Dirty, Block::Delayed, Block::Delayed];
                        let what = what[below(4) as usize];
                        let len = folios.gap(block, (1 + below(80)).min(END - block));
                        if len > 0 {
                            folios.insert(block, &fill.repeat(len as usize), what);
                        }
                        model.extend((block..block + len).map(|block| (block, (what, fill.clone()))));
                    }
                    4 => {
                        let bytes = 1 + below(3 * BLOCK as u32) as usize;
                        let written = folios.write(block, 100, &vec![step as u8; bytes]);
                        let mut at = 100;
                        while at < 100 + written {
                            let (what, own) = model.get_mut(&(block + (at / BLOCK) as u32)).unwrap();
                            *what = if *what == Block::Clean { Block::Dirty } else { *what };
                            own[at % BLOCK] = step as u8;
                            at += 1;
                        }
                        assert_eq!(written > 0, model.contains_key(&block));
                    }
                    5 => {
                        if let Some(run) = folios.next_dirty(below(END), 1 + below(20)) {
                            folios.set_off(run);
                            let parts = folios.parts(run);
                            let before: Vec<u8> =
                                parts.iter().flat_map(|part| part.bytes()).copied().collect();
                            let own = (run.block..run.block + run.len).flat_map(|block| &model[&block].1);
                            assert!(own.eq(&before));
                            // Another thread may write to one of the blocks meanwhile.
                            let changed = run.block + below(2 * run.len);
                            if changed < run.block + run.len {
                                change(&mut folios, changed);
                                model.get_mut(&changed).unwrap().1[0] = step as u8 ^ 1;
                            }
                            assert!(parts.iter().flat_map(|part| part.bytes()).eq(&before));
                            folios.clean(run);
                            for block in run.block..run.block + run.len {
                                let what = if block == changed { Block::Dirty } else { Block::Clean };
                                model.get_mut(&block).unwrap().0 = what;
                            }
                        }
                    }
                    8 => {
                        folios.share(block);
                        let bytes = [step as u8; 3];
                        assert!(!folios.write_shared(block, 7, &bytes, &mut || false));
                        let is_written = folios.write_shared(block, 7, &bytes, &mut || true);
                        let dirty = model.get_mut(&block).filter(|(what, _)| *what != Block::Clean);
                        assert_eq!(is_written, dirty.is_some());
                        if let Some((_, own)) = dirty {
                            own[7..10].copy_from_slice(&bytes);
                        }
                        // Over the end of a block, of which the next may be of another kind.
                        folios.share(block + 1);
                        let is_dirty =
                            |block| model.get(&block).is_some_and(|(what, _)| *what != Block::Clean);
                        let both = is_dirty(block) && is_dirty(block + 1);
                        assert_eq!(
                            folios.write_shared(block, BLOCK - 1, &[step as u8; 2], &mut || true),
                            both
                        );
                        if both {
                            model.get_mut(&block).unwrap().1[BLOCK - 1] = step as u8;
                            model.get_mut(&(block + 1)).unwrap().1[0] = step as u8;
                        }
                    }
                    6 if step % 3 == 0 => {
                        let dropped = block..block.saturating_add(1 + below(90));
                        model.retain(|own, _| !dropped.contains(own));
                        folios.drop_range(dropped);
                    }
                    6 => {
                        if let Some(run) = folios.next_dirty(0, 1 + below(20)) {
                            folios.set_off(run);
                            let changed = run.block + below(2 * run.len);
                            if changed < run.block + run.len {
                                change(&mut folios, changed);
                                model.get_mut(&changed).unwrap().1[0] = step as u8 ^ 1;
                            }
                            folios.lose(run);
                            // Clean blocks may go too.
                            let before = model.clone();
                            model.retain(|own, _| folios.find(*own).is_some());
                            for (own, (what, _)) in &before {
                                let is_lost =
                                    (run.block..run.block + run.len).contains(own) && *own != changed;
                                assert!(model.contains_key(own) != is_lost || *what == Block::Clean);
                            }
                        }
                    }
                    _ => {
                        folios.evict(u64::from(below(40)) * BLOCK as u64, folios.looks_max());
                        let before = model.len();
                        model.retain(|own, (what, _)| *what != Block::Clean || folios.find(*own).is_some());
                        assert!(before >= model.len());
                    }
                }
                check(&mut folios, &model, END);
            }
        }
    }
}
