//! Which blocks a write into a hole of a file gets: from the file's preallocations, or from those of the locality group for a small
//! file, else from a search, with a new preallocation if the file grows.
//!
//! A write that is the whole file, as far as is known, gets the blocks that it needs and no more. Any other write preallocates:
//! behind the file's end, or in its hole, for a random writer may begin at the end and fill the holes later.
//!
//! Leaves out: the map of the file, of which only the length of a hole is asked for; reservations, which the caller makes.
//!
//! Locks: as the methods of [`Preallocator`] that it calls; none while the length of a hole is asked for. Source: kernel
//! `ext4_mb_new_blocks`, `ext4_mb_normalize_request`, `ext4_mb_group_or_file`. Tests: `prealloc/tests.rs`; the engine's
//! `tests/prealloc.rs`.

use extant_ondisk::extent::MAX_LEN;
use extant_ondisk::{Cluster, GroupNumber, InodeNumber, LogicalCluster};
use extant_rt::Arc;

use super::{Preallocated, Preallocations, Preallocator};
use crate::group::ClusterRun;
use crate::locality::LocalityHint;
use crate::request::{Purpose, Request};
use crate::{Error, Reservation};

/// A write into a hole of a file, as far as the choice of its blocks goes by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileWrite {
    /// The file.
    pub inode: InodeNumber,
    /// The directory that it was made in; 0 if that is not known.
    pub directory: InodeNumber,
    /// The first block of the file that is written.
    pub logical: LogicalCluster,
    /// Blocks wanted at most; the hole is at least as long.
    pub len: u32,
    /// The byte of the file where the write ends, or where the file is to end.
    pub end: u64,
    /// The size of the file now, in bytes.
    pub size: u64,
    /// Whether the file may grow in the same way.
    pub grows: bool,
    /// The block of the disk where the first one would best be, beside those mapped before or behind it, if there are any.
    pub goal: Option<Cluster>,
}

/// Up to which byte blocks are taken ahead for a file that ends at `end`, from its byte `start` on (kernel
/// `ext4_mb_normalize_request`). Large files have 8 MiB from `start` on, not up to a multiple of that: what is left up to it
/// gets shorter and shorter, and a short request is met by a short chunk.
pub(super) fn predicted_end(start: u64, end: u64) -> u64 {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    match end {
        end if end <= MIB => end.next_power_of_two().max(16 * KIB),
        end if end <= 4 * MIB => end.next_multiple_of(2 * MIB),
        end if end <= 8 * MIB => end.next_multiple_of(4 * MIB),
        _ => start.saturating_add(8 * MIB),
    }
}

impl Preallocator {
    /// Takes blocks for the start of a write out of what is preallocated: for its file, or else for its locality group. A small
    /// file gets all that it wants there or none; a larger one what follows on its last block.
    ///
    /// `hole_len` gives how many of so many blocks from the write's first one on are a hole. It is called once at most.
    ///
    /// # Errors
    /// What `hole_len` gives; nothing is taken then.
    ///
    /// # Locks
    /// Takes `PREALLOCATIONS` and `LOCALITY`; may read bitmaps.
    pub fn use_preallocated<E>(
        &self,
        owner: &Arc<Preallocations>,
        write: &FileWrite,
        hole_len: impl FnOnce(u32) -> Result<u32, E>,
    ) -> Result<Preallocated, E> {
        let room = match self.use_inode_pa(owner, write.logical, write.len) {
            run @ Preallocated::Run(_) => return Ok(run),
            Preallocated::None { room } => room,
        };
        let request = self.file_request(write, write.len.min(room));
        let inode_group = self.group_of_inode(write.inode);
        let taken = match request.purpose {
            Purpose::Data => {
                let hint = LocalityHint { inode_group, directory: write.directory };
                let surplus = self.surplus(write, request.len, room, hole_len)?;
                self.use_group_pa(&request, hint, owner, write.logical, surplus)
            }
            _ => self.extend_group_pa(&request, inode_group),
        };
        Ok(taken.map_or(Preallocated::None { room }, Preallocated::Run))
    }

    /// Allocates blocks for the start of a write of whose file nothing is preallocated within `room` blocks
    /// ([`Preallocator::use_preallocated`]): a run of at least one and up to as many as are wanted, reserved and before the next
    /// preallocation. The file gets a new preallocation behind them if the write calls for one and blocks are not scarce.
    ///
    /// `hole_len` is as there.
    ///
    /// # Errors
    /// As [`Mballoc::allocate`](crate::Mballoc::allocate), and what `hole_len` gives; nothing is taken then.
    ///
    /// # Locks
    /// Takes `PREALLOCATIONS`; may read bitmaps.
    pub fn allocate_file_blocks<E: From<Error>>(
        &self,
        reservation: &mut Reservation<'_>,
        owner: &Arc<Preallocations>,
        write: &FileWrite,
        room: u32,
        hole_len: impl FnOnce(u32) -> Result<u32, E>,
    ) -> Result<ClusterRun, E> {
        let len = reservation.blocks().min(u64::from(write.len.min(room))) as u32;
        let surplus = self.surplus(write, len, room, hole_len)?;
        let request = self.file_request(write, len);
        Ok(self.new_inode_pa(reservation, &request, owner, write.logical, surplus)?)
    }

    /// A request for the first `len` blocks of a write. A file that is or gets large is a stream.
    fn file_request(&self, write: &FileWrite, len: u32) -> Request {
        let small_bytes_max = u64::from(self.tuning.stream_req) * u64::from(self.geometry.block_size);
        let is_large = write.end.max(write.size) > small_bytes_max;
        let purpose = match write.goal {
            _ if !is_large => Purpose::Data,
            Some(_) => Purpose::Stream(write.inode),
            None => Purpose::NewStream(write.inode),
        };
        let goal =
            write.goal.unwrap_or_else(|| self.geometry.group_first_cluster(self.group_of_inode(write.inode)));
        Request { goal, len, least: 1, ahead: 0, purpose }
    }

    /// The group of an inode; the first one of an inode outside the disk.
    fn group_of_inode(&self, inode: InodeNumber) -> GroupNumber {
        self.geometry.inode_location(inode).map_or(GroupNumber(0), |(group, _)| group)
    }

    /// How many blocks to preallocate behind the first `len` of a write, where the next preallocated ones are `room` blocks away.
    fn surplus<E>(
        &self,
        write: &FileWrite,
        len: u32,
        room: u32,
        hole_len: impl FnOnce(u32) -> Result<u32, E>,
    ) -> Result<u32, E> {
        let cluster = self.geometry.cluster_bytes();
        let (start, size) = (u64::from(write.logical.0), write.size);
        let end = (start + u64::from(len)) * cluster;
        let is_all = size == 0 && write.end <= end;
        if !write.grows || is_all {
            return Ok(0);
        }
        let mut predicted = predicted_end(start * cluster, write.end.max(end).max(size)).div_ceil(cluster);
        // Not behind the end before something is written there.
        if start < size.div_ceil(cluster) {
            predicted = predicted.min(size.div_ceil(cluster));
        }
        // A run is in one group.
        let most = u64::from(self.geometry.clusters_per_group).min(u64::from(MAX_LEN)).min(u64::from(room));
        let window = predicted.saturating_sub(start).min(most) as u32;
        if window <= len {
            return Ok(0);
        }
        Ok(hole_len(window)?.saturating_sub(len))
    }
}
