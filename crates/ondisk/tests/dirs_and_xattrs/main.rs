//! Directory blocks, the hash index, extended attributes and access lists, against models and against the tools and the
//! kernel.

mod acl;
mod dir_hash;
mod dir_image;
mod dirent_model;
mod htree_model;
mod image;
mod indexed_dir;
mod inline;
mod rng;
mod xattr;
mod xattr_image;
