//! Blocks for holes of files: from the file's preallocations, or from those of the locality group for a small file, else from the
//! allocator, with a new preallocation if the file grows.
//!
//! A write that is the whole file, as far as is known, gets the blocks that it needs and no more. Any other write preallocates:
//! behind the file's end, or in its hole, for a random writer may begin at the end and fill the holes later. The preallocations
//! are discarded with the last user of the file, and before its content is truncated or moved.
//!
//! Locks: the caller holds `INODE` of the file alone, or shared with `MAPPING` alone ([`crate::incore::content`]); takes the allocator's.
//!
//! Source: `ext4_mb_normalize_request`, `ext4_discard_preallocations`. Tests: `tests/prealloc.rs`.

use extant_alloc::{LocalityHint, MayUse, Preallocated, Purpose, Request, Reservation, Run, predicted_end};
use extant_ondisk::LogicalBlock;
use extant_ondisk::extent::MAX_LEN;
use extant_rt::Arc;

use crate::error::{Error, Result};
use crate::incore::inode::Inode;
use crate::mapping::{BlockMap, Hole, Mapping};

/// Blocks wanted for the start of a hole.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) logical: LogicalBlock,
    /// At most.
    pub(crate) len: u32,
    /// The byte where they end, or where the file is to end.
    pub(crate) end: u64,
    /// Whether the file may grow in the same way.
    pub(crate) grows: bool,
    pub(crate) may_use: MayUse,
}

impl BlockMap {
    /// Takes blocks for the start of a hole: a run of at least one, and a reservation of what the map needs for it. All of
    /// it is out of what is `kept`, if there is such, as far as that goes.
    ///
    /// # Errors
    /// `NoSpace`; `FileTooLarge` if the inode cannot count them; `ReadOnly`; the journal's.
    ///
    /// # Locks
    /// As [`SbInfo::reserve`](crate::metadata::SbInfo::reserve).
    pub(crate) fn allocate_file_blocks<'v>(
        &'v self,
        inode: &Arc<Inode>,
        hole: &Hole,
        wanted: Wanted,
        mut kept: Option<&mut Reservation<'v>>,
    ) -> Result<(Run, Reservation<'v>)> {
        let growth = hole.growth();
        let raw = inode.raw();
        let countable = self.countable_blocks(&raw).saturating_sub(u64::from(growth));
        if countable == 0 {
            return Err(Error::FileTooLarge);
        }
        drop(raw);
        let wanted = Wanted { len: u64::from(wanted.len).min(countable) as u32, ..wanted };
        let Wanted { logical, may_use, .. } = wanted;
        let mut reservation = self.reserve_of(kept.as_deref_mut(), (growth, growth), may_use)?;
        let room = match self.allocator.use_inode_pa(inode.preallocations(), logical, wanted.len) {
            Preallocated::Run(run) => return Ok((run, reservation)),
            Preallocated::None { room } => room,
        };
        let len = wanted.len.min(room);
        let request = self.request(inode, hole, logical, len, wanted.end);
        if let Some(run) = self.use_group_pa(inode, wanted, &request, room)? {
            return Ok((run, reservation));
        }
        reservation.merge(self.reserve_of(kept.as_deref_mut(), (1, len), may_use)?);
        let len = reservation.blocks().saturating_sub(u64::from(growth)).min(u64::from(len)) as u32;
        let surplus = self.surplus(inode, Wanted { len, ..wanted }, room)?;
        let request = Request { len, ..request };
        let preallocations = inode.preallocations();
        let run =
            self.allocator.new_inode_pa(&mut reservation, &request, preallocations, logical, surplus)?;
        // The run may be shorter: the rest of the reservation is returned before the data is written, so that no other thread is
        // refused it.
        let rest = reservation.split(reservation.blocks().saturating_sub(u64::from(growth)));
        if let Some(kept) = kept {
            kept.merge(rest);
        }
        Ok((run, reservation))
    }

    /// [`SbInfo::reserve`](crate::metadata::SbInfo::reserve) out of what is kept, as far as that goes.
    pub(crate) fn reserve_of<'v>(
        &'v self,
        kept: Option<&mut Reservation<'v>>,
        (least, most): (u32, u32),
        may_use: MayUse,
    ) -> Result<Reservation<'v>> {
        match kept {
            Some(kept) if kept.blocks() >= u64::from(least) => Ok(kept.split(u64::from(most))),
            _ => self.reserve(least, most, may_use),
        }
    }

    /// The same for a small file, out of its locality group, all that is wanted or none; for a larger one what of that
    /// follows on its last block.
    fn use_group_pa(
        &self,
        inode: &Arc<Inode>,
        wanted: Wanted,
        request: &Request,
        room: u32,
    ) -> Result<Option<Run>> {
        let logical = wanted.logical;
        let hint =
            LocalityHint { inode_group: self.group_of_inode(inode.number), directory: inode.directory };
        let taken = match request.purpose {
            Purpose::Data => {
                let surplus = self.surplus(inode, Wanted { len: request.len, ..wanted }, room)?;
                self.allocator.use_group_pa(request, hint, inode.preallocations(), logical, surplus)
            }
            _ => self.allocator.extend_group_pa(request, hint.inode_group),
        };
        Ok(taken)
    }

    /// How many blocks to preallocate behind those that are wanted, where the next preallocated ones are `room` blocks away.
    fn surplus(&self, inode: &Inode, wanted: Wanted, room: u32) -> Result<u32> {
        let Wanted { logical, len, grows, .. } = wanted;
        let block = u64::from(self.geometry.block_size);
        let (start, size) = (u64::from(logical.0), inode.state().raw.size());
        let end = (start + u64::from(len)) * block;
        let is_all = size == 0 && wanted.end <= end;
        if !grows || is_all {
            return Ok(0);
        }
        let mut predicted = self.blocks_of(predicted_end(start * block, wanted.end.max(end).max(size)));
        // Not behind the end before something is written there.
        if start < self.blocks_of(size) {
            predicted = predicted.min(self.blocks_of(size));
        }
        // A run is in one group.
        let most = u64::from(self.geometry.blocks_per_group).min(u64::from(MAX_LEN)).min(u64::from(room));
        let window = predicted.saturating_sub(start).min(most) as u32;
        if window <= len {
            return Ok(0);
        }
        Ok(match self.map(inode, &inode.raw(), logical, window)? {
            Mapping::Hole { len: free } => free.saturating_sub(len),
            Mapping::Data { .. } => 0,
        })
    }

    /// Discards the preallocations of a file.
    pub(crate) fn discard_preallocations(&self, inode: &Inode) {
        if inode.may_have_preallocations() {
            self.allocator.discard_inode_preallocations(inode.preallocations());
        }
    }
}
