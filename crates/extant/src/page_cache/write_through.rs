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
use extant_ondisk::{FsBlock, LogicalBlock, RawInode};
use extant_rt::Arc;

use crate::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::mapping::Mapping;
use crate::mapping::extent::Conversion;
use crate::mapping::prealloc::Wanted;
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
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > inode.state().raw.size()) {
            return Ok(false);
        }
        let mut runs = Vec::new();
        let mut rest = buf;
        let mut at = offset;
        while !rest.is_empty() {
            let (logical, within) = self.block_at(at)?;
            match self.map(inode, logical, self.block_count(within, rest.len()))? {
                Mapping::Data { start, len, unwritten: false } => {
                    let (piece, behind) = rest.split_at(self.bytes_in(len, within, rest.len()));
                    runs.push((start, within, piece));
                    at += piece.len() as u64;
                    rest = behind;
                }
                _ => return Ok(false),
            }
        }
        for (start, within, piece) in runs {
            self.write_padded(inode, (start, within), piece, (false, false))?;
        }
        self.note_write(inode, 0, privileged)?;
        Ok(true)
    }

    /// Writes the first run of blocks that a write touches: how many bytes.
    fn write_piece(&self, inode: &Arc<Inode>, at: u64, buf: &[u8], privileged: bool) -> Result<usize> {
        let (logical, within) = self.block_at(at)?;
        let len = self.block_count(within, buf.len()).min(u32::from(MAX_LEN));
        let mapping = self.map(inode, logical, len)?;
        let piece = Piece { at, logical, within, buf, privileged };
        let piece = Piece { buf: &buf[..self.bytes_in(mapping.len(), within, buf.len())], ..piece };
        match mapping {
            Mapping::Data { start, unwritten: false, .. } => self.write_in_place(inode, piece, start),
            Mapping::Data { start, len, unwritten: true } => self.write_unwritten(inode, piece, start, len),
            Mapping::Hole { len } => self.write_hole(inode, piece, len),
        }
    }

    fn write_in_place(&self, inode: &Arc<Inode>, piece: Piece<'_>, start: FsBlock) -> Result<usize> {
        // Nothing guarantees that the bytes behind the end of the file are zero.
        let grows = piece.end() > inode.state().raw.size();
        self.write_padded(inode, (start, piece.within), piece.buf, (false, grows))?;
        self.note_write(inode, piece.end(), piece.privileged)?;
        Ok(piece.buf.len())
    }

    /// Notes in an update of its own that a file was written up to `end`.
    fn note_write(&self, inode: &Arc<Inode>, end: u64, privileged: bool) -> Result<()> {
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
        update.convert_extent(inode, conversion)?;
        update.wrote(inode, piece.end(), piece.privileged);
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

    fn write_hole(&self, inode: &Arc<Inode>, piece: Piece<'_>, len: u32) -> Result<usize> {
        let hole = self.hole(inode, piece.logical)?;
        let wanted = Wanted {
            logical: piece.logical,
            len: len.min(hole.len_max()),
            end: piece.end(),
            grows: true,
            may_use: writer_may_use(piece.privileged),
        };
        let (run, reservation) = self.allocate_file_blocks(inode, &hole, wanted, None)?;
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
        update.map_run(inode, hole, piece.logical, run, false)?;
        update.wrote(inode, piece.end(), piece.privileged);
        update.finish();
        Ok(buf.len())
    }
}

impl MetadataUpdate<'_> {
    /// Notes that a file was written up to `end`. Takes one credit.
    fn wrote(&mut self, inode: &Arc<Inode>, end: u64, privileged: bool) {
        let grows = end > inode.state().raw.size();
        let now = self.now();
        self.modify_inode(inode, if grows { InodeDirty::Mapping } else { InodeDirty::Attributes }, |raw| {
            if grows {
                raw.set_size(end);
            }
            raw.set_mtime(now);
            raw.set_ctime(now);
            if !privileged {
                drop_privileges(raw);
            }
        });
        self.note_size(end);
    }
}

/// Takes set-user-id and set-group-id away (`should_remove_suid`).
pub(crate) fn drop_privileges(raw: &mut RawInode) {
    let mode = without_set_id(raw.mode());
    if mode != raw.mode() {
        raw.set_mode(mode);
    }
}
