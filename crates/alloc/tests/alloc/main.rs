//! The allocators against models, damage and many threads.

mod bitmap_cache;
mod descriptors;
mod disk;
mod groups;
mod inodes;
#[cfg(extant_linux_model)]
mod linux_model;
mod locality;
mod model;
mod policy;
mod prealloc;
mod threads;
mod trim;
