//! Disks with features that `extant mkfs` does not make, through the public interface: made by mke2fs, debugfs, tune2fs and the
//! kernel, judged by e2fsck and the kernel.
#![cfg(target_os = "linux")]

mod casefold;
mod disk;
mod encrypt;
mod mmp;
mod verity;
