//! Directory blocks, the hash index, extended attributes and access lists, against models and against the tools and the
//! kernel.

#[cfg(target_os = "linux")]
mod acl;
mod dir_hash;
#[cfg(target_os = "linux")]
mod dir_image;
mod dirent_model;
mod htree_model;
#[cfg(target_os = "linux")]
mod image;
mod indexed_dir;
mod inline;
mod rng;
mod sums;
mod xattr;
#[cfg(target_os = "linux")]
mod xattr_image;
