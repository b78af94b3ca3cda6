//! Requests on content.

use super::*;
use extant::{Fallocate, SeekTo};

const KEEP_SIZE: i32 = 0x01;
const PUNCH_HOLE: i32 = 0x02;
const COLLAPSE_RANGE: i32 = 0x08;
const ZERO_RANGE: i32 = 0x10;
const INSERT_RANGE: i32 = 0x20;

/// Holes that are filled while one is looked for, at most.
const HOLES_WRITTEN_MAX: u32 = 64;

impl Server {
    /// Opens an inode, after the checks that the kernel does not make.
    ///
    /// Source: `may_open` of `fs/namei.c`, `fsverity_file_open`.
    pub(super) fn open_inode(&self, node: NodeId, how: OpenHow) -> Reply<Opened> {
        if how.directory || Control::owns(node) {
            return Ok(Opened { handle: FileHandle::NONE, keeps_content: self.keeps_content() });
        }
        let served = self.nodes.get(node)?;
        let file = served.file()?;
        if how.write {
            if file.flags().contains(InodeFlags::VERITY) {
                return Err(Errno::PERM);
            }
            Self::check_changeable(file, how.append)?;
        }
        Ok(self.opened(node, file.reopen()))
    }

    pub(super) fn read_content(&self, node: NodeId, offset: u64, buf: &mut [u8]) -> Reply<usize> {
        let served = self.nodes.get(node)?;
        if let Some(snapshot) = served.control() {
            return Ok(snapshot.read(offset, buf));
        }
        let file = served.file()?;
        let done = file.read_at(buf, offset).map_err(|error| errno(&error))?;
        file.touch_atime(self.access_times).map_err(|error| errno(&error))?;
        Ok(done)
    }

    pub(super) fn write_content(
        &self,
        node: NodeId,
        offset: u64,
        bytes: &[u8],
        how: WriteHow,
    ) -> Reply<usize> {
        let served = self.nodes.get(node)?;
        if let Some(snapshot) = served.control() {
            return snapshot.write(&self.fs, offset, bytes);
        }
        let file = served.file()?;
        // A write through a mapping is no append, and neither is one before the end.
        let appends = how.append && !how.is_late;
        Self::check_changeable(file, appends)?;
        if file.flags().contains(InodeFlags::APPEND) && offset < file.metadata().size {
            return Err(Errno::PERM);
        }
        self.drop_privileges(file, false)?;
        // No open file: it reports what is lost from here on.
        let late = how.is_late.then(|| file.reopen());
        let written = if how.remove_set_id {
            file.write_unprivileged_at(bytes, offset)
        } else {
            file.write_at(bytes, offset)
        };
        let written = written.map_err(|error| match errno(&error) {
            Errno::ROFS if how.is_late => Errno::IO,
            number => number,
        })?;
        // Checked after the write: a file that is located later is synced later.
        if let Some(file) = late.filter(|_| served.is_located()) {
            file.sync_data().map_err(|error| errno(&error))?;
        }
        if how.remove_set_id && served.take_announcement() {
            self.tell_of_change(node);
        }
        Ok(written)
    }

    pub(super) fn sync_inode(&self, node: NodeId, handle: FileHandle, only_data: bool) -> Reply<()> {
        if Control::owns(node) {
            return Ok(());
        }
        let sync_file = |file: &File| if only_data { file.sync_data() } else { file.sync_all() };
        let sync = || {
            if node == NodeId::ROOT {
                return self.fs.sync().map_err(|error| errno(&error));
            }
            let open_file = self.open_files.as_ref().and_then(|open_files| open_files.get(handle));
            let synced = match open_file {
                Some(file) => sync_file(&file),
                None => sync_file(self.nodes.get(node)?.file()?),
            };
            synced.map_err(|error| errno(&error))
        };
        // Where writing was stopped, the data was not made durable; pages that arrive late are refused likewise.
        sync().map_err(|error| if error == Errno::ROFS { Errno::IO } else { error })
    }

    pub(super) fn allocate_range(
        &self,
        caller: Caller,
        node: NodeId,
        mode: i32,
        offset: u64,
        bytes: u64,
    ) -> Reply<()> {
        let served = self.nodes.get(node)?;
        let file = served.file()?;
        let keep_size = mode & KEEP_SIZE != 0;
        let what = match mode & !KEEP_SIZE {
            0 => Fallocate::Allocate { keep_size },
            ZERO_RANGE => Fallocate::ZeroRange { keep_size },
            PUNCH_HOLE if keep_size => Fallocate::PunchHole,
            COLLAPSE_RANGE if !keep_size => Fallocate::CollapseRange,
            INSERT_RANGE if !keep_size => Fallocate::InsertRange,
            _ => return Err(Errno::OPNOTSUPP),
        };
        self.drop_privileges_by(caller, node, &served)?;
        let allocated = if caller.is_root() {
            file.allocate(what, offset, bytes)
        } else {
            file.allocate_unprivileged(what, offset, bytes)
        };
        allocated.map_err(|error| errno(&error))
    }

    /// Where data or a hole begins. What programs write through mappings is with the kernel until it is written back, and what is
    /// a hole here may be none: so before a hole is reported, the kernel writes back its dirty pages of it.
    pub(super) fn seek_content(&self, node: NodeId, offset: u64, for_data: bool) -> Reply<u64> {
        let mut written = 0..0;
        for _ in 0..HOLES_WRITTEN_MAX {
            let hole = self.hole_told(node, offset, for_data)?;
            let Some(hole) = hole.filter(|hole| hole.start < written.start || hole.end > written.end) else {
                return self.seek_file(node, offset, for_data);
            };
            self.have_written_back(node, hole.clone());
            written = hole;
        }
        // Another program fills one hole after the other; to report none before the end is never wrong.
        if for_data { Ok(offset) } else { Ok(self.nodes.get(node)?.file()?.metadata().size) }
    }

    fn seek_file(&self, node: NodeId, offset: u64, for_data: bool) -> Reply<u64> {
        let to = if for_data { SeekTo::Data } else { SeekTo::Hole };
        self.nodes.get(node)?.file()?.seek_to(to, offset).map_err(|error| errno(&error))
    }

    /// The hole that an answer would be about: before the data that is looked for, or the one that is looked for.
    pub(super) fn hole_told(&self, node: NodeId, offset: u64, for_data: bool) -> Reply<Option<Range<u64>>> {
        let size = self.nodes.get(node)?.file()?.metadata().size;
        if offset >= size {
            return Ok(None);
        }
        let start = if for_data { offset } else { self.seek_file(node, offset, false)? };
        if start >= size {
            return Ok(None);
        }
        let end = match self.seek_file(node, start, true) {
            Err(Errno::NXIO) => size,
            found => found?,
        };
        Ok((start < end).then_some(start..end))
    }

    /// See [`Ops::find_block`]. `swapon` asks for each page of a file, from the first on, and writes back what is dirty of it
    /// afterwards; then the kernel writes to the blocks directly. So no write of the file may be in flight to the device, here or
    /// in the host's pages of it, neither after its first block was asked for nor after what came late.
    pub(super) fn find_block_of(&self, node: NodeId, block: u64, block_size: u32) -> Reply<Option<u64>> {
        // Before Linux 6.17 the kernel counts in blocks of the size that `stat` reports, whatever size it asks with.
        if block_size != SHOWN_BLOCK_BYTES {
            return Err(Errno::INVAL);
        }
        let unit = u64::from(block_size);
        let offset = block.checked_mul(unit).ok_or(Errno::INVAL)?;
        let served = self.nodes.get(node)?;
        let file = served.file()?;
        if block == 0 || !served.is_located() {
            served.locate();
            // A file opened anew: its sync reports losses not reported before, and those of now.
            file.reopen().sync_data().map_err(|error| errno(&error))?;
        }
        let found = file.device_offset(offset, unit).map_err(|error| errno(&error))?;
        Ok(found.filter(|found| found % unit == 0).map(|found| found / unit))
    }
}
