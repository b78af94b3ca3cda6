//! Requests on content.

use super::*;
use extant::{Fallocate, SeekTo};

const KEEP_SIZE: i32 = 0x01;
const PUNCH_HOLE: i32 = 0x02;
const COLLAPSE_RANGE: i32 = 0x08;
const ZERO_RANGE: i32 = 0x10;
const INSERT_RANGE: i32 = 0x20;

impl Server {
    /// That it may be opened so, beside what the kernel looks at.
    ///
    /// Source: `may_open` of `fs/namei.c`, `fsverity_file_open`.
    pub(super) fn open_inode(&self, node: NodeId, how: OpenHow) -> Reply<()> {
        if Control::owns(node) || !how.write {
            return Ok(());
        }
        let served = self.nodes.get(node)?;
        let file = served.file()?;
        if file.flags().contains(InodeFlags::VERITY) {
            return Err(Errno::PERM);
        }
        Self::check_changeable(file, how.append)
    }

    pub(super) fn read_content(&self, node: NodeId, offset: u64, buf: &mut [u8]) -> Reply<usize> {
        let served = self.nodes.get(node)?;
        if let Some(snapshot) = served.control() {
            return Ok(snapshot.read(offset, buf));
        }
        let file = served.file()?;
        let done = file.read_at(buf, offset).map_err(|error| errno(&error))?;
        file.note_access(self.access_times).map_err(|error| errno(&error))?;
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
        Self::check_changeable(file, how.append)?;
        self.drop_privileges(file, false)?;
        let written = if how.remove_set_id {
            file.write_unprivileged_at(bytes, offset)
        } else {
            file.write_at(bytes, offset)
        };
        let written = written.map_err(|error| match errno(&error) {
            Errno::ROFS if how.is_late => Errno::IO,
            number => number,
        })?;
        if how.is_late && served.is_located() {
            file.sync_data().map_err(|error| errno(&error))?;
        }
        if how.remove_set_id && served.take_announcement() {
            self.tell_of_change(node);
        }
        Ok(written)
    }

    pub(super) fn sync_inode(&self, node: NodeId, only_data: bool) -> Reply<()> {
        if Control::owns(node) {
            return Ok(());
        }
        let sync = || match node {
            NodeId::ROOT => self.fs.sync().map_err(|error| errno(&error)),
            _ => {
                let served = self.nodes.get(node)?;
                let file = served.file()?;
                let synced = if only_data { file.sync_data() } else { file.sync_all() };
                synced.map_err(|error| errno(&error))
            }
        };
        // Where writing was stopped, what is asked for was not made durable; pages that come late are refused likewise.
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

    pub(super) fn seek_content(&self, node: NodeId, offset: u64, for_data: bool) -> Reply<u64> {
        let served = self.nodes.get(node)?;
        let to = if for_data { SeekTo::Data } else { SeekTo::Hole };
        served.file()?.seek_to(to, offset).map_err(|error| errno(&error))
    }

    /// See [`Ops::find_block`]. `swapon` asks for each page of a file, from the first on, and writes back what is dirty of it
    /// afterwards; then the kernel writes to the blocks by itself. So nothing of the file may be on its way to the device, here or
    /// in the host's pages of it, neither after its first block was asked for nor after what came late.
    pub(super) fn find_block_of(&self, node: NodeId, block: u64, block_size: u32) -> Reply<Option<u64>> {
        // Before Linux 6.17 the kernel counts in blocks of the size that `stat` tells, whichever it says.
        if block_size != SHOWN_BLOCK_BYTES {
            return Err(Errno::INVAL);
        }
        let unit = u64::from(block_size);
        let offset = block.checked_mul(unit).ok_or(Errno::INVAL)?;
        let served = self.nodes.get(node)?;
        let file = served.file()?;
        if block == 0 || !served.is_located() {
            served.locate();
            file.sync_data().map_err(|error| errno(&error))?;
        }
        let found = file.device_offset(offset, unit).map_err(|error| errno(&error))?;
        Ok(found.filter(|found| found % unit == 0).map(|found| found / unit))
    }
}
