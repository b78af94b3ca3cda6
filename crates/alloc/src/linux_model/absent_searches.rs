//! The hooks of `list_heads.rs` and `lockless_inodes.rs` in a build without the forms of older kernels, as `absent.rs` has the others.

use extant_ondisk::{GroupNumber, TransactionId};

use crate::group::ClusterRun;
use crate::group::summary::Key;
use crate::ialloc::{InodeAllocator, InodeKind, NewInode};
use crate::mballoc::{Criterion, Search};

impl Search<'_> {
    pub(crate) fn at_heads(
        &mut self,
        _: Criterion,
        _: (Key, u8),
        _: GroupNumber,
        _: u32,
    ) -> Option<Option<(ClusterRun, GroupNumber)>> {
        None
    }
}

impl InodeAllocator {
    pub(crate) fn allocate_inode_as_older(
        &self,
        _: TransactionId,
        _: GroupNumber,
        _: InodeKind,
    ) -> Option<Option<NewInode>> {
        None
    }
}
