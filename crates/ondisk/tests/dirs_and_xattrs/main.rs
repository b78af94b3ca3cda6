//! Directory blocks, the hash index, extended attributes and access lists, against models and against the tools and the
//! kernel.

mod dir_hash;
mod dirent_model;
mod htree_model;
mod image;
mod indexed_dir;
mod rng;
