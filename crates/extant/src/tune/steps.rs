//! Which changes of a disk's own files and of its layout lead from one superblock to another, and in which order they are made.
//!
//! All of them are one change of a [`Staged`] disk: what frees blocks comes first.

use extant_block::BlockDevice;
use extant_ondisk::{CompatFeatures, IncompatFeatures, RoCompatFeatures, Superblock};
use extant_rt::Arc;

use super::journal::Wanted;
use super::staged::Staged;
use super::{journal, layout, linear, mmp, orphan_file};
use crate::error::{Error, Result};
use crate::mount::Options;

/// The features that such a change turns on and off.
pub(super) const COMPAT: CompatFeatures =
    CompatFeatures::HAS_JOURNAL.union(CompatFeatures::ORPHAN_FILE).union(CompatFeatures::DIR_INDEX);
/// Likewise.
pub(super) const INCOMPAT: IncompatFeatures = IncompatFeatures::BIT64.union(IncompatFeatures::MMP);
/// Likewise.
pub(super) const RO_COMPAT: RoCompatFeatures = RoCompatFeatures::SPARSE_SUPER;

/// What the user says beside the features.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    pub(super) journal: Wanted,
    pub(super) orphan_file_bytes: Option<u64>,
}

/// What becomes of something that a disk has or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Stays,
    Added,
    Removed,
}

impl Step {
    fn of(had: bool, has: bool) -> Self {
        match (had, has) {
            (false, true) => Self::Added,
            (true, false) => Self::Removed,
            _ => Self::Stays,
        }
    }
}

/// The changes to be made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    journal: Step,
    orphan_file: Step,
    mmp: Step,
    bit64: Step,
    dir_index: Step,
    sparse_super: Step,
    /// Fast commits come with the journal.
    has_fast_commits: bool,
    sizes: Sizes,
}

impl Steps {
    /// # Errors
    /// `Unsupported` for what the disk does not allow.
    pub(super) fn between(from: &Superblock, to: &Superblock, sizes: Sizes) -> Result<Self> {
        let compat = |feature| Step::of(from.compat().contains(feature), to.compat().contains(feature));
        let incompat = |feature| Step::of(from.incompat().contains(feature), to.incompat().contains(feature));
        let sparse = RoCompatFeatures::SPARSE_SUPER;
        let steps = Self {
            journal: compat(CompatFeatures::HAS_JOURNAL),
            orphan_file: compat(CompatFeatures::ORPHAN_FILE),
            mmp: incompat(IncompatFeatures::MMP),
            bit64: incompat(IncompatFeatures::BIT64),
            dir_index: match compat(CompatFeatures::DIR_INDEX) {
                // Directories get an index as they grow.
                Step::Added => Step::Stays,
                step => step,
            },
            sparse_super: Step::of(from.ro_compat().contains(sparse), to.ro_compat().contains(sparse)),
            has_fast_commits: to.compat().contains(CompatFeatures::FAST_COMMIT),
            sizes,
        };
        if from.ro_compat().contains(RoCompatFeatures::BIGALLOC) && !steps.is_empty() {
            return Err(Error::Unsupported(
                "this change on a disk with bigalloc; labels, UUIDs, checksums and quotas can change there",
            ));
        }
        if steps.bit64 != Step::Stays {
            layout::with_64bit(from, steps.bit64 == Step::Added)?;
        }
        if steps.sparse_super == Step::Added && from.incompat().contains(IncompatFeatures::META_BG) {
            return Err(Error::Unsupported(
                "sparse_super with meta_bg, where descriptors lie behind the copies; make the disk anew with `mkfs` and copy",
            ));
        }
        let is_protected = from.incompat().contains(IncompatFeatures::MMP) && steps.mmp == Step::Stays;
        if is_protected && !steps.is_empty() {
            return Err(Error::Unsupported(
                "this change on a disk with multi-mount protection; `-O ^mmp` takes it away first",
            ));
        }
        Ok(steps)
    }

    /// Whether a journal comes or goes, and fast commits with it.
    pub(super) fn has_fast_commit_step(&self) -> bool {
        self.journal != Step::Stays
    }

    pub(super) fn is_empty(&self) -> bool {
        let steps = [self.journal, self.orphan_file, self.mmp, self.bit64, self.dir_index, self.sparse_super];
        let has_sizes = !self.sizes.journal.is_empty() || self.sizes.orphan_file_bytes.is_some();
        steps.iter().all(|step| *step == Step::Stays) && !has_sizes
    }

    /// Makes the changes on a disk that was unmounted; durable when it returns.
    ///
    /// # Errors
    /// Those of each change, and of [`Staged::commit`].
    pub(super) fn take(self, device: &Arc<dyn BlockDevice>, options: &Options) -> Result<()> {
        let mut staged = Staged::new(device, options)?;
        let has_orphan_file = staged.superblock()?.compat().contains(CompatFeatures::ORPHAN_FILE);
        let is_resized = has_orphan_file
            && self.orphan_file == Step::Stays
            && orphan_file::has_other_size(&staged, self.sizes.orphan_file_bytes)?;
        if self.orphan_file == Step::Removed || is_resized {
            orphan_file::remove(&staged)?;
        }
        if self.mmp == Step::Removed {
            mmp::remove(&staged)?;
        }
        if self.journal == Step::Removed {
            journal::remove(&staged)?;
        }
        if self.dir_index == Step::Removed {
            linear::make(&staged)?;
        }
        if self.sparse_super == Step::Added {
            layout::make_sparse(&staged)?;
        }
        if self.bit64 != Step::Stays {
            layout::set_64bit(&staged, self.bit64 == Step::Added)?;
        }
        if self.journal == Step::Added {
            staged.edit_superblock(|superblock| {
                let mut compat = superblock.compat();
                compat.set(CompatFeatures::FAST_COMMIT, self.has_fast_commits);
                superblock.set_compat(compat);
            })?;
            journal::add(&mut staged, self.sizes.journal)?;
        } else if self.journal == Step::Stays && !self.sizes.journal.is_empty() {
            journal::resize(&mut staged, self.sizes.journal)?;
        }
        if self.orphan_file == Step::Added || is_resized {
            orphan_file::add(&staged, self.sizes.orphan_file_bytes)?;
        }
        if self.mmp == Step::Added {
            mmp::add(&staged)?;
        }
        staged.commit()
    }
}
