//! The allocators against models, damage and many threads.

mod descriptors;
mod disk;
mod groups;
mod inodes;
mod kept;
mod locality;
mod model;
mod prealloc;
mod threads;
mod trim;
