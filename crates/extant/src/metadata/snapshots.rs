//! Inodes and blocks as a transaction left them, for its commit.

use extant_ondisk::{FsBlock, InodeNumber, RawInode};
use extant_rt::Arc;

use crate::incore::buffer::{Buffer, BufferKind, State};
use crate::incore::inode::{Inode, InodeState};

/// A block as a transaction left it, but for its checksum.
#[derive(Debug)]
pub(crate) struct BufferSnapshot {
    pub(crate) block: FsBlock,
    pub(crate) kind: BufferKind,
    pub(crate) bytes: Arc<[u8]>,
}

impl BufferSnapshot {
    pub(crate) fn new(buffer: &Buffer, state: &State) -> Self {
        Self { block: buffer.block, kind: state.kind, bytes: state.bytes.clone() }
    }
}

/// An inode as a transaction left it.
#[derive(Debug)]
pub(crate) struct InodeSnapshot {
    /// The block of the inode table.
    pub(crate) block: FsBlock,
    /// The byte in it where the inode begins.
    pub(crate) offset: usize,
    pub(crate) number: InodeNumber,
    pub(crate) raw: Arc<RawInode>,
}

impl InodeSnapshot {
    pub(crate) fn new(inode: &Inode, state: &InodeState) -> Self {
        let (block, offset) = inode.home;
        Self { block, offset, number: inode.number, raw: state.raw.clone() }
    }
}

/// Copies of what the running transaction changed before the commit of the one before it came to it.
#[derive(Debug, Default)]
pub(crate) struct EarlySnapshots {
    pub(crate) buffers: Vec<BufferSnapshot>,
    pub(crate) inodes: Vec<InodeSnapshot>,
}
