//! The allocators against models, damage and many threads.

mod bitmap_cache;
mod descriptors;
mod disk;
mod groups;
mod inodes;
mod locality;
mod model;
mod prealloc;
mod threads;
mod trim;
