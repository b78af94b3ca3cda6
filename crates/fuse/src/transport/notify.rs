//! Unsolicited notifications to the kernel.

use std::io::IoSlice;
use std::ops::Range;

use extant_rt::{Arc, Weak};
use zerocopy::IntoBytes;

use super::device::Device;
use super::wire::{InvalidInodeOut, OutHeader, notify};
use crate::ops::node_id::NodeId;

/// Notifies the kernel that a mount is of. It does not keep the mount: that ends once no server serves it.
#[derive(Clone, Debug)]
pub struct Notifier(Weak<Device>);

impl Notifier {
    pub(super) fn new(device: &Arc<Device>) -> Self {
        Self(Arc::downgrade(device))
    }

    /// Has the kernel ask again for the attributes of `node` when they are next wanted. It may be called while a request for the
    /// node is answered: of attributes it only notes that they are old.
    ///
    /// Source: `fuse_reverse_inval_inode`.
    pub fn forget_attributes(&self, node: NodeId) {
        self.invalidate(InvalidInodeOut { ino: node.0, off: -1, len: 0 });
    }

    /// Has the kernel write back what it holds changed of a range of a file, and forget what it has of it. Returns when that was
    /// written: other threads answer the requests for that meanwhile, those of the class of writes, of which none comes here.
    ///
    /// The kernel takes locks of the pages for it, and of the file none. So it may be called while a request is answered for which
    /// the kernel holds the file's lock, as for `lseek` and for flags.
    ///
    /// Source: `fuse_reverse_inval_inode`, `invalidate_inode_pages2_range`, `fuse_launder_folio`.
    pub fn write_back(&self, node: NodeId, range: Range<u64>) {
        let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let (off, len) = (signed(range.start), signed(range.end.saturating_sub(range.start)));
        // A length of nothing would be everything.
        if len > 0 {
            extant_rt::before_wait();
            self.invalidate(InvalidInodeOut { ino: node.0, off, len });
        }
    }

    fn invalidate(&self, body: InvalidInodeOut) {
        let Some(device) = self.0.upgrade() else { return };
        let len = (size_of::<OutHeader>() + size_of::<InvalidInodeOut>()) as u32;
        let header = OutHeader { len, error: notify::INVAL_INODE, unique: 0 };
        // One that it has forgotten meanwhile it does not know, and need not.
        let told = [IoSlice::new(header.as_bytes()), IoSlice::new(body.as_bytes())];
        let _ = rustix::io::writev(device.fd(), &told);
    }
}
