//! What the kernel is told unasked.

use std::io::IoSlice;

use extant_rt::Arc;
use zerocopy::IntoBytes;

use super::device::Device;
use super::wire::{InvalidInodeOut, OutHeader, notify};
use crate::ops::NodeId;

/// The kernel that a mount is of.
#[derive(Clone, Debug)]
pub struct Kernel(Arc<Device>);

impl Kernel {
    pub(super) const fn new(device: Arc<Device>) -> Self {
        Self(device)
    }

    /// Has the kernel ask again for the attributes of `node` when somebody wants them. It may be told while a request for the
    /// node is answered: of attributes it only notes that they are old.
    ///
    /// Source: `fuse_reverse_inval_inode`.
    pub fn forget_attributes(&self, node: NodeId) {
        let body = InvalidInodeOut { ino: node.0, off: -1, len: 0 };
        let len = (size_of::<OutHeader>() + size_of::<InvalidInodeOut>()) as u32;
        let header = OutHeader { len, error: notify::INVAL_INODE, unique: 0 };
        // One that it has forgotten meanwhile it does not know, and need not.
        let _ = rustix::io::writev(
            self.0.fd(),
            &[IoSlice::new(header.as_bytes()), IoSlice::new(body.as_bytes())],
        );
    }
}
