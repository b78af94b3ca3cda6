//! Blocks that are reserved before data is written, and the update that uses them afterwards.

use extant_alloc::{Error as AllocError, MayUse, Reservation};
use extant_ondisk::{IncompatFeatures, Superblock};

use crate::error::{Error, Result};
use crate::metadata::SbInfo;
use crate::metadata::update::MetadataUpdate;

/// Clusters of the pool that [`MayUse::Reserved`] takes, on a disk whose files have extents: 2 %, at most 4096
/// (`ext4_calculate_resv_clusters`).
pub(crate) fn reserved_clusters_of(superblock: &Superblock) -> u64 {
    const PART: u64 = 50;
    const CLUSTERS_MAX: u64 = 4096;
    match superblock.incompat().contains(IncompatFeatures::EXTENTS) {
        true => (superblock.blocks_count() / u64::from(superblock.cluster_ratio()) / PART).min(CLUSTERS_MAX),
        false => 0,
    }
}

/// The free blocks that a writer's content may take.
pub(crate) const fn writer_may_use(privileged: bool) -> MayUse {
    if privileged { MayUse::RootBlocks } else { MayUse::Free }
}

impl SbInfo {
    /// Reserves `most` clusters, or as many as there are in halves of it, but at least `least`. Commits if too few
    /// are free but some wait for a commit.
    ///
    /// # Errors
    /// `NoSpace`; `ReadOnly`; the journal's.
    ///
    /// # Locks
    /// None inside `HANDLE` may be held, and no update may be open.
    pub(crate) fn reserve(&self, least: u32, most: u32, may_use: MayUse) -> Result<Reservation<'_>> {
        let journal = self.writable()?;
        let mut blocks = most.max(least);
        let mut committed = false;
        loop {
            match self.allocator.reserve(u64::from(blocks), may_use) {
                Err(AllocError::NoSpace) if !committed && self.allocator.pending_free() > 0 => {
                    journal.commit_running()?;
                    committed = true;
                }
                Err(AllocError::NoSpace) if blocks > least => blocks = (blocks / 2).max(least),
                Err(AllocError::NoSpace) => return Err(Error::NoSpace),
                Err(error) => return Err(error.into()),
                Ok(reservation) => {
                    if self.allocator.wants_commit() {
                        journal.ask_for_commit();
                    }
                    return Ok(reservation);
                }
            }
        }
    }

    /// Opens an update that may use a reservation made before.
    ///
    /// # Errors
    /// `ReadOnly`; the journal's.
    ///
    /// # Locks
    /// None inside `HANDLE` may be held.
    #[track_caller]
    pub(crate) fn begin_reserved<'v>(
        &'v self,
        credits: u32,
        reservation: Reservation<'v>,
    ) -> Result<MetadataUpdate<'v>> {
        Ok(MetadataUpdate::new(self, self.start_handle(credits)?, reservation))
    }
}
