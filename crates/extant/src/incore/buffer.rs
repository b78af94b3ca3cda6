//! Metadata blocks in memory.
//!
//! A buffer's bytes are an `Arc<[u8]>`. A reader takes a snapshot; a writer, inside an update, changes the bytes
//! in place, or a copy of them while a snapshot or the committer holds the old ones.
//!
//! Invariants: a buffer that the running transaction changed, or that a commit under way has frozen or made, is held by
//! that transaction and so never dropped from the cache; every other buffer can be read again from the journal's
//! committed blocks or the device. Every buffer was verified as the [`BufferKind`] under which it is held.
//!
//! Tests: `tests/evictions.rs`, `../tests/threads/`.
//!
//! Locks: `BUFFER`, one per buffer; no I/O under it, and never two at once.

use extant_ondisk::{FsBlock, InodeNumber, Structure};
use extant_rt::{Arc, AtomicBool, LockClass, Mutex, MutexGuard};

use crate::incore::cache::Cached;
use crate::incore::dirty_in::DirtyIn;

/// The largest block (64 KiB).
pub(crate) static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// The kind of a metadata block, which determines its verification and its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferKind {
    /// A block of directory entries of this inode.
    Directory(Owner),
    /// A root or node of a directory's hash tree.
    HtreeNode(Owner),
    /// A node of this inode's extent tree.
    Extent(Owner),
    /// A block of extended attributes.
    Xattr,
    /// A block of block numbers.
    Indirect,
    /// The target of a symbolic link.
    Symlink,
    /// Part of an inode table. Written by the committer only.
    InodeTable,
    /// Group descriptors. Written by the committer only.
    Descriptors,
    /// A block of the orphan file, which is this inode.
    OrphanFile(Owner),
    /// A block of a quota file.
    Quota,
}

impl BufferKind {
    /// The structure's name in errors.
    pub(crate) fn structure(self) -> Structure {
        match self {
            Self::Directory(_) => Structure::DirectoryBlock,
            Self::HtreeNode(_) => Structure::HtreeNode,
            Self::Extent(_) => Structure::ExtentNode,
            Self::Xattr => Structure::XattrBlock,
            Self::Indirect => Structure::IndirectBlock,
            Self::Symlink | Self::InodeTable => Structure::Inode,
            Self::Descriptors => Structure::GroupDescriptor,
            Self::OrphanFile(_) => Structure::OrphanFile,
            Self::Quota => Structure::QuotaFile,
        }
    }
}

/// An inode as checksums know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) inode: InodeNumber,
    pub(crate) generation: u32,
}

/// A metadata block in memory. Threads that change it one after the other hand on a cache line: its state is in no two.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Buffer {
    state: Mutex<State>,
    pub(crate) block: FsBlock,
    recently_used: AtomicBool,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) kind: BufferKind,
    pub(crate) dirty_in: DirtyIn,
    /// Freed: what the transaction that did so did to it before is void.
    pub(crate) forgotten: bool,
    /// Of a directory block whose entries were all found whole: the offset of one, while names that are looked for are missing.
    pub(crate) known_entry: Option<u16>,
    /// Counts the changes since it came into memory.
    pub(crate) version: u32,
}

impl Buffer {
    pub(crate) fn new(block: FsBlock, kind: BufferKind, bytes: Arc<[u8]>) -> Arc<Self> {
        let state =
            State { bytes, kind, dirty_in: DirtyIn::None, forgotten: false, known_entry: None, version: 0 };
        Arc::new(Self {
            block,
            recently_used: AtomicBool::new(true),
            state: Mutex::new(LockClass::BUFFER, state),
        })
    }

    /// The bytes as they are now. Holding them makes the next change copy the block.
    pub(crate) fn bytes(&self) -> Arc<[u8]> {
        self.state.lock().bytes.clone()
    }

    /// Reads the bytes in place; `read` takes no lock.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&[u8]) -> R) -> R {
        read(&self.state.lock().bytes)
    }

    pub(crate) fn kind(&self) -> BufferKind {
        self.state.lock().kind
    }

    /// Whether it is held as that, and its block was not freed.
    pub(crate) fn is_valid(&self, kind: BufferKind) -> bool {
        let state = self.state.lock();
        state.kind == kind && !state.forgotten
    }

    /// Whether it was neither changed since it had this version, nor freed.
    pub(crate) fn is_as_of(&self, version: u32) -> bool {
        let state = self.state.lock();
        state.version == version && !state.forgotten
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Cached for Buffer {
    fn key(&self) -> u64 {
        self.block.0
    }

    fn recently_used(&self) -> &AtomicBool {
        &self.recently_used
    }
}
