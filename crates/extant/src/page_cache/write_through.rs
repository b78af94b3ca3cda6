//! Writing files past the page cache.
//!
//! Data comes before the metadata that maps it: blocks are allocated in memory and written, and only then an update marks them as
//! used and maps them with the new size. A crash shows what was there before or what was written, never what another file left in
//! a block.
//!
//! A large write is cut into pieces of one run of blocks, each with an update of its own: after each piece the file is valid, and
//! as long as the pieces written so far.
//!
//! Locks: `INODE` of the file: shared to write into blocks that are written already, else exclusively. Over the I/O
//! no update is open.
//!
//! Source: `ext4_buffered_write_iter`, `ext4_map_blocks`, `file_remove_privs`.
//!
//! Tests: `tests/files.rs` (a model), `tests/shared_files.rs` (the kernel, threads), `tests/limits.rs`.

use extant_alloc::{MayUse, Reservation};
use extant_ondisk::extent::MAX_LEN;
use extant_ondisk::mode::without_set_id;
use extant_ondisk::{FsBlock, LogicalBlock, RawInode, Timestamp};
use extant_rt::Arc;

use crate::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::mapping::extent::Conversion;
use crate::mapping::prealloc::Wanted;
use crate::mapping::{ContentChange, Mapping};
use crate::metadata::reserve::writer_may_use;
use crate::metadata::update::{Credits, InodeDirty, MetadataUpdate, RUN_CREDITS};
use crate::page_cache::PageCache;

/// A part of a write: adjacent bytes of the file.
#[derive(Clone, Copy)]
struct Piece<'a> {
    at: u64,
    logical: LogicalBlock,
    /// The first byte in its block.
    within: u64,
    buf: &'a [u8],
    privileged: bool,
}

impl Piece<'_> {
    fn end(&self) -> u64 {
        self.at + self.buf.len() as u64
    }
}

impl PageCache {
    /// Writes to the disk at once: how many bytes.
    ///
    /// # Errors
    /// As [`Files::write_at`](crate::file::Files::write_at).
    ///
    /// # Locks
    /// `INODE` is held exclusively.
    pub(crate) fn write_through(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        buf: &[u8],
        privileged: bool,
    ) -> Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.write_piece(inode, offset + done as u64, &buf[done..], privileged) {
                Ok(bytes) => done += bytes,
                Err(Error::NoSpace | Error::FileTooLarge) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes into blocks that are written already and lie inside the file. False, and nothing is written, if the
    /// range is not of that kind.
    pub(crate) fn overwrite(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        buf: &[u8],
        privileged: bool,
    ) -> Result<bool> {
        let _content = inode.content.read();
        let raw = inode.raw();
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > raw.size()) {
            return Ok(false);
        }
        let mut runs = Vec::new();
        let mut rest = buf;
        let mut at = offset;
        while !rest.is_empty() {
            let (logical, within) = self.block_at(at)?;
            match self.map(inode, &raw, logical, self.block_count(within, rest.len()))? {
                Mapping::Data { start, len, unwritten: false } => {
                    let (piece, behind) = rest.split_at(self.bytes_in(len, within, rest.len()));
                    runs.push((start, within, piece));
                    at += piece.len() as u64;
                    rest = behind;
                }
                _ => return Ok(false),
            }
        }
        // Or the update would copy the fields.
        drop(raw);
        for (start, within, piece) in runs {
            self.write_padded(inode, (start, within), piece, (false, false))?;
        }
        self.note_write(inode, None, privileged)?;
        Ok(true)
    }

    /// Writes the first run of blocks that a write touches: how many bytes.
    fn write_piece(&self, inode: &Arc<Inode>, at: u64, buf: &[u8], privileged: bool) -> Result<usize> {
        let (logical, within) = self.block_at(at)?;
        let len = self.block_count(within, buf.len()).min(u32::from(MAX_LEN));
        let raw = inode.raw();
        let mapping = self.map(inode, &raw, logical, len)?;
        let piece = Piece { at, logical, within, buf, privileged };
        let piece = Piece { buf: &buf[..self.bytes_in(mapping.len(), within, buf.len())], ..piece };
        match mapping {
            Mapping::Data { start, unwritten: false, .. } => self.write_in_place(inode, raw, piece, start),
            Mapping::Data { start, len, unwritten: true } => self.write_unwritten(inode, piece, start, len),
            Mapping::Hole { len } => self.write_hole(inode, raw, piece, len),
        }
    }

    fn write_in_place(
        &self,
        inode: &Arc<Inode>,
        raw: Arc<RawInode>,
        piece: Piece<'_>,
        start: FsBlock,
    ) -> Result<usize> {
        // Nothing guarantees that the bytes behind the end of the file are zero.
        let grows = piece.end() > raw.size();
        // Or the update would copy the fields.
        drop(raw);
        self.write_padded(inode, (start, piece.within), piece.buf, (false, grows))?;
        self.note_write(inode, grows.then_some(piece.end()), piece.privileged)?;
        Ok(piece.buf.len())
    }

    /// Notes in an update of its own that a file was written, and with it up to `end` if it grew.
    fn note_write(&self, inode: &Arc<Inode>, end: Option<u64>, privileged: bool) -> Result<()> {
        let mut update = self.begin(Credits::new(1, 0))?;
        update.wrote(inode, end, privileged);
        update.finish();
        Ok(())
    }

    fn write_unwritten(
        &self,
        inode: &Arc<Inode>,
        piece: Piece<'_>,
        start: FsBlock,
        len: u32,
    ) -> Result<usize> {
        // Before the data is written, so that it is not written in vain.
        let (conversion, reservation) = self.reserve_conversion(inode, piece, len)?;
        for run in &conversion.to_zero {
            self.zero_blocks(inode, *run)?;
        }
        self.write_padded(inode, (start, piece.within), piece.buf, (true, true))?;
        let mut update = self.begin_reserved(conversion.credits, reservation)?;
        let change = update.convert_extent(inode, conversion)?;
        update.wrote_mapped(inode, change, piece.end(), piece.privileged)?;
        update.finish();
        Ok(piece.buf.len())
    }

    /// Plans how a piece makes `len` unwritten blocks written, and reserves what the tree needs for it: the writer was promised
    /// that it needs no space. With not even the reserved pool left, or more blocks than the inode can count, the blocks around
    /// are zeroed instead.
    fn reserve_conversion(
        &self,
        inode: &Inode,
        piece: Piece<'_>,
        len: u32,
    ) -> Result<(Conversion, Reservation<'_>)> {
        let conversion = self.conversion(inode, piece.logical, len, false)?;
        let reserved = self
            .check_countable(&inode.raw(), conversion.blocks)
            .and_then(|()| self.reserve(conversion.blocks, conversion.blocks, MayUse::Reserved));
        match reserved {
            Err(Error::NoSpace | Error::FileTooLarge) => {
                let size = inode.state().raw.size().max(piece.end());
                let wider = conversion.zeroing_out(self.blocks_of(size)).ok_or(Error::NoSpace)?;
                Ok((wider, self.reserve(0, 0, MayUse::Reserved)?))
            }
            reserved => Ok((conversion, reserved?)),
        }
    }

    fn write_hole(
        &self,
        inode: &Arc<Inode>,
        raw: Arc<RawInode>,
        piece: Piece<'_>,
        len: u32,
    ) -> Result<usize> {
        let hole = self.hole(inode, &raw, piece.logical)?;
        let wanted = Wanted {
            logical: piece.logical,
            len: len.min(hole.len_max()),
            end: piece.end(),
            grows: true,
            may_use: writer_may_use(piece.privileged),
        };
        let (run, reservation) = self.allocate_file_blocks(inode, &raw, &hole, wanted, None)?;
        // Or the update would copy the fields.
        drop(raw);
        let buf = &piece.buf[..self.bytes_in(run.len, piece.within, piece.buf.len())];
        let piece = Piece { buf, ..piece };
        let written = match hole.can_name(run) {
            true => self.write_padded(inode, (run.start, piece.within), buf, (true, true)),
            false => Err(Error::NoSpace),
        };
        let opened = written.and_then(|()| self.begin_reserved(hole.credits() + RUN_CREDITS, reservation));
        let mut update = match opened {
            Ok(update) => update,
            Err(error) => {
                self.allocator.free_unmarked(run);
                return Err(error);
            }
        };
        let change = update.map_run(inode, hole, piece.logical, run, false)?;
        update.wrote_mapped(inode, change, piece.end(), piece.privileged)?;
        update.finish();
        Ok(buf.len())
    }
}

impl MetadataUpdate<'_> {
    /// Notes that a file was written, and with it up to `end` if it grew. Takes one credit.
    fn wrote(&mut self, inode: &Arc<Inode>, end: Option<u64>, privileged: bool) {
        let dirty = if end.is_some() { InodeDirty::Mapping } else { InodeDirty::Attributes };
        let end = end.unwrap_or(0);
        let now = self.now();
        self.modify_inode(inode, dirty, |raw| set_written(raw, end, now, privileged));
        self.note_size(end);
    }

    /// The same of a write up to `end` that changed the map.
    ///
    /// # Errors
    /// As [`MetadataUpdate::change_content`].
    fn wrote_mapped(
        &mut self,
        inode: &Arc<Inode>,
        change: ContentChange,
        end: u64,
        privileged: bool,
    ) -> Result<()> {
        let now = self.now();
        self.change_content(inode, change, |raw| set_written(raw, end, now, privileged))?;
        self.note_size(end);
        Ok(())
    }
}

/// Sets what a write up to `end` changes in an inode beside the map.
fn set_written(raw: &mut RawInode, end: u64, now: Timestamp, privileged: bool) {
    if end > raw.size() {
        raw.set_size(end);
    }
    raw.set_mtime(now);
    raw.set_ctime(now);
    if !privileged {
        drop_privileges(raw);
    }
}

/// Takes set-user-id and set-group-id away (`should_remove_suid`).
pub(crate) fn drop_privileges(raw: &mut RawInode) {
    let mode = without_set_id(raw.mode());
    if mode != raw.mode() {
        raw.set_mode(mode);
    }
}
