//! The counts of free blocks and inodes after a crash, when the superblock has older ones.
//!
//! Mounting reads the descriptors of a disk of ordinary size, which count exactly. Of a larger one a thread reads the rest while
//! the disk is in use; so does a thread that would be refused a block, and an unmount that comes before. After a clean unmount
//! the superblock is believed, and descriptors are read as they are needed.
//!
//! The thread holds the volume only while it works, so a volume that is dropped ends it.

use extant_rt::{Arc, Ordering};

use crate::metadata::SbInfo;

/// Blocks of descriptors that are read by mounting: those of 8 TiB, where blocks have 4 KiB.
pub(crate) const DESCRIPTOR_BLOCKS_AT_MOUNT: u32 = 1024;

/// How many of the blocks of descriptors were read since mounting. Once all were, free blocks and inodes are counted by
/// them, and not by the superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// Blocks of descriptors of the disk.
    pub blocks: u32,
    /// Blocks of descriptors that were read.
    pub read: u32,
}

impl SbInfo {
    pub(crate) fn descriptors(&self) -> Descriptors {
        Descriptors {
            blocks: self.geometry.descriptor_block_count(),
            read: self.allocator.descriptor_blocks_read(),
        }
    }

    /// Has all counted, in the thread's stead. To be called when the volume is being unmounted.
    pub(crate) fn finish_counting(&self) {
        let thread = self.counting.lock().take();
        // The thread itself comes here if it lets go of the volume last.
        if let Some(thread) = thread.filter(|thread| !extant_rt::is_current(thread)) {
            // A panic of the thread has been reported where it happened.
            let _ = thread.join();
        }
        if self.is_crashed {
            self.allocator.count_exactly();
        }
    }
}

/// Starts the thread, if there is anything to count. If the host gives none, the counting is done at the end.
pub(crate) fn start<V: AsRef<SbInfo> + Send + Sync + 'static>(volume: &Arc<V>) {
    let sbi = (**volume).as_ref();
    let Descriptors { blocks, read } = sbi.descriptors();
    if read == blocks {
        return;
    }
    let volume = Arc::downgrade(volume);
    let thread = extant_rt::spawn("extant-counting", move || {
        for block in 0..blocks {
            let Some(volume) = volume.upgrade() else { return };
            let sbi = (*volume).as_ref();
            if sbi.unmounted.load(Ordering::Acquire) {
                return;
            }
            // Groups that cannot be read have no free blocks; an operation that needs them gets the error.
            let _ = sbi.allocator.read_descriptors(block..block + 1);
        }
    });
    *sbi.counting.lock() = thread.ok();
}
