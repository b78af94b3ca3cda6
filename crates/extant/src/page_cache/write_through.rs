//! Writing files past the page cache.
//!
//! A large write is cut into pieces of one run of blocks, each placed, written and named by itself ([`super::place`]): after each piece the
//! file is valid, and as long as the pieces written so far.
//!
//! Locks: `INODE` of the file: shared to write into blocks that are written already, else exclusively. Over the I/O
//! no update is open.
//!
//! Source: `ext4_buffered_write_iter`.
//!
//! Tests: `tests/files.rs` (a model), `tests/shared_files.rs` (the kernel, threads), `tests/limits.rs`.

use extant_block::Segment;
use extant_ondisk::extent::MAX_LEN;
use extant_ondisk::{FsBlock, Structure};
use extant_rt::Arc;

use super::place::FieldChange;
use crate::error::{Error, Location, Result};
use crate::incore::inode::Inode;
use crate::mapping::Mapping;
use crate::mapping::prealloc::Wanted;
use crate::metadata::reserve::writer_may_use;
use crate::page_cache::PageCache;

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
            match self.write_piece(inode, offset + done as u64, &buf[done..], Some(privileged)) {
                Ok(bytes) => done += bytes,
                Err(Error::NoSpace | Error::QuotaExceeded | Error::FileTooLarge) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes behind the end of a file, which stays where it is.
    ///
    /// # Errors
    /// `NoSpace`; `FileTooLarge`; `ReadOnly`; `Io`; `Corrupt`. A part may be written.
    ///
    /// # Locks
    /// `INODE` is held exclusively.
    pub(crate) fn write_behind_end(&self, inode: &Arc<Inode>, offset: u64, buf: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            done += self.write_piece(inode, offset + done as u64, &buf[done..], None)?;
        }
        Ok(())
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
        self.change_fields(inode, FieldChange { end: 0, privileged: Some(privileged) })?;
        Ok(true)
    }

    /// Gives a file blocks for `bytes` bytes from the start of a block on, and names them as if they were written: where they lie on the
    /// device.
    ///
    /// # Errors
    /// As [`Files::place_at`](crate::file::Files::place_at).
    ///
    /// # Locks
    /// `INODE` is held exclusively.
    pub(crate) fn place_through(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        bytes: usize,
        privileged: bool,
    ) -> Result<Vec<Segment>> {
        let block_size = u64::from(self.geometry.block_size);
        let location = Location::of(Structure::Inode).inode(inode.number);
        let (mut segments, mut done) = (Vec::new(), 0);
        while done < bytes {
            let rest = (offset + done as u64, bytes - done);
            let placed = self.fill_piece(inode, rest, Some(privileged), |(start, _), bytes, _| {
                let bytes = (bytes as u64).next_multiple_of(block_size);
                let offset = self.data_offset(start, 0, bytes as usize, location)?;
                segments.push(Segment { offset, bytes });
                Ok(())
            });
            match placed {
                Ok(bytes) => done += bytes,
                Err(Error::NoSpace | Error::QuotaExceeded | Error::FileTooLarge) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(segments)
    }

    /// Writes the first run of blocks that a write touches: how many bytes. The writer is privileged or
    /// not; without one size, times and mode stay.
    fn write_piece(
        &self,
        inode: &Arc<Inode>,
        at: u64,
        buf: &[u8],
        privileged: Option<bool>,
    ) -> Result<usize> {
        self.fill_piece(inode, (at, buf.len()), privileged, |start, bytes, padding| {
            self.write_padded(inode, start, &buf[..bytes], padding)
        })
    }

    /// Has `fill` write the first run of blocks that `len` bytes from `at` on touch: how many of the bytes. It gets the block and the byte
    /// in it where they begin, how many they are, and whether zeroes belong before and behind them.
    fn fill_piece(
        &self,
        inode: &Arc<Inode>,
        (at, len): (u64, usize),
        privileged: Option<bool>,
        fill: impl FnOnce((FsBlock, u64), usize, (bool, bool)) -> Result<()>,
    ) -> Result<usize> {
        let (logical, within) = self.block_at(at)?;
        let raw = inode.raw();
        let size = raw.size();
        let wanted = Wanted {
            logical,
            len: self.block_count(within, len).min(u32::from(MAX_LEN)),
            end: at + len as u64,
            grows: privileged.is_some(),
            near: None,
            may_use: writer_may_use(privileged.unwrap_or(true)),
        };
        let mut placed = self.place(inode, &raw, wanted)?;
        // Or the update would copy the fields.
        drop(raw);
        let blocks = 0..placed.len;
        let bytes = self.bytes_in(placed.len, within, len);
        let end = at + bytes as u64;
        // Nothing guarantees that the bytes behind the end of the file are zero.
        let padding = (!placed.is_in_map(), !placed.is_in_map() || end > size);
        let written = placed
            .to_zero()
            .iter()
            .try_for_each(|run| self.zero_blocks(inode, *run))
            .and_then(|()| fill((placed.start, within), bytes, padding))
            .and_then(|()| {
                let fields = FieldChange { end: if privileged.is_some() { end } else { 0 }, privileged };
                self.name(inode, &mut placed, blocks, fields)
            });
        self.give_back_rest(placed);
        written.map(|()| bytes)
    }
}
