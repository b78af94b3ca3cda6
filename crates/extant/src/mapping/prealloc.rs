//! Blocks for holes of files: the reservation and the map that [`extant_alloc::Preallocator`] asks for when it chooses them.
//!
//! The preallocations of a file are discarded with its last user, and before its content is truncated or moved.
//!
//! Leaves out: the goal, how much to preallocate and for which files (`prealloc/normalize.rs` of `extant-alloc`).
//!
//! Locks: the caller holds `INODE` of the file alone, or shared with `MAPPING` alone ([`crate::incore::content`]); takes the allocator's.
//!
//! Source: `ext4_ext_map_blocks`, `ext4_discard_preallocations`. Tests: `tests/prealloc.rs`.

use extant_alloc::{FileWrite, MayUse, Preallocated, Reservation, Run};
use extant_ondisk::{LogicalBlock, RawInode};
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
    /// Takes blocks for the start of a hole of an inode whose fields are `raw`: a run of at least one, and a reservation of what the map needs for it. All of
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
        raw: &RawInode,
        hole: &Hole,
        wanted: Wanted,
        mut kept: Option<&mut Reservation<'v>>,
    ) -> Result<(Run, Reservation<'v>)> {
        let Wanted { logical, len, end, grows, may_use } = wanted;
        let growth = hole.growth();
        let countable = self.countable_blocks(raw).saturating_sub(u64::from(growth));
        if countable == 0 {
            return Err(Error::FileTooLarge);
        }
        let write = FileWrite {
            inode: inode.number,
            directory: inode.directory,
            logical,
            len: u64::from(len).min(countable) as u32,
            end,
            size: raw.size(),
            grows,
            goal: hole.goal(logical),
        };
        let hole_len = |window| self.hole_len(inode, raw, logical, window);
        let for_map = self.reserve_of(kept.as_deref_mut(), (growth, growth), may_use)?;
        let preallocations = inode.preallocations();
        let room = match self.allocator.use_preallocated(preallocations, &write, hole_len)? {
            Preallocated::Run(run) => return Ok((run, for_map)),
            Preallocated::None { room } => room,
        };
        let mut reservation = self.reserve_of(kept.as_deref_mut(), (1, write.len.min(room)), may_use)?;
        let run =
            self.allocator.allocate_file_blocks(&mut reservation, preallocations, &write, room, hole_len)?;
        // The run may be shorter: the rest of the reservation is returned before the data is written, so that no other thread is
        // refused it.
        if let Some(kept) = kept {
            kept.merge(reservation);
        }
        Ok((run, for_map))
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

    /// How many of `window` blocks from `logical` on are a hole.
    ///
    /// # Errors
    /// `Io`; `Corrupt`.
    fn hole_len(&self, inode: &Inode, raw: &RawInode, logical: LogicalBlock, window: u32) -> Result<u32> {
        Ok(match self.map(inode, raw, logical, window)? {
            Mapping::Hole { len } => len,
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
