//! Devices that a file system is stored on.
//!
//! [`MemoryDevice`] and [`FileDevice`] are ready; a `std::sync::Mutex<Vec<u8>>` is a device, and [`FileExtDevice`] makes one of all that is read
//! and written at offsets. Other storage implements [`BlockDevice`]. An `Arc`, a `Box` and a reference of a device are devices too.
//!
//! A [`File`](crate::File) of a file system is no device for another one in the same process: debug builds assert one order of locks.

pub use extant_block::{
    BlockDevice, Copied, Create, DeviceAccess, Error, FileCopy, FileDevice, FileExtDevice, Holder,
    MemoryDevice, Partition, REQUESTS_IN_FLIGHT, Segment, Transfer, Write,
};
