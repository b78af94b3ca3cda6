//! The C library `libextant`: a stable ABI over the engine, for C, C++, Go and other languages.
//!
//! `include/extant.h` is made from these sources by cbindgen, so the docstrings of what is exported address C programmers; its preamble
//! in `cbindgen.toml` states the contract of pointers, threads and errors. `link-shared` makes the shared library.
//!
//! **Errors.** A function returns a negative `errno`, as the kernel's do, and describes the error in a structure of the caller's, if
//! there is one. A thread-local last error, as that of `dlerror`, would be lost where a runtime moves its tasks between threads (Go), and
//! an error on the heap would have to be freed.
//!
//! **Panics** end at the border: [`boundary`] catches them and answers `ENOTRECOVERABLE`. A panic in the midst of a change aborts the
//! journal, so the disk is then as after a crash, and later changes get `EROFS`.
//!
//! **`unsafe`.** C passes handles and structures as references (`Option<&T>`), which are checked for NULL by their type. What remains is
//! strings, buffers, callbacks, and boxes that come back to be freed.
//!
//! Leaves out: what the engine does; quotas, resizing, tuning and views of users, which the Rust API has.
//!
//! Tests: `tests/programs.rs`, `tests/header.rs`.

#![expect(
    unsafe_code,
    reason = "the border to C: exported names, strings, buffers, callbacks and handles to free"
)]
#![expect(non_camel_case_types, reason = "types have the names that they have in C")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the preamble of the header states the contract of all pointers"
)]
#![warn(clippy::undocumented_unsafe_blocks)]

mod attributes;
mod boundary;
mod callbacks;
mod device;
mod directory;
mod error;
mod file;
mod filesystem;
mod names;
mod time;
mod xattrs;

pub use attributes::{
    EXTANT_NOFOLLOW, extant_attributes, extant_chmod, extant_chown, extant_stat, extant_utimens,
};
pub use callbacks::extant_callbacks;
pub use device::{
    EXTANT_READ_ONLY, extant_device, extant_device_close, extant_device_create, extant_device_custom,
    extant_device_open,
};
pub use directory::{extant_closedir, extant_dir, extant_dirent, extant_opendir, extant_readdir};
pub use error::{extant_error, extant_error_kind};
pub use file::{
    EXTANT_APPEND, EXTANT_CREATE, EXTANT_DATA_ONLY, EXTANT_EXCLUSIVE, EXTANT_READ, EXTANT_SEEK_CUR,
    EXTANT_SEEK_DATA, EXTANT_SEEK_END, EXTANT_SEEK_HOLE, EXTANT_SEEK_SET, EXTANT_TRUNCATE, EXTANT_WRITE,
    extant_close, extant_file, extant_fstat, extant_fsync, extant_open, extant_pread, extant_pwrite,
    extant_read, extant_seek, extant_truncate, extant_write,
};
pub use filesystem::{
    EXTANT_DISCARD, EXTANT_NO_BACKGROUND, EXTANT_NO_PAGE_CACHE, EXTANT_NO_RECOVERY, extant_check, extant_fs,
    extant_mkfs, extant_mkfs_options, extant_mount, extant_mount_options, extant_statfs, extant_sync,
    extant_unmount, extant_usage, extant_version,
};
pub use names::{
    extant_link, extant_mkdir, extant_mknod, extant_readlink, extant_rename, extant_rmdir, extant_symlink,
    extant_unlink,
};
pub use time::{EXTANT_TIME_OMIT, extant_time};
pub use xattrs::{
    EXTANT_XATTR_CREATE, EXTANT_XATTR_REPLACE, extant_getxattr, extant_listxattr, extant_removexattr,
    extant_setxattr,
};
