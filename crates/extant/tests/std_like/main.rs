//! The path API beside `std::fs`, and what a program needs of the crate without naming another of ours.

mod devices;
mod directories;
mod errors;
mod facade;
mod files;

use extant::device::MemoryDevice;
use extant::{Filesystem, Mount, mkfs::Mkfs};

/// An empty file system in memory.
fn new_disk(megabytes: u64) -> Filesystem {
    let device = MemoryDevice::new(megabytes << 20);
    Mkfs::new().format(&device).expect("format");
    Mount::new().background(false).open_device(device).expect("mount")
}
